"""Reading one split: entries or a walk, records checked against them, batches out."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqstore.errors import DataLost, StoreError
from rmqstore.files import reading
from rmqstore.formats import sys_flag
from rmqstore.formats.message_columns import Located, Mask, equal_bytes, locate
from rmqstore.snapshot.arrow_schema import ENTRY_COLUMNS
from rmqstore.snapshot.decode import Decoder
from rmqstore.snapshot.entry_runs import EntryReader, EntryRun
from rmqstore.snapshot.extents import find_log_files, mapped_below, refuse_unread_layouts
from rmqstore.snapshot.log_scan import scan_log
from rmqstore.snapshot.log_view import Gathered, LogView, corrupt_at
from rmqstore.snapshot.queue_files import BATCH, entries_between, open_queue
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.rows import Rows
from rmqstore.snapshot.soundness import TEXT, Reason, judge_crcs, judge_place, mark
from rmqstore.snapshot.splits import Span, Split
from rmqstore.snapshot.undispatched import QueueKey, is_multi_dispatch

_FIRST_ROWS = 256
_GROWTH = 4


def read_split(split: Split, request: ScanRequest) -> Iterator[pa.RecordBatch]:
    """The batches of a split in order, of the request's schema; none is empty.

    Opens the store by the split's path on whatever host it runs.  Raises NotAStore if that host does not see it, DataLost
    for messages that are gone (unless fail_on_data_loss is off), Corrupt for damage (unless on_corrupt_record says else).
    """
    files = find_log_files(split.path, split.extra_logs)
    refuse_unread_layouts(split.path, files)
    below = mapped_below(files, split.log_end, split.is_live, request.access)
    with LogView(files, below, split.log_end) as view:
        reader = _SplitReader(split, request, view)
        for batch in reader.batches():
            if batch.num_rows:
                yield batch


class _SplitReader:
    def __init__(self, split: Split, request: ScanRequest, view: LogView) -> None:
        self._split = split
        self._request = request
        self._view = view
        self._decoder = Decoder(request, split.broker_name, self._corrupt_at)
        self._rows_next = min(_FIRST_ROWS, request.batch_rows)
        self._entries_only = ENTRY_COLUMNS.issuperset(request.columns) and not request.tags and not request.keys

    def batches(self) -> Iterator[pa.RecordBatch]:
        spans = self._split.spans
        if self._split.log_range is not None:
            yield from self._walked(spans)
            return
        entries = EntryReader(self._split, self._view)
        for span in spans:
            for run in entries.runs(span):
                if len(run.holes):
                    self._lost(span, run.holes, reading.join(self._split.path, "consumequeue"), "no entry and no record")
                if self._entries_only and span[2] != BATCH:
                    yield from self._entry_batches(run)
                else:
                    yield from self._record_batches(run)

    def _walked(self, spans: tuple[Span, ...]) -> Iterator[pa.RecordBatch]:
        matched: Counter[QueueKey] = Counter()
        for rows in scan_log(self._view, self._split, spans, self._request, matched):
            first = 0
            while first < len(rows):
                last = self._batch_end(rows.sizes, first)
                yield self._decode(rows.take(np.arange(first, last)), None)
                first = last
        if self._split.has_queues and self._request.on_corrupt_record != "skip":
            for key in sorted({span[:2] for span in spans}):
                yield from self._unmatched([span for span in spans if span[:2] == key], matched[key])

    def _unmatched(self, spans: list[Span], matched: int) -> Iterator[pa.RecordBatch]:
        """What entries point into this part of the log and no sound record answered: an error or flagged rows.

        Counting comes first, by halving; only a queue whose count differs is read again, entry by entry.
        """
        assert self._split.log_range is not None
        low, high = self._split.log_range
        queue = open_queue(self._split.path, spans[0][0], spans[0][1], spans[0][2])
        parts = [(span, entries_between(queue, span, low, high)) for span in spans]
        if sum(last - first for _, (first, last) in parts) <= matched:
            return
        reader = EntryReader(self._split, self._view)
        for (topic, queue_id, kind, _, _), (first, last) in parts:
            for run in reader.runs((topic, queue_id, kind, first, last)):
                for gathered in self._view.gather(run.entries["physical_offset"].copy(), run.entries["size"].astype(np.int64)):
                    rows = self._checked(run.span, run.entries[gathered.rows], gathered)
                    bad = rows.reasons != Reason.SOUND
                    if bad.any():
                        yield self._decode(rows.take(bad), None)

    def _entry_batches(self, run: EntryRun) -> Iterator[pa.RecordBatch]:
        """Batches of columns that the entries answer alone; the commitlog is not opened."""
        for first in range(0, len(run.entries), self._request.batch_rows):
            part = run.entries[first : first + self._request.batch_rows]
            yield self._decoder.entry_batch(run.span, part)

    def _record_batches(self, run: EntryRun) -> Iterator[pa.RecordBatch]:
        first = 0
        clip = (run.span[3], run.span[4]) if run.span[2] == BATCH else None
        while first < len(run.entries):
            last = self._batch_end(run.entries["size"], first)
            part = run.entries[first:last]
            for gathered in self._view.gather(part["physical_offset"].copy(), part["size"].astype(np.int64)):
                rows = self._checked(run.span, part[gathered.rows], gathered)
                if len(rows):
                    yield self._decode(rows, clip)
            first = last

    def _batch_end(self, sizes: np.ndarray, first: int) -> int:
        """Where a batch that begins at row `first` ends: small ones first, then by rows and bytes."""
        window = sizes[first : first + self._rows_next].astype(np.int64)
        fit = int(np.searchsorted(np.cumsum(window), self._request.batch_bytes, side="right"))
        self._rows_next = min(self._rows_next * _GROWTH, self._request.batch_rows)
        return first + max(1, min(fit, len(window)))

    def _checked(self, span: Span, entries: np.ndarray, gathered: Gathered) -> Rows:
        """The records that entries point at, each checked against its entry."""
        topic, queue_id, _, _, _ = span
        offsets = entries["physical_offset"].copy()
        if gathered.lost:
            path = gathered.file.path if gathered.file else reading.join(self._split.path, "commitlog")
            self._lost(span, entries["queue_offset"], path, gathered.lost)
            entries, offsets = entries[:0], offsets[:0]
        located = locate(gathered.page, gathered.positions[: len(offsets)])
        reasons = judge_place(located, offsets)
        if len(offsets) and located.sound.any():
            mark(reasons, located.total_size != entries["size"], Reason.NOT_WHOLE)
            if not is_multi_dispatch(topic):
                mark(reasons, self._other_queue(located, queue_id, entries), Reason.WRONG_QUEUE)
                name = topic.encode()
                same = equal_bytes(located.page, located.topic_at, np.where(located.sound, located.topic_size, -1), name)
                mark(reasons, ~same, Reason.WRONG_TOPIC)
            self._judge_crcs(located, reasons, offsets)
        count = len(offsets)
        return Rows(
            located, topic, np.full(count, queue_id, np.int32), entries["queue_offset"].copy(), offsets,
            entries["size"].copy(), reasons, entries["tags_code"].copy(),
        )  # fmt: skip

    def _other_queue(self, located: Located, queue_id: int, entries: np.ndarray) -> Mask:
        inner = located.flags & sys_flag.INNER_BATCH != 0
        wrong = located.head("queue_offset") != entries["queue_offset"]
        return np.asarray((located.head("queue_id") != queue_id) | (wrong & ~inner))

    def _judge_crcs(self, located: Located, reasons: np.ndarray, offsets: np.ndarray) -> None:
        if self._request.verify_crc == "always":
            judge_crcs(located, reasons, None, properties_too=True)
        elif self._request.verify_crc == "auto" and int(offsets[-1]) >= self._split.crc_from:
            judge_crcs(located, reasons, offsets >= self._split.crc_from, properties_too=False)

    def _decode(self, rows: Rows, clip: tuple[int, int] | None) -> pa.RecordBatch:
        bad = rows.reasons != Reason.SOUND
        if bad.any():
            if self._request.on_corrupt_record == "fail":
                row = int(np.argmax(bad))
                raise self._corrupt_at(int(rows.offsets[row]), self._describe(rows, row))
            if self._request.on_corrupt_record == "skip":
                rows = rows.take(~bad)
        return self._decoder.batch(rows, clip)

    def _describe(self, rows: Rows, row: int) -> str:
        topic = rows.topic if isinstance(rows.topic, str) else rows.topic[row].as_py()
        place = f"{topic}/{int(rows.queue_ids[row])} offset {int(rows.queue_offsets[row])}"
        return f"{place}: {TEXT[Reason(int(rows.reasons[row]))]}"

    def _corrupt_at(self, offset: int, reason: str) -> StoreError:
        return corrupt_at(self._view.files, offset, reason)

    def _lost(self, span: Span, queue_offsets: np.ndarray, path: str, reason: str) -> None:
        """Raises DataLost for messages that are gone, unless the request goes on without them."""
        if self._request.fail_on_data_loss:
            low, high = int(queue_offsets.min()), int(queue_offsets.max()) + 1
            raise DataLost(f"{span[0]}/{span[1]}", (low, high), None, path, reason)
