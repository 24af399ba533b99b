"""The table of topics: what it admits, what it makes, and that nothing of a broker's table is lost."""

import errno
import json
import os
import threading
from dataclasses import replace

import pytest

from rmqstore.clock import ManualClock
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.broker.topics import GROWN_QUEUE_NUMS_MAX, Topics
from rmqstore.engine.store import open_store
from rmqstore.errors import Rejected
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats import names
from rmqstore.formats.broker_json import TopicConfig, data_version
from tests.broker.scenes import disk_of
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, Operation, WatchedDisk
from tests.golden.cases import OPENED_CASES, topic_prefix

PATH = "/store/config/topics.json"
ILLEGAL = PutStatus.MESSAGE_ILLEGAL


def topics_on(fs: FileSystem, **settings) -> Topics:
    topics = Topics(fs, "/store", ManualClock(), **settings)
    assert topics.load() == []
    return topics


def answer(topics: Topics, topic: str, queue_id: int = 0) -> PutStatus | None:
    """The refusal; None if the message itself came back."""
    message = Message(topic, b"", queue_id=queue_id)
    found = topics(message)
    assert found is message or isinstance(found, PutStatus)
    return found if isinstance(found, PutStatus) else None


def queue_nums(topics: Topics, topic: str) -> tuple[int, int] | None:
    config = topics.find(topic)
    return None if config is None else (config.read_queue_nums, config.write_queue_nums)


def test_a_topic_is_made_when_first_put_to_and_stays() -> None:
    disk = MemoryDisk()
    topics = topics_on(disk)
    assert topics.find("orders") is None
    assert answer(topics, "orders", 3) is None
    assert answer(topics, "wide", 11) is None
    again = topics_on(disk.crash("lost"))
    assert again.all() == {"orders": TopicConfig("orders", 8, 8), "wide": TopicConfig("wide", 12, 12)}
    assert [answer(again, "orders", queue_id) for queue_id in (-1, 0, 7)] == [ILLEGAL, None, None]


def test_a_topic_gets_more_queues_when_a_message_asks_for_one() -> None:
    disk = MemoryDisk()
    topics = topics_on(disk)
    topics.put(TopicConfig("orders", 16, 2, order=True))
    assert answer(topics, "orders", 9) is None
    assert topics_on(disk.crash("lost")).find("orders") == TopicConfig("orders", 16, 10, order=True)
    assert answer(topics_on(disk, auto_create=False), "orders", 10) is ILLEGAL


def test_a_known_topic_costs_no_operation() -> None:
    disk = MemoryDisk()
    topics = topics_on(disk, default_queue_nums=4)
    answer(topics, "orders")
    operations = disk.operations
    assert [answer(topics, "orders", queue_id) for queue_id in (0, 3, -1)] == [None, None, ILLEGAL]
    assert disk.operations == operations


def test_by_policy_no_topic_is_made() -> None:
    disk = MemoryDisk()
    topics = topics_on(disk, auto_create=False)
    assert answer(topics, "orders") is ILLEGAL
    topics.put(TopicConfig("orders", 2, 2))
    assert [answer(topics, "orders", queue_id) for queue_id in (0, 1, 2)] == [None, None, ILLEGAL]
    assert topics.remove("orders")
    assert not topics.remove("orders")
    assert answer(topics, "orders") is ILLEGAL
    assert topics_on(disk.crash("lost")).all() == {}


@pytest.mark.parametrize(
    "topic", ["", "a b", "a.b", "ж", "x" * 128, "%DLQ%" + "x" * 123, "%RETRY%" + "x" * 249, "../up"]
)
def test_no_topic_of_a_wrong_name_is_made(topic: str) -> None:
    disk = MemoryDisk()
    assert answer(topics_on(disk), topic) is ILLEGAL
    assert disk.image() == {}


def test_no_topic_has_more_queues_than_there_are_numbers() -> None:
    topics = topics_on(MemoryDisk())
    assert answer(topics, names.SCHEDULE_TOPIC, 2**31 - 1) is ILLEGAL
    assert answer(topics, names.SCHEDULE_TOPIC, 2**31 - 2) is None
    assert queue_nums(topics, names.SCHEDULE_TOPIC) == (2**31 - 1, 2**31 - 1)


def test_a_message_gives_its_topic_no_queues_by_the_hundred_thousand_but_a_caller_may() -> None:
    topics = topics_on(MemoryDisk())
    assert answer(topics, "orders", GROWN_QUEUE_NUMS_MAX - 1) is None
    for queue_id in (GROWN_QUEUE_NUMS_MAX, 1_000_000):
        assert answer(topics, "orders", queue_id) is ILLEGAL
        assert f"queue_id={queue_id}: topic 'orders' has 65536 queues" in topics.why_not("orders", queue_id)
    assert queue_nums(topics, "orders") == (GROWN_QUEUE_NUMS_MAX, GROWN_QUEUE_NUMS_MAX)
    topics.put(TopicConfig("orders", 1_000_001, 1_000_001))
    assert answer(topics, "orders", 1_000_000) is None


@pytest.mark.parametrize(
    ("perm", "refusal"), [(0, ILLEGAL), (2, None), (4, ILLEGAL), (5, ILLEGAL), (6, None), (7, None)]
)
def test_the_permission_to_write_is_asked(perm: int, refusal: PutStatus | None) -> None:
    topics = topics_on(MemoryDisk())
    topics.put(TopicConfig("orders", 4, 4, perm))
    assert answer(topics, "orders") is refusal


@pytest.mark.parametrize("auto_create", [True, False])
@pytest.mark.parametrize(
    ("topic", "nums", "perm"),
    [
        ("SCHEDULE_TOPIC_XXXX", 18, 6),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 1, 6),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, 6),
        ("TRANS_CHECK_MAX_TIME_TOPIC", 1, 6),
        ("SELF_TEST_TOPIC", 1, 6),
        ("OFFSET_MOVED_EVENT", 1, 6),
        ("BenchmarkTest", 1024, 6),
        ("TBW102", 8, 7),
        ("rmq_sys_wheel_timer", 1, 6),
        ("rmq_sys_REVIVE_LOG_GoldenCluster", 8, 6),
        ("rmq_sys_SYNC_BROKER_MEMBER_golden-a", 1, 1),
        ("GoldenCluster_REPLY_TOPIC", 1, 6),
        ("%RETRY%g_fast_G101", 1, 6),
        ("%DLQ%g_fast_G101", 1, 6),
    ],
)
def test_a_brokers_own_topics_are_always_admitted(topic: str, nums: int, perm: int, auto_create: bool) -> None:
    """With the numbers that the golden brokers' tables say; into any queue."""
    topics = topics_on(MemoryDisk(), auto_create=auto_create)
    assert answer(topics, topic) is None
    assert topics.find(topic) == TopicConfig(topic, nums, nums, perm)
    assert answer(topics, topic, nums + 3) is None
    assert answer(topics, topic, -1) is ILLEGAL
    golden = topics_on(disk_of("broker-clean-5.3.3"))
    assert golden.find(topic) == TopicConfig(topic, nums, nums, perm)
    assert answer(golden, topic, nums + 3) is None


def test_light_queues_are_admitted_and_stand_in_no_table() -> None:
    disk = MemoryDisk()
    topics = topics_on(disk, auto_create=False)
    assert answer(topics, "%LMQ%user1") is None
    assert queue_nums(topics, "%LMQ%user1") == (1, 1)
    topics.adopt([("%LMQ%user2", 0)])
    assert topics.all() == {}
    assert disk.image() == {}
    with pytest.raises(Rejected, match="light queues"):
        topics.put(TopicConfig("%LMQ%user1"))


def test_a_retry_topic_has_as_many_queues_as_its_group_wants() -> None:
    topics = topics_on(MemoryDisk(), retry_queue_nums={"g": 3, "none": 0}.__getitem__)
    assert answer(topics, "%RETRY%g") is None
    assert answer(topics, "%RETRY%none") is None
    assert answer(topics, "%DLQ%g") is None
    assert [queue_nums(topics, name) for name in ("%RETRY%g", "%RETRY%none", "%DLQ%g")] == [(3, 3), (1, 1), (1, 1)]


def test_many_are_admitted_at_once() -> None:
    disk = MemoryDisk()
    topics = topics_on(disk)
    assert topics.admit_columns(["a", "b", "a", "%LMQ%x"], [0, 9, 12, 0]) is None
    assert {name: queue_nums(topics, name) for name in topics.all()} == {"a": (13, 13), "b": (10, 10)}
    assert disk.image()[PATH].count(b'"counter":1,') == 1
    operations = disk.operations
    assert topics.admit_columns(["a", "b"], [12, 9]) is None
    assert topics.admit_columns(["new", "bad name"], [0, 0]) is ILLEGAL
    assert topics.admit_columns(["a"], [-1]) is ILLEGAL
    assert topics.admit_columns([], []) is None
    assert disk.operations == operations
    assert topics.find("new") is None


def test_what_lies_on_the_disk_is_adopted_and_saved_with_the_next_change() -> None:
    disk = MemoryDisk()
    topics = topics_on(disk, auto_create=False)
    topics.put(TopicConfig("known", 2, 2))
    operations = disk.operations
    topics.adopt([("old", 0), ("old", 4), ("known", 7), ("SCHEDULE_TOPIC_XXXX", 2), ("bad name", 0)])
    assert disk.operations == operations
    expected = {"known": (2, 2), "old": (5, 5), "SCHEDULE_TOPIC_XXXX": (18, 18)}
    assert {name: queue_nums(topics, name) for name in topics.all()} == expected
    assert [answer(topics, "old", queue_id) for queue_id in (4, 5)] == [None, ILLEGAL]
    assert set(topics_on(disk).all()) == {"known"}
    topics.put(TopicConfig("more"))
    assert {name: queue_nums(topics_on(disk), name) for name in expected} == expected


@pytest.mark.parametrize(
    "config",
    [TopicConfig("a b"), TopicConfig("a", -1), TopicConfig("a", 1, 2**31), TopicConfig("a", perm=16),
     TopicConfig("a", sys_flag=-1)],
)  # fmt: skip
def test_a_topic_that_no_broker_could_hold_is_refused(config: TopicConfig) -> None:
    disk = MemoryDisk()
    with pytest.raises(Rejected):
        topics_on(disk).put(config)
    assert disk.image() == {}


@pytest.mark.parametrize("case", OPENED_CASES)
def test_a_change_of_a_brokers_table_changes_nothing_else(case: str) -> None:
    disk = disk_of(case)
    text = disk.image()[PATH].decode()
    topics = topics_on(disk, auto_create=False)
    normal, read_only, narrow_name = (topic_prefix(case) + kind for kind in ("Normal", "ReadOnly", "Narrow"))
    if '"attributes"' in text:
        assert topics.find(normal) == TopicConfig(normal, 4, 4, attributes={"message.type": "NORMAL"})
    assert [answer(topics, *place) for place in ((read_only, 0), (narrow_name, 1), (narrow_name, 2))] == [
        ILLEGAL,
        None,
        ILLEGAL,
    ]
    narrow = topics.find(narrow_name)
    assert narrow is not None
    topics.put(replace(narrow, write_queue_nums=3))
    counter, timestamp = (text.partition(f'"{name}":')[2].partition("\n")[0] for name in ("counter", "timestamp"))
    expected = text.replace(f'"counter":{counter}', f'"counter":{int(counter.rstrip(",")) + 1},')
    expected = expected.replace(timestamp, "1700000000000")
    start = expected.index(f'"topicName":"{narrow_name}"')
    expected = expected[:start] + expected[start:].replace('"writeQueueNums":2', '"writeQueueNums":3', 1)
    assert disk.image()[PATH].decode() == expected
    assert disk.image()[f"{PATH}.bak"].decode() == text


def test_unknown_members_survive_changes_of_their_topic() -> None:
    disk = MemoryDisk()
    disk.put_file(PATH, b'{"mapping":{"a":1},"topicConfigTable":{"t":{"perm":6,"zone":"x","attributes":{"k":"v"}}}}')
    topics = topics_on(disk)
    config = topics.find("t")
    assert config is not None
    topics.put(TopicConfig("t", 3, 3, attributes=config.attributes))
    answer(topics, "other")
    again = topics_on(disk)
    assert again.find("t") == TopicConfig("t", 3, 3, attributes={"k": "v"})
    text = disk.image()[PATH].decode()
    assert '"zone":"x"' in text
    assert '"mapping":{\n\t\t"a":1\n\t}' in text
    again.put(replace(config, unknown_fields={"zone": "y"}))
    assert '"zone":"y"' in disk.image()[PATH].decode()


def test_a_broken_pair_is_an_empty_table_and_a_warning() -> None:
    disk = MemoryDisk()
    disk.put_file(PATH, b'{"topicConfigTable"')
    disk.put_file(f"{PATH}.bak", bytes(100))
    topics = Topics(disk, "/store", ManualClock())
    (warning,) = topics.load()
    assert "an empty table" in warning
    assert answer(topics, "orders") is None


def test_a_topic_that_cannot_be_saved_is_not_made() -> None:
    whole = CrashAt(MemoryDisk())
    answer(topics_on(whole), "orders")
    for at in range(1, whole.operations + 1):
        disk = MemoryDisk()
        topics = topics_on(FailingDisk(disk, at, errno.EIO))
        assert answer(topics, "orders") is PutStatus.SERVICE_NOT_AVAILABLE
        assert topics.last_failure is not None
        assert topics.find("orders") is None
        assert answer(topics, "orders") is None
        assert topics.last_failure is None
        assert set(topics_on(disk.crash("lost")).all()) == {"orders"}


def test_a_change_that_cannot_be_saved_is_not_made() -> None:
    disk = MemoryDisk()
    topics_on(disk).put(TopicConfig("t", 3, 3))
    topics = topics_on(FailingDisk(disk, 1, errno.ENOSPC, forever=True))
    with pytest.raises(OSError, match="No space left"):
        topics.put(TopicConfig("t", 5, 5))
    with pytest.raises(OSError, match="No space left"):
        topics.remove("t")
    assert queue_nums(topics, "t") == (3, 3)
    assert answer(topics, "t") is None


@pytest.mark.usefixtures("restless")
def test_threads_make_each_topic_once() -> None:
    class YieldingDisk(WatchedDisk):
        def before(self, operation: Operation) -> None:
            os.sched_yield()

    disk = MemoryDisk()
    topics = topics_on(YieldingDisk(disk))
    refusals: list[PutStatus | None] = []

    def put_all() -> None:
        refusals.extend(answer(topics, f"t{number}") for number in range(40))

    threads = [threading.Thread(target=put_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refusals == [None] * 160
    assert len(topics.all()) == 40
    version = data_version(json.loads(disk.image()["/store/config/topics.json"]))
    assert version is not None
    assert version.counter == 40


def test_a_store_asks_the_table_before_a_put() -> None:
    disk = MemoryDisk()
    topics = topics_on(disk, auto_create=False)
    topics.put(TopicConfig("orders", 2, 2))
    with open_store("/store", clock=ManualClock(), filesystem=disk, hooks=[topics], workers=False) as store:
        statuses = [store.put(Message(*put)).status for put in (("orders", b"1"), ("other", b"2"))]
    assert statuses == [PutStatus.PUT_OK, ILLEGAL]
