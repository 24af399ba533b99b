"""Group commit: who syncs, who waits, and what a failed sync does to everyone."""

import threading

import pytest

from rmqstore.engine.log.put.watermarks import Watermarks
from rmqstore.errors import DurabilityLost
from tests.patience import PATIENCE_S, until

END = 1000


def appended(marks: Watermarks, offset: int) -> None:
    marks.appended = marks.committed = offset


def until_so_many_wait(marks: Watermarks, count: int) -> None:
    until(lambda: len(marks._waiting) >= count)


def test_a_sync_covers_everything_committed() -> None:
    ranges: list[tuple[int, int]] = []
    marks = Watermarks(END, lambda low, high: ranges.append((low, high)))
    appended(marks, END + 300)
    assert marks.sync_to(END + 100, PATIENCE_S)
    assert (marks.flushed, ranges) == (END + 300, [(END, END + 300)])
    assert marks.sync_to(END + 300, PATIENCE_S)
    assert len(ranges) == 1  # already durable: no second sync


def test_many_waiters_share_few_syncs() -> None:
    threads_count = 16
    began, go_on = threading.Event(), threading.Event()
    ranges: list[tuple[int, int]] = []

    def sync(low: int, high: int) -> None:
        ranges.append((low, high))
        began.set()
        assert go_on.wait(PATIENCE_S)

    marks = Watermarks(0, sync)
    appended(marks, 1)
    answers: list[bool] = []
    leader = threading.Thread(target=lambda: answers.append(marks.sync_to(1, PATIENCE_S)))
    leader.start()
    assert began.wait(PATIENCE_S)
    followers = []
    for number in range(2, threads_count + 2):
        appended(marks, number)
        followers.append(threading.Thread(target=lambda n=number: answers.append(marks.sync_to(n, PATIENCE_S))))
        followers[-1].start()
    until_so_many_wait(marks, threads_count)
    go_on.set()
    for thread in (leader, *followers):
        thread.join(PATIENCE_S)
    assert answers == [True] * (threads_count + 1)
    assert ranges == [(0, 1), (1, threads_count + 1)]


def test_a_failed_sync_is_never_tried_again() -> None:
    calls = []

    def sync(low: int, high: int) -> None:
        calls.append((low, high))
        raise OSError(5, "Input/output error")

    marks = Watermarks(0, sync)
    appended(marks, 10)
    for _ in range(3):
        with pytest.raises(DurabilityLost, match="Input/output error"):
            marks.sync_to(10, PATIENCE_S)
    assert (calls, marks.flushed) == ([(0, 10)], 0)


def test_waiters_get_the_error_of_the_sync_they_wait_for() -> None:
    began, go_on = threading.Event(), threading.Event()

    def sync(low: int, high: int) -> None:
        began.set()
        assert go_on.wait(PATIENCE_S)
        raise OSError(5, "Input/output error")

    marks = Watermarks(0, sync)
    appended(marks, 10)
    errors: list[Exception] = []

    def wait(offset: int) -> None:
        try:
            marks.sync_to(offset, PATIENCE_S)
        except DurabilityLost as error:
            errors.append(error)

    threads = [threading.Thread(target=wait, args=(5,))]
    threads[0].start()
    assert began.wait(PATIENCE_S)
    threads += [threading.Thread(target=wait, args=(10,)) for _ in range(3)]
    for thread in threads[1:]:
        thread.start()
    until_so_many_wait(marks, 3)
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(errors) == 4


def test_a_wait_ends_at_its_timeout_and_the_next_leader_is_not_lost() -> None:
    began, go_on = threading.Event(), threading.Event()

    def sync(low: int, high: int) -> None:
        began.set()
        assert go_on.wait(PATIENCE_S)

    marks = Watermarks(0, sync)
    appended(marks, 10)
    leader = threading.Thread(target=marks.sync_to, args=(5, PATIENCE_S))
    leader.start()
    assert began.wait(PATIENCE_S)
    appended(marks, 20)
    assert marks.sync_to(20, 0.001) is False
    go_on.set()
    leader.join(PATIENCE_S)
    assert marks.sync_to(20, PATIENCE_S) is True
    assert marks.flushed == 20


def test_committed_stays_between_flushed_and_appended() -> None:
    marks = Watermarks(10, lambda low, high: None)
    with pytest.raises(AssertionError):
        marks.advance_committed(11)
    marks.appended = 20
    marks.advance_committed(15)
    with pytest.raises(AssertionError):
        marks.advance_committed(14)


def test_the_commit_comes_before_the_sync() -> None:
    order: list[str] = []
    marks = Watermarks(0, lambda low, high: order.append(f"sync {low}-{high}"))
    marks.appended = 7

    def commit() -> None:
        order.append("commit")
        marks.advance_committed(7)

    assert marks.sync_to(7, 1.0, commit)
    assert order == ["commit", "sync 0-7"]


def test_what_is_put_between_the_commit_and_the_sync_is_not_called_flushed() -> None:
    """With a write pool it is in memory only, and no sync reaches it."""

    def sync(low: int, high: int) -> None:
        assert (low, high) == (0, 7), "bytes are synced that no file has"

    marks = Watermarks(0, sync)
    marks.appended = 7

    def commit_then_put() -> None:
        marks.advance_committed(7)
        marks.appended = 12

    assert marks.sync_to(7, 1.0, commit_then_put)
    assert marks.flushed == 7
