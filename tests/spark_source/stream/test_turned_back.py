"""failOnDataLoss=false in a store that ends before where the stream stands: nothing doubled, nothing new left out."""

import json
import logging
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.errors import DataLost, Rejected
from rmqstore.snapshot import Snapshot
from rmqstore.snapshot.stream import planner
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.snapshot.stream.offsets import BEHIND, SINCE
from rmqstore.snapshot.survey.survey import LooksLeft
from spark_source.stream import reader as stream_reader
from tests.snapshot.growing_store import GrowingStore, made_anew
from tests.snapshot.small_store import FIRST_MS
from tests.spark_source.stream.streams import BROKER, Stream, expected, places

pytestmark = pytest.mark.stores

NOW_MS = FIRST_MS + 1_000_000_000


class WallClock:
    """Milliseconds since 1970, which a test moves."""

    now_ms = NOW_MS


CLOCK = WallClock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    monkeypatch.setattr(CLOCK, "now_ms", NOW_MS)
    monkeypatch.setattr(stream_reader.time, "time", lambda: CLOCK.now_ms / 1000)
    return CLOCK


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    grown = GrowingStore(tmp_path / "store")
    grown.add_many(120)
    grown.publish()
    return grown


def add_now(store: GrowingStore, count: int) -> None:
    """Messages that are stored from now on; who looks next looks later."""
    for number in range(count):
        CLOCK.now_ms += 1
        store.add("T", number % 2, body=b"new", store_timestamp=CLOCK.now_ms)
    CLOCK.now_ms += 1
    store.publish()


def test_a_stream_goes_on_with_what_is_stored_in_a_store_made_anew(
    store: GrowingStore, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    anew = made_anew(store, 30)
    with caplog.at_level(logging.WARNING):
        assert [stream.step() for _ in range(3)] == [0, 0, 0]
    assert len(stream.ends) == 2, "one batch without rows, so that Spark writes down what was seen, and no more"
    assert sum("T/0 of default ends at offset 15, before 60 where the stream stands" in line
               for line in caplog.messages) == 1  # fmt: skip
    add_now(anew, 10)
    with caplog.at_level(logging.WARNING):
        assert stream.step() == 10
    assert any("T/1 of default goes on at offset 15" in line for line in caplog.messages)
    assert places(stream.rows[120:]) == expected({("T", 0): range(15, 20), ("T", 1): range(15, 20)})
    assert json.loads(stream.ends[-1])["T"] == {BROKER: {"0": 20, "1": 20}}
    assert stream.step() == 0
    add_now(anew, 6)
    assert stream.step() == 6
    stream.start()
    assert stream.step() == 0
    add_now(anew, 4)
    assert stream.step() == 4
    assert len(set(places(stream.rows[120:]))) == 20


def test_a_batch_that_went_on_is_the_same_when_it_is_run_again(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    anew = made_anew(store, 30)
    stream.step()
    add_now(anew, 10)
    start, end = stream.plan()
    rows = sorted(stream.run(start, end))
    stream.start()
    assert sorted(stream.run(start, end)) == rows
    assert len(rows) == 10


@pytest.mark.parametrize("most", ["1", "3", "7"])
def test_limits_hold_where_the_new_offsets_meet_the_old_ones(store: GrowingStore, most: str) -> None:
    """The end of a batch may be the very offset where the stream stood."""
    stream = Stream(store.root, failOnDataLoss="false", maxOffsetsPerTrigger=most)
    while stream.step():
        pass
    anew = made_anew(store, 118)
    assert stream.step() == 0
    add_now(anew, 10)
    while stream.step():
        pass
    assert places(stream.rows[120:]) == expected({("T", 0): range(59, 64), ("T", 1): range(59, 64)})


def test_a_copy_that_lags_brings_no_row_twice(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    copy = made_anew(store, 30)
    stream.start()
    assert stream.step() == 0
    for count in (40, 50):  # it catches up with what was stored before
        copy.add_many(count)
        copy.publish()
        assert stream.step() == 0
    add_now(copy, 8)
    assert stream.step() == 8
    assert places(stream.rows) == expected({("T", 0): range(64), ("T", 1): range(64)})


def test_a_store_that_was_cut_goes_on_where_it_was_cut(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    cut = made_anew(store, 100)
    assert stream.step() == 0
    add_now(cut, 30)  # beyond where the stream stood
    assert stream.step() == 30
    assert places(stream.rows[120:]) == expected({("T", 0): range(50, 65), ("T", 1): range(50, 65)})


def test_a_store_that_is_made_anew_again_and_again(store: GrowingStore, tmp_path: Path) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    for count in (30, 20, 10):
        anew = made_anew(store, count)
        store.root.with_name("old").rename(tmp_path / f"old-{count}")
        assert stream.step() == 0
        add_now(anew, 4)
        assert stream.step() == 4
        assert stream.step() == 0


# What is started again.


def keep_on(_stream: Stream) -> None:
    """The query runs on."""


def restart(stream: Stream) -> None:
    """A new process, which knows what the checkpoint says."""
    stream.start()


def run_anew(stream: Stream) -> None:
    """As restart, by Trigger.AvailableNow."""
    stream.start()
    stream.reader.prepareForTriggerAvailableNow()


AGAIN = pytest.mark.parametrize("again", [restart, run_anew])
Again = Callable[[Stream], None]


def without_queues(store: GrowingStore) -> GrowingStore:
    """A store that has nothing yet of what is read, in the place of one that is put aside."""
    store.root.rename(store.root.with_name("aside"))
    anew = GrowingStore(store.root)
    anew.add("Other")
    anew.publish()
    return anew


def run_to_end(stream: Stream) -> int:
    """Triggers until nothing is to be done, batches without rows included; how many rows they brought."""
    seen = len(stream.rows)
    while True:
        start, end = stream.plan()
        if start == end:
            return len(stream.rows) - seen
        stream.rows += stream.run(start, end)
        stream.ends.append(end)


@AGAIN
def test_a_query_that_is_started_again_goes_on_with_what_came_in_between(store: GrowingStore, again: Again) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    anew = made_anew(store, 30)
    again(stream)
    assert run_to_end(stream) == 0
    add_now(anew, 10)
    again(stream)
    assert run_to_end(stream) == 10
    assert places(stream.rows[120:]) == expected({("T", 0): range(15, 20), ("T", 1): range(15, 20)})
    assert SINCE not in json.loads(stream.ends[-1])
    add_now(anew, 6)
    again(stream)
    assert run_to_end(stream) == 6
    assert len(set(places(stream.rows[120:]))) == 16


@pytest.mark.parametrize("again", [keep_on, restart, run_anew])
def test_what_was_seen_is_written_down_once(store: GrowingStore, again: Again) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    made_anew(store, 30)
    for _ in range(4):
        again(stream)
        assert run_to_end(stream) == 0
    assert len(stream.ends) == 2
    assert stream.stands == {
        SINCE: {"T": {BROKER: {"0": NOW_MS, "1": NOW_MS}}},
        "T": {BROKER: {"0": 60, "1": 60}},
    }


def test_it_is_written_down_with_the_rows_of_other_queues(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    anew = made_anew(store, 30)
    anew.add_many(3, "T", 1)
    anew.add("T", 2)
    anew.publish()
    assert stream.step() == 1, "of a queue that is new"
    add_now(anew, 4)
    restart(stream)
    assert stream.step() == 4


@AGAIN
def test_a_batch_that_goes_on_is_the_same_in_a_process_that_never_saw_the_store_cut(
    store: GrowingStore, again: Again
) -> None:
    stream = Stream(store.root, failOnDataLoss="false", maxOffsetsPerTrigger="4")
    run_to_end(stream)
    anew = made_anew(store, 30)
    stream.step()
    add_now(anew, 10)
    start, end = stream.plan()
    rows = sorted(stream.run(start, end))
    assert len(rows) == 4
    add_now(anew, 6)
    again(stream)
    assert sorted(stream.run(start, end)) == rows
    stream.ends.append(end)
    assert run_to_end(stream) == 12
    assert places(rows + stream.rows[120:]) == expected({("T", 0): range(15, 23), ("T", 1): range(15, 23)})


def test_what_is_gone_of_a_store_made_anew_is_counted_by_itself(store: GrowingStore) -> None:
    """Offsets up to which the old one was counted tell nothing of the new one."""

    def deleted_unread(grown: GrowingStore, read_count: int) -> int:
        start, end = stream.plan()
        grown.delete_log_file(0)
        for _ in range(2):  # planned twice, counted once
            stream.run(start, end)
        stream.ends.append(end)
        return sum(offset < grown.file_size for offset in grown.offsets) - read_count

    def skipped() -> int:
        return int(stream.reader.reportLatestOffset()["$metrics"]["skippedMessages"])

    stream = Stream(store.root, failOnDataLoss="false")
    gone = deleted_unread(store, 0)
    assert skipped() == gone > 0
    for _ in range(2):  # made once more at the very offset where the stream stands by then
        shutil.rmtree(store.root.with_name("old"), ignore_errors=True)
        anew = made_anew(store, 2)
        assert stream.step() == 0
        add_now(anew, 100)
        gone += deleted_unread(anew, 2)
        assert skipped() == gone


def test_a_batch_that_was_never_written_down_is_planned_once_more(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    anew = made_anew(store, 30)
    stream.plan()
    assert stream.step() == 0
    add_now(anew, 10)
    for _ in range(2):
        stream.plan()
        restart(stream)
    add_now(anew, 2)
    assert stream.step() == 12
    assert stream.step() == 0


@AGAIN
@pytest.mark.parametrize("most", ["1", "3", "7"])
def test_limits_hold_though_every_batch_is_another_process(store: GrowingStore, again: Again, most: str) -> None:
    stream = Stream(store.root, failOnDataLoss="false", maxOffsetsPerTrigger=most)
    run_to_end(stream)
    anew = made_anew(store, 110)
    again(stream)
    assert stream.step() == 0
    add_now(anew, 30)
    sizes = []
    while not sizes or sizes[-1]:
        again(stream)
        sizes.append(stream.step())
    assert max(sizes) <= int(most)
    assert places(stream.rows[120:]) == expected({("T", 0): range(55, 70), ("T", 1): range(55, 70)})


def test_too_few_rows_for_a_batch_do_not_keep_it_from_being_written_down(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false", minOffsetsPerTrigger="50", maxTriggerDelay="10s")
    assert stream.step() == 120
    anew = made_anew(store, 30)
    anew.add("T", 2)
    anew.publish()
    assert stream.step() == 0
    assert json.loads(stream.ends[-1])[SINCE] == {"T": {BROKER: {"0": NOW_MS, "1": NOW_MS}}}
    assert len(stream.ends) == 2


@AGAIN
def test_a_copy_that_catches_up_while_the_query_stands_still_brings_no_row_twice(
    store: GrowingStore, again: Again
) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    copy = made_anew(store, 30)
    for count in (40, 50):
        again(stream)
        assert run_to_end(stream) == 0
        copy.add_many(count)
        copy.publish()
    for _ in range(2):
        again(stream)
        assert run_to_end(stream) == 0
    assert len(stream.ends) == 2
    add_now(copy, 8)
    again(stream)
    assert run_to_end(stream) == 8
    assert places(stream.rows) == expected({("T", 0): range(64), ("T", 1): range(64)})


@AGAIN
def test_a_store_that_is_made_anew_before_anything_of_the_last_one_was_read(
    store: GrowingStore, tmp_path: Path, again: Again
) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    made_anew(store, 30)
    again(stream)
    assert run_to_end(stream) == 0
    store.root.with_name("old").rename(tmp_path / "older")
    anew = without_queues(store)
    add_now(anew, 8)
    again(stream)
    assert run_to_end(stream) == 8, "stored after the first was seen: nobody can have read them"
    assert places(stream.rows[120:]) == expected({("T", 0): range(4), ("T", 1): range(4)})


@AGAIN
def test_queues_that_are_gone_come_again_from_their_beginning(store: GrowingStore, again: Again) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    anew = without_queues(store)
    again(stream)
    assert run_to_end(stream) == 0
    add_now(anew, 8)
    again(stream)
    assert run_to_end(stream) == 8


def test_each_broker_s_queues_are_known_by_themselves(store: GrowingStore, tmp_path: Path) -> None:
    other = GrowingStore(tmp_path / "other" / "store")
    other.add_many(20)
    other.publish()
    stores = {"a": str(store.root), "b": str(other.root)}
    stream = Stream(store.root, path="-", stores=json.dumps(stores), failOnDataLoss="false")
    assert stream.step() == 140
    anew = made_anew(store, 30)
    run_anew(stream)
    assert run_to_end(stream) == 0
    assert json.loads(stream.ends[-1])[SINCE] == {"T": {"a": {"0": NOW_MS, "1": NOW_MS}}}
    add_now(anew, 6)
    add_now(other, 4)
    run_anew(stream)
    assert run_to_end(stream) == 10


def test_a_store_that_is_not_read_for_once_is_not_one_that_was_cut(store: GrowingStore, tmp_path: Path) -> None:
    other = GrowingStore(tmp_path / "other")
    other.add_many(20)
    other.publish()
    both = json.dumps({"a": str(store.root), "b": str(other.root)})
    stream = Stream(store.root, path="-", stores=both, failOnDataLoss="false")
    assert stream.step() == 140
    one = Stream(store.root, path="-", stores=json.dumps({"a": str(store.root)}), failOnDataLoss="false")
    one.ends = stream.ends
    assert one.step() == 0
    assert len(one.ends) == 1


@pytest.mark.parametrize("again", [keep_on, restart, run_anew])
def test_a_clock_that_is_set_back_leaves_nothing_out(store: GrowingStore, clock: WallClock, again: Again) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    cut = made_anew(store, 100)
    assert run_to_end(stream) == 0
    clock.now_ms = FIRST_MS + 50_000  # within the times of what is there
    again(stream)
    for _ in range(2):
        assert run_to_end(stream) == 0
    noted = json.loads(stream.ends[-1])
    assert noted[SINCE] == {"T": {BROKER: dict.fromkeys("01", FIRST_MS + 50_000)}}
    assert noted[BEHIND] == {"T": {BROKER: dict.fromkeys("01", 50)}}
    assert len(stream.ends) == 3
    for number in range(8):
        cut.add("T", number % 2, store_timestamp=FIRST_MS + 50_001 + number)
    cut.publish()
    again(stream)
    assert run_to_end(stream) == 8
    assert places(stream.rows[120:]) == expected({("T", 0): range(50, 54), ("T", 1): range(50, 54)})
    assert set(stream.stands) == {"$from", "T"}


def test_a_store_made_anew_after_the_clock_was_set_back(store: GrowingStore, clock: WallClock, tmp_path: Path) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 120
    made_anew(store, 100)
    assert run_to_end(stream) == 0
    clock.now_ms -= 1000
    restart(stream)
    assert run_to_end(stream) == 0
    store.root.with_name("old").rename(tmp_path / "older")
    anew = made_anew(store, 20)
    restart(stream)
    assert run_to_end(stream) == 0
    assert BEHIND not in json.loads(stream.ends[-1])
    add_now(anew, 6)
    restart(stream)
    assert run_to_end(stream) == 6


def test_a_checkpoint_that_knows_nothing_of_it_is_read(store: GrowingStore) -> None:
    """As the versions before this note wrote it, and PySpark before 4.2 writes it."""
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    anew = made_anew(store, 30)
    stream.ends = [json.dumps({"T": {BROKER: {"0": 60, "1": 60}}})]
    restart(stream)
    assert stream.step() == 0
    add_now(anew, 4)
    restart(stream)
    assert stream.step() == 4


@pytest.mark.parametrize("note", [SINCE, BEHIND])
def test_a_note_that_is_none_is_refused_in_words(store: GrowingStore, note: str) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.ends = [json.dumps({"T": {BROKER: {"0": 60}}, note: {"T": 7}})]
    with pytest.raises(Rejected, match="the offset of 'T' in the checkpoint is not of this source"):
        stream.step()


def test_what_is_stored_while_the_stream_looks_is_new(store: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    anew = made_anew(store, 30)
    look = StreamEnds.look

    def looked(ends: StreamEnds, looks: LooksLeft) -> Snapshot:
        snapshot = look(ends, looks)
        add_now(anew, 2)
        return snapshot

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(StreamEnds, "look", looked)
        end = stream.plan()[1]
    assert SINCE in json.loads(end)
    stream.ends.append(end)
    assert stream.step() == 2
    assert places(stream.rows[120:]) == expected({("T", 0): range(15, 16), ("T", 1): range(15, 16)})


def test_a_queue_in_which_nothing_happens_is_looked_through_once(
    store: GrowingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    offset_at = planner.offset_at
    monkeypatch.setattr(planner, "offset_at", lambda *what: looked.append(what) or offset_at(*what))
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    anew = made_anew(store, 30)
    for _ in range(4):
        assert stream.step() == 0
    assert len(looked) == 2
    anew.add_many(1)
    anew.publish()
    assert stream.step() == 0
    assert len(looked) == 3, "the other queue did not grow"


def test_a_subscription_that_means_a_queue_no_more_lets_go_of_it(store: GrowingStore) -> None:
    stream = Stream(store.root, failOnDataLoss="false")
    stream.step()
    anew = made_anew(store, 30)
    assert stream.step() == 0
    one = Stream(store.root, failOnDataLoss="false", subscribe="-", assign='{"T": [1]}')
    one.ends = stream.ends
    assert one.step() == 0
    assert len(one.ends) == 2, "which is no reason for a batch"
    add_now(anew, 4)
    assert one.step() == 2
    assert SINCE not in json.loads(one.ends[-1])


def test_a_query_that_is_to_fail_from_now_on_fails_and_keeps_what_is_known(store: GrowingStore) -> None:
    stream, strict = Stream(store.root, failOnDataLoss="false"), Stream(store.root)
    stream.step()
    anew = made_anew(store, 30)
    assert stream.step() == 0
    strict.ends = stream.ends
    with pytest.raises(DataLost, match="cut or made again"):
        strict.step()
    add_now(anew, 4)
    restart(stream)
    assert stream.step() == 4


@pytest.mark.some(8)
@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_what_is_stored_after_it_was_seen_comes_once(
    store: GrowingStore, clock: WallClock, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    options = {"maxOffsetsPerTrigger": str(chance.randint(1, 9))} if chance.random() < 0.5 else {}
    stream = Stream(store.root, failOnDataLoss="false", **options)
    run_to_end(stream)
    wanted = [row[3] for row in stream.rows]

    def add() -> None:
        for _ in range(chance.randint(1, 6)):
            clock.now_ms += 1
            body = b"%d" % clock.now_ms
            store.add("T", chance.randrange(2), body=body, store_timestamp=clock.now_ms)
            wanted.append(body)
        store.publish()
        clock.now_ms += 1

    def make_anew() -> None:
        nonlocal store
        restart(stream)  # or what came after a run of AvailableNow began is still to be read
        run_to_end(stream)
        last = json.loads(stream.ends[-1])["T"][BROKER]
        waits = json.loads(stream.ends[-1]).get(SINCE, {}).get("T", {}).get(BROKER, {})
        store.root.rename(tmp_path / f"old-{clock.now_ms}")
        store = GrowingStore(store.root)
        for queue in (0, 1):
            for _ in range(chance.randrange(max(last[str(queue)], 1))):
                clock.now_ms += 1
                body = b"%d" % clock.now_ms
                store.add("T", queue, body=body, store_timestamp=clock.now_ms)
                # What is there when the store is first seen may have been read, but for what came after the last one.
                wanted.extend([body] if str(queue) in waits else [])
        if not store.offsets:
            store.add("Other")
        store.publish()
        clock.now_ms += 1
        run_to_end(stream)

    def crash() -> None:
        stream.plan()
        restart(stream)

    def run_again() -> None:
        start, end = stream.plan()
        rows = stream.run(start, end)
        add()
        restart(stream)
        assert sorted(stream.run(start, end)) == sorted(rows)
        if start != end:
            stream.rows += rows
            stream.ends.append(end)

    for _ in range(40):
        act = chance.choice([add, add, add, make_anew, crash, run_again, stream.step, stream.start,
                             lambda: run_anew(stream)])  # fmt: skip
        act()
    restart(stream)
    run_to_end(stream)
    assert Counter(row[3] for row in stream.rows) == Counter(wanted)
