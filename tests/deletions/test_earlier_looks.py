"""A topic that is deleted and made again under a snapshot or a stream that saw the old one: no loss goes unsaid."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore import DataLost, Snapshot, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.snapshot.stream import planner
from tests.deletions.histories import CONFIG, Play
from tests.spark_source.stream.streams import Stream

pytestmark = pytest.mark.stores

# What a stream has read: its topics, the steps before, how many messages there are, and whether it begins anew later.
# In the last two another topic's message is where the stream stands all the while.
READ = {
    "its topic": ("T", "put other 3 U/0 | put old 5 T/0 | flush", 5, False),
    "another, too": ("T,U", "put other 3 U/0 | put old 5 T/0 | flush", 8, False),
    "not dispatched": ("A,T,Z", "put a 3 A/0 | put old 4 T/0 | put z 3 Z/0 | flush | put old 1 T/0", 11, True),
    "dispatched": ("A,T,Z", "put a 3 A/0 | put old 4 T/0 | put z 3 Z/0 | flush | put old 1 T/0 | flush", 11, True),
}  # fmt: skip


class TickingClock(ManualClock):
    """No two things happen in the same millisecond."""

    def now_ms(self) -> int:
        self.advance(1)
        return self.ms


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """A store in `tmp_path`; it stores each message at a time of its own, and a stream looks at one between them."""
    clock = TickingClock()
    monkeypatch.setattr(planner.time, "time", lambda: (clock.now_ms() + 0.5) / 1000)
    with open_store(tmp_path, CONFIG, clock=clock, workers=False) as store:
        yield Play(store=store)


@pytest.mark.parametrize("count", [1, 4, 5, 6, 9])
@pytest.mark.parametrize("read", READ)
def test_a_stream_fails_however_many_messages_there_are_by_now(
    tmp_path: Path, play: Play, read: str, count: int
) -> None:
    topics, before, total, restarts = READ[read]
    play.go_on(before)
    stream = Stream(tmp_path, subscribe=topics)
    assert stream.step() == total
    play.go_on(f"flush | delete T | put new {count} T/0 | flush")
    if restarts:
        play.go_on("put a 2 A/0 | flush")
    for _ in range(3):
        if restarts:
            stream.start()
        with pytest.raises(DataLost, match="made again"):
            stream.step()


def test_a_stream_goes_on_where_nothing_of_it_had_been_read(tmp_path: Path, play: Play) -> None:
    play.go_on("put old 1 T/0 | put other 3 U/0 | flush")
    stream = Stream(tmp_path, subscribe="T,U", maxOffsetsPerTrigger="1")
    stream.begin()
    play.go_on("delete T | put new 3 T/0 | flush")
    while stream.step():
        pass
    assert sorted(row[:3] for row in stream.rows) == [(topic, 0, at) for topic in "TU" for at in range(3)]
    play.go_on("delete T | put newer 4 T/0 | flush")
    with pytest.raises(DataLost, match="made again"):
        stream.step()


def test_with_fail_on_data_loss_false_a_stream_goes_on(tmp_path: Path, play: Play) -> None:
    play.go_on("put old 5 T/0 | flush")
    stream = Stream(tmp_path, failOnDataLoss="false")
    assert stream.step() == 5
    play.go_on("delete T | put new 2 T/0 | flush")
    stream.step()
    play.go_on("put new 3 T/0 | flush")
    while stream.step():
        pass
    assert [row[2] for row in stream.rows][5:] == [2, 3, 4]  # what was stored before it was seen may have been read


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
@pytest.mark.parametrize("new", [10, 100, 120])
@pytest.mark.parametrize("ids", ["0", "0,1,2,3"])
def test_a_snapshot_passes_over_no_row_in_silence(tmp_path: Path, play: Play, ids: str, new: int, mode: str) -> None:
    def found(**options: object) -> set[bytes] | None:
        try:
            return set(snapshot.scan(["t"], scan_mode=mode, **options).read_all()["body"].to_pylist())  # type: ignore[arg-type]
        except DataLost:
            return None

    play.go_on(f"put old 100 t/{ids} | flush")
    snapshot: Snapshot = open_snapshot(tmp_path)
    old = {body for bodies in play.put.values() for body in bodies}
    play.go_on(f"delete t | put new {new} t/{ids} | flush")
    assert found() in (old, None)
    assert found(tags="*") in (old, None)
    assert (found(fail_on_data_loss=False) or set()) <= old
    play.store.close()
    assert found() in (old, None)
