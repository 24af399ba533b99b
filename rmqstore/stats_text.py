"""A store's statistics as Prometheus reads them, through `prometheus_client` (the extra "metrics").

`prometheus_text` is for a program that answers scrapes itself; a program that has a registry gives it a collector:

    REGISTRY.register(StatisticsCollector(store.statistics))
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rmqstore.engine.stats import StoreStatistics
from rmqstore.errors import Rejected

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# Where the buckets that are shown end, in ms: some of stats.BOUNDS_MS.
_BOUNDS_MS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
# Name, what it says, labels, values by a tuple of theirs.
_Family = tuple[str, str, tuple[str, ...], Mapping[Any, float]]


class StatisticsCollector:
    """A collector for a registry of `prometheus_client`; `labels` go to every sample, such as the name of the store."""

    def __init__(self, source: Callable[[], StoreStatistics], labels: Mapping[str, str] | None = None) -> None:
        self._source = source
        self._labels = dict(labels or {})

    def collect(self) -> "Iterable[Metric]":
        """The metrics of a value taken now.  Raises Rejected without prometheus_client."""
        core = metrics_core()
        now = self._source()
        names, values = list(self._labels), list(self._labels.values())
        for kind, families in (
            (core.CounterMetricFamily, _counters(now)),
            (core.GaugeMetricFamily, _gauges(now)),
        ):
            for name, text, labels, samples in families:
                family = kind(name, text, labels=[*names, *labels])
                for own, value in sorted(samples.items()):
                    family.add_metric([*values, *own], value)
                yield family
        latency = core.HistogramMetricFamily(
            "rmqstore_put_latency_seconds", "How long puts took, failed ones too.", labels=names
        )
        below = now.put_latency.below(_BOUNDS_MS)
        buckets = [(str(bound_ms / 1000), count) for bound_ms, count in zip(_BOUNDS_MS, below, strict=True)]
        latency.add_metric(values, [*buckets, ("+Inf", now.put_latency.count)], sum_value=now.put_latency.total_s)
        yield latency

    def describe(self) -> "Iterable[Metric]":
        """Nothing: so a registry does not ask `collect` for names when it is registered."""
        return ()


def prometheus_text(statistics: StoreStatistics, labels: Mapping[str, str] | None = None) -> str:
    """The statistics in Prometheus' text format 0.0.4.  Raises Rejected without prometheus_client."""
    metrics_core()
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  as in `metrics_core`

    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatisticsCollector(lambda: statistics, labels))
    return generate_latest(registry).decode()


def metrics_core() -> Any:
    """The module of prometheus_client that makes metrics.  Raises Rejected without it."""
    try:
        from prometheus_client import metrics_core as core  # noqa: PLC0415  an extra: the package works without it
    except ImportError:
        raise Rejected("metrics need prometheus_client: pip install 'rmqstore[metrics]'") from None
    return core


def _counters(now: StoreStatistics) -> list[_Family]:
    topics = now.put_topics.items()
    return [
        ("rmqstore_put_messages", "Messages put.", ("topic",), {(name,): puts.times for name, puts in topics}),
        ("rmqstore_put_bytes", "Bytes of their records.", ("topic",), {(name,): puts.size for name, puts in topics}),
        ("rmqstore_put_failures", "Puts that stored nothing.", (), {(): now.put_failed}),
        (
            "rmqstore_gets", "Reads of a queue, by whether they brought messages.", ("outcome",),
            {("found",): now.get_found, ("missed",): now.get_missed},
        ),
        ("rmqstore_get_messages", "Messages that they brought.", (), {(): now.get_messages}),
        ("rmqstore_get_bytes", "Bytes of their records.", (), {(): now.get_size}),
    ]  # fmt: skip


def _gauges(now: StoreStatistics) -> list[_Family]:
    gauges = now.gauges
    progress = {(str(level),): done for level, (done, _) in gauges.delay.items()}
    ends = {(str(level),): end for level, (_, end) in gauges.delay.items()}
    disks = {("log", path): used for path, used in gauges.log_disks.items()}
    if gauges.queue_disk is not None:
        disks["queues", ""] = gauges.queue_disk
    return [
        ("rmqstore_boot_time_seconds", "When the store was opened.", (), {(): now.boot_ms / 1000}),
        ("rmqstore_put_latency_max_seconds", "The longest put.", (), {(): now.put_max_ms / 1000}),
        ("rmqstore_get_latency_max_seconds", "The longest read of a queue.", (), {(): now.get_max_ms / 1000}),
        ("rmqstore_log_min_offset", "First byte of the log that is there.", (), {(): gauges.log_min_offset}),
        ("rmqstore_log_max_offset", "Where the log ends.", (), {(): gauges.log_max_offset}),
        ("rmqstore_dispatch_behind_bytes", "Log that no queue knows yet.", (), {(): gauges.dispatch_behind_bytes}),
        ("rmqstore_unsynced_bytes", "Log that is not known to be on the disk.", (), {(): gauges.unsynced_bytes}),
        ("rmqstore_disk_used_ratio", "Used share of a disk, 0 to 1.", ("holds", "path"), disks),
        ("rmqstore_delay_progress", "Delivered up to this offset, by delay level.", ("level",), progress),
        ("rmqstore_delay_queue_end", "Where the level's queue ends.", ("level",), ends),
    ]  # fmt: skip
