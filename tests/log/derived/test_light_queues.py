"""Messages in several queues: the numbers that a put gives out, the entries, recovery, and RocketMQ's own bytes."""

from dataclasses import replace

import pyarrow as pa
import pytest

from rmqstore.core.message import Message, PutStatus
from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.engine.log.put.deferred_put import LightQueues
from rmqstore.errors import Rejected
from rmqstore.formats.names import ABORT_FILE
from rmqstore.formats.properties import parse_properties
from rmqstore.records.light_queues import split_names
from tests.crash.disks import MemoryDisk
from tests.golden.cases import STORE_CASES
from tests.log.queue_kinds_golden import put_again, rebuilt_golden
from tests.log.queue_kinds_store import KINDS, ROOT, KindsStore, derived, light, rebuilt, write_some

OFFSETS = "INNER_MULTI_QUEUE_OFFSET"
LIGHT = QueueKinds(multi_dispatch=True)


def offsets_of(store: KindsStore, place: int) -> str | None:
    return store.fetch.message_at(place).properties.get(OFFSETS)


def test_a_put_gives_a_number_in_each_light_queue() -> None:
    store = KindsStore(MemoryDisk())
    results = [
        store.put("T", properties=light("%LMQ%a", "%LMQ%b")),
        store.put("T", properties=light("%LMQ%b")),
        store.put("T"),
        store.put("U", properties=light("%LMQ%b", "other", "%LMQ%a")),
    ]
    assert [result.queue_offset for result in results] == [0, 1, 2, 0]
    assert [offsets_of(store, result.physical_offset) for result in results] == ["0,0", "1", None, "2,,1"]
    store.flush()
    ends = {key: end for key, end in store.queues.next_offsets().items() if key[0].startswith("%")}
    assert ends == {("%LMQ%a", 0): 2, ("%LMQ%b", 0): 3}
    places = [result.physical_offset for result in results]
    assert [entry[0] for entry in store.entries("%LMQ%b")] == [places[0], places[1], places[3]]
    assert [entry[0] for entry in store.entries("%LMQ%a")] == [places[0], places[3]]


def test_a_name_that_is_listed_twice_has_one_number() -> None:
    store = KindsStore(MemoryDisk())
    for _ in range(2):
        store.put("T", properties=light("%LMQ%a", "%LMQ%a"))
    store.flush()
    assert len(store.entries("%LMQ%a")) == 2


def test_the_numbers_stand_last_or_where_they_stood() -> None:
    store = KindsStore(MemoryDisk())
    stale = {OFFSETS: "77", **light("%LMQ%a"), "A": "b"}
    first, second = store.put("T", properties=light("%LMQ%a", A="b")), store.put("T", properties=stale)
    found = [parse_properties(store.fetch.message_at(each.physical_offset).record.properties)
             for each in (first, second)]  # fmt: skip
    assert [list(each)[-1] for each in found] == [OFFSETS, "A"]
    assert [each[OFFSETS] for each in found] == ["0", "1"]


def test_wait_is_obeyed_and_not_stored() -> None:
    store = KindsStore(MemoryDisk(), flush="SYNC")
    end = store.log.marks.flushed
    first = store.put("T", properties=light("%LMQ%a", WAIT="false"))
    assert store.log.marks.flushed == end
    second = store.put("T", properties=light("%LMQ%a", WAIT="true"))
    assert store.log.marks.flushed == second.physical_offset + second.size
    stored = [store.fetch.message_at(each.physical_offset).properties for each in (first, second)]
    assert not any("WAIT" in properties for properties in stored)


@pytest.mark.parametrize("topic", ["%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
def test_topics_that_never_go_into_light_queues(topic: str) -> None:
    store = KindsStore(MemoryDisk())
    result = store.put(topic, properties=light("%LMQ%a") | {OFFSETS: "0"})
    store.flush()
    assert offsets_of(store, result.physical_offset) == "0"  # as sent
    assert store.queues.find("%LMQ%a", 0) is None


def test_it_is_an_ordinary_property_where_it_is_switched_off() -> None:
    store = KindsStore(MemoryDisk(), PLAIN_ONLY)
    result = store.put("T", properties=light("%LMQ%a"))
    store.flush()
    assert offsets_of(store, result.physical_offset) is None
    assert set(store.queues.next_offsets()) == {("T", 0)}


def test_no_more_light_queues_than_allowed() -> None:
    store = KindsStore(MemoryDisk())
    assert store.put("T", properties=light("%LMQ%a", "%LMQ%b", "%LMQ%c")).status is PutStatus.PUT_OK
    refused = store.put("T", properties=light("%LMQ%d", "%LMQ%e"))
    assert (refused.status, refused.is_stored) == (PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED, False)
    assert store.put("T", properties=light("%LMQ%d", "%LMQ%a")).queue_offset == 1
    assert store.put("T", properties=light("%LMQ%e")).status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
    store.flush()
    assert store.queues.next_offsets() == {
        ("T", 0): 2, ("%LMQ%a", 0): 2, ("%LMQ%b", 0): 1, ("%LMQ%c", 0): 1, ("%LMQ%d", 0): 1,
    }  # fmt: skip
    assert LightQueues({("%LMQ%a", 0): 3, ("T", 0): 1}, 1).offsets_of(
        Message("T", b"", properties=light("%LMQ%b"))
    ) is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED  # fmt: skip


def test_limits_count_the_numbers() -> None:
    store = KindsStore(MemoryDisk(), message_size_max=1000)
    free = 32767 - len("INNER_MULTI_DISPATCH\1%LMQ%a\2INNER_MULTI_QUEUE_OFFSET\10\2A\1\2")
    one_too_many = store.put("T", b"", properties=light("%LMQ%a", A="x" * (free + 1)))
    assert one_too_many.status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    fits = store.put("T", b"", properties=light("%LMQ%a"))
    assert store.put("T", b"x" * (1000 - fits.size), properties=light("%LMQ%a")).size == 1000
    too_large = store.put("T", b"x" * (1001 - fits.size), properties=light("%LMQ%a"))
    assert too_large.status is PutStatus.MESSAGE_ILLEGAL


def test_many_at_once_are_refused_rather_than_lost() -> None:
    store = KindsStore(MemoryDisk())
    assert store.put_batch("T", [b"1", b"2"], properties=light("%LMQ%a")).status is PutStatus.MESSAGE_ILLEGAL
    kind = pa.map_(pa.string(), pa.string())
    rows = {
        "topic": ["T"] * 2,
        "body": [b"1", b"2"],
        "properties": pa.array([[], [("INNER_MULTI_DISPATCH", "x")]], kind),
    }
    structs = [[], [{"name": "INNER_MULTI_DISPATCH", "value": "x"}]]
    for properties in (rows["properties"], structs):
        with pytest.raises(Rejected, match="one by one"):
            store.appender.put_columns(pa.table({**rows, "properties": properties}))
    absent = [[("A", "b"), ("INNER_MULTI_DISPATCH", None)], []]
    assert store.appender.put_columns(pa.table({**rows, "properties": pa.array(absent, kind)})).is_stored


def test_names_that_lead_out_of_the_store_make_no_queue() -> None:
    disk = MemoryDisk()
    store = KindsStore(disk)
    store.put("T", properties=light("%LMQ%a/b", "%LMQ%..", "%LMQ%\\"))
    store.flush()
    assert store.queues.refused_count == 0  # passed over, as RocketMQ does with a slash
    assert {path.split("/")[3] for path in derived(disk.image()) if "/consumequeue/" in path} == {
        "T",
        "%LMQ%..",
        "%LMQ%\\",
    }


@pytest.mark.parametrize(
    ("text", "names"), [("a,b", ["a", "b"]), ("a,,", ["a"]), (",a", ["", "a"]), (",", []), ("", [])]
)
def test_lists_are_cut_as_java_cuts_them(text: str, names: list[str]) -> None:
    assert split_names(text) == names


def test_the_property_crc_covers_the_numbers() -> None:
    store = KindsStore(MemoryDisk(), append_property_crc=True)
    for _ in range(12):
        store.put("T", properties=light("%LMQ%a"))
    store.flush()
    disk = store.disk
    assert isinstance(disk, MemoryDisk)
    assert KindsStore(disk.crash("kept")).bodies("%LMQ%a") == [b"hello"] * 12


@pytest.mark.parametrize("lost", ["%LMQ%y", "%LMQ%x", "%LMQ%", "orders", ""])
def test_lost_queues_are_built_again_from_the_log(lost: str) -> None:
    """Also without abort, where RocketMQ never repairs one queue alone; then numbers go on from there."""
    disk = MemoryDisk()
    store = KindsStore(disk)
    for turn in range(4):
        write_some(store, turn)
    store.close()
    whole = derived(disk.image())
    kept = MemoryDisk()
    for path, data in disk.image().items():
        if f"/consumequeue/{lost}" not in path:
            kept.put_file(path, data)
    again = KindsStore(kept)
    assert again.plan is not None
    assert not again.plan.changes_nothing
    assert derived(kept.image()) == whole
    assert again.put("T", properties=light("%LMQ%x")).status is PutStatus.PUT_OK
    again.flush()
    assert len(again.entries("%LMQ%x")) == 25


def test_a_store_with_light_queues_goes_on_with_them_unasked() -> None:
    disk = MemoryDisk()
    store = KindsStore(disk)
    write_some(store)
    store.close()
    unasked = replace(KINDS, multi_dispatch=False, extension=False)
    again = KindsStore(disk, unasked)
    write_some(again, 1)
    again.close()
    assert len(again.entries("%LMQ%y")) == 24
    assert derived(disk.image()) == rebuilt(disk.image())


def test_further_queues_of_the_old_dialect() -> None:
    """Up to 5.2 any name gets a number, and its queue has the message's queue id."""
    disk = MemoryDisk()
    store = KindsStore(disk, PLAIN_ONLY)
    for number in range(3):
        store.put("T", queue_id=2, properties=light("%LMQ%a", "plain") | {OFFSETS: f"{number},{number}"})
    store.close()
    disk.put_file(f"{ROOT}/{ABORT_FILE}", b"")
    again = KindsStore(disk, LIGHT)
    assert again.queues.next_offsets() == {("T", 2): 3, ("%LMQ%a", 0): 3, ("plain", 2): 3}


if "lmq" in STORE_CASES:

    def test_rocketmqs_queues_come_out_of_its_log_byte_for_byte(tmp_path) -> None:
        assert rebuilt_golden("lmq", LIGHT, tmp_path) == []

    def test_rocketmqs_store_is_put_again_byte_for_byte() -> None:
        assert put_again("lmq", LIGHT) == []
