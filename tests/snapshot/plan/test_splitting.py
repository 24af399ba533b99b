"""However work is cut, every message is read once, and a split is small to send."""

import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmqstore
from rmqstore import Rejected, Snapshot
from rmqstore.files.reading import LOCAL
from rmqstore.snapshot.plan.splitting import plan_splits
from rmqstore.snapshot.request import QueueRange, ScanRequest, SplitBudget
from rmqstore.snapshot.scan.split_reader import read_split
from rmqstore.snapshot.split import Split
from tests.golden.cases import FOLDERS
from tests.snapshot.small_store import SmallStore, small_store

pytestmark = pytest.mark.stores

StoreOf = Callable[[str], Path]
ONE_STORE_FOR_ALL = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
# Plain queues, inner batches, light queues, several log directories, a log without queues, a log behind its queues.
CASES = [
    case
    for case in ("basic", "batchcq", "lmq", "multipath", "killed-portable", "killed-lagcq", "deleted_head")
    if case in FOLDERS
]
PLACE = ("topic", "queueId", "queueOffset", "physicalOffset", "storeSize")
Place = tuple[str, int, int]

BUDGETS = st.builds(
    SplitBudget,
    min_partitions=st.sampled_from([0, 1, 2, 7, 20]),
    max_records=st.sampled_from([0, 0, 9, 100]),
    max_bytes=st.sampled_from([6_000, 40_000, 2**27]),
    merge=st.booleans(),
)


def wanted_of(snapshot: Snapshot, **bounds: object) -> Counter[Place]:
    """How often each queue offset is to be read: once each."""
    ranges = snapshot.select(pattern=".*", include_system_topics=True, fail_on_data_loss=False, **bounds)
    return Counter((r.topic, r.queue_id, offset) for r in ranges for offset in range(r.start, r.end))


def read_places(splits: list[Split], request: ScanRequest) -> Counter[Place]:
    places: Counter[Place] = Counter()
    for split in splits:
        for batch in read_split(split, request):
            rows = zip(*(batch.column(name).to_pylist() for name in PLACE[:3]), strict=True)
            places.update(rows)
    return places


@pytest.mark.some(5)
@pytest.mark.parametrize("case", CASES)
@ONE_STORE_FOR_ALL
@given(
    budget=BUDGETS, mode=st.sampled_from(["auto", "queue", "commitlog"]), start=st.sampled_from(["earliest", 7, 31]),
    end=st.sampled_from(["latest", 35, 8]), reads_log=st.booleans(),
)  # fmt: skip
def test_every_queue_offset_is_in_one_split(
    case: str, budget: SplitBudget, mode: str, start: str | int, end: str | int, reads_log: bool, store_of: StoreOf
) -> None:
    if mode == "commitlog":
        budget = replace(budget, max_records=0, merge=True)
    snapshot = rmqstore.open_snapshot(store_of(case))
    ranges = snapshot.select(pattern=".*", include_system_topics=True, start=start, end=end, fail_on_data_loss=False)
    columns = (*PLACE, "flag") if reads_log else PLACE
    request = ScanRequest(columns=columns, scan_mode=mode, fail_on_data_loss=False)
    splits = snapshot.plan(ranges, request, budget)
    assert read_places(splits, request) == wanted_of(snapshot, start=start, end=end)


@ONE_STORE_FOR_ALL
@given(budget=BUDGETS, mode=st.sampled_from(["auto", "queue"]))
def test_spans_lie_side_by_side_within_the_limits(budget: SplitBudget, mode: str, store_of: StoreOf) -> None:
    snapshot = rmqstore.open_snapshot(store_of("basic"))
    ranges = snapshot.select(pattern=".*", include_system_topics=True)
    splits = snapshot.plan(ranges, ScanRequest(scan_mode=mode), budget)
    spans = sorted(span for split in splits for span in split.spans)
    found = Counter((topic, queue, at) for topic, queue, _, low, high in spans for at in range(low, high))
    assert found == wanted_of(snapshot)
    assert all(span.start < span.end for span in spans)
    counts = [sum(span.end - span.start for span in split.spans) for split in splits]
    assert all(count <= budget.max_records for count in counts) or not budget.max_records
    if mode == "queue":
        wanted = min(budget.min_partitions, len([r for r in ranges if r.start < r.end]))
        assert len(splits) >= wanted
    if not budget.merge:
        assert all(len(split.spans) == 1 for split in splits)


@ONE_STORE_FOR_ALL
@given(budget=BUDGETS)
def test_parts_of_the_log_lie_end_to_end(budget: SplitBudget, store_of: StoreOf) -> None:
    snapshot = rmqstore.open_snapshot(store_of("basic"))
    (store,) = snapshot.stores
    ranges = snapshot.select(pattern=".*", include_system_topics=True)
    budget = replace(budget, max_records=0, merge=True)
    splits = snapshot.plan(ranges, ScanRequest(scan_mode="commitlog"), budget)
    parts = [split.log_range for split in splits if split.log_range]
    assert len(parts) == len(splits)
    assert parts[0][0] == store.log_start
    assert parts[-1][1] == store.log_end
    assert [high for _, high in parts[:-1]] == [low for low, _ in parts[1:]]


@pytest.mark.parametrize("budget", [SplitBudget(max_bytes=1), SplitBudget(max_bytes=5, min_partitions=10)])
def test_tiny_parts_of_the_log_are_not_planned(budget: SplitBudget, store_of: StoreOf) -> None:
    snapshot = rmqstore.open_snapshot(store_of("basic"))
    request = ScanRequest(columns=PLACE, scan_mode="commitlog")
    splits = snapshot.plan(snapshot.select(pattern=".*", include_system_topics=True), request, budget)
    (store,) = snapshot.stores
    assert 10 < len(splits) <= (store.log_end - store.log_start) // 2048
    assert read_places(splits, request) == wanted_of(snapshot)


@pytest.mark.parametrize("budget", [SplitBudget(max_bytes=1), SplitBudget(min_partitions=2**40)])
def test_a_huge_log_is_planned_in_bounded_time(tmp_path: Path, budget: SplitBudget) -> None:
    """A tebibyte in one file of which the queues know the beginning: a step a byte would never end."""
    snapshot = rmqstore.open_snapshot(small_store(100).write(tmp_path))
    (store,) = snapshot.stores
    huge = replace(store, log_files=(replace(store.log_files[0], size=2**40),), log_end=2**40)
    splits = plan_splits(huge, snapshot.select(["T"]), ScanRequest(scan_mode="commitlog"), budget)
    assert splits[0].log_range is not None
    assert splits[-1].log_range is not None
    assert (splits[0].log_range[0], splits[-1].log_range[1]) == (0, 2**40)


def test_empty_ranges_make_no_work(store_of: StoreOf) -> None:
    snapshot = rmqstore.open_snapshot(store_of("basic"))
    ranges = snapshot.select(pattern=".*", start="latest")
    assert len(ranges) > 1
    for mode in ("auto", "queue", "commitlog"):
        assert snapshot.plan(ranges, ScanRequest(scan_mode=mode), SplitBudget()) == []


def test_a_big_queue_is_cut_evenly(tmp_path: Path) -> None:
    snapshot = rmqstore.open_snapshot(small_store(100).write(tmp_path))
    ranges = snapshot.select(["T"])
    splits = snapshot.plan(ranges, ScanRequest(scan_mode="queue"), SplitBudget(max_records=20, merge=False))
    assert [(span.queue_id, span.start, span.end) for split in splits for span in split.spans] == [
        (queue, low, high) for queue in (0, 1) for low, high in ((0, 16), (16, 33), (33, 50))
    ]


def many_queues(count: int) -> SmallStore:
    store = SmallStore(64 * 1024)
    for number in range(3 * count):
        store.add(f"orders-of-region-{number % count // 8}", number % count % 8)
    return store


@pytest.mark.parametrize(("count", "size_max"), [(4, 1024), (64, 3 * 1024)])
@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
def test_a_split_is_small_and_comes_back_equal(tmp_path: Path, count: int, size_max: int, mode: str) -> None:
    snapshot = rmqstore.open_snapshot(many_queues(count).write(tmp_path))
    splits = snapshot.plan(snapshot.select(pattern=".*"), ScanRequest(scan_mode=mode), SplitBudget())
    assert len(splits) == 1
    assert len(splits[0].spans) == count
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(splits[0], protocol)
        assert len(data) < size_max
        back = pickle.loads(data)
        assert back == splits[0]
        assert hash(back) == hash(splits[0])


def test_a_split_with_every_field_comes_back_equal() -> None:
    spans = (("Köln", 1, "BatchCQ", 2**40, 2**62), ("%LMQ%a", 0, "SimpleCQ", 0, 1))
    split = Split(LOCAL, LOCAL, "/a b/ü", "broker-a", spans, 2**62, 5, 6, True, False, (7, 2**61), ("/x", "/y"), True)
    assert pickle.loads(pickle.dumps(split)) == split


@pytest.mark.parametrize("wrong", [{"min_partitions": -1}, {"max_records": -1}, {"max_bytes": 0}])
def test_budgets_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(Rejected, match="or more"):
        SplitBudget(**wrong)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (SplitBudget(max_records=10), "max_records does not go with"),
        (SplitBudget(merge=False), "merge=False does not go with"),
    ],
)
def test_a_read_along_the_log_refuses_what_it_cannot_keep(budget: SplitBudget, words: str, tmp_path: Path) -> None:
    root = small_store(40).write(tmp_path)
    snapshot = rmqstore.open_snapshot(root)
    with pytest.raises(Rejected, match=f"{words} scan_mode='commitlog': .* use max_bytes or min_partitions"):
        snapshot.plan(snapshot.select(["T"]), ScanRequest(scan_mode="commitlog"), budget)
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-000004\n")
    snapshot = rmqstore.open_snapshot(root)
    with pytest.raises(Rejected, match=f"{words} the RocksDB queues of"):
        snapshot.plan(snapshot.select(["T"]), ScanRequest(), budget)


@pytest.mark.parametrize(("first", "last"), [(0, 10), (40, 60), (99, 100)])
def test_a_short_part_of_several_queues_is_read_in_the_logs_order(tmp_path: Path, first: int, last: int) -> None:
    """As a window of time is, or a stream's batch: queue by queue each page of the log would be read four times."""
    store = SmallStore(file_size=64 * 1024)
    for number in range(400):
        store.add("T", number % 4)
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    request = ScanRequest(columns=(*PLACE, "body"))
    (split,) = snapshot.plan(snapshot.select(["T"], start=first, end=last), request, SplitBudget())
    assert split.together
    table = pa.Table.from_batches(read_split(split, request))
    assert table["physicalOffset"].to_pylist() == store.offsets[first * 4 : last * 4]


def test_distant_parts_of_two_queues_are_read_one_after_the_other(tmp_path: Path) -> None:
    store = SmallStore(file_size=64 * 1024)
    for number in range(400):
        store.add("T", int(number >= 200))
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    ranges = [QueueRange("default", "T", 0, 0, 5), QueueRange("default", "T", 1, 190, 195)]
    (split,) = snapshot.plan(ranges, ScanRequest(), SplitBudget())
    assert not split.together
    assert read_places([split], ScanRequest(columns=(*PLACE, "body"))) == Counter(
        ("T", queue, at) for queue, first in ((0, 0), (1, 190)) for at in range(first, first + 5)
    )
