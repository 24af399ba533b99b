"""Stores for asyncio: puts are awaited, and those of many tasks share one write and one sync.

    async with rmqstore.aio.open_store("orders") as store:
        await store.put(Message("pears", b"42"))

The tasks that put while a sync is under way are the next batch: one thread stores it (`Store.put_many`), and wakes them
all by one call into the loop.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.config import StoreConfig
from rmqstore.core.arguments import I64_MAX
from rmqstore.core.message import GetResult, Message, PutResult
from rmqstore.engine.broker.transaction_check import Check
from rmqstore.engine.log.derived.dispatch_loop import Dispatcher
from rmqstore.engine.log.put.gate import PutHook
from rmqstore.engine.store import Store
from rmqstore.engine.store import open_store as open_blocking
from rmqstore.errors import Rejected, StoreClosed
from rmqstore.files.filesystem import FileSystem
from rmqstore.files.ownership import process_id
from rmqstore.files.reading import StorePath, canonical_path
from rmqstore.formats.message_fields import messages_of, with_own_body
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.snapshot import open_snapshot
from rmqstore.snapshot.stream.following import Following

T = TypeVar("T")
_NOT_OPEN = "it is not open: async with rmqstore.aio.open_store(…) as store"


class _Asked(NamedTuple):
    """A message that a task waits for."""

    message: Message
    waiter: asyncio.Future[PutResult]


class AsyncStore:
    """A store whose calls are awaited, in the event loop that opened it; `open_store` makes one.

    Any task may put; one closes it, as `async with` does.  `store` has everything else, and blocks.  In another event
    loop, or after its own has ended, every call but `close` raises Rejected; closed, it can be opened again.
    """

    def __init__(self, path: StorePath, opening: Callable[[], Store]) -> None:
        self._path = canonical_path(path)
        self._opening = opening
        self._store: Store | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: Future[None] | None = None
        self._opened_by = self._opening_count = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        """A loop of before may have ended with tasks that wait."""
        self._asked: list[_Asked] = []  # what the next batch has; of the loop alone, as all that follows
        self._is_due = False  # that batch begins by itself: `_begin` is called soon
        self._busy_count = 0  # batches that are under way
        self._opening_count += 1

    async def open(self) -> Self:
        """Opens the store, in a thread; what `async with` does first.  Raises as `rmqstore.open_store`."""
        if self._loop is not None and self._closing is None and self._opened_by == process_id():
            raise Rejected(f"{self._path} is open already: once for all tasks, then put")
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="rmqstore-put")  # one: batches keep their order
        self._loop, self._closing, self._opened_by = asyncio.get_running_loop(), None, process_id()
        self._begin_anew()
        opened = asyncio.wrap_future(self._threads.submit(self._open))
        opened.add_done_callback(_retrieve)  # cancelled, nobody asks for its error
        try:
            await asyncio.shield(opened)
        except BaseException:
            self._closing = self._threads.submit(self._close)  # it may be opened yet: cancelled, nobody has it
            self._threads.shutdown(wait=False)
            with suppress(asyncio.CancelledError):
                await asyncio.shield(asyncio.wrap_future(self._closing))  # so that the next one can open it
            raise
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def store(self) -> Store:
        """The store itself, whose calls block: for other threads, and for what is not here.  Raises StoreClosed."""
        if self._store is None:
            raise StoreClosed(f"{self._path}: {_NOT_OPEN}")
        return self._store

    async def put(self, message: Message) -> PutResult:
        """As Store.put.  Cancelled, the message is stored or not: not, where its batch has not begun yet."""
        loop = self._own_loop()
        if self._closing is not None:
            await self.close()
            return self.store.put(message)  # says why not
        waiter: asyncio.Future[PutResult] = loop.create_future()
        self._asked.append(_Asked(with_own_body(message), waiter))
        if not self._is_due and not self._busy_count:
            self._is_due = True
            loop.call_soon(self._begin)  # after the other tasks that run now
        return await waiter

    async def put_many(self, messages: Iterable[Message]) -> list[PutResult]:
        """As Store.put_many.  Cancelled, all are stored or none."""
        given = messages_of(messages)
        return await self._after_puts(lambda store: store.put_many(given))

    async def flush(self, timeout_s: float = 60.0) -> None:
        """As Store.flush: what was put before is durable and readable."""
        await self._after_puts(lambda store: store.flush(timeout_s))

    async def get(
        self, topic: str, queue_id: int, offset: int, max_count: int = 32, *, tags: str = "*",
        max_bytes: int | None = None,
    ) -> GetResult:  # fmt: skip
        """As Store.get."""
        self._own_loop()
        get = partial(self.store.get, topic, queue_id, offset, max_count, tags=tags, max_bytes=max_bytes)
        return await asyncio.to_thread(get)

    async def query(
        self, topic: str, key: str, max_count: int = 32, begin_ms: int = 0, end_ms: int = I64_MAX
    ) -> list[StoredMessage]:
        """As Store.query."""
        self._own_loop()
        return await asyncio.to_thread(self.store.query, topic, key, max_count, begin_ms, end_ms)

    def follow(self, topics: Sequence[str] | None = None, **options: Any) -> Following:
        """Batches of messages as they come, for `async for`: `Snapshot.follow` of this store, with its options."""
        self._own_loop()
        return open_snapshot(self.store.path).follow(topics, **options)

    async def close(self) -> None:
        """As Store.close: what tasks wait for is stored and answered first.  Any event loop; again does nothing."""
        if self._loop is None or self._opened_by != process_id():  # after a fork it is the parent's to close
            return
        if self._closing is None:
            self._submit_asked()
            self._closing = self._threads.submit(self._close)
            self._threads.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs, if it is the store's.  Raises Rejected, StoreClosed."""
        running = asyncio.get_running_loop()
        if self._loop is None:
            raise StoreClosed(f"{self._path}: {_NOT_OPEN}")
        if self._opened_by != process_id():
            self.store.flush()  # raises: a child has no store
        if running is not self._loop:
            raise Rejected(
                f"{self._path} was opened in another event loop: open it in the one that uses it (each asyncio.run is "
                "one of its own), or use `store` from there, which blocks"
            )
        return running

    async def _after_puts(self, call: Callable[[Store], T]) -> T:
        """The answer of a call that comes after what was put before."""
        self._own_loop()
        store = self.store
        if self._closing is not None:
            await self.close()
            return call(store)  # says why not
        self._submit_asked()
        return await asyncio.wrap_future(self._threads.submit(call, store))

    def _begin(self) -> None:
        self._is_due = False
        if not self._busy_count:
            self._submit_asked()

    def _submit_asked(self) -> None:
        """Has the thread store what tasks wait for, but for those that were cancelled."""
        asked, self._asked = [each for each in self._asked if not each.waiter.done()], []
        if asked:
            self._busy_count += 1
            self._threads.submit(self._put, asked, self._opening_count)

    def _answer(
        self, asked: Sequence[_Asked], answers: Sequence[PutResult | Exception], opening: int
    ) -> None:  # fmt: skip
        """Wakes the tasks of a batch, and begins the next one after whatever they put at once."""
        for (_, waiter), answer in zip(asked, answers, strict=True):
            if waiter.done():
                continue  # cancelled
            if isinstance(answer, Exception):
                waiter.set_exception(_bearable(answer))
            else:
                waiter.set_result(answer)
        if opening != self._opening_count:
            return  # the store was closed, and opened again in another loop
        self._busy_count -= 1
        if self._loop is not None and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._begin)

    # In the thread.

    def _open(self) -> None:
        self._store = self._opening()

    def _put(self, asked: Sequence[_Asked], opening: int) -> None:
        answers: Sequence[PutResult | Exception]
        try:
            answers = self.store.put_each([each.message for each in asked])
        except BaseException as error:  # noqa: BLE001  whatever it is, those who wait have to hear of it
            answers = [_bearable(error)] * len(asked)
        with suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            asked[0].waiter.get_loop().call_soon_threadsafe(self._answer, asked, answers, opening)

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()


def _bearable(error: BaseException) -> Exception:
    """An error as a task can be given it: StopIteration, and what would end or cancel the task, in another's words."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    told = RuntimeError(f"the put raised {error!r}")
    told.__cause__ = error
    return told


def _retrieve(future: "asyncio.Future[None]") -> None:
    if not future.cancelled():
        future.exception()


def open_store(
    path: StorePath,
    config: StoreConfig | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    filesystem: FileSystem | None = None,
    hooks: Sequence[PutHook] = (),
    dispatchers: Sequence[Dispatcher] = (),
    check: Check | None = None,
) -> AsyncStore:
    """A store for asyncio, opened by `async with` (or `await store.open()`); arguments as of `rmqstore.open_store`.

    Hooks, dispatchers and `check` are called in threads, not in the loop.
    """
    named: Mapping[str, Any] = {
        "clock": clock, "filesystem": filesystem, "hooks": hooks, "dispatchers": dispatchers, "check": check,
    }  # fmt: skip
    return AsyncStore(path, partial(open_blocking, path, config, **named))
