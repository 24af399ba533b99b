"""Ctrl-C before every line that a call of the store executes: what was acknowledged stays, and the store goes on."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.ledger_config import LedgerConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import StoreError
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk
from tests.crash.strides import stride
from tests.patience import PATIENCE_S
from tests.store.interrupting import Interrupt, sweep

pytestmark = [pytest.mark.crash, pytest.mark.stores]

SMALL = StoreConfig(
    flush="ASYNC", log_file_size=4096, queue_file_size=200, index_slot_count=5, index_item_count=20,
    sync_flush_timeout_ms=100, preallocate=False, statistics=False,
)  # fmt: skip
CONFIGS = {
    "async": SMALL,
    "sync": replace(SMALL, flush="SYNC"),
    "pool": replace(SMALL, flush="SYNC", pool_buffers=2),
    "ahead": replace(SMALL, flush="SYNC", preallocate=True),
    "ledger": replace(SMALL, flush="SYNC", dledger=LedgerConfig(index_file_size=640)),
}
MANY = 130
STEPS = {"many": 101, "so many": 211}  # those that take longer are interrupted at fewer lines
Put = Callable[[Store, bytes], PutResult]


def put(store: Store, body: bytes) -> PutResult:
    return store.put(Message("alpha", body, keys=["k"]))


def put_batch(store: Store, body: bytes) -> PutResult:
    return store.put_batch([Message("alpha", body, keys=["k"])])


def put_columns(store: Store, body: bytes) -> PutResult:
    return store.put_columns(pa.table({"topic": ["alpha"], "body": pa.array([body], pa.binary())}))


def put_many(store: Store, body: bytes) -> PutResult:
    """One by one, as few are."""
    return store.put_many([Message("alpha", body, keys=["k"]), Message("beta", b"")])[0]


def put_so_many(store: Store, body: bytes) -> PutResult:
    """In vectors."""
    return store.put_many([Message("alpha", body, keys=["k"]), *[Message("beta", b"")] * MANY])[0]


PUTS = {"put": put, "batch": put_batch, "columns": put_columns, "many": put_many, "so many": put_so_many}


class Hangs(BaseException):
    """A call does not come back."""


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """A deadlock ends the test instead of the run."""

    def ring(*_: object) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(PATIENCE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def opened(disk: MemoryDisk, config: StoreConfig) -> Store:
    signal.alarm(PATIENCE_S)
    return open_store("/store", config, filesystem=disk, clock=ManualClock(), workers=False)


def numbered(store: Store) -> dict[bytes, list[int]]:
    """Queue offsets by body, of everything that can be read."""
    found: dict[bytes, list[int]] = {}
    low, high = store.bounds("alpha", 0)
    for offset in range(low, high):
        for message in store.get("alpha", 0, offset, 1).messages:
            found.setdefault(bytes(message.body or b"").strip(), []).append(message.queue_offset)
    return found


def check_acknowledged(disk: MemoryDisk, config: StoreConfig, acked: dict[bytes, int]) -> None:
    """Each is there once, with its number; of the others each once at most."""
    with opened(disk, config) as again:
        found = numbered(again)
        assert again.health().is_writable
    assert {body: [number] for body, number in acked.items()}.items() <= found.items()
    assert all(len(numbers) == 1 for numbers in found.values())


class Writer:
    """Puts one way or another and remembers what was acknowledged, by body: its queue offset."""

    def __init__(self, store: Store, way: Put, size: int) -> None:
        self.store, self.way, self.size = store, way, size
        self.acked: dict[bytes, int] = {}
        self._next = 0

    def put(self, name: bytes, interrupt: Interrupt | None = None) -> PutResult | None:
        work = lambda: self.way(self.store, name.ljust(self.size))  # noqa: E731
        result = work() if interrupt is None else interrupt.call(work)
        if result is not None and result.status is PutStatus.PUT_OK:
            # put_columns tells no queue offset: the record does
            self.acked[name] = self._number(result) if result.queue_offset < 0 else result.queue_offset
        return result

    def _number(self, result: PutResult) -> int:
        return Probe(self.store).next_offset("alpha", 0) - 1


@pytest.mark.some(5)
@pytest.mark.parametrize("way", sorted(PUTS))
@pytest.mark.parametrize("rolls", [False, True], ids=["one file", "next file"])
@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_put_that_is_interrupted_anywhere_harms_no_other(name: str, rolls: bool, way: str) -> None:
    config = CONFIGS[name]

    def check(interrupt: Interrupt) -> None:
        disk = MemoryDisk()
        store = opened(disk, config)
        writer = Writer(store, PUTS[way], 1500 if rolls else 60)
        for number in range(2):
            writer.put(b"first %d" % number)
        writer.put(b"cut", interrupt)
        for number in range(3):
            result = writer.put(b"after %d" % number)
            assert result is not None
            assert result.status is PutStatus.PUT_OK, result
        assert store.health().is_writable, store.health().reasons
        store.flush()
        assert set(writer.acked) <= set(numbered(store))
        store.close()
        check_acknowledged(disk, config, writer.acked)

    assert sweep(check, step=stride(STEPS.get(way, 29))) > 3


@pytest.mark.some(3)
@pytest.mark.parametrize("again", [1, 2, 5])
def test_two_interrupts_in_one_put_lose_nothing_either(again: int) -> None:
    """The store may end with it, but says so."""

    def check(interrupt: Interrupt) -> None:
        interrupt.left.append(again)
        disk = MemoryDisk()
        store = opened(disk, SMALL)
        writer = Writer(store, put, 60)
        writer.put(b"first")
        writer.put(b"cut", interrupt)
        try:
            writer.put(b"after")
            store.close()
        except StoreError:
            assert not store.health().is_writable
        store.abandon()
        check_acknowledged(disk, SMALL, writer.acked)

    sweep(check)


@pytest.mark.some(4)
@pytest.mark.parametrize("call", ["flush", "step", "close", "delete_topic"])
@pytest.mark.parametrize("name", ["async", "pool"])
def test_what_else_is_interrupted_anywhere_loses_nothing(name: str, call: str) -> None:
    """Without threads each of these does what the workers do: the store may end with it, but says so, and lets go."""
    config = CONFIGS[name]

    def check(interrupt: Interrupt) -> None:
        disk = MemoryDisk()
        store = opened(disk, config)
        writer = Writer(store, put, 700)
        for number in range(8):
            writer.put(b"first %d" % number)
        other = store.put(Message("other", b"body"))
        assert other.is_stored
        interrupt.call({"delete_topic": lambda: store.delete_topic("other")}.get(call, getattr(store, call)))
        if call != "close":
            try:
                writer.put(b"after")
                store.close()
            except StoreError:
                assert not store.health().is_writable
        store.close()
        assert not disk.locks
        check_acknowledged(disk, config, writer.acked)

    assert sweep(check, step=5, is_real=True) > 10


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["async", "pool", "ledger"])
def test_a_clean_that_is_interrupted_anywhere_takes_oldest_files_only(name: str) -> None:
    config = CONFIGS[name]

    def check(interrupt: Interrupt) -> None:
        disk = MemoryDisk()
        store = opened(disk, config)
        writer = Writer(store, put, 700)
        for number in range(12):
            writer.put(b"first %d" % number)
        store.flush()
        interrupt.call(lambda: store.clean(any_age=True))
        try:
            writer.put(b"after")
            store.clean(any_age=True)
            writer.put(b"last")
            store.flush()
            check_newest(store, writer.acked)
            store.close()
        except StoreError:
            assert not store.health().is_writable
        store.close()
        assert not disk.locks
        with opened(disk, config) as again:
            check_newest(again, writer.acked)
            assert again.health().is_writable

    assert sweep(check, step=3, is_real=True) > 10


def check_newest(store: Store, acked: dict[bytes, int]) -> None:
    """All that was put last is there, once, from the queue's first message on."""
    low, high = store.bounds("alpha", 0)
    found = numbered(store)
    assert list(found.items()) == [(body, [number]) for body, number in acked.items() if number >= low]
    assert high == max(acked.values()) + 1
    assert len(found) > 1
