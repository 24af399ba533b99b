"""A topic that was deleted is gone for good: for the store, for a crash at any moment, and for readers beside it."""

import errno
import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.errors import Rejected, StoreClosed, StoreError
from rmqstore.files.filesystem import join
from rmqstore.formats.broker_json import TopicConfig
from rmqstore.formats.deleted_topics import read_deleted_topics
from rmqstore.formats.message import Record, read_record
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE
from rmqstore.log.deleted_topics import note_path
from rmqstore.log.recovery.planner import plan_recovery
from rmqstore.message import Message, PutStatus
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.store import Store, open_store
from rmqstore.testing import Probe
from tests.crash.disks import FailingDisk, MemoryDisk, WatchedDisk

pytestmark = pytest.mark.stores

ROOT = "/store"
CONFIG = StoreConfig(flush="SYNC", log_file_size=4096, queue_file_size=200, index_slot_count=5, index_item_count=9)


def opened(disk, config: StoreConfig = CONFIG) -> Store:
    return open_store(ROOT, config, clock=ManualClock(), filesystem=disk, workers=False)


def bodies(store: Store, topic: str = "gone", queue_id: int = 0) -> list[bytes | None]:
    low, high = store.bounds(topic, queue_id)
    found = []
    while low < high:
        answer = store.get(topic, queue_id, low)
        found += [message.body for message in answer.messages]
        low = answer.next_offset
    return found


def filled(disk, *, flushed: bool = True) -> Store:
    store = opened(disk)
    for number in range(6):
        store.put(Message("gone", b"old %d" % number, keys="k", queue_id=number % 2))
        store.put(Message("kept", b"kept %d" % number))
    if flushed:
        store.flush()
    return store


def noted(disk) -> dict[str, int]:
    path = note_path(ROOT)
    return {topic: one.log_end for topic, one in read_deleted_topics(disk.image()[path]).items()} \
        if disk.exists(path) else {}  # fmt: skip


def size_and_body(disk: MemoryDisk, offset: int) -> tuple[int, bytes]:
    """Of the record at an offset of the first log file; nothing where none stands."""
    found = read_record(memoryview(disk.image()[join(ROOT, "commitlog", format_start(0))]), offset)
    return (found.size, found.body) if isinstance(found, Record) else (0, b"")


def laid(disk: MemoryDisk, root: Path) -> Path:
    """The store of a disk in memory as files."""
    for path, content in disk.image().items():
        target = root / path.removeprefix(f"{ROOT}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return root


def read(root: Path, topic: str = "gone", **how) -> list[bytes]:
    """What a reader of the files finds, in the order of the log."""
    snapshot = rmqstore.open_snapshot(root)
    if topic not in snapshot.queues()["topic"].to_pylist():
        return []
    rows = snapshot.scan(topics=[topic], columns=["body", "physicalOffset"], **how).read_all()
    return rows.sort_by("physicalOffset")["body"].to_pylist()


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("choice", ["killed", "lost", "kept"])
def test_a_crash_does_not_bring_a_topic_back(flushed: bool, choice: str):
    disk = MemoryDisk()
    store = filled(disk, flushed=flushed)
    assert store.delete_topic("gone")
    again = disk.crash(choice)
    for _ in range(3):
        store = opened(again)
        assert bodies(store) == []
        assert store.topics.find("gone") is None
        assert [queue for queue in store.queues() if queue[0] == "gone"] == []
        assert bodies(store, "kept") == [b"kept %d" % number for number in range(6)]
        again = again.crash("killed")


def test_a_clean_end_does_not_bring_a_topic_back_either():
    disk = MemoryDisk()
    store = filled(disk)
    assert store.delete_topic("gone")
    store.close()
    assert plan_recovery(disk, ROOT, CONFIG).changes_nothing
    assert bodies(opened(disk)) == []


@pytest.mark.parametrize("dispatched", [True, False])
def test_a_topic_that_is_made_again_begins_at_0_and_holds_what_came_since(dispatched: bool):
    disk = MemoryDisk()
    store = filled(disk)
    store.delete_topic("gone")
    assert [store.put(Message("gone", b"new %d" % number)).queue_offset for number in range(2)] == [0, 1]
    if dispatched:
        store.flush()
    for choice in ("killed", "lost", "kept"):
        again = disk.crash(choice)
        store = opened(again)
        assert store.bounds("gone", 0) == (0, 2)
        assert bodies(store) == [b"new 0", b"new 1"]
        store.close()
        assert plan_recovery(again, ROOT, CONFIG).changes_nothing
        assert bodies(opened(again)) == [b"new 0", b"new 1"]


def test_a_topic_is_deleted_again_and_again():
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(4):
        store.put(Message("gone", b"%d" % number))
        assert store.delete_topic("gone")
        assert not store.delete_topic("gone")
    store.put(Message("gone", b"last"))
    assert bodies(opened(disk.crash("killed"))) == [b"last"]


def test_an_unknown_topic_is_none_and_writes_nothing():
    disk = MemoryDisk()
    store = filled(disk)
    before = disk.image()
    assert not store.delete_topic("never")
    assert not store.delete_topic("%LMQ%never")
    assert disk.image() == before


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                                   "TBW102", "rmq_sys_wheel_timer"])  # fmt: skip
def test_what_the_store_goes_by_is_not_deleted(topic: str):
    store = opened(MemoryDisk())
    store.put(Message("orders", b"later", properties={"DELAY": "1"}))
    with pytest.raises(Rejected, match="cannot be deleted, nor in RocketMQ"):
        store.delete_topic(topic)
    store.flush()
    assert store.delay.pending_count == 1


def test_retry_and_light_topics_are_topics():
    disk = MemoryDisk()
    config = StoreConfig(flush="SYNC", multi_dispatch=True, log_file_size=4096, queue_file_size=200)
    store = opened(disk, config)
    store.put(Message("orders", b"one", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}))
    store.put(Message("%RETRY%group", b"again"))
    store.flush()
    assert store.delete_topic("%LMQ%a")
    assert store.delete_topic("%RETRY%group")
    store.put(Message("orders", b"two", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}))
    again = opened(disk.crash("killed"), config)
    assert bodies(again, "orders") == [b"one", b"two"]
    assert (bodies(again, "%LMQ%a"), bodies(again, "%LMQ%b")) == ([b"two"], [b"one", b"two"])
    assert bodies(again, "%RETRY%group") == []


def test_queues_of_whole_batches_do_not_come_back():
    disk = MemoryDisk()
    config = StoreConfig(flush="SYNC", log_file_size=4096, queue_file_size=200)
    store = opened(disk, config)
    attributes = {"queue.type": "BatchCQ"}
    for body in (b"old", b"new"):
        store.topics.put(TopicConfig("gone", 1, 1, attributes=attributes))
        store.put_batch([Message("gone", body), Message("gone", body)])
        store.flush()
        if body == b"old":
            assert store.delete_topic("gone")
            assert bodies(opened(disk.crash("killed"), config)) == []
    assert bodies(opened(disk.crash("killed"), config)) == [b"new", b"new"]


def test_what_groups_consumed_of_it_is_forgotten_for_good():
    disk = MemoryDisk()
    store = filled(disk)
    with store.consumer("billing", "gone") as consumer:
        assert len(consumer.poll(32)) == 6
    assert store.offsets.committed("billing", "gone", 0) == 3
    store.delete_topic("gone")
    again = opened(disk.crash("lost"))
    assert again.offsets.committed("billing", "gone", 0) is None


def test_what_is_deleted_is_found_by_key_and_place_until_it_expires():
    """As in RocketMQ: both go by the log, where the messages are."""
    disk = MemoryDisk()
    store = filled(disk)
    store.delete_topic("gone")
    store = opened(disk.crash("killed"))
    assert len(store.query("gone", "k")) == 6
    assert store.message_at(0).body == b"old 0"


def test_the_note_goes_with_the_messages():
    disk = MemoryDisk()
    store = filled(disk)
    store.delete_topic("gone")
    end = Probe(store).log_end
    assert noted(disk) == {"gone": end}
    while Probe(store).log_end < 3 * 4096:
        store.put(Message("kept", b"x" * 500))
    store.flush()
    assert store.clean(any_age=True).log_files
    assert Probe(store).log_start >= end
    store.close()
    opened(disk).close()
    assert not disk.exists(note_path(ROOT))
    assert plan_recovery(disk, ROOT, CONFIG).changes_nothing


def test_a_log_that_ends_before_the_note_takes_new_messages_of_the_topic():
    """It was cut at damage, or a disk lost what it had promised: what comes there now is new."""
    disk = MemoryDisk()
    store = filled(disk)
    cut = store.put(Message("gone", b"in the way", queue_id=7)).physical_offset
    store.put(Message("kept", b"behind"))
    store.delete_topic("gone")
    store.close()
    file = disk.open(join(ROOT, "commitlog", format_start(cut // 4096 * 4096)))
    file.write(cut % 4096 + 90, b"\xff" * 20)
    config = StoreConfig(flush="SYNC", on_middle_damage="cut", log_file_size=4096, queue_file_size=200)
    store = opened(disk, config)
    assert store.recovery.log_end == cut
    assert noted(disk) == {"gone": cut}
    store.put(Message("gone", b"new"))
    assert bodies(opened(disk.crash("killed"), config)) == [b"new"]


def test_what_a_broker_dispatched_again_is_there_and_nothing_before_it():
    """RocketMQ knows nothing of the note: after an abnormal end of its own it brings back what it reads."""
    disk = MemoryDisk()
    store = filled(disk)
    old = [path for path in disk.image() if "/consumequeue/gone/" in path]
    entries = {path: disk.image()[path] for path in old}
    store.delete_topic("gone")
    store.close()
    for path, content in entries.items():
        disk.put_file(path, content)
    store = opened(disk)
    assert bodies(store) == [b"old 0", b"old 2", b"old 4"]
    assert store.put(Message("gone", b"more")).queue_offset == 3
    disk = disk.crash("killed")
    store = opened(disk)
    assert bodies(store) == [b"old 0", b"old 2", b"old 4", b"more"]
    assert store.delete_topic("gone")
    assert bodies(opened(disk.crash("killed"))) == []


def test_what_a_broker_dispatched_again_in_part_begins_there():
    """Its recovery begins with a file of the log: what stands before it stays deleted, whatever is built anew."""
    disk = MemoryDisk()
    store = filled(disk)
    store.delete_topic("gone")
    store.close()
    path = f"{ROOT}/consumequeue/gone/0/{format_start(0)}"
    offset = next(at for at in range(4096) if size_and_body(disk, at)[1] == b"old 2")
    size, _ = size_and_body(disk, offset)
    blank, entry = struct.pack(">qiq", 0, PRE_BLANK_SIZE, 0), struct.pack(">qiq", offset, size, 0)
    disk.put_file(path, (blank + entry).ljust(200, b"\0"))
    for _ in range(2):
        store = opened(disk)
        assert (bodies(store), bodies(store, queue_id=1)) == ([b"old 2", b"old 4"], [b"old 3", b"old 5"])
        assert store.bounds("gone", 0) == store.bounds("gone", 1) == (1, 3)
        assert noted(disk) == {"gone": offset}
        disk = disk.crash("killed")


def test_a_note_that_cannot_be_read_is_told():
    disk = MemoryDisk()
    filled(disk).close()
    disk.put_file(note_path(ROOT), b'{"deletedTopics":')
    store = opened(disk)
    assert any("deletedTopics.json cannot be read" in warning for warning in store.warnings)
    assert bodies(store) == [b"old 0", b"old 2", b"old 4"]


def test_the_plan_says_which_topics_are_deleted():
    disk = MemoryDisk()
    store = filled(disk)
    store.delete_topic("gone")
    plan = plan_recovery(disk, ROOT, CONFIG)
    end = Probe(store).log_end
    assert plan.as_dict()["deletedTopics"] == {"gone": {"logEnd": end, "isPending": False}}
    said = " ".join(" ".join(plan.lines()).split())
    assert f"gone: its messages before {end} of the commitlog are in no queue" in said
    json.dumps(plan.as_dict())


class Moments(WatchedDisk):
    """Takes what a crash before each operation leaves, each image once."""

    def __init__(self, inner: MemoryDisk) -> None:
        super().__init__(inner)
        self.taken: list[MemoryDisk] = []
        self.is_on = False
        self._seen: set[int] = set()

    def before(self, operation) -> None:
        for choice in ("lost", "kept", "killed") if self.is_on else ():
            image = self.inner.crash(choice)
            if (key := hash(frozenset(image.image().items()))) not in self._seen:
                self._seen.add(key)
                self.taken.append(image)


def moments_of_a_deletion(after: Callable[[Store], object] = lambda _: None, *, flushed: bool = True) -> Moments:
    moments = Moments(MemoryDisk())
    store = filled(moments, flushed=flushed)
    moments.is_on = True
    store.delete_topic("gone")
    after(store)
    return moments


@pytest.mark.parametrize("flushed", [True, False])
def test_a_crash_at_each_operation_leaves_the_topic_whole_or_gone(flushed: bool):
    taken = moments_of_a_deletion(flushed=flushed).taken
    assert len(taken) > 10
    seen = set()
    for image in taken:
        store = opened(image)
        held = [bodies(store, queue_id=queue_id) for queue_id in (0, 1)]
        assert held in ([[], []], [[b"old 0", b"old 2", b"old 4"], [b"old 1", b"old 3", b"old 5"]])
        assert (store.topics.find("gone") is None) == (held == [[], []])
        assert bodies(store, "kept") == [b"kept %d" % number for number in range(6)]
        seen.add(bool(held[0]))
        before = image.image()
        opened(image.crash("killed"))
        assert {path: data for path, data in image.image().items() if "abort" not in path} == {
            path: data for path, data in before.items() if "abort" not in path
        }
        assert store.put(Message("gone", b"new")).queue_offset == len(held[0])
    assert seen == {False, True}


@pytest.mark.some(3)
@pytest.mark.parametrize("mode", ["queue", "commitlog", "auto"])
@pytest.mark.parametrize("flushed", [True, False])
def test_readers_see_at_each_operation_what_the_next_opening_does(tmp_path: Path, flushed: bool, mode: str):
    def made_again(store: Store) -> None:
        store.put(Message("gone", b"new 0"))
        store.put(Message("gone", b"new 1"))
        store.flush()

    taken = moments_of_a_deletion(made_again, flushed=flushed).taken
    for number, image in enumerate(taken):
        root = laid(image, tmp_path / str(number))
        found = read(root, scan_mode=mode)
        store = opened(image)
        wanted = sorted(body for queue_id in (0, 1) for body in bodies(store, queue_id=queue_id) if body)
        assert sorted(found) == wanted, number
        assert read(root, "kept", scan_mode=mode) == [b"kept %d" % number for number in range(6)]


def test_a_stream_does_not_see_a_deleted_topic_again(tmp_path: Path):
    store = open_store(tmp_path, CONFIG, workers=False)
    store.put(Message("gone", b"old"))
    store.flush()
    ends = StreamEnds(str(tmp_path))
    assert ("gone", 0) in ends.look().stores[0].queues
    store.delete_topic("gone")
    assert ("gone", 0) not in ends.look().stores[0].queues
    store.put(Message("kept", b"more"))
    assert ("gone", 0) not in ends.look().stores[0].queues
    store.put(Message("gone", b"new"))
    queue = ends.look().stores[0].queues["gone", 0]
    assert (queue.min_offset, queue.max_offset) == (0, 1)
    store.close()


@pytest.mark.some(3)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("forever", [True, False])
def test_a_disk_that_fails_leaves_the_topic_there_or_gone(error: int, forever: bool):
    """After an OSError, and a repetition or a new start: nothing is in between."""
    counter = WatchedDisk(MemoryDisk())
    store = filled(counter)
    first = counter.operations + 1
    store.delete_topic("gone")
    outcomes = set()
    for at in range(first, counter.operations + 1):
        for repeats in (False, True):
            disk = MemoryDisk()
            failing = FailingDisk(disk, at, error, forever)
            store = filled(failing)
            try:
                store.delete_topic("gone")
            except (OSError, StoreError):
                outcomes.add("failed")
                there = [len(bodies(store, queue_id=queue_id)) for queue_id in (0, 1)]
                assert there in ([0, 0], [3, 3])
            if repeats and not forever and store.put(Message("kept", b"x")).status is PutStatus.PUT_OK:
                store.delete_topic("gone")
                outcomes.add("repeated")
                assert [len(bodies(opened(disk.crash("killed")), queue_id=queue)) for queue in (0, 1)] == [0, 0]
            for choice in ("lost", "killed"):
                again = opened(disk.crash(choice))
                held = [len(bodies(again, queue_id=queue_id)) for queue_id in (0, 1)]
                assert held in ([0, 0], [3, 3])
                assert (again.topics.find("gone") is None) == (held == [0, 0])
    assert outcomes >= {"failed"} | (set() if forever else {"repeated"})


def test_a_store_that_is_closed_deletes_nothing():
    """Also not for a caller that had come as far as to ask: the directory may be somebody else's by then."""
    disk = MemoryDisk()
    store = filled(disk)
    store.close()
    before = disk.image()
    with pytest.raises(StoreClosed):
        Probe(store).engine.features.deletion.delete("gone")
    assert disk.image() == before
