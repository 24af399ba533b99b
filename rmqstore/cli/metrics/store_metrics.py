"""The figures of stores as OpenMetrics, made by prometheus_client (the extra "metrics")."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.directory.config_files import consumer_offsets
from rmqstore.errors import StoreError
from rmqstore.files.disk import StoredFile
from rmqstore.snapshot.lookup.queue_times import newest_time
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.stats_text import metrics_core

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# Labels that every sample of a store has.
_OWN = ("store", "broker")
Labels = tuple[str, ...]


class QueueFigures(NamedTuple):
    """The messages that a queue holds: queue offsets [min_offset, max_offset)."""

    queue_id: int
    min_offset: int
    max_offset: int


class ExtentFigures(NamedTuple):
    """A store in numbers.  Topics and groups are no more than a limit, the largest; `left_out` says how many there are
    beyond."""

    labels: Labels
    log_start: int
    log_end: int
    log_files: int
    log_size: int
    newest_ms: int | None
    is_locked: bool
    topics: Mapping[str, Sequence[QueueFigures]]
    lags: Mapping[tuple[str, str], int]
    left_out: Mapping[str, int]

    def with_lags_of(self, store: StoreExtent, series_max: int) -> "ExtentFigures":
        """The same, with what the groups have consumed by now; the store itself did not change."""
        lags, left_out = _largest_lags(store, series_max)
        return self._replace(lags=lags, left_out={**self.left_out, "groups": left_out})


class PlaceFigures(NamedTuple):
    """A place that is watched: its stores' figures, None while it is away; the size of its disk and what is free of it,
    in bytes, and how long the look took."""

    path: str
    stores: tuple[ExtentFigures, ...] | None
    disk: tuple[int, int] | None
    look_s: float


def figures_of(store: StoreExtent, series_max: int) -> ExtentFigures:
    """The figures of a store as a snapshot has it, `series_max` queues and groups at the most."""
    queues: dict[str, list[QueueFigures]] = {}
    counts = Counter[str]()
    for (topic, queue_id), queue in store.queues.items():
        queues.setdefault(topic, []).append(QueueFigures(queue_id, queue.min_offset, queue.max_offset))
        counts[topic] += queue.max_offset - queue.min_offset
    shown: dict[str, list[QueueFigures]] = {}
    room = series_max
    for topic, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        if len(queues[topic]) > room:
            break
        room -= len(queues[topic])
        shown[topic] = queues[topic]
    lags, left_out = _largest_lags(store, series_max)
    files: Sequence[StoredFile] = store.log_files
    return ExtentFigures(
        (store.path, store.broker_name), store.log_start, store.log_end, len(files), sum(file.size for file in files),
        _newest_ms(store, shown), store.lock_held, shown, lags,
        {"topics": len(queues) - len(shown), "groups": left_out},
    )  # fmt: skip


def _largest_lags(store: StoreExtent, series_max: int) -> tuple[dict[tuple[str, str], int], int]:
    """The largest lags, and how many there are beyond."""
    lags = sorted(_lags(store), key=lambda pair: (-pair[1], pair[0]))
    return dict(lags[:series_max]), max(len(lags) - series_max, 0)


def _newest_ms(store: StoreExtent, shown: Mapping[str, Sequence[QueueFigures]]) -> int | None:
    keys = [(topic, queue.queue_id) for topic, found in shown.items() for queue in found]
    try:
        return newest_time(store, keys)
    except (StoreError, OSError):  # its owner is at work there; the next look tells
        return None


def _lags(store: StoreExtent) -> Iterator[tuple[tuple[str, str], int]]:
    """Messages that the store holds and a group has still to consume, by group and topic."""
    for (group, topic), offsets in consumer_offsets(store.disk, store.path).items():
        lag = 0
        for queue_id, offset in offsets.items():
            queue = store.queues.get((topic, queue_id))
            if queue is not None:
                lag += max(queue.max_offset - max(offset, queue.min_offset), 0)
        yield (group, topic), lag


class _Family(NamedTuple):
    """A metric: its name, what it says, its labels, and its samples."""

    name: str
    meaning: str
    labels: Labels
    samples: Iterable[tuple[Labels, float | None]]


def metrics_text(seen: Sequence[PlaceFigures], now_ms: int) -> str:
    """All of it as OpenMetrics 1.0.  Raises Rejected without prometheus_client."""
    core = metrics_core()
    from prometheus_client import CollectorRegistry  # noqa: PLC0415  as in `metrics_core`
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415  the same

    class Collector:
        """Asked once, for this text."""

        def collect(self) -> "Iterator[Metric]":
            for family in _families(seen, now_ms):
                metric = core.GaugeMetricFamily(family.name, family.meaning, labels=family.labels)
                for labels, value in family.samples:
                    if value is not None:
                        metric.add_metric([_text(label) for label in labels], value)
                yield metric

        def describe(self) -> "Iterable[Metric]":
            return ()

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]  # prometheus_client declares none
    return text.decode()


def _text(label: str) -> str:
    """A label that UTF-8 can write: names of directories are any bytes."""
    return label.encode("utf-8", "replace").decode()


class _Single(NamedTuple):
    """A metric of which each store has one sample, or none where the value is None."""

    name: str
    meaning: str
    value: Callable[[ExtentFigures], float | None]


def _singles(now_ms: int) -> tuple[_Single, ...]:
    return (
        _Single("log_start_offset", "First byte of the commitlog that is there.", lambda each: each.log_start),
        _Single("log_end_offset", "Where the commitlog ends.", lambda each: each.log_end),
        _Single("log_size_bytes", "Bytes of the commitlog's files.", lambda each: each.log_size),
        _Single("log_files", "Files of the commitlog.", lambda each: each.log_files),
        _Single("locked", "1 while a process of this host has the store open for writing.",
                lambda each: each.is_locked),
        _Single("newest_message_timestamp_seconds", "Store time of the newest message.",
                lambda each: None if each.newest_ms is None else each.newest_ms / 1000),
        _Single("newest_message_age_seconds", "How long ago that was, by this host's clock.",
                lambda each: None if each.newest_ms is None else (now_ms - each.newest_ms) / 1000),
    )  # fmt: skip


def _families(seen: Sequence[PlaceFigures], now_ms: int) -> list[_Family]:
    stores = [store for place in seen for store in place.stores or ()]
    return [
        _Family("rmqstore_up", "1 while the store, or the directory of stores, can be read.", _OWN[:1],
                [((place.path,), place.stores is not None) for place in seen]),
        _Family("rmqstore_look_seconds", "How long the last look at it took.", _OWN[:1],
                [((place.path,), place.look_s) for place in seen]),
        _Family("rmqstore_disk_size_bytes", "Size of the file system that it is on.", _OWN[:1],
                [((place.path,), place.disk and place.disk[0]) for place in seen]),
        _Family("rmqstore_disk_free_bytes", "Bytes that are free there.", _OWN[:1],
                [((place.path,), place.disk and place.disk[1]) for place in seen]),
        *(_Family(f"rmqstore_{name}", meaning, _OWN, [(each.labels, value(each)) for each in stores])
          for name, meaning, value in _singles(now_ms)),
        *_of_topics(stores),
        _Family("rmqstore_group_lag_messages", "Messages that a group has still to consume.", (*_OWN, "group", "topic"),
                [((*each.labels, *place), lag) for each in stores for place, lag in each.lags.items()]),
        _Family("rmqstore_left_out", "Topics and groups beyond --series, the smallest, which have no samples.",
                (*_OWN, "kind"),
                [((*each.labels, kind), count) for each in stores for kind, count in each.left_out.items()]),
    ]  # fmt: skip


def _of_topics(stores: Sequence[ExtentFigures]) -> list[_Family]:
    queues = [
        ((*each.labels, topic, str(queue.queue_id)), queue)
        for each in stores
        for topic, found in each.topics.items()
        for queue in found
    ]
    return [
        _Family("rmqstore_topic_messages", "Messages of a topic that the store holds.", (*_OWN, "topic"),
                [((*each.labels, topic), sum(queue.max_offset - queue.min_offset for queue in found))
                 for each in stores for topic, found in each.topics.items()]),
        _Family("rmqstore_queue_min_offset", "First queue offset that is there.", (*_OWN, "topic", "queue"),
                [(labels, queue.min_offset) for labels, queue in queues]),
        _Family("rmqstore_queue_max_offset", "Queue offset of the next message.", (*_OWN, "topic", "queue"),
                [(labels, queue.max_offset) for labels, queue in queues]),
    ]  # fmt: skip
