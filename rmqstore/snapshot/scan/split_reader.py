"""Reading one split: entries or a walk, records checked against them, batches out."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqstore.directory.log_files import LogView
from rmqstore.directory.log_place import corrupt_at
from rmqstore.directory.queue_files import BATCH, entries_between, open_queue
from rmqstore.errors import DataLost, StoreError
from rmqstore.files import reading
from rmqstore.formats.message_columns import Ints, take_rows
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.snapshot.arrow.decode import Decoder
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.scan.entry_runs import EntryReader, EntryRun
from rmqstore.snapshot.scan.log_order import interleaved
from rmqstore.snapshot.scan.log_scan import refuse_loss, scan_log
from rmqstore.snapshot.scan.record_check import Entries, RecordCheck
from rmqstore.snapshot.scan.second_look import SecondLook
from rmqstore.snapshot.scan.tag_pruning import TagHashes
from rmqstore.snapshot.scan.walk_count import WalkCount
from rmqstore.snapshot.split import Span, Split
from rmqstore.snapshot.survey.extents import find_log_files, mapped_below, refuse_unread_layouts

_FIRST_ROWS = 256
_GROWTH = 4
# Rows of entry columns are small: so many times more of them make a batch.
_NARROW = 4


def read_split(split: Split, request: ScanRequest) -> Iterator[pa.RecordBatch]:
    """The batches of a split in order, of the request's schema; none is empty.

    Opens the store by the split's path on whatever host it runs.  Raises NotAStore if that host does not see it,
    DataLost for messages that are gone (unless fail_on_data_loss is off), Corrupt for damage (unless on_corrupt_record
    says else).
    """
    files = find_log_files(split.path, split.extra_logs)
    refuse_unread_layouts(split.path, files)
    below = mapped_below(files, split.log_end, split.is_live, request.access)
    with LogView(files, below, split.log_end, dict(split.deleted_before)) as view:
        reader = _SplitReader(split, request, view)
        for batch in reader.batches():
            if batch.num_rows:
                yield batch


class _Few:
    """Entries of spans one behind the other that come as one batch, and the numbers of their spans: where each of
    thousands of queues has a message or two, a batch of its own would cost a hundred times more than they.
    """

    def __init__(self) -> None:
        self.count = 0
        self._parts: list[tuple[Entries, Ints]] = []

    def add(self, entries: Entries, number: int) -> None:
        if len(entries):
            self._parts.append((entries, np.full(len(entries), number, np.int64)))
            self.count += len(entries)

    def taken(self) -> tuple[Entries, Ints]:
        """All of them; none are left."""
        parts, self._parts, self.count = self._parts, [], 0
        entries, numbers = zip(*parts, strict=True)
        return parts[0] if len(parts) == 1 else (np.concatenate(entries), np.concatenate(numbers))


class _SplitReader:
    def __init__(self, split: Split, request: ScanRequest, view: LogView) -> None:
        self._split = split
        self._request = request
        self._view = view
        self._decoder = Decoder(request, split.broker_name, self._corrupt_at, self._is_whole)
        self._check = RecordCheck(split.path, split.spans, request.verify_crc, split.crc_from)
        self._tags = TagHashes(split, request)
        self._rows_next = min(_FIRST_ROWS, request.batch_rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        spans = self._split.spans
        if self._split.log_range is not None:
            yield from self._walked(spans)
            return
        entries = EntryReader(self._split, self._view)
        if self._split.together:
            yield from self._together(entries)
            return
        few = _Few()
        for number, span in enumerate(spans):
            for run in entries.runs(span):
                is_plain = span.kind != BATCH and not self._request.needs_entries_only
                if few.count and (not is_plain or len(run.holes) or few.count + len(run.entries) > self._rows_next):
                    yield from self._record_batches(*few.taken(), None)
                self._report_holes(run, entries)
                if self._request.needs_entries_only and span.kind != BATCH:
                    yield from self._entry_batches(run)
                elif is_plain:
                    few.add(run.entries, number)
                else:
                    yield from self._record_batches(run.entries, np.full(len(run.entries), number, np.int64), span)
        if few.count:
            yield from self._record_batches(*few.taken(), None)

    def _walked(self, spans: tuple[Span, ...]) -> Iterator[pa.RecordBatch]:
        count = WalkCount(self._split, SecondLook(self._split))
        for rows in scan_log(self._view, self._split, spans, self._request, count):
            first = 0
            ends = np.cumsum(rows.sizes, dtype=np.int64)
            while first < len(rows):
                if first and not self._is_whole(int(rows.offsets[first])):
                    break  # the reader of the last batch took its time: the walk meets the next file
                last = self._batch_end(ends, first)
                yield from self._decode(rows.take(np.arange(first, last)), None)
                first = last
        if self._split.has_queues:
            by_key: dict[tuple[str, int], list[Span]] = {}
            for span in spans:
                by_key.setdefault(span.key, []).append(span)
            for key in sorted(by_key):
                yield from self._unmatched(by_key[key], count)
            for own in by_key.values() if self._request.fail_on_data_loss else ():  # damage is told before loss
                count.require_all(own, self._request.on_corrupt_record == "fail")

    def _is_whole(self, offset: int) -> bool:
        """Whether the file that holds `offset` may be read on.  Raises DataLost if not, unless the request goes on."""
        try:
            self._view.require_whole(offset)
        except DataLost as lost:
            if self._request.fail_on_data_loss:
                if self._split.log_range is None:
                    raise
                refuse_loss(self._split, lost.wanted, lost.path, lost.reason)
            return False
        return True

    def _unmatched(self, spans: list[Span], count: WalkCount) -> Iterator[pa.RecordBatch]:
        """What entries point into this part of the log and no sound record answered: an error or flagged rows.

        Counting comes first, by halving; only a queue whose count differs is read again, entry by entry.
        """
        assert self._split.log_range is not None
        low, high = self._split.log_range
        parts = count.look.asked(lambda: self._entry_parts(spans, low, high))
        if sum(last - first for _, (first, last) in parts) <= count.matched[spans[0].key]:
            return
        reader = EntryReader(self._split, self._view, count.look)
        for span, (first, last) in parts:
            for run in reader.runs(span.part(first, last)):
                self._report_holes(run, reader)
                numbers = np.full(len(run.entries), self._split.spans.index(spans[0]), np.int64)
                for rows in self._checked(run.entries, numbers):
                    bad = rows.reasons != Reason.SOUND
                    if bad.any():
                        count.is_damaged = True
                        yield from self._decode(rows.take(bad), None)

    def _entry_parts(self, spans: list[Span], low: int, high: int) -> list[tuple[Span, tuple[int, int]]]:
        """For each span of a queue the slots whose entries point into [low, high) of the log."""
        queue = open_queue(self._split.path, *spans[0][:3])
        parts = [(span, entries_between(queue, (span.start, span.end), low, high)) for span in spans]
        if low <= self._view.start:  # entries that are gone before the first one as well
            parts = [(span, (min(max(span.start, queue.first_slot()), last), last)) for span, (_, last) in parts]
        return parts

    def _together(self, reader: EntryReader) -> Iterator[pa.RecordBatch]:
        spans = self._split.spans
        if self._request.needs_entries_only:
            for run in (run for span in spans for run in reader.runs(span)):
                self._report_holes(run, reader)
                yield from self._entry_batches(run)
            return
        for merged in interleaved(reader, spans):
            for run in merged.holes:
                self._report_holes(run, reader)
            yield from self._record_batches(merged.entries, merged.span_numbers, None)

    def _entry_batches(self, run: EntryRun) -> Iterator[pa.RecordBatch]:
        """Batches of columns that the entries answer alone; the commitlog is not opened."""
        rows = self._request.batch_rows * _NARROW
        for first in range(0, len(run.entries), rows):
            part = run.entries[first : first + rows]
            yield self._decoder.entry_batch(run.span, part)

    def _record_batches(self, entries: Entries, numbers: Ints, span: Span | None) -> Iterator[pa.RecordBatch]:
        """Batches of the records of entries; `numbers` are their spans.  An inner batch is clipped to `span`."""
        clip = (span.start, span.end) if span is not None and span.kind == BATCH else None
        keep = self._tags.keep(entries, numbers)
        if keep is not None:
            entries, numbers = take_rows(entries, keep), numbers[keep]
        ends = np.cumsum(entries["size"], dtype=np.int64)
        first = 0
        while first < len(entries):
            last = self._batch_end(ends, first)
            for rows in self._checked(entries[first:last], numbers[first:last]):
                yield from self._decode(rows, clip)
            first = last

    def _checked(self, entries: Entries, numbers: Ints) -> Iterator[Rows]:
        """The records of entries, a run in one file at a time, without those that are gone."""
        for gathered in self._view.gather(entries["physical_offset"].copy(), entries["size"].astype(np.int64)):
            part, own = entries[gathered.rows], numbers[gathered.rows]
            if gathered.lost:
                path = gathered.file.path if gathered.file else reading.join(self._split.path, "commitlog")
                first = int(own[0])
                self._lost(self._split.spans[first], part["queue_offset"][own == first], path, gathered.lost)
            else:
                yield self._check.rows(part, own, gathered)

    def _batch_end(self, ends: Ints, first: int) -> int:
        """Where a batch that begins at row `first` ends, the row sizes summed up in `ends`: small ones first, then by
        rows and bytes.
        """
        before = int(ends[first - 1]) if first else 0
        fit = int(np.searchsorted(ends, before + self._request.batch_bytes, side="right"))
        last = min(fit, first + self._rows_next, len(ends))
        self._rows_next = min(self._rows_next * _GROWTH, self._request.batch_rows)
        return max(last, first + 1)

    def _decode(self, rows: Rows, clip: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        bad = rows.reasons != Reason.SOUND
        if bad.any():
            if self._request.on_corrupt_record == "fail":
                row = int(np.argmax(bad))
                raise self._corrupt_at(int(rows.offsets[row]), self._describe(rows, row))
            if self._request.on_corrupt_record == "skip":
                rows = rows.take(~bad)
        yield from self._decoder.batches(rows, clip)

    def _describe(self, rows: Rows, row: int) -> str:
        topic = rows.topic if isinstance(rows.topic, str) else rows.topic[row].as_py()
        place = f"{topic}/{int(rows.queue_ids[row])} offset {int(rows.queue_offsets[row])}"
        return f"{place}: {TEXT[Reason(int(rows.reasons[row]))]}"

    def _corrupt_at(self, offset: int, reason: str) -> StoreError:
        return corrupt_at(self._view.files, offset, reason)

    def _report_holes(self, run: EntryRun, reader: EntryReader) -> None:
        """Queue offsets with neither entry nor record are lost, unless damage explains them that the request lets
        pass.
        """
        if len(run.holes) and not (reader.is_damaged and self._request.on_corrupt_record != "fail"):
            gone = reader.gone
            room = reading.join(self._split.path, "commitlog" if gone else "consumequeue")
            reason = gone.reason if gone else "no queue entry and no record"
            self._lost(run.span, run.holes, (gone.path if gone else "") or room, reason)

    def _lost(self, span: Span, queue_offsets: np.ndarray, path: str, reason: str) -> None:
        """Raises DataLost for messages that are gone, unless the request goes on without them."""
        if self._request.fail_on_data_loss:
            low, high = int(queue_offsets.min()), int(queue_offsets.max()) + 1
            raise DataLost(f"{span.topic}/{span.queue_id}", (low, high), None, path, reason)
