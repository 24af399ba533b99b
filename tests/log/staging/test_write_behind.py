"""Syncs in the background of a long write: one at a time, none forgotten, no failure swallowed."""

import threading

import pytest

from rmqstore.engine.log.staging.write_behind import WriteBehind


def test_small_writes_start_nothing() -> None:
    calls: list[int] = []
    behind = WriteBehind(lambda: calls.append(1), step_size=100)
    behind.wrote(60)
    behind.wrote(39)
    behind.settle()
    assert not calls


def test_one_sync_at_a_time_and_the_next_when_it_is_done() -> None:
    calls: list[threading.Thread] = []
    began, may_end = threading.Semaphore(0), threading.Semaphore(0)

    def sync() -> None:
        calls.append(threading.current_thread())
        began.release()
        assert may_end.acquire(timeout=600)

    behind = WriteBehind(sync, step_size=100)
    behind.wrote(100)
    assert began.acquire(timeout=600)
    behind.wrote(100)
    behind.wrote(100)
    assert len(calls) == 1
    may_end.release()
    behind.end()
    behind.wrote(1)  # what came meanwhile is due
    assert began.acquire(timeout=600)
    may_end.release()
    behind.settle()
    assert len(calls) == 2
    assert threading.current_thread() not in calls


@pytest.mark.parametrize("way", ["wrote", "settle"])
def test_a_failure_comes_out_and_stays(way: str) -> None:
    def sync() -> None:
        raise OSError(5, "the disk is gone")

    behind = WriteBehind(sync, step_size=1)
    behind.wrote(1)
    behind.end()
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            behind.wrote(1) if way == "wrote" else behind.settle()
