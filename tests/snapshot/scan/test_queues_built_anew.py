"""A scan beside a recovery, which takes queue files away and writes them again: what is only on its way is not lost."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import DataLost, Message, StoreChanging, StoreConfig, open_store
from rmqstore.snapshot.request import ScanRequest, SplitBudget
from rmqstore.snapshot.scan import store_retry
from rmqstore.snapshot.scan.entry_runs import EntryReader
from rmqstore.snapshot.split import Span
from rmqstore.snapshot.survey.survey import survey
from tests.snapshot.small_store import FIRST_MS, small_store
from tests.snapshot.starved_reader import starved

pytestmark = pytest.mark.stores

COUNT = 220
QUEUES = (0, 1)
WHOLE = [(queue_id, offset) for queue_id in QUEUES for offset in range(COUNT // 2)]
MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
LOSS = pytest.mark.parametrize("fails", [True, False], ids=["strict", "lenient"])
STEP = 23  # every so manieth operation of a reader is tried, of hundreds
Step = Callable[[], None]


class Recovery:
    """What a recovery does to the queues of a killed store of `COUNT` messages, step by step."""

    def __init__(self, root: Path) -> None:
        self.root = small_store(COUNT).write(root)
        (self.root / "abort").touch()
        self._room = self.root / "consumequeue"
        self._held = {path: path.read_bytes() for path in sorted(self._room.glob("T/*/*"))}

    def drop(self) -> None:
        """Files that are in the way go."""
        shutil.rmtree(self._room)

    def drop_last(self) -> None:
        """Files behind the entries that stay go."""
        for queue_id in QUEUES:
            max((self._room / "T" / str(queue_id)).iterdir()).unlink()

    def blank(self) -> None:
        """The files stay, and from the 26th on the entries of each queue are zero."""
        for path, data in reversed(self._held.items()):
            path.write_bytes(data[: max(500 - int(path.name), 0)].ljust(len(data), b"\0"))

    def begin(self) -> None:
        """Some entries of the first file of each queue are there again."""
        for path, data in self._held.items():
            if not int(path.name):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data[:60].ljust(len(data), b"\0"))

    def end(self) -> None:
        """All is there again."""
        for path, data in self._held.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def events_of(events: dict[int, Step]) -> tuple[Step, Callable[[], int]]:
    """A step for `starved` that does each event before the operation of its number, and how many there were."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count in events:
            events.pop(count)()

    return step, lambda: count


def scanned(snapshot: rmqstore.Snapshot, mode: str, fails: bool, **how: Any) -> list[tuple[int, int]]:
    """(queue id, queue offset) of each row; those of one queue must rise."""
    asked = {"columns": ["queueId", "queueOffset", "body"], "scan_mode": mode, "fail_on_data_loss": fails} | how
    table = snapshot.scan(topics=["T"], **asked).read_all()
    rows = list(zip(table["queueId"].to_pylist(), table["queueOffset"].to_pylist(), strict=True))
    assert sorted(rows) == sorted(rows, key=lambda row: row[0])
    return sorted(rows)


@pytest.mark.some(18)
@pytest.mark.parametrize("harm", [Recovery.drop, Recovery.drop_last, Recovery.blank])
@pytest.mark.parametrize("again", [None, Recovery.begin, Recovery.end])
@MODES
@LOSS
def test_a_scan_beside_a_recovery_is_whole(
    tmp_path: Path, harm: Callable[..., None], again: Callable[..., None] | None, mode: str, fails: bool
) -> None:
    """Between any two looks of the reader at the disk entries go, and come back a few looks later, or later than it
    reads on."""
    recovery = Recovery(tmp_path)
    snapshot = rmqstore.open_snapshot(recovery.root)
    step, count = events_of({})
    with starved(step):
        assert scanned(snapshot, mode, fails) == WHOLE
    for number in range(1, count() + 1, STEP):
        for later in (1, 6) if again else (1,):
            events = {number: lambda: harm(recovery)}
            if again:
                events[number + later] = lambda: again(recovery)
            with starved(events_of(events)[0]):
                assert scanned(snapshot, mode, fails) == WHOLE, (number, later)
            recovery.end()


@pytest.mark.some(4)
@MODES
@LOSS
@pytest.mark.parametrize("columns", [["queueId", "queueOffset"], ["queueId", "queueOffset", "tagsCode"]])
def test_columns_of_entries_are_whole_beside_a_recovery(
    tmp_path: Path, columns: list[str], mode: str, fails: bool
) -> None:
    recovery = Recovery(tmp_path)
    snapshot = rmqstore.open_snapshot(recovery.root)
    codes = {(snapshot.scan(topics=["T"], columns=["tagsCode"]).read_all()["tagsCode"][0].as_py())}
    step, count = events_of({})
    with starved(step):
        assert scanned(snapshot, mode, fails, columns=columns) == WHOLE
    for number in range(1, count() + 1, STEP):
        for harm in (recovery.drop, recovery.blank):
            with starved(events_of({number: harm})[0]):
                asked = {"columns": columns, "scan_mode": mode, "fail_on_data_loss": fails}
                table = snapshot.scan(topics=["T"], **asked).read_all()
            recovery.end()
            assert table.num_rows == len(WHOLE), number
            assert "tagsCode" not in columns or set(table["tagsCode"].to_pylist()) == codes, number


@pytest.mark.some(2)
@MODES
@LOSS
def test_a_store_whose_queues_never_stand_still_is_told(tmp_path: Path, mode: str, fails: bool) -> None:
    recovery = Recovery(tmp_path)
    snapshot = rmqstore.open_snapshot(recovery.root)
    operations: list[str] = []

    def step() -> None:
        """Files are there when they are listed, and gone when they are opened."""
        if operations[-1] == "__init__":
            recovery.drop()
        else:
            recovery.end()

    with starved(step, operations), pytest.raises(StoreChanging, match="retry when its writer is idle"):
        scanned(snapshot, mode, fails)
    recovery.end()
    assert scanned(snapshot, mode, fails) == WHOLE


def light_store(root: Path, *, killed: bool) -> tuple[rmqstore.Snapshot, Path]:
    """A store of ten messages in the light queue %LMQ%a, and the directory of that queue."""
    store = open_store(root, StoreConfig(multi_dispatch=True, preallocate=False), workers=False)
    for number in range(10):
        store.put(Message("T", b"%d" % number, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
    store.flush()
    if killed:
        store.abandon()
    else:
        store.close()
    return rmqstore.open_snapshot(root), root / "consumequeue" / "%LMQ%a" / "0"


@LOSS
def test_a_light_queue_that_may_be_on_its_way_is_told(tmp_path: Path, fails: bool) -> None:
    """No records of the log would bring its messages, so that nobody can say whether they are lost."""
    snapshot, directory = light_store(tmp_path / "store", killed=True)
    shutil.rmtree(directory)
    with pytest.raises(StoreChanging, match="its queue %LMQ%a/0 was deleted, cut or built again"):
        snapshot.scan(topics=["%LMQ%a"], fail_on_data_loss=fails).read_all()


def test_a_light_queue_of_a_closed_store_is_lost(tmp_path: Path) -> None:
    snapshot, directory = light_store(tmp_path / "store", killed=False)
    shutil.rmtree(directory)
    with pytest.raises(DataLost):
        snapshot.scan(topics=["%LMQ%a"]).read_all()
    assert not snapshot.scan(topics=["%LMQ%a"], fail_on_data_loss=False).read_all().num_rows


@pytest.mark.parametrize("when", ["before planning", "before reading"])
def test_times_are_found_beside_a_recovery(tmp_path: Path, when: str) -> None:
    recovery = Recovery(tmp_path)
    snapshot = rmqstore.open_snapshot(recovery.root)
    if when == "before planning":
        recovery.drop()
    stream = snapshot.scan(topics=["T"], start_time=FIRST_MS + 100 * 1000)
    if when == "before reading":
        recovery.drop()
    assert stream.read_all().num_rows == COUNT - 100


def test_a_table_says_that_files_went(tmp_path: Path) -> None:
    recovery = Recovery(tmp_path)
    snapshot = rmqstore.open_snapshot(recovery.root)
    recovery.drop()
    with pytest.raises(StoreChanging, match=r"the file .*consumequeue.* went or was cut"):
        snapshot.table("queues", columns=["topic", "bytes"])


def test_a_hole_in_a_queue_that_stands_still_is_a_loss_after_a_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no later hole of that queue has the store surveyed again."""
    store = small_store(400)
    root = store.write(tmp_path)
    snapshot = rmqstore.open_snapshot(root)
    first = min((root / "consumequeue" / "T" / "1").iterdir())
    data = bytearray(first.read_bytes())
    for slot in (10, 30):
        data[slot * 20 : slot * 20 + 20] = bytes(20)
    first.write_bytes(data)
    looks = []
    monkeypatch.setattr(store_retry, "survey", lambda *how: looks.append(how) or survey(*how))
    split = snapshot.plan(snapshot.select(["T"]), ScanRequest(), SplitBudget())[0]
    reader = EntryReader(split, snapshot.stores[0].view("auto"))
    holes = [run.holes.tolist() for run in reader.runs(Span("T", 1, "SimpleCQ", 0, 200), block=20)]
    assert [found for found in holes if found] == [[10], [30]]
    assert len(looks) == 2
