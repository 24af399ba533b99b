"""A store is its process's own: not its children's, and not where its directory is another one by now."""

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import DurabilityLost, StoreClosed
from rmqstore.files.ownership import OwnedFileSystem, Ownership
from rmqstore.formats.broker_json import SubscriptionGroup, TopicConfig
from tests.crash.disks import MemoryDisk
from tests.store.children import in_child
from tests.store.real_store import SYNC, bodies

pytestmark = pytest.mark.stores

TABLE = pa.table({"topic": ["alpha"], "body": pa.array([b"row"], pa.binary())})


# --- fork

CALLS = {
    "put": lambda store: store.put(Message("alpha", b"child")),
    "put_batch": lambda store: store.put_batch([Message("alpha", b"child")]),
    "put_many": lambda store: store.put_many([Message("alpha", b"child")]),
    "put_each": lambda store: store.put_each([Message("alpha", b"child")]),
    "put_columns": lambda store: store.put_columns(TABLE),
    "get": lambda store: store.get("alpha", 0, 0),
    "query": lambda store: store.query("alpha", "k"),
    "offset_at": lambda store: store.offset_at("alpha", 0, 0),
    "message_at": lambda store: store.message_at(0),
    "bounds": lambda store: store.bounds("alpha", 0),
    "queues": lambda store: store.queues(),
    "flush": lambda store: store.flush(),
    "step": lambda store: store.step(),
    "clean": lambda store: store.clean(any_age=True),
    "delete_topic": lambda store: store.delete_topic("alpha"),
    "statistics": lambda store: store.statistics(),
    "slaves": lambda store: store.slaves(),
    "ha_address": lambda store: store.ha_address,
    "consumer": lambda store: store.consumer("g", "alpha"),
    "topics": lambda store: store.topics,
    "groups": lambda store: store.groups,
    "offsets": lambda store: store.offsets,
    "delay": lambda store: store.delay,
    "retries": lambda store: store.retries,
    "transactions": lambda store: store.transactions,
}


def test_every_call_has_its_line_here() -> None:
    """What is new in Store is refused in a child, too."""
    public = {name for name in vars(Store) if not name.startswith("_")}
    told = {"recovery", "warnings"}  # what its opening found: values, which a child may read
    assert public == {*CALLS, "health", "close", "abandon"} | told


def test_a_child_made_by_fork_is_refused_whatever_it_calls(tmp_path: Path) -> None:
    """And changes nothing: its parent goes on, and closes cleanly."""
    root = tmp_path / "s"
    store = open_store(str(root), SYNC)
    assert store.put(Message("alpha", b"before", keys=["k"])).queue_offset == 0
    store.flush()
    wanted = f"{root}: opened by process {os.getpid()}: open it after the fork"

    def work(tell) -> None:
        for name, call in CALLS.items():
            try:
                tell(f"{name} answered {call(store)!r}")
            except StoreClosed as refused:
                tell(f"{name}: {refused}")
        tell(f"health: {store.health().is_writable} {store.health().reasons[0]}")
        with store:
            pass
        store.close()
        store.abandon()

    assert in_child(work) == [*(f"{name}: {wanted}" for name in CALLS), f"health: False {wanted}"]
    assert (root / "abort").exists()
    assert store.put(Message("alpha", b"after")).queue_offset == 1
    store.close()
    assert not (root / "abort").exists()
    with open_store(str(root), SYNC) as again:
        assert bodies(again) == [b"before", b"after"]


def test_what_a_child_took_from_the_store_before_the_fork_is_refused_as_well(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s"), SYNC)
    store.put(Message("alpha", b"before"))
    store.flush()
    topics, groups, offsets, retries = store.topics, store.groups, store.offsets, store.retries
    transactions, consumer = store.transactions, store.consumer("g", "alpha")
    (message,) = consumer.poll()
    config = {path: path.read_bytes() for path in (tmp_path / "s" / "config").iterdir()}
    calls = {
        "topics.put": lambda: topics.put(TopicConfig("made", 1, 1)),
        "topics.remove": lambda: topics.remove("alpha"),
        "a topic on demand": lambda: topics(Message("made", b"")),
        "groups.put": lambda: groups.put(SubscriptionGroup("g", retry_max_times=9)),
        "offsets.commit": lambda: offsets.commit("g", "alpha", 0, 1),
        "consumer.commit": consumer.commit,
        "consumer.poll": consumer.poll,
        "send_back": lambda: retries.send_back("g", message),
        "prepare": lambda: transactions.prepare(Message("alpha", b"half")),
    }

    def work(tell) -> None:
        for name, call in calls.items():
            try:
                answer = call()
                tell(f"{name} answered {getattr(answer, 'status', answer)}")
            except StoreClosed:
                tell(f"{name} is refused")

    said = in_child(work)
    assert [line for line in said if not line.endswith(("is refused", "SERVICE_NOT_AVAILABLE"))] == []
    assert {path: path.read_bytes() for path in (tmp_path / "s" / "config").iterdir()} == config
    store.close()


def test_a_fork_in_the_middle_of_a_put_lets_only_the_parent_go_on(tmp_path: Path) -> None:
    """A hook that forks: its child comes back into the put."""
    said: list[str] = []

    def hook(message: Message) -> Message:
        if message.tags == "fork" and not said:

            def work(tell) -> None:
                said.append("in the child")
                try:
                    tell(store.put(Message("alpha", b"child", tags="fork")).status.name)
                except StoreClosed:
                    tell("refused")

            said.extend(in_child(work))
        return message

    with open_store(str(tmp_path / "s"), SYNC, hooks=[hook]) as store:
        assert store.put(Message("alpha", b"first")).is_stored  # so that there is a file to write to
        assert store.put(Message("alpha", b"parent", tags="fork")).queue_offset == 1
    assert said == ["refused"]


def test_a_fork_while_other_threads_put_neither_hangs_nor_harms(tmp_path: Path) -> None:
    """Locks that they hold at that moment are held in the child for ever."""
    store, stop = open_store(str(tmp_path / "s"), SYNC), threading.Event()
    acked: list[bytes] = []

    def put(number: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            body = b"%d %d" % (number, count)
            if store.put(Message("alpha", body, queue_id=number)).status is PutStatus.PUT_OK:
                acked.append(body)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()

    def work(tell) -> None:
        for call in CALLS.values():
            with pytest.raises(StoreClosed):
                call(store)
        store.close()
        tell("refused")

    try:
        assert [in_child(work) for _ in range(8)] == [["refused"]] * 8
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    store.close()
    with open_store(str(tmp_path / "s"), SYNC) as again:
        assert sorted(body for queue_id in range(3) for body in bodies(again, "alpha", queue_id)) == sorted(acked)


def test_a_child_may_open_the_store_once_its_parent_has_closed_it(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s"), SYNC)
    store.put(Message("alpha", b"parent"))
    store.close()

    def work(tell) -> None:
        with open_store(str(tmp_path / "s"), SYNC) as own:
            tell(own.put(Message("alpha", b"child")).status.name)

    assert in_child(work) == ["PUT_OK"]
    with open_store(str(tmp_path / "s"), SYNC) as again:
        assert bodies(again) == [b"parent", b"child"]


# --- another directory


@pytest.mark.parametrize("how", ["renamed", "removed", "replaced"])
def test_a_store_whose_directory_is_another_makes_nothing_there(tmp_path: Path, how: str) -> None:
    """Neither log files nor queues, index, topics or checkpoint; and says so."""
    root, moved = tmp_path / "s", tmp_path / "moved"
    store = open_store(str(root), replace(SYNC, preallocate=False), workers=False)
    for number in range(3):
        assert store.put(Message("alpha", b"%d" % number, keys=["k"])).is_stored
    store.flush()
    if how == "removed":
        shutil.rmtree(root)
    else:
        root.rename(moved)
    if how == "replaced":
        with open_store(str(root), SYNC) as other:
            for number in range(20):
                other.put(Message("alpha", b"other %d" % number))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert not store.health().is_writable
    assert "was moved, removed or replaced" in store.health().reasons[0]
    statuses = []
    for number in range(100):
        try:
            statuses.append(store.put(Message(f"t{number % 9}", b"x" * 400, keys=["k"])).status)
            store.step()
        except DurabilityLost:
            break
    assert statuses
    assert PutStatus.PUT_OK not in statuses
    with pytest.raises(DurabilityLost, match="moved, removed or replaced"):
        store.close()
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    if how != "removed":
        with open_store(str(moved), SYNC) as again:
            assert bodies(again)[:3] == [b"0", b"1", b"2"]


def test_what_goes_by_a_path_is_refused_when_the_path_leads_elsewhere() -> None:
    disk = MemoryDisk()
    disk.make_directories("/s")
    ownership = Ownership("/s", disk.lock("/s/lock"))
    owned = OwnedFileSystem(disk, ownership)
    owned.create("/s/file", 10)
    owned.open("/s/file").write(0, b"x")
    disk.remove("/s/lock")
    image = disk.image()
    for call in (
        lambda: owned.open("/s/file"), lambda: owned.create("/s/new", 10), lambda: owned.remove("/s/file"),
        lambda: owned.rename("/s/file", "/s/new"), lambda: owned.make_directories("/s/d"),
        lambda: owned.remove_directory("/s"),
    ):  # fmt: skip
        with pytest.raises(OSError, match="moved, removed or replaced"):
            call()
    assert disk.image() == image
    ownership.end()
    with pytest.raises(StoreClosed):
        owned.create("/s/new", 10)
