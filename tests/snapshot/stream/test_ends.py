"""Looking at a live store again and again: what is there is seen once it is whole, and not before."""

import os
import random
import shutil
from pathlib import Path

import pytest

from rmqstore import open_snapshot
from rmqstore.clock import SYSTEM_CLOCK, ManualClock
from rmqstore.errors import NotAStore
from rmqstore.snapshot import Snapshot
from rmqstore.snapshot.stream import ends as stream_ends
from rmqstore.snapshot.stream.ends import StreamEnds
from tests.snapshot.growing_store import GrowingStore


def bounds(snapshot: Snapshot) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        key: (queue.min_offset, queue.max_offset) for store in snapshot.stores for key, queue in store.queues.items()
    }


def highs(snapshot: Snapshot) -> dict[tuple[str, int], int]:
    return {key: high for key, (_, high) in bounds(snapshot).items() if high}


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    grown = GrowingStore(tmp_path / "store")
    grown.add_many(10)
    grown.publish()
    return grown


@pytest.fixture
def surveys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The surveys made so far."""
    made: list[str] = []
    real = stream_ends.survey

    def noted(path, *rest, **how):
        made.append(path)
        return real(path, *rest, **how)

    monkeypatch.setattr(stream_ends, "survey", noted)
    return made


def test_the_same_look_as_long_as_nothing_is_new(store, surveys):
    ends = StreamEnds(store.root)
    first = ends.look()
    made = len(surveys)
    assert highs(first) == {("T", 0): 5, ("T", 1): 5}
    assert ends.look() is first
    assert len(surveys) == made


@pytest.mark.parametrize("dispatched", [True, False])
def test_growth_is_read_on_without_a_survey_over_new_files_too(store, surveys, dispatched):
    ends = StreamEnds(store.root)
    ends.look()
    made = len(surveys)
    store.add_many(70, dispatched=dispatched)
    assert len(store.data) > 1
    store.publish()
    assert highs(ends.look()) == {("T", 0): 40, ("T", 1): 40}
    assert len(surveys) == made
    assert bounds(ends.look()) == bounds(open_snapshot(store.root))


def test_rows_of_what_was_read_on_can_be_planned_and_read(store):
    ends = StreamEnds(store.root)
    ends.look()
    store.add_many(70, dispatched=False)
    store.publish()
    assert ends.look().scan(["T"]).read_all().num_rows == 80


def test_new_queues_and_topics_are_seen(store):
    ends = StreamEnds(store.root)
    ends.look()
    store.add("T", 5, dispatched=False)
    store.add("U", 0)
    store.publish()
    assert highs(ends.look()) == {("T", 0): 5, ("T", 1): 5, ("T", 5): 1, ("U", 0): 1}


def test_a_topic_that_is_deleted_is_gone(store):
    store.add("U", 0)
    store.add_many(3)
    store.publish(live=False)
    ends = StreamEnds(store.root)
    assert ("T", 0) in highs(ends.look())
    # What no queue knows is found in the log again: only where a broker went on without the topic is it gone for good.
    store.delete_topic("T")
    store.roll()
    store.add("U", 0)
    store.publish(live=False)
    store.delete_log_file(0)
    assert ("T", 0) not in highs(ends.look())


def test_a_torn_tail_is_not_yet_and_comes_once_it_is_whole(store):
    ends = StreamEnds(store.root)
    ends.look()
    place = store.add("T", 0, body=b"late", dispatched=False)
    whole = bytes(store.data[0][place : store.end])
    for size in (4, 30, len(whole) - 1):
        store.change(place, whole[:size].ljust(len(whole), b"\0"))
        store.publish()
        assert highs(ends.look()) == {("T", 0): 5, ("T", 1): 5}
    store.change(place, whole)
    store.publish()
    assert highs(ends.look()) == {("T", 0): 6, ("T", 1): 5}


@pytest.mark.parametrize("seen_before", [True, False])
def test_what_is_torn_before_something_whole_is_not_yet_while_nothing_is_dispatched_behind_it(store, seen_before):
    ends = StreamEnds(store.root)
    if seen_before:
        ends.look()
    place = store.add("T", 0, dispatched=False)
    whole = bytes(store.data[0][place : store.end])
    store.change(place, whole[:20].ljust(len(whole), b"\0"))
    store.add("T", 1, dispatched=False)
    store.publish()
    assert highs(ends.look()) == {("T", 0): 5, ("T", 1): 5}
    assert ends.unsettled == {"default": place}
    assert not any(one.damage for one in ends.look().stores)
    store.change(place, whole)
    store.publish()
    assert highs(ends.look()) == {("T", 0): 6, ("T", 1): 6}
    assert ends.unsettled == {}


@pytest.mark.parametrize("lost", ["entries", "queues"])
@pytest.mark.parametrize("rests", ["long ago", "watched"])
def test_damage_of_a_killed_store_that_rests_hides_nothing(store, monkeypatch, lost, rests):
    """A killed store has messages that no queue leads to: damage among these was "not yet" for ever."""
    place = store.add("T", 0, dispatched=False)
    store.change(place + 88, b"?")
    store.add_many(3, dispatched=False)
    store.publish()
    if lost == "queues":
        shutil.rmtree(store.root / "consumequeue")
    ends = StreamEnds(store.root)
    assert not any(one.damage for one in ends.look().stores)  # its files are new: somebody may be at it, and unseen
    if rests == "long ago":
        monkeypatch.setattr(stream_ends, "SYSTEM_CLOCK", ManualClock(SYSTEM_CLOCK.now_ms() + 60_000))
        ends = StreamEnds(store.root)
    else:
        monkeypatch.setattr(stream_ends, "_REST_S", 0.0)
    found = ends.look()
    assert [damage.offset for one in found.stores for damage in one.damage] == [place]
    assert bounds(found) == bounds(open_snapshot(store.root))
    assert sum(high for _, high in bounds(found).values()) == 14
    assert ends.look() is found


@pytest.mark.parametrize("part", ["renamed", "in place", "under another name"])
def test_a_copy_of_a_killed_store_that_still_comes_has_no_damage(store, tmp_path, monkeypatch, part):
    """`cp -a` and `rsync -a` keep the times of the files: what is still to come was damage at once, or passed over."""
    place = store.add("T", 0, dispatched=False)
    store.add_many(3, dispatched=False)
    store.publish()
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    (log,) = (copy / "commitlog").iterdir()
    whole = log.read_bytes()
    log.write_bytes(whole[: place + 40] + bytes(60) + whole[place + 100 :])
    for path in copy.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    if part == "under another name":
        monkeypatch.setattr(stream_ends, "SYSTEM_CLOCK", ManualClock(SYSTEM_CLOCK.now_ms() + 60_000))
        later = (SYSTEM_CLOCK.now_ms() + 50_000) / 1000
        (copy / "commitlog" / f".{log.name}.Xq1").write_bytes(b"half")
        os.utime(copy / "commitlog" / f".{log.name}.Xq1", (later, later))
    ends = StreamEnds(copy)
    assert not any(one.damage for one in ends.look().stores)
    assert not any(one.damage for one in ends.look().stores)
    if part == "renamed":
        (tmp_path / "log").write_bytes(whole)
        (tmp_path / "log").replace(log)
    else:
        log.write_bytes(whole)
    assert bounds(ends.look()) == bounds(open_snapshot(store.root))


@pytest.mark.parametrize("live", [True, False])
def test_damage_with_dispatched_messages_behind_it_is_damage(store, live):
    place = store.add("T", 0, dispatched=False)
    store.change(place, bytes(store.end - place))
    store.add("T", 1)
    store.publish(live=live)
    found = StreamEnds(store.root).look()
    assert [damage.offset for one in found.stores for damage in one.damage] == [place]


def test_damage_of_a_store_at_rest_is_damage(store):
    place = store.add("T", 0, dispatched=False)
    store.change(place, bytes(store.end - place))
    store.add("T", 1, dispatched=False)
    store.publish(live=False)
    found = StreamEnds(store.root).look()
    assert [damage.offset for one in found.stores for damage in one.damage] == [place]


def test_ends_seen_before_stay_when_a_later_survey_is_disturbed(store):
    ends = StreamEnds(store.root)
    ends.look()
    store.add_many(4, dispatched=False)
    store.publish()
    assert highs(ends.look()) == {("T", 0): 7, ("T", 1): 7}
    place = store.add("T", 0, dispatched=False)
    store.change(place, bytes(store.end - place))
    store.add("T", 1, dispatched=False)
    store.publish()
    ends.forget()
    ends.look()
    assert highs(ends.look()) == {("T", 0): 7, ("T", 1): 7}


def test_old_files_that_are_deleted_move_the_beginning(store):
    store.add_many(100)
    store.publish()
    ends = StreamEnds(store.root)
    before = bounds(ends.look())
    store.delete_log_file(0)
    after = bounds(ends.look())
    assert after == bounds(open_snapshot(store.root))
    assert after["T", 0][0] > before["T", 0][0] == 0
    assert after["T", 0][1] == before["T", 0][1]


def test_a_log_that_was_cut_and_went_on_is_surveyed_again(store):
    ends = StreamEnds(store.root)
    ends.look()
    cut = GrowingStore(store.root)
    cut.add_many(4)
    cut.add_many(4, "Z")
    (store.root / "commitlog" / f"{0:020}").write_bytes(bytes(4096))
    for queue in ("0", "1"):
        (store.root / "consumequeue" / "T" / queue / f"{0:020}").write_bytes(bytes(1000))
    cut.publish()
    assert highs(ends.look()) == {("T", 0): 2, ("T", 1): 2, ("Z", 0): 2, ("Z", 1): 2}


def test_a_light_queue_that_grows_without_a_record_of_its_own_is_seen(store):
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0", "TAGS": "A"}
    store.add("T", 0, properties=properties)
    store.entries["%LMQ%a", 0] = [store.entries["T", 0][-1]]
    store.publish()
    ends = StreamEnds(store.root)
    assert highs(ends.look())["%LMQ%a", 0] == 1
    store.add("T", 0, properties=properties | {"INNER_MULTI_QUEUE_OFFSET": "1"})
    store.publish()
    ends.look()
    store.entries["%LMQ%a", 0].append(store.entries["T", 0][-1])
    store.publish()
    assert highs(ends.look())["%LMQ%a", 0] == 2


def test_a_store_that_is_not_there_is_told(tmp_path):
    with pytest.raises(NotAStore):
        StreamEnds(tmp_path / "nowhere").look()


@pytest.mark.parametrize("seed", range(6))
def test_looks_agree_with_a_fresh_snapshot_whatever_the_writer_does(tmp_path, seed):
    dice = random.Random(seed)
    store = GrowingStore(tmp_path / "store")
    store.add_many(3)
    store.publish()
    ends = StreamEnds(store.root)
    kept = 0
    for _ in range(25):
        kind = dice.random()
        if kind < 0.6:
            for _ in range(dice.randrange(1, 12)):
                # The dispatcher is behind, and catches up with all that it had not dispatched at once.
                store.add(dice.choice("TU"), dice.randrange(3), body=bytes(dice.randrange(200)))
        elif kind < 0.8:
            store.roll()
        elif len(store.data) - kept > 3:
            store.delete_log_file(kept)
            kept += 1
        store.publish()
        seen = ends.look()
        assert bounds(seen) == bounds(open_snapshot(store.root))
        assert not any(one.damage for one in seen.stores)
