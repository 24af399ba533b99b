"""The log that follows another one: bytes come in any portions, and only whole records are appended."""

import random

import pytest

from rmqstore import Message, StoreConfig
from rmqstore.clock import ManualClock
from rmqstore.engine.engine import Attached, Engine
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import read_batches
from rmqstore.replica.following import follower as module
from rmqstore.replica.following.follower import PENDING_SIZE_MAX, Follower, ForeignRecord, queue_breaks
from tests.crash.disks import MemoryDisk
from tests.store.interrupting import Interrupt

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(
    log_file_size=1 << 22, queue_file_size=400, preallocate=False, statistics=False, message_size_max=1 << 21,
)  # fmt: skip


def opened(follows: str = "") -> Engine:
    return Engine("/s", CONFIG, ManualClock(), MemoryDisk(), Attached(follows=follows), threads=False)


def log_of(sizes: list[int]) -> bytes:
    """The log of a store with bodies of these sizes."""
    engine = opened()
    for size in sizes:
        assert engine.put(Message("t", b"x" * size)).is_stored
    return engine.log.read(0, engine.log.marks.appended)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what was looked at."""
    sizes: list[int] = []
    plain = module.block_parts

    def block_parts(offset: int, data: bytes, *rest: object, **named: object) -> object:
        sizes.append(len(data))
        return plain(offset, data, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "block_parts", block_parts)
    return sizes


def test_a_large_record_in_small_portions_is_looked_at_once_it_is_whole(counted: list[int]) -> None:
    log = log_of([1 << 20, 5, 1 << 20, 1 << 20, 1 << 20, 3])  # a blank of nearly 1 MiB is among them
    assert len(log) > CONFIG.log_file_size
    follower = Follower(opened("the master"), lambda: None)
    for begin in range(0, len(log), 4096):
        follower.take(log[begin : begin + 4096])
        follower.append()
    assert follower.end == len(log)
    assert sum(counted) < 3 * len(log)


@pytest.mark.parametrize("seed", range(20))
def test_every_cut_of_the_bytes_gives_the_same_log(seed: int) -> None:
    chance = random.Random(seed)
    log = log_of([chance.choice((0, 1, 50, 3000, 400_000)) for _ in range(40)])
    engine = opened("the master")
    follower, position = Follower(engine, lambda: None), 0
    while position < len(log):
        size = chance.choice((1, 3, 7, 8, 9, 90, 5000, 300_000))
        follower.take(log[position : position + size])
        position += size
        if chance.random() < 0.7:
            follower.append()
    follower.append()
    assert follower.sync() == len(log)
    assert engine.log.read(0, len(log)) == log
    own = follower.own_end()  # a new connection brings again what was not appended
    assert own.offset is not None
    assert own.offset + len(own.data) == len(log)


def test_a_record_that_never_ends_is_refused_before_it_fills_the_memory(counted: list[int]) -> None:
    config = CONFIG.__class__(log_file_size=1 << 30, preallocate=False, statistics=False)
    engine = Engine("/s", config, ManualClock(), MemoryDisk(), Attached(follows="the master"), threads=False)
    follower = Follower(engine, lambda: None)
    endless = (1 << 29).to_bytes(4) + log_of([5])[4:8]
    follower.take(endless)
    follower.append()
    for _ in range(PENDING_SIZE_MAX // (1 << 20) - 1):
        follower.take(bytes(1 << 20))
        follower.append()
    with pytest.raises(ForeignRecord, match="not a record, or one of more than"):
        follower.take(bytes(1 << 20))
    assert follower.end == 0
    assert sum(counted) < 1 << 20


@pytest.mark.deep
def test_an_interrupt_at_any_line_neither_doubles_nor_loses_a_record() -> None:
    """What is tried again after it, on the same connection, goes on where the log ends."""
    log = log_of([100, 300, 20])
    at = 0
    while True:
        at += 1
        follower = Follower(opened("the master"), lambda: None)
        follower.take(log[:500])
        interrupt = Interrupt(at, is_real=True)
        interrupt.call(follower.append)
        follower.append()
        follower.take(log[500:])
        follower.append()
        assert follower.sync() == len(log), interrupt.place
        if interrupt.place is None:
            break
    assert at > 100


@pytest.mark.parametrize("portion", [300, 1 << 20])
@pytest.mark.parametrize("number", [0, 1, 5, 8])
def test_what_stands_in_front_of_a_damaged_record_is_appended(number: int, portion: int) -> None:
    log, ends = log_of_queues()
    begin = ends[number]
    data = bytearray(log)
    data[begin + 5] ^= 4  # in its magic
    engine = opened("the master")
    follower = Follower(engine, lambda: None)

    def go_on(sent: bytes) -> None:
        for at in range(follower.end, len(sent), portion):
            follower.take(sent[at : at + portion])
            follower.append()

    with pytest.raises(ForeignRecord, match=f"at {begin}: no message magic") as refusal:
        go_on(bytes(data))
    assert refusal.value.offset == follower.end == begin
    assert engine.log.read(0, begin) == log[:begin]
    follower.own_end()  # a new connection brings it again, as the master has it
    go_on(log)
    assert follower.sync() == len(log)
    assert engine.log.read(0, len(log)) == log


@pytest.mark.parametrize("portion", [300, 1 << 20])
@pytest.mark.parametrize("taken", [0, 3])
def test_what_leaves_numbers_of_a_queue_out_is_refused_once_all_before_it_is_appended(portion: int, taken: int) -> None:
    """`taken`: so many messages are there before the others come."""
    log, ends = log_of_queues()
    at = ends[6] + 4 + 4 + 4 + 4 + 4  # queue offset: behind size, magic, CRC of the body, queue id and flag
    assert int.from_bytes(log[at : at + 8]) == 3
    data = log[:at] + (5).to_bytes(8) + log[at + 8 :]
    engine = opened("the master")
    follower = Follower(engine, lambda: None)
    follower.take(data[: ends[taken]])
    follower.append()

    def go_on() -> None:
        for begin in range(ends[taken], len(data), portion):
            follower.take(data[begin : begin + portion])
            follower.append()

    with pytest.raises(ForeignRecord, match="number 5 of the queue 0 of 't', and 3 was expected") as refusal:
        go_on()
    assert refusal.value.offset == follower.end == ends[6]
    engine.catch_up()
    assert engine.reasons == []
    assert engine.parts.queues.bounds("t", 0) == (0, 3)
    engine.close()


def test_a_queue_may_begin_with_any_number() -> None:
    log, ends = log_of_queues()
    follower = Follower(opened("the master"), lambda: None)
    for number in (3, 5):  # each with numbers of its own
        assert not list(queue_breaks([parsed(log, ends[number])], lambda _: False, {}))
        known = {("t", 0): 99, ("t", 1): 99}
        breaks = queue_breaks([parsed(log, ends[number])], lambda _: False, known)
        assert all(each.found < each.expected for each in breaks)
    assert follower.end == 0


def log_of_queues() -> tuple[bytes, list[int]]:
    """A log of messages to two queues in turns, and where each ends, with 0 before them."""
    engine, ends = opened(), [0]
    for number in range(10):
        assert engine.put(Message("t", b"m", queue_id=number % 2)).is_stored
        ends.append(engine.log.marks.appended)
    return engine.log.read(0, ends[-1]), ends


def parsed(log: bytes, begin: int) -> RecordBatch:
    """The records from there on."""
    (batch,) = list(read_batches(lambda at, size: log[at : at + size], begin, len(log), CONFIG.log_file_size))
    assert isinstance(batch, RecordBatch)
    return batch
