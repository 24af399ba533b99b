"""Waiting for slaves: as RocketMQ answers, and never for longer than was said."""

import threading

import pytest

from rmqstore.config import HaConfig
from rmqstore.core.message import PutStatus
from rmqstore.replica.serving.copies import Copies

FAR, END = 1000, 500


def copies(needed: int = 1, timeout_s: float = 60.0) -> Copies:
    promised = HaConfig(
        in_sync_replicas=needed + 1, slave_timeout_ms=round(timeout_s * 1000), slave_fallen_behind_bytes=FAR
    )
    return Copies(promised, lambda: END)


def test_a_store_that_needs_no_copies_waits_for_none() -> None:
    assert copies(0).confirm(500) is PutStatus.PUT_OK


@pytest.mark.parametrize(("end", "status"), [(None, "SLAVE_NOT_AVAILABLE"), (500 - FAR, "SLAVE_NOT_AVAILABLE")])
def test_without_a_slave_that_is_near_the_answer_comes_at_once(end: int | None, status: str) -> None:
    waiting = copies()
    if end is not None:
        waiting.attached("a", end)
    assert waiting.confirm(500).value == status


def test_a_slave_that_does_not_acknowledge_is_waited_for_until_the_time_is_over() -> None:
    waiting = copies(timeout_s=0.01)
    waiting.attached("a", 499)
    assert waiting.confirm(500) is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_what_is_acknowledged_already_is_not_waited_for() -> None:
    waiting = copies(2)
    waiting.attached("a", 500)
    waiting.attached("b", 700)
    assert waiting.confirm(500) is PutStatus.PUT_OK


def test_a_slave_that_has_gone_counts_no_more() -> None:
    waiting = copies()
    waiting.attached("a", 500)
    waiting.gone("a")
    waiting.gone("a")
    assert waiting.confirm(500) is PutStatus.SLAVE_NOT_AVAILABLE


def test_one_notice_serves_all_who_wait_for_it_and_nobody_else() -> None:
    waiting, answers = copies(2), dict[int, PutStatus]()
    for slave in "ab":
        waiting.attached(slave, 0)
    threads = [
        threading.Thread(target=lambda end=end: answers.__setitem__(end, waiting.confirm(end))) for end in (10, 20, 30)
    ]
    for thread in threads:
        thread.start()
    waiting.attached("a", 30)
    assert answers == {}
    waiting.attached("b", 20)
    for thread in threads[:2]:
        thread.join()
    assert answers == {10: PutStatus.PUT_OK, 20: PutStatus.PUT_OK}
    waiting.attached("b", 30)
    threads[2].join()
    assert answers[30] is PutStatus.PUT_OK


@pytest.mark.parametrize(
    ("ends", "refusal"),
    [([], "IN_SYNC_REPLICAS_NOT_ENOUGH"), ([END - FAR], "IN_SYNC_REPLICAS_NOT_ENOUGH"), ([END], None)],
)
def test_nothing_is_put_while_there_are_fewer_copies_than_the_least(ends: list[int], refusal: str | None) -> None:
    waiting = Copies(HaConfig(min_in_sync_replicas=2, slave_fallen_behind_bytes=FAR), lambda: END)
    for number, end in enumerate(ends):
        waiting.attached(number, end)
    found = waiting.refusal()
    assert (found.value if found else None) == refusal
