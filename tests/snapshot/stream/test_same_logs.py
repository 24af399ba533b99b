"""A store that lost its newest messages, and went on: whichever queue they were of, who has read them is told."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import DataLost, Message
from rmqstore.config import StoreConfig
from rmqstore.errors import OtherLog
from rmqstore.snapshot.stream.offsets import MARKS
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

Queue = tuple[str, int]


def put(root: Path, queue: Queue, count: int, text: str) -> None:
    with rmqstore.open_store(root, StoreConfig(log_file_size=1024 * 1024)) as store:
        for number in range(count):
            message = Message(queue[0], f"{text}{number}".encode(), queue_id=queue[1])
            store.put(message).raise_for_status()


def read_all(root: Path, after: dict[str, Any] | None = None, batch_rows: int = 16_384) -> dict[str, Any]:
    """The offsets after all that is there, and after each batch before that."""
    where = {"start": "earliest"} if after is None else {"after": after}
    following = rmqstore.open_snapshot(root).follow(wait_s=0, batch_rows=batch_rows, **where)  # type: ignore[arg-type]
    for _ in following:
        pass
    return following.offsets


QUEUES: list[list[Queue]] = [
    [("orders", 0), ("orders", 1)], [("orders", 1), ("orders", 0)], [("orders", 0), ("orders", 2)],
    [("orders", 0), ("payments", 0)], [("payments", 3), ("orders", 1)],
]  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize("queues", QUEUES, ids=str)
@pytest.mark.parametrize("grown", [5, 10])
def test_a_store_from_a_backup_that_went_on_is_told(queues: list[Queue], grown: int, tmp_path: Path) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    first, second = queues
    put(root, first, 10, "A")
    put(root, second, 5, "B")
    shutil.copytree(root, backup)
    put(root, second, 5, "lost")
    offsets = read_all(root)
    shutil.rmtree(root)
    backup.rename(root)
    put(root, second, grown, "new")
    with pytest.raises(DataLost, match="another message stands there"):
        read_all(root, offsets)


def test_queues_that_are_no_longer_read_tell_nothing(tmp_path: Path) -> None:
    """The mark of a topic stands in the queue of its newest message."""
    root = tmp_path / "store"
    for queue_id in range(4):
        put(root, ("orders", queue_id), 2, "A")
    offsets = read_all(root)
    put(root, ("orders", 1), 3, "B")
    following = rmqstore.open_snapshot(root).follow(assign={"orders": [0, 1]}, after=offsets, wait_s=0)
    assert sum(batch.rows.num_rows for batch in following) == 3


@pytest.mark.some(2)
@pytest.mark.parametrize("queues", QUEUES, ids=str)
def test_it_is_told_from_offsets_in_the_middle_of_a_round(queues: list[Queue], tmp_path: Path) -> None:
    root, backup = tmp_path / "store", tmp_path / "backup"
    first, second = queues
    put(root, first, 5, "A")
    put(root, second, 5, "B")
    shutil.copytree(root, backup)
    put(root, second, 5, "lost")
    put(root, first, 5, "lost")
    following = rmqstore.open_snapshot(root).follow(start="earliest", wait_s=0, batch_rows=1)
    reached = [batch.offsets for batch in following]
    shutil.rmtree(root)
    backup.rename(root)
    for queue in queues:
        put(root, queue, 10, "new")
    for offsets in reached[:-1]:
        standing = [offsets.get(topic, {}).get("default", {}).get(str(number), 0) for topic, number in queues]
        if max(standing) <= 5:
            continue  # nothing that was lost is read there
        with pytest.raises(DataLost, match="another message stands there"):
            read_all(root, offsets)


def test_so_is_one_whose_newest_message_was_in_no_queue_yet(tmp_path: Path) -> None:
    def store(name: str, body: bytes) -> Path:
        made = SmallStore(file_size=64 * 1024)
        for number in range(6):
            made.add("T", number % 2, body=b"%d" % number)
        made.add("T", 1, body=body, dispatched=False)
        made.write(tmp_path / name)
        (tmp_path / name / "abort").touch()
        return tmp_path / name

    root, other = store("read", b"lost"), store("other", b"new!")
    offsets = read_all(root)
    assert list(offsets[MARKS]["T"].values()) != []
    shutil.rmtree(root)
    other.rename(root)
    with pytest.raises(DataLost, match="another message stands there"):
        read_all(root, offsets)


@pytest.mark.parametrize("change", ["grows", "is read on"])
def test_a_store_that_only_grew_is_the_same(change: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    steps: list[Callable[[], None]] = [
        lambda: put(root, ("orders", 0), 3, "a"), lambda: put(root, ("orders", 1), 3, "b"),
        lambda: put(root, ("payments", 0), 3, "c"), lambda: put(root, ("orders", 0), 1, "d"),
    ]  # fmt: skip
    steps[0]()
    offsets = read_all(root)
    for step in steps[1:]:
        step()
        after = read_all(root, offsets)
        offsets = after if change == "is read on" else offsets
    marked = set(read_all(root, offsets)[MARKS])
    assert marked == {"orders", "payments"}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


@pytest.mark.some(3)
@pytest.mark.parametrize("batch_rows", [2, 1000])
@pytest.mark.parametrize("grown", [0, 1, 7])
def test_who_goes_on_in_another_log_is_told_once_and_stands_in_that(
    grown: int, batch_rows: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    for queue in (("orders", 0), ("orders", 1), ("payments", 0)):
        put(root, queue, 5, "old")
    offsets = read_all(root)
    shutil.rmtree(root)
    for queue in (("orders", 1), ("orders", 0), ("payments", 0)):
        put(root, queue, 5 + grown, "new")

    def go_on(after: dict[str, Any]) -> list[dict[str, Any]]:
        following = rmqstore.open_snapshot(root).follow(
            after=after, wait_s=0, fail_on_data_loss=False, batch_rows=batch_rows
        )
        found = [batch.offsets for batch in following]
        assert following.skipped_count == 0
        assert following.offsets == (found[-1] if found else after)
        return found

    reached = go_on(offsets)
    told = warnings_of(caplog)
    assert len(told) == 2
    for topic, line in zip(("orders", "payments"), sorted(told), strict=True):
        assert line.startswith(f"{topic} of default is another log than was read up to offset 5 of queue ")
        assert "its messages before the offsets where the stream stands are passed over, and not counted" in line
    for after in reached:  # each of them has marks of the log that is there now
        assert go_on(after) is not None
        assert warnings_of(caplog) == []
        assert read_all(root, after)["$marks"].keys() == {"orders", "payments"}
    shutil.rmtree(root)
    put(root, ("orders", 0), 20, "again")
    with pytest.raises(OtherLog):
        read_all(root, reached[-1])


def test_deleted_messages_are_no_other_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, config = tmp_path, StoreConfig(log_file_size=16 * 1024, queue_file_size=2000, preallocate=False)
    with rmqstore.open_store(root, config) as store:
        for first in (0, 400):
            for number in range(first, first + 400):
                store.put(Message("orders", b"x" * 50, queue_id=number % 3 % 2)).raise_for_status()
            store.flush()
            if first == 0:
                offsets = read_all(root)
        assert store.clean(any_age=True).log_files
        following = rmqstore.open_snapshot(root).follow(after=offsets, wait_s=0, fail_on_data_loss=False)
        count = sum(batch.rows.num_rows for batch in following)
    assert count + following.skipped_count == 400
    assert following.skipped_count > 0
    assert all("deleted before" in line for line in warnings_of(caplog))


def test_a_topic_whose_newest_read_message_is_gone_and_older_ones_are_not_is_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    put(root, ("orders", 0), 5, "old")
    put(root, ("orders", 1), 5, "old")
    offsets = read_all(root)
    shutil.rmtree(root)
    put(root, ("orders", 0), 9, "new")
    for _ in rmqstore.open_snapshot(root).follow(after=offsets, wait_s=0, fail_on_data_loss=False):
        pass
    assert any(
        "the newest message that the stream has read of the topic is gone" in line for line in warnings_of(caplog)
    )
