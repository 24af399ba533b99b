"""The check cycle: who is asked, what is copied and given up, which offsets are committed; power cuts at any moment."""

import errno
import random
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.broker.transaction_check import CheckLimits
from rmqstore.engine.broker.transaction_messages import (
    CHECK_GROUP,
    Prepared,
    TransactionState,
    check_times,
    immunity_ms,
    op_offsets,
    prepared_of,
)
from rmqstore.errors import DurabilityLost, NotNow, Rejected, WrongType
from rmqstore.formats import names
from rmqstore.formats.stored_message import StoredMessage
from tests.broker.open_log import SMALL, Opened
from tests.crash.disks import Choice, MemoryDisk, Operation, WatchedDisk
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.stores

LIMITS = CheckLimits(check_max=3)
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class Producer:
    """Answers by the body; what it was asked, and how often it said nothing."""

    def __init__(self, answers: dict[bytes, TransactionState] | None = None) -> None:
        self.answers = answers or {}
        self.asked: list[tuple[bytes | None, int]] = []
        self.halves: list[StoredMessage] = []

    def __call__(self, half: StoredMessage) -> TransactionState:
        self.asked.append((half.body, check_times(half.properties)))
        self.halves.append(half)
        assert half.body is not None
        return self.answers.get(half.body, UNKNOWN)


def prepare(opened: Opened, body: bytes, **found: str) -> Prepared:
    message = Message("orders", body, properties=found)
    return opened.transactions.prepared(opened.transactions.prepare(message, "shop"))


def committed(opened: Opened) -> tuple[int | None, int | None]:
    return tuple(  # type: ignore[return-value]
        opened.offsets.committed(CHECK_GROUP, topic, 0) for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC)
    )


def test_old_ones_are_asked_after_and_young_ones_are_not():
    producer = Producer({b"yes": COMMIT, b"no": ROLLBACK})
    opened = Opened(MemoryDisk(), check=producer, limits=LIMITS)
    for body in (b"yes", b"no", b"perhaps"):
        prepare(opened, body)
    opened.clock.advance(5999)
    opened.check()
    assert producer.asked == []
    opened.clock.advance(1)
    young = prepare(opened, b"young")
    opened.check()
    assert producer.asked == [(b"yes", 1), (b"no", 1), (b"perhaps", 1)]
    assert [half.queue_offset for half in producer.halves] == [4, 5, 6]
    assert opened.bodies("orders") == [b"yes"]
    pending = opened.transactions.pending()
    assert [half.queue_offset for half in pending] == [3, 6]
    assert pending[0] == young
    assert opened.bodies(names.OP_HALF_TOPIC) == [b"0,4,", b"1,5,"]
    assert committed(opened) == (3, 0)  # the young one is still where it was; op messages name what is behind it
    opened.clock.advance(6000)
    opened.check()
    assert producer.asked[3:] == [(b"young", 1), (b"perhaps", 2)]
    assert committed(opened) == (7, 2)


def test_it_is_asked_a_limited_number_of_times():
    producer = Producer()
    opened = Opened(MemoryDisk(), check=producer, limits=LIMITS)
    first = prepare(opened, b"one")
    for _ in range(6):
        opened.clock.advance(30_000)
        opened.check()
    assert producer.asked == [(b"one", 1), (b"one", 2), (b"one", 3)]
    assert opened.transactions.pending() == []
    (given_up,) = opened.messages(names.TRANSACTION_CHECK_TOPIC)
    assert (given_up.body, check_times(given_up.properties)) == (b"one", 3)
    assert opened.bodies("orders") == []
    assert opened.transactions.cycle.given_up_count == 1
    assert committed(opened) == (4, 1)
    for name in (first, *map(prepared_of, opened.messages(names.HALF_TOPIC))):
        with pytest.raises(Rejected, match="given up"):
            opened.transactions.commit(name)


def test_checks_put_no_copies_where_rocksdb_has_the_state():
    producer = Producer({b"yes": COMMIT, b"no": ROLLBACK})
    disk = MemoryDisk()
    opened = Opened(disk)
    for body in (b"yes", b"no", b"perhaps"):
        opened.put_rocksdb_half(body)
    opened.close()
    opened = Opened(disk, check=producer, limits=LIMITS, clock=opened.clock)
    opened.clock.advance(5999)
    opened.check()
    assert producer.asked == []
    for _ in range(6):
        opened.clock.advance(30_000)
        opened.check()
    assert producer.asked == [(b"yes", 0), (b"no", 0), *[(b"perhaps", 0)] * LIMITS.check_max]
    assert len(opened.messages(names.ROCKSDB_HALF_TOPIC)) == len(opened.messages(names.ROCKSDB_OP_HALF_TOPIC)) == 3
    assert opened.bodies("orders", 1) == [b"yes"]
    assert opened.bodies(names.TRANSACTION_CHECK_TOPIC) == [b"perhaps"]
    assert opened.transactions.pending() == []
    assert opened.transactions.cycle.given_up_count == 1
    opened.close()
    assert Opened(disk).transactions.pending() == []


def test_what_was_given_up_without_an_op_message_stays_so():
    """As brokers give up; their offsets may be older than that."""
    disk = MemoryDisk()
    opened = Opened(disk, check=Producer(), limits=CheckLimits(check_max=0))
    prepared = prepare(opened, b"one")
    for number in range(40):
        opened.store.put(Message(names.TRANSACTION_CHECK_TOPIC, b"%d" % number))
    opened.clock.advance(30_000)
    opened.log.failing = {names.OP_HALF_TOPIC}
    opened.check()
    kept = prepare(opened, b"two")
    for number in range(40):
        opened.store.put(Message(names.TRANSACTION_CHECK_TOPIC, b"%d" % number))
    opened.close()
    again = Opened(disk)
    assert again.transactions.pending() == [kept]
    with pytest.raises(Rejected, match="given up"):
        again.transactions.commit(prepared)


def test_what_the_log_would_lose_is_asked_after_once_more_and_given_up():
    """The store may have been closed for days, or the clock stepped: nobody was asked yet."""
    producer = Producer({b"two": COMMIT})
    opened = Opened(MemoryDisk(), check=producer, limits=LIMITS)
    prepare(opened, b"one")
    prepare(opened, b"two")
    opened.clock.advance(72 * 3_600_000 + 1)
    opened.check()
    assert producer.asked == [(b"one", 1), (b"two", 1)]
    assert opened.bodies("orders") == [b"two"]
    opened.check()
    assert len(producer.asked) == 2
    assert opened.bodies(names.TRANSACTION_CHECK_TOPIC) == [b"one"]


def test_a_time_of_birth_long_ago_is_no_age():
    """Rows of days before are prepared: each is asked after like any other, and not before its immunity ends."""
    producer = Producer({b"old": COMMIT})
    opened = Opened(MemoryDisk(), check=producer, limits=LIMITS)
    opened.transactions.prepare(Message("orders", b"old", born_timestamp_ms=1_000_000), "shop")
    opened.check()
    assert producer.asked == []
    opened.clock.advance(6000)
    opened.check()
    assert (producer.asked, opened.bodies("orders")) == ([(b"old", 1)], [b"old"])


@pytest.mark.parametrize("answer", [None, True, 1, "COMMIT", PutStatus.PUT_OK])
def test_an_answer_that_is_none_decides_nothing(answer: object):
    opened = Opened(MemoryDisk(), check=lambda _: answer, limits=LIMITS)  # type: ignore[arg-type,return-value]
    first = prepare(opened, b"one")
    opened.clock.advance(6000)
    opened.check()
    assert isinstance(opened.transactions.cycle.failure, WrongType)
    assert opened.bodies(names.OP_HALF_TOPIC) == []
    assert opened.transactions.commit(first).is_stored
    assert opened.bodies("orders") == [b"one"]
    opened.check()
    assert opened.transactions.cycle.failure is None


def test_one_transaction_that_cannot_be_decided_keeps_no_other_waiting():
    """A half message that somebody put by hand says no queue: it is given up in the end, and the worker goes on."""
    opened = Opened(MemoryDisk(), check=lambda _: COMMIT, limits=LIMITS)
    found = {"REAL_TOPIC": "orders", "REAL_QID": "none", "PGROUP": "shop", "UNIQ_KEY": "k"}
    opened.store.put(Message(names.HALF_TOPIC, b"odd", properties=found))
    prepare(opened, b"one")
    opened.clock.advance(6000)
    opened.check()
    assert opened.bodies("orders") == [b"one"]
    assert "has no queue to go to" in str(opened.transactions.cycle.failure)
    for _ in range(LIMITS.check_max):
        opened.clock.advance(30_000)
        opened.check()
    assert opened.bodies(names.TRANSACTION_CHECK_TOPIC) == [b"odd"]
    assert opened.transactions.pending() == []


@pytest.mark.parametrize("failure", [NotNow("a sync of the log is not confirmed"), OSError(errno.EIO, "bad sector")])
def test_an_error_of_the_disk_is_tried_again_in_the_next_cycle(failure: Exception, monkeypatch: pytest.MonkeyPatch):
    opened = Opened(MemoryDisk(), check=lambda _: COMMIT, limits=LIMITS)
    prepare(opened, b"one")
    opened.clock.advance(30_000)
    for method in ("message_at", "sync"):
        with monkeypatch.context() as patch:

            def failing(*_: object) -> object:
                raise failure

            patch.setattr(opened.log, method, failing, raising=False)
            opened.dispatch()
            assert opened.transactions.check_step() == 30.0
            assert opened.transactions.cycle.failure is failure, method
        opened.clock.advance(30_000)
    assert opened.transactions.check_step() == 30.0
    assert opened.transactions.cycle.failure is None
    assert opened.bodies("orders") == [b"one"]


def test_the_worker_ends_where_nothing_can_be_made_durable(monkeypatch: pytest.MonkeyPatch):
    opened = Opened(MemoryDisk(), check=lambda _: COMMIT, limits=LIMITS)
    prepare(opened, b"one")
    opened.clock.advance(30_000)
    opened.dispatch()

    def failing() -> None:
        raise DurabilityLost("a sync failed")

    monkeypatch.setattr(opened.log, "sync", failing)
    with pytest.raises(DurabilityLost):
        opened.transactions.check_step()


def test_its_own_immunity_counts_and_its_copies_say_where_it_stood():
    producer = Producer()
    opened = Opened(MemoryDisk(), check=producer, limits=CheckLimits(check_max=9))
    first = prepare(opened, b"one", CHECK_IMMUNITY_TIME_IN_SECONDS="50")
    prepare(opened, b"quick", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    opened.clock.advance(1000)  # sooner than others
    opened.check()
    assert producer.asked == [(b"quick", 1)]
    opened.clock.advance(20_000)
    opened.check()
    assert producer.asked[1:] == [(b"quick", 2)]
    copies = [half for half in opened.messages(names.HALF_TOPIC) if half.body == b"one"][1:]
    assert [check_times(half.properties) for half in copies] == [1, 2]
    assert {half.properties["TRAN_PREPARED_QUEUE_OFFSET"] for half in copies} == {"0"}
    opened.clock.advance(30_000)
    opened.check()
    assert (b"one", 3) in producer.asked
    assert opened.transactions.commit(first).status is PutStatus.PUT_OK  # by the only name that its producer knows
    assert opened.bodies("orders") == [b"one"]
    assert len(opened.transactions.pending()) == 1


@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.parametrize("found", [{}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}], ids=["plain", "immune"])
def test_every_name_stays_good_and_decides_once(found: dict[str, str], reopens: bool):
    disk, producer = MemoryDisk(), Producer()
    opened = Opened(disk, check=producer, limits=CheckLimits(check_max=9))
    prepared = prepare(opened, b"one", **found)
    prepare(opened, b"two", **found)
    for _ in range(3):
        opened.clock.advance(30_000)
        opened.check()
    halves = [prepared_of(half) for half in opened.messages(names.HALF_TOPIC) if half.body == b"one"]
    assert (len(halves), halves[0]) == (4, prepared)
    if reopens:
        opened.close()
        opened = Opened(disk, clock=opened.clock, check=producer)
    assert committed(opened) == (6, 0)
    opened.transactions.rollback(halves[1])
    for name in halves:
        with pytest.raises(Rejected):
            opened.transactions.commit(name)
    opened.clock.advance(60_000)
    opened.check()
    assert opened.bodies("orders") == []
    assert [half.transaction_id for half in opened.transactions.pending()] != [prepared.transaction_id]
    assert len(opened.transactions.pending()) == 1


def test_a_step_runs_when_it_is_due():
    producer = Producer()
    opened = Opened(MemoryDisk(), check=producer, limits=LIMITS)
    prepare(opened, b"one")
    assert opened.transactions.check_step() == 30.0
    opened.clock.advance(29_000)
    assert opened.transactions.check_step() == 1.0
    assert producer.asked == []
    opened.clock.advance(1000)
    assert opened.transactions.check_step() == 30.0
    assert len(producer.asked) == 1


def test_without_a_producer_nothing_is_given_up():
    opened = Opened(MemoryDisk())
    gone, kept = prepare(opened, b"gone"), prepare(opened, b"kept")
    opened.transactions.rollback(gone)
    for _ in range(20):
        opened.clock.advance(3_600_000)
        opened.check()
    assert opened.transactions.pending() == [kept]
    assert committed(opened) == (1, 1)


def test_a_mistake_of_the_producer_decides_nothing():
    def check(half: StoredMessage) -> TransactionState:
        raise KeyError("mine")

    opened = Opened(MemoryDisk(), check=check, limits=LIMITS)
    prepare(opened, b"one")
    opened.clock.advance(30_000)
    opened.check()
    assert isinstance(opened.transactions.cycle.failure, KeyError)
    assert len(opened.transactions.pending()) == 1
    assert opened.transactions.cycle.checked_count == 1


def test_half_messages_that_came_another_way_are_asked_after_too():
    producer = Producer({b"two": COMMIT})
    opened = Opened(MemoryDisk(), check=producer, limits=LIMITS)
    prepare(opened, b"one")
    found = {"REAL_TOPIC": "orders", "REAL_QID": "0", "PGROUP": "shop", "UNIQ_KEY": "U", "TRAN_MSG": "true"}
    born_ms = opened.clock.now_ms()
    opened.store.put(Message(names.HALF_TOPIC, b"two", properties=found, born_timestamp_ms=born_ms))
    opened.clock.advance(30_000)
    opened.check()
    assert [body for body, _ in producer.asked] == [b"one", b"two"]
    assert opened.bodies("orders") == [b"two"]


def test_a_full_disk_changes_nothing():
    producer = Producer({b"one": COMMIT})
    opened = Opened(MemoryDisk(), check=producer, limits=LIMITS)
    (prepared,) = [prepare(opened, b"one")]
    opened.clock.advance(30_000)
    opened.log.failing = {names.HALF_TOPIC}
    opened.check()
    assert (producer.asked, opened.transactions.pending()) == ([], [prepared])
    opened.log.failing = {names.OP_HALF_TOPIC}
    opened.check()
    assert opened.bodies("orders") == [b"one"]
    opened.log.failing = set()
    opened.check()
    assert opened.bodies("orders") == [b"one"]
    assert opened.transactions.pending() == []


def test_what_was_deleted_with_its_file_is_forgotten():
    opened = Opened(MemoryDisk(), check=Producer(), limits=LIMITS)
    prepare(opened, b"one")
    kept = prepare(opened, b"two")
    bounds = opened.log.bounds
    opened.log.bounds = lambda topic, queue_id: (  # type: ignore[method-assign]
        (1, bounds(topic, queue_id)[1]) if topic == names.HALF_TOPIC else bounds(topic, queue_id)
    )
    opened.check()
    assert opened.transactions.pending() == [kept]
    assert committed(opened) == (1, 0)


def test_offsets_stand_for_what_is_durable():
    """The group's offsets are set after the log was synced, so that no saved offset skips a copy that got lost."""
    opened = Opened(MemoryDisk(), check=Producer(), limits=LIMITS)
    prepare(opened, b"one")
    opened.clock.advance(30_000)
    events: list[str] = []
    sync, commit = opened.log.sync, opened.offsets.commit
    opened.log.sync = lambda: (events.append("sync"), sync())[1]  # type: ignore[method-assign]
    opened.offsets.commit = lambda *asked: (events.append("commit"), commit(*asked))[1]  # type: ignore[method-assign]
    opened.check()
    assert events == ["sync", "commit", "commit"]


COUNT = 40


@pytest.fixture
def quick_turns() -> Iterator[None]:
    """Threads take turns a hundred times as often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 100)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("quick_turns")
def test_producers_and_checks_at_the_same_time():
    """Each transaction gets the fate that its producer chose, once, however often it is copied meanwhile."""
    limits = CheckLimits(check_max=10**9, immunity_ms=0)
    opened = Opened(MemoryDisk(), replace(SMALL, flush="ASYNC"), check=Producer(), limits=limits)
    failures: list[Exception] = []
    ready = threading.Barrier(5)

    def produce(name: int) -> None:
        try:
            made = [prepare(opened, b"%d %d" % (name, number)) for number in range(COUNT)]
            ready.wait(PATIENCE_S)
            for number, prepared in enumerate(made):
                decide = opened.transactions.rollback if number % 2 else opened.transactions.commit
                decide_in_turn(decide, prepared)
        except Exception as failure:  # noqa: BLE001  whatever it is, the test is to say it
            failures.append(failure)
            ready.abort()

    threads = [threading.Thread(target=produce, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE_S)
    while any(thread.is_alive() for thread in threads):
        opened.check()
    opened.check()
    assert failures == []
    assert opened.transactions.pending() == []
    wanted = [b"%d %d" % (name, number) for name in range(4) for number in range(0, COUNT, 2)]
    assert sorted(map(bytes, opened.bodies("orders"))) == sorted(wanted)  # type: ignore[arg-type]
    half_end = opened.store.bounds(names.HALF_TOPIC, 0)[1]
    assert committed(opened) == (half_end, 4 * COUNT)


def decide_in_turn(decide: Callable[[Prepared], PutResult], prepared: Prepared) -> None:
    """Decides as soon as the check lets go of the transaction."""
    while True:
        try:
            result = decide(prepared)
        except Rejected as refusal:
            if "another thread" not in str(refusal):
                raise
        else:
            assert result.status is PutStatus.PUT_OK
            return


class Answered(WatchedDisk):
    """Keeps what a power cut before each operation leaves, and what was acknowledged by then."""

    def __init__(self, inner: MemoryDisk, choice: Callable[[int], Choice]) -> None:
        super().__init__(inner)
        self.fates: dict[bytes, str] = {}
        self.taken: list[tuple[Operation, MemoryDisk, dict[bytes, str]]] = []
        self._choice = choice

    def before(self, operation: Operation) -> None:
        assert isinstance(self.inner, MemoryDisk)
        choice = self._choice(operation.number)
        self.taken.append((operation, self.inner.crash(choice), dict(self.fates)))


def work(disk: Answered, config: StoreConfig) -> None:
    """Transactions of all fates, with checks between them."""
    producer = Producer({b"c2": COMMIT, b"c6": ROLLBACK})
    opened = Opened(disk, config, check=producer, limits=CheckLimits(check_max=2))
    for number in range(8):
        body = b"c%d" % number
        prepared = prepare(opened, body)
        disk.fates[body] = "prepared"
        if number % 4 == 0:
            disk.fates[body] = "commit asked for"
            opened.transactions.commit(prepared)
            disk.fates[body] = "committed"
        elif number % 4 == 1:
            disk.fates[body] = "rollback asked for"
            opened.transactions.rollback(prepared)
            disk.fates[body] = "rolled back"
        opened.clock.advance(4000)
        if number % 3 == 2:
            opened.check()
            opened.offsets.persist()
    opened.close()


def judge(disk: MemoryDisk, config: StoreConfig, fates: dict[bytes, str]) -> None:
    """What was acknowledged holds, and goes on to hold when every open transaction is decided the other way."""
    clock = ManualClock(ManualClock().ms + 3_600_000)
    opened = Opened(disk, config, check=Producer(), limits=CheckLimits(check_max=2), clock=clock)
    bodies = opened.bodies("orders")
    pending = {opened.store.message_at(each.physical_offset).body: each for each in opened.transactions.pending()}
    given_up = opened.bodies(names.TRANSACTION_CHECK_TOPIC)
    for body, fate in fates.items():
        if fate == "committed":
            assert body in bodies, body
        elif fate == "rolled back":
            assert body not in bodies, body
            assert body not in pending, body
        elif fate == "commit asked for" or body == b"c2":  # the check commits that one
            assert body in bodies or body in pending, body
        elif fate == "prepared" and body != b"c6":  # the check rolls that one back
            assert body in pending or body in given_up, body
    for body, prepared in pending.items():
        is_shown = body in bodies
        try:
            opened.transactions.rollback(prepared)
        except Rejected:
            assert is_shown, body  # its commit was under way
        else:
            assert not is_shown, body
    after = opened.bodies("orders")
    assert after == bodies
    assert len(set(bodies)) == len(bodies), bodies
    opened.close()


@pytest.mark.crash
@pytest.mark.parametrize("index_enabled", [True, False], ids=["index", "scan"])
@pytest.mark.parametrize("kind", ["lost", "kept", "some"])
def test_a_power_cut_at_any_moment_changes_no_fate(kind: str, index_enabled: bool):
    config = replace(SMALL, log_file_size=8192, index_enabled=index_enabled)
    chosen: dict[str, Callable[[int], Choice]] = {
        "lost": lambda number: "lost", "kept": lambda number: "kept", "some": random.Random,
    }  # fmt: skip
    disk = Answered(MemoryDisk(), chosen[kind])
    work(disk, config)
    assert len(disk.taken) > 60
    for operation, left, fates in disk.taken[:: 1 if index_enabled else 3]:
        try:
            judge(left, config, fates)
        except Exception as error:
            error.add_note(f"a power cut before {operation}")
            raise


def test_op_messages_that_name_many_are_read_whole():
    opened = Opened(MemoryDisk())
    body = "".join(f"{number}," for number in range(700)).encode()
    opened.store.put(Message(names.OP_HALF_TOPIC, body, tags="d"))
    (op,) = opened.messages(names.OP_HALF_TOPIC)
    assert op_offsets(op) == list(range(700))


@pytest.mark.parametrize(
    ("text", "times"),
    [(None, 0), ("3", 3), ("+3", 3), ("003", 3), ("-1", 0), ("2147483648", 0), ("9" * 5000, 0), ("", 0)],
)
def test_how_often_it_was_checked_is_a_number_as_java_reads_it(text: str | None, times: int) -> None:
    assert check_times({} if text is None else {"TRANSACTION_CHECK_TIMES": text}) == times


@pytest.mark.parametrize(
    ("text", "wish_ms"),
    [("5", 5000), ("+5", 5000), ("-1", 77), ("soon", 77), ("9" * 19, 77), ("9" * 18, 10**21 - 1000)],
)
def test_a_wish_not_to_be_checked_is_a_number_as_java_reads_it(text: str, wish_ms: int) -> None:
    assert immunity_ms({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}, 77) == wish_ms
