"""What a notebook asks a store for: a check, a plan and an overview, as values and as Arrow."""

from pathlib import Path

import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot, open_store
from rmqstore.cli import main

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=65536, queue_file_size=2000, preallocate=False)


def made(root: Path, *, is_closed: bool = True) -> list[int]:
    """Where the 20 messages of a store stand: 15 of A, in two queues, and 5 of B."""
    store = open_store(root, CONFIG, workers=False)
    placed = [
        store.put(
            Message("A" if number % 4 else "B", b"x%d" % number, queue_id=number % 2, keys=[f"k{number}", "seven"])
        )
        for number in range(20)
    ]
    store.flush()
    store.close() if is_closed else store.abandon()
    return [result.physical_offset for result in placed]


def test_a_check_is_a_value_with_what_verify_prints(tmp_path: Path) -> None:
    places = made(tmp_path)
    sound = rmqstore.verify(tmp_path)
    assert (sound.is_sound, sound.damage, sound.paths) == (True, (), (str(tmp_path),))
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[data.index(b"x7", places[7])] ^= 1
    path.write_bytes(data)
    found = rmqstore.verify(tmp_path)
    assert not found.is_sound
    assert found.log_bytes == sound.log_bytes > places[-1]
    rows = found.to_arrow()
    damage = rows.filter(pc.equal(rows["severity"], "damage"))
    assert damage.num_rows == len(found.damage) > 0
    assert damage["position"].to_pylist()[0] == places[7]
    assert [damage[name][0].as_py() for name in ("topic", "queueId", "queueOffset", "keys")] == ["A", 1, 3, "k7 seven"]
    with pytest.raises(rmqstore.NotAStore):
        rmqstore.verify(tmp_path / "nowhere")
    with pytest.raises(rmqstore.Rejected):
        rmqstore.verify(tmp_path, body_bytes_max=-1)


def test_a_plan_is_a_value_with_what_recover_prints(tmp_path: Path) -> None:
    made(tmp_path, is_closed=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plan = rmqstore.recovery_plan(tmp_path, CONFIG)
    assert isinstance(plan, rmqstore.RecoveryPlan)
    assert not plan.is_clean_exit
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    steps = plan.to_arrow()
    assert steps.column_names == ["step", "detail"]
    assert "not clean" in dict(zip(*(steps[name].to_pylist() for name in steps.column_names), strict=True))["last exit"]
    assert CliRunner().invoke(main, ["recover", str(tmp_path), "--dry-run"]).stdout.count("\n") >= steps.num_rows
    open_store(tmp_path, CONFIG, workers=False).close()
    assert rmqstore.recovery_plan(tmp_path, CONFIG).changes_nothing


def test_an_overview_has_a_row_a_topic_the_largest_first(tmp_path: Path) -> None:
    made(tmp_path)
    snapshot = open_snapshot(tmp_path)
    rows = snapshot.overview().to_pylist()
    assert [(row["topic"], row["queues"], row["messages"]) for row in rows] == [("A", 2, 15), ("B", 1, 5)]
    assert all(row["oldestTimestamp"] <= row["newestTimestamp"] for row in rows)
