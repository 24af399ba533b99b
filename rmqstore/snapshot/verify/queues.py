"""Queue entries against the records that they point at, and records against the entries that they should have."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.directory import config_files
from rmqstore.directory.extension_files import resolve_extensions
from rmqstore.directory.listing import file_with
from rmqstore.directory.queue_files import BATCH, SIMPLE, QueueFiles, holds_message
from rmqstore.directory.undispatched import entries_at
from rmqstore.files.disk import join
from rmqstore.formats import names
from rmqstore.formats.inner_batch import record_numbers
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.formats.queue_entry import is_pre_blank
from rmqstore.formats.queue_extension import is_extension_address
from rmqstore.records.light_queues import light_runs
from rmqstore.records.queue_runs import QueueRun, runs_by_queue
from rmqstore.snapshot.finding import DAMAGE, NOTE, Finding, Tally, log_place
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent
from rmqstore.snapshot.verify.log_ordered import END, LogOrderedRows, Rows
from rmqstore.snapshot.verify.stretch_facts import StretchFacts

_BLOCK_MAX = 4096
_BLOCKS_ROWS = 4_000_000  # rows in the blocks of all queues together


class QueueCheck:
    """Follows the walk of a log with every queue at once.  Call `check` for each stretch in order, then `findings`."""

    def __init__(self, store: StoreExtent) -> None:
        self._store = store
        self._tally = Tally()
        extents = [queue for queue in store.queues.values() if queue.entry_end > queue.entry_start]
        block = max(64, min(_BLOCK_MAX, _BLOCKS_ROWS // max(len(extents), 1)))
        self._queues = {queue.key: _Entries(queue, store.log_end, block) for queue in extents}
        self._keys = list(self._queues)
        self._next = np.array([queue.next_offset() for queue in self._queues.values()], np.int64)
        self._numbers = {key: number for number, key in enumerate(self._keys)}
        self._dispatched_until = max((queue.last_offset for queue in self._queues.values()), default=-1)
        self._known_topics = set(config_files.topics(store.disk, store.path))
        self._topics_with_files = {key[0] for key, queue in store.queues.items() if queue.files.files}
        self._has_light_files = any(map(is_light_queue, self._topics_with_files))
        self._following: dict[QueueKey, int] = {}
        self._missing_count = 0

    def check(self, stretch: StretchFacts) -> None:
        """Compares one stretch with the entries that point into it."""
        if self._store.queue_layout != "file":
            return
        if stretch.after_break:
            self._following.clear()
        runs: dict[QueueKey, list[QueueRun]] = {}
        for run in runs_by_queue(stretch.stretch):
            runs.setdefault(run.key, []).append(run)
        due = [self._keys[number] for number in np.flatnonzero(self._next < stretch.high).tolist()]
        for key in {**dict.fromkeys(due), **dict.fromkeys(runs)}:
            self._check_queue(key, runs.get(key, []), stretch)
        if self._has_light_files:
            self._check_light(stretch)
        if len(stretch.rows) < len(stretch.stretch.offsets):
            self._following.clear()

    def findings(self) -> Iterator[Finding]:
        """The findings, each kind once a queue."""
        for key, queue in self._queues.items():
            numbers, _, _ = queue.rows.take_until(END)
            self._at_entries(queue, numbers, "the entry points at no record")
            self._take_irregular(key)
        for extent in self._store.queues.values():
            self._past_the_log(extent.files, extent.entry_end)
        if self._missing_count and not self._queues:
            yield self._all_missing()
        else:
            yield from self._tally.findings()

    def _check_queue(self, key: QueueKey, runs: list[QueueRun], stretch: StretchFacts) -> None:
        queue = self._queues.get(key)
        numbers, offsets, entries = np.zeros(0, np.int64), np.zeros(0, np.int64), None
        if queue is not None:
            numbers, offsets, entries = queue.rows.take_until(stretch.high)
            self._next[self._numbers[key]] = queue.next_offset()
            self._take_irregular(key)
        unmatched = np.ones(len(numbers), bool)
        for run in runs:
            at = np.minimum(np.searchsorted(offsets, stretch.stretch.offsets[run.rows]), max(len(offsets) - 1, 0))
            has = np.zeros(len(run.rows), bool)
            if queue is not None and entries is not None:
                has = offsets[at] == stretch.stretch.offsets[run.rows]
                unmatched[at[has]] = False
                self._compare(queue, run, has, (numbers[at[has]], entries[at[has]]), stretch)
            self._records_without_entry(run, ~has, stretch, queue)
        if queue is not None and entries is not None and unmatched.any():
            self._unmatched(queue, (numbers[unmatched], offsets[unmatched], entries[unmatched]), stretch)

    def _check_light(self, stretch: StretchFacts) -> None:
        """Records hold the entries of light queues besides.  One without files may have expired."""
        for run in light_runs(replace(stretch.stretch, light_from=0)):
            extent = self._store.queues.get(run.key)
            if extent is None or not extent.files.files:
                continue
            numbers = run.queue_offsets
            before = numbers[numbers < extent.entry_start]
            entries = entries_at(extent.files, before)
            lost = before[~holds_message(SIMPLE, entries) & ~is_pre_blank(entries)]
            self._at_places(extent.files, lost, "the entry is empty, and a message names its place")
            why = "not dispatched yet" if self._store.is_live else "entries are lost"
            reason = f"messages name places after the last entry: {why}, or properties of another store"
            self._at_places(extent.files, numbers[numbers >= extent.entry_end], reason, NOTE)

    def _compare(
        self, queue: "_Entries", run: QueueRun, has: Mask, held: tuple[Ints, Rows], stretch: StretchFacts
    ) -> None:
        """Entries beside the records that they point at: the same queue offset, size and tags code."""
        rows = run.rows[has]
        numbers, entries = held
        if queue.kind == BATCH:
            wrong = entries["base_queue_offset"] != run.queue_offsets[has]
            other = entries["message_count"] != run.counts[has]
            if other.any() and self._store.ledger is not None:  # units by RocketMQ's count, or by the record's own
                located = stretch.stretch.located.take(rows)
                for said in (record_numbers(located), record_numbers(located, in_entries=True)):
                    other &= entries["message_count"] != said.counts
            wrong |= other
        else:
            wrong = numbers != run.queue_offsets[has]
        for number, row in zip(numbers[wrong].tolist(), rows[wrong].tolist(), strict=True):
            path, position = log_place(self._store.log_files, int(stretch.stretch.offsets[row]))
            says = int(stretch.stretch.located.take(np.array([row])).head("queue_offset")[0])
            reason = f"the record says queue offset {says} of {run.key[0]}/{run.key[1]}, entry {number} points at it"
            self._tally.add(path, position, reason)
        self._compare_content(queue, numbers, entries, rows, stretch)

    def _compare_content(
        self, queue: "_Entries", numbers: Ints, entries: Rows, rows: npt.NDArray[np.intp], stretch: StretchFacts
    ) -> None:
        """Holds the fields that entries repeat against the records (`rows` of the stretch) that they point at."""
        located = stretch.stretch.located
        other = entries["size"] != located.total_size[rows]
        self._at_entries(queue, numbers[other], "the size in the entry is not the record's")
        codes = queue.tags_codes(entries)
        other = codes != stretch.tag_hashes[stretch.place_of[rows]]
        if queue.key[0] == names.SCHEDULE_TOPIC:
            other &= codes < located.take(rows).store_timestamp()  # else it is when the message goes out
        self._at_entries(queue, numbers[other], "the tags code in the entry is not that of the record's tags")
        if queue.kind == BATCH:
            late = entries["store_timestamp"] != located.take(rows).store_timestamp()
            self._at_entries(queue, numbers[late], "the time in the entry is not the record's")

    def _records_without_entry(
        self, run: QueueRun, missing: Mask, stretch: StretchFacts, queue: "_Entries | None"
    ) -> None:
        first = self._following.get(run.key)
        ends = run.queue_offsets + run.counts
        self._following[run.key] = int(ends[-1])
        if not missing.any():
            return
        offsets = stretch.stretch.offsets[run.rows]
        expected = np.concatenate(([int(run.queue_offsets[0]) if first is None else first], ends[:-1]))
        leaps = missing & (run.queue_offsets != expected) & (run.queue_offsets != 0)
        for row in np.flatnonzero(leaps).tolist():
            path, position = log_place(self._store.log_files, int(offsets[row]))
            name = f"{run.key[0]}/{run.key[1]}"
            reason = f"queue offset {run.queue_offsets[row]} of {name} follows {expected[row] - 1}"
            self._tally.add(path, position, reason)
        self._missing_count += int(missing.sum())
        newest = missing & (offsets > self._dispatched_until)
        self._add_missing(run, newest, *self._undispatched())
        if (missing & ~newest).any():
            self._add_missing(run, missing & ~newest, *self._passed_over(run.key, int(offsets[missing][0]), queue))

    def _undispatched(self) -> tuple[str, str]:
        """The meaning of newest records without entries."""
        if self._store.is_live:
            return "messages are not dispatched to their queue yet", NOTE
        return "messages have no queue entry, and without the file abort RocketMQ does not look for them", DAMAGE

    def _passed_over(self, key: QueueKey, offset: int, queue: "_Entries | None") -> tuple[str, str]:
        """The meaning of a record without an entry although later ones have theirs."""
        topic = key[0]
        if self._known_topics and topic not in self._known_topics and topic not in self._topics_with_files:
            return "messages of a topic that was deleted", NOTE
        if queue is not None and queue.first == 0 and offset < queue.first_offset:
            return "messages older than the queue, whose topic was deleted and made again", NOTE
        return "messages have no queue entry although later ones have", NOTE if self._store.lock_held else DAMAGE

    def _add_missing(self, run: QueueRun, which: Mask, reason: str, severity: str) -> None:
        count = int(run.counts[which].sum())
        if count:
            files = self._store.queues[run.key].files if run.key in self._store.queues else None
            low = int(run.queue_offsets[which].min())
            path, position = entry_place(files, low) if files else (self._directory(), 0)
            self._tally.add(path, position, f"{run.key[0]}/{run.key[1]}: {reason}", severity, count)

    def _all_missing(self) -> Finding:
        checkpoint = self._store.checkpoint
        young = self._store.is_live and (checkpoint is None or checkpoint.logics_timestamp_ms == 0)
        reason = f"no queue entries at all, while the commitlog holds {self._missing_count} messages for queues"
        return Finding(self._directory(), 0, reason, NOTE if young else DAMAGE)

    def _directory(self) -> str:
        return join(self._store.path, "consumequeue")

    def _unmatched(self, queue: "_Entries", held: tuple[Ints, Ints, Rows], stretch: StretchFacts) -> None:
        """Entries that none of the queue's own records answers: of a light queue, or wrong."""
        numbers, offsets, entries = held
        lost = stretch.leads_to_damage(offsets)
        self._at_entries(queue, numbers[lost], "the entry leads to a damaged place of the commitlog", NOTE)
        numbers, entries, places = numbers[~lost], entries[~lost], stretch.starts_sound(offsets[~lost])
        nowhere = places < 0
        self._at_entries(queue, numbers[nowhere], "the entry points at no record")
        numbers, entries, places = numbers[~nowhere], entries[~nowhere], places[~nowhere]
        if is_light_queue(queue.key[0]) and len(places):
            named = _is_dispatched_to(stretch, places, queue.key[0], numbers)
            self._compare_content(queue, numbers[named], entries[named], stretch.rows[places[named]], stretch)
            numbers = numbers[~named]
        self._at_entries(queue, numbers, "the entry points at a record that does not belong to this queue")

    def _past_the_log(self, files: QueueFiles, end: int) -> None:
        """Entries after the last one that counts: cut off by a recovery, or of commitlog files that are gone."""
        written = files.written_end()
        if not self._store.log_files or written <= end:
            return
        last = files.read(written - 1, written)["physical_offset"].astype(np.int64)[0]
        path, position = entry_place(files, end)
        gone = last >= self._store.log_files[-1].end and not self._store.lock_held
        reason = f"the entry points past the {'last commitlog file' if gone else 'end of the commitlog'}"
        self._tally.add(path, position, reason, DAMAGE if gone else NOTE, written - end)

    def _take_irregular(self, key: QueueKey) -> None:
        queue = self._queues[key]
        numbers = np.array(queue.rows.irregular, np.int64)
        queue.rows.irregular.clear()
        self._at_entries(queue, numbers, "the entry is empty or does not rise with its neighbours")

    def _at_entries(self, queue: "_Entries", numbers: Ints, reason: str, severity: str = DAMAGE) -> None:
        self._at_places(queue.extent.files, numbers, reason, severity)

    def _at_places(self, files: QueueFiles, numbers: Ints, reason: str, severity: str = DAMAGE) -> None:
        if len(numbers):
            path, position = entry_place(files, int(numbers[0]))
            self._tally.add(path, position, reason, severity, len(numbers))


class _Entries:
    """The entries of one queue that count, read forward."""

    def __init__(self, extent: QueueExtent, log_end: int, block: int) -> None:
        self.extent = extent
        self.key = extent.key
        self.kind = extent.files.kind
        self.first = extent.entry_start
        files = extent.files
        self.rows = LogOrderedRows(
            files.read, (extent.entry_start, extent.entry_end), is_pre_blank,
            log_end=log_end, strictly=True, block=block,
        )  # fmt: skip
        self.next_offset: Callable[[], int] = self.rows.next_offset
        self.first_offset = self.rows.next_offset()
        self.last_offset = int(files.read(extent.entry_end - 1, extent.entry_end)["physical_offset"][0])

    def tags_codes(self, entries: Rows) -> Ints:
        """int64[n], extension addresses replaced by what stands there."""
        codes = entries["tags_code"].astype(np.int64)
        if not len(codes) or not is_extension_address(int(codes.min())):
            return codes
        resolved = np.zeros(len(codes), [("tags_code", "i8")])
        resolved["tags_code"] = codes
        resolve_extensions(self.extent.files.disk, self.extent.files.root, self.key, resolved)
        return resolved["tags_code"]


def entry_place(files: QueueFiles, number: int) -> tuple[str, int]:
    """The file and byte of an entry by number; the queue's directory where no file has room for it."""
    place = number * files.layout.size
    file = file_with(files.files, place)
    return (files.directory, place) if file is None else (file.path, place - file.start)


def _is_dispatched_to(stretch: StretchFacts, places: npt.NDArray[np.intp], topic: str, numbers: Ints) -> Mask:
    """Which records name the light queue `topic` with that queue offset in INNER_MULTI_DISPATCH; bool[n]."""
    queues = pc.split_pattern(stretch.property_values(b"INNER_MULTI_DISPATCH", places).fill_null(b""), b",")
    offsets = pc.split_pattern(stretch.property_values(b"INNER_MULTI_QUEUE_OFFSET", places).fill_null(b""), b",")
    alike = pc.equal(pc.list_value_length(queues), pc.list_value_length(offsets))
    kept = np.flatnonzero(alike.to_numpy(zero_copy_only=False))
    queues, offsets = queues.take(pa.array(kept)), offsets.take(pa.array(kept))
    owners = kept[pc.list_parent_indices(queues).to_numpy()]
    texts = pa.array(numbers).cast(pa.string()).cast(pa.binary()).take(pa.array(owners))
    hits = pc.and_(pc.equal(queues.flatten(), topic.encode()), pc.equal(offsets.flatten(), texts))
    named = np.zeros(len(places), bool)
    named[owners[hits.to_numpy(zero_copy_only=False)]] = True
    return named
