"""`rmqstore serve-metrics`: the figures of stores for Prometheus."""

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from rmqstore import NotAStore, Snapshot, StoresIn, open_snapshot
from rmqstore.cli.metrics.scrapes import CONTENT_TYPE, METRICS_PATH, Scrapes, metrics_place
from rmqstore.cli.output import debug_option, mistakes_in_command, printable
from rmqstore.cli.signals import until_signalled
from rmqstore.directory.config_files import consumer_offsets
from rmqstore.directory.store_root import found_store
from rmqstore.errors import StoreError
from rmqstore.files.disk import StoredFile
from rmqstore.files.reading import canonical_path
from rmqstore.snapshot.lookup.end_times import newest_time
from rmqstore.snapshot.store_paths import Paths
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.stats_text import metrics_core

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


# --- The figures of stores as OpenMetrics, made by prometheus_client (the extra "metrics").

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
    """A watched path: the figures of its stores, None while it cannot be read; the size of its disk and the free bytes,
    and how long the read took."""

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
    """The figures of all places as OpenMetrics 1.0.  Raises Rejected without prometheus_client."""
    core = metrics_core()
    from prometheus_client import CollectorRegistry  # noqa: PLC0415  as in `metrics_core`
    from prometheus_client.openmetrics.exposition import generate_latest  # noqa: PLC0415  the same

    class Collector:
        """The collector of one text."""

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
    """A label as valid UTF-8: names of directories may hold any bytes."""
    return label.encode("utf-8", "replace").decode()


class _Single(NamedTuple):
    """A metric of which each store has one sample, or none where the value is None."""

    name: str
    meaning: str
    value: Callable[[ExtentFigures], float | None]


def _singles(now_ms: int) -> tuple[_Single, ...]:
    return (
        _Single("log_start_offset", "Offset of the first commitlog byte.", lambda each: each.log_start),
        _Single("log_end_offset", "Offset after the last commitlog byte.", lambda each: each.log_end),
        _Single("log_size_bytes", "Bytes of the commitlog's files.", lambda each: each.log_size),
        _Single("log_files", "Files of the commitlog.", lambda each: each.log_files),
        _Single("locked", "1 if a process of this host has the store open for writing, else 0.",
                lambda each: each.is_locked),
        _Single("newest_message_timestamp_seconds", "Store time of the newest replicated message.",
                lambda each: None if each.newest_ms is None else each.newest_ms / 1000),
        _Single("newest_message_age_seconds", "Time since the newest message was stored, by this host's clock.",
                lambda each: None if each.newest_ms is None else (now_ms - each.newest_ms) / 1000),
    )  # fmt: skip


def _families(seen: Sequence[PlaceFigures], now_ms: int) -> list[_Family]:
    stores = [store for place in seen for store in place.stores or ()]
    return [
        _Family("rmqstore_up", "1 if the store, or the directory of stores, can be read, else 0.", _OWN[:1],
                [((place.path,), place.stores is not None) for place in seen]),
        _Family("rmqstore_look_seconds", "Duration of the last read of the store, or of the directory of "
            "stores.", _OWN[:1],
                [((place.path,), place.look_s) for place in seen]),
        _Family("rmqstore_disk_size_bytes", "Size of the file system that holds the store.", _OWN[:1],
                [((place.path,), place.disk and place.disk[0]) for place in seen]),
        _Family("rmqstore_disk_free_bytes", "Free bytes of the file system that holds the store.", _OWN[:1],
                [((place.path,), place.disk and place.disk[1]) for place in seen]),
        *(_Family(f"rmqstore_{name}", meaning, _OWN, [(each.labels, value(each)) for each in stores])
          for name, meaning, value in _singles(now_ms)),
        *_of_topics(stores),
        _Family("rmqstore_group_lag_messages", "Messages that a group has not consumed yet.", (*_OWN, "group", "topic"),
                [((*each.labels, *place), lag) for each in stores for place, lag in each.lags.items()]),
        _Family("rmqstore_left_out", "Topics and groups without samples, because of --series; they are the smallest.",
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
        _Family("rmqstore_queue_min_offset", "First queue offset of the queue.", (*_OWN, "topic", "queue"),
                [(labels, queue.min_offset) for labels, queue in queues]),
        _Family("rmqstore_queue_max_offset", "Queue offset of the next message.", (*_OWN, "topic", "queue"),
                [(labels, queue.max_offset) for labels, queue in queues]),
    ]  # fmt: skip


# ---

# --- Places that are looked at for their figures: a store each, or a directory of stores; however often somebody
# asks.


def watched_paths(path: str) -> Paths:
    """A path as `open_snapshot` takes it: a directory in which stores are is StoresIn."""
    try:
        found_store(path, may_be_ledger=True)
    except NotAStore:
        with suppress(StoreError, OSError):
            open_snapshot(StoresIn(path))
            return StoresIn(path)
    return path


class Watched:
    """One path.  It may disappear and return: each look searches for it again."""

    def __init__(self, path: str, series_max: int) -> None:
        """Takes the first look, which must find a store.  Raises as `open_snapshot`."""
        self.path, self._series_max = canonical_path(path), series_max
        self._paths = watched_paths(path)
        self._figures: dict[int, tuple[StoreExtent, ExtentFigures]] = {}
        self._snapshot: Snapshot | None = open_snapshot(self._paths)
        self.failure: str | None = None

    def look(self) -> PlaceFigures:
        """The figures as they are now; those of before for a store that did not change."""
        began_s = time.monotonic()
        stores: tuple[ExtentFigures, ...] | None = None
        try:
            self._snapshot = open_snapshot(self._paths) if self._snapshot is None else self._snapshot.refresh()
            stores = tuple(map(self._figures_of, self._snapshot.stores))
            self._figures = {id(store): self._figures[id(store)] for store in self._snapshot.stores}
            self.failure = None
        except (StoreError, OSError) as error:
            self._snapshot, self.failure = None, str(error)
            self._figures.clear()
        return PlaceFigures(self.path, stores, _disk_of(self.path), time.monotonic() - began_s)

    def _figures_of(self, store: StoreExtent) -> ExtentFigures:
        """A store that is the same object is the same store: nothing in it is new, but what groups have consumed."""
        known = self._figures.get(id(store))
        fresh = figures_of(store, self._series_max) if known is None else known[1].with_lags_of(store, self._series_max)
        self._figures[id(store)] = store, fresh
        return fresh


def _disk_of(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        size, _, free = shutil.disk_usage(path)
        return size, free
    return None


class Looks:
    """The text of all places, made again once the last text is `every_s` old; any thread may ask.

    A request during a look gets the previous text.
    """

    def __init__(self, places: Sequence[Watched], every_s: float, tell: Callable[[str], None]) -> None:
        """`tell` gets a line when a path cannot be read any more, and when it can be read again."""
        self._places, self._every_s, self._tell = places, every_s, tell
        self._looking = threading.Lock()
        self._seen = [place.look() for place in places]
        self._looked_s = time.monotonic()

    def text(self) -> str:
        """The figures as OpenMetrics."""
        if time.monotonic() - self._looked_s >= self._every_s and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        return metrics_text(self._seen, time.time_ns() // 1_000_000)

    def _look(self) -> None:
        seen = []
        for place in self._places:
            before = place.failure
            seen.append(place.look())
            if place.failure is not None and before is None:
                self._tell(f"{place.path} cannot be read: {place.failure}")
            elif before is not None and place.failure is None:
                self._tell(f"{place.path} can be read again")
        self._seen, self._looked_s = seen, time.monotonic()


# ---

_NAP_S = 0.2
_EXAMPLE = """\b
Examples:
  rmqstore serve-metrics /data/rocketmq/store
  rmqstore serve-metrics /data/rmq --listen 9097 --every 30
"""


@click.command("serve-metrics", epilog=_EXAMPLE, short_help="Answer GET /metrics of Prometheus.")
@click.argument("stores", metavar="STORE...", nargs=-1, required=True)
@click.option(
    "--listen", default="9096", show_default=True, metavar="[HOST:]PORT",
    help="Where to answer GET /metrics; a port alone means loopback, port 0 any free port.",
)  # fmt: skip
@click.option(
    "--open-to-network", is_flag=True, help="Allow an address other than loopback; requests need no password."
)
@click.option(
    "--every", "every_s", type=click.FloatRange(0.1, 3600), default=10.0, show_default=True, metavar="SECONDS",
    help="Seconds for which figures are kept: the stores are not read more often than this.",
)  # fmt: skip
@click.option(
    "--series", "series_max", type=click.IntRange(1, 100_000), default=2000, show_default=True, metavar="N",
    help="Samples for at most this many queues, and this many groups, of each store; the largest topics and lags "
        "first.",
)  # fmt: skip
@debug_option
def serve_metrics(stores: tuple[str, ...], listen: str, open_to_network: bool, every_s: float, series_max: int) -> None:
    """Answer GET /metrics with the figures of stores, in the format of OpenMetrics; for Prometheus.

    STORE is a store, a replica, or a directory of stores as `rmqstore replicate` makes it. Nothing is written there. A
    store that goes away has rmqstore_up 0 until it comes back. Ctrl-C or SIGTERM ends it.
    """
    with mistakes_in_command():
        place = metrics_place(listen, is_open_to_network=open_to_network, option="--listen")
    metrics_core()  # refused before anything is looked at
    with until_signalled() as is_over:
        looks = Looks(
            [Watched(store, series_max) for store in dict.fromkeys(stores)], every_s,
            lambda line: click.echo(printable(line), err=True),
        )  # fmt: skip
        with Scrapes(place, CONTENT_TYPE, looks.text, option="--listen") as scrapes:
            click.echo(f"metrics: http://{scrapes.address}{METRICS_PATH}", err=True)
            while not is_over():
                time.sleep(_NAP_S)
