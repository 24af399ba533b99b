"""Puts that share a sync: who appends, who sleeps, and that nobody is forgotten."""

import threading
from collections.abc import Sequence

import pytest

from rmqstore.core.message import PutStatus
from rmqstore.engine.log.encode.record_frame import Frame
from rmqstore.engine.log.put import group_commit
from rmqstore.engine.log.put.group_commit import GroupPut
from rmqstore.engine.log.put.turn import Placed, WaitingFrame
from rmqstore.errors import DurabilityLost
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.stores


class Log:
    """What stands in for the appender: remembers what came in which group; a sync waits for the test's word."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.may_sync = threading.Semaphore(0)
        self.syncing = threading.Semaphore(0)
        self.append_failure: BaseException | None = None
        self.sync_failure: BaseException | None = None
        self.is_in_time = True

    def append(self, group: Sequence[WaitingFrame]) -> None:
        failure, self.append_failure = self.append_failure, None
        if failure is not None:
            raise failure
        start = sum(map(len, self.groups))
        self.groups.append([each.frame.topic for each in group])
        for number, each in enumerate(group, start):
            refused = each.frame.topic == "refused"
            each.outcome = PutStatus.MESSAGE_ILLEGAL if refused else Placed(number, number, 1)

    def confirm(self) -> PutStatus:
        self.syncing.release()
        assert self.may_sync.acquire(timeout=PATIENCE_S)
        if self.sync_failure is not None:
            failure = self.sync_failure
            self.sync_failure = None if isinstance(failure, KeyboardInterrupt) else failure
            raise failure
        return PutStatus.PUT_OK if self.is_in_time else PutStatus.FLUSH_DISK_TIMEOUT


def frame(topic: str) -> Frame:
    return Frame(bytearray(), (topic, 0), 0, False, 0, None)


class Hourglass:
    """Says when the time of all who wait is over: `threading`, as it is to `group_commit`, with locks that ask here."""

    RLock = threading.RLock

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.has_run_out = False

    def Lock(self) -> "Turn":  # noqa: N802  as in threading
        """A lock that waits for it."""
        return Turn(self)

    def run_out(self) -> None:
        """The time is over."""
        with self.changed:
            self.has_run_out = True
            self.changed.notify_all()


class Turn:
    """A lock whose timeout passes with an hourglass."""

    def __init__(self, glass: Hourglass) -> None:
        self._glass = glass
        self._is_free = True

    def acquire(self, timeout: float = -1) -> bool:
        """Whether it was free, or became so before the time was over."""
        with self._glass.changed:
            self._glass.changed.wait_for(lambda: self._is_free or self._glass.has_run_out, PATIENCE_S)
            was_free, self._is_free = self._is_free, False
            return was_free

    def release(self) -> None:
        """Lets one who waits have it."""
        with self._glass.changed:
            self._is_free = True
            self._glass.changed.notify_all()


class Producers:
    """Threads that put one frame each; `answers` by topic, an exception in its place where one came."""

    def __init__(self, group: GroupPut) -> None:
        self.answers: dict[str, object] = {}
        self._group = group
        self._threads: list[threading.Thread] = []

    def put(self, topic: str) -> None:
        def run() -> None:
            try:
                self.answers[topic] = self._group.put(frame(topic), 1)
            except BaseException as failure:  # noqa: BLE001  the test looks at it
                self.answers[topic] = failure

        thread = threading.Thread(target=run)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def waits(group: GroupPut, count: int) -> None:
    """Until so many frames wait for the next group."""
    until(lambda: len(group._waiting) == count, f"not {count} frames wait")


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def glass(monkeypatch: pytest.MonkeyPatch) -> Hourglass:
    found = Hourglass()
    monkeypatch.setattr(group_commit, "threading", found)
    return found


def started(log: Log, count: int) -> tuple[GroupPut, Producers]:
    """A group whose first put is at its sync, with `count` others that wait for the next one, in order."""
    group = GroupPut(log.append, log.confirm, PATIENCE_S)
    producers = Producers(group)
    producers.put("first")
    assert log.syncing.acquire(timeout=PATIENCE_S)
    for number in range(count):
        producers.put(f"t{number}")
        waits(group, number + 1)
    return group, producers


@pytest.mark.parametrize("count", [1, 2, 4, 5, 9, 40])
def test_what_comes_during_a_sync_shares_the_next_one(log: Log, count: int) -> None:
    _, producers = started(log, count)
    log.may_sync.release(2)
    producers.join()
    topics = [f"t{number}" for number in range(count)]
    assert log.groups == [["first"], topics]
    expected = {topic: (Placed(number, number, 1), PutStatus.PUT_OK) for number, topic in enumerate(["first", *topics])}
    assert producers.answers == expected


def test_a_refused_frame_does_not_hinder_the_others(log: Log) -> None:
    group, producers = started(log, 1)
    producers.put("refused")
    waits(group, 2)
    producers.put("last")
    waits(group, 3)
    log.may_sync.release(2)
    producers.join()
    assert producers.answers["refused"] == (PutStatus.MESSAGE_ILLEGAL, PutStatus.PUT_OK)
    assert producers.answers["last"] == (Placed(3, 3, 1), PutStatus.PUT_OK)


def test_a_failed_sync_is_told_to_everyone_in_the_group_and_after(log: Log) -> None:
    _, producers = started(log, 3)
    log.sync_failure = DurabilityLost("the disk is gone")
    log.may_sync.release(2)
    producers.join()
    assert len(producers.answers) == 4
    assert all(isinstance(answer, DurabilityLost) for answer in producers.answers.values())


def test_a_sync_that_is_late_is_no_confirmation(log: Log) -> None:
    group = GroupPut(log.append, log.confirm, PATIENCE_S)
    log.is_in_time = False
    log.may_sync.release()
    assert group.put(frame("a"), 1) == (Placed(0, 0, 1), PutStatus.FLUSH_DISK_TIMEOUT)


def test_who_is_appended_waits_no_longer_than_the_timeout(log: Log, glass: Hourglass) -> None:
    _, producers = started(log, 6)
    log.may_sync.release()  # the first group is done; the second is appended, and its sync hangs
    assert log.syncing.acquire(timeout=PATIENCE_S)
    glass.run_out()
    for number in range(1, 6):  # all but the one that leads
        producers._threads[number + 1].join(PATIENCE_S)
    assert [producers.answers[f"t{number}"] for number in range(1, 6)] == [
        (Placed(number + 1, number + 1, 1), PutStatus.FLUSH_DISK_TIMEOUT) for number in range(1, 6)
    ]
    glass.has_run_out = False
    log.may_sync.release(2)
    producers.put("later")  # those that are gone are not in anybody's way
    producers.join()
    assert producers.answers["later"] == (Placed(7, 7, 1), PutStatus.PUT_OK)


def test_who_is_not_appended_yet_appends_for_itself_at_the_timeout(log: Log, glass: Hourglass) -> None:
    _, producers = started(log, 3)
    glass.run_out()
    for thread in producers._threads[1:]:
        thread.join(PATIENCE_S)
    assert sorted(log.groups) == [["first"], ["t0"], ["t1"], ["t2"]]
    assert all(producers.answers[f"t{number}"][1] is PutStatus.FLUSH_DISK_TIMEOUT for number in range(3))  # type: ignore[index]
    log.may_sync.release()
    producers.join()
    assert producers.answers["first"] == (Placed(0, 0, 1), PutStatus.PUT_OK)


@pytest.mark.parametrize("where", ["append", "sync"])
def test_an_interrupted_leader_leaves_its_group_to_another_thread(log: Log, where: str) -> None:
    """What it had appended is not appended again; what it had not, is."""
    group, producers = started(log, 3)
    if where == "append":
        log.append_failure = KeyboardInterrupt()
        log.may_sync.release()
    else:
        log.may_sync.release()
        assert log.syncing.acquire(timeout=PATIENCE_S)
        log.sync_failure = KeyboardInterrupt()
    log.may_sync.release(2)
    producers.join()
    kinds = sorted(type(producers.answers[f"t{number}"]).__name__ for number in range(3))
    assert kinds == ["KeyboardInterrupt", "tuple", "tuple"]
    appended = [topic for each in log.groups for topic in each]
    assert sorted(appended) == sorted(set(appended))
    answers = [answer for answer in producers.answers.values() if isinstance(answer, tuple)]
    assert all(confirmed is PutStatus.PUT_OK for _, confirmed in answers)
    log.may_sync.release()
    assert group.put(frame("next"), 1)[1] is PutStatus.PUT_OK
