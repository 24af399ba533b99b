"""Stores that are followed: every message once, in its queue's order, from any offsets that came with a batch."""

import asyncio
import json
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqstore import Message, Snapshot, Store, StoreConfig, open_snapshot, open_store
from rmqstore.clock import SYSTEM_CLOCK, ManualClock
from rmqstore.errors import Corrupt, DataLost, Rejected, UnknownTopic
from rmqstore.snapshot.stream import ends as stream_ends
from rmqstore.snapshot.stream import following as followed
from rmqstore.snapshot.stream.following import Following

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=16 * 1024, queue_file_size=2000, index_slot_count=20, index_item_count=60)
Row = tuple[str, int, int, bytes]


def put(store: Store, topic: str, first: int, count: int, tags: str = "") -> None:
    for number in range(first, first + count):
        assert store.put(Message(topic, b"%d" % number, queue_id=number % 3, tags=tags or "ab"[number % 2])).is_stored
    store.flush()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", CONFIG) as one:
        put(one, "orders", 0, 30)
        yield one


@pytest.fixture
def snapshot(store: Store) -> Snapshot:
    return open_snapshot(store.path)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    names = ("topic", "queueId", "queueOffset", "body")
    return list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))


def rows(following: Following) -> list[Row]:
    return [row for batch in following for row in rows_of(batch.rows)]


def scanned(store: Store, **how: Any) -> list[Row]:
    return sorted(rows_of(open_snapshot(store.path).scan(**how).read_all().combine_chunks()))


def require_in_order(found: list[Row]) -> None:
    """Rows of a queue rise, each once."""
    for place in {row[:2] for row in found}:
        offsets = [row[2] for row in found if row[:2] == place]
        assert offsets == sorted(set(offsets))


def test_all_that_is_there_and_then_what_came_since(store: Store, snapshot: Snapshot) -> None:
    first = snapshot.follow(["orders"], start="earliest", wait_s=0)
    assert sorted(rows(first)) == scanned(store)
    put(store, "orders", 30, 12)
    later = snapshot.follow(["orders"], after=json.loads(json.dumps(first.offsets)), wait_s=0)
    assert sorted(int(body) for _, _, _, body in rows(later)) == list(range(30, 42))
    assert rows(snapshot.follow(["orders"], after=later.offsets, wait_s=0)) == []


def test_it_begins_with_what_comes_from_now_on(store: Store, snapshot: Snapshot) -> None:
    following = snapshot.follow(["orders"], wait_s=0.001, poll_s=0.001)
    put(store, "orders", 30, 3)
    assert sorted(int(row[3]) for row in rows(following)) == [30, 31, 32]


def test_what_is_chosen_is_that_of_a_scan(store: Store, snapshot: Snapshot) -> None:
    put(store, "payments", 0, 9)
    put(store, "SCHEDULE_TOPIC_XXXX", 0, 1)
    for how in (
        {"pattern": "pay.*"}, {"assign": {"orders": [1]}}, {"topics": ["orders"], "tags": "a"}, {},
        {"pattern": ".*", "include_system_topics": True}, {"topics": ["orders"], "start": {"orders": 5}},
    ):  # fmt: skip
        following = snapshot.follow(**({"start": "earliest", "wait_s": 0} | how))
        assert sorted(rows(following)) == scanned(store, **how), how


def test_columns_are_those_that_were_asked_for(snapshot: Snapshot) -> None:
    following = snapshot.follow(["orders"], start="earliest", wait_s=0, columns=["body", "queueId"], batch_rows=7)
    batches = list(following)
    assert {batch.rows.schema for batch in batches} == {following.schema}
    assert following.schema.names == ["body", "queueId"]
    assert sum(batch.rows.num_rows for batch in batches) == 30


@pytest.mark.some(5)
@pytest.mark.parametrize("seed", range(6))
def test_whoever_goes_on_from_any_batch_has_every_message_once(store: Store, seed: int) -> None:
    """A reader that is given up in the middle, again and again, beside a writer whose topics and files come."""
    chance = random.Random(seed)
    snapshot, number, found = open_snapshot(store.path), 30, list[Row]()
    how: dict[str, Any] = {"pattern": ".*", "batch_rows": chance.choice([1, 4, 1000])}
    if seed % 2:
        how["tags"] = "a"
    offsets = snapshot.follow(start="earliest", wait_s=0, **how).offsets
    for turn in range(25):
        count = chance.randrange(12)
        put(store, f"topic{chance.randrange(turn // 5 + 1)}", number, count)
        number += count
        following = snapshot.follow(after=json.loads(json.dumps(offsets)), wait_s=0, **how)
        for batch in following:
            found += rows_of(batch.rows)
            offsets = batch.offsets
            if chance.random() < 0.3:
                break
    found += rows(snapshot.follow(after=offsets, wait_s=0, **how))
    require_in_order(found)
    assert sorted(found) == scanned(store, **{name: how[name] for name in how if name != "batch_rows"})


def test_offsets_move_though_nothing_that_is_wanted_came(store: Store, snapshot: Snapshot) -> None:
    following = snapshot.follow(["orders"], tags="nothing", wait_s=0.001, poll_s=0.001)
    began = following.offsets
    put(store, "orders", 30, 3)
    (batch,) = following
    assert batch.rows.num_rows == 0
    assert batch.rows.schema == following.schema
    assert batch.offsets == following.offsets != began


def test_a_failure_leaves_it_where_it_was(store: Store, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = followed.read_split, [2]

    def failing(*how: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(*how):
            if left[0] == 0:
                left[0] = -1
                raise KeyboardInterrupt
            left[0] -= left[0] > 0
            yield batch

    monkeypatch.setattr(followed, "read_split", failing)
    following, found = snapshot.follow(["orders"], start="earliest", wait_s=0, batch_rows=5), list[Row]()

    def read() -> None:
        for batch in following:
            found.extend(rows_of(batch.rows))

    with pytest.raises(KeyboardInterrupt):
        read()
    read()
    require_in_order(found)
    assert sorted(found) == scanned(store)


def test_deleted_messages_are_an_error_or_counted(store: Store, snapshot: Snapshot) -> None:
    offsets = snapshot.follow(["orders"], start="earliest").offsets
    put(store, "orders", 30, 700)
    assert store.clean(any_age=True).log_files
    held = open_snapshot(store.path).queues()
    assert min(held["minOffset"].to_pylist()) > 0
    with pytest.raises(DataLost, match="deleted before"):
        next(snapshot.follow(["orders"], after=offsets, wait_s=0))
    following = snapshot.follow(["orders"], after=offsets, wait_s=0, fail_on_data_loss=False)
    assert sorted(rows(following)) == scanned(store)
    assert following.skipped_count == sum(held["minOffset"].to_pylist())


@pytest.mark.parametrize("start", ["group:billing", 4, {"orders": {"0": 4, "1": 4, "2": 4}}])
def test_deleted_messages_after_the_place_that_a_start_names_are_counted_and_told(
    store: Store, snapshot: Snapshot, caplog: pytest.LogCaptureFixture, start: Any
) -> None:
    """They were an error or nothing at all."""
    consumer = store.consumer("billing", "orders")
    assert len(consumer.poll(max_count=12)) == 12
    consumer.commit()
    put(store, "orders", 30, 700)
    assert store.clean(any_age=True).log_files
    gone = sum(open_snapshot(store.path).queues()["minOffset"].to_pylist()) - 12
    start = {"orders": start} if start == 4 else start
    with pytest.raises(DataLost, match="deleted"):
        snapshot.follow(["orders"], start=start, wait_s=0)
    following = snapshot.follow(["orders"], start=start, wait_s=0, fail_on_data_loss=False)
    assert sorted(rows(following)) == scanned(store)
    assert following.skipped_count == gone > 0
    assert "are skipped" in caplog.text
    assert snapshot.follow(["orders"], start="earliest", wait_s=0, fail_on_data_loss=False).skipped_count == 0


def test_a_run_that_ends_before_what_is_not_whole_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copy of a killed store that has just come: its damage is not known as such for half a minute."""
    with open_store(tmp_path, CONFIG) as store:
        put(store, "orders", 0, 300)
    (tmp_path / "abort").touch()
    shutil.rmtree(tmp_path / "consumequeue")
    second = sorted((tmp_path / "commitlog").iterdir())[1]
    second.write_bytes(bytes(100) + second.read_bytes()[100:])
    rows(open_snapshot(tmp_path).follow(["orders"], start="earliest", wait_s=0))
    assert "byte 16384 of its log is not whole, and more stands after it" in caplog.text


def test_lost_newest_files_of_a_killed_store_that_rests_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading on from the end of the log met nothing unsound: the rest came, and no error."""
    with open_store(tmp_path, CONFIG) as store:
        put(store, "orders", 0, 700)
    (tmp_path / "abort").touch()
    files = [path for path in sorted((tmp_path / "commitlog").iterdir()) if any(path.read_bytes())]
    for path in sorted((tmp_path / "commitlog").iterdir()):
        if path >= files[-2]:
            path.unlink()
    monkeypatch.setattr(stream_ends, "SYSTEM_CLOCK", ManualClock(SYSTEM_CLOCK.now_ms() + 60_000))
    with pytest.raises(Corrupt, match="is missing or empty, and messages were in it"):
        open_snapshot(tmp_path).scan().read_all()
    with pytest.raises(Corrupt, match="is missing or empty, and messages were in it"):
        list(open_snapshot(tmp_path).follow(["orders"], start="earliest", wait_s=0))
    kept = rows(open_snapshot(tmp_path).follow(["orders"], start="earliest", wait_s=0, on_corrupt_record="skip"))
    assert 0 < len(kept) < 700


def test_another_store_in_the_same_place_is_an_error_or_gone_on_with(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG) as one:
        put(one, "orders", 0, 9)
    snapshot = open_snapshot(root)
    offsets = list(snapshot.follow(["orders"], start="earliest", wait_s=0))[-1].offsets
    shutil.rmtree(root)
    with open_store(root, CONFIG) as one:
        put(one, "orders", 100, 30)
        with pytest.raises(DataLost, match="another message stands there"):
            next(snapshot.follow(["orders"], after=offsets, wait_s=0))
        assert len(rows(snapshot.follow(["orders"], after=offsets, wait_s=0, fail_on_data_loss=False))) == 21


def test_a_topic_that_was_made_again_meanwhile_is_an_error(store: Store, snapshot: Snapshot) -> None:
    put(store, "payments", 0, 9)
    offsets = list(snapshot.follow(start="earliest", wait_s=0))[-1].offsets
    assert store.delete_topic("payments")
    put(store, "payments", 100, 30)
    with pytest.raises(DataLost, match=r"payments.*made again"):
        list(snapshot.follow(after=offsets, wait_s=0))


@pytest.mark.parametrize("count", [7, 10, 30])
@pytest.mark.parametrize("replaced", ["topic", "store"])
def test_it_is_noticed_from_the_offsets_in_the_middle_of_a_round_too(tmp_path: Path, count: int, replaced: str) -> None:
    root = tmp_path / "store"
    with open_store(root, CONFIG) as one:
        for number in range(10):
            one.put(Message("T", b"%d" % number, queue_id=0))
        one.flush()
        snapshot = open_snapshot(root)
        following = snapshot.follow(["T"], start="earliest", wait_s=0, batch_rows=3)
        offsets = [next(following).offsets for _ in range(2)][-1]
        assert offsets["T"] == {"default": {"0": 6}}
        assert one.delete_topic("T")
        if replaced == "topic":
            for number in range(count):
                one.put(Message("T", b"new %d" % number, queue_id=0))
            one.flush()
    if replaced == "store":
        shutil.rmtree(root)
        with open_store(root, CONFIG) as one:
            for number in range(count):
                one.put(Message("T", b"new %d" % number, queue_id=0))
    with pytest.raises(DataLost, match="another message stands there"):
        list(snapshot.follow(["T"], after=offsets, wait_s=0))


def test_messages_that_are_deleted_while_they_are_read_are_counted(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as one:
        put(one, "orders", 0, 700)
        following = open_snapshot(tmp_path).follow(
            ["orders"], start="earliest", wait_s=0, batch_rows=10, fail_on_data_loss=False
        )
        found = [row for _ in range(3) for row in rows_of(next(following).rows)]
        assert one.clean(any_age=True).log_files
        found += rows(following)
        require_in_order(found)
        assert len(found) < 700
        assert len(found) + following.skipped_count == 700


def test_messages_are_counted_that_were_gone_before_and_that_go_meanwhile(store: Store, snapshot: Snapshot) -> None:
    offsets = snapshot.follow(["orders"], start="earliest").offsets
    for _ in range(600):  # in a queue that comes meanwhile
        assert store.put(Message("orders", b"new", queue_id=7)).is_stored
    store.flush()
    assert store.clean(any_age=True).log_files
    put(store, "orders", 30, 700)
    following = snapshot.follow(["orders"], after=offsets, wait_s=0, batch_rows=10, fail_on_data_loss=False)
    found = [row for _ in range(3) for row in rows_of(next(following).rows)]
    before = following.skipped_count
    assert before > 0
    assert store.clean(any_age=True).log_files
    found += rows(following)
    require_in_order(found)
    assert following.skipped_count > before
    assert len(found) + following.skipped_count == 30 + 600 + 700


def _read_some(store: Store, after: dict[str, Any] | None, batch_count: int) -> tuple[int, dict[str, Any]]:
    """So many batches from some offsets on: how many messages came or were gone, and the offsets that were reached."""
    how = {"start": "earliest"} if after is None else {"after": after}
    following = open_snapshot(store.path).follow(["orders"], wait_s=0, batch_rows=10, fail_on_data_loss=False, **how)
    count = sum(batch.rows.num_rows for _, batch in zip(range(batch_count), following, strict=False))
    return count + following.skipped_count, following.offsets


def _passed(offsets: dict[str, Any]) -> int:
    return sum(offsets["orders"]["default"].values())


@pytest.mark.parametrize("read_after", [1, 8, 10, 11, 12, 13, 14, 15, 16, 20])
def test_whoever_leaves_after_a_gap_has_it_counted(store: Store, read_after: int) -> None:
    """Messages that go while a round is read were counted at its end alone."""
    put(store, "orders", 30, 670)
    following = open_snapshot(store.path).follow(
        ["orders"], start="earliest", wait_s=0, batch_rows=10, fail_on_data_loss=False
    )
    count = sum(next(following).rows.num_rows for _ in range(3))
    assert store.clean(any_age=True).log_files
    count += sum(batch.rows.num_rows for _, batch in zip(range(read_after), following, strict=False))
    assert count + following.skipped_count == _passed(following.offsets)
    rest, offsets = _read_some(store, following.offsets, 10_000)
    assert count + following.skipped_count + rest == _passed(offsets) == 700


@pytest.mark.parametrize("read_between", [1, 2, 3, 10_000])
def test_whoever_leaves_before_a_queue_came_counts_its_gap_once(store: Store, read_between: int) -> None:
    """It was counted where the round was planned, and again where the next one was."""
    for queue_id, count in ((7, 300), (8, 300), (7, 50), (8, 50)):
        for number in range(count):
            assert store.put(Message("orders", b"%d" % number, queue_id=queue_id)).is_stored
    store.flush()
    total, offsets = _read_some(store, None, 4)
    assert total == _passed(offsets) < 40
    assert store.clean(any_age=True).log_files
    for batch_count in (read_between, 10_000):
        count, offsets = _read_some(store, offsets, batch_count)
        total += count
        assert total == _passed(offsets)
    assert total > 600


def test_a_new_topic_whose_beginning_is_gone_is_read_from_what_it_has(store: Store, snapshot: Snapshot) -> None:
    """In whatever steps: a queue that has to wait is none that came to a topic which was read already."""
    offsets = snapshot.follow(pattern=".*", start="earliest").offsets
    put(store, "later", 0, 30)
    for _ in range(600):
        assert store.put(Message("later", b"new", queue_id=7)).is_stored
    store.flush()
    assert store.clean(any_age=True).log_files
    put(store, "later", 30, 30)
    store.flush()
    there = open_snapshot(store.path).select(["later"])
    assert len(there) > 1
    assert all(queue.start for queue in there)
    found: list[dict[str, Any]] = []
    while True:
        following = snapshot.follow(pattern="later", after=offsets, wait_s=0, batch_rows=10)
        batch = next(following, None)
        if batch is None:
            break
        found += rows_of(batch.rows)
        offsets = batch.offsets
    require_in_order(found)
    assert len(found) == sum(queue.end - queue.start for queue in there)


def test_mistakes_are_told_at_once(snapshot: Snapshot) -> None:
    with pytest.raises(UnknownTopic):
        snapshot.follow(["order"])
    with pytest.raises(Rejected, match="after"):
        snapshot.follow(["orders"], after={"orders": 5})
    with pytest.raises(Rejected, match="looks like seconds"):
        snapshot.follow(["orders"], start_time=1795000000)
    with pytest.raises(Rejected, match="wait_s"):
        snapshot.follow(["orders"], wait_s=-1)


def test_another_thread_ends_it(snapshot: Snapshot) -> None:
    following = snapshot.follow(["orders"], poll_s=3600)
    ending = threading.Thread(target=following.stop)
    ending.start()
    assert list(following) == []
    ending.join()


def test_it_waits_for_what_comes(store: Store, snapshot: Snapshot) -> None:
    following = snapshot.follow(["orders"], poll_s=0.001)
    putting = threading.Thread(target=put, args=(store, "orders", 30, 2))
    putting.start()
    found: list[Row] = []
    while len(found) < 2:
        found += rows_of(next(following).rows)
    putting.join()
    assert sorted(int(row[3]) for row in found) == [30, 31]


def test_tasks_wait_in_their_loop_and_lose_nothing_when_they_are_cancelled(store: Store, snapshot: Snapshot) -> None:
    following = snapshot.follow(["orders"], start="earliest", wait_s=0.05, poll_s=0.001, batch_rows=4)
    found: list[Row] = []

    async def read(most: int) -> None:
        async for batch in following:
            found.extend(rows_of(batch.rows))
            if len(found) >= most:
                return

    async def cancelled() -> None:
        task = asyncio.create_task(read(1000))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await read(10)

    asyncio.run(cancelled())
    put(store, "orders", 30, 5)
    asyncio.run(read(1000))  # in a loop of its own
    require_in_order(found)
    assert sorted(found) == scanned(store)


def test_a_snapshot_is_refreshed_and_stays_itself_while_nothing_is_new(store: Store, snapshot: Snapshot) -> None:
    later = snapshot.refresh()
    assert later.refresh() is later
    put(store, "orders", 30, 5)
    assert later.refresh().scan(["orders"]).read_all().num_rows == 35
    assert snapshot.scan(["orders"]).read_all().num_rows == 30
    assert repr(later.refresh()).startswith("<Snapshot ")
    whole = open_snapshot(store.path, include_uncommitted=True)
    put(store, "orders", 35, 5)
    assert whole.refresh().scan(["orders"]).read_all().num_rows == 40


def test_what_is_there_now_is_all_of_it_however_many_rounds_it_takes(
    store: Store, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "_ROUND_BYTES", 500)
    assert sorted(rows(snapshot.follow(start="earliest", wait_s=0))) == scanned(store)
