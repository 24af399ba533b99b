"""What is done to a broker's storage while its disk crashes or fails, what it promised, and what must be true then.

As `workload.py` for the log: a `Promises` stands outside of the store, like the producers and consumers that got its
answers, and `check_disk` opens what a crash left, lets the clock run and holds the store against them.  A message whose
record was deleted by retention is owed to nobody.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import NamedTuple

import pyarrow as pa

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import GetStatus, Message, PutResult, PutStatus
from rmqstore.engine.broker.transaction_messages import Prepared, TransactionState
from rmqstore.engine.consumer import Consumer
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import Corrupt, DurabilityLost, NotNow, Rejected
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats import broker_json, names, properties
from rmqstore.formats.broker_json import SubscriptionGroup, TopicConfig
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.testing import Probe
from tests.crash import workload
from tests.crash.disks import MemoryDisk
from tests.crash.workload import ROOT, Fate, comparable, differences

GROUP = "billing"
RETRIES_MAX = 1
CHECKS_MAX = 2
LEVELS = "1s 2s 4s 6s 9s"
BROKER = {
    "log_file_size": 8192, "default_queue_nums": 2, "delay_levels": LEVELS, "transaction_timeout_ms": 3000,
    "transaction_check_max": CHECKS_MAX, "transaction_check_interval_ms": 4000,
}  # fmt: skip
SYNC = replace(workload.SYNC, **BROKER)
ASYNC = replace(workload.ASYNC, **BROKER)
LEDGER = replace(workload.LEDGER, **BROKER)
_DELAYS_MS = SYNC.delay_ms()
# What the checks of the first run are answered, by body; all others are not known.
ANSWERS = {b"<t2>": TransactionState.COMMIT, b"<t3>": TransactionState.ROLLBACK}
_CONFIG_FILES = ("topics", "consumerOffset", "delayOffset", "subscriptionGroup")
_RETRY_LEVEL = 3  # of the first retry
_TIMES = 60  # so many steps of `_RUN_STEP_MS` see everything through: delays, retries, checks
_RUN_STEP_MS = 2100


@dataclass(slots=True)
class Fact:
    """One message that somebody handed over.  `is_durable`: it was taken, and a sync was confirmed since."""

    body: bytes
    topic: str
    queue_id: int
    level: int = 0  # of its delay; 0 for none
    put_ms: int = 0
    offset: int = -1  # of the first record that stands for it
    fate: Fate = Fate.UNKNOWN
    is_durable: bool = False


@dataclass(slots=True)
class Deal(Fact):
    """A transaction: what it was asked to become, and what it was told to be."""

    prepared: Prepared | None = None
    asked: set[str] = field(default_factory=set)
    told: str = ""
    is_told_durable: bool = False


@dataclass(slots=True)
class SentBack:
    """A message that a consumer sent back, which then has come back so often."""

    body: bytes
    times: int
    sent_ms: int
    offset: int
    is_durable: bool = False


@dataclass(slots=True)
class Promises:
    """All that was handed over and answered, and the time it is."""

    now_ms: int = ManualClock().ms
    facts: list[Fact] = field(default_factory=list)
    deals: list[Deal] = field(default_factory=list)
    sent_back: list[SentBack] = field(default_factory=list)
    polled: set[tuple[bytes, int]] = field(default_factory=set)  # body, how often it had come back
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    wanted: dict[tuple[str, int], int] = field(default_factory=dict)  # the highest that was ever to be committed
    topics: dict[str, int] = field(default_factory=dict)  # -> queues
    has_group: bool = False
    wrong: list[str] = field(default_factory=list)  # what a callback saw and could not raise

    def copy(self) -> "Promises":
        return Promises(
            self.now_ms, [copy.copy(each) for each in self.facts],
            [replace(each, asked=set(each.asked)) for each in self.deals],
            [copy.copy(each) for each in self.sent_back], set(self.polled), dict(self.committed), dict(self.wanted),
            dict(self.topics), self.has_group, list(self.wrong),
        )  # fmt: skip

    def synced(self) -> None:
        """The log is on the disk up to its end."""
        for fact in [*self.facts, *self.deals, *self.sent_back]:
            fact.is_durable |= not isinstance(fact, Fact) or fact.fate is Fate.STORED
        for deal in self.deals:
            deal.is_told_durable |= bool(deal.told)

    def lost(self, log_start: int, offset: int) -> bool:
        """Whether retention deleted the record."""
        return 0 <= offset < log_start


def typed(method: Callable[..., None]) -> Callable[..., None]:
    """A method that asks for what never raises a bare OSError."""

    @wraps(method)
    def asked(*arguments, **more) -> None:
        try:
            method(*arguments, **more)
        except OSError as error:
            raise AssertionError(f"a bare {error!r} came out of a store") from error

    return asked


class BrokerWorkload:
    """Producers and a consumer with a store of their own.  Any method may raise what the store raises; `promises` is
    right even so.
    """

    def __init__(self, fs: FileSystem, config: StoreConfig, clock_step_ms: int = 1900) -> None:
        self.promises = Promises()
        self.clock = ManualClock()
        self.errors: list[BaseException] = []
        self.store: Store | None = None
        self._fs, self._config, self._clock_step_ms = fs, config, clock_step_ms
        self._consumer: Consumer | None = None

    def open(self) -> None:
        if self.store is None:
            self.store = open_store(
                ROOT, self._config, clock=self.clock, filesystem=self._fs, workers=False, check=self._check
            )

    @typed
    def close(self) -> None:
        store = self._opened()
        self.store = self._consumer = None
        store.close()
        self.promises.synced()

    def topic(self, name: str, queues: int) -> None:
        self._opened().topics.put(TopicConfig(name, queues, queues))
        self._has_topic(name, queues)

    def group(self) -> None:
        self._opened().groups.put(SubscriptionGroup(GROUP, retry_max_times=RETRIES_MAX))
        self.promises.has_group = True

    @typed
    def put(self, topic: str, queue_id: int, level: int = 0, waits: bool = True) -> None:
        fact = self._new(topic, queue_id, level)
        asked = {properties.DELAY: str(level)} if level else {}
        message = Message(
            topic, fact.body, tags="paid", keys=fact.body.decode(), properties=asked, queue_id=queue_id,
            wait_store_ok=waits,
        )  # fmt: skip
        self._settle([fact], self._opened().put(message), waits)

    @typed
    def put_columns(self, topic: str, levels: Sequence[int]) -> None:
        facts = [self._new(topic, 0, level) for level in levels]
        table = pa.table(
            {
                "topic": [topic] * len(facts),
                "queueId": pa.array([0] * len(facts), pa.int32()),
                "body": pa.array([fact.body for fact in facts], pa.binary()),
                "tags": ["paid"] * len(facts),
                "keys": [fact.body.decode() for fact in facts],
                "delayLevel": pa.array(levels, pa.int32()),
            }
        )
        self._settle(facts, self._opened().put_columns(table), True)

    @typed
    def prepare(self, topic: str, queue_id: int) -> None:
        self._advance()
        body = f"<t{len(self.promises.deals)}>".encode()
        deal = Deal(body, topic, queue_id, put_ms=self.clock.ms)
        self.promises.deals.append(deal)
        transactions = self._opened().transactions
        unique = {properties.UNIQUE_KEY: body.decode()}
        message = Message(topic, body, tags="paid", keys=body.decode(), properties=unique, queue_id=queue_id)
        result = transactions.prepare(message, "shop")
        self._settle([deal], result, True)
        deal.prepared = transactions.prepared(result)

    @typed
    def decide(self, number: int, fate: str) -> None:
        self._advance()
        deal = self.promises.deals[number]
        if deal.prepared is None:
            return
        transactions = self._opened().transactions
        decided = transactions.commit if fate == "commit" else transactions.rollback
        deal.asked.add(fate)
        result = decided(deal.prepared)
        if result.status is PutStatus.PUT_OK:
            deal.told = fate
            if self._config.flush == "SYNC":
                self.promises.synced()

    def consume(self) -> None:
        """Polls all there is, sends back what is marked so, commits; a consumer that fails gives way to a new one."""
        consumer = self._consumer or self._opened().consumer(GROUP, "orders")
        self._consumer = None
        while messages := consumer.poll(4):
            for message in messages:
                self._process(consumer, message)
        positions = {key: consumer.position(*key) for key in self._opened().queues()}
        reached = {key: position for key, position in positions.items() if position is not None}
        promises = self.promises
        for key, position in reached.items():
            promises.wanted[key] = max(promises.wanted.get(key, 0), position)
        consumer.commit()
        self._consumer = consumer
        if promises.committed != reached:
            promises.committed = reached
            promises.synced()

    def _process(self, consumer: Consumer, message: StoredMessage) -> None:
        assert message.body is not None
        if message.body.endswith(b"!"):
            result = consumer.send_back(message)
            times = message.reconsume_times + 1
            self.promises.sent_back.append(SentBack(message.body, times, self.clock.ms, result.physical_offset))
        self.promises.polled.add((message.body, message.reconsume_times))

    @typed
    def flush(self) -> None:
        self._opened().flush()
        self.promises.synced()

    @typed
    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self._advance()
            self._opened().step()

    def clean(self) -> None:
        """Deletes all log files but the newest, as the plan says that it will."""
        store = self._opened()
        wanted = store.clean(any_age=True, dry_run=True)
        done = store.clean(any_age=True)
        if not self.errors:
            assert done.as_dict() == wanted.as_dict()

    def _check(self, half: StoredMessage) -> TransactionState:
        deal = next(each for each in self.promises.deals if each.body == half.body)
        if deal.told:
            self.promises.wrong.append(f"{deal} is decided, and was asked after")
        answer = ANSWERS.get(deal.body, TransactionState.UNKNOWN)
        if answer is not TransactionState.UNKNOWN:
            deal.asked.add("commit" if answer is TransactionState.COMMIT else "rollback")
        return answer

    def _new(self, topic: str, queue_id: int, level: int) -> Fact:
        self._advance()
        mark = "!" if level in (1, 2) else ""  # what is so marked comes back
        fact = Fact(f"<{len(self.promises.facts)}>{mark}".encode(), topic, queue_id, level, self.clock.ms)
        self.promises.facts.append(fact)
        return fact

    def _settle(self, facts: Sequence[Fact], result: PutResult, waits: bool) -> None:
        for number, fact in enumerate(facts):
            fact.fate = Fate.STORED if number < result.message_count else Fate.REFUSED
            fact.offset = result.physical_offset
            if fact.fate is Fate.STORED:
                self._has_topic(fact.topic, fact.queue_id + 1)
        if result.status is PutStatus.PUT_OK and waits and self._config.flush == "SYNC":
            self.promises.synced()

    def _has_topic(self, name: str, queues: int) -> None:
        self.promises.topics[name] = max(self.promises.topics.get(name, 0), queues)

    def _advance(self) -> None:
        self.clock.advance(self._clock_step_ms)
        self.promises.now_ms = self.clock.ms

    def _opened(self) -> Store:
        assert self.store is not None
        return self.store


Action = Callable[[BrokerWorkload], None]


def actions() -> list[Action]:
    """The workload: everything that config/ keeps or the system topics hold is begun, under way, and done with."""
    return [
        lambda load: load.open(),
        lambda load: load.topic("orders", 2),
        lambda load: load.group(),
        lambda load: load.put("orders", 0),
        lambda load: load.put("orders", 1, level=1),  # comes back until it is a dead letter
        lambda load: load.prepare("orders", 0),  # t0
        lambda load: load.prepare("orders", 1),  # t1
        lambda load: load.decide(0, "commit"),
        lambda load: load.step(),
        lambda load: load.decide(1, "rollback"),
        lambda load: load.consume(),
        lambda load: load.put("orders", 0, level=5),
        lambda load: load.put_columns("orders", [2, 0, 4]),
        lambda load: load.step(2),
        lambda load: load.consume(),
        lambda load: load.prepare("orders", 1),  # t2, t3: decided by checks
        lambda load: load.prepare("orders", 1),
        lambda load: load.prepare("orders", 1),  # t4: given up by checks
        lambda load: load.step(3),
        lambda load: load.put("made", 0, waits=False),  # a topic on demand
        lambda load: load.consume(),
        lambda load: load.prepare("orders", 0),  # t5: open over a reopening
        lambda load: load.close(),
        lambda load: load.open(),
        lambda load: load.put("made", 3),  # wider than it was
        lambda load: load.decide(5, "commit"),
        lambda load: load.step(3),
        lambda load: load.consume(),
        lambda load: load.flush(),
        lambda load: load.clean(),
        lambda load: load.prepare("orders", 0),  # t6: a copy of it is checked before it is decided
        lambda load: load.put("orders", 1, level=3),
        lambda load: load.step(4),
        lambda load: load.consume(),
        lambda load: load.decide(6, "rollback"),
        lambda load: load.put("orders", 0, level=2),
        lambda load: load.put("orders", 1),
        lambda load: load.clean(),
        lambda load: load.close(),
        lambda load: load.open(),
        lambda load: load.prepare("orders", 0),  # t7: left open
        lambda load: load.put("orders", 1, level=4),
        lambda load: load.step(2),
        lambda load: load.consume(),
    ]  # fmt: skip


def run(load: BrokerWorkload, script: Sequence[Action]) -> None:
    """Does it all, going on after errors as stubborn programs do.  Raises AssertionError for an error that no method
    of a store says it raises."""
    for action in script:
        if load.store is None:
            try:
                load.open()
            except (OSError, DurabilityLost) as error:
                load.errors.append(error)
                continue
        try:
            action(load)
        except (OSError, DurabilityLost, NotNow, Rejected) as error:
            load.errors.append(error)
    assert not load.promises.wrong, load.promises.wrong


class Copy(NamedTuple):
    """One message as it stands in a queue."""

    topic: str
    queue_id: int
    body: bytes
    times: int
    store_ms: int


def visible(store: Store) -> list[Copy]:
    """All that can be read in the queues of users' topics.  Raises AssertionError where a queue has a hole."""
    found = []
    for topic, queue_id in store.queues():
        if not names.is_system_topic(topic):
            found += list(_copies(store, topic, queue_id))
    return found


def _copies(store: Store, topic: str, queue_id: int) -> Iterator[Copy]:
    offset, behind = store.bounds(topic, queue_id)
    while offset < behind:
        answer = store.get(topic, queue_id, offset)
        assert answer.status is GetStatus.FOUND, (topic, queue_id, offset, answer.status)
        for message in answer.messages:
            assert message.queue_offset == offset
            assert message.is_whole, message.corrupt_reason
            assert message.body is not None
            yield Copy(topic, queue_id, message.body, message.reconsume_times, message.store_timestamp_ms)
            offset += 1


def check_disk(disk: MemoryDisk, config: StoreConfig, promises: Promises, *, thorough: bool = True) -> None:
    """Opens what a crash left, lets the clock run, and holds it all against what was promised; the disk is changed."""
    check_config_files(disk.image(), promises)
    was_clean = not disk.exists(f"{ROOT}/abort")
    after = After(disk, config, promises)
    if thorough:
        check_second_recovery(disk, config, promises, was_clean)
    after.check_opened()
    after.decide_some()
    after.run()
    after.check_seen_through()
    if thorough:
        check_going_on(after, disk)


def check_config_files(image: dict[str, bytes], promises: Promises) -> None:
    """Of each file in config/ one of the two copies is sound, whatever the moment."""
    saved = {"topics": bool(promises.topics), "consumerOffset": bool(promises.committed),
             "subscriptionGroup": promises.has_group, "delayOffset": False}  # fmt: skip
    for name in _CONFIG_FILES:
        path = f"{ROOT}/config/{name}.json"
        copies = [image[each] for each in (path, f"{path}.bak") if each in image]
        assert copies or not saved[name], f"{name}.json was saved, and is gone"
        assert not copies or any(map(_is_sound, copies)), f"{name}.json and its .bak are torn"


def _is_sound(data: bytes) -> bool:
    try:
        return bool(broker_json.parse(data))
    except Corrupt:
        return False


def check_second_recovery(disk: MemoryDisk, config: StoreConfig, promises: Promises, was_clean: bool) -> None:
    """A crash of the opened store and one more opening change nothing: neither the log nor config/."""

    def state(image: dict[str, bytes]) -> dict[str, bytes]:
        files = comparable(image) | {path: data for path, data in image.items() if "/config/" in path}
        if was_clean:  # then the checkpoint is first written when something is recovered
            files.pop(f"{ROOT}/checkpoint", None)
        return files

    before = state(disk.image())
    for choice in ("lost", "killed"):
        again = disk.crash(choice)
        After(again, config, promises)
        found = state(again.image())
        assert found == before, differences(found, before)


class After:
    """A store that was opened after a crash, and what is found in it."""

    def __init__(self, disk: MemoryDisk, config: StoreConfig, promises: Promises) -> None:
        self.promises = promises
        self.config = config
        self.clock = ManualClock(promises.now_ms + 1)
        self.decided: dict[bytes, str] = {}  # by body
        self.checked: Counter[bytes] = Counter()
        self.store = open_store(ROOT, config, clock=self.clock, filesystem=disk, workers=False, check=self._contrary)
        assert not [warning for warning in self.store.warnings if "empty table" in warning], self.store.warnings
        self.log_start = Probe(self.store).log_start
        self.at_opening = visible(self.store)
        self._consumer: Consumer | None = None

    def check_opened(self) -> None:
        """Topics, offsets and open transactions, as they are right after the opening."""
        store, promises = self.store, self.promises
        for topic, queues in promises.topics.items():
            found = store.topics.find(topic)
            assert found is not None, f"the topic {topic!r} is gone"
            assert found.write_queue_nums >= queues, f"{topic!r} has {found.write_queue_nums} queues, not {queues}"
        if promises.has_group:
            assert store.groups.find(GROUP).retry_max_times == RETRIES_MAX, "the group's settings are gone"
        committed = {key: store.offsets.committed(GROUP, *key) for key in {*promises.committed, *promises.wanted}}
        for key, offset in promises.committed.items():
            found_offset = committed[key]
            assert found_offset is not None, f"{key}: committed {offset}, now nothing"
            assert found_offset >= offset, f"{key}: committed {offset}, now {found_offset}"
        for key, offset in committed.items():
            assert (offset or 0) <= promises.wanted[key], f"{key}: {offset} was never committed"
            assert (offset or 0) <= store.bounds(*key)[1], f"{key}: {offset} lies behind the end"
        self._check_open_transactions()

    def _check_open_transactions(self) -> None:
        pending = Counter(each.transaction_id for each in self.store.transactions.pending())
        counts = Counter(copy.body for copy in self.at_opening)
        given_up = self._given_up()
        for deal in self.promises.deals:
            open_count, shown = pending[deal.body.decode()], counts[deal.body]
            assert open_count <= 1, f"{deal} is open {open_count} times"
            assert shown <= 1, f"{deal} is there {shown} times"
            assert not shown or "commit" in deal.asked, f"{deal} is there, and nobody committed it"
            if self.promises.lost(self.log_start, deal.offset) or not deal.is_durable:
                continue
            if deal.is_told_durable:
                assert not open_count, f"{deal} is open again"
                assert shown == (deal.told == "commit"), f"{deal} is there {shown} times"
            elif "rollback" not in deal.asked:
                assert open_count or shown or deal.body in given_up, f"{deal} is lost"

    def _given_up(self) -> set[bytes]:
        low, high = self.store.bounds(names.TRANSACTION_CHECK_TOPIC, 0)
        return {copy.body for copy in _copies(self.store, names.TRANSACTION_CHECK_TOPIC, 0)} if high > low else set()

    def decide_some(self) -> None:
        """Decides open transactions against what was asked of them before, as far as that may be; some are left to
        the checks."""
        shown = {copy.body for copy in self.at_opening}
        for prepared in self.store.transactions.pending():
            body = prepared.transaction_id.encode()
            if body in shown:
                try:
                    self.store.transactions.rollback(prepared)
                except Rejected:
                    assert self.store.transactions.commit(prepared).is_stored
                    self.decided[body] = "commit"
                else:
                    raise AssertionError(f"{prepared} is visible, and could be rolled back")
            elif int(body[2:-1]) % 3:
                fate = "rollback" if int(body[2:-1]) % 2 else "commit"
                decided = getattr(self.store.transactions, fate)(prepared)
                assert decided.is_stored, decided
                self.decided[body] = fate

    def run(self) -> None:
        """Lets the clock run until nothing is to come, with the group consuming all the while."""
        for _ in range(_TIMES):
            self.clock.advance(_RUN_STEP_MS)
            self.store.step()
            self._consume()
            waits = self.store.delay.pending_count or self.store.transactions.pending()
            if not waits and not self.store.health().dispatch_behind_bytes:
                break
        else:
            raise AssertionError(f"{self.store.delay.pending_count} wait, {self.store.transactions.pending()}")
        assert self.store.health().is_writable, self.store.health()
        assert not self.store.delay.failure_count + self.store.delay.unreadable_count, self.store.delay.last_failure
        assert self.store.transactions.cycle.failure is None, self.store.transactions.cycle.failure

    def _consume(self) -> None:
        consumer = self.consumer()
        while messages := consumer.poll():
            for message in messages:
                assert message.body is not None
                self.promises.polled.add((message.body, message.reconsume_times))

    def consumer(self) -> Consumer:
        """The group's, which goes on where it committed before the crash."""
        if self._consumer is None:
            self._consumer = self.store.consumer(GROUP, "orders")
        return self._consumer

    def check_seen_through(self) -> None:
        """What came of every message, now that time has passed."""
        copies = visible(self.store)
        by_body: dict[bytes, list[Copy]] = {}
        for copy_ in copies:
            by_body.setdefault(copy_.body, []).append(copy_)
        for fact in self.promises.facts:
            found = by_body.pop(fact.body, [])
            assert not found or fact.fate is not Fate.REFUSED, f"{fact} was refused, and is there"
            self._check_place(fact, found)
            assert len(found) <= 1 or fact.level, f"{fact} is there {len(found)} times"
            due_ms = fact.put_ms + (_DELAYS_MS[fact.level - 1] if fact.level else 0)
            assert all(copy_.store_ms >= due_ms for copy_ in found), f"{fact} was delivered early: {found}"
            is_owed = fact.is_durable and not self.promises.lost(self.log_start, fact.offset)
            assert found or not is_owed, f"{fact} is lost"
        for deal in self.promises.deals:
            self._check_fate(deal, by_body.pop(deal.body, []))
        assert not by_body, f"nobody sent {by_body}"
        for copy_ in copies:
            if copy_.topic == "orders":
                assert (copy_.body, copy_.times) in self.promises.polled, f"{copy_} was passed over"
        self._check_sent_back()

    def _check_place(self, fact: Fact, found: Sequence[Copy]) -> None:
        for copy_ in found:
            assert (copy_.topic, copy_.queue_id, copy_.times) == (fact.topic, fact.queue_id, 0), (fact, copy_)

    def _check_fate(self, deal: Deal, found: Sequence[Copy]) -> None:
        self._check_place(deal, found)
        assert len(found) <= 1, f"{deal} is there {len(found)} times"
        fate = self.decided.get(deal.body) or (deal.told if deal.is_told_durable else "")
        assert not (found and fate == "rollback"), f"{deal} was rolled back, and is there"
        if self.promises.lost(self.log_start, deal.offset):
            return
        assert found or fate != "commit", f"{deal} was committed, and is not there"
        if deal.is_told_durable:
            assert not self.checked[deal.body], f"{deal} is decided, and was asked after"
        elif self.checked[deal.body] and not fate and deal.told != "commit":
            assert found, f"{deal} was committed by a check, and is not there"

    def _check_sent_back(self) -> None:
        dead = {(copy_.body, copy_.times) for copy_ in self._dead_letters()}
        for back in self.promises.sent_back:
            if back.is_durable and not self.promises.lost(self.log_start, back.offset):
                is_there = (back.body, back.times) in self.promises.polled | dead
                assert is_there, f"{back} did not come back"
                is_dead = back.times > RETRIES_MAX and self.promises.has_group
                assert not is_dead or (back.body, back.times) in dead, f"{back} is no dead letter"
        for copy_ in _copies(self.store, names.RETRY_PREFIX + GROUP, 0):
            sent = [back.sent_ms for back in self.promises.sent_back if (back.body, back.times) == copy_[2:4]]
            due_ms = min(sent) + _DELAYS_MS[min(_RETRY_LEVEL + copy_.times - 1, len(_DELAYS_MS)) - 1]
            assert copy_.store_ms >= due_ms, f"{copy_} came back early"

    def _dead_letters(self) -> list[Copy]:
        return list(_copies(self.store, names.DLQ_PREFIX + GROUP, 0))

    def _contrary(self, half: StoredMessage) -> TransactionState:
        """The answer to a check: what does not agree with what the transaction was told to be."""
        assert half.body is not None
        self.checked[half.body] += 1
        deal = next(each for each in self.promises.deals if each.body == half.body)
        return TransactionState.ROLLBACK if deal.told == "commit" else TransactionState.COMMIT


def check_going_on(after: After, disk: MemoryDisk) -> None:
    """The store takes everything again, the group gets it, and after a clean end all is as it was."""
    store = after.store
    for queue_id in range(2):
        assert store.put(Message("orders", b"<new>", queue_id=queue_id)).status is PutStatus.PUT_OK
    store.flush()
    consumer = after.consumer()
    new = [message.body for _ in range(3) for message in consumer.poll()]
    assert new == [b"<new>"] * 2, new
    consumer.commit()
    delivered = Counter((copy_.topic, copy_.body) for copy_ in visible(store))
    offsets, pending = store.offsets.all(), store.transactions.pending()
    store.close()
    assert plan_recovery(disk, ROOT, after.config).changes_nothing
    last = After(disk, after.config, after.promises)
    assert last.store.offsets.all() == offsets
    assert last.store.transactions.pending() == pending
    for _ in range(3):
        last.clock.advance(60_000)
        last.store.step()
    assert Counter((copy_.topic, copy_.body) for copy_ in visible(last.store)) == delivered, "delivered once more"
