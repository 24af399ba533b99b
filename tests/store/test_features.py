"""What a program sees of a store's broker features together: topics, delays, a consumer, transactions, cleaning."""

import functools
from dataclasses import replace

import pyarrow as pa
import pytest

from rmqstore.core.message import GetStatus, Message, PutStatus
from rmqstore.engine.broker.transaction_messages import TransactionState
from rmqstore.engine.log.put import appender
from rmqstore.errors import Rejected, StoreClosed
from rmqstore.formats.broker_json import SubscriptionGroup, TopicConfig
from rmqstore.formats.stored_message import StoredMessage
from tests.crash.disks import MemoryDisk
from tests.store.aging import SMALL, Opened

UNIQUE = {"UNIQ_KEY": "T1"}


# --- topics


def test_a_topic_is_made_by_its_first_message_and_stays():
    opened = Opened()
    assert opened.store.put(Message("orders", b"one", queue_id=1)).status is PutStatus.PUT_OK
    found = opened.store.topics.find("orders")
    assert found is not None
    assert (found.read_queue_nums, found.write_queue_nums) == (4, 4)
    assert opened.again().topics.find("orders") == found


def test_a_topic_gets_more_queues_when_a_message_asks_for_one():
    opened = Opened()
    opened.store.put(Message("orders", b"one", queue_id=9))
    opened.store.put(Message("orders", b"two", queue_id=2))
    found = opened.again().topics.find("orders")
    assert found is not None
    assert found.write_queue_nums == 10


def test_a_policy_refuses_what_nobody_made():
    opened = Opened(replace(SMALL, auto_create_topics=False))
    store = opened.store
    store.topics.put(TopicConfig("orders", 2, 2))
    table = pa.table({"topic": ["unknown"], "body": [b"x"]})
    assert store.put(Message("unknown", b"")).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put_columns(table).status is PutStatus.MESSAGE_ILLEGAL
    assert store.transactions.prepare(Message("unknown", b"")).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put(Message("orders", b"", queue_id=2)).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put(Message("orders", b"", queue_id=1)).status is PutStatus.PUT_OK
    assert store.put(Message("orders", b"", properties={"DELAY": "1"})).status is PutStatus.PUT_OK
    assert opened.again().put(Message("unknown", b"")).status is PutStatus.MESSAGE_ILLEGAL
    assert sorted(opened.store.topics.all()) == ["SCHEDULE_TOPIC_XXXX", "orders"]


def test_a_topic_without_permission_takes_nothing():
    opened = Opened()
    opened.store.topics.put(TopicConfig("orders", 2, 2, perm=4))
    assert opened.store.put(Message("orders", b"")).status is PutStatus.MESSAGE_ILLEGAL
    opened.store.topics.put(TopicConfig("orders", 2, 2, perm=6))
    assert opened.store.put(Message("orders", b"")).status is PutStatus.PUT_OK


def test_a_message_never_waits_for_a_topic_that_no_record_may_have():
    """It could not be delivered, and would be lost."""
    opened = Opened(replace(SMALL, long_topics_as_v2=False))
    late = Message("%RETRY%".ljust(200, "g"), b"x", properties={"DELAY": "1"})
    assert opened.store.put(late).status is PutStatus.MESSAGE_ILLEGAL
    assert Opened().store.put(late).status is PutStatus.PUT_OK


@pytest.mark.parametrize("name", ["DELAY", "WAIT", "TIMER_DELAY_MS", "INNER_MULTI_DISPATCH", "INNER_NUM", "UNIQ_KEY"])
def test_a_none_among_the_properties_is_no_property_for_anyone(name: str):
    opened = Opened(replace(SMALL, multi_dispatch=True))
    message = Message("orders", b"x", properties={name: None, "a": "1"})  # type: ignore[dict-item]
    assert opened.store.put(message).status is PutStatus.PUT_OK
    assert opened.store.put_batch([message, message]).status is PutStatus.PUT_OK
    opened.store.flush()
    assert [found.properties for found in opened.store.get("orders", 0, 0).messages] == [{"a": "1"}] * 3


def test_topics_of_a_store_without_a_table_are_known_by_their_queues():
    opened = Opened()
    opened.store.put(Message("orders", b"", queue_id=5))
    opened.store.close()
    for name in ("topics.json", "topics.json.bak"):
        if opened.disk.exists(f"/store/config/{name}"):
            opened.disk.remove(f"/store/config/{name}")
    found = opened.open().topics.find("orders")
    assert found is not None
    assert found.write_queue_nums == 6


def test_deleting_a_topic_forgets_it_and_what_was_consumed_of_it():
    opened = Opened()
    store = opened.store
    for topic in ("orders", "others"):
        store.put(Message(topic, topic.encode()))
        opened.after(0)
        with store.consumer("billing", topic) as consumer:
            assert [message.body for message in consumer.poll()] == [topic.encode()]
    assert store.delete_topic("orders")
    assert not store.delete_topic("orders")
    assert store.topics.find("orders") is None
    assert store.bounds("orders", 0) == (0, 0)
    assert store.get("orders", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.offsets.committed("billing", "orders", 0) is None
    assert store.offsets.committed("billing", "others", 0) == 1
    assert store.put(Message("orders", b"new")).queue_offset == 0
    assert opened.bodies() == [b"new"]
    assert opened.again().queues() == [("orders", 0), ("others", 0)]
    assert opened.bodies() == [b"new"]
    assert store.offsets.committed("billing", "orders", 0) is None


# --- delays


def test_a_delayed_message_comes_at_its_time_over_a_reopening():
    opened = Opened()
    result = opened.store.put(Message("orders", b"late", tags="paid", keys="k", properties={"DELAY": "3"}, queue_id=2))
    assert result.status is PutStatus.PUT_OK
    opened.after(5_000)
    assert opened.store.delay.pending_count == 1
    assert opened.store.topics.find("orders") is not None
    store = opened.again()
    opened.after(4_999)
    assert store.bounds("orders", 2) == (0, 0)
    opened.after(1)
    message = store.get("orders", 2, 0).messages[0]
    assert (message.body, message.tags, message.keys, message.store_timestamp_ms) == (
        b"late", "paid", "k", result.store_timestamp_ms + 10_000,
    )  # fmt: skip
    assert store.delay.pending_count == 0
    assert [found.body for found in store.query("orders", "k")] == [b"late"]
    opened.again()
    opened.after(60_000)
    assert opened.bodies(queue_id=2) == [b"late"]


def test_what_waits_for_a_level_that_is_gone_is_told_and_kept():
    opened = Opened(replace(SMALL, delay_levels="1s 2h"))
    opened.store.put(Message("orders", b"late", properties={"DELAY": "2"}))
    opened.again()
    opened.config = replace(SMALL, delay_levels="1s")
    store = opened.again()
    assert any("1 messages wait for delay level 2, which the store does not have" in each for each in store.warnings)
    assert store.delay.pending_count == 1
    for _ in range(200):
        store.put(Message("others", bytes(2000)))
    store.flush()
    store.clean(any_age=True)
    opened.config = replace(SMALL, delay_levels="1s 2h")
    opened.again()
    opened.after(7_200_000)
    assert opened.bodies() == [b"late"]


def test_delays_of_columns_come_too():
    opened = Opened()
    levels = pa.array([2, 0, 1], pa.int32())
    opened.store.put_columns(
        pa.table({"topic": ["orders"] * 3, "body": [b"b5s", b"now", b"b1s"], "delayLevel": levels})
    )
    assert opened.bodies() == [b"now"]
    opened.after(1_000)
    assert opened.bodies() == [b"now", b"b1s"]
    opened.after(4_000)
    assert opened.bodies() == [b"now", b"b1s", b"b5s"]


# --- a consumer


def test_what_is_sent_back_comes_again_and_ends_as_a_dead_letter():
    opened = Opened()
    store = opened.store
    store.groups.put(SubscriptionGroup("billing", retry_max_times=1))
    for body, tags in ((b"good", "paid"), (b"bad", "sent"), (b"other", "new")):
        store.put(Message("orders", body, tags=tags))
    opened.after(0)
    with store.consumer("billing", "orders", tags="paid || sent") as consumer:
        good, bad = consumer.poll()
        assert (good.body, bad.body) == (b"good", b"bad")
        consumer.send_back(bad)
    store = opened.again()
    assert store.groups.find("billing").retry_max_times == 1
    consumer = store.consumer("billing", "orders", tags="paid || sent")
    opened.after(9_999)
    assert consumer.poll() == []
    opened.after(1)
    (again,) = consumer.poll()
    assert (again.body, again.topic, again.reconsume_times) == (b"bad", "orders", 1)
    consumer.send_back(again)
    consumer.commit()
    opened.after(0)
    (dead,) = consumer.dead_letters()
    assert (dead.body, dead.topic, dead.reconsume_times) == (b"bad", "%DLQ%billing", 2)
    assert (consumer.poll(), sum(consumer.lag().values())) == ([], 0)


def test_what_was_not_committed_comes_again():
    opened = Opened()
    opened.store.put(Message("orders", b"one"))
    opened.after(0)
    assert [message.body for message in opened.store.consumer("billing", "orders").poll()] == [b"one"]
    with opened.again().consumer("billing", "orders") as consumer:
        assert [message.body for message in consumer.poll()] == [b"one"]
    assert opened.again().consumer("billing", "orders").poll() == []
    assert opened.store.consumer("others", "orders").poll() != []


# --- transactions


def test_a_transaction_is_seen_when_it_is_committed_and_only_then():
    opened = Opened()
    transactions = opened.store.transactions
    sold = transactions.prepared(
        transactions.prepare(Message("orders", b"sold", properties=UNIQUE, queue_id=1), "shop")
    )
    lost = transactions.prepared(transactions.prepare(Message("orders", b"lost", queue_id=1), "shop"))
    assert opened.bodies(queue_id=1) == []
    transactions = opened.again().transactions
    assert transactions.pending() == [sold, lost]
    assert transactions.commit(sold).status is PutStatus.PUT_OK
    assert transactions.rollback(lost).status is PutStatus.PUT_OK
    for prepared, decide in ((sold, transactions.rollback), (lost, transactions.commit)):
        with pytest.raises(Rejected):
            decide(prepared)
    assert opened.bodies(queue_id=1) == [b"sold"]
    assert opened.again().transactions.pending() == []
    assert opened.bodies(queue_id=1) == [b"sold"]


def test_a_rollback_holds_over_a_power_cut_where_puts_are_not_waited_for():
    """A check that answers COMMIT afterwards would show what nobody was to get."""
    opened = Opened(replace(SMALL, flush="ASYNC"), check=lambda _: TransactionState.COMMIT)
    transactions = opened.store.transactions
    prepared = transactions.prepared(transactions.prepare(Message("orders", b"lost")))
    opened.store.flush()
    assert transactions.rollback(prepared).status is PutStatus.PUT_OK
    opened.disk = opened.disk.crash("lost")
    opened.store = opened.open()
    opened.after(60_000)
    assert opened.store.transactions.pending() == []
    assert opened.bodies() == []


@pytest.mark.parametrize("asked", ["TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
def test_a_timer_is_refused_in_a_transaction_too(asked: str):
    """Nothing would have it wait once it is committed."""
    opened = Opened()
    result = opened.store.transactions.prepare(Message("orders", b"later", properties={asked: "3600"}))
    assert (result.status, result.is_stored) == (PutStatus.WHEEL_TIMER_NOT_ENABLE, False)
    assert result.reason == f"{asked}: rmqstore does not deliver timer messages"


def test_an_open_transaction_is_asked_after_and_given_up():
    asked: list[bytes | None] = []
    answers = {b"yes": TransactionState.COMMIT, b"no": TransactionState.ROLLBACK}

    def check(half: StoredMessage) -> TransactionState:
        asked.append(half.body)
        return answers.get(half.body or b"", TransactionState.UNKNOWN)

    opened = Opened(replace(SMALL, transaction_check_max=2), check=check)
    for body in (b"yes", b"no", b"mute"):
        assert opened.store.transactions.prepare(Message("orders", body)).is_stored
    opened.after(5_000)
    assert asked == []
    opened.after(25_000)
    assert sorted(filter(None, asked)) == [b"mute", b"no", b"yes"]
    assert opened.bodies() == [b"yes"]
    opened.after(30_000)
    assert asked.count(b"mute") == 2
    opened.after(30_000)
    assert (len(asked), opened.store.transactions.pending()) == (4, [])
    assert opened.bodies("TRANS_CHECK_MAX_TIME_TOPIC") == [b"mute"]
    assert opened.bodies() == [b"yes"]
    assert opened.store.health().warnings == ()


def test_a_callback_that_fails_decides_nothing_and_is_told():
    def check(_: StoredMessage) -> TransactionState:
        raise ValueError("no answer")

    opened = Opened(check=check)
    opened.store.transactions.prepare(Message("orders", b"open"))
    opened.after(0)
    opened.after(30_000)
    assert opened.store.health().is_writable
    assert "no answer" in " ".join(opened.store.health().warnings)
    assert len(opened.store.transactions.pending()) == 1


# --- cleaning


def test_what_a_dry_run_says_is_what_happens():
    opened = Opened(replace(SMALL, queue_file_size=200))
    store = opened.store
    for number in range(40):
        store.put(Message("orders", b"x" * 1000, keys=f"key{number}", queue_id=number % 2))
    store.flush()
    before = opened.disk.image()
    wanted = store.clean(any_age=True, dry_run=True)
    assert opened.disk.image() == before
    assert not wanted.changes_nothing
    done = store.clean(any_age=True)
    assert (done.as_dict(), done.lines()) == (wanted.as_dict(), wanted.lines())
    gone = before.keys() - opened.disk.image().keys()
    assert len(gone) == wanted.file_count
    assert any("/commitlog/" in path for path in gone)
    assert any("/consumequeue/" in path for path in gone)
    assert store.clean(any_age=True).changes_nothing
    low, high = store.bounds("orders", 0)
    assert 0 < low < high == 20
    assert store.get("orders", 0, 0).status is GetStatus.OFFSET_TOO_SMALL
    assert opened.again().bounds("orders", 0) == (low, high)
    assert opened.store.put(Message("orders", b"new")).queue_offset == high


def test_what_is_young_stays():
    opened = Opened()
    for _ in range(20):
        opened.store.put(Message("orders", b"x" * 1000))
    opened.store.flush()
    assert opened.store.clean().changes_nothing
    opened.clock.advance(72 * 3_600_000 + 1)
    assert not opened.store.clean(dry_run=True).changes_nothing


def test_a_full_disk_refuses_nothing_where_nobody_asked_for_retention():
    opened = Opened()
    for _ in range(20):
        opened.store.put(Message("orders", b"x" * 1000))
    opened.disk.used = 0.99
    opened.store.clean(any_age=True)
    assert opened.store.put(Message("orders", b"more")).status is PutStatus.PUT_OK


def test_what_cleaning_by_hand_frees_can_be_used_at_once(monkeypatch):
    def used_ratio(disk, _path):
        return (
            0.99
            if disk.exists(f"/store/commitlog/{0:020d}") and disk.exists("/store/commitlog/00000000000000008192")
            else 0.5
        )

    monkeypatch.setattr(MemoryDisk, "used_ratio", used_ratio)
    opened = Opened(replace(SMALL, retention=True, clean_forcibly=False, file_reserved_hours=10**7))
    for _ in range(20):
        opened.store.put(Message("orders", b"x" * 1000))
    opened.after(10_000)
    assert opened.store.put(Message("orders", b"more")).status is PutStatus.SERVICE_NOT_AVAILABLE
    opened.store.clean(any_age=True)
    assert opened.store.put(Message("orders", b"more")).status is PutStatus.PUT_OK


# --- light queues


@pytest.mark.parametrize("count", [3, 60])  # restored one by one, and in vectors
def test_delayed_messages_reach_their_light_queues_when_they_are_delivered(count):
    opened = Opened(replace(SMALL, multi_dispatch=True, log_file_size=65536))
    for number in range(count):
        light = {"INNER_MULTI_DISPATCH": f"%LMQ%a,%LMQ%{number % 2}"} if number % 3 else {}
        opened.store.put(Message("orders", b"%d" % number, tags="t", properties={"DELAY": "1", **light}))
    opened.after(0)
    assert opened.store.bounds("%LMQ%a", 0) == (0, 0), "nobody sees them before their time"
    opened.after(2000)
    assert opened.bodies_of_all("orders") == [b"%d" % number for number in range(count)]
    wanted = [number for number in range(count) if number % 3]
    assert opened.bodies_of_all("%LMQ%a") == [b"%d" % number for number in wanted]
    assert opened.bodies_of_all("%LMQ%1") == [b"%d" % number for number in wanted if number % 2]
    opened.store.put(Message("orders", b"last", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
    opened.after(0)
    assert opened.bodies_of_all("%LMQ%a")[-1] == b"last"
    assert opened.store.delay.pending_count == 0


def test_a_read_of_a_light_queue_counts_by_it_and_shows_the_record_s_own_place():
    """As RocketMQ's client: the bytes of the record; the place in the light queue is among the properties."""
    opened = Opened(replace(SMALL, multi_dispatch=True))
    for number in range(5):
        light = {"INNER_MULTI_DISPATCH": "%LMQ%b,%LMQ%a" if number == 4 else "%LMQ%a"} if number > 2 else {}
        opened.store.put(Message("orders", b"%d" % number, properties=light))
    opened.after(0)
    answer = opened.store.get("%LMQ%a", 0, 0)
    assert (answer.min_offset, answer.next_offset, answer.max_offset) == (0, 2, 2)
    shown = [(message.topic, message.queue_offset, message.properties["INNER_MULTI_QUEUE_OFFSET"])
             for message in answer.messages]  # fmt: skip
    assert shown == [("orders", 3, "0"), ("orders", 4, "0,1")]


def test_a_delayed_message_that_gets_no_light_queue_holds_up_nobody_and_is_not_lost():
    opened = Opened(replace(SMALL, multi_dispatch=True, light_queue_max=1))
    for body, light in ((b"1", {}), (b"2", {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}), (b"3", {})):
        opened.store.put(Message("orders", body, properties={"DELAY": "1", **light}))
    opened.after(0)
    opened.after(2000)
    assert opened.bodies_of_all("orders") == [b"1", b"2", b"3"]
    assert opened.bodies_of_all("%LMQ%a") == []
    assert opened.store.delay.pending_count == 0


# --- statistics


def test_puts_of_all_kinds_and_gets_are_counted():
    opened = Opened()
    store = opened.store
    one = store.put(Message("orders", b"one"))
    two = store.put_batch([Message("orders", b"two"), Message("orders", b"three")])
    columns = store.put_columns(pa.table({"topic": ["orders", "others", "others"], "body": [b"4", b"5", b"6"]}))
    assert not store.put(Message("no/topic", b"")).is_stored
    opened.after(0)
    store.get("orders", 0, 0)
    store.get("orders", 0, 4)
    found = store.statistics()
    assert (found.put_times, found.put_failed) == (6, 1)
    assert found.put_size == one.size + two.size + columns.size
    assert {topic: puts.times for topic, puts in found.put_topics.items()} == {"orders": 4, "others": 2}
    assert (found.get_found, found.get_missed, found.get_messages) == (1, 1, 4)
    assert found.gauges.log_max_offset == found.put_size
    assert found.runtime_info()["putMessageTimesTotal"] == "6"
    assert found.put_latency.count == 4


def small_blocks(monkeypatch):
    monkeypatch.setattr(appender, "record_blocks", functools.partial(appender.record_blocks, block_size=500))
    return pa.table({"topic": ["shut", *["orders"] * 50], "body": [b"x" * 100] * 51})


def test_columns_in_many_blocks_are_one_put_of_all_their_time(monkeypatch):
    opened, table = Opened(), small_blocks(monkeypatch)
    topics = opened.store.topics
    admit = topics.admit_columns
    monkeypatch.setattr(topics, "admit_columns", lambda *queues: (opened.clock.advance(7), admit(*queues))[1])
    assert opened.store.put_columns(table).message_count == 51
    latency = opened.store.statistics().put_latency
    assert latency.count == 1
    assert latency.total_s >= 10 * 0.007


def test_columns_end_at_the_first_block_that_is_refused(monkeypatch):
    opened, table = Opened(), small_blocks(monkeypatch)
    opened.store.topics.put(TopicConfig("shut", perm=4))
    result = opened.store.put_columns(table)
    assert (result.status, result.message_count) == (PutStatus.MESSAGE_ILLEGAL, 0)
    opened.after(0)
    assert opened.bodies() == []
    assert opened.store.statistics().put_failed == 1


def test_delays_stand_in_the_statistics():
    opened = Opened()
    for _ in range(2):
        opened.store.put(Message("orders", b"late", properties={"DELAY": "2"}))
    opened.after(0)
    assert opened.store.statistics().gauges.delay[2] == (0, 2)
    opened.after(5_000)
    assert opened.store.statistics().gauges.delay[2] == (2, 2)


def test_a_store_that_counts_nothing_says_so():
    opened = Opened(replace(SMALL, statistics=False))
    assert opened.store.put(Message("orders", b"one")).is_stored
    with pytest.raises(Rejected, match="statistics=False"):
        opened.store.statistics()


# --- the end


def test_after_the_end_everything_says_that_it_is_closed():
    opened = Opened()
    store = opened.store
    transactions, retries = store.transactions, store.retries
    prepared = transactions.prepared(transactions.prepare(Message("orders", b"open")))
    store.put(Message("orders", b"one"))
    opened.after(0)
    consumer = store.consumer("billing", "orders")
    (message,) = consumer.poll()
    store.close()
    image = opened.disk.image()
    assert store.put(Message("orders", b"two")).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert transactions.prepare(Message("orders", b"two")).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert retries.send_back("billing", message).status is PutStatus.SERVICE_NOT_AVAILABLE
    for asked in (
        consumer.poll,
        consumer.commit,
        store.step,
        store.flush,
        lambda: store.consumer("billing", "orders"),
        lambda: store.transactions,
        lambda: store.clean(any_age=True),
        lambda: store.delete_topic("orders"),
        lambda: store.get("orders", 0, 0),
    ):
        with pytest.raises(StoreClosed):
            asked()
    assert transactions.commit(prepared).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert transactions.rollback(prepared).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert opened.disk.image() == image


@pytest.mark.parametrize(
    "asked",
    [
        lambda store, _: store.topics.put(TopicConfig("orders", 9, 9)),
        lambda store, _: store.topics.remove("orders"),
        lambda store, _: store.topics(Message("made", b"")),
        lambda store, _: store.groups.put(SubscriptionGroup("billing", retry_max_times=9)),
        lambda store, _: store.offsets.persist(),
        lambda store, _: store.delay.persist(),
        lambda _, transactions: transactions.prepare(Message("made", b"")),
    ],
    ids=["topics.put", "topics.remove", "a topic on demand", "groups.put", "offsets", "delay", "prepare"],
)
def test_after_the_end_nothing_is_written_to_config(asked):
    """The directory may be somebody else's by then."""
    opened = Opened()
    store = opened.store
    store.put(Message("orders", b"one", properties={"DELAY": "1"}))
    transactions = store.transactions
    assert transactions.pending() == []
    store.close()
    opened.open()
    with pytest.raises(StoreClosed):
        store.offsets.commit("billing", "orders", 0, 1)
    image = opened.disk.image()
    try:
        answer = asked(store, transactions)
    except StoreClosed:
        pass
    else:
        assert getattr(answer, "status", answer) in (None, PutStatus.SERVICE_NOT_AVAILABLE)
    assert opened.disk.image() == image
