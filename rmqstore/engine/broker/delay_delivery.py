"""Delivery of messages that waited for their delay level: the worker's step, and how far each level is.

Java: ScheduleMessageService.  Every level is a queue of SCHEDULE_TOPIC_XXXX, whose entries say when they are due; they
are delivered in their order, and progress is saved in config/delayOffset.json.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.clock import Clock
from rmqstore.core.message import PutResult
from rmqstore.engine.broker.delay import (
    CRC_NAME,
    DelayLevels,
    RestoredRecord,
    Undeliverable,
    destination,
    restored_record,
)
from rmqstore.engine.log.encode.binary_columns import EMPTY, data_of, offsets_of
from rmqstore.engine.log.encode.columns import EncodedColumns, Goals, scatter
from rmqstore.engine.log.encode.record_frame import (
    PROPERTIES_SIZE_MAX,
    STORE_TIME_AT_V4,
    STORE_TIME_AT_V6,
    RecordForm,
)
from rmqstore.engine.log.get.readable import Queues, ReadableLog, ReadableQueue
from rmqstore.errors import StoreError
from rmqstore.formats import message, names, properties, sys_flag
from rmqstore.formats import message as layouts
from rmqstore.formats.java_text import java_text
from rmqstore.formats.message_columns import Bytes, Ints, Located, Mask, Places, compare_bytes, locate
from rmqstore.formats.names import QueueKey
from rmqstore.formats.property_columns import VALUE_END, split_pieces
from rmqstore.formats.queue_extension import is_extension_address
from rmqstore.formats.record_crc import PROPERTY_CRC_SIZE, masked_crc32s, property_crc, property_crcs_hold
from rmqstore.records.gather import joined_bytes

# --- Many waiting messages at once: their records as they are delivered, in vectors.
#
# The bytes are those of `delay.restored_record`, record by record.

# So many bytes of the log are read at once where they are worth it: where a record comes every 8 KiB on the average.
_WINDOW_SIZE = 4 * 1024 * 1024
_GAP_MAX = 8 * 1024
_HALF, _UNREADABLE = -1, -2


@dataclass(frozen=True, slots=True)
class Restored:
    """The outcome for n waiting records: `records` are those to be delivered, and `rows` int64[] which of the n they
    are, ascending; the others are counted by what they are instead."""

    records: EncodedColumns
    rows: Ints
    half_count: int
    unreadable_count: int


def read_records(log: ReadableLog, offsets: Ints, sizes: Ints) -> tuple[Bytes, Ints]:
    """The bytes of the records at n places of the log, end to end, and where each begins: uint8[], int64[n + 1].

    A place that no file holds, or not wholly, gives no bytes.  `offsets` int64[n] rise, unless the log is damaged.
    """
    file_size = log.files.file_size
    is_held = (offsets >= log.start) & (sizes >= message.RECORD_SIZE_MIN) & (sizes <= file_size)
    is_held &= (offsets + sizes <= log.readable_end) & (offsets % file_size + sizes <= file_size)
    rows = np.flatnonzero(is_held)
    taken = np.zeros(len(offsets), np.int64)
    pages = []
    while len(rows):
        first = int(offsets[rows[0]])
        near = (offsets[rows] >= first) & (
            offsets[rows] + sizes[rows] <= first + max(_WINDOW_SIZE, int(sizes[rows[0]]))
        )
        count = len(rows) if near.all() else int(np.argmin(near))
        page, sizes_read = _read_near(log, offsets[rows[:count]], sizes[rows[:count]])
        taken[rows[:count]] = sizes_read
        pages.append(page)
        rows = rows[count:]
    bounds = np.concatenate(([0], np.cumsum(taken)))
    return np.concatenate(pages) if pages else np.zeros(0, np.uint8), bounds


def _read_near(log: ReadableLog, offsets: Ints, sizes: Ints) -> tuple[Bytes, Ints]:
    """Records within one window, end to end, and how many bytes of each there are: its size or none."""
    first, end = int(offsets[0]), int((offsets + sizes).max())
    if end - first > _GAP_MAX * len(offsets):
        parts = [log.read(offset, size) for offset, size in zip(offsets.tolist(), sizes.tolist(), strict=True)]
        parts = [part if len(part) == size else b"" for part, size in zip(parts, sizes.tolist(), strict=True)]
        return np.frombuffer(b"".join(parts), np.uint8), np.array(list(map(len, parts)), np.int64)
    page = np.frombuffer(log.read(first, end - first), np.uint8)
    sizes = np.where(offsets - first + sizes <= len(page), sizes, 0)
    return joined_bytes(page, np.where(sizes > 0, offsets - first, 0), sizes)[0], sizes


def restored_few(page: Bytes, bounds: Ints, offsets: Ints, form: RecordForm, size_max: int) -> Restored:
    """`restored_columns` one by one: for a few records, and what it is held to."""
    records: list[RestoredRecord] = []
    rows = []
    counts = dict.fromkeys(Undeliverable, 0)
    data = page.tobytes()
    for row, offset in enumerate(offsets.tolist()):
        record = restored_record(data[bounds[row] : bounds[row + 1]], offset, form, size_max)
        if isinstance(record, Undeliverable):
            counts[record] += 1
        else:
            records.append(record)
            rows.append(row)
    halves, unreadable = counts[Undeliverable.HALF], counts[Undeliverable.UNREADABLE]
    return Restored(_together(records, form), np.array(rows, np.int64), halves, unreadable)


def _together(records: Sequence[RestoredRecord], form: RecordForm) -> EncodedColumns:
    """Records that were restored one by one, end to end."""
    starts = np.cumsum([0, *(len(record.data) for record in records)])
    data = np.frombuffer(bytearray().join([record.data for record in records]), np.uint8)
    queues: dict[QueueKey, int] = {}
    numbers = [queues.setdefault((record.topic, record.queue_id), len(queues)) for record in records]
    flags = np.array([record.sys_flag for record in records], np.int64)
    return _columns(data, starts, Goals(list(queues), np.array(numbers, np.int64)), flags, form)


def _columns(
    data: Bytes, starts: Ints, goals: Goals, flags: Ints | npt.NDArray[np.int32], form: RecordForm
) -> EncodedColumns:
    """Records end to end, by the queues that they go to and their sysFlags."""
    kinds = flags & sys_flag.TRANSACTION_MASK
    counted = (kinds == sys_flag.NOT_TRANSACTIONAL) | (kinds == sys_flag.COMMIT)
    is_v6 = flags & sys_flag.BORN_HOST_V6 != 0
    time_at = np.where(is_v6, STORE_TIME_AT_V6, STORE_TIME_AT_V4).astype(np.int64)
    goals = goals._replace(counted=None if counted.all() else counted)
    return EncodedColumns(data, starts, goals, store_time_at=time_at, has_crc=form.property_crc)


def restored_columns(page: Bytes, bounds: Ints, offsets: Ints, form: RecordForm, size_max: int) -> Restored:
    """The records that deliver n waiting messages, whose records `read_records` brought from `offsets` int64[n].

    `size_max` is what a file of the log takes.  See `delay.restored_record`.
    """
    sizes = np.diff(bounds)
    rows = np.flatnonzero(sizes)
    located = locate(page, bounds[:-1][rows])
    sound = _sound(located, sizes[rows], offsets[rows])
    located, rows = located.take(sound), rows[sound]
    waiting = _Waiting(located, rows, located.properties_size - PROPERTY_CRC_SIZE * _has_crc(located))
    queues, numbers = _destinations(located, waiting.blocks_size, form)
    half_count = int((numbers == _HALF).sum())
    waiting, numbers = waiting.take(numbers >= 0), numbers[numbers >= 0]
    topics = [form.topic_bytes(topic) or b"" for topic, _ in queues]
    properties_size = waiting.blocks_size + _tails(waiting, form)[1]
    topic_size = np.array([*map(len, topics), 0])[numbers]
    total_size = waiting.heads_size + topic_size + message.PROPERTIES_SIZE.size + properties_size
    fits = (properties_size <= PROPERTIES_SIZE_MAX) & (total_size <= size_max)
    if not fits.all():
        waiting, numbers = waiting.take(fits), numbers[fits]
    records = _encode(waiting, queues, numbers, topics, form)
    return Restored(records, waiting.rows, half_count, len(sizes) - half_count - len(waiting.rows))


@dataclass(slots=True)
class _Waiting:
    """Sound records, which of all they are (int64[]), and bytes of their properties without the CRC property."""

    located: Located
    rows: Ints
    blocks_size: Ints

    @property
    def heads_size(self) -> Ints:
        """Bytes of everything before the topic."""
        return self.located.body_at + self.located.body_size - self.located.starts

    def take(self, kept: Mask) -> "_Waiting":
        """Some of them."""
        return _Waiting(self.located.take(kept), self.rows[kept], self.blocks_size[kept])


def _sound(located: Located, sizes: Ints, offsets: Ints) -> Mask:
    """Which records are what their places say, and undamaged as far as CRCs tell."""
    sound: Mask = located.sound & (located.total_size == sizes)
    if sound.any():
        sound &= located.head("physical_offset") == offsets
    rows = np.flatnonzero(sound)
    part = located.take(rows)
    holds = (part.body_size == 0) | (
        masked_crc32s(part.page, part.body_at, part.body_size) == part.head("body_crc").astype(np.int64)
    )
    holds &= property_crcs_hold(part.page, part.starts, part.total_size, part.properties_size)
    sound[rows] = holds
    return sound


def _has_crc(located: Located) -> Mask:
    """Which properties end in a CRC property."""
    found: Mask = located.properties_size >= PROPERTY_CRC_SIZE
    rows = np.flatnonzero(found)
    ends = (located.properties_at + located.properties_size)[rows]
    found[rows] = located.page[ends - 1] == VALUE_END
    rows, ends = rows[found[rows]], ends[found[rows]]
    if len(rows):
        found[rows] = compare_bytes(located.page, ends - PROPERTY_CRC_SIZE, CRC_NAME)
    return found


def _destinations(located: Located, blocks_size: Ints, form: RecordForm) -> tuple[list[QueueKey], Ints]:
    """The queues that records come back to, and which of them each does: int64[n], or _HALF, or _UNREADABLE."""
    if not len(blocks_size):
        return [], np.zeros(0, np.int64)
    pieces = split_pieces(*joined_bytes(located.page, located.properties_at, blocks_size))
    names = (properties.REAL_TOPIC.encode(), properties.REAL_QUEUE_ID.encode())
    found = pieces.find_all(names)
    (topics, topic_numbers), (ids, id_numbers) = (_distinct(pieces.data, *found[name]) for name in names)
    pairs, numbers = np.unique(topic_numbers * len(ids) + id_numbers, return_inverse=True)
    queues: dict[QueueKey, int] = {}
    kinds = []
    for pair in pairs.tolist():
        back = destination(topics[pair // len(ids)], ids[pair % len(ids)], form)
        if isinstance(back, Undeliverable):
            kinds.append(_HALF if back is Undeliverable.HALF else _UNREADABLE)
        else:
            kinds.append(queues.setdefault(back, len(queues)))
    return list(queues), np.array(kinds, np.int64)[numbers]


def _distinct(data: Bytes, starts: Places, sizes: Places) -> tuple[list[str], Ints]:
    """Distinct texts of n slices (a size below 0 is no text: ""), and which each is: int64[n]."""
    known = np.maximum(sizes, 0).astype(np.int64)
    coded = _binary(*joined_bytes(data, starts.astype(np.int64), known)).dictionary_encode()
    numbers = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return [java_text(text) for text in coded.dictionary.to_pylist()], numbers


def _binary(data: Bytes, offsets: Ints) -> pa.Array:
    """binary[n] of slices that lie end to end."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _tails(waiting: _Waiting, form: RecordForm) -> tuple[pa.Array | pa.Scalar, Ints]:
    """The bytes that are written after the properties, and their size: room for the CRC property, and before it the
    mark that some writers leave out.
    """
    if not form.property_crc:
        return EMPTY, np.zeros(len(waiting.rows), np.int64)
    last = waiting.located.page[waiting.located.properties_at + waiting.blocks_size - 1]
    is_open = (waiting.blocks_size > 0) & (last != VALUE_END)
    texts = pa.array([property_crc(b""), properties.VALUE_END + property_crc(b"")], pa.binary())
    return texts.take(pa.array(is_open.astype(np.int8))), PROPERTY_CRC_SIZE + is_open.astype(np.int64)


def _encode(
    waiting: _Waiting, queues: list[QueueKey], numbers: Ints, topics: list[bytes], form: RecordForm
) -> EncodedColumns:
    """The records of messages that go back to `queues`, by their numbers; `topics` as records hold them."""
    located, count = waiting.located, len(numbers)
    if not count:
        return _together([], form)
    tails, tail_sizes = _tails(waiting, form)
    properties_sizes = (waiting.blocks_size + tail_sizes).astype(message.PROPERTIES_SIZE.dtype[0])
    sizes_data = np.frombuffer(properties_sizes.tobytes(), np.uint8)
    joined = pc.binary_join_element_wise(
        _binary(*joined_bytes(located.page, located.starts, waiting.heads_size)),
        pa.array(topics, pa.binary()).take(pa.array(numbers)),
        _binary(sizes_data, np.arange(count + 1) * message.PROPERTIES_SIZE.size),
        _binary(*joined_bytes(located.page, located.properties_at, waiting.blocks_size)),
        tails,
        EMPTY,
    )
    data, starts = data_of(joined), offsets_of(joined).astype(np.int64)
    fields = {
        "total_size": np.diff(starts),
        "magic": np.array([message.magic_of(len(topic)) for topic, _ in queues])[numbers],
        "queue_id": np.array([queue_id for _, queue_id in queues])[numbers],
    }
    for name, values in fields.items():
        scatter(data, starts[:-1] + message.HEAD.offset[name], values.astype(">i4").view("V4"))
    prepared_at = waiting.heads_size - located.body_size - message.FOOT.size
    prepared_at += message.FOOT.offset["prepared_transaction_offset"]
    scatter(data, starts[:-1] + prepared_at, np.zeros(count, "V8"))
    return _columns(data, starts, Goals(queues, numbers), located.flags, form)


# ---

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
