"""Traffic over time."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore.report.traffic import BINS_MAX, TRAFFIC_COLUMNS, TimeBins, TrafficCount, traffic_batches
from tests.report.conftest import figures_of
from tests.report.stores import wide_store
from tests.snapshot.small_store import FIRST_MS, SmallStore

pytestmark = pytest.mark.stores

TIMES = st.integers(0, 4_000_000_000_000)


@given(TIMES, TIMES)
def test_bins_cover_both_ends_and_are_few(one: int, other: int) -> None:
    low, high = sorted((one, other))
    bins = TimeBins.between(low, high)
    assert bins.count <= BINS_MAX
    assert bins.start_ms <= low < bins.start_ms + bins.step_ms
    assert bins.start_ms + (bins.count - 1) * bins.step_ms <= high < bins.start_ms + bins.count * bins.step_ms
    assert bins.start_ms % bins.step_ms == 0


@pytest.mark.parametrize("case", ["basic", "batchcq", "killed-lagcq", "basic-nocq", "lmq", "delay", "longtopic"])
def test_it_is_what_a_scan_of_all_columns_says(case: str, store_of) -> None:
    snapshot = rmqstore.open_snapshot(store_of(case))
    rows = [
        row
        for row in snapshot.scan(include_system_topics=True, columns=TRAFFIC_COLUMNS).read_all().to_pylist()
        if not row["topic"].startswith("%LMQ%")
    ]
    figures = figures_of(store_of(case), top=2)
    traffic = figures.traffic
    assert traffic is not None
    assert traffic.counted == len(rows)
    for line in traffic.lines:
        named = {each.topic for each in traffic.lines if each.topic}
        own = [row for row in rows if (row["topic"] if row["topic"] in named else "") == line.topic]
        messages, sizes = np.zeros(traffic.bins.count, np.int64), np.zeros(traffic.bins.count, np.int64)
        for row in own:
            place = (int(row["storeTimestamp"].timestamp() * 1000) - traffic.bins.start_ms) // traffic.bins.step_ms
            messages[place] += 1
            sizes[place] += row["storeSize"]
        assert (line.messages == messages).all()
        assert (line.bytes == sizes).all()
    for (_, topic), found in traffic.sizes.items():
        own_sizes = [row["storeSize"] for row in rows if row["topic"] == topic]
        assert (found.message_count, found.total, found.largest) == (len(own_sizes), sum(own_sizes), max(own_sizes))


def test_the_topics_of_most_messages_have_lines_and_the_rest_is_one(tmp_path: Path) -> None:
    traffic = figures_of(wide_store(tmp_path, 30), top=4).traffic
    assert traffic is not None
    kinds = ["0-events-of-kind-0000", "0-events-of-kind-0010", "0-events-of-kind-0020", "1-events-of-kind-0001"]
    assert [line.topic for line in traffic.lines] == [*(f"area-{kind}" for kind in kinds), ""]
    assert [int(line.messages.sum()) for line in traffic.lines] == [3, 3, 3, 3, 78]


@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63), 0, 253_402_300_800_000])
def test_a_time_that_no_message_can_have_is_counted_apart(time_ms: int, tmp_path: Path) -> None:
    made = SmallStore()
    for number in range(5):
        made.add("T", store_timestamp=time_ms if number == 2 else FIRST_MS + number * 1000)
    made.write(tmp_path)
    traffic = figures_of(tmp_path).traffic
    assert traffic is not None
    assert (traffic.outside, traffic.counted, traffic.bins.count) == (1, 5, 5)
    assert traffic.lines[0].messages.tolist() == [1, 1, 0, 1, 1]


def test_memory_is_that_of_bins_and_not_of_messages(tmp_path: Path) -> None:
    """Two batches of one shape leave a count as large as one does."""
    (store,) = rmqstore.open_snapshot(wide_store(tmp_path, 10)).stores
    (batch,) = traffic_batches(store)
    count = TrafficCount(TimeBins.between(FIRST_MS, FIRST_MS + 5 * 86_400_000), ["area-0-events-of-kind-0000"])
    told = [count.add("b", batch) for _ in range(3)]
    assert told == [sum(batch.column("storeSize").to_pylist())] * 3
    traffic = count.traffic()
    assert traffic.counted == 3 * batch.num_rows
    assert [len(line.messages) for line in traffic.lines] == [traffic.bins.count] * 2
