"""Preparing, committing, rolling back; finding open transactions again; stores of real brokers."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.broker.transaction_messages import (
    CHECK_GROUP,
    Prepared,
    TransactionState,
    check_times,
    checked_message,
    committed_message,
    given_up_message,
    half_message,
    immunity_ms,
    op_message,
    op_offsets,
    op_place,
    prepared_of,
    rocksdb_op_message,
)
from rmqstore.engine.broker.transaction_table import OpProgress
from rmqstore.engine.store import open_store
from rmqstore.errors import Rejected
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.stored_message import StoredMessage
from tests.broker.broker_stores import differences, open_broker_store
from tests.broker.open_log import SMALL, Opened
from tests.crash.disks import MemoryDisk
from tests.golden.cases import FOLDERS, OPENED_CASES, read_json
from tests.patience import PATIENCE_S

# What a broker adds on the way, which is no concern of a half message.
ADDED_BY_BROKER = {"MSG_REGION", "TRACE_ON", "CLUSTER"}


@pytest.fixture
def opened() -> Opened:
    return Opened(MemoryDisk())


def prepare(opened: Opened, body: bytes = b"one", **more) -> Prepared:
    more.setdefault("queue_id", 1)
    result = opened.transactions.prepare(Message("orders", body, **more), "shop")
    assert result.status is PutStatus.PUT_OK
    return opened.transactions.prepared(result)


def test_a_prepared_message_is_out_of_sight_until_its_commit(opened: Opened):
    sent = Message("orders", b"one", tags="paid", keys="k", queue_id=3, flag=7, properties={"a": "b", "DELAY": "2"})
    result = opened.transactions.prepare(sent, "shop")
    prepared = opened.transactions.prepared(result)
    assert (prepared.topic, prepared.group, prepared.queue_offset) == ("orders", "shop", 0)
    assert prepared.physical_offset == result.physical_offset
    assert opened.transactions.pending() == [prepared]
    assert opened.bodies("orders", 3) == []
    committed = opened.transactions.commit(prepared)
    assert (committed.status, committed.queue_offset) == (PutStatus.PUT_OK, 0)
    (message,) = opened.messages("orders", 3)
    assert (message.body, message.tags, message.keys, message.flag) == (b"one", "paid", "k", 7)
    assert message.physical_offset == committed.physical_offset
    assert message.prepared_transaction_offset == prepared.physical_offset
    assert message.sys_flag & sys_flag.TRANSACTION_MASK == sys_flag.COMMIT
    assert message.properties["a"] == "b"
    assert "DELAY" not in message.properties
    (op,) = opened.messages(names.OP_HALF_TOPIC)
    assert (op.body, op.tags, op.properties["WAIT"], op.queue_id) == (b"0,", "d", "true", 0)
    assert opened.transactions.pending() == []


def test_a_rollback_shows_nothing(opened: Opened):
    kept, gone = prepare(opened), prepare(opened, b"two")
    assert opened.transactions.rollback(gone).status is PutStatus.PUT_OK
    assert opened.transactions.pending() == [kept]
    assert opened.bodies("orders", 1) == []
    assert opened.bodies(names.OP_HALF_TOPIC) == [b"1,"]


def test_a_rollback_is_on_the_disk_whatever_the_store_flushes():
    """Of a whole store: without it a check could ask again, and bring the message back."""
    disk, config = MemoryDisk(), replace(SMALL, flush="ASYNC")
    store = open_store("/store", config, clock=ManualClock(), filesystem=disk, workers=False)
    half = store.transactions.prepare(Message("orders", b"one", queue_id=1), "shop")
    store.flush()
    assert store.transactions.rollback(store.transactions.prepared(half)).is_stored
    again = open_store("/store", config, clock=ManualClock(), filesystem=disk.crash("lost"), workers=False)
    assert again.transactions.pending() == []


@pytest.mark.parametrize("first", ["commit", "rollback"])
@pytest.mark.parametrize("again", ["commit", "rollback"])
@pytest.mark.parametrize("reopens", [False, True])
def test_a_fate_is_decided_once(first: str, again: str, reopens: bool):
    disk = MemoryDisk()
    opened = Opened(disk)
    prepared = prepare(opened)
    getattr(opened.transactions, first)(prepared)
    if reopens:
        opened.close()
        opened = Opened(disk)
    with pytest.raises(Rejected, match="is already committed"):
        getattr(opened.transactions, again)(prepared)
    assert opened.bodies("orders", 1) == ([b"one"] if first == "commit" else [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": "other"}, {"topic": "other"}, {"transaction_id": "other"}, {"queue_offset": 1},
        {"physical_offset": 3}, {"physical_offset": 10**9},
    ],
    ids=str,
)  # fmt: skip
def test_what_names_another_half_message_is_refused(opened: Opened, wrong: dict[str, Any]):
    prepared = prepare(opened)
    prepare(opened)
    for decide in (opened.transactions.commit, opened.transactions.rollback):
        with pytest.raises(Rejected):
            decide(replace(prepared, **wrong))
    assert len(opened.transactions.pending()) == 2
    assert opened.bodies(names.OP_HALF_TOPIC) == []


def test_another_message_is_no_half_message(opened: Opened):
    result = opened.store.put(Message("orders", b"plain", properties={"PGROUP": "shop"}))
    with pytest.raises(Rejected, match="no half message"):
        opened.transactions.prepared(result)
    with pytest.raises(Rejected, match="does not match the half message"):
        opened.transactions.commit(Prepared("orders", "shop", "", 0, result.physical_offset, 0))


def test_the_topic_may_refuse(opened: Opened):
    opened.log.refused.add("orders")
    refused = PutResult(PutStatus.MESSAGE_ILLEGAL, reason="topic='orders'")
    assert opened.transactions.prepare(Message("orders", b"")) == refused
    assert opened.transactions.pending() == []


def test_a_commit_that_cannot_be_stored_leaves_it_open(opened: Opened):
    prepared = prepare(opened)
    opened.log.failing = {"orders"}
    assert opened.transactions.commit(prepared).status is PutStatus.SERVICE_NOT_AVAILABLE
    opened.log.failing = {names.OP_HALF_TOPIC}
    assert opened.transactions.commit(prepared).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert opened.transactions.pending() == [prepared]
    opened.log.failing = set()
    with pytest.raises(Rejected, match="is already committed"):
        opened.transactions.rollback(prepared)
    assert opened.transactions.commit(prepared).status is PutStatus.PUT_OK
    assert opened.bodies("orders", 1) == [b"one"]
    assert opened.transactions.pending() == []


def test_what_a_transient_pool_still_holds_can_be_decided():
    opened = Opened(MemoryDisk(), replace(SMALL, flush="ASYNC", pool_buffers=2))
    prepared = prepare(opened)
    assert opened.transactions.commit(prepared).status is PutStatus.PUT_OK
    opened.log.sync()
    assert opened.bodies("orders", 1) == [b"one"]


def test_only_one_thread_decides(opened: Opened):
    prepared = prepare(opened)
    inside, go_on = threading.Event(), threading.Event()
    plain_put = opened.log.put

    def slow_put(message: Message) -> PutResult:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return plain_put(message)

    opened.log.put_copy = slow_put  # type: ignore[method-assign]
    committing = threading.Thread(target=opened.transactions.commit, args=(prepared,))
    committing.start()
    assert inside.wait(PATIENCE_S)
    with pytest.raises(Rejected, match="another thread"):
        opened.transactions.rollback(prepared)
    go_on.set()
    committing.join(PATIENCE_S)
    assert opened.bodies("orders", 1) == [b"one"]


def test_open_transactions_are_found_again():
    disk = MemoryDisk()
    opened = Opened(disk)
    made = [prepare(opened, b"%d" % number) for number in range(70)]
    for number, prepared in enumerate(made):
        if number % 3 == 0:
            opened.transactions.commit(prepared)
        elif number % 3 == 1:
            opened.transactions.rollback(prepared)
    wanted = opened.transactions.pending()
    assert wanted == made[2::3]
    opened.transactions.cycle.run()
    opened.close()
    again = Opened(disk)
    assert again.offsets.committed(CHECK_GROUP, names.HALF_TOPIC, 0) == 2
    assert again.transactions.pending() == wanted
    for prepared in wanted:
        again.transactions.commit(prepared)
    assert len(again.bodies("orders", 1)) == 24 + 23
    again.transactions.cycle.run()
    assert again.offsets.committed(CHECK_GROUP, names.HALF_TOPIC, 0) == 70
    assert again.offsets.committed(CHECK_GROUP, names.OP_HALF_TOPIC, 0) == 70
    again.close()
    last = Opened(disk)
    assert last.transactions.pending() == []
    with pytest.raises(Rejected, match="is already committed"):  # from before the offset
        last.transactions.rollback(made[5])


def test_transactions_whose_state_is_in_rocksdb_are_decided_here():
    disk = MemoryDisk()
    opened = Opened(disk)
    usual = prepare(opened, b"usual")
    made = [opened.put_rocksdb_half(b"%d" % number) for number in range(70)]
    opened.close()
    opened = Opened(disk)
    later = prepare(opened, b"later")
    assert opened.transactions.pending() == [usual, *made, later]
    for number, prepared in enumerate(made[:-1]):
        decide = opened.transactions.commit if number % 2 else opened.transactions.rollback
        assert decide(prepared).status is PutStatus.PUT_OK
    assert opened.bodies("orders", 1) == [b"%d" % number for number in range(1, 69, 2)]
    for refused in (made[0], made[1], replace(made[-1], group="other")):
        with pytest.raises(Rejected):
            opened.transactions.commit(refused)
    opened.transactions.cycle.run()
    assert opened.offsets.committed(CHECK_GROUP, names.ROCKSDB_HALF_TOPIC, 0) == 69
    assert opened.offsets.committed(CHECK_GROUP, names.ROCKSDB_OP_HALF_TOPIC, 0) == 69
    assert opened.messages(names.OP_HALF_TOPIC) == []
    opened.close()
    again = Opened(disk)
    assert again.transactions.pending() == [usual, made[-1], later]
    for refused in (made[0], made[1]):
        with pytest.raises(Rejected, match="is already committed"):
            again.transactions.rollback(refused)
    assert again.transactions.commit(made[-1]).status is PutStatus.PUT_OK
    assert again.bodies("orders", 1)[-1] == b"69"


def test_a_commit_in_the_dialect_of_rocksdb_whose_op_message_is_missing_is_not_made_twice():
    disk = MemoryDisk()
    opened = Opened(disk)
    prepared = opened.put_rocksdb_half(b"once")
    opened.log.put_copy(committed_message(opened.log.message_at(prepared.physical_offset)))
    opened.close()
    again = Opened(disk)
    assert again.transactions.pending() == [prepared]
    with pytest.raises(Rejected, match="is already committed"):
        again.transactions.rollback(prepared)
    assert again.transactions.commit(prepared).status is PutStatus.PUT_OK
    assert again.bodies("orders", 1) == [b"once"]
    assert again.transactions.pending() == []


@pytest.mark.parametrize(
    ("place", "tags"),
    [("x", "d"), ("", "d"), ("-5", "d"), ("7", "d"), (str(2**62), "d"), ("{half}", "e"), ("{op}", "d")],
)
def test_an_op_message_of_rocksdb_that_names_no_half_message_decides_nothing(place: str, tags: str):
    disk = MemoryDisk()
    opened = Opened(disk)
    prepared = opened.put_rocksdb_half(b"open")
    other = opened.log.put(Message("orders", b"other")).physical_offset
    text = place.format(half=prepared.physical_offset, op=other)
    found = {properties.TRANSACTION_OFFSET: text}
    opened.log.put(Message(names.ROCKSDB_OP_HALF_TOPIC, b"\0", tags=tags, properties=found))
    opened.close()
    assert Opened(disk).transactions.pending() == [prepared]


@pytest.mark.parametrize("body", [b"1", b"1,", b"0,1,", b"x,1,99999999999999999999,"])
def test_both_dialects_of_op_messages_are_read(body: bytes):
    disk = MemoryDisk()
    opened = Opened(disk)
    made = [prepare(opened), prepare(opened)]
    opened.store.put(Message(names.OP_HALF_TOPIC, body, tags="d"))
    opened.store.put(Message(names.OP_HALF_TOPIC, b"0", tags="other"))
    opened.close()
    assert Opened(disk).transactions.pending() == ([] if body == b"0,1," else made[:1])


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, index_enabled=False)], ids=["index", "scan"])
def test_a_commit_that_was_cut_off_is_found_after_a_clock_that_went_back(config: StoreConfig):
    disk = MemoryDisk()
    opened = Opened(disk, config)
    prepared = prepare(opened)
    opened.clock.advance(-3_600_000)
    opened.log.failing = {names.OP_HALF_TOPIC}
    opened.transactions.commit(prepared)
    opened.close()
    again = Opened(disk, config, clock=opened.clock)
    with pytest.raises(Rejected, match="is already committed"):
        again.transactions.rollback(prepared)
    assert again.transactions.commit(prepared).is_stored
    assert again.bodies("orders", 1) == [b"one"]


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, index_enabled=False)], ids=["index", "scan"])
@pytest.mark.parametrize("way", ["commit", "rollback", "check"])
def test_a_commit_that_was_cut_off_is_found_and_not_repeated(config: StoreConfig, way: str):
    disk = MemoryDisk()
    opened = Opened(disk, config)
    prepare(opened, b"other")
    prepared = prepare(opened)
    opened.log.failing = {names.OP_HALF_TOPIC}
    opened.transactions.commit(prepared)
    for number in range(40):
        opened.store.put(Message("orders", b"%d" % number, queue_id=1, keys="k"))
    opened.close()
    asked: list[bytes | None] = []

    def check(half: StoredMessage) -> TransactionState:
        asked.append(half.body)
        return TransactionState.ROLLBACK

    again = Opened(disk, config, check=check)
    assert len(again.transactions.pending()) == 2
    if way == "commit":
        result = again.transactions.commit(prepared)
        assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, 0)
    elif way == "rollback":
        with pytest.raises(Rejected, match="is already committed"):
            again.transactions.rollback(prepared)
    else:
        again.clock.advance(60_000)
        again.check()
        assert asked == [b"other"]
        assert again.transactions.pending() == []
    assert again.bodies("orders", 1).count(b"one") == 1


def test_offsets_beyond_the_queue_are_set_back():
    """As a broker leaves them whose log lost its end: what is prepared then must be found again."""
    disk = MemoryDisk()
    opened = Opened(disk)
    opened.offsets.commit(CHECK_GROUP, names.HALF_TOPIC, 0, 5)
    opened.close()
    opened = Opened(disk)
    assert opened.offsets.committed(CHECK_GROUP, names.HALF_TOPIC, 0) == 0
    made = [prepare(opened), prepare(opened)]
    opened.store.close()
    assert Opened(disk).transactions.pending() == made


def test_a_message_without_names_gets_them(opened: Opened):
    half = half_message(Message("orders", b"", sys_flag=sys_flag.COMMIT | sys_flag.COMPRESSED), "", "NEW", 17)
    assert half.properties["UNIQ_KEY"] == half.properties["__transactionId__"] == "NEW"
    assert half.properties["PGROUP"] == "DEFAULT_PRODUCER"
    assert (half.sys_flag, half.born_timestamp_ms) == (sys_flag.COMPRESSED, 17)
    named = half_message(Message("orders", b"", properties={"UNIQ_KEY": "K", "PGROUP": "own"}), "", "NEW", 17)
    assert (named.properties["UNIQ_KEY"], named.properties["PGROUP"]) == ("K", "own")
    first, second = (opened.transactions.prepared(opened.transactions.prepare(Message("t", b""))) for _ in "ab")
    assert first.transaction_id != second.transaction_id
    assert len(first.transaction_id) == 32


@pytest.mark.parametrize(("text", "wanted"), [(None, None), ("3", 3000), ("-1", 6000), ("x", 6000), ("9" * 30, 6000)])
def test_immunity(text: str | None, wanted: int | None):
    found = {} if text is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": text}
    assert immunity_ms(found, 6000) == wanted


def test_the_op_horizon_keeps_few_numbers():
    ops = OpProgress(0)
    for number in range(0, 20_000, 2):  # pairs that come in turned order
        ops.add(number + 1, [number + 1])
        ops.add(number, [number])
    assert len(ops._blocks) <= 2048
    ops.drop_before(0)
    assert ops.horizon == 0
    ops.drop_before(10_000)
    assert 9_900 <= ops.horizon <= 10_000
    ops.drop_before(20_000)
    assert ops.horizon == ops.end == 20_000


@pytest.fixture(scope="module")
def broker_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Opened]]:
    """The store of a broker, opened for writing; shared by the tests that only look."""
    opened: dict[str, Opened] = {}

    def open_case(case: str) -> Opened:
        if case not in opened:
            opened[case] = open_broker_store(case, tmp_path_factory.mktemp("broker"))
        return opened[case]

    yield open_case
    for store in opened.values():
        store.close()


def half_topic_of(case: str) -> str:
    return names.ROCKSDB_HALF_TOPIC if "rip82" in case else names.HALF_TOPIC


def transactional_sends(case: str) -> list[dict[str, Any]]:
    return [send for send in read_json(FOLDERS[case], "sent") if send["kind"].startswith("transaction:")]


def committed_messages(opened: Opened, case: str) -> list[StoredMessage]:
    (topic,) = {send["topic"] for send in transactional_sends(case)}
    return opened.messages(topic, 0) + opened.messages(topic, 1)


def committed_message_of(case: str, half: StoredMessage) -> Message:
    """Ours, without the properties that brokers of 5.5 leave out."""
    message = committed_message(half)
    left_out = {properties.REAL_TOPIC, properties.REAL_QUEUE_ID} if "5.5.1" in case else set()
    message.properties = {name: text for name, text in message.properties.items() if name not in left_out}
    return message


def given_up_keys(opened: Opened) -> set[str]:
    return {message.properties["UNIQ_KEY"] for message in opened.messages(names.TRANSACTION_CHECK_TOPIC)}


@pytest.mark.parametrize("case", OPENED_CASES)
def test_a_broker_s_open_transactions_are_those_that_it_left_open(case: str, broker_store: Callable[[str], Opened]):
    opened = broker_store(case)
    sends = [send for send in transactional_sends(case) if send["kind"] == "transaction:pending"]
    wanted = {send["properties"]["UNIQ_KEY"] for send in sends} - given_up_keys(opened)
    pending = opened.transactions.pending()
    assert sorted(prepared.transaction_id for prepared in pending) == sorted(wanted)
    assert len(sends) == 8
    assert len(pending) == (8 if "rip82" in case else 3 if "4.9.8" in case or case == "broker-live-5.5.1" else 0)
    if "rip82" not in case:  # there checks have put newer ones
        newest = opened.messages(names.HALF_TOPIC)[-3:]
        assert {prepared.queue_offset for prepared in pending} <= {half.queue_offset for half in newest}


@pytest.mark.parametrize("case", [case for case in OPENED_CASES if "clean" in case])
def test_half_messages_are_the_broker_s(case: str, broker_store: Callable[[str], Opened]):
    halves = {
        half.properties["UNIQ_KEY"]: half
        for half in broker_store(case).messages(half_topic_of(case)) if not check_times(half.properties)
    }  # fmt: skip
    sends = transactional_sends(case)
    assert len(sends) == 33
    for send in sends:
        theirs = halves[send["properties"]["UNIQ_KEY"]]
        found = {name: text for name, text in send["properties"].items() if name != "__transactionId__"}
        queue_id = int(theirs.properties["REAL_QID"])
        ours = half_message(Message(send["topic"], b"", properties=found, queue_id=queue_id), "p_tx", "NEW", 1)
        kept = {name: text for name, text in theirs.properties.items() if name not in ADDED_BY_BROKER}
        assert ours.properties == {"__transactionId__": theirs.properties["UNIQ_KEY"]} | kept
        assert (theirs.topic, theirs.queue_id, theirs.sys_flag) == (half_topic_of(case), ours.queue_id, ours.sys_flag)


@pytest.mark.parametrize("case", [case for case in OPENED_CASES if "rip82" not in case])
def test_copies_commits_and_giving_up_are_the_broker_s(case: str, broker_store: Callable[[str], Opened]):
    opened = broker_store(case)
    halves = {(half.properties["UNIQ_KEY"], check_times(half.properties)): half
              for half in opened.messages(names.HALF_TOPIC)}  # fmt: skip
    by_place = {half.physical_offset: half for half in halves.values()}
    copies = [half for (_, times), half in halves.items() if times]
    assert len(copies) >= 36
    for theirs in copies:
        before = halves[theirs.properties["UNIQ_KEY"], check_times(theirs.properties) - 1]
        is_immune = "CHECK_IMMUNITY_TIME_IN_SECONDS" in before.properties
        assert differences(checked_message(before, is_immune), theirs) == []
    committed = committed_messages(opened, case)
    assert len(committed) == 15
    for theirs in committed:
        assert differences(committed_message_of(case, by_place[theirs.prepared_transaction_offset]), theirs) == []
    given_up = opened.messages(names.TRANSACTION_CHECK_TOPIC)
    assert given_up
    for theirs in given_up:
        before = halves[theirs.properties["UNIQ_KEY"], check_times(theirs.properties)]
        assert differences(given_up_message(before), theirs) == []


@pytest.mark.parametrize("case", [case for case in OPENED_CASES if "clean" in case and "rip82" not in case])
def test_op_messages_name_what_was_decided(case: str, broker_store: Callable[[str], Opened]):
    opened = broker_store(case)
    ops = opened.messages(names.OP_HALF_TOPIC)
    named = sorted(offset for op in ops for offset in op_offsets(op))
    halves = {half.queue_offset: half for half in opened.messages(names.HALF_TOPIC)}
    fates = {halves[offset].properties["fate"] for offset in named}
    assert fates == {"commit", "rollback", "check-commit", "check-rollback"}
    assert len(named) == 25
    ours = op_message([7], 1)
    assert (ours.topic, ours.tags, ours.properties) == (ops[0].topic, ops[0].tags, {"WAIT": "true"})
    assert ops[0].properties.keys() == {"WAIT", "TAGS"}
    assert ops[0].sys_flag == ours.sys_flag == 0


@pytest.mark.parametrize("case", [case for case in OPENED_CASES if "rip82" in case])
def test_op_messages_and_commits_in_the_dialect_of_rocksdb_are_the_broker_s(
    case: str, broker_store: Callable[[str], Opened]
):
    opened = broker_store(case)
    halves = {half.physical_offset: half for half in opened.messages(names.ROCKSDB_HALF_TOPIC)}
    assert [times for half in halves.values() if (times := check_times(half.properties))] == []
    ops = opened.messages(names.ROCKSDB_OP_HALF_TOPIC)
    assert len(ops) == 25
    for theirs in ops:
        half = halves[op_place(theirs) or 0]
        ours = rocksdb_op_message(prepared_of(half), theirs.properties["UNIQ_KEY"], theirs.born_timestamp_ms)
        ours.born_host = theirs.born_host
        ours.properties = {"TAGS": ours.tags} | ours.properties | {"WAIT": "false"}  # ours waits for the disk
        assert differences(ours, theirs) == []
    committed = committed_messages(opened, case)
    assert len(committed) == 15
    for theirs in committed:
        ours = committed_message_of(case, halves[theirs.prepared_transaction_offset])
        checks = {name: text for name, text in theirs.properties.items() if name == properties.CHECK_TIMES}
        ours.properties = {**ours.properties, **checks}  # RocksDB knows how often, the log does not
        assert differences(ours, theirs) == []


def test_a_broker_s_open_transaction_is_decided_here_by_any_of_its_names(tmp_path: Path):
    """The store of a killed broker, in which three half messages were copied on several times."""
    opened = open_broker_store("broker-killed-4.9.8", tmp_path)
    first = {half.keys: prepared_of(half) for half in reversed(opened.messages(names.HALF_TOPIC))}
    middle = {prepared_of(half).transaction_id: prepared_of(half) for half in opened.messages(names.HALF_TOPIC)[66:69]}
    late0, late1, late2 = (first[f"late{number}"] for number in range(3))
    assert late0.queue_offset == 60
    before = len(opened.messages("G101Tx", 1))
    assert opened.transactions.commit(late0).status is PutStatus.PUT_OK
    assert opened.transactions.rollback(middle[late1.transaction_id]).status is PutStatus.PUT_OK
    (message,) = opened.messages("G101Tx", 1)[before:]
    assert (message.keys, message.properties["fate"]) == ("late0", "pending")
    for refused in (late0, late1, middle[late0.transaction_id], first["tx0"]):
        with pytest.raises(Rejected, match="is already committed"):
            opened.transactions.rollback(refused)
    assert [op_offsets(op) for op in opened.messages(names.OP_HALF_TOPIC)[-2:]] == [[69, 72], [70, 73]]
    path = opened.store.path
    opened.close()
    again = Opened(RealFileSystem(), StoreConfig.broker(preallocate=False), path=path)
    assert [prepared.transaction_id for prepared in again.transactions.pending()] == [late2.transaction_id]
    with pytest.raises(Rejected, match="is already committed"):
        again.transactions.commit(late1)
    again.close()


@pytest.mark.parametrize("named", [60, 69])
def test_a_broker_s_op_message_for_an_older_copy_counts(named: int, tmp_path: Path):
    """Brokers accept a late answer about a half message that a check has copied on; the copy is decided with it."""
    opened = open_broker_store("broker-killed-4.9.8", tmp_path)
    opened.store.put(Message(names.OP_HALF_TOPIC, b"%d" % named, tags="d"))
    path = opened.store.path
    opened.close()
    again = Opened(RealFileSystem(), StoreConfig.broker(preallocate=False), path=path)
    assert [half.queue_offset for half in again.transactions.pending()] == [73, 74]
    again.close()
