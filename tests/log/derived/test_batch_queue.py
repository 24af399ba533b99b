"""Queues of whole batches: put, read from any place, recovered, expired; RocketMQ's own bytes."""

import struct
from dataclasses import replace

import pytest

from rmqstore.core.message import GetStatus, Message, PutStatus
from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.engine.log.derived.batch_queue import BatchQueue
from rmqstore.errors import Rejected
from rmqstore.files.file_sequence import FileHandles
from rmqstore.formats import sys_flag
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.inner_batch import Piece, encode_pieces
from rmqstore.formats.names import ABORT_FILE
from tests.crash.disks import MemoryDisk
from tests.golden.cases import STORE_CASES, load_expected
from tests.log.queue_kinds_golden import put_again, rebuilt_golden
from tests.log.queue_kinds_store import KINDS, ROOT, KindsStore, derived, rebuilt, write_some

pytestmark = pytest.mark.stores

GOLDEN = QueueKinds(batch_file_size=920, is_batch_topic=lambda topic: topic.startswith("%RETRY%"))
BOTH = 0xC0


def whole(count: int = 2, **properties: str) -> dict:
    """The fields of an inner batch as RocketMQ's broker puts it."""
    body = encode_pieces([Piece(number, b"m%d" % number, b"TAGS\1t%d\2" % number) for number in range(count)])
    return {"body": body, "sys_flag": BOTH, "properties": {"INNER_NUM": str(count), **properties}}


def test_a_batch_is_one_record_and_takes_its_numbers() -> None:
    store = KindsStore(MemoryDisk())
    first = store.put_batch("batch", [b"one", b"two", b"three"], properties={"UNIQ_KEY": "U1"}, tags="a", keys="k")
    second = store.put_batch("batch", [b"four"])
    assert (first.status, first.queue_offset, first.message_count) == (PutStatus.PUT_OK, 0, 3)
    assert (second.queue_offset, second.message_count, second.physical_offset) == (3, 1, first.size)
    assert first.msg_id.count(",") == 0
    record = store.fetch.message_at(0)
    assert record.record.sys_flag & BOTH == BOTH
    assert record.properties == {"UNIQ_KEY": "U1", "INNER_NUM": "3", "INNER_BASE": "0"}
    store.flush()
    queue = store.queues.batches.find("batch", 0)
    assert queue is not None
    assert queue.read(0, 9)[["base_queue_offset", "message_count", "compacted_offset"]].tolist() == [
        (0, 3, -1),
        (3, 1, -1),
    ]
    assert (queue.min_offset, queue.max_offset) == (0, 4)
    assert store.queues.find("batch", 0) is None


def test_messages_come_out_as_they_went_in() -> None:
    store = KindsStore(MemoryDisk(), cluster_name="")
    sent = [Message("batch", b"%d" % n, tags="ab"[n % 2], keys=["k", str(n)], properties={"p": str(n)}, flag=n,
                    born_timestamp_ms=5, born_host="192.0.2.1:80") for n in range(4)]  # fmt: skip
    store.appender.put_batch(sent)
    store.flush()
    found = store.fetch.get("batch", 0, 0).messages
    assert [(m.body, m.tags, m.keys, m.properties["p"], m.record.flag, m.queue_offset) for m in found] == [
        (b"%d" % n, "ab"[n % 2], f"k {n}", str(n), n, n) for n in range(4)
    ]  # fmt: skip
    assert {(m.born_timestamp_ms, m.born_host, m.physical_offset, m.record.sys_flag) for m in found} == {
        (5, "192.0.2.1:80", 0, 0)
    }  # fmt: skip
    assert all(m.corrupt_reason is None for m in found)


@pytest.mark.parametrize("start", range(7))
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_reading_begins_and_ends_anywhere(start: int, count: int) -> None:
    store = KindsStore(MemoryDisk())
    for bodies in ([b"0", b"1", b"2"], [b"3"], [b"4", b"5", b"6"]):
        store.put_batch("batch", bodies)
    store.flush()
    answer = store.fetch.get("batch", 0, start, count)
    wanted = list(range(start, min(start + count, 7)))
    assert [message.queue_offset for message in answer.messages] == wanted
    assert [message.body for message in answer.messages] == [b"%d" % n for n in wanted]
    assert (answer.status, answer.next_offset) == (GetStatus.FOUND, wanted[-1] + 1)
    assert (answer.min_offset, answer.max_offset) == (0, 7)


def test_places_outside_of_the_queue_are_answered_as_for_any_queue() -> None:
    store = KindsStore(MemoryDisk())
    store.put_batch("batch", [b"0", b"1"])
    store.flush()
    statuses = [store.fetch.get("batch", 0, offset).status for offset in (-1, 2, 3)]
    assert statuses == [GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.OFFSET_OVERFLOW_BADLY]
    assert store.fetch.get("batch", 1, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_tags_and_bytes_limit_what_comes() -> None:
    store = KindsStore(MemoryDisk())
    for _ in range(3):
        store.put("batch", **whole(4))
    store.flush()
    assert store.bodies("batch", tags="t1 || t3") == [b"m1", b"m3"] * 3
    none = store.fetch.get("batch", 0, 0, tags="other")
    assert (none.status, none.next_offset, none.messages) == (GetStatus.NO_MATCHED_MESSAGE, 12, [])
    assert len(store.fetch.get("batch", 0, 0, max_bytes=1).messages) == 4  # one record in any case


def test_offsets_by_time() -> None:
    store = KindsStore(MemoryDisk())
    times = []
    for _ in range(4):
        store.put_batch("batch", [b"x", b"y"])
        times.append(store.clock.now_ms())
    store.flush()
    lower = [store.fetch.offset_at("batch", 0, ms) for ms in (times[0] - 1, times[1], times[1] + 1, times[3] + 1)]
    upper = [store.fetch.offset_at("batch", 0, ms, "upper") for ms in (times[0] - 1, times[1], times[3] + 1)]
    assert (lower, upper) == ([0, 2, 4, 8], [0, 3, 7])


def test_what_may_not_be_stored() -> None:
    store = KindsStore(MemoryDisk())
    refused = [
        store.put("plain", **whole()),  # no such topic
        store.put("batch", b"x", sys_flag=BOTH),  # does not say how many
        store.put("batch", **whole(INNER_NUM="0")),
        store.put("batch", **whole(INNER_NUM="32768")),
        store.put("batch", **{**whole(), "sys_flag": sys_flag.INNER_BATCH}),
        store.put_batch("batch", [b"x"], sys_flag=sys_flag.PREPARED),
        store.put_batch("batch", [b"x"], properties={"DELAY": "3"}),
        store.put_batch("batch", [b"x"], properties={"DELAY": "soon"}),
        store.put_batch("batch", [b"x"], properties={"INNER_NUM": "1"}),
        store.put("batch", **whole(INNER_NUM=None)),
        store.put_batch("batch", [b"x"], properties={"a\1": "b"}),
        store.put("plain", b"x", sys_flag=sys_flag.INNER_BATCH),
        store.put("plain", b"x", properties={"INNER_NUM": "1"}),
        store.put("batch", b"x", properties={"INNER_NUM": "1", "INNER_BASE": "0"}),
        *(store.put_batch(topic, [b"x", b"y"], sys_flag=flag) for topic in ("plain", "batch") for flag in (0x80, 0xC0)),
        *(store.put_batch(topic, [b"x"], properties={"INNER_NUM": "1"}) for topic in ("plain", "batch")),
    ]
    assert {result.status for result in refused} == {PutStatus.MESSAGE_ILLEGAL}
    assert not any(result.is_stored for result in refused)
    for messages in ([], [Message("batch", b""), Message("batch", b"", queue_id=1)]):
        with pytest.raises(Rejected):
            store.appender.put_batch(messages)


@pytest.mark.parametrize("text", ["0", "-1", "00", "", None])
def test_a_delay_level_that_delays_nothing_is_no_delay(text: str | None) -> None:
    store = KindsStore(MemoryDisk())
    assert store.put_batch("batch", [b"x"], properties={"DELAY": text}).status is PutStatus.PUT_OK


def test_without_such_topics_a_batch_is_stored_one_by_one() -> None:
    store = KindsStore(MemoryDisk(), PLAIN_ONLY)
    assert store.put_batch("batch", [b"1", b"2"]).msg_id.count(",") == 1
    assert store.put("batch", **whole()).status is PutStatus.MESSAGE_ILLEGAL


def test_a_record_that_does_not_say_what_it_holds_is_one_message() -> None:
    """RocketMQ 5.3.3 takes such a one and serves it; here it only comes from its stores."""
    store = KindsStore(MemoryDisk())
    result = store.put("batch", **whole(INNER_BASE="x"))
    store.flush()
    assert store.bodies("batch") == [b"m0", b"m1"]
    silent = store.parts.log.read(result.physical_offset, result.size).replace(b"INNER_NUM", b"OUTER_NUM")
    disk = MemoryDisk()
    for path, data in store.disk.image().items():  # type: ignore[attr-defined]
        if "/commitlog/" in path:
            disk.put_file(path, silent + data[len(silent) :])
    disk.put_file(f"{ROOT}/{ABORT_FILE}", b"")
    again = KindsStore(disk)
    assert again.queues.next_offsets() == {("batch", 0): 1}
    assert again.bodies("batch") == [whole()["body"]]


def test_a_batch_that_cannot_be_taken_apart_stays_one_message() -> None:
    store = KindsStore(MemoryDisk())
    store.put("batch", **{**whole(2), "body": b"no batch"})
    store.put("batch", **{**whole(2), "properties": {"INNER_NUM": "3"}})
    store.put_batch("batch", [b"sound"])
    store.flush()
    assert store.bodies("batch") == [b"no batch", whole(2)["body"], b"sound"]


@pytest.mark.parametrize("cut", [0, 1, 2, 5])
@pytest.mark.parametrize("is_clean", [True, False])
def test_lost_units_are_built_again(cut: int, is_clean: bool) -> None:
    disk = MemoryDisk()
    store = KindsStore(disk)
    for turn in range(4):
        write_some(store, turn)
    store.close()
    before = derived(disk.image())
    files = sorted(path for path in before if "/batchconsumequeue/" in path)
    kept = MemoryDisk()
    for path, data in disk.image().items():
        if path not in files[cut:]:
            kept.put_file(path, data)
    if not is_clean:
        kept.put_file(f"{ROOT}/{ABORT_FILE}", b"")
    again = KindsStore(kept)
    assert derived(kept.image()) == before
    assert again.put_batch("batches", [b"next"]).queue_offset == 4 * 21


def test_units_ahead_of_the_log_are_cut() -> None:
    disk = MemoryDisk()
    store = KindsStore(disk)
    write_some(store)
    store.close()
    before = derived(disk.image())
    path = f"{ROOT}/batchconsumequeue/batches/0/00000000000000000276"
    unit = BATCH_QUEUE_ENTRY.struct.pack(store.log.marks.appended + 10, 100, 0, 0, 21, 5, -1, 0)
    disk.put_file(path, (unit + unit).ljust(46 * 3, b"\0"))
    again = KindsStore(disk)
    assert again.plan is not None
    assert [queue.must_cut for queue in again.plan.batch_queues] == [True]
    assert derived(disk.image()) == before


TABLE = '{"topicConfigTable":{"batch":{"topicName":"batch","attributes":{"queue.type":"BatchCQ"}}}}'


def mixed_store(disk: MemoryDisk) -> KindsStore:
    """Batches and messages that came alone, in one batch queue."""
    store = KindsStore(disk)
    results = [
        store.put_batch("batch", [b"1", b"2"]),
        store.put("batch", b"3", tags="t"),
        store.put("batch", b"4", sys_flag=sys_flag.NEED_UNWRAP),
        store.put_batch("batch", [b"5"]),
        store.put("batch", encode_pieces([Piece(0, b"no", b""), Piece(0, b"batch", b"")])),
    ]
    assert [(result.status, result.queue_offset) for result in results] == [
        (PutStatus.PUT_OK, number) for number in (0, 2, 3, 4, 5)
    ]
    store.flush()
    return store


BODIES = [b"1", b"2", b"3", b"4", b"5", encode_pieces([Piece(0, b"no", b""), Piece(0, b"batch", b"")])]


def test_a_message_that_came_alone_has_a_unit_of_one() -> None:
    """Java: DispatchRequest's own numbers, where INNER_BASE and INNER_NUM say none."""
    store = mixed_store(MemoryDisk())
    queue = store.queues.batches.find("batch", 0)
    assert queue is not None
    assert queue.read(0, 9)[["base_queue_offset", "message_count"]].tolist() == [(0, 2), (2, 1), (3, 1), (4, 1), (5, 1)]
    assert store.queues.find("batch", 0) is None
    assert store.bodies("batch") == BODIES
    assert [message.queue_offset for message in store.fetch.get("batch", 0, 1).messages] == [1, 2, 3, 4, 5]
    assert store.bodies("batch", tags="t") == [b"3"]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lost", ["", "consumequeue"])
@pytest.mark.parametrize("table", [TABLE, ""])
def test_messages_that_came_alone_stay_in_their_queue_when_the_store_is_opened_again(
    is_clean: bool, lost: str, table: str
) -> None:
    """By the table of topics, or the units, or the records of batches beside them."""
    disk = MemoryDisk()
    mixed_store(disk).close()
    before = derived(disk.image())
    bare = MemoryDisk()
    for path, data in disk.image().items():
        if not lost or lost not in path:
            bare.put_file(path, data)
    if not is_clean:
        bare.put_file(f"{ROOT}/{ABORT_FILE}", b"")
    if table:
        bare.put_file(f"{ROOT}/config/topics.json", table.encode())
    kinds = replace(KINDS, is_batch_topic=lambda _: False)
    for _ in range(2):
        again = KindsStore(bare, kinds)
        assert again.queues.next_offsets() == {("batch", 0): 6}
        assert again.bodies("batch") == BODIES
        again.close()
        assert derived(bare.image()) == before
    last = KindsStore(bare, kinds)
    assert last.plan is not None
    assert last.plan.changes_nothing
    assert last.put_batch("batch", [b"7", b"8"]).queue_offset == 6
    assert last.put("batch", b"9").queue_offset == 8


def test_a_plain_queue_of_a_topic_that_has_batch_queues_is_passed_over() -> None:
    """As RocketMQ 4.9 leaves it, which knows no other; RocketMQ 5 does not open a store with both."""
    disk = MemoryDisk()
    mixed_store(disk).close()
    strange = f"{ROOT}/consumequeue/batch/0/{0:020d}"
    disk.put_file(strange, struct.pack(">qiq", 0, 100, 0).ljust(100, b"\0"))
    before = disk.image()
    again = KindsStore(disk)
    assert again.plan is not None
    assert any("a plain queue of a topic that has batch queues" in text for text in again.plan.warnings)
    assert again.bodies("batch") == BODIES
    again.close()
    assert disk.image()[strange] == before[strange]


@pytest.mark.parametrize("damaged", [0, 2, 4])
def test_a_wrong_unit_among_such_messages_is_written_again(damaged: int) -> None:
    disk = MemoryDisk()
    mixed_store(disk).close()
    before = derived(disk.image())
    number, place = divmod(damaged, 3)
    path = f"{ROOT}/batchconsumequeue/batch/0/{number * 3 * 46:020d}"
    data = bytearray(disk.image()[path])
    data[place * 46 + BATCH_QUEUE_ENTRY.offset["base_queue_offset"] + 7] ^= 64
    disk.put_file(path, bytes(data))
    assert KindsStore(disk).bodies("batch") == BODIES
    assert derived(disk.image()) == before


def queue_of(disk: MemoryDisk, counts: list[int]) -> BatchQueue:
    queue = BatchQueue(disk, FileHandles(disk, 20), "/q/T/0", "T", 0, 46 * 2)
    queue.load()
    base = 0
    for number, count in enumerate(counts):
        entry = BATCH_QUEUE_ENTRY.struct.pack(100 * number, 100, 0, 10 * number, base, count, -1, 0)
        queue.append(_units(entry))
        base += count
    return queue


def _units(data: bytes):
    from rmqstore.formats.batch_queue_entry import read_batch_entries

    return read_batch_entries(data)


def test_what_the_queue_has_already_is_dropped() -> None:
    queue = queue_of(MemoryDisk(), [2, 3, 1])
    again = b"".join(BATCH_QUEUE_ENTRY.struct.pack(place, 100, 0, 0, base, 1, -1, 0)
                     for place, base in ((100, 2), (200, 5), (300, 4), (400, 9)))  # fmt: skip
    assert queue.append(_units(again)) == 1
    assert (queue.max_offset, queue.max_physical) == (10, 400)
    assert [queue.slot_of(offset) for offset in (-1, 0, 1, 2, 5, 6, 9)] == [-1, 0, 0, 1, 2, 2, 3]


def test_flush_makes_units_durable_and_syncs_nothing_twice() -> None:
    disk = MemoryDisk()
    queue = queue_of(disk, [2, 3, 1, 4, 5])
    queue.flush()
    again = queue_of(disk.crash("lost"), [])
    assert (again.min_offset, again.max_offset, again.max_physical) == (0, 15, 400)
    before = disk.operations
    queue.flush()
    assert disk.operations == before


@pytest.mark.parametrize(
    ("low", "first", "left"), [(0, 0, 3), (1, 2, 3), (100, 2, 3), (150, 5, 2), (250, 6, 2), (900, 15, 1)]
)
def test_old_batches_expire_with_the_log(low: int, first: int, left: int) -> None:
    disk = MemoryDisk()
    queue = queue_of(disk, [2, 3, 1, 4, 5])
    queue.correct_min(low)
    assert (queue.min_offset, queue.max_offset) == (first, 15)
    removed = queue.remove_expired(low, 10)
    assert len(queue.files.starts) == left == 3 - len(removed)
    queue.flush()
    again = BatchQueue(disk, FileHandles(disk, 20), "/q/T/0", "T", 0, 46 * 2)
    again.load()
    again.correct_min(low)
    assert (again.min_offset, again.max_offset, again.max_physical) == (first, 15, 400)
    assert queue.expired(10**9) == queue.files.starts[:-1]


def test_the_sweep_finds_a_mistake() -> None:
    """Queues that are not built again differ from those of the log; that there are light ones the records tell."""
    disk = MemoryDisk()
    store = KindsStore(disk)
    write_some(store)
    store.flush()
    image = disk.image()
    assert rebuilt(image, replace(KINDS, multi_dispatch=False)) == derived(image)
    assert rebuilt(image, replace(KINDS, extension=False)) != derived(image)


if "batchcq" in STORE_CASES:

    def test_rocketmqs_queues_come_out_of_its_log_byte_for_byte(tmp_path) -> None:
        assert rebuilt_golden("batchcq", GOLDEN, tmp_path) == []

    def test_rocketmqs_store_is_put_again_byte_for_byte() -> None:
        assert put_again("batchcq", GOLDEN) == []

    def test_rocketmqs_batches_are_read_message_by_message(tmp_path) -> None:
        from rmqstore.files.filesystem import RealFileSystem
        from tests.golden.cases import java_rows, unpack
        from tests.log.queue_kinds_golden import sizes_of

        store = KindsStore(RealFileSystem(), root=str(unpack("batchcq", tmp_path)), **sizes_of("batchcq"))
        rows = java_rows(load_expected("batchcq")["records"])
        for queue_id in (0, 1):
            wanted = [row["body"] for row in rows if row["topic"] == "%RETRY%dTA" and row["queueId"] == queue_id]
            assert store.bodies("%RETRY%dTA", queue_id) == wanted
