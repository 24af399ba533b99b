"""A consumer group's view: turns, tags, offsets, what comes again, and what a real broker's consumers got."""

import pickle
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetResult, GetStatus, Message, PutResult, PutStatus
from rmqstore.engine.broker.consumer_offsets import ConsumerOffsets
from rmqstore.engine.broker.retry import Retries
from rmqstore.engine.consumer import Consumer, OffsetMove, RetriedMessage
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import DurabilityLost, NotNow, Rejected, StoreClosed
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.broker_json import SubscriptionGroup
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.records.batch import RecordBatch
from tests.crash.disks import MemoryDisk
from tests.golden.cases import FOLDERS, read_json, unpack

CONFIG = StoreConfig(log_file_size=1 << 20, queue_file_size=20_000, index_slot_count=5, index_item_count=9)


class Shop:
    """A store in memory, the table of offsets beside it, and consumers of both."""

    def __init__(self) -> None:
        self.disk, self.clock = MemoryDisk(), ManualClock()
        self.store = open_store("/store", CONFIG, filesystem=self.disk, clock=self.clock, workers=False)
        self.levels: list[int] = []
        self.retries = Retries(self.put_back, lambda group: SubscriptionGroup(group, retry_max_times=2))
        self.offsets = self.loaded_offsets()

    def put_back(self, message: Message) -> PutResult:
        """Without its delay, which `levels` notes: what is sent back is in the retry queue at once."""
        kept = dict(message.properties)
        self.levels.append(int(kept.pop("DELAY")))
        result = self.store.put(replace(message, properties=kept))
        if result.is_stored:
            self.store.flush()
        return result

    def loaded_offsets(self) -> ConsumerOffsets:
        """The offsets as the next process finds them."""
        offsets = ConsumerOffsets(self.disk, "/store", self.clock)
        assert offsets.load() == []
        return offsets

    def put(self, *bodies: bytes, topic: str = "orders", queue_id: int = 0, tags: str | None = None) -> None:
        for body in bodies:
            assert self.store.put(Message(topic, body, tags=tags, queue_id=queue_id)).is_stored
        self.store.flush()

    def consumer(self, group: str = "billing", tags: str = "*", consume_from: str = "earliest") -> Consumer:
        return Consumer(self.store, self.offsets, self.retries, group, {"orders": tags}, consume_from)


NO_RETRIES = Retries(lambda message: PutResult(PutStatus.SERVICE_NOT_AVAILABLE), SubscriptionGroup)


@pytest.fixture
def shop():
    shop = Shop()
    yield shop
    shop.store.close()


class Scripted:
    """A store that answers what it was told."""

    def __init__(self, *answers: GetResult) -> None:
        self.answers = deque(answers)
        self.asked: list[int] = []

    def get(self, topic: str, queue_id: int, offset: int, max_count: int = 32, *, tags: str = "*") -> GetResult:
        self.asked.append(offset)
        return self.answers.popleft() if self.answers else GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, 0, 1000)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return 5, 1000

    def queues(self) -> Sequence[tuple[str, int]]:
        return [("orders", 0)]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def bodies(messages: Sequence[StoredMessage]) -> list[bytes | None]:
    return [message.body for message in messages]


def test_what_was_committed_is_not_read_again_and_what_was_not_is(shop: Shop):
    shop.put(*numbers(0, 5))
    consumer = shop.consumer()
    assert bodies(consumer.poll(2)) == [b"0", b"1"]
    consumer.commit()
    assert bodies(consumer.poll(2)) == [b"2", b"3"]
    assert consumer.position("orders", 0) == 4
    shop.offsets = shop.loaded_offsets()  # another process: it knows only what is on the disk
    again = shop.consumer()
    assert bodies(again.poll()) == [b"2", b"3", b"4"]
    assert again.poll() == []
    assert bodies(shop.consumer("mailing").poll(1)) == [b"0"]


def test_a_block_commits_at_its_end_unless_it_failed(shop: Shop):
    shop.put(*numbers(0, 3))
    with shop.consumer() as consumer:
        consumer.poll(1)
    assert shop.loaded_offsets().all() == {("billing", "orders"): {0: 1}}
    with pytest.raises(ZeroDivisionError), shop.consumer() as consumer:  # noqa: PT012  the block is what is tested
        consumer.poll(1)
        raise ZeroDivisionError
    assert shop.loaded_offsets().all() == {("billing", "orders"): {0: 1}}


def test_tags_are_compared_as_texts_not_by_their_hash(shop: Shop):
    shop.put(b"wanted", tags="Aa")
    shop.put(b"same hash", tags="BB")
    shop.put(b"none")
    shop.put(b"other", tags="Cc")
    consumer = shop.consumer(tags="Aa || Cc")
    assert bodies(consumer.poll()) == [b"wanted", b"other"]
    consumer.commit()
    assert shop.loaded_offsets().all() == {("billing", "orders"): {0: 4}}


def test_an_empty_poll_means_that_nothing_is_left_however_much_was_passed_over(shop: Shop):
    shop.put(*numbers(0, 2500), tags="late")
    shop.put(b"paid", tags="paid")
    consumer = shop.consumer(tags="paid")
    assert bodies(consumer.poll()) == [b"paid"]
    assert consumer.position("orders", 0) == 2501
    assert not consumer.moves


def test_queues_take_turns(shop: Shop):
    shop.put(*numbers(0, 100), queue_id=0)
    shop.put(b"a", b"b", b"c", queue_id=1)
    shop.put(*numbers(0, 100), queue_id=7)
    consumer = shop.consumer()
    polled = [Counter(message.queue_id for message in consumer.poll(32)) for _ in range(4)]
    assert polled[:3] == [{0: 32}, {1: 3, 7: 29}, {0: 32}]
    assert sum(polled[3].values()) == 32
    assert 7 in polled[3]
    rest: list[StoredMessage] = []
    while messages := consumer.poll(50):
        rest += messages
    assert consumer.lag() == {("orders", 0): 0, ("orders", 1): 0, ("orders", 7): 0}
    assert len(rest) == 203 - 32 * 4


def test_a_queue_keeps_its_order_across_polls(shop: Shop):
    shop.put(*numbers(0, 70))
    consumer = shop.consumer()
    polled = [consumer.poll(9) for _ in range(9)]
    assert [body for messages in polled for body in bodies(messages)] == numbers(0, 70)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Store]:
    """A store with threads, which messages reach while a consumer waits."""
    with open_store(tmp_path / "running", StoreConfig(log_file_size=1 << 20, preallocate=False)) as store:
        store.put(Message("orders", b"first")).raise_for_status()
        store.flush()
        yield store


def test_messages_come_one_by_one_and_only_those_that_were_handed_out_are_committed(shop: Shop):
    shop.put(b"a", b"b", b"c")
    consumer = shop.consumer()
    for message in consumer.messages(wait_s=0):
        consumer.commit()
        if message.body == b"b":
            break
    assert bodies(list(shop.consumer())) == [b"c"]  # a store without threads does not wait
    assert bodies(shop.consumer().poll(wait_s=None)) == [b"c"]
    with pytest.raises(Rejected, match="wait_s=-1"):
        consumer.poll(wait_s=-1)
    with pytest.raises(Rejected, match="wait_s='1'"):
        consumer.poll(wait_s="1")


def test_a_poll_waits_for_what_comes(running: Store):
    consumer = running.consumer("billing", "orders", tags="paid")
    waiting, found = threading.Event(), list[list[StoredMessage]]()

    def wait() -> None:
        waiting.set()
        found.append(consumer.poll(wait_s=None))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    for number in range(50):  # of another tag: they wake the consumer, and end nothing
        running.put(Message("orders", b"%d" % number, tags="open")).raise_for_status()
    assert found == []
    running.put(Message("orders", b"wanted", tags="paid")).raise_for_status()
    thread.join()
    assert [bodies(messages) for messages in found] == [[b"wanted"]]
    assert consumer.poll(wait_s=0.001) == []


def test_a_loop_goes_on_with_what_comes_until_the_store_is_closed(running: Store):
    seen, ends = list[bytes | None](), list[Exception]()
    consumer, told = running.consumer("billing", "orders"), threading.Semaphore(0)

    def consume() -> None:
        try:
            for message in consumer:
                seen.append(message.body)
                told.release()
        except StoreClosed as end:
            ends.append(end)

    thread = threading.Thread(target=consume)
    thread.start()
    for number in range(20):
        told.acquire()
        running.put(Message("orders", b"%d" % number)).raise_for_status()
    told.acquire()
    running.close()
    thread.join()
    assert seen == [b"first", *(b"%d" % number for number in range(20))]
    assert len(ends) == 1


class _Ending:
    """The end of a store in which a topic is deleted while a consumer waits, and then Ctrl-C comes."""

    position = 0

    def __init__(self, store: Store) -> None:
        self._store = store

    def wait_beyond(self, *_: object) -> None:
        if not self._store.delete_topic("orders"):  # the second wait: the deletion was seen in between
            raise KeyboardInterrupt


def test_an_interrupted_wait_keeps_no_place_of_a_topic_that_was_deleted_meanwhile(shop: Shop):
    shop.put(*numbers(0, 10))
    store = shop.store
    consumer = Consumer(store, store.offsets, shop.retries, "billing", {"orders": "*"}, "earliest", _Ending(store))
    assert len(consumer.poll()) == 10
    with pytest.raises(KeyboardInterrupt):
        next(consumer.messages())
    consumer.commit()
    assert store.offsets.committed("billing", "orders", 0) is None
    shop.put(*numbers(20, 26))
    assert bodies(consumer.poll()) == numbers(20, 26)
    assert bodies(store.consumer("billing", "orders").poll()) == numbers(20, 26)


@pytest.mark.parametrize("wait_s", [None, 60])
def test_a_wait_in_a_store_that_takes_no_more_messages_ends(tmp_path: Path, wait_s: float | None):
    class Broken:
        def dispatch(self, _: RecordBatch) -> None:
            raise ValueError("no disk")

        def flush(self) -> None:
            pass

    config = StoreConfig(log_file_size=1 << 20, preallocate=False)
    with open_store(tmp_path / "running", config) as store:
        store.put(Message("orders", b"first")).raise_for_status()
        store.flush()
    store = open_store(tmp_path / "running", config, dispatchers=[Broken()])
    consumer = store.consumer("billing", "orders")
    store.put(Message("orders", b"second")).raise_for_status()
    assert bodies(consumer.poll(1)) == [b"first"]
    with pytest.raises(DurabilityLost, match="the worker 'dispatch' ended"):
        deque(iter(lambda: consumer.poll(wait_s=wait_s), []))  # what was dispatched comes first
    store.abandon()


def test_a_wait_in_a_store_without_a_queue_ends_with_the_store(tmp_path: Path):
    store = open_store(tmp_path / "running", StoreConfig(log_file_size=1 << 20, preallocate=False))
    consumer, ends = store.consumer("billing", "orders"), list[str]()

    def wait() -> None:
        with pytest.raises(StoreClosed) as closed:
            consumer.poll(wait_s=None)
        ends.append(str(closed.value))

    thread = threading.Thread(target=wait)
    thread.start()
    store.close()
    thread.join()
    assert len(ends) == 1


def test_new_queues_are_found_at_once_by_an_idle_consumer_and_soon_by_a_busy_one(shop: Shop):
    consumer = shop.consumer()
    assert consumer.poll() == []
    shop.put(b"first")
    assert bodies(consumer.poll()) == [b"first"]
    shop.put(*numbers(0, 200))
    shop.put(b"new queue", queue_id=3)
    polls = next(count for count in range(1, 200) if b"new queue" in bodies(consumer.poll(1)))
    assert polls <= 65


def test_latest_passes_over_what_was_there_but_not_what_comes_later(shop: Shop):
    shop.put(*numbers(0, 3))
    shop.put(b"again", topic="%RETRY%billing")
    consumer = shop.consumer(consume_from="latest")
    shop.put(b"3")
    shop.put(b"new queue", queue_id=1)
    assert set(bodies(consumer.poll())) == {b"again", b"3"}
    assert bodies(consumer.poll()) == [b"new queue"]
    consumer.commit()
    shop.put(b"4")
    assert bodies(shop.consumer(consume_from="latest").poll()) == [b"4"]


def test_seek_and_lag(shop: Shop):
    shop.put(*numbers(0, 10))
    consumer = shop.consumer()
    consumer.poll(4)
    assert consumer.lag() == {("orders", 0): 6}
    consumer.seek("orders", 0, 8)
    assert consumer.lag() == {("orders", 0): 2}
    assert bodies(consumer.poll()) == [b"8", b"9"]
    consumer.seek("orders", 0, 1)
    consumer.commit()
    assert bodies(shop.consumer().poll(1)) == [b"1"]
    shop.put(b"elsewhere", queue_id=2)
    assert consumer.lag() == {("orders", 0): 9, ("orders", 2): 1}


def test_a_lag_counts_what_is_there(shop: Shop):
    """A table edited by hand stands before the queue, or far behind its end."""
    shop.put(*numbers(0, 10))
    shop.put(*numbers(0, 3), queue_id=1)
    shop.disk.make_directories("/store/config")
    file = shop.disk.create("/store/config/consumerOffset.json", 0)
    file.write(0, b'{"offsetTable":{"orders@billing":{0:-5,1:99}}}')
    file.close()
    shop.offsets = shop.loaded_offsets()
    assert shop.consumer().lag() == {("orders", 0): 10, ("orders", 1): 0}


def test_what_is_sent_back_comes_again_under_its_topic_and_in_the_end_is_a_dead_letter(shop: Shop):
    shop.put(b"hard", tags="paid")
    consumer = shop.consumer(tags="paid")
    (message,) = consumer.poll()
    for times in (1, 2):
        consumer.send_back(message)
        (message,) = consumer.poll()
        assert isinstance(message, RetriedMessage)
        assert (message.topic, message.stored_topic, message.body) == ("orders", "%RETRY%billing", b"hard")
        assert (message.tags, message.reconsume_times, message.queue_offset) == ("paid", times, times - 1)
    assert consumer.dead_letters() == []
    consumer.send_back(message)
    assert consumer.poll() == []
    assert shop.levels == [3, 4, 0]
    (dead,) = consumer.dead_letters()
    assert (dead.topic, dead.body, dead.properties["RETRY_TOPIC"]) == ("%DLQ%billing", b"hard", "orders")
    consumer.commit()
    assert shop.loaded_offsets().all() == {("billing", "orders"): {0: 1}, ("billing", "%RETRY%billing"): {0: 2}}
    assert shop.consumer("mailing").dead_letters() == []


def test_a_level_is_asked_for_and_one_below_zero_gives_up(shop: Shop):
    shop.put(b"1", b"2")
    consumer = shop.consumer()
    first, second = consumer.poll()
    consumer.send_back(first, delay_level=7)
    consumer.send_back(second, delay_level=-1)
    assert shop.levels == [7, 0]
    assert bodies(consumer.poll()) == [b"1"]
    assert bodies(consumer.dead_letters()) == [b"2"]


def test_a_retried_message_is_the_stored_one_and_survives_pickling(shop: Shop):
    shop.put(b"x", topic="%RETRY%billing")  # by somebody else, without RETRY_TOPIC, and with no tag that is wanted
    (message,) = shop.consumer(tags="paid").poll()
    assert message.topic == "%RETRY%billing"
    assert message == shop.store.message_at(message.physical_offset)
    copy = pickle.loads(pickle.dumps(message))
    assert (type(copy), copy) == (RetriedMessage, message)


def test_what_cannot_be_sent_back_is_not_passed_over_silently(shop: Shop):
    shop.put(b"x")
    (message,) = shop.consumer().poll()
    refused = Consumer(shop.store, shop.offsets, NO_RETRIES, "billing", {"orders": "*"})
    with pytest.raises(NotNow, match="SERVICE_NOT_AVAILABLE; do not commit"):
        refused.send_back(message)
    dropping = Retries(shop.put_back, lambda group: SubscriptionGroup(group, retry_queue_nums=0))
    dropped = Consumer(shop.store, shop.offsets, dropping, "billing", {"orders": "*"}).send_back(message)
    assert (dropped.status, dropped.is_stored) == (PutStatus.PUT_OK, False)


def test_dead_letters_are_read_in_parts(shop: Shop):
    shop.put(*numbers(0, 90), topic="%DLQ%billing")
    consumer = shop.consumer()
    assert bodies(consumer.dead_letters(70)) == numbers(0, 70)
    assert bodies(consumer.dead_letters(70, offset=70)) == numbers(70, 90)
    assert consumer.dead_letters(offset=90) == []


def test_one_group_reads_several_topics(shop: Shop):
    shop.put(b"1", tags="paid")
    shop.put(b"2", tags="late")
    shop.put(b"3", topic="parcels")
    shop.put(b"4", topic="others")
    subscriptions = {"orders": "paid", "parcels": "*"}
    consumer = Consumer(shop.store, shop.offsets, shop.retries, "billing", subscriptions)
    assert sorted(bodies(consumer.poll())) == [b"1", b"3"]


def answer(status: GetStatus, next_offset: int, low: int = 0, high: int = 1000) -> GetResult:
    return GetResult(status, next_offset, low, high)


@pytest.mark.parametrize(
    ("start", "first", "asked"),
    [
        (5, answer(GetStatus.OFFSET_TOO_SMALL, 40, low=40), [5, 40]),
        (5000, answer(GetStatus.OFFSET_OVERFLOW_BADLY, 1000), [5000, 1000]),
        (7, answer(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0), [7, 0]),
        (7, answer(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0), [7, 0]),
        (7, answer(GetStatus.MESSAGE_WAS_REMOVING, 9), [7, 9]),
        (7, answer(GetStatus.OFFSET_FOUND_NULL, 500), [7, 500]),
        (7, answer(GetStatus.OFFSET_FOUND_NULL, 1500, high=1000), [7, 1000]),  # no file follows: not beyond the end
    ],
    ids=lambda value: value.status.name if isinstance(value, GetResult) else "",
)
def test_answers_that_move_are_followed_at_once_and_told(start: int, first: GetResult, asked: list[int]):
    source = Scripted(first)
    offsets = ConsumerOffsets(MemoryDisk(), "/store", ManualClock())
    offsets.commit("billing", "orders", 0, start)
    consumer = Consumer(source, offsets, NO_RETRIES, "billing", {"orders": "*"})
    assert consumer.poll() == []
    assert source.asked == asked
    assert list(consumer.moves) == [OffsetMove("orders", 0, start, asked[1], first.status)]
    consumer.commit()
    assert offsets.committed("billing", "orders", 0) == asked[1]


@pytest.mark.parametrize("status", [GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_MESSAGE])
def test_an_answer_that_moves_nothing_ends_the_poll(status: GetStatus):
    source = Scripted(answer(status, 5), answer(status, 5))
    offsets = ConsumerOffsets(MemoryDisk(), "/store", ManualClock())
    consumer = Consumer(source, offsets, NO_RETRIES, "billing", {"orders": "*"})
    assert consumer.poll() == []
    assert source.asked == [5]
    assert not consumer.moves


def test_offsets_behind_the_end_are_corrected_and_new_messages_are_read(shop: Shop):
    shop.put(*numbers(0, 3))
    shop.offsets.commit("billing", "orders", 0, 8)
    consumer = shop.consumer()
    assert consumer.poll() == []
    assert consumer.position("orders", 0) == 3
    shop.put(b"3")
    assert bodies(consumer.poll()) == [b"3"]


def test_mistakes_are_refused(shop: Shop):
    with pytest.raises(Rejected, match="earliest, latest"):
        shop.consumer(consume_from="yesterday")
    with pytest.raises(Rejected, match="group="):
        shop.consumer("no/group")
    with pytest.raises(Rejected, match="group="):
        shop.consumer("")
    with pytest.raises(Rejected, match="needs at least one topic"):
        Consumer(shop.store, shop.offsets, shop.retries, "billing", {})
    with pytest.raises(Rejected, match="at least 1"):
        shop.consumer().poll(0)
    with pytest.raises(Rejected, match="not consumed"):
        shop.consumer().seek("others", 0, 0)
    with pytest.raises(Rejected, match="at least 0"):
        shop.consumer().seek("orders", 0, -1)


def test_a_store_that_is_closed_is_not_read(shop: Shop):
    shop.put(b"x")
    consumer = shop.consumer()
    shop.store.close()
    with pytest.raises(StoreClosed):
        consumer.poll()


@pytest.mark.parametrize("case", ["broker-clean-4.9.8", "broker-clean-5.3.3"])
def test_a_brokers_store_gives_what_its_own_consumers_got(case: str, tmp_path: Path):
    """Every group of the broker once more from the start: up to the offsets that it committed the same messages, with
    the same numbers of deliveries and of dead letters; from its offsets on: all that followed.
    """
    consumed = read_json(FOLDERS[case], "consumed")
    path = str(unpack(case, tmp_path))
    committed = ConsumerOffsets(RealFileSystem(), path, ManualClock())
    assert committed.load() == []
    with open_store(path, StoreConfig.broker(preallocate=False), workers=False) as store:
        for group, subscription in SUBSCRIPTIONS.items():
            fresh = ConsumerOffsets(MemoryDisk(), "/none", ManualClock())
            consumer = Consumer(store, fresh, NO_RETRIES, group, subscription)
            everything = polled(consumer)
            theirs = [row for row in consumed if row["group"] == group]
            before = [message for message in everything if message.queue_offset < end_of(committed, group, message)]
            assert Counter(map(facts, before)) == Counter({tuple(row[name] for name in FACTS) for row in theirs})
            given_up = {row["msgId"] for row in theirs if row["answer"] == "later" and row["reconsumeTimes"] == 2}
            assert {message.msg_id for message in consumer.dead_letters(100)} == given_up
            after = polled(Consumer(store, committed, NO_RETRIES, group, subscription))
            assert len(after) == len(everything) - len(before)
            assert {*after, *before} == {*everything}


def polled(consumer: Consumer) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while messages := consumer.poll():
        found += messages
    return found


def end_of(offsets: ConsumerOffsets, group: str, message: StoredMessage) -> int:
    """Where the group had got in the queue that a message is in."""
    topic = message.stored_topic if isinstance(message, RetriedMessage) else message.topic
    return offsets.committed(group, topic, message.queue_id) or 0


Facts = tuple[object, ...]
FACTS = ("topic", "queueId", "queueOffset", "msgId", "keys", "tags", "reconsumeTimes")
SUBSCRIPTIONS = {
    "g_fast_G101": {"G101Normal": "*"},
    "g_order_G101": {"G101Order": "*"},
    "g_tag_G101": {"G101Wide": "TagA || 标签"},
    "g_delay_G101": {"G101Delay": "*"},
}


def facts(message: StoredMessage) -> Facts:
    """What consumed.json says of a message."""
    return (
        message.topic, message.queue_id, message.queue_offset, message.msg_id, message.keys, message.tags,
        message.reconsume_times,
    )  # fmt: skip


@pytest.mark.parametrize("new", [5, 10, 25])
@pytest.mark.parametrize("commits", ["before", "afterwards", "never"])
def test_a_topic_that_is_made_again_is_read_from_its_beginning(tmp_path: Path, new: int, commits: str):
    with open_store(tmp_path, CONFIG, workers=False) as store:
        for number in range(10):
            store.put(Message("orders", b"old %d" % number))
        store.flush()
        consumer = store.consumer("billing", "orders")
        assert len(consumer.poll(100)) == 10
        if commits == "before":
            consumer.commit()
        assert store.delete_topic("orders")
        fresh = [b"new %d" % number for number in range(new)]
        for body in fresh:
            store.put(Message("orders", body))
        store.flush()
        if commits == "afterwards":
            consumer.commit()
        with store.consumer("billing", "orders") as other:
            assert bodies(other.poll(100)) == fresh
        store.offsets.commit("billing", "orders", 0, 0)
        assert bodies(consumer.poll(100)) == fresh
        assert sum(consumer.lag().values()) == 0
        consumer.commit()
        assert store.offsets.committed("billing", "orders", 0) == new


def test_nothing_is_read_or_committed_of_a_topic_while_it_is_deleted(shop: Shop):
    shop.put(*numbers(0, 5))
    consumer = shop.consumer()
    assert len(consumer.poll(2)) == 2
    under_way = threading.Lock()
    with under_way:
        shop.offsets.begin_removal("orders", under_way)
        assert consumer.poll() == []
        consumer.commit()
        assert shop.offsets.all() == {}
        late = shop.consumer()
        assert late.poll() == []
    assert bodies(consumer.poll()) == numbers(0, 5)
    assert bodies(late.poll()) == numbers(0, 5)
