"""Reading the commitlog from front to back: each record once, kept when it is a message of a wanted queue."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.directory.log_files import LogView
from rmqstore.directory.log_place import corrupt_at
from rmqstore.directory.queue_files import entries_between, open_queue
from rmqstore.directory.walk import Break, WalkLimits, walk
from rmqstore.errors import Corrupt, DataLost
from rmqstore.files import reading
from rmqstore.formats.inner_batch import inner_batch_rows, record_numbers
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey
from rmqstore.records.dispatch_rules import is_dispatched, tags_codes
from rmqstore.records.gather import binary_array, text_array
from rmqstore.records.queue_runs import runs_by_queue
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.scan.walk_count import WalkCount
from rmqstore.snapshot.scan.walked_queues import WalkedQueues
from rmqstore.snapshot.split import Span, Split


def scan_log(
    view: LogView, split: Split, spans: tuple[Span, ...], request: ScanRequest, count: WalkCount
) -> Iterator[Rows]:
    """The messages of `spans` in the split's part of the log, in log order, a stretch at a time.

    A record is a message of its queue when the queue's entry points at it, or when no entry holds its place yet.
    Raises Corrupt at damage and DataLost for files that are gone when the request says so, StoreChanging where queues
    do not come to rest.  `count` takes what was met: a caller compares it with the entries, for a record with a damaged
    topic or queue id looks like another queue's.
    """
    assert split.log_range is not None
    low, high = split.log_range
    crc_from = {"always": low, "never": high, "auto": split.crc_from}[request.verify_crc]
    limits = WalkLimits(low, high, crc_from, known_end=high, past_gone=True)
    wanted = _wanted(spans)
    queues = WalkedQueues(view, count, request, crc_from) if split.has_queues else None
    topics = pa.array(sorted({span.topic.encode() for span in spans}), pa.binary())
    for item in walk(view, limits):
        if isinstance(item, Break):
            _report(view, item, request, split)
            _note_break(item, split, count)
            continue
        count.is_damaged |= bool((item.reasons != Reason.SOUND).any())
        codes = np.zeros(len(item.offsets), np.int64) if "tagsCode" in request.columns else None
        keep = _chosen(item, wanted, queues, codes, count)
        keep |= _damaged(view, item, topics, request) & (item.offsets >= split.walk_from)
        if keep.any():
            yield _rows(item, np.flatnonzero(keep), codes)


def _wanted(spans: tuple[Span, ...]) -> Mapping[QueueKey, list[tuple[int, int]]]:
    wanted: dict[QueueKey, list[tuple[int, int]]] = {}
    for topic, queue_id, _, start, end in spans:
        wanted.setdefault((topic, queue_id), []).append((start, end))
    return wanted


def _chosen(
    stretch: Stretch,
    wanted: Mapping[QueueKey, list[tuple[int, int]]],
    queues: WalkedQueues | None,
    codes: Ints | None,
    count: WalkCount,
) -> npt.NDArray[np.bool_]:
    """Which sound records of a stretch are messages of the wanted ranges; fills in their tags codes where asked."""
    keep = np.zeros(len(stretch.offsets), bool)
    for run in runs_by_queue(stretch):
        ranges = wanted.get(run.key)
        if ranges is None:
            continue
        inside = np.zeros(len(run.rows), bool)
        for low, high in ranges:
            inside |= (run.queue_offsets < high) & (run.queue_offsets + run.counts > low)
        if not inside.any():
            continue
        if queues is None:
            if codes is not None:
                codes[run.rows] = tags_codes(stretch.located.take(run.rows), run.key[0])
        else:
            answers = queues.answers(run, stretch, inside)
            count.matched[run.key] += int((inside & answers.dispatched).sum())
            unanswered = answers.unanswered & inside
            inside &= answers.dispatched | answers.undispatched
            count.add(run, inside, unanswered, ranges)
            if codes is not None and answers.codes is not None:
                codes[run.rows] = answers.codes
        keep[run.rows[inside]] = True
    return keep


def _damaged(view: LogView, stretch: Stretch, topics: pa.Array, request: ScanRequest) -> npt.NDArray[np.bool_]:
    """Damaged records that concern the request: an error, or flagged rows, or left out.

    Rows that queue entries lead to are flagged by the caller's comparison, so only those behind `walk_from` are kept.
    """
    bad = (stretch.reasons != Reason.SOUND) & is_dispatched(stretch.located.flags)
    bad |= stretch.reasons == Reason.NOT_WHOLE
    nothing = np.zeros(len(bad), bool)
    if not bad.any() or request.on_corrupt_record == "skip":
        return nothing
    located = stretch.located
    for row in np.flatnonzero(bad).tolist():
        reason = Reason(int(stretch.reasons[row]))
        if reason is not Reason.NOT_WHOLE:
            name = binary_array(located.page, located.topic_at[row : row + 1], located.topic_size[row : row + 1])
            if name[0] not in topics:
                continue
        if request.on_corrupt_record == "fail":
            raise corrupt_at(view.files, int(stretch.offsets[row]), TEXT[reason])
        nothing[row] = reason is not Reason.NOT_WHOLE
    return nothing


def _note_break(found: Break, split: Split, count: WalkCount) -> None:
    """A place that explains why messages were not met, or the end of a log that reached further once."""
    assert split.log_range is not None
    if found.resume is None and not found.is_missing and split.log_range[1] == split.log_end:
        count.ended_at = found.offset
    else:
        count.is_damaged = True


def _report(view: LogView, found: Break, request: ScanRequest, split: Split) -> None:
    """A place where no record stands although sound ones follow, or a file that is gone."""
    if found.is_missing:
        if request.fail_on_data_loss:
            path = found.path or reading.join(split.path, "commitlog")
            refuse_loss(split, (found.offset, found.resume or view.end), path, found.reason)
    elif request.on_corrupt_record == "fail" and found.resume is not None:
        error: Corrupt = corrupt_at(view.files, found.offset, found.reason)
        raise error


def refuse_loss(split: Split, gone: tuple[int, int], path: str, reason: str) -> None:
    """Raises DataLost if messages of the split stood in the bytes `gone`, [first, end), of the log.

    The queues' entries say which; of those without an entry only the place in the log is known.
    """
    assert split.log_range is not None
    low, high = max(gone[0], split.log_range[0]), min(gone[1], split.log_range[1])
    if split.has_queues:
        queues = {span: open_queue(split.path, *span[:3]) for span in split.spans}
        slots = {span: entries_between(queue, (span.start, span.end), low, high) for span, queue in queues.items()}
        lost = [span for span, (first, last) in slots.items() if first < last]
        if lost:
            raise DataLost(_named(lost), slots[lost[0]], None, path, reason)
        if high <= split.walk_from:
            return
    raise DataLost(f"commitlog of {_named(split.spans)}", (low, high), None, path, reason)


def _named(spans: Sequence[Span]) -> str:
    """`orders/0`, `orders/0 and 1 more queue`, `orders/0 and 2 more queues`."""
    keys = list(dict.fromkeys(f"{span.topic}/{span.queue_id}" for span in spans))
    more = len(keys) - 1
    return keys[0] + (f" and {more} more queue{'s' if more > 1 else ''}" if more else "")


def _rows(stretch: Stretch, numbers: npt.NDArray[np.intp], codes: Ints | None) -> Rows:
    located = stretch.located.take(numbers)
    names = text_array(binary_array(located.page, located.topic_at, located.topic_size))
    is_single = pc.all(pc.equal(names, names[0])).as_py()
    said = record_numbers(located)
    return Rows(
        located,
        names[0].as_py() if is_single else names,
        located.head("queue_id").astype(np.int32),
        located.head("queue_offset").astype(np.int64),
        stretch.offsets[numbers],
        located.total_size.astype(np.int32),
        stretch.reasons[numbers],
        None if codes is None else codes[numbers],
        np.where(inner_batch_rows(located, said), said.counts, 0),
    )
