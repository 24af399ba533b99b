"""Stores for asyncio: what tasks are answered, whatever else happens to them, to their loop and to the store."""

import asyncio
import gc
import os
import threading
import warnings
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import aio
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.log.put.watermarks import Watermarks
from rmqstore.errors import DurabilityLost, Rejected, StoreClosed, StoreInUse, WrongType
from rmqstore.files.filesystem import RealFileSystem
from tests.crash.disks import BreakingDisk
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(flush="SYNC", log_file_size=1 << 20, preallocate=False)
PEAR = Message("pears", b"pear", tags="ripe", keys=["k"])


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def patient() -> Any:
        return await asyncio.wait_for(work, PATIENCE_S)

    return asyncio.run(patient())


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "s")


class Gate:
    """A hook that keeps the thread which puts until it is opened."""

    def __init__(self) -> None:
        self.stands, self.opened = threading.Event(), threading.Event()

    def __call__(self, message: Message) -> Message:
        if message.tags == "slow":
            self.stands.set()
            assert self.opened.wait(PATIENCE_S)
        return message


def bodies_in(path: str) -> list[bytes]:
    with rmqstore.open_store(path, CONFIG) as store:
        store.flush()
        places = range(store.bounds("pears", 0)[1])
        return [bytes(store.get("pears", 0, place, 1).messages[0].body or b"") for place in places]


def test_puts_of_many_tasks_are_all_stored_and_share_syncs(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> tuple[list[PutResult], int]:
        async with aio.open_store(path, CONFIG) as store:
            syncs = list[int]()
            sync_to = Watermarks.sync_to
            counted = lambda marks, end, *more: syncs.append(end) or sync_to(marks, end, *more)  # noqa: E731
            monkeypatch.setattr(Watermarks, "sync_to", counted)
            answers = await asyncio.gather(*[store.put(replace(PEAR, body=b"%d" % each)) for each in range(200)])
            return answers, len(syncs)

    answers, syncs = run(work())
    assert [answer.status for answer in answers] == [PutStatus.PUT_OK] * 200
    assert [answer.queue_offset for answer in answers] == list(range(200))
    assert syncs == 1
    assert bodies_in(path) == [b"%d" % each for each in range(200)]


def test_tasks_that_put_again_and_again_keep_their_order(path: str) -> None:
    async def task(store: aio.AsyncStore, name: int) -> None:
        for number in range(20):
            (await store.put(replace(PEAR, body=b"%d.%d" % (name, number)))).raise_for_status()

    async def work() -> None:
        async with aio.open_store(path, CONFIG) as store:
            await asyncio.gather(*[task(store, name) for name in range(8)])

    run(work())
    found = bodies_in(path)
    assert len(found) == len(set(found)) == 160
    for name in range(8):
        own = [int(body.split(b".")[1]) for body in found if body.startswith(b"%d." % name)]
        assert own == list(range(20))


def test_a_refusal_and_a_wrong_type_are_their_own_tasks_matter(path: str) -> None:
    async def work() -> list[Any]:
        async with aio.open_store(path, CONFIG) as store:
            wrong: Any = replace(PEAR, tags=["a"])
            stranger: Any = "text"
            puts = [PEAR, replace(PEAR, topic="a/b"), wrong, stranger, PEAR]
            return await asyncio.gather(*map(store.put, puts), return_exceptions=True)

    answers = run(work())
    assert [type(answer) for answer in answers] == [PutResult, PutResult, WrongType, WrongType, PutResult]
    assert [answers[at].queue_offset for at in (0, 4)] == [0, 1]
    assert answers[1].status is PutStatus.MESSAGE_ILLEGAL
    assert bodies_in(path) == [b"pear"] * 2


def test_put_many_flush_get_query_and_follow(path: str) -> None:
    async def work() -> None:
        async with aio.open_store(path, CONFIG) as store:
            first = asyncio.ensure_future(store.put(replace(PEAR, body=b"first")))
            await asyncio.sleep(0)
            answers = await store.put_many(replace(PEAR, body=b"%d" % each) for each in range(300))
            assert [answer.queue_offset for answer in answers] == list(range(1, 301))
            assert (await first).queue_offset == 0
            await store.flush()
            assert (await store.get("pears", 0, 7, 1, tags="ripe")).messages[0].body == b"6"
            assert len(await store.query("pears", "k", 5)) == 5
            count = 0
            async for batch in store.follow(["pears"], start="earliest", wait_s=0):
                count += batch.rows.num_rows
            assert count == 301
            with pytest.raises(WrongType):
                await store.put_many([PEAR, replace(PEAR, body="text")])  # type: ignore[arg-type]
            assert (await store.put(PEAR)).queue_offset == 301

    run(work())


@pytest.mark.parametrize("is_stored", [False, True], ids=["before its batch began", "while it is stored"])
def test_a_task_that_is_cancelled_harms_no_other(path: str, is_stored: bool) -> None:
    gate = Gate()

    async def work() -> PutResult:
        async with aio.open_store(path, CONFIG, hooks=[gate]) as store:
            slow = asyncio.create_task(store.put(replace(PEAR, body=b"slow", tags="slow")))
            await asyncio.to_thread(gate.stands.wait, PATIENCE_S)
            late = asyncio.create_task(store.put(replace(PEAR, body=b"late")))
            await asyncio.sleep(0)
            cancelled, other = (slow, late) if is_stored else (late, slow)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            gate.opened.set()
            assert (await other).status is PutStatus.PUT_OK
            return await store.put(replace(PEAR, body=b"next"))

    assert run(work()).status is PutStatus.PUT_OK
    assert bodies_in(path) == ([b"slow", b"late", b"next"] if is_stored else [b"slow", b"next"])


def test_what_tasks_wait_for_when_the_store_is_closed_is_stored_and_answered(path: str) -> None:
    gate = Gate()

    async def work() -> list[Any]:
        store = await aio.open_store(path, CONFIG, hooks=[gate]).open()
        puts = [asyncio.create_task(store.put(replace(PEAR, tags="slow")))]
        await asyncio.to_thread(gate.stands.wait, PATIENCE_S)
        puts += [asyncio.create_task(store.put(PEAR)) for _ in range(5)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        puts.append(asyncio.create_task(store.put(PEAR)))  # too late
        await asyncio.sleep(0)
        gate.opened.set()
        await closing
        await store.close()
        return [answer.status for answer in await asyncio.gather(*puts)]

    assert run(work()) == [PutStatus.PUT_OK] * 6 + [PutStatus.SERVICE_NOT_AVAILABLE]
    assert bodies_in(path) == [b"pear"] * 6


def test_a_store_of_another_loop_says_so_and_can_be_closed(path: str) -> None:
    store = aio.open_store(path, CONFIG)

    async def opened() -> None:
        await store.open()
        await store.put(PEAR)

    async def used() -> None:
        for call in (store.put(PEAR), store.put_many([PEAR]), store.get("pears", 0, 0), store.flush()):
            with pytest.raises(Rejected, match="was opened in another event loop"):
                await call
        with pytest.raises(Rejected, match="another event loop"):
            store.follow()
        with pytest.raises(Rejected, match="is open already"):
            await store.open()

    run(opened())
    run(used())
    assert store.store.put(PEAR).is_stored  # from any thread, and without a loop
    run(store.close())
    assert bodies_in(path) == [b"pear"] * 2


def test_a_store_is_used_from_a_second_loop_while_its_own_runs(path: str) -> None:
    async def work() -> None:
        async with aio.open_store(path, CONFIG) as store:
            found: list[BaseException] = []

            def other() -> None:
                try:
                    asyncio.run(store.put(PEAR))  # type: ignore[arg-type]
                except Rejected as error:
                    found.append(error)

            await asyncio.to_thread(other)
            assert len(found) == 1
            assert (await store.put(PEAR)).queue_offset == 0

    run(work())


def test_a_loop_that_ends_while_puts_are_under_way_leaves_a_store_that_can_be_closed(path: str) -> None:
    gate = Gate()
    store = aio.open_store(path, CONFIG, hooks=[gate])

    async def left() -> None:
        await store.open()
        store_it = asyncio.create_task(store.put(replace(PEAR, tags="slow")))
        await asyncio.to_thread(gate.stands.wait, PATIENCE_S)
        del store_it

    run(left())
    gate.opened.set()
    run(store.close())
    assert bodies_in(path) == [b"pear"]


def test_a_store_can_be_opened_in_one_run_after_the_other(path: str) -> None:
    store = aio.open_store(path, CONFIG)

    async def work() -> int:
        async with store:
            return (await store.put(PEAR)).queue_offset

    assert [run(work()), run(work())] == [0, 1]


def test_a_store_that_was_not_opened_says_so(path: str) -> None:
    store = aio.open_store(path, CONFIG)
    for call in (store.put(PEAR), store.get("pears", 0, 0), store.put_many([PEAR])):
        with pytest.raises(StoreClosed, match="async with"):
            run(call)
    with pytest.raises(StoreClosed, match="async with"):
        store.store.health()
    run(store.close())


def test_a_store_that_cannot_be_opened_says_why_and_may_be_opened_later(path: str) -> None:
    store = aio.open_store(path, CONFIG)

    async def work() -> PutResult:
        with rmqstore.open_store(path, CONFIG), pytest.raises(StoreInUse):
            await store.open()
        async with store:
            return await store.put(PEAR)

    assert run(work()).is_stored


def test_an_opening_that_is_cancelled_leaves_no_store_open(path: str) -> None:
    async def work() -> None:
        opening = asyncio.create_task(aio.open_store(path, CONFIG).open())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        again = aio.open_store(path, replace(CONFIG, busy_timeout_ms=1001))
        while True:
            try:
                await again.open()
                break
            except StoreInUse:
                await asyncio.sleep(0)
        await again.close()

    run(work())


def test_a_disk_that_fails_is_told_to_all_that_wait(path: str) -> None:
    async def work() -> list[Any]:
        disk = BreakingDisk(RealFileSystem())
        async with aio.open_store(path, CONFIG, filesystem=disk) as store:
            await store.put(PEAR)
            disk.broken = "/commitlog/"
            return await asyncio.gather(*[store.put(PEAR) for _ in range(5)], return_exceptions=True)

    with pytest.raises(DurabilityLost):  # of the end
        run(work())


def test_puts_leave_nothing_to_the_collector(path: str) -> None:
    """No cycle for each: a service that puts all day would stop for them again and again."""

    async def work() -> int:
        async with aio.open_store(path, replace(CONFIG, flush="ASYNC")) as store:
            await store.put(PEAR)
            gc.collect()
            gc.disable()
            try:
                for _ in range(50):
                    await store.put(PEAR)
                return gc.collect()
            finally:
                gc.enable()

    assert run(work()) < 50


def test_an_error_of_one_message_is_its_own(tmp_path: Path) -> None:
    tags = iter(["a"])

    def stamp(message: Message) -> Message:
        if message.topic == "ends":
            next(tags)
        if message.topic == "cancels":
            raise asyncio.CancelledError
        return message

    async def main() -> None:
        async with aio.open_store(tmp_path / "s", CONFIG, hooks=[stamp]) as store:
            gone = memoryview(b"abc")
            gone.release()
            topics = ("t", "ends", "ends", "t")
            found = await asyncio.gather(*(store.put(Message(topic, b"x")) for topic in topics), return_exceptions=True)
            assert [type(each) for each in found] == [PutResult, PutResult, RuntimeError, PutResult]
            found = await asyncio.gather(
                *(store.put(Message("t", body)) for body in (b"1", gone, b"2")), return_exceptions=True
            )
            assert [type(each) for each in found] == [PutResult, ValueError, PutResult]
            with pytest.raises(RuntimeError, match="CancelledError"):
                await store.put(Message("cancels", b"x"))
            assert (await asyncio.wait_for(store.put(Message("t", b"3")), PATIENCE_S)).is_stored

    asyncio.run(main())


def test_a_loop_that_ended_while_tasks_waited_leaves_nothing_behind(tmp_path: Path) -> None:
    store = aio.open_store(tmp_path / "s", CONFIG)

    async def first(steps: int) -> None:
        await store.open()
        waiting = asyncio.ensure_future(store.put(Message("t", b"2")))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not waiting.done()

    async def second() -> None:
        await store.close()
        async with store:
            assert (await asyncio.wait_for(store.put(Message("t", b"3")), PATIENCE_S)).is_stored

    for steps in (0, 1, 2):
        asyncio.run(first(steps))
        asyncio.run(second())


def test_a_buffer_may_be_filled_again_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.open_store(tmp_path / "s", CONFIG) as store:
            buffer, puts = bytearray(4), []
            for number in range(3):
                buffer[:] = b"%04d" % number
                puts.append(asyncio.ensure_future(store.put(Message("t", buffer))))
                await asyncio.sleep(0)
            await asyncio.gather(*puts)
            await store.flush()
            found = await store.get("t", 0, 0)
            assert [each.body for each in found.messages] == [b"0000", b"0001", b"0002"]

    asyncio.run(main())


def test_in_a_child_made_by_fork_it_is_closed_and_close_does_nothing(tmp_path: Path) -> None:
    async def child(store: aio.AsyncStore) -> None:
        for call in (store.put(Message("t", b"1")), store.put_many([Message("t", b"1")]), store.flush()):
            with pytest.raises(StoreClosed):
                await call
        await asyncio.wait_for(store.close(), PATIENCE_S)

    store = aio.open_store(tmp_path / "s", CONFIG)
    asyncio.run(store.open())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
        process = os.fork()
    if not process:
        status = 1
        try:
            asyncio.run(child(store))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(process, 0)[1] == 0
    run(store.close())
    with rmqstore.open_store(tmp_path / "s", CONFIG):
        pass  # nobody has it


def test_an_opening_that_is_cancelled_is_undone_when_it_raises(tmp_path: Path) -> None:
    async def main() -> None:
        for number in range(20):
            store = aio.open_store(tmp_path / "s", CONFIG)
            opening = asyncio.ensure_future(store.open())
            for _ in range(40 * number):  # it is cancelled at other moments of its way
                await asyncio.sleep(0)
            opening.cancel()
            with suppress(asyncio.CancelledError):
                await opening
            await store.close()
            async with aio.open_store(tmp_path / "s", CONFIG):
                pass

    asyncio.run(main())
