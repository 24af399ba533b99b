"""Rows by the queues' entries: queue by queue, or of several queues in the order of the log."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore.directory.extension_files import contradicted, holds_tag_hashes
from rmqstore.directory.log_files import Gathered, LogView
from rmqstore.directory.queue_files import BATCH
from rmqstore.directory.undispatched import FOUND_ENTRY
from rmqstore.files.disk import join
from rmqstore.formats import java_hash, sys_flag
from rmqstore.formats.inner_batch import inner_batch_rows, record_numbers
from rmqstore.formats.message_columns import Ints, Located, Mask, equal_bytes, locate, take_rows
from rmqstore.formats.names import PLAIN_ROOM, is_light_queue
from rmqstore.records.soundness import Reason, Reasons, judge_crcs, judge_place, mark
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.scan.checked_rows import BatchSizes, Checked
from rmqstore.snapshot.scan.damage_policy import DamagePolicy
from rmqstore.snapshot.scan.entry_runs import EntryReader, EntryRun
from rmqstore.snapshot.scan.store_retry import StoreRetry
from rmqstore.snapshot.split import Span, Split

# --- Records that queue entries point at, each held against its entry: is it whole, in its place, of its queue,
# unchanged?

Entries = npt.NDArray[np.void]


def batch_topics(split: Split) -> frozenset[bytes]:
    """The topics whose batch queues a split reads."""
    return frozenset(span.topic.encode() for span in split.spans if span.kind == BATCH)


class RecordCheck:
    """Checks the records of a split's spans.

    `crc` tells where records are held against their CRCs, and tags against their entries: "always", "never", or "auto",
    from the split's `crc_from` of the log on.
    """

    def __init__(self, split: Split, crc: str) -> None:
        self._split, spans = split, split.spans
        self._crc = crc
        self._crc_from = split.crc_from
        self._topics = list(dict.fromkeys(span.topic for span in spans))
        self._only = self._topics[0].encode() if len(self._topics) == 1 else b""
        self._topic_array = pa.array(self._topics, pa.string())
        number_of = {topic: number for number, topic in enumerate(self._topics)}
        self._topic_numbers = np.array([number_of[span.topic] for span in spans], np.int64)
        self._queue_ids = np.array([span.queue_id for span in spans], np.int32)
        self._are_batches = np.array([span.kind == BATCH for span in spans], bool)
        self._batch_topics = batch_topics(split)

    def rows(self, entries: Entries, numbers: Ints, gathered: Gathered) -> Rows:
        """The records of `entries` (undispatched.FOUND_ENTRY, n) with a reason each; `numbers` int64[n] are their
        spans.
        """
        offsets = entries["physical_offset"].copy()
        located = locate(gathered.page, gathered.positions, topic=self._only)
        reasons = judge_place(located, offsets)
        topics = self._topic_numbers[numbers]
        inner_counts = self._inner_counts(located, entries, numbers)
        queue_ids = self._queue_ids[numbers]
        if len(offsets) and located.sound.any():
            mark(reasons, offsets == self._split.torn_at, Reason.NO_END)
            mark(reasons, located.total_size != entries["size"], Reason.NOT_WHOLE)
            elsewhere = located.head("queue_offset") != entries["queue_offset"]
            if inner_counts is not None:  # in a plain queue, as a replica may have it, not in its number's place
                elsewhere &= (inner_counts == 0) | self._are_batches[numbers]
            other = (queue_ids != located.head("queue_id")) | elsewhere
            self._judge_queue(located, reasons, other, topics)
            if self._crc == "always" or (self._crc == "auto" and int(offsets.max()) >= self._crc_from):
                checked = None if self._crc == "always" else offsets >= self._crc_from
                judge_crcs(located, reasons, checked, gap=gathered.gap)
                self._judge_tags(located, reasons, (entries["tags_code"], numbers), checked)
        only = len(self._topics) == 1
        return Rows(
            located, self._topics[0] if only else self._topic_array.take(pa.array(topics)), queue_ids,
            entries["queue_offset"].copy(), offsets, entries["size"].copy(), reasons, entries["tags_code"].copy(),
            inner_counts,
        )  # fmt: skip

    def _inner_counts(self, located: Located, entries: Entries, numbers: Ints) -> Ints | None:
        """How many messages the inner batches among the records have, 0 for others: as their unit counts them, or what
        they say where they are in a plain queue.  A unit of several messages makes a batch of what does not say so.
        """
        both = sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP
        flagged = located.sound & (located.flags & both == both)
        if not flagged.any():
            return None
        said, of_units = record_numbers(located, batch_topics=self._batch_topics), self._are_batches[numbers]
        are_inner = flagged & ((of_units & (entries["count"] > 1)) | inner_batch_rows(located, said))
        return np.where(are_inner, np.where(of_units, entries["count"], said.counts), 0)

    @cached_property
    def _hashed(self) -> Mask:
        """bool[spans], where the entries hold hashes of tags."""
        split = self._split
        return np.array([holds_tag_hashes(split.disk, split.path, span.key, span.kind) for span in split.spans], bool)

    def _judge_tags(self, located: Located, reasons: Reasons, entries: tuple[Ints, Ints], checked: Mask | None) -> None:
        """Marks records whose TAGS are not those of their entry: what a tear after the body leaves passes all else.

        `entries` are the tags codes and the spans' numbers.
        """
        codes, numbers = entries
        wanted = (reasons == Reason.SOUND) & self._hashed[numbers]
        rows = np.flatnonzero(wanted if checked is None else wanted & checked)
        if len(rows):
            reasons[rows[contradicted(located.take(rows), codes[rows])]] = Reason.TAGS

    def _judge_queue(self, located: Located, reasons: Reasons, other: Mask, topics: Ints) -> None:
        """Marks records of another topic, and those that say another place in their queue than their entry does."""
        if located.topic and located.topic == self._only and not is_light_queue(self._topics[0]):
            mark(reasons, other, Reason.WRONG_QUEUE)
            return
        sizes = np.where(located.sound, located.topic_size, -1)
        for number in range(len(self._topics)) if len(self._topics) == 1 else np.unique(topics).tolist():
            topic = self._topics[number]
            if is_light_queue(topic):
                continue  # a light queue's records are of other topics and queues
            own: Mask | slice = slice(None) if len(self._topics) == 1 else topics == number
            same = np.ones(len(topics), bool)
            same[own] = equal_bytes(located.page, located.topic_at[own], sizes[own], topic.encode())
            wrong = np.zeros(len(topics), bool)
            wrong[own] = other[own]
            mark(reasons, wrong, Reason.WRONG_QUEUE)
            mark(reasons, ~same, Reason.WRONG_TOPIC)


# ---

# --- Tags by the hashes in queue entries: records whose hash is another need not be read.


class TagHashes:
    """Which entries of a split can lead to a message with one of the wanted tags, of which there are some.

    Left alone, so that damage shows there: everything where the request checks all CRCs or damaged records are rows
    (`shows_damage`), and with the usual checks what lies where a crash can have torn the log.
    """

    def __init__(self, split: Split, request: ScanRequest, shows_damage: bool) -> None:
        self._hashes: Ints | None = None
        self._checked_from = split.crc_from if request.verify_crc == "auto" else 2**63 - 1
        if request.verify_crc != "always" and not shows_damage:
            self._hashes = np.array([java_hash.string_hash(tag) for tag in request.tags], np.int64)
            place, spans = (split.disk, split.path), split.spans
            self._hashed = np.array([holds_tag_hashes(*place, span.key, span.kind) for span in spans], bool)

    def keep(self, entries: Entries, numbers: Ints) -> Mask | None:
        """bool[n] of entries (FOUND_ENTRY) of the spans `numbers`; None where all are to be read.

        A code beyond 32 bits is no hash and tells nothing.
        """
        if self._hashes is None or not self._hashed.any():
            return None
        codes = entries["tags_code"]
        keep: Mask = np.isin(codes, self._hashes) if len(self._hashes) > 1 else codes == self._hashes[0]
        keep |= codes.astype(np.int32) != codes
        keep |= entries["physical_offset"] >= self._checked_from
        if not self._hashed.all():
            keep |= ~self._hashed[numbers]
        return None if keep.all() else keep


# ---

# --- The entries of several queues in the order of the commitlog, so that one pass over the log serves them all.

# Entries held in memory for all queues together.
_BUFFER_ENTRIES = 128 * 1024
_BLOCK_MIN = 256
# numpy copies opaque bytes faster than structures.
_OPAQUE = f"V{FOUND_ENTRY.itemsize}"


@dataclass(frozen=True, slots=True)
class MergedRun:
    """Entries (FOUND_ENTRY.dtype) in log order; `span_numbers` int64[n] says which span each is of; `holes` are runs
    with queue offsets that nobody knows of."""

    entries: npt.NDArray[np.void]
    span_numbers: npt.NDArray[np.int64]
    holes: list[EntryRun]


class _Source:
    """One queue's entries, a block at a time."""

    def __init__(self, number: int, runs: Iterator[EntryRun]) -> None:
        self.number = number
        self._runs = runs
        self.entries: npt.NDArray[np.void] | None = None
        # The keys of the order: log offsets, made to rise within the queue.  Damage, or a topic that is deleted
        # meanwhile, can break that order.
        self.places = np.zeros(0, np.int64)
        self.holes: list[EntryRun] = []
        self.fill()

    def fill(self) -> None:
        """Takes the next block that holds an entry; `entries` is None when there is none."""
        self.entries = None
        for run in self._runs:
            if len(run.holes):
                self.holes.append(run)
            if len(run.entries):
                self.entries = run.entries
                self.places = np.maximum.accumulate(run.entries["physical_offset"].astype(np.int64))
                return

    def last_offset(self) -> int:
        return int(self.places[-1])

    def take_until(self, offset: int) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]:
        """The entries up to an offset of the log, which leave the block, and their places."""
        assert self.entries is not None
        count = int(np.searchsorted(self.places, offset, side="right"))
        taken = self.entries[:count], self.places[:count]
        self.entries, self.places = self.entries[count:], self.places[count:]
        if not len(self.entries):
            self.fill()
        return taken


def interleaved(reader: EntryReader, spans: Sequence[Span]) -> Iterator[MergedRun]:
    """All entries of the spans by physical offset; each queue's stay in the order of the queue, as offsets rise along
    it.

    Every round goes as far as the block of some queue reaches, so each queue has its next entry at hand.
    """
    block = max(_BUFFER_ENTRIES // len(spans), _BLOCK_MIN)
    sources = [_Source(number, reader.runs(span, block)) for number, span in enumerate(spans)]
    while True:
        active = [source for source in sources if source.entries is not None]
        holes = [run for source in sources for run in source.holes]
        for source in sources:
            source.holes = []
        if not active:
            if holes:
                yield MergedRun(np.zeros(0, FOUND_ENTRY), np.zeros(0, np.int64), holes)
            return
        horizon = min(source.last_offset() for source in active)
        parts = [(source.number, *source.take_until(horizon)) for source in active]
        numbers = np.repeat([number for number, _, _ in parts], [len(part) for _, part, _ in parts])
        order = np.argsort(np.concatenate([places for _, _, places in parts]), kind="stable")
        entries = np.concatenate([part.view(_OPAQUE) for _, part, _ in parts]).view(FOUND_ENTRY)
        yield MergedRun(take_rows(entries, order), numbers[order].astype(np.int64), holes)


# ---


class EntrySource:
    """The records that entries of a split's queues lead to, each held against its entry.

    Raises DataLost for messages that are gone, as the policy says; StoreChanging where queues do not come to rest.
    """

    def __init__(
        self, split: Split, request: ScanRequest, view: LogView, policy: DamagePolicy, look: StoreRetry | None = None
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
        few = _SmallSpans()
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


class _SmallSpans:
    """Entries of consecutive spans that come as one batch, and the numbers of their spans.  Where each of thousands of
    queues has a message or two, a batch a queue would cost a hundred times as much.
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
