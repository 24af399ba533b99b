"""The background thread around a step."""

import threading

from rmqstore.core.worker import Worker
from tests.patience import PATIENCE_S


def test_steps_run_until_stopped_and_wake_calls_early() -> None:
    steps = threading.Semaphore(0)

    def step() -> None:
        steps.release()

    worker = Worker("test", step, lambda name, failure: None)
    worker.start()
    assert steps.acquire(timeout=PATIENCE_S)  # the first comes by itself
    worker.wake()
    assert steps.acquire(timeout=PATIENCE_S)
    worker.stop()
    assert "rmqstore-test" not in {thread.name for thread in threading.enumerate()}
    assert worker.failure is None


def test_a_step_that_asks_for_zero_seconds_is_called_at_once() -> None:
    left = [3]
    done = threading.Event()

    def step() -> float | None:
        left[0] -= 1
        if left[0] == 0:
            done.set()
            return None
        return 0

    worker = Worker("test", step, lambda name, failure: None)
    worker.start()
    assert done.wait(PATIENCE_S)
    worker.stop()


def test_a_failure_ends_the_thread_and_is_told_once() -> None:
    told: list[tuple[str, BaseException]] = []
    ended = threading.Event()

    def step() -> None:
        raise ValueError("broken")

    def on_failure(name: str, failure: BaseException) -> None:
        told.append((name, failure))
        ended.set()

    worker = Worker("dispatch", step, on_failure)
    worker.start()
    assert ended.wait(PATIENCE_S)
    worker.stop()
    assert [(name, str(failure)) for name, failure in told] == [("dispatch", "broken")]
    assert worker.failure is told[0][1]
