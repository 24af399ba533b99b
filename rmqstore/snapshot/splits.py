"""Units of work: small picklable values that any process that sees the store's path can read."""

from collections.abc import Sequence
from dataclasses import dataclass

from rmqstore.snapshot.extents import QueueExtent, StoreExtent
from rmqstore.snapshot.queue_files import SIMPLE, QueueFiles
from rmqstore.snapshot.request import QueueRange, ScanRequest, SplitBudget
from rmqstore.snapshot.undispatched import is_multi_dispatch

# Fewer records than this are not worth a task of their own.
_SPLIT_RECORDS_MIN = 1024
# One task for so many merged queues at most, so that a split stays small to pickle.
_MERGED_RANGES_MAX = 256
# A log scan reads every record once; it pays when many queues would each read the same pages.
_LOG_SHARE_MIN = 0.5
_LOG_QUEUES_MIN = 8
_SAMPLE_ENTRIES = 64

Span = tuple[str, int, str, int, int]


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads of one store.

    `spans` are (topic, queue id, queue kind, first queue offset, end).  With `log_range` they are found by walking that part of
    the commitlog, whose ends are record boundaries; else through the consume queues.  `log_end`, `walk_from` and `crc_from`
    are the store's as planned: what came later is not read.
    """

    path: str
    broker_name: str
    spans: tuple[Span, ...]
    log_end: int
    walk_from: int
    crc_from: int
    is_live: bool
    has_queues: bool
    log_range: tuple[int, int] | None = None
    extra_logs: tuple[str, ...] = ()


def plan_splits(
    store: StoreExtent, ranges: Sequence[QueueRange], request: ScanRequest, budget: SplitBudget
) -> list[Split]:
    """Cuts the ranges of one store into splits, in the order of the ranges; empty ranges make none."""
    spans = [_Weighted.of(store, span) for span in ranges if span.start < span.end]
    if not spans:
        return []
    if _by_log(store, spans, request):
        walked = [span for span in spans if store.queue_layout != "file" or _is_walkable(span.span)]
        splits = _log_splits(store, walked, budget) if walked else []
        spans = [span for span in spans if span not in walked]
        return splits + _queue_splits(store, spans, budget)
    return _queue_splits(store, spans, budget)


def _is_walkable(span: Span) -> bool:
    """Whether the log alone tells a queue's messages: light queues and inner batches are addressed by their entries."""
    return span[2] == SIMPLE and not is_multi_dispatch(span[0])


def _queue_splits(store: StoreExtent, spans: Sequence["_Weighted"], budget: SplitBudget) -> list[Split]:
    pieces = [piece for span in spans for piece in _cut(span, spans, budget)]
    groups = _merged(pieces, budget) if budget.merge else [[piece] for piece in pieces]
    return [_split(store, [piece.span for piece in group]) for group in groups]


@dataclass(frozen=True, slots=True)
class _Weighted:
    span: Span
    count: int
    size: int

    @classmethod
    def of(cls, store: StoreExtent, wanted: QueueRange) -> "_Weighted":
        queue = store.queues[wanted.topic, wanted.queue_id]
        count = wanted.end - wanted.start
        span = (wanted.topic, wanted.queue_id, queue.files.kind, wanted.start, wanted.end)
        return cls(span, count, int(count * _mean_size(queue, wanted.start, wanted.end)))

    def part(self, low: int, high: int) -> "_Weighted":
        topic, queue_id, kind, _, _ = self.span
        count = high - low
        return _Weighted((topic, queue_id, kind, low, high), count, self.size * count // max(self.count, 1))


def _mean_size(queue: QueueExtent, start: int, end: int) -> float:
    """Bytes a message, by a sample of entries at both ends and in the middle of the range."""
    files: QueueFiles = queue.files
    sizes: list[int] = []
    low, high = max(queue.entry_start, start), min(queue.entry_end, end)
    if files.kind != SIMPLE:
        low, high = queue.entry_start, queue.entry_end
    if high > low:
        for place in {low, (low + high) // 2, max(high - _SAMPLE_ENTRIES, low)}:
            entries = files.read(place, min(place + _SAMPLE_ENTRIES, high))
            sizes += [size for size in entries["size"].tolist() if 0 < size < 2**30]
    if queue.gap and not sizes:
        return queue.gap_bytes / max(queue.gap[1] - queue.gap[0], 1)
    return sum(sizes) / len(sizes) if sizes else 256.0


def _by_log(store: StoreExtent, spans: Sequence[_Weighted], request: ScanRequest) -> bool:
    """Whether the commitlog is walked instead of the queues."""
    if request.scan_mode != "auto":
        return request.scan_mode == "commitlog"
    if store.queue_layout != "file":
        return True
    share = sum(span.size for span in spans) / max(store.log_end - store.log_start, 1)
    return share > _LOG_SHARE_MIN and len(spans) > _LOG_QUEUES_MIN


def _cut(span: _Weighted, spans: Sequence[_Weighted], budget: SplitBudget) -> list[_Weighted]:
    """Equal slices of one queue, as many as the limits and the wanted number of partitions ask for."""
    pieces = -(-span.size // budget.max_bytes)
    if budget.max_records:
        pieces = max(pieces, -(-span.count // budget.max_records))
    if budget.min_partitions:
        total = sum(other.size for other in spans) or 1
        fair = -(-budget.min_partitions * span.size // total)
        pieces = max(pieces, min(fair, max(span.count // _SPLIT_RECORDS_MIN, 1) if len(spans) > 1 else fair))
    pieces = max(1, min(pieces, span.count))
    start = span.span[3]
    edges = [start + span.count * place // pieces for place in range(pieces + 1)]
    return [span.part(low, high) for low, high in zip(edges[:-1], edges[1:], strict=True)]


def _merged(pieces: Sequence[_Weighted], budget: SplitBudget) -> list[list[_Weighted]]:
    """Neighbours put together until a group is full by bytes, records or number of queues."""
    room = budget.max_bytes
    if budget.min_partitions:
        total = sum(piece.size for piece in pieces)
        room = min(room, max(-(-total // budget.min_partitions), 1))
    groups: list[list[_Weighted]] = []
    size = count = 0
    for piece in pieces:
        full = not groups or size + piece.size > room or len(groups[-1]) >= _MERGED_RANGES_MAX
        if full or (budget.max_records and count + piece.count > budget.max_records):
            groups.append([])
            size = count = 0
        groups[-1].append(piece)
        size, count = size + piece.size, count + piece.count
    return groups


def _log_splits(store: StoreExtent, spans: Sequence[_Weighted], budget: SplitBudget) -> list[Split]:
    """Parts of the commitlog of about the byte limit, cut where a queue entry or a file says that a record begins."""
    whole = [span.span for span in spans]
    wanted = budget.max_bytes
    if budget.min_partitions:
        wanted = min(wanted, max((store.log_end - store.log_start) // budget.min_partitions, 1))
    edges = [store.log_start]
    for file in store.log_files:
        for place in range(file.start, min(file.end, store.log_end), wanted):
            edge = file.start if place == file.start else _record_boundary(store, spans, place)
            if edge is not None and edges[-1] < edge < store.log_end and (edge - edges[-1] >= wanted // 2):
                edges.append(edge)
    edges.append(store.log_end)
    return [
        _split(store, whole, (low, high)) for low, high in zip(edges[:-1], edges[1:], strict=True) if low < high
    ]


def _record_boundary(store: StoreExtent, spans: Sequence[_Weighted], place: int) -> int | None:
    """A record start at or behind `place`, taken from the biggest queue's entries; None if they know of none."""
    biggest = max(spans, key=lambda span: span.size).span
    queue = store.queues[biggest[0], biggest[1]]
    low, high = queue.entry_start, queue.entry_end
    if queue.files.kind != SIMPLE or low >= high or place >= store.walk_from:
        return None
    while low < high:
        middle = (low + high) // 2
        if int(queue.files.read(middle, middle + 1)["physical_offset"][0]) < place:
            low = middle + 1
        else:
            high = middle
    if low >= queue.entry_end:
        return None
    return int(queue.files.read(low, low + 1)["physical_offset"][0])


def _split(store: StoreExtent, spans: Sequence[Span], log_range: tuple[int, int] | None = None) -> Split:
    return Split(
        store.path, store.broker_name, tuple(spans), store.log_end, store.walk_from, store.crc_from, store.is_live,
        store.queue_layout == "file", log_range, store.extra_logs,
    )  # fmt: skip
