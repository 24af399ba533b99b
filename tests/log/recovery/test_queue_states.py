"""The state machine of a queue's records, row by row."""

import pytest

from rmqstore.engine.log.recovery.queue_states import (
    TABLE,
    Contradiction,
    QueueTrack,
    Run,
    Says,
    ScanFacts,
    State,
    Step,
)

KEY = ("T", 0)
CRASHED = ScanFacts(compare=False, begins_with_log=False, is_complete=False)
WHOLE = ScanFacts(compare=False, begins_with_log=True, is_complete=True)


def track_in(state: State) -> QueueTrack:
    """A queue with entries 0 to 9 and records up to 19; when repeating, 5 and 6 came a second time."""
    if state is State.EMPTY:
        return QueueTrack(KEY, None, None, rewriting=True)
    track = QueueTrack(KEY, 10, 10, rewriting=True)
    assert not track.follow(Run(1000, 10, 10), CRASHED, may_lack_older=False)
    if state is State.REPEATING:
        assert not track.follow(Run(1100, 5, 2), CRASHED, may_lack_older=False)
    assert track.state is state
    return track


def summary(track: QueueTrack) -> tuple[State, int | None, int | None, int | None, int | None, int]:
    return track.state, track.kept, track.next, track.again, track.restart, track.begin


FOLLOWING, REPEATING, DOUBTFUL = State.FOLLOWING, State.REPEATING, State.DOUBTFUL
ROWS = [
    (State.EMPTY, Says.FIRST, (7, 3), (FOLLOWING, None, 10, None, 7, 0)),
    (FOLLOWING, Says.NEXT, (20, 3), (FOLLOWING, 10, 23, None, None, 0)),
    (FOLLOWING, Says.ALONE, (30, 1), (DOUBTFUL, 10, 20, None, None, 0)),
    (FOLLOWING, Says.BACK, (5, 2), (REPEATING, 10, 20, 7, None, 0)),
    (FOLLOWING, Says.ZERO, (0, 2), (FOLLOWING, None, 2, None, 0, 2000)),
    (FOLLOWING, Says.AHEAD, (30, 2), (FOLLOWING, None, 32, None, 30, 2000)),
    (REPEATING, Says.SECOND, (7, 1), (REPEATING, 10, 20, 8, None, 0)),
    (REPEATING, Says.NEXT, (20, 1), (REPEATING, 10, 21, 7, None, 0)),
    (REPEATING, Says.ALONE, (30, 1), (DOUBTFUL, 10, 20, 7, None, 0)),
    (REPEATING, Says.BACK, (3, 2), (REPEATING, 10, 20, 5, None, 0)),
    (REPEATING, Says.ZERO, (0, 2), (FOLLOWING, None, 2, None, 0, 2000)),
    (REPEATING, Says.AHEAD, (30, 2), (FOLLOWING, None, 32, None, 30, 2000)),
]


@pytest.mark.parametrize(("state", "says", "run", "after"), ROWS, ids=[f"{row[0].name} {row[1].name}" for row in ROWS])
def test_a_row(state: State, says: Says, run: tuple[int, int], after: tuple[object, ...]) -> None:
    track = track_in(state)
    assert track._meaning(Run(2000, *run), CRASHED) is says
    assert TABLE[state, says][0] is after[0]
    found = track.follow(Run(2000, *run), CRASHED, may_lack_older=False)
    assert summary(track) == after
    jumps = [Contradiction(2000, KEY, 30, 20, is_lie=False)] if TABLE[state, says][1] is Step.JUMP else []
    assert found == jumps


def test_every_row_but_those_of_one_lone_record_stands_above() -> None:
    assert {row[:2] for row in ROWS} | {(each, Says.BEFORE_ONE) for each in (FOLLOWING, REPEATING)} == {*TABLE}


def test_numbers_that_go_back_behind_one_lone_record_disown_it() -> None:
    track = track_in(State.EMPTY)
    assert not track.follow(Run(1000, 7, 1), WHOLE, may_lack_older=False)
    found = track.follow(Run(1100, 3, 2), WHOLE, may_lack_older=False)
    assert found == [Contradiction(1000, KEY, 7, 2, is_lie=True)]
    assert summary(track) == (FOLLOWING, None, 5, None, 3, 1100)


def test_a_jump_at_the_first_record_met_is_a_hole_where_older_ones_were_not_read() -> None:
    track = QueueTrack(KEY, 10, 10, rewriting=True)
    assert track.follow(Run(1000, 30, 2), CRASHED, may_lack_older=False) == []
    assert track.has_hole
    known = QueueTrack(KEY, 10, 10, rewriting=True)
    assert known.follow(Run(1000, 30, 2), WHOLE, may_lack_older=False) != []
    assert not known.has_hole


@pytest.mark.parametrize("state", [FOLLOWING, REPEATING])
@pytest.mark.parametrize(
    ("said", "after"),
    [
        (30, (FOLLOWING, None, 33, None, 30, 2000)),  # the queue goes on from there
        (0, (FOLLOWING, None, 3, None, 0, 2000)),  # it begins again
        (3, (REPEATING, 10, 20, 6, None, 0)),  # these numbers come a second time
    ],
)
def test_a_doubt_that_the_next_record_confirms(state: State, said: int, after: tuple[object, ...]) -> None:
    track = track_in(state)
    assert track.follow(Run(2000, said, 1), CRASHED, may_lack_older=False) == []
    found = track.follow(Run(2100, said + 1, 2), CRASHED, may_lack_older=False)
    assert summary(track) == after
    assert found == ([Contradiction(2000, KEY, 30, 20, is_lie=False)] if said == 30 else [])


@pytest.mark.parametrize("state", [FOLLOWING, REPEATING])
@pytest.mark.parametrize(("says", "following"), [(20, 22), (21, 23)])  # as if it were not there; with a place for it
def test_a_doubt_that_the_next_record_denies(state: State, says: int, following: int) -> None:
    track = track_in(state)
    track.follow(Run(2000, 30, 1), CRASHED, may_lack_older=False)
    found = track.follow(Run(2100, says, 2), CRASHED, may_lack_older=False)
    assert found == [Contradiction(2000, KEY, 30, 20, is_lie=True)]
    assert (track.state, track.kept, track.next, track.held) == (state, 10, following, None)


def test_a_repetition_ends_where_the_queue_goes_on() -> None:
    track = track_in(REPEATING)
    assert track.follow(Run(2000, 7, 15), CRASHED, may_lack_older=False) == []
    assert (track.state, track.next, track.again) == (FOLLOWING, 22, None)


@pytest.mark.parametrize(("facts", "met", "lies"), [(CRASHED, 0, False), (CRASHED, 1, True), (WHOLE, 0, True)])
def test_a_doubt_at_the_end_is_a_lie_unless_older_records_can_tell(facts: ScanFacts, met: int, lies: bool) -> None:
    track = QueueTrack(KEY, 10, 10, rewriting=True)
    if met:
        track.follow(Run(1000, 10, met), facts, may_lack_older=False)
    track.follow(Run(2000, 30, 1), facts, may_lack_older=False)
    assert [found.is_lie for found in track.finish(facts)] == ([True] if lies else [])
    assert (track.has_hole, track.held) == (not lies, None)


def test_the_first_number_met_tells_of_older_messages() -> None:
    assert [lacking(says=says, may=may) for says, may in ((3, True), (0, True), (3, False))] == [True, False, False]


def lacking(*, says: int, may: bool) -> bool:
    track = track_in(State.EMPTY)
    track.follow(Run(1000, says, 1), CRASHED, may_lack_older=may)
    return track.has_hole


@pytest.mark.parametrize(("kept", "state"), [(None, State.EMPTY), (4, FOLLOWING)])
def test_a_cut(kept: int | None, state: State) -> None:
    track = QueueTrack(KEY, 10, 10)
    track.cut(kept)
    assert (track.state, track.kept, track.next, track.rewriting) == (state, kept, kept, True)
