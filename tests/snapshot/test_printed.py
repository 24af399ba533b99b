"""What a reader's values print as: one line with paths and counts."""

from pathlib import Path

import pytest

import rmqstore
from rmqstore import Rejected, WrongType
from rmqstore.snapshot.request import ScanRequest, SplitBudget
from tests.snapshot.small_store import small_store


def test_a_snapshot_and_its_splits_are_a_line_each(tmp_path: Path) -> None:
    root = str(small_store(10).write(tmp_path))
    snapshot = rmqstore.open_snapshot(root)
    assert repr(snapshot) == f"<Snapshot {root!r}, 2 queues, 10 messages>"
    (split,) = snapshot.plan(snapshot.select(["T"]), ScanRequest(scan_mode="queue"), SplitBudget())
    assert repr(split) == f"<Split {root!r}, 2 ranges of 10 messages>"


@pytest.mark.parametrize("how", [{"start_time": 1_795_000_000}, {"end_time": {"T": {"0": 1_795_000_000}}}])
def test_a_time_in_seconds_selects_nothing(tmp_path: Path, how: dict[str, int]) -> None:
    snapshot = rmqstore.open_snapshot(small_store(10).write(tmp_path))
    with pytest.raises(Rejected, match="1795000000 looks like seconds: write 1795000000000"):
        snapshot.scan(["T"], **how)
    with pytest.raises(Rejected, match="looks like seconds"):
        snapshot.select(["T"], **how)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"batch_rows": 0}, "batch_rows=0: at least 1"),
        ({"batch_rows": True}, "batch_rows=True"),
        ({"decompress": "no"}, "decompress='no'"),
        ({"scan_mode": "fast"}, "scan_mode='fast': one of auto, queue, commitlog"),
        ({"access": "read"}, "access='read': one of auto, mmap, pread"),
    ],
)
def test_what_a_scan_cannot_take_is_named(tmp_path: Path, how: dict[str, object], line: str) -> None:
    snapshot = rmqstore.open_snapshot(small_store(10).write(tmp_path))
    with pytest.raises(Rejected, match=line):
        snapshot.scan(["T"], **how)


def test_an_argument_of_a_look_up_is_named(tmp_path: Path) -> None:
    snapshot = rmqstore.open_snapshot(small_store(10).write(tmp_path))
    with pytest.raises(WrongType, match="key=5"):
        snapshot.query("T", 5)  # type: ignore[arg-type]
    with pytest.raises(Rejected, match="count_max=-1: at least 0"):
        snapshot.query("T", "k", count_max=-1)
    with pytest.raises(Rejected, match="access='read'"):
        rmqstore.open_snapshot(tmp_path, access="read")  # type: ignore[arg-type]
