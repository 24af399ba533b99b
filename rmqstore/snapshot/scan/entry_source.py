"""Rows by the queues' entries: queue by queue, or of several queues in the order of the log."""

from collections.abc import Iterator

import numpy as np

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import BATCH
from rmqstore.files.disk import join
from rmqstore.formats.message_columns import Ints, take_rows
from rmqstore.formats.names import PLAIN_ROOM
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.scan.checked_rows import BatchSizes, Checked
from rmqstore.snapshot.scan.damage_policy import DamagePolicy
from rmqstore.snapshot.scan.entry_runs import EntryReader, EntryRun
from rmqstore.snapshot.scan.log_order import interleaved
from rmqstore.snapshot.scan.record_check import Entries, RecordCheck
from rmqstore.snapshot.scan.second_look import SecondLook
from rmqstore.snapshot.scan.tag_pruning import TagHashes
from rmqstore.snapshot.split import Span, Split


class EntrySource:
    """The records that entries of a split's queues lead to, each held against its entry.

    Raises DataLost for messages that are gone, as the policy says; StoreChanging where queues do not come to rest.
    """

    def __init__(
        self, split: Split, request: ScanRequest, view: LogView, policy: DamagePolicy, look: SecondLook | None = None
    ) -> None:
        self._split, self._view, self._policy = split, view, policy
        self._by_entries_alone = request.needs_entries_only and not view.has_holes
        self._reader = EntryReader(split, view, look)
        self._check = RecordCheck(split, request.verify_crc)
        self._tags = TagHashes(split, request, policy.shows_damage) if request.tags else None
        self._sizes = BatchSizes(request)

    def rows(self) -> Iterator[Checked | EntryRun]:
        """The rows of the split; where the request needs no more, and the queue is a plain one, the entries alone."""
        return self._in_log_order() if self._split.together else self._by_queue()

    def checked(self, span: Span, number: int) -> Iterator[Rows]:
        """The records of a span, the split's of that number, checked.  Raises as `rows`."""
        for run in self._reader.runs(span):
            self._report_holes(run)
            yield from self._checked(run.entries, np.full(len(run.entries), number, np.int64))

    def _by_queue(self) -> Iterator[Checked | EntryRun]:
        few = _Few()
        for number, span in enumerate(self._split.spans):
            for run in self._reader.runs(span):
                is_plain = span.kind != BATCH
                is_joined = is_plain and not self._by_entries_alone
                is_full = few.count + len(run.entries) > self._sizes.rows_next
                if few.count and (not is_joined or len(run.holes) or is_full):
                    yield from self._records(*few.taken())
                self._report_holes(run)
                if is_joined:
                    few.add(run.entries, number)
                elif is_plain:
                    yield run
                else:
                    yield from self._records(run.entries, np.full(len(run.entries), number, np.int64), span[3:])
        if few.count:
            yield from self._records(*few.taken())

    def _in_log_order(self) -> Iterator[Checked | EntryRun]:
        if self._by_entries_alone:
            yield from self._by_queue()
            return
        for merged in interleaved(self._reader, self._split.spans):
            for run in merged.holes:
                self._report_holes(run)
            yield from self._records(merged.entries, merged.span_numbers)

    def _records(self, entries: Entries, numbers: Ints, clip: tuple[int, int] | None = None) -> Iterator[Checked]:
        """The records of entries, a batch at a time; `numbers` are their spans."""
        keep = self._tags.keep(entries, numbers) if self._tags is not None else None
        if keep is not None:
            entries, numbers = take_rows(entries, keep), numbers[keep]
        ends = np.cumsum(entries["size"], dtype=np.int64)
        first = 0
        while first < len(entries):
            last = self._sizes.end_of(ends, first)
            for rows in self._checked(entries[first:last], numbers[first:last]):
                yield Checked(rows, clip)
            first = last

    def _checked(self, entries: Entries, numbers: Ints) -> Iterator[Rows]:
        """The records of entries, a run in one file at a time, without those that are gone."""
        for gathered in self._view.gather(entries["physical_offset"].copy(), entries["size"].astype(np.int64)):
            part, own = entries[gathered.rows], numbers[gathered.rows]
            if gathered.lost:
                path = gathered.file.path if gathered.file else self._view.room(self._split.path)
                first = int(own[0])
                self._lose(self._split.spans[first], part["queue_offset"][own == first], path, gathered.lost)
            else:
                yield self._check.rows(part, own, gathered)

    def _report_holes(self, run: EntryRun) -> None:
        """Queue offsets with neither entry nor record are lost, unless damage explains them."""
        if len(run.holes) and not self._policy.excuses_holes(self._reader.is_damaged):
            gone = self._reader.gone
            root = self._split.path
            room = self._view.room(root) if gone else join(root, PLAIN_ROOM)
            reason = gone.reason if gone else "no queue entry and no record"
            self._lose(run.span, run.holes, (gone.path if gone else "") or room, reason)

    def _lose(self, span: Span, queue_offsets: Ints, path: str, reason: str) -> None:
        gone = int(queue_offsets.min()), int(queue_offsets.max()) + 1
        self._policy.lose(f"{span.topic}/{span.queue_id}", gone, path, reason)


class _Few:
    """Entries of consecutive spans that come as one batch, and the numbers of their spans: where each of thousands of
    queues has a message or two, a batch of its own would cost a hundred times more than they.
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
