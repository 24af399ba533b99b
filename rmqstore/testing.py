"""A store for the tests of programs that use one: in a temporary directory, under a clock that the test moves.

A pytest plugin.  It is asked for by name, in the `conftest.py` at the root of the tests, or in a test's own file:

    pytest_plugins = ["rmqstore.testing"]

There is no entry point that would load it by itself: every run of pytest where the package is installed would import
NumPy and Arrow, and have fixtures, for nothing.  PYTEST_DONT_REWRITE: there are no assertions in here, and a test
file may import it before it is named as a plugin.

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
from typing import Any

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.errors import NotNow
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.message import Message, PutResult
from rmqstore.store import Store

# Small files: a test makes many stores.
_SIZES = {"log_file_size": 1024 * 1024, "queue_file_size": 20_000, "index_slot_count": 100, "index_item_count": 400}
_ROUNDS_MAX = 100_000

StoreFactory = Callable[..., "ManualStore"]


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
        marks, dispatch = self._engine.log.marks, self._engine.dispatch
        for _ in range(_ROUNDS_MAX):
            before = marks.appended, dispatch.position
            self.step()
            health = self.health()
            if not health.is_writable:
                raise NotNow("; ".join(health.reasons))
            if (marks.appended, dispatch.position) == before and not health.dispatch_behind_bytes:
                return
        raise NotNow(f"work goes on after {_ROUNDS_MAX} rounds")

    def put(self, message: Message) -> PutResult:
        """Stores one message, which can be read when this returns."""
        result = super().put(message)
        self._engine.catch_up()
        return result

    def put_batch(self, messages: Iterable[Message]) -> PutResult:
        """Stores messages of one queue together; they can be read when this returns."""
        result = super().put_batch(messages)
        self._engine.catch_up()
        return result

    def put_columns(self, table: Any) -> PutResult:
        """Stores the rows of an Arrow table; they can be read when this returns."""
        result = super().put_columns(table)
        self._engine.catch_up()
        return result


@pytest.fixture
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


@pytest.fixture
def rmq_store(rmq_store_factory: StoreFactory) -> ManualStore:
    """An empty store that a test may use as its own."""
    return rmq_store_factory()
