"""Counters, latencies and rates, as a value, as a broker's runtime information, and as Prometheus reads them."""

import dataclasses
import gc
import re
import sys
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqstore.clock import ManualClock
from rmqstore.core.message import GetResult, GetStatus
from rmqstore.engine.stats import BOUNDS_MS, LatencyHistogram, Rates, StoreGauges, StoreStatistics, TopicPuts
from rmqstore.engine.stats.counting import Statistics
from rmqstore.errors import Rejected
from rmqstore.stats_text import StatisticsCollector, prometheus_text
from tests.golden.cases import FOLDERS, read_json

GAUGES = StoreGauges(
    log_min_offset=4096, log_max_offset=1_186_717, dispatch_behind_bytes=12, unsynced_bytes=1536,
    earliest_ms=1_700_000_000_000, log_disks={"WORK/store/commitlog": 0.184}, queue_disk=0.18,
    delay={1: (3, 3), 6: (0, 3)},
)  # fmt: skip
# What a broker answers beside, of its threads and connections, its disk's size, its days and its timers.
BROKER_KEYS = re.compile(
    r"\w+(Capacity|HeadWaitTimeMills|QueueSize|Morning|TodayNow)|timer\w+|brokerVersion\w*|brokerActive"
    r"|pageCacheLockTimeMills|startAcceptSendRequestTimeStamp|remainTransientStoreBufferNumbs|scheduleMessageOffset_\d+"
)


class Sized:
    def __init__(self, store_size: int) -> None:
        self.store_size = store_size


def found(*sizes: int) -> GetResult:
    return GetResult(GetStatus.FOUND, len(sizes), 0, len(sizes), [Sized(size) for size in sizes])  # type: ignore[misc]


def test_what_is_counted_of_puts_and_gets():
    clock = ManualClock()
    statistics = Statistics(clock, lambda: GAUGES)
    statistics.put_done("orders", 200, 0.000_015)
    statistics.put_done("orders", 900, 0.003, count=4)
    statistics.columns_done({"orders": (2, 100), "events": (3, 300)}, 0.030)
    statistics.put_failed(0.5)
    statistics.get_done(found(200, 300), 0.002)
    statistics.get_done(GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 0, 0, 0), 0.001)
    clock.advance(90_061_000)
    now = statistics.snapshot()
    assert now.put_topics == {"orders": TopicPuts(7, 1200), "events": TopicPuts(3, 300)}
    assert (now.put_times, now.put_size, now.put_failed) == (10, 1500, 1)
    assert (now.put_latency.count, now.put_max_ms) == (4, 500.0)
    assert now.put_latency.total_s == pytest.approx(0.533_015)
    assert (now.get_found, now.get_missed, now.get_messages, now.get_size, now.get_max_ms) == (1, 1, 2, 500, 2.0)
    assert now.gauges is GAUGES
    assert now.taken_ms - now.boot_ms == 90_061_000
    assert now.runtime_info()["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    with pytest.raises(dataclasses.FrozenInstanceError):
        now.put_failed = 2  # type: ignore[misc]


def test_nothing_is_lost_between_threads_nor_when_they_end():
    statistics = Statistics(ManualClock())
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    done = threading.Event()

    def put() -> None:
        for _ in range(2000):
            statistics.put_done("orders", 10, 0.0001)
            statistics.put_failed(0.0)
            statistics.get_done(found(1), 0.0)

    def ask() -> None:
        while not done.is_set():
            taken = statistics.snapshot()
            assert taken.put_times <= 8000

    try:
        asking, threads = threading.Thread(target=ask), [threading.Thread(target=put) for _ in range(4)]
        for thread in [asking, *threads]:
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        asking.join()
    finally:
        sys.setswitchinterval(before)
    gc.collect()
    for _ in range(2):  # the second time from what the ended threads left
        now = statistics.snapshot()
        assert now.put_topics == {"orders": TopicPuts(8000, 80_000)}
        assert (now.put_failed, now.get_found, now.get_messages, now.put_latency.count) == (8000, 8000, 8000, 16_000)
    assert statistics._tallies == []


@pytest.mark.parametrize(
    ("ms", "name"),
    [
        (0, "[<=0ms]"), (0.999, "[<=0ms]"), (1, "[0~10ms]"), (9.9, "[0~10ms]"), (10, "[10~50ms]"), (50, "[50~100ms]"),
        (100, "[100~200ms]"), (499, "[200~500ms]"), (500, "[500ms~1s]"), (1000, "[1~2s]"), (2999, "[2~3s]"),
        (3500, "[3~4s]"), (4000, "[4~5s]"), (9999, "[5~10s]"), (10_000, "[10s~]"), (86_400_000, "[10s~]"),
    ],
)  # fmt: skip
def test_latencies_fall_into_rocketmqs_buckets(ms: float, name: str):
    clock = ManualClock()
    statistics = Statistics(clock)
    statistics.put_done("orders", 1, ms / 1000)
    clock.advance(60_000)
    statistics.step()
    pieces = dict(
        piece.split(":") for piece in statistics.snapshot().runtime_info()["putMessageDistributeTime"].split()
    )
    assert len(pieces) == 13
    assert {key for key, count in pieces.items() if count != "0"} == {name}


def test_percentiles_lie_between_the_bounds_of_their_bucket():
    statistics = Statistics(ManualClock())
    for number in range(1000):
        statistics.put_done("orders", 1, 0.000_007 if number < 980 else 0.0405 if number < 998 else 60)
    latency = statistics.snapshot().put_latency
    assert 0 < latency.percentile_ms(0.5) < 0.01
    assert 40 < latency.percentile_ms(0.99) < 42
    assert latency.percentile_ms(0.99) == pytest.approx(40 + 2 * 10 / 18)
    assert latency.percentile_ms(0.999) == 10_000
    assert LatencyHistogram().percentile_ms(0.99) == 0
    assert latency.below([1, 50, 10_000]) == [980, 998, 998]
    assert list(BOUNDS_MS) == sorted(set(BOUNDS_MS))


def test_rates_need_their_time_and_forget_what_is_older():
    clock = ManualClock()
    statistics = Statistics(clock)
    assert statistics.snapshot().put_rates == Rates()
    assert statistics.step() == 1.0
    for second in range(1, 701):
        for _ in range(3 if second <= 600 else 5):
            statistics.put_done("orders", 1, 0.0)
        statistics.get_done(found(1, 1), 0.0)
        clock.advance(1000)
        statistics.step()
        if second == 9:
            assert statistics.snapshot().put_rates == Rates()
        if second == 10:
            assert statistics.snapshot().put_rates == Rates(3.0)
    now = statistics.snapshot()
    assert now.put_rates == Rates(5.0, 5.0, (500 * 3 + 100 * 5) / 600)
    assert (now.found_rates, now.missed_rates, now.message_rates) == (Rates(1, 1, 1), Rates(0, 0, 0), Rates(2, 2, 2))
    assert len(statistics._samples) == 601
    clock.advance(3_600_000)  # nobody sampled for an hour: over so long it is, and no shorter time
    statistics.step()
    assert statistics.snapshot().put_rates == Rates(0, 0, 0)


def test_the_last_minute_has_its_own_latencies():
    clock = ManualClock()
    statistics = Statistics(clock)
    statistics.put_done("orders", 1, 0.5)
    clock.advance(59_000)
    statistics.step()
    assert statistics.snapshot().put_minute is None
    assert statistics.snapshot().runtime_info()["putMessageDistributeTime"] == "null"
    clock.advance(1000)
    statistics.step()
    assert statistics.snapshot().put_minute.count == 1
    statistics.put_done("orders", 1, 0.002)
    statistics.put_done("orders", 1, 0.002)
    clock.advance(60_000)
    statistics.step()
    now = statistics.snapshot()
    assert (now.put_minute.count, now.put_latency.count) == (2, 3)
    assert now.runtime_info()["putLatency999"] == "2.50"


@pytest.mark.parametrize(
    ("case", "transferred"),
    [("broker-clean-5.3.3", "getTransferredTps"), ("broker-clean-4.9.8", "getTransferedTps")],
)
def test_runtime_info_reads_as_a_brokers(case: str, transferred: str):
    broker = read_json(FOLDERS[case], "rpc")["runtimeInfo"]["body"]["table"]
    clock = ManualClock()
    statistics = Statistics(clock, lambda: GAUGES)
    for _ in range(12):  # as long as the broker had run: rates over 10 s, none over 60 s
        statistics.step()
        clock.advance(1000)
    statistics.put_done("orders", 150, 0.018)
    statistics.put_done("orders", 155, 0.018)
    ours = statistics.snapshot().runtime_info(transferred_key=transferred)
    shared = ours.keys() & broker.keys()
    assert ours.keys() - broker.keys() <= {"scheduleMessageOffset_6"}  # 4.9.8 had no message on that level
    assert [key for key in broker.keys() - ours.keys() if not BROKER_KEYS.fullmatch(key)] == []
    for key in shared:
        if key not in ("remainHowManyDataToFlush", "earliestMessageTimeStamp"):
            assert shape(ours[key]) == shape(broker[key]), key
    assert ours["remainHowManyDataToFlush"] == "1.5 KiB"
    assert (ours["putMessageEntireTimeMax"], ours["putMessageAverageSize"]) == ("18", "152.5")


def shape(text: str) -> str:
    """A text with every number of it as 0 or 0.0."""
    return re.sub(r"\d+", "0", text)


def test_prometheus_reads_every_number():
    now = StoreStatistics(
        boot_ms=1000, taken_ms=2000, put_topics={'a"b': TopicPuts(3, 30), "c": TopicPuts(1, 7)}, put_failed=2,
        put_latency=LatencyHistogram((1, 2, *([0] * (len(BOUNDS_MS) - 2)), 4), 9.5), put_max_ms=12.0, get_found=5,
        get_missed=6, get_messages=70, get_size=800, get_max_ms=3.0, gauges=GAUGES,
    )  # fmt: skip
    samples = {}
    for family in text_string_to_metric_families(prometheus_text(now, {"store": "main"})):
        assert family.documentation
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("store") == "main"
            samples[sample.name, *sorted(labels.items())] = sample.value
    assert samples["rmqstore_put_messages_total", ("topic", 'a"b')] == 3
    assert samples["rmqstore_put_bytes_total", ("topic", "c")] == 7
    assert samples["rmqstore_put_failures_total",] == 2
    assert samples["rmqstore_gets_total", ("outcome", "missed")] == 6
    assert samples["rmqstore_get_messages_total",] == 70
    assert samples["rmqstore_get_bytes_total",] == 800
    assert samples["rmqstore_put_latency_max_seconds",] == 0.012
    assert samples["rmqstore_dispatch_behind_bytes",] == 12
    assert samples["rmqstore_log_max_offset",] == 1_186_717
    assert samples["rmqstore_disk_used_ratio", ("holds", "log"), ("path", "WORK/store/commitlog")] == 0.184
    assert samples["rmqstore_delay_progress", ("level", "6")] == 0
    assert samples["rmqstore_delay_queue_end", ("level", "6")] == 3
    buckets = {key[1][1]: value for key, value in samples.items() if key[0] == "rmqstore_put_latency_seconds_bucket"}
    assert (buckets["1e-05"], buckets["2e-05"], buckets["10.0"], buckets["+Inf"]) == (1, 3, 3, 7)
    assert samples["rmqstore_put_latency_seconds_sum",] == 9.5
    assert samples["rmqstore_put_latency_seconds_count",] == 7


def test_a_registry_asks_for_a_value_only_when_it_is_scraped():
    from prometheus_client import CollectorRegistry

    taken = []
    statistics = Statistics(ManualClock())

    def source() -> StoreStatistics:
        taken.append(1)
        return statistics.snapshot()

    registry = CollectorRegistry()
    registry.register(StatisticsCollector(source))
    assert taken == []
    statistics.put_done("orders", 5, 0.0)
    assert registry.get_sample_value("rmqstore_put_messages_total", {"topic": "orders"}) == 1


def test_metrics_without_their_library_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(Rejected, match=r"rmqstore\[metrics\]"):
        prometheus_text(Statistics(ManualClock()).snapshot())
