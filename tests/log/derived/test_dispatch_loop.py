"""Following the log: nothing skipped, nothing twice, and a failure that shows."""

import threading

import pytest

from rmqstore.clock import ManualClock
from rmqstore.core.worker import Worker
from rmqstore.engine.log.derived.dispatch_loop import DispatchLoop, FollowedLog
from rmqstore.formats import message
from rmqstore.records.batch import RecordBatch
from tests.formats.records import encoded
from tests.patience import PATIENCE_S

FILE_SIZE = 1024


class Log:
    """A log in memory that is appended to; records fill files as a writer fills them."""

    start = 0

    def __init__(self) -> None:
        self.data = b""

    @property
    def end(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def put(self, count: int = 1) -> None:
        for _ in range(count):
            room = FILE_SIZE - self.end % FILE_SIZE
            if len(encoded()) + message.BLANK.size > room:
                self.data += message.BLANK.struct.pack(room, message.MAGIC_BLANK).ljust(room, b"\0")
            self.data += encoded(physical_offset=self.end)


class Taker:
    """Notes what it is given; fails when told to."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.failure: Exception | None = None

    def dispatch(self, batch: RecordBatch) -> None:
        if self.failure is not None:
            raise self.failure
        self.offsets += batch.offsets.tolist()

    def flush(self) -> None:
        """Nothing to do."""


def loop_of(log: Log, *takers: Taker, position: int = 0) -> DispatchLoop:
    followed = FollowedLog(log, lambda: log.end, FILE_SIZE)
    return DispatchLoop(followed, takers, position=position, clock=ManualClock(0))


def places(log: Log) -> list[int]:
    found, at = [], 0
    while at < log.end:
        standing = message.read_record(log.data, at)
        if isinstance(standing, message.Record):
            found.append(at)
            at = standing.end
        else:
            at += FILE_SIZE - at % FILE_SIZE
    return found


def test_every_record_goes_to_every_dispatcher_once_and_in_order() -> None:
    log, first, second = Log(), Taker(), Taker()
    loop = loop_of(log, first, second)
    for count in (1, 2, 30, 0, 5):
        log.put(count)
        loop.catch_up()
        assert first.offsets == second.offsets == places(log)
        assert (loop.position, loop.behind) == (log.end, 0)


def test_a_late_start_gets_what_follows() -> None:
    log, taker = Log(), Taker()
    log.put(12)
    loop_of(log, taker, position=places(log)[7]).catch_up()
    assert taker.offsets == places(log)[7:]


def test_deleted_files_are_passed_over() -> None:
    log, taker = Log(), Taker()
    log.put(20)
    log.start = FILE_SIZE
    loop = loop_of(log, taker)
    loop.catch_up()
    assert taker.offsets == [at for at in places(log) if at >= FILE_SIZE]


def test_a_failing_dispatcher_stops_the_loop_before_the_batch() -> None:
    log, first, second = Log(), Taker(), Taker()
    log.put(3)
    loop = loop_of(log, first, second)
    loop.catch_up()
    log.put(2)
    second.failure = OSError(28, "No space left on device")
    before = loop.position
    with pytest.raises(OSError, match="No space"):
        loop.step()
    assert loop.position == before
    second.failure = None
    loop.catch_up()
    assert second.offsets == places(log)
    assert first.offsets[:3] + first.offsets[-2:] == places(log)  # those that came twice it has to drop itself


def test_a_worker_whose_dispatcher_fails_is_dead_and_says_why() -> None:
    log, taker = Log(), Taker()
    log.put()
    taker.failure = RuntimeError("broken")
    told: list[tuple[str, BaseException]] = []
    ended = threading.Event()
    worker = Worker(
        "dispatch", loop_of(log, taker).step, lambda name, failure: (told.append((name, failure)), ended.set())
    )
    worker.start()
    assert ended.wait(PATIENCE_S)
    assert told == [("dispatch", taker.failure)]


@pytest.mark.parametrize("tail", [b"\0" * 200, b"\xff" * 200, encoded(physical_offset=5)])
def test_bytes_that_are_no_record_are_waited_at_and_never_skipped(tail: bytes) -> None:
    log, taker = Log(), Taker()
    log.put(2)
    sound = log.data
    log.data += tail
    loop = loop_of(log, taker)
    loop.catch_up()
    for _ in range(3):
        assert loop.step() > 0
    assert loop.position == len(sound)
    assert loop.stuck is not None
    assert loop.stuck.position == len(sound)
    log.data = sound
    log.put()
    loop.step()
    assert (loop.stuck, loop.position) == (None, log.end)
    assert taker.offsets == places(log)


def test_an_idle_loop_asks_less_and_less_often_and_a_busy_one_at_once() -> None:
    log, taker = Log(), Taker()
    loop = loop_of(log, taker)
    pauses = [loop.step() for _ in range(8)]
    assert pauses == sorted(pauses)
    assert 0 < pauses[0] < pauses[-1] <= 0.02
    log.put(1)
    assert 0 < loop.step() <= 0.002
    log.put(2000)
    assert loop.step() == 0


def test_wait_until_is_answered_when_the_record_was_delivered() -> None:
    log, taker = Log(), Taker()
    log.put(3)
    loop = loop_of(log, taker)
    assert not loop.wait_until(1, timeout_s=0)
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(loop.wait_until(log.end, timeout_s=PATIENCE_S)))
    waiter.start()
    loop.catch_up()
    waiter.join(PATIENCE_S)
    assert answers == [True]
    assert loop.wait_until(log.end, timeout_s=0)
