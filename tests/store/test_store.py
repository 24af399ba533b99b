"""What a program sees of a store: statuses, places, hooks, health, closing and opening again."""

import threading
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetStatus, Message, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import Corrupt, DurabilityLost, NotNow, Rejected, StoreClosed, StoreError, StoreInUse
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats import sys_flag
from tests.crash.disks import FailingDisk, MemoryDisk, Operation, WatchedDisk
from tests.patience import PATIENCE_S
from tests.store.opened import ASYNC, SMALL, opened


def bodies(store: Store, topic: str = "orders", queue_id: int = 0) -> list[bytes | None]:
    return [message.body for message in store.get(topic, queue_id, 0).messages]


def test_a_put_says_where_the_message_is():
    store = opened()
    clock_ms = ManualClock().ms
    first = store.put(Message("orders", b"one", tags="paid", keys=["a", "b"], queue_id=3))
    second = store.put(Message("orders", b"two", queue_id=3))
    other = store.put(Message("orders", b"three", queue_id=4))
    assert (first.status, first.physical_offset, first.queue_offset) == (PutStatus.PUT_OK, 0, 0)
    assert (first.store_timestamp_ms, first.message_count, first.is_stored) == (clock_ms, 1, True)
    assert first.msg_id == "7F00000100002A9F" + f"{0:016X}"
    assert second.physical_offset == first.size
    assert second.msg_id == f"7F00000100002A9F{first.size:016X}"
    assert (second.queue_offset, other.queue_offset) == (1, 0)
    store.flush()
    message = store.message_at(0)
    assert (message.body, message.tags, message.keys, message.queue_id) == (b"one", "paid", "a b", 3)
    assert [found.body for found in store.query("orders", "b")] == [b"one"]
    assert store.queues() == [("orders", 3), ("orders", 4)]
    assert store.bounds("orders", 3) == (0, 2)
    assert bodies(store, "orders", 3) == [b"one", b"two"]
    assert [each.body for each in store.get("orders", 3, 0, tags="paid || late").messages] == [b"one"]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (Message("no/topic", b""), PutStatus.MESSAGE_ILLEGAL),
        (Message("t" * 128, b""), PutStatus.MESSAGE_ILLEGAL),
        (Message("orders", b"", queue_id=-1), PutStatus.MESSAGE_ILLEGAL),
        (Message("orders", b"x" * 4000), PutStatus.MESSAGE_ILLEGAL),  # no file of 4096 bytes holds it
        (Message("orders", b"x" * (4 * 1024 * 1024 + 1)), PutStatus.MESSAGE_ILLEGAL),
        (Message("orders", b"", properties={"p": "x" * 32767}), PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (Message("orders", b"", properties={"p": "a\x02b"}), PutStatus.MESSAGE_ILLEGAL),
        (Message("orders", None), PutStatus.MESSAGE_ILLEGAL),  # type: ignore[arg-type]
    ],
    ids=lambda value: value.name if isinstance(value, PutStatus) else "",
)
def test_what_is_refused_stores_nothing_and_takes_no_number(message: Message, status: PutStatus):
    store = opened()
    result = store.put(message)
    assert result.status is status
    assert (result.is_stored, result.physical_offset, result.queue_offset, result.msg_id) == (False, -1, -1, "")
    after = store.put(Message("orders", b"good"))
    assert (after.status, after.queue_offset) == (PutStatus.PUT_OK, 0)
    assert store.health().is_writable


def test_no_room_for_a_log_file_is_a_status_and_passes():
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    config = replace(SMALL, preallocate=False)
    opened(config, watched).put(Message("orders", b"body"))
    assert watched.trace is not None
    at = next(each.number for each in watched.trace if each.verb == "create" and "/commitlog/" in each.path)
    store = opened(config, FailingDisk(MemoryDisk(), at, 28))
    assert store.put(Message("orders", b"body")).status is PutStatus.CREATE_MAPPED_FILE_FAILED
    result = store.put(Message("orders", b"body"))
    assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, 0)


def test_a_put_lock_that_is_held_too_long_is_a_busy_system():
    clock = ManualClock()
    asked: list[PutStatus] = []

    class Slow(WatchedDisk):
        def before(self, operation: Operation) -> None:
            """While the first message is written another thread puts one, 1.5 s later."""
            if operation.verb != "write" or "/commitlog/" not in operation.path:
                return
            clock.advance(1500)
            if not asked:
                asked.append(PutStatus.UNKNOWN_ERROR)
                other = threading.Thread(
                    target=lambda: asked.__setitem__(0, store.put(Message("orders", b"second")).status)
                )
                other.start()
                other.join()

    store = opened(ASYNC, Slow(MemoryDisk()), clock=clock)
    clock.advance(1000)
    assert store.put(Message("orders", b"first")).status is PutStatus.PUT_OK
    assert asked == [PutStatus.OS_PAGE_CACHE_BUSY]
    assert store.put(Message("orders", b"third")).queue_offset == 1


class SlowSync(WatchedDisk):
    """A disk whose syncs of the log end once `going_on` is set."""

    def __init__(self) -> None:
        super().__init__(RealFileSystem())
        self.entered, self.going_on = threading.Event(), threading.Event()

    def before(self, operation: Operation) -> None:
        if operation.verb == "sync" and "/commitlog/" in operation.path:
            self.entered.set()
            assert self.going_on.wait(PATIENCE_S)


def test_a_sync_that_takes_too_long_is_a_timeout_and_the_message_is_stored(tmp_path):
    disk = SlowSync()
    config = replace(SMALL, sync_flush_timeout_ms=50, preallocate=False)
    store = open_store(str(tmp_path / "s"), config, filesystem=disk)
    first: list[PutStatus] = []
    leader = threading.Thread(target=lambda: first.append(store.put(Message("orders", b"first")).status))
    leader.start()
    assert disk.entered.wait(PATIENCE_S)
    result = store.put(Message("orders", b"second"))
    assert (result.status, result.is_stored, result.queue_offset) == (PutStatus.FLUSH_DISK_TIMEOUT, True, 1)
    assert store.put(Message("orders", b"third", wait_store_ok=False)).status is PutStatus.PUT_OK
    with pytest.raises(NotNow, match="not confirmed"):
        store.flush()
    disk.going_on.set()
    leader.join()
    assert first == [PutStatus.PUT_OK]
    store.close()
    with open_store(str(tmp_path / "s"), SMALL) as store:
        assert bodies(store) == [b"first", b"second", b"third"]


def test_closing_while_a_sync_does_not_end_is_no_clean_end(tmp_path):
    disk = SlowSync()
    config = replace(ASYNC, sync_flush_timeout_ms=30)
    store = open_store(str(tmp_path / "s"), config, filesystem=disk, workers=False)
    store.put(Message("orders", b"body"))

    def sync() -> None:
        with suppress(StoreError):  # the store may be closed by the time it ends
            store.flush()

    leader = threading.Thread(target=sync)
    leader.start()
    assert disk.entered.wait(PATIENCE_S)
    with pytest.raises(NotNow):
        store.close()
    assert (tmp_path / "s" / "abort").exists()
    with open_store(str(tmp_path / "s"), ASYNC) as again:
        assert bodies(again) == [b"body"]
    disk.going_on.set()
    leader.join()


def test_a_batch_is_consecutive_and_in_one_file():
    store = opened()
    store.put(Message("orders", b"x" * 2500))
    result = store.put_batch([Message("orders", b"y" * 400) for _ in range(4)])
    assert (result.status, result.queue_offset, result.message_count) == (PutStatus.PUT_OK, 1, 4)
    assert result.physical_offset == 4096
    ids = result.msg_id.split(",")
    assert [int(each[16:], 16) for each in ids] == [4096 + number * (result.size // 4) for number in range(4)]
    store.flush()
    assert bodies(store) == [b"x" * 2500, *[b"y" * 400] * 4]
    with pytest.raises(Rejected):
        store.put_batch([Message("orders", b"", queue_id=0), Message("orders", b"", queue_id=1)])
    with pytest.raises(Rejected):
        store.put_batch([])
    illegal = store.put_batch([Message("orders", b"good"), Message("orders", b"x" * 4_000_000), Message("orders", b"")])
    assert illegal.status is PutStatus.MESSAGE_ILLEGAL
    assert store.put(Message("orders", b"next")).queue_offset == 5


def test_columns_are_stored_in_their_order_across_files():
    store = opened()
    count = 40
    table = pa.table({"topic": ["orders"] * count, "body": [b"%d" % row * 100 for row in range(count)],
                      "queueId": pa.array([row % 3 for row in range(count)], pa.int32())})  # fmt: skip
    result = store.put_columns(table)
    assert (result.status, result.message_count, result.physical_offset) == (PutStatus.PUT_OK, count, 0)
    store.flush()
    for queue_id in range(3):
        wanted = [b"%d" % row * 100 for row in range(queue_id, count, 3)]
        found: list[bytes | None] = []
        while (answer := store.get("orders", queue_id, len(found))).status is GetStatus.FOUND:
            found += [message.body for message in answer.messages]
        assert found == wanted
    with pytest.raises(Rejected):
        store.put_columns(pa.table({"topic": ["orders"]}))


def test_columns_answer_the_queue_offset_of_their_first_message():
    store = opened()
    for number in range(3):
        answers = {
            queue_id: store.put_columns(
                pa.table({"topic": ["orders"] * 2, "body": [b"a", b"b"], "queueId": [queue_id, 0]})
            )
            for queue_id in (1, 0)
        }
        assert {queue_id: answer.queue_offset for queue_id, answer in answers.items()} == {1: number, 0: 3 * number + 1}
    assert (
        store.put_columns(
            pa.table({"topic": pa.array([], pa.string()), "body": pa.array([], pa.binary())})
        ).queue_offset
        == -1
    )


def test_columns_that_find_no_room_say_how_many_rows_were_stored():
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    config = replace(ASYNC, preallocate=False)
    table = pa.table({"topic": ["orders"] * 40, "body": [b"x" * 1000] * 40})
    opened(config, watched).put_columns(table)
    assert watched.trace is not None
    creations = [each.number for each in watched.trace if each.verb == "create" and "/commitlog/" in each.path]
    store = opened(config, FailingDisk(MemoryDisk(), creations[3], 28))
    result = store.put_columns(table)
    assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert 0 < result.message_count < 40
    store.flush()
    assert store.bounds("orders", 0) == (0, result.message_count)
    assert store.put(Message("orders", b"next")).queue_offset == result.message_count


def test_messages_of_a_transaction_take_a_number_when_they_are_committed():
    store = opened()
    prepared = store.put(Message("orders", b"p", sys_flag=sys_flag.PREPARED))
    assert (prepared.status, prepared.queue_offset) == (PutStatus.PUT_OK, 0)
    assert store.put(Message("orders", b"c", sys_flag=sys_flag.COMMIT)).queue_offset == 0
    assert store.put(Message("orders", b"n")).queue_offset == 1
    store.flush()
    assert bodies(store) == [b"c", b"n"]
    assert store.message_at(prepared.physical_offset).body == b"p"


def test_hooks_change_and_refuse_before_anything_is_stored():
    def shout(message: Message) -> Message | PutStatus:
        if message.tags == "refuse":
            return PutStatus.OS_PAGE_CACHE_BUSY
        return replace(message, body=message.body.upper())

    seen: list[bytes] = []

    def see(message: Message) -> Message | PutStatus:
        seen.append(message.body)
        return message

    store = opened(hooks=[shout, see])
    assert store.put(Message("orders", b"one")).status is PutStatus.PUT_OK
    assert store.put(Message("orders", b"two", tags="refuse")).status is PutStatus.OS_PAGE_CACHE_BUSY
    batch = [Message("orders", b"three"), Message("orders", b"four", tags="refuse")]
    assert store.put_batch(batch).status is PutStatus.OS_PAGE_CACHE_BUSY
    assert store.put_batch(batch[:1]).queue_offset == 1
    assert seen == [b"ONE", b"THREE", b"THREE"]
    store.flush()
    assert bodies(store) == [b"ONE", b"THREE"]


def test_a_dispatcher_is_told_of_every_record_in_order_and_again_after_a_crash():
    class Follower:
        def __init__(self) -> None:
            self.offsets: list[int] = []
            self.flushes = 0

        def dispatch(self, batch) -> None:
            self.offsets += batch.offsets.tolist()

        def flush(self) -> None:
            self.flushes += 1

    disk, follower, later = MemoryDisk(), Follower(), Follower()
    store = opened(disk=disk, dispatchers=[follower])
    places = [store.put(Message("orders", b"x" * 900)).physical_offset for _ in range(8)]
    store.flush()
    assert follower.offsets == places
    opened(disk=disk.crash("lost"), dispatchers=[later])
    assert later.offsets == places
    assert later.flushes


def test_reads_at_the_edges_of_a_queue():
    store = opened()
    store.put(Message("orders", b"body"))
    store.flush()
    assert store.get("orders", 0, 1).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert store.get("orders", 0, 2).status is GetStatus.OFFSET_OVERFLOW_BADLY
    assert store.get("orders", 1, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.get("orders", 0, 0, tags="none").status is GetStatus.NO_MATCHED_MESSAGE
    answer = store.get("orders", 0, 0)
    assert (answer.status, answer.next_offset, answer.min_offset, answer.max_offset) == (GetStatus.FOUND, 1, 0, 1)


def test_times_are_found():
    clock = ManualClock()
    store = opened(clock=clock)
    for _ in range(5):
        store.put(Message("orders", b"body"))
        clock.advance(1000)
    store.flush()
    start_ms = ManualClock().ms
    assert [store.offset_at("orders", 0, start_ms + ms) for ms in (-1, 0, 1, 1000, 4000)] == [0, 0, 1, 1, 4]
    assert store.offset_at("orders", 0, start_ms + 1500, boundary="upper") == 1


@pytest.mark.parametrize("config", [SMALL, ASYNC, replace(ASYNC, pool_buffers=2)], ids=["sync", "async", "pool"])
def test_a_store_that_was_closed_goes_on_where_it_ended(config: StoreConfig):
    disk = MemoryDisk()
    wanted: list[bytes | None] = []
    for round_number in range(4):
        store = opened(config, disk)
        assert bodies(store) == wanted
        for number in range(3):
            body = b"%d %d" % (round_number, number)
            assert store.put(Message("orders", body)).queue_offset == len(wanted)
            wanted.append(body)
        store.close()
        assert not disk.exists("/store/abort")
    assert not [warning for warning in opened(config, disk).warnings if "order" in warning]


def test_an_existing_store_keeps_the_sizes_of_its_files():
    disk = MemoryDisk()
    store = opened(disk=disk)
    store.put(Message("orders", b"body"))
    store.close()
    other = replace(SMALL, log_file_size=8192, queue_file_size=400, index_item_count=50)
    store = opened(other, disk)
    for _ in range(30):
        store.put(Message("orders", b"x" * 600))
    store.close()
    sizes = {path.split("/")[2]: len(content) for path, content in disk.image().items()}
    assert (sizes["commitlog"], sizes["consumequeue"]) == (4096, 200)


def test_the_pool_holds_messages_back_until_they_are_committed():
    store = opened(replace(ASYNC, pool_buffers=2))
    assert store.put(Message("orders", b"body")).status is PutStatus.PUT_OK
    assert store.health().dispatch_behind_bytes == 0
    store.step()
    store.flush()
    assert bodies(store) == [b"body"]
    for _ in range(20):
        assert store.put(Message("orders", b"x" * 1500)).status is PutStatus.PUT_OK
    store.flush()
    assert store.bounds("orders", 0) == (0, 21)


def test_a_full_pool_fails_fast_when_it_is_told_to():
    store = opened(replace(ASYNC, pool_buffers=2, pool_fast_fail=True))
    statuses = [store.put(Message("orders", b"x" * 3000)).status for _ in range(4)]
    assert PutStatus.CREATE_MAPPED_FILE_FAILED in statuses
    store.flush()
    assert store.put(Message("orders", b"x" * 3000)).status is PutStatus.PUT_OK


def test_a_closed_store_says_so():
    store = opened()
    store.put(Message("orders", b"body"))
    store.close()
    store.close()  # once more does nothing
    assert store.put(Message("orders", b"body")).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.put_batch([Message("orders", b"body")]).status is PutStatus.SERVICE_NOT_AVAILABLE
    health = store.health()
    assert (health.is_writable, health.reasons) == (False, ("closed",))
    for ask in (
        lambda: store.get("orders", 0, 0), lambda: store.query("orders", "key"), lambda: store.message_at(0),
        lambda: store.offset_at("orders", 0, 0), store.flush, store.step,
    ):  # fmt: skip
        with pytest.raises(StoreClosed):
            ask()


def test_only_one_writer_at_a_time_and_the_second_changes_nothing():
    disk = MemoryDisk()
    store = opened(disk=disk)
    store.put(Message("orders", b"body"))
    before, operations = disk.image(), disk.operations
    with pytest.raises(StoreInUse, match="/store/lock"):
        opened(disk=disk)
    assert disk.image() == before
    assert disk.operations == operations
    store.close()
    opened(disk=disk).close()


def test_a_store_that_cannot_be_opened_lets_go_of_its_lock():
    disk = MemoryDisk()
    store = opened(disk=disk)
    for _ in range(3):
        store.put(Message("orders", b"x" * 500))
    store.close()
    path = f"/store/commitlog/{0:020d}"
    content = bytearray(disk.image()[path])
    content[120] ^= 1
    disk.put_file(path, bytes(content))
    with pytest.raises(Corrupt):
        opened(disk=disk)
    assert not disk.locks
    opened(replace(SMALL, on_middle_damage="cut"), disk)


def test_a_failed_flush_of_the_queues_ends_acknowledging_and_says_why():
    watched = WatchedDisk(MemoryDisk(), keep_trace=True)
    store = opened(ASYNC, watched)
    store.put(Message("orders", b"body"))
    store.flush()
    assert watched.trace is not None
    at = next(each.number for each in watched.trace if each.verb == "sync" and "/consumequeue/" in each.path)
    store = opened(ASYNC, FailingDisk(MemoryDisk(), at, 5))
    store.put(Message("orders", b"body"))
    with pytest.raises(DurabilityLost, match="queues and index"):
        store.flush()
    with pytest.raises(DurabilityLost):
        store.close()


def test_with_threads_a_message_is_readable_soon_and_many_threads_share_a_store(tmp_path):
    with open_store(str(tmp_path / "s"), replace(SMALL, queue_file_size=2000)) as store:

        def produce(number: int) -> None:
            for count in range(20):
                assert store.put(Message("orders", b"%d-%d" % (number, count), queue_id=number)).queue_offset == count

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.flush()
        for number in range(4):
            assert bodies(store, "orders", number) == [b"%d-%d" % (number, count) for count in range(20)]
        assert store.health().is_writable
    assert not (tmp_path / "s" / "abort").exists()


@pytest.mark.usefixtures("restless")
def test_without_threads_many_of_the_program_flush_and_step_and_each_message_is_in_its_queue_once() -> None:
    store = open_store("/s", SMALL, filesystem=MemoryDisk(), workers=False)

    def produce(number: int) -> None:
        for count in range(200):
            store.put(Message("orders", b"%d/%d" % (number, count), queue_id=0)).raise_for_status()
            store.step() if number % 2 else store.flush()

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.flush()
    assert store.health().reasons == ()
    assert store.bounds("orders", 0) == (0, 800)
    found = [store.get("orders", 0, at, 1).messages[0].body for at in range(800)]
    assert sorted(found) == sorted(b"%d/%d" % (number, count) for number in range(4) for count in range(200))
    store.close()


def test_what_a_write_does_not_expect_is_no_acknowledgement():
    class Refusing(WatchedDisk):
        def before(self, operation: Operation) -> None:
            if operation.verb == "write" and "/commitlog/" in operation.path:
                raise Rejected("not of this log")

    store = opened(StoreConfig(flush="SYNC"), Refusing(MemoryDisk()))
    with pytest.raises(Rejected):
        store.put(Message("T", b"x"))


@pytest.mark.parametrize("now_ms", [2**62, 253_402_300_800_000, -(2**61), -1])
def test_a_clock_beyond_every_calendar_stops_nothing(now_ms: int) -> None:
    store = opened(clock=ManualClock(now_ms))
    assert store.put(Message("orders", b"", keys=["k"])).is_stored
    store.flush()
    assert store.health().is_writable
    assert len(store.query("orders", "k", begin_ms=-(2**63))) == 1
    store.clean()
