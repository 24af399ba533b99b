"""Delivery of messages that waited for their delay level: the worker's step, and how far each level is.

Java: ScheduleMessageService.  Every level is a queue of SCHEDULE_TOPIC_XXXX, whose entries say when they are due; they
are delivered in their order, and progress is saved in config/delayOffset.json.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.broker.delay import DelayLevels
from rmqstore.broker.delay_columns import Restored, read_records, restored_columns, restored_few
from rmqstore.clock import Clock
from rmqstore.errors import StoreError
from rmqstore.formats import message as layouts
from rmqstore.formats import names
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.queue_extension import is_extension_address
from rmqstore.log.encode.columns import EncodedColumns
from rmqstore.log.encode.record_frame import RecordForm
from rmqstore.log.get.readable import Queues, ReadableLog, ReadableQueue
from rmqstore.message import PutResult

FIRST_PAUSE_S = 1.0  # Java: FIRST_DELAY_TIME
PAUSE_S = 0.1  # Java: DELAY_FOR_A_WHILE
FAILURE_PAUSE_S = 10.0  # Java: DELAY_FOR_A_PERIOD
SAVE_INTERVAL_S = 10.0  # Java: flushDelayOffsetInterval

# The most that one look at a level takes, but one message in any case.
_BATCH_COUNT = 32 * 1024
_BATCH_SIZE = 16 * 1024 * 1024
# Up to so many are restored one by one: 14 µs each, where the vectors' calls take 600 µs for any number.
_FEW_COUNT = 48
# Upper bounds of the classes in which lateness is counted; what is later than the last has a class of its own.
LATENESS_BOUNDS_MS = (1, 10, 50, 100, 150, 200, 500, 1000, 5000, 10_000, 60_000)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where progress comes from and goes to: `loaded` is the table of config/delayOffset.json by level, `save` makes
    such a table durable, and `sync_log` the log, up to the last message put."""

    loaded: Mapping[int, int]
    save: Callable[[dict[int, int]], None]
    sync_log: Callable[[], None]


class ReadyPut(NamedTuple):
    """Where ready-made records go: `append` puts them past all hooks, without waiting for the disk, and says how many
    of them, from the first on, are stored (Appender.put_records); all records of the store have the `form`.
    """

    append: Callable[[EncodedColumns], PutResult]
    form: RecordForm


class DelayDelivery:
    """Puts waiting messages where they belong when their time has come; one thread calls `step`.

    What `put` refuses is tried again, so nothing is lost; after a crash messages that were delivered since the last
    save come again, as from a broker.  Counters only ever grow.
    """

    def __init__(
        self,
        log: ReadableLog,
        queues: Queues,
        put: ReadyPut,
        levels: DelayLevels,
        clock: Clock,
        progress: Progress,
    ) -> None:
        self.delivered_count = 0
        self.half_count = 0  # half messages, which are discarded
        self.unreadable_count = 0  # damaged, gone, or without a place to go: they stay in the schedule topic only
        self.refused_count = 0  # puts that were refused and are tried again
        self.failure_count = 0
        self.last_failure = ""
        self.lateness_counts = np.zeros(len(LATENESS_BOUNDS_MS) + 1, np.int64)  # of those delivered
        self._log, self._queues = log, queues
        self._append, self._form = put
        self._levels, self._clock, self._progress = levels, clock, progress
        self._offsets = {level: self._bounded(level, progress.loaded.get(level, 0)) for level in self._all_levels()}
        self._saved = {level: progress.loaded.get(level, 0) for level in self._offsets}
        began_s = clock.monotonic_s()
        self._resume_s = dict.fromkeys(self._all_levels(), began_s + FIRST_PAUSE_S)
        self._save_s = began_s + SAVE_INTERVAL_S

    @property
    def offsets(self) -> dict[int, int]:
        """By level, the queue offset of the next message to deliver; also of levels that are configured no more."""
        others = {level: offset for level, offset in self._progress.loaded.items() if level not in self._offsets}
        return others | self._offsets

    @property
    def pending_count(self) -> int:
        """How many messages wait, as far as they are dispatched."""
        return sum(self._end(level) - self._bounded(level, offset) for level, offset in self.offsets.items())

    def step(self) -> float:
        """Delivers what is due, at most one batch of each level; returns after how many seconds to go on.

        0 when more is due.  What goes wrong is counted and noted, and that level rests 10 s; nothing is raised for it.
        """
        pauses_s = [self._step_level(level) for level in self._all_levels()]
        now_s = self._clock.monotonic_s()
        if now_s >= self._save_s:
            self._save_s = now_s + SAVE_INTERVAL_S
            try:
                self.persist()
            except (OSError, StoreError) as failure:
                self._note(failure)
        return min([*pauses_s, SAVE_INTERVAL_S])

    def persist(self) -> None:
        """Saves progress if there was any, after the deliveries that it stands for are on the disk.

        Raises what `sync_log` and `save` raise.
        """
        offsets = dict(self._offsets)
        if offsets == self._saved:
            return
        others = {level: offset for level, offset in self._progress.loaded.items() if level not in offsets}
        self._progress.sync_log()
        self._progress.save(others | offsets)
        self._saved = offsets

    def _all_levels(self) -> range:
        return range(1, self._levels.count + 1)

    def _queue(self, level: int) -> ReadableQueue | None:
        return self._queues.find(names.SCHEDULE_TOPIC, level - 1)

    def _end(self, level: int) -> int:
        queue = self._queue(level)
        return 0 if queue is None else queue.max_offset

    def _bounded(self, level: int, offset: int) -> int:
        """An offset forced into what the level's queue has."""
        queue = self._queue(level)
        return 0 if queue is None else max(queue.min_offset, min(offset, queue.max_offset))

    def _step_level(self, level: int) -> float:
        """One batch of a level; seconds until the next."""
        now_s = self._clock.monotonic_s()
        rest_s = self._resume_s[level] - now_s
        if rest_s > 0:
            return rest_s
        try:
            return 0 if self._deliver(level) else PAUSE_S
        except (OSError, StoreError) as failure:
            self._note(failure)
            self._resume_s[level] = now_s + FAILURE_PAUSE_S
            return FAILURE_PAUSE_S

    def _note(self, failure: Exception) -> None:
        self.failure_count += 1
        self.last_failure = str(failure) or repr(failure)

    def _deliver(self, level: int) -> bool:
        """Delivers from the level's offset on; whether more may be due at once."""
        queue = self._queue(level)
        if queue is None:
            return False
        first = self._offsets[level] = self._bounded(level, self._offsets[level])
        entries = queue.read(first, first + _BATCH_COUNT)
        now_ms = self._clock.now_ms()
        due_ms = self._due_ms(level, entries, now_ms)
        count = len(due_ms)
        if not count:
            return False
        offsets = entries["physical_offset"][:count].astype(np.int64)
        page, bounds = read_records(self._log, offsets, entries["size"][:count].astype(np.int64))
        size_max = self._log.files.file_size - layouts.BLANK.size
        restore = restored_few if count <= _FEW_COUNT else restored_columns
        restored = restore(page, bounds, offsets, self._form, size_max)
        passed = self._put_all(restored, due_ms)
        self._offsets[level] = first + passed
        return passed == count and first + count < queue.max_offset

    def _due_ms(self, level: int, entries: npt.NDArray[np.void], now_ms: int) -> Ints:
        """When each of the entries that are due, from the first on and as many as make a batch, was to be delivered:
        int64[].

        A time that lies further ahead than the level's delay comes from a clock that went back since: due now.
        """
        delay_ms = self._levels.delay_ms[level - 1]
        codes = entries["tags_code"].astype(np.int64)
        for row in np.flatnonzero(codes < 0).tolist():
            if not is_extension_address(int(codes[row])):
                continue
            codes[row] = self._due_by_record(entries[row], now_ms, delay_ms)
            if codes[row] > now_ms:
                break
        due_ms: Ints = np.where(codes > now_ms + delay_ms, now_ms, codes)
        ahead = np.flatnonzero(due_ms > now_ms)
        sizes = np.clip(entries["size"], 0, self._log.files.file_size).astype(np.int64)
        full = np.flatnonzero(np.cumsum(sizes) > _BATCH_SIZE)
        ends = [len(codes), *ahead[:1].tolist(), *(max(row, 1) for row in full[:1].tolist())]
        return due_ms[: min(ends)]

    def _put_all(self, restored: Restored, due_ms: Ints) -> int:
        """Puts the records of some entries; how many entries, from the first on, are done with."""
        records, stored = restored.records, 0
        if records.count:
            result = self._append(records)
            stored = result.message_count
        self.delivered_count += stored
        late_ms = self._clock.now_ms() - due_ms[restored.rows[:stored]]
        classes = np.searchsorted(LATENESS_BOUNDS_MS, late_ms)
        self.lateness_counts += np.bincount(classes, minlength=len(self.lateness_counts))
        if stored < records.count:
            self.refused_count += 1
            return int(restored.rows[stored])
        self.half_count += restored.half_count
        self.unreadable_count += restored.unreadable_count
        return len(due_ms)

    def _due_by_record(self, entry: np.void, now_ms: int, delay_ms: int) -> int:
        """When a message is due whose entry points at an extension unit, by its store time; now if it is damaged."""
        offset, size = int(entry["physical_offset"]), min(int(entry["size"]), self._log.files.file_size)
        found = layouts.read_record(self._log.read(offset, size), 0)
        return found.store_timestamp + delay_ms if isinstance(found, layouts.Record) else now_ms
