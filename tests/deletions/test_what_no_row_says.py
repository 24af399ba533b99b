"""Of deletions what a row of the table cannot say: the note itself, what else goes, damage, and what is refused."""

import json
import struct
from pathlib import Path

import pytest

from rmqstore import Corrupt, open_snapshot, open_store
from rmqstore.config import HaConfig, StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.log.deleted_topics import save_deleted_topics
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.errors import Rejected, StoreClosed
from rmqstore.formats.deleted_topics import DeletedTopic, read_deleted_topics
from rmqstore.formats.message import Record, read_record
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE
from rmqstore.replica.following.follower import Follower, ForeignRecord
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.replica import Replica
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk
from tests.deletions.following import fed, gone_on, held_by, log_of, replica_on
from tests.deletions.histories import CONFIG, HISTORIES, NOTE, ROOT, Play, held, opened
from tests.deletions.reading import MODES, rows_in

pytestmark = pytest.mark.stores

LOG = f"{ROOT}/commitlog/{format_start(0)}"
FILLED = "put old 6 t/0,1 | put kept 6 o/0 | flush"
LIGHT = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}


def noted(disk: MemoryDisk) -> dict[str, int]:
    return {topic: one.log_end for topic, one in read_deleted_topics(disk.image()[NOTE]).value.items()}


def changed(disk: MemoryDisk, at: int, change: bytes) -> None:
    data = bytearray(disk.image()[LOG])
    data[at : at + len(change)] = change
    disk.put_file(LOG, bytes(data))


def test_a_note_of_nothing_is_gone_durably() -> None:
    disk = MemoryDisk()
    save_deleted_topics(disk, ROOT, {"t": DeletedTopic(9)})
    assert read_deleted_topics(disk.crash("lost").image()[NOTE]).value == {"t": DeletedTopic(9)}
    save_deleted_topics(disk, ROOT, {})
    assert disk.crash("lost").image() == {}


def test_an_unknown_topic_is_none_and_writes_nothing() -> None:
    play = Play(FILLED)
    before = play.memory.image()
    assert not play.store.delete_topic("never")
    assert not play.store.delete_topic("%LMQ%never")
    assert play.memory.image() == before


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                                   "TBW102", "rmq_sys_wheel_timer"])  # fmt: skip
def test_what_the_store_goes_by_is_not_deleted(topic: str) -> None:
    store = Play().store
    store.put(Message("orders", b"later", properties={"DELAY": "1"}))
    with pytest.raises(Rejected, match="cannot be deleted, nor in RocketMQ"):
        store.delete_topic(topic)
    store.flush()
    assert store.delay.pending_count == 1


def test_a_light_topic_goes_alone() -> None:
    disk, config = MemoryDisk(), StoreConfig(flush="SYNC", multi_dispatch=True, log_file_size=4096, queue_file_size=200)
    store = opened(disk, config)
    store.put(Message("orders", b"one", properties=LIGHT, queue_id=0))
    store.flush()
    assert store.delete_topic("%LMQ%a")
    store.put(Message("orders", b"two", properties=LIGHT, queue_id=0))
    again = opened(disk.crash("killed"), config)
    found = {
        key: [again.get(*key, at, 1).messages[0].body for at in range(*again.bounds(*key))] for key in again.queues()
    }
    assert found == {("orders", 0): [b"one", b"two"], ("%LMQ%a", 0): [b"two"], ("%LMQ%b", 0): [b"one", b"two"]}


def test_what_groups_consumed_of_it_is_forgotten_for_good() -> None:
    play = Play(FILLED)
    with play.store.consumer("billing", "t") as consumer:
        assert len(consumer.poll(32)) == 6
    assert play.store.offsets.committed("billing", "t", 0) == 3
    play.go_on("delete t | crash lost")
    assert play.store.offsets.committed("billing", "t", 0) is None


def test_what_is_deleted_is_found_by_key_and_place_until_it_expires() -> None:
    """As in RocketMQ: both go by the log, where the messages are."""
    play = Play(f"{FILLED} | delete t | crash killed")
    assert len(play.store.query("t", "k")) == 6
    assert play.store.message_at(0).body == b"old 0"


def test_the_note_goes_with_the_messages() -> None:
    play = Play(f"{FILLED} | delete t")
    end = play.log_end
    assert noted(play.memory) == {"t": end}
    while play.log_end < 3 * 4096:
        play.go_on("put kept 9 o/0")
    play.store.flush()
    assert play.store.clean(any_age=True).log_files
    assert play.store.get("o", 0, play.store.bounds("o", 0)[0]).messages[0].physical_offset >= end
    play.go_on("close | open | close")
    assert not play.memory.exists(NOTE)
    assert plan_recovery(play.disk, ROOT, CONFIG).changes_nothing


def test_a_log_that_ends_before_the_note_takes_new_messages_of_the_topic() -> None:
    """It was cut at damage, or a disk lost what it had promised: what comes there now is new."""
    play = Play(FILLED)
    cut = play.log_end
    play.go_on("put way 1 t/7 | put behind 1 o/0 | delete t | close")
    changed(play.memory, cut + 90, b"\xff" * 20)
    config = StoreConfig(flush="SYNC", on_middle_damage="cut", log_file_size=4096, queue_file_size=200)
    store = opened(play.disk, config)
    assert store.recovery.log_end == cut
    assert noted(play.memory) == {"t": cut}
    store.put(Message("t", b"new 0", queue_id=0))
    assert held(opened(play.memory.crash("killed"), config)) == {("t", 0): [b"new 0"], **play.wanted("kept")}


def test_what_a_broker_dispatched_again_in_part_begins_there() -> None:
    """Its recovery begins with a file of the log: what stands before it stays deleted, whatever is built anew."""
    play = Play(f"{FILLED} | delete t | close")
    log = memoryview(play.memory.image()[LOG])
    found = [(at, record) for at in range(4096) if isinstance(record := read_record(log, at), Record)]
    offset, size = next((at, record.size) for at, record in found if record.body == b"old 2")
    blank, entry = struct.pack(">qiq", 0, PRE_BLANK_SIZE, 0), struct.pack(">qiq", offset, size, 0)
    disk = play.memory
    disk.put_file(f"{ROOT}/consumequeue/t/0/{format_start(0)}", (blank + entry).ljust(200, b"\0"))
    for _ in range(2):
        store = opened(disk)
        assert store.bounds("t", 0) == store.bounds("t", 1) == (1, 3)
        there = [[each.body for each in store.get("t", queue_id, 1).messages] for queue_id in (0, 1)]
        assert there == [[b"old 2", b"old 4"], [b"old 3", b"old 5"]]
        assert noted(disk) == {"t": offset}
        disk = disk.crash("killed")


def test_another_queue_s_file_lowers_no_note() -> None:
    """Its entries lead to older records, and say nothing of what a broker brought back."""
    play = Play(f"{FILLED} | delete t | put new 4 t/0,1 | flush")
    disk, before = play.end("killed"), noted(play.memory)
    of_t, of_o = (f"{ROOT}/consumequeue/{topic}/0/{format_start(0)}" for topic in ("t", "o"))
    image = disk.image()
    disk.put_file(of_t, image[of_o])
    disk.put_file(of_o, image[of_t])
    assert held(opened(disk)) == play.wanted("new kept")
    assert noted(disk) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("again", ["", " | put new 24 t/0,1"])
def test_another_queue_s_file_brings_no_row_back(again: str, end: str, mode: str) -> None:
    """Its entries stand in front of the topic's deleted messages: readers that pass over damage show none of these."""
    play = Play(f"put kept 30 o/0 | put old 30 t/0,1 | flush | delete t{again} | put x 1 p/0 | flush")
    disk = play.end(end)
    of_t, of_o = (f"{ROOT}/consumequeue/{topic}/0/{format_start(0)}" for topic in ("t", "o"))
    disk.put_file(of_t, disk.image()[of_o])
    snapshot = open_snapshot(ROOT, disk=disk)
    with pytest.raises(Corrupt):
        snapshot.scan(["t"], scan_mode=mode).read_all()
    for policy, columns in ("skip", ["body"]), ("null", ["body", "corruptReason"]):
        rows = snapshot.scan(["t"], columns=columns, scan_mode=mode, on_corrupt_record=policy).read_all().to_pylist()
        sound = [row["body"] for row in rows if not row.get("corruptReason")]
        assert not [body for body in sound if body.startswith(b"old")]


def test_a_note_that_cannot_be_read_is_told() -> None:
    play = Play(f"{FILLED} | close")
    play.memory.put_file(NOTE, b'{"deletedTopics":')
    store = opened(play.disk)
    assert any("deletedTopics.json cannot be read" in warning for warning in store.warnings)
    assert held(store) == play.wanted("old kept")


def test_the_plan_says_which_topics_are_deleted() -> None:
    play = Play(f"{FILLED} | delete t")
    plan = plan_recovery(play.disk, ROOT, CONFIG)
    assert plan.as_dict()["deletedTopics"] == {"t": {"logEnd": play.log_end, "isPending": False}}
    said = " ".join(" ".join(plan.lines()).split())
    assert f"t: its messages before {play.log_end} of the commitlog are in no queue" in said
    json.dumps(plan.as_dict())


def test_a_store_that_is_closed_deletes_nothing() -> None:
    """Also not for a caller that had come as far as to ask: the directory may be somebody else's by then."""
    play = Play(f"{FILLED} | close")
    before = play.memory.image()
    with pytest.raises(StoreClosed):
        Probe(play.store).engine.features.deletion.delete("t")
    assert play.memory.image() == before


@pytest.mark.parametrize("bit", range(3))
def test_a_record_that_names_another_queue_is_no_proof_of_a_deletion(bit: int) -> None:
    """It stands in front of that queue's first message, and its own queue's entry points at it."""
    play = Play("put first 1 t/0 | put body 40 t/0,1,2,3,4,5,6,7 | flush | close")
    at = 4 + 4 + 4 + 3  # of its first record the queue id's last byte: behind size, magic and CRC of the body
    changed(play.memory, at, bytes([play.memory.image()[LOG][at] ^ 1 << bit]))
    for mode in MODES:
        with pytest.raises(Corrupt):
            rows_in(play.memory, ["t"], mode)
        table = open_snapshot(ROOT, disk=play.memory).scan(["t"], scan_mode=mode, on_corrupt_record="skip").read_all()
        assert table.num_rows in (40, 41)


def test_a_record_that_names_another_topic_is_no_proof_of_a_deletion() -> None:
    """It stands in front of that topic's first message; a queue of the topic is lost, and its messages are there."""
    play = Play("put first 1 u/0 | put lost 1 t/1 | put second 1 t/0 | put more 1 u/0 | flush | close")
    changed(play.memory, play.memory.image()[LOG].index(b"\x01u") + 1, b"t")  # the topic, behind its length
    play.go_on("lose consumequeue/t/1")
    for mode in MODES:
        table = open_snapshot(ROOT, disk=play.memory).scan(["t"], scan_mode=mode, on_corrupt_record="skip").read_all()
        assert b"lost 0" in table["body"].to_pylist()


@pytest.mark.parametrize("portion", [150, 1000, 1 << 20])
@pytest.mark.parametrize("count", [2, 30])
def test_a_replica_may_begin_in_the_middle_of_the_old_messages(count: int, portion: int) -> None:
    """Their numbers are not 0, and the first new one comes in the same portion."""
    play = Play(f"put old 60 t/0 | delete t | put new {count} t/0")
    engine = replica_on(MemoryDisk(), 4096)
    fed(Follower(engine, lambda: None), log_of(play)[4096:], portion)
    engine.catch_up()
    assert held_by(engine) == play.wanted("new")


def test_a_single_record_that_says_0_is_no_new_beginning() -> None:
    """The next one of its queue does not go on from there: it is damaged, and the old messages stay."""
    play = Play("put old 4 t/0")
    engine = replica_on(MemoryDisk())
    gone_on(engine, log_of(play))
    end = play.log_end
    data = bytearray(log_of(play.go_on("put old 2 t/0"))[end:])
    at = 4 + 4 + 4 + 4 + 4  # queue offset: behind size, magic, CRC of the body, queue id and flag
    assert int.from_bytes(data[at : at + 8]) == 4
    data[at : at + 8] = bytes(8)
    follower = Follower(engine, lambda: None)
    follower.take(bytes(data))
    with pytest.raises(ForeignRecord, match="at number 0, but the next one does not"):
        follower.append()
    engine.catch_up()
    assert held_by(engine) == {("t", 0): play.put["t", 0][:4]}


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", MODES)
def test_readers_of_a_replica_see_what_those_of_its_master_see(tmp_path: Path, mode: str) -> None:
    """While it runs, after a clean end, and where the note of the deletion is lost."""

    def rows(root: Path) -> list[tuple[str, int, int, bytes]]:
        table = open_snapshot(root).scan(scan_mode=mode).read_all()
        names = ("topic", "queueId", "queueOffset", "body")
        return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))

    config = StoreConfig(log_file_size=4096, queue_file_size=400, ha=HaConfig(listen="127.0.0.1:0"))
    with open_store(tmp_path / "m", config) as store:
        play = Play(f"{HISTORIES['in other queues'].steps} | {HISTORIES['in all queues'].steps} | flush", store=store)
        wanted = rows(tmp_path / "m")
        assert len(wanted) == 7
        assert store.ha_address is not None
        with Replica(tmp_path / "r", BareMaster(store.ha_address, 4096)) as replica:
            replica.run(lambda state: state.log_end >= play.log_end)
            replica.finish()
            assert rows(tmp_path / "r") == wanted
    assert rows(tmp_path / "r") == wanted
    (tmp_path / "r" / "config" / "deletedTopics.json").unlink()
    assert rows(tmp_path / "r") == wanted
