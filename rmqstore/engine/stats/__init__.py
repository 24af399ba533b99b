"""The work of a store since it was opened, and its speed: counters and latencies as one frozen value.

Java: StoreStatsService.  Nothing of it is on the disk.  `counting` counts; `stats_text` has it as Prometheus text.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Where the latency buckets begin, in ms.  From 1 ms on they are RocketMQ's (PUT_MESSAGE_ENTIRE_TIME_BUCKETS); what it
# calls 0 ms is most of all puts here, so that is cut finer.
BOUNDS_MS: tuple[float, ...] = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, *range(1, 21), *range(22, 51, 2), *range(55, 101, 5), *range(110, 201, 10),
    *range(250, 501, 50), *range(600, 1001, 100), *range(2000, 10_001, 1000),
)  # fmt: skip
# putMessageDistributeTime: where its buckets end, in ms, and what it calls them.
_JAVA_BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_JAVA_NAMES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a store takes messages, and what is wrong if not; how many bytes of the log are not dispatched yet."""

    is_writable: bool
    reasons: tuple[str, ...]
    dispatch_behind_bytes: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LatencyHistogram:
    """How long puts took: `counts[i]` took less than `BOUNDS_MS[i]` and no less than the bound before, the last one
    10 s and more.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    total_s: float = 0.0

    @property
    def count(self) -> int:
        """How many puts."""
        return sum(self.counts)

    def percentile_ms(self, share: float) -> float:
        """The time within which that share of the puts was done (0.99: p99), straight between two bounds; 0.0 without
        puts, 10,000.0 for all that took longer (Java: findPutMessageEntireTimePX).
        """
        wanted = int(self.count * share)
        low_ms = 0.0
        for bound_ms, count in zip(BOUNDS_MS, self.counts, strict=False):
            if count and wanted <= count:
                return low_ms + (bound_ms - low_ms) * wanted / count
            wanted -= count
            low_ms = bound_ms
        return low_ms if self.count else 0.0

    def below(self, bounds_ms: Sequence[float]) -> list[int]:
        """How many puts took less than each of some bounds, which are among `BOUNDS_MS`."""
        return [sum(self.counts[: bisect_left(BOUNDS_MS, bound) + 1]) for bound in bounds_ms]

    def since(self, before: "LatencyHistogram") -> "LatencyHistogram":
        """The growth since an earlier state of the same counts."""
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return LatencyHistogram(counts, self.total_s - before.total_s)


@dataclass(frozen=True, slots=True)
class TopicPuts:
    """Messages put to a topic and the bytes of their records."""

    times: int
    size: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Counts per second over the last 10, 60 and 600 s; None until so much time was sampled (Java: CallSnapshot)."""

    over_10_s: float | None = None
    over_60_s: float | None = None
    over_600_s: float | None = None

    def as_tuple(self) -> tuple[float | None, ...]:
        """The three in that order."""
        return self.over_10_s, self.over_60_s, self.over_600_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGauges:
    """The state of a store at a moment, beside the counts; the parts of the store know it.

    `log_disks` and `queue_disk` are used shares of a disk, 0 … 1, by path; `delay` is by level how far it is delivered
    and where its queue ends; `earliest_ms` the oldest message's store time, -1 without.
    """

    log_min_offset: int = 0
    log_max_offset: int = 0
    dispatch_behind_bytes: int = 0
    unsynced_bytes: int = 0
    earliest_ms: int = -1
    log_disks: Mapping[str, float] = field(default_factory=dict)
    queue_disk: float | None = None
    delay: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatistics:
    """A store's counters at one moment, since it was opened (`boot_ms`); sizes are bytes of records.

    `put_times` counts messages, `put_latency` puts, of however many messages, and the failed ones too; `put_minute` is
    the last whole minute of it, None before there was one.  `get_found` and `get_missed` count reads of a queue.
    """

    boot_ms: int
    taken_ms: int
    put_topics: Mapping[str, TopicPuts] = field(default_factory=dict)
    put_failed: int = 0
    put_latency: LatencyHistogram = LatencyHistogram()
    put_minute: LatencyHistogram | None = None
    put_max_ms: float = 0.0
    get_found: int = 0
    get_missed: int = 0
    get_messages: int = 0
    get_size: int = 0
    get_max_ms: float = 0.0
    put_rates: Rates = Rates()
    found_rates: Rates = Rates()
    missed_rates: Rates = Rates()
    message_rates: Rates = Rates()
    gauges: StoreGauges = StoreGauges()

    @property
    def put_times(self) -> int:
        """Messages put."""
        return sum(topic.times for topic in self.put_topics.values())

    @property
    def put_size(self) -> int:
        """Bytes of their records."""
        return sum(topic.size for topic in self.put_topics.values())

    def runtime_info(self, *, transferred_key: str = "getTransferredTps") -> dict[str, str]:
        """The same as a broker answers it: Apache's keys, as far as they are about the store, and texts.

        4.9.x spells one key `getTransferedTps`.  Where there are no messages it says 0, unlike Java, which says 1.
        """
        times, minute, gauges = self.put_times, self.put_minute, self.gauges
        found, missed = self.found_rates.as_tuple(), self.missed_rates.as_tuple()
        info = {
            "bootTimestamp": str(self.boot_ms),
            "runtime": _runtime_text(self.taken_ms - self.boot_ms),
            "putMessageEntireTimeMax": str(int(self.put_max_ms)),
            "putMessageTimesTotal": str(times),
            "putMessageFailedTimes": str(self.put_failed),
            "putMessageSizeTotal": str(self.put_size),
            "putMessageAverageSize": str(self.put_size / max(times, 1)),
            "putMessageDistributeTime": "null" if minute is None else _distribution_text(minute),
            "putLatency99": f"{minute.percentile_ms(0.99) if minute else 0.0:.2f}",
            "putLatency999": f"{minute.percentile_ms(0.999) if minute else 0.0:.2f}",
            "getMessageEntireTimeMax": str(int(self.get_max_ms)),
            "putTps": _rates_text(self.put_rates.as_tuple()),
            "getFoundTps": _rates_text(found),
            "getMissTps": _rates_text(missed),
            "getTotalTps": _rates_text([(a or 0.0) + (b or 0.0) for a, b in zip(found, missed, strict=True)]),
            transferred_key: _rates_text(self.message_rates.as_tuple()),
            "dispatchMaxBuffer": "0",
            "dispatchBehindBytes": str(gauges.dispatch_behind_bytes),
            "remainHowManyDataToFlush": _size_text(gauges.unsynced_bytes),
            "commitLogMinOffset": str(gauges.log_min_offset),
            "commitLogMaxOffset": str(gauges.log_max_offset),
            "earliestMessageTimeStamp": str(gauges.earliest_ms),
        }
        if gauges.log_disks:
            info["commitLogDiskRatio"] = str(round(min(gauges.log_disks.values()), 2))  # of several the emptiest
        info |= {f"commitLogDiskRatio_{path}": str(round(used, 2)) for path, used in gauges.log_disks.items()}
        if gauges.queue_disk is not None:
            info["consumeQueueDiskRatio"] = str(round(gauges.queue_disk, 2))
        for level, (progress, end) in gauges.delay.items():
            info[f"scheduleMessageOffset_{level}"] = f"{progress},{end}"
        return info


def _distribution_text(latency: LatencyHistogram) -> str:
    counts = latency.below(_JAVA_BOUNDS_MS)
    pieces = [after - before for before, after in zip([0, *counts], [*counts, latency.count], strict=True)]
    return "".join(f"{name}:{count} " for name, count in zip(_JAVA_NAMES, pieces, strict=True))


def _rates_text(rates: Sequence[float | None]) -> str:
    return " ".join("" if rate is None else str(rate) for rate in rates)


def _runtime_text(ms: int) -> str:
    seconds = max(ms, 0) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"


def _size_text(size: int) -> str:
    """Java: MixAll.humanReadableByteCount."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, 6)
    return f"{size / 1024**power:.1f} {' KMGTPE'[power]}iB"
