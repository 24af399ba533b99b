"""A store for the tests of programs that use one: in a temporary directory, under a clock that the test moves.

A pytest plugin.  It is asked for by name, in the `conftest.py` at the root of the tests, or in a test's own file:

    pytest_plugins = ["rmqstore.testing"]

There is no entry point that would load it by itself: every run of pytest where the package is installed would import
NumPy and Arrow, and have fixtures, for nothing.  PYTEST_DONT_REWRITE: there are no assertions in here, and a test
file may import it before it is named as a plugin.

`Probe` tells a test more of any open store, or of a replica: where the log ends, how much of it is durable.  It needs
no fixture and no pytest: a plain script may import it.

A test then looks like this:

    from rmqstore import Message


    def test_a_reminder_comes_after_ten_seconds(rmq_store):
        rmq_store.put(Message("reminders", b"pay", properties={"DELAY": "3"}))
        with rmq_store.consumer("mailer", "reminders") as mailer:
            rmq_store.deliver(9_999)
            assert mailer.poll() == []
            rmq_store.deliver(1)
            assert [message.body for message in mailer.poll()] == [b"pay"]


    def test_what_was_committed_is_not_read_again(rmq_store_factory):
        store = rmq_store_factory("shop")
        store.put(Message("orders", b"1"))
        with store.consumer("billing", "orders") as billing:
            assert [message.body for message in billing.poll()] == [b"1"]
        store.close()
        again = rmq_store_factory("shop")
        assert again.consumer("billing", "orders").poll() == []
        assert again.get("orders", 0, 0).messages[0].body == b"1"
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore.clock import Clock, ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult
from rmqstore.engine.engine import Engine
from rmqstore.engine.store import Store
from rmqstore.errors import NotNow
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.store_lock import HeldLock

if TYPE_CHECKING:
    from rmqstore.replica.following.replica import Replica


# Small files: a test makes many stores.
_SIZES = {"log_file_size": 1024 * 1024, "queue_file_size": 20_000, "index_slot_count": 100, "index_item_count": 400}
_ROUNDS_MAX = 100_000

StoreFactory = Callable[..., "ManualStore"]


class Probe:
    """Answers of an open store, or of a replica, that its program has no use for: `Probe(store).log_end`.

    An offset counts the bytes of the commitlog, from the first that the store ever had.  Every answer is of now.
    """

    def __init__(self, store: "Store | Replica") -> None:
        self._engine = store._engine

    @property
    def log_start(self) -> int:
        """The first offset that the log files hold."""
        return self._engine.log.start

    @property
    def log_end(self) -> int:
        """The offset after the last record; the next one goes there, or into the next file."""
        return self._engine.log.marks.appended

    @property
    def flushed(self) -> int:
        """The offset up to which the log is durable."""
        return self._engine.log.marks.flushed

    @property
    def dispatched(self) -> int:
        """The offset up to which messages are in their queues and in the index."""
        return self._engine.dispatch.position

    @property
    def log_files(self) -> list[int]:
        """The offset at which each log file begins, oldest first."""
        return list(self._engine.parts.log.starts)

    @property
    def lock(self) -> HeldLock:
        """The lock that keeps other writers out; after its `release()` whoever asks for it gets it, as a broker does.

        The directories of the log have locks of their own, which only this engine asks for.
        """
        return self._engine.lock

    @property
    def clock(self) -> Clock:
        """The clock that the store was opened with."""
        return self._engine.clock

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first queue offset that can be read and the one after the last, as `Store.bounds`; of a replica too."""
        return self._engine.parts.queues.bounds(topic, queue_id)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next message of a queue gets, whatever is dispatched by now."""
        return self._engine.appender.next_offset((topic, queue_id))

    def read_log(self, offset: int, size: int) -> bytes:
        """At most `size` bytes of the log from `offset` on; empty where no file holds it."""
        return self._engine.log.read(offset, size)

    def step(self, worker: str) -> None:
        """One step of one worker ("dispatch", "flush", "queues", "retention", …), in this thread.

        `Store.step` does one of each.  What a step raises ends its worker, as in a thread, and is raised here too.
        """
        stepped = self._engine.workers[worker]
        stepped.step_once()
        if stepped.failure is not None:
            raise stepped.failure

    def catch_up(self) -> None:
        """Brings all that was put into the queues and the index; for a store without threads."""
        self._engine.catch_up()

    def sync_log(self) -> None:
        """Makes the log durable, queues and index not.  Raises DurabilityLost, NotNow."""
        self._engine.sync_log()

    def crash(self) -> None:
        """Ends the store as a kill does: nothing more is written, the lock is free, and the next opening recovers."""
        self._engine.abandon()

    @property
    def engine(self) -> Engine:
        """The store's parts: for this project's own tests of them.  Not for others: they change in any version."""
        return self._engine


class ManualStore(Store):
    """A store without threads, whose time stands still until `deliver` moves it; what was put can be read at once."""

    def __init__(self, path: str, clock: ManualClock, config: StoreConfig) -> None:
        super().__init__(path, config, clock, RealFileSystem(), workers=False)
        self.clock = clock

    def deliver(self, ms: int = 0) -> None:
        """Moves the clock on and does all the work that is due then, until there is none: delayed messages arrive,
        transactions are checked, what is put is readable.

        The time moves in one step, so all of it happens at the new time.  Raises NotNow when the store does not come to
        rest or takes no messages any more.
        """
        self.clock.advance(ms)
        probe = Probe(self)
        for _ in range(_ROUNDS_MAX):
            before = probe.log_end, probe.dispatched
            self.step()
            health = self.health()
            if not health.is_writable:
                raise NotNow("; ".join(health.reasons))
            if (probe.log_end, probe.dispatched) == before and not health.dispatch_behind_bytes:
                return
        raise NotNow(f"work goes on after {_ROUNDS_MAX} rounds")

    def put(self, message: Message) -> PutResult:
        """Stores one message, which can be read when this returns."""
        result = super().put(message)
        Probe(self).catch_up()
        return result

    def put_batch(self, messages: Iterable[Message]) -> PutResult:
        """Stores messages of one queue together; they can be read when this returns."""
        result = super().put_batch(messages)
        Probe(self).catch_up()
        return result

    def put_columns(self, table: Any) -> PutResult:
        """Stores the rows of an Arrow table; they can be read when this returns."""
        result = super().put_columns(table)
        Probe(self).catch_up()
        return result


def _fixture(function: Callable[..., Any]) -> Any:
    """pytest's fixture; without pytest, which a program that wants the probe alone may lack, a function."""
    try:
        import pytest  # noqa: PLC0415
    except ImportError:
        return function
    return pytest.fixture(function)


@_fixture
def rmq_store_factory(tmp_path: Path) -> Iterator[StoreFactory]:
    """Opens stores: `factory(name="store", **config)`; the same name after a `close` opens the same directory again.

    They share one clock (`store.clock`), and are closed when the test ends.  The directories are below `tmp_path`.
    """
    clock = ManualClock()
    with ExitStack() as opened:

        def factory(name: str = "store", **config: object) -> ManualStore:
            store = ManualStore(str(tmp_path / name), clock, StoreConfig.embedded(**(_SIZES | config)))
            opened.callback(store.close)
            return store

        yield factory


@_fixture
def rmq_store(rmq_store_factory: StoreFactory) -> ManualStore:
    """An empty store that a test may use as its own."""
    return rmq_store_factory()
