"""The tables beside the messages, against what brokers were told, what they answered, and small stores of known
content."""

import json
import os
import sys
from collections import Counter
from dataclasses import replace
from time import process_time

import pyarrow.compute as pc
import pytest
import rocksdict

import rmqstore
from bench.synth import MIB, StoreShape, write_store
from rmqstore.cli.outgoing.query import STEP, transaction_of
from rmqstore.errors import Rejected, UnknownColumn
from rmqstore.formats.names import format_start
from rmqstore.snapshot.tables.tables import SCHEMAS, table_schema
from rmqstore.snapshot.tables.transaction_rows import transaction_rows
from tests.golden.cases import BROKER_CASES, FOLDERS, read_json
from tests.snapshot.small_store import FIRST_MS, SmallStore, small_store

pytestmark = pytest.mark.stores

FATES = {
    "transaction:commit": "committed",
    "transaction:check-commit": "committed",
    "transaction:rollback": "rolledback",
    "transaction:check-rollback": "rolledback",
}
HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"


def ms(moment):
    return round(moment.timestamp() * 1000)


def sent(case):
    return read_json(FOLDERS[case], "sent")


@pytest.mark.parametrize("case", BROKER_CASES)
def test_transactions_end_as_their_producers_decided(case, store_of):
    rows = {
        row["transactionId"]: row for row in rmqstore.open_snapshot(store_of(case)).table("transactions").to_pylist()
    }
    told = [row for row in sent(case) if row["kind"].startswith("transaction")]
    assert len(rows) == len(told) > 0
    for message in told:
        row = rows[message["msgId"]]
        if message["kind"] == "transaction:pending":
            assert row["state"] in ("pending", "discarded")
            assert row["decidedTimestamp"] is None
        else:
            assert row["state"] == FATES[message["kind"]]
            assert row["decidedTimestamp"] >= row["preparedTimestamp"]
        assert (row["topic"], row["producerGroup"]) == (message["topic"], message["properties"]["PGROUP"])
        assert (row["commitOffset"] is not None) == (row["state"] == "committed")
        if not case.startswith(("rip82-", "rocksdb-")):  # the log does not tell, or the broker asked before its op came
            assert (row["checkTimes"] > 0) == (message["kind"] not in ("transaction:commit", "transaction:rollback"))


@pytest.mark.parametrize("case", BROKER_CASES)
def test_committed_offsets_lead_to_the_messages(case, store_of):
    snapshot = rmqstore.open_snapshot(store_of(case))
    rows = snapshot.table("transactions").to_pylist()
    found = snapshot.scan(pattern=".*Tx", columns=["topic", "queueId", "queueOffset", "msgId"]).read_all().to_pylist()
    places = {(row["topic"], row["queueId"], row["queueOffset"]): row["msgId"] for row in found}
    committed = [row for row in rows if row["state"] == "committed"]
    assert len(committed) == 15
    for row in committed:
        assert places[row["topic"], row["queueId"], row["commitOffset"]] == row["transactionId"]


@pytest.mark.parametrize("case", BROKER_CASES)
def test_pending_delays_wait(case, store_of):
    table = rmqstore.open_snapshot(store_of(case)).table("delayed", now_ms=0)
    kinds = {row.get("msgId"): row["kind"] for row in sent(case)}
    rows = {row["msgId"]: row for row in table.to_pylist()}
    pending = {key for key, kind in kinds.items() if kind in ("delayPending", "timerPending")}
    assert pending <= rows.keys()
    for key in pending:
        assert rows[key]["kind"] == {"delayPending": "level", "timerPending": "timer"}[kinds[key]]
        assert rows[key]["topic"].endswith("Delay")
        assert not rows[key]["isDue"]
    if "clean" in case or "rip82" in case:  # a broker that was killed had not written down how far it was
        assert {key for key in rows if rows[key]["kind"] == "timer" or "clean" in case} <= pending


@pytest.mark.parametrize("case", [case for case in BROKER_CASES if "clean" in case])
def test_queues_are_those_that_the_broker_answers(case, store_of):
    answered = read_json(FOLDERS[case], "expected")["queues"]
    snapshot = rmqstore.open_snapshot(store_of(case))
    rows = {(row["topic"], row["queueId"]): row for row in snapshot.table("queues", "*").to_pylist()}
    scanned = snapshot.scan(
        pattern=".*", include_system_topics=True, columns=["topic", "queueId", "storeTimestamp", "storeSize"]
    ).read_all()
    groups = scanned.group_by(["topic", "queueId"]).aggregate(
        [("storeTimestamp", "min"), ("storeTimestamp", "max"), ("storeSize", "sum"), ("storeSize", "count")]
    )
    for group in groups.to_pylist():
        row = rows[group["topic"], group["queueId"]]
        assert row["messages"] == group["storeSize_count"]
        assert row["oldestTimestamp"] == group["storeTimestamp_min"]
        assert row["newestTimestamp"] == group["storeTimestamp_max"]
        if row["queueType"] == "SimpleCQ":  # records of inner batches hold several messages
            assert row["bytes"] == group["storeSize_sum"]
    assert sum(row["messages"] for row in rows.values()) == scanned.num_rows
    assert {f"{topic}@{queue_id}" for topic, queue_id in rows} <= answered.keys()
    bounds = {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in rows.values()}
    queues = snapshot.queues().to_pylist()  # which tests/golden holds against the answers
    assert {(row["topic"], row["queueId"]): (row["minOffset"], row["maxOffset"]) for row in queues} == bounds


@pytest.mark.parametrize("case", BROKER_CASES)
def test_files_hold_what_is_there(case, store_of):
    store = store_of(case)
    snapshot = rmqstore.open_snapshot(store)
    rows = snapshot.table("files").to_pylist()
    logs = [row for row in rows if row["kind"] == "commitlog"]
    assert sum(row["used"] for row in logs) == snapshot.stores[0].log_end - snapshot.stores[0].log_start
    scanned = snapshot.scan(
        pattern=".*", include_system_topics=True, columns=["physicalOffset", "storeTimestamp"]
    ).read_all()
    for row in logs:
        place = scanned["physicalOffset"]
        inside = pc.and_(pc.greater_equal(place, row["start"]), pc.less(place, row["start"] + row["size"]))
        times = scanned["storeTimestamp"].filter(inside)
        if len(times):
            assert (row["firstTimestamp"], row["lastTimestamp"]) == tuple(pc.min_max(times).as_py().values())
    paths = {str(path) for path in store.rglob("*") if path.is_file()}
    listed = Counter(row["path"] for row in rows)
    assert max(listed.values()) == 1
    assert paths == listed.keys()
    assert all(0 <= row["used"] <= row["size"] for row in rows)
    assert {row["path"]: row["allocated"] for row in rows} == {path: os.stat(path).st_blocks * 512 for path in paths}


def test_a_timer_wheel_of_holes_holds_nothing(tmp_path):
    root = small_store(2).write(tmp_path / "store")
    (root / "timerlog").mkdir(parents=True)
    for name in ("timerwheel", "timerlog/00000000000000000000"):
        with open(root / name, "wb") as file:
            file.truncate(1 << 22)
            file.seek(1 << 20)
            file.write(b"x" * 4096)
    rows = {row["path"]: row for row in rmqstore.open_snapshot(root).table("files").to_pylist()}
    for name in ("timerwheel", "timerlog/00000000000000000000"):
        row, status = rows[str(root / name)], (root / name).stat()
        assert (row["size"], row["allocated"]) == (1 << 22, status.st_blocks * 512)
        assert row["used"] == min(row["size"], row["allocated"])
    assert rows[str(root / "timerwheel")]["used"] < 1 << 20


def test_lite_topics_say_their_parents(store_of):
    rows = rmqstore.open_snapshot(store_of("lite-5.5.1")).table("queues").to_pylist()
    parents = {row["topic"]: row["parentTopic"] for row in rows}
    assert len({parent for parent in parents.values() if parent}) == 1
    for topic, parent in parents.items():
        assert (parent is not None) == topic.startswith("%LMQ%$")
        assert parent is None or (parent in parents and topic.startswith(f"%LMQ%${parent}$"))


def test_files_lists_empty_ones_strays_and_every_room(tmp_path):
    store = SmallStore()
    store.add("T", 0)
    root = store.write(tmp_path / "store")
    (tmp_path / "log").mkdir()
    (root / "commitlog").rename(tmp_path / "log" / "a")
    extra = {
        "commitlog/00000000000000004096": b"", "commitlog/00000000000000008192.tmp": b"xy",
        "consumequeue/T/0/notes.txt": b"x", "consumequeue/T/0/00000000000000001000": b"", "index/old": b"abc",
        "consumequeue_ext/T/0/00000000000000000000": b"ext" + bytes(100), "compaction/position-checkpoint": b"12",
        "compaction/compactionLog/T/0/00000000000000000000": b"abc" + bytes(997), "config/sub/x.json": b"{}",
        "mine/deep/er/file": b"1", "abort": b"",
    }  # fmt: skip
    for name, data in extra.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "mine" / "ring").symlink_to(root)
    snapshot = rmqstore.open_snapshot([[root, tmp_path / "log" / "a"]])
    rows = {row["path"]: row for row in snapshot.table("files").to_pylist()}
    found = {name: rows[str(root / name)] for name in extra}
    assert {name: (row["kind"], row["start"], row["size"], row["used"]) for name, row in found.items()} == {
        "commitlog/00000000000000004096": ("commitlog", 4096, 0, 0),
        "commitlog/00000000000000008192.tmp": ("other", None, 2, 2),
        "consumequeue/T/0/notes.txt": ("other", None, 1, 1),
        "consumequeue/T/0/00000000000000001000": ("consumequeue", 1000, 0, 0),
        "index/old": ("other", None, 3, 3),
        "consumequeue_ext/T/0/00000000000000000000": ("consumequeue_ext", 0, 103, 3),
        "compaction/position-checkpoint": ("compaction", None, 2, 2),
        "compaction/compactionLog/T/0/00000000000000000000": ("compaction", 0, 1000, 3),
        "config/sub/x.json": ("config", None, 2, 2),
        "mine/deep/er/file": ("other", None, 1, 1),
        "abort": ("abort", None, 0, 0),
    }
    assert not [path for path in rows if "/ring/" in path]
    assert rows[str(tmp_path / "log" / "a" / format_start(0))]["kind"] == "commitlog"


@pytest.mark.parametrize("case", BROKER_CASES)
def test_groups_and_topics_are_those_of_the_configuration(case, store_of):
    store = store_of(case)
    snapshot = rmqstore.open_snapshot(store)
    offsets = snapshot.consumer_offsets().to_pylist()
    groups = snapshot.table("groups").to_pylist()
    shown = [(row["group"], row["topic"], row["queueId"], row["committedOffset"]) for row in groups]
    assert sorted(shown) == sorted((row["group"], row["topic"], row["queueId"], row["offset"]) for row in offsets)
    topics = {row["topic"]: row for row in snapshot.table("topics").to_pylist()}
    configured = {row["topic"]: row for row in snapshot.topics().to_pylist()}
    assert topics.keys() >= configured.keys()
    for name, row in configured.items():
        assert {key: topics[name][key] for key in row} == row
    messages = Counter()
    for row in snapshot.table("queues").to_pylist():
        messages[row["topic"]] += row["messages"]
    assert {name: row["messages"] for name, row in topics.items() if row["messages"]} == +messages


def test_messages_that_were_deleted_before_a_group_came_to_them(tmp_path):
    root = small_store(400).write(tmp_path / "s")
    (root / "config").mkdir()
    table = {"T@early": {"0": 3}, "T@none": {"0": -1}, "T@up": {"0": 200}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    for start in (0, 4096):
        (root / "commitlog" / format_start(start)).unlink()
    snapshot = rmqstore.open_snapshot(root)
    low = snapshot.table("queues").to_pylist()[0]["minOffset"]
    assert 20 < low < 200
    rows = {row["group"]: (row["deletedUnread"], row["lag"]) for row in snapshot.table("groups").to_pylist()}
    assert rows == {"early": (low - 3, 200 - low), "none": (low, 200 - low), "up": (0, 0)}


def test_lag_in_messages_and_in_time(tmp_path):
    root = small_store(60).write(tmp_path)
    table = {"T@g": {"0": 10, "1": 30}, "T@ahead": {"0": 99}, "gone@g": {"0": 1}, "T@behind": {"0": -1}}
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    rows = {
        (row["group"], row["topic"], row["queueId"]): (
            row["maxOffset"],
            row["lag"],
            row["lagMs"],
            row["deletedUnread"],
            row["beyondEnd"],
        )
        for row in rmqstore.open_snapshot(root).table("groups").to_pylist()
    }
    assert rows == {
        ("g", "T", 0): (30, 20, 38_000, 0, 0),
        ("g", "T", 1): (30, 0, 0, 0, 0),
        ("ahead", "T", 0): (30, 0, 0, 0, 69),
        ("g", "gone", 0): (None, None, None, None, None),
        ("behind", "T", 0): (30, 30, 58_000, 0, 0),
    }


def half(store, key, **more):
    return store.add(
        HALF,
        0,
        properties={"REAL_TOPIC": "T", "REAL_QID": "2", "PGROUP": "p", "UNIQ_KEY": key, "TRAN_MSG": "true"} | more,
    )


def test_transactions_of_both_dialects_with_copies_by_checks(tmp_path):
    store = SmallStore(file_size=16384)
    first = half(store, "committed")
    half(store, "rolled back")
    half(store, "open")
    half(store, "told twice")
    half(store, "given up", TRANSACTION_CHECK_TIMES="14")
    store.add("T", 2, sys_flag=8, prepared_transaction_offset=first, properties={"UNIQ_KEY": "committed"})
    store.add(OP, 0, body=b"1", properties={"TAGS": "d"})
    store.add(OP, 0, body=b"0,3,", properties={"TAGS": "d"})
    copy = half(store, "open", TRANSACTION_CHECK_TIMES="1")
    half(store, "open", TRANSACTION_CHECK_TIMES="2")
    store.add(OP, 0, body=b"2", properties={"TAGS": "other"})
    store.add(OP, 0, body=b"x,99999999999999999999,-1,,", properties={"TAGS": "d"})
    store.add(GIVEN_UP, 0, properties={"UNIQ_KEY": "given up"})
    half(store, "open")  # born again: another transaction
    store.add("T", 2, sys_flag=8, prepared_transaction_offset=copy, properties={"UNIQ_KEY": "open"})
    rows = rmqstore.open_snapshot(store.write(tmp_path)).table("transactions").to_pylist()
    assert [(row["transactionId"], row["state"], row["halfOffset"], row["checkTimes"]) for row in rows] == [
        ("committed", "committed", 0, 0),
        ("rolled back", "rolledback", 1, 0),
        ("open", "committed", 2, 2),
        ("told twice", "rolledback", 3, 0),
        ("given up", "discarded", 4, 14),
        ("open", "pending", 7, 0),
    ]
    assert [row["commitOffset"] for row in rows] == [0, None, 1, None, None, None]
    assert [row["decidedTimestamp"] and ms(row["decidedTimestamp"]) - FIRST_MS for row in rows] == [
        5000, 6000, 14000, 7000, None, None,
    ]  # fmt: skip
    assert {(row["topic"], row["queueId"], row["producerGroup"]) for row in rows} == {("T", 2, "p")}


def test_transactions_that_were_given_up_with_an_op_message(tmp_path):
    """As this engine gives up; RocketMQ writes none then."""
    store = SmallStore()
    half(store, "given up")
    store.add(GIVEN_UP, 0, properties={"UNIQ_KEY": "given up"})
    store.add(OP, 0, body=b"0,", properties={"TAGS": "d"})
    (row,) = rmqstore.open_snapshot(store.write(tmp_path)).table("transactions").to_pylist()
    assert (row["state"], row["commitOffset"]) == ("discarded", None)


def test_transactions_whose_state_rocksdb_has(tmp_path):
    """As RocketMQ 5.5.1 writes them: an op names its half message by the place in the log, and so does a commit."""
    rocksdb_half, rocksdb_op = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
    store = SmallStore(file_size=16384)
    both = {"REAL_TOPIC": "T", "REAL_QID": "2", "PGROUP": "p", "TRAN_MSG": "true"}

    def op(offset, **more):
        told = {"REAL_TOPIC": "T", "__transactionId__": "?", "TRANS_OFFSET": str(offset), "WAIT": "false", "TAGS": "d"}
        store.add(rocksdb_op, 0, body=bytes(1), properties=told | more)

    half(store, "old")
    places = {
        key: store.add(rocksdb_half, 0, properties=both | {"UNIQ_KEY": key})
        for key in ("committed", "undone", "open", "untold", "waiting")
    }
    store.add("T", 2, sys_flag=8, prepared_transaction_offset=places["committed"], properties={"UNIQ_KEY": "committed"})
    op(places["committed"])
    op(places["undone"])
    op(places["open"], TAGS="other")
    op("x")
    op(2)  # queue offsets of half messages mean nothing here
    store.add(OP, 0, body=b"1,2", properties={"TAGS": "d"})
    store.add("T", 2, sys_flag=8, prepared_transaction_offset=places["untold"], properties={"UNIQ_KEY": "untold"})
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    rows = snapshot.table("transactions").to_pylist()
    assert [(row["transactionId"], row["state"], row["halfOffset"], row["commitOffset"]) for row in rows] == [
        ("old", "pending", 0, None),
        ("committed", "committed", 0, 0),
        ("undone", "rolledback", 1, None),
        ("open", "pending", 2, None),
        ("untold", "committed", 3, 1),
        ("waiting", "pending", 4, None),
    ]
    assert [bool(row["decidedTimestamp"]) for row in rows] == [False, True, True, False, True, False]
    for key, steps in (("committed", ["half", "final", "op"]), ("undone", ["half", "op"]), ("open", ["half"])):
        assert transaction_of(snapshot, key, ("topic",)).messages[STEP].to_pylist()[: len(steps)] == steps


def test_delayed_messages_behind_their_progress(tmp_path):
    store = SmallStore(file_size=16384)
    for number in range(4):
        store.add(SCHEDULE, 2, properties={"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "1", "UNIQ_KEY": f"d{number}"},
                  dispatched=False)  # fmt: skip
    for key, out_ms in (("past", 1000), ("new", 5000), ("deleted", 9000), ("rolled", 9000), ("rolled", 9000)):
        named = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": key}
        store.add(TIMER, 0, properties=named)
    store.add(TIMER, 0, properties={"TIMER_OUT_MS": "9000", "TIMER_DEL_UNIQKEY": "deleted", "UNIQ_KEY": "x"})
    root = store.write(tmp_path)
    (root / "config").mkdir()
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{3:2}}')
    (root / "config" / "timercheck").write_bytes(b"".join(number.to_bytes(8, "big") for number in (2000, 0, 6)))
    snapshot = rmqstore.open_snapshot(root)
    due_ms = FIRST_MS + 2000 + 10_000
    rows = snapshot.table("delayed", now_ms=due_ms).to_pylist()
    assert [(row["kind"], row["level"], row["msgId"], ms(row["deliverAt"]), row["isDue"]) for row in rows] == [
        ("level", 3, "d2", due_ms, True),
        ("level", 3, "d3", due_ms + 1000, False),
        ("timer", None, "new", 5000, True),
        ("timer", None, "rolled", 9000, True),
    ]
    assert {(row["topic"], row["queueId"]) for row in rows} == {("T", 0), ("T", 1)}
    assert rows[-1]["physicalOffset"] == store.offsets[8]


@pytest.mark.parametrize(("reached", "said"), [(5, True), (2**62, True), (4, False), (0, False)])
def test_a_level_whose_progress_is_past_its_newest_message_is_told(reached, said, tmp_path, caplog):
    store = SmallStore(file_size=16384)
    for number in range(4):
        store.add(SCHEDULE, 2, properties={"DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "1", "UNIQ_KEY": f"d{number}"},
                  dispatched=False)  # fmt: skip
    root = store.write(tmp_path)
    (root / "config").mkdir()
    (root / "config" / "delayOffset.json").write_text(f'{{"offsetTable":{{3:{reached}, 4:9}}}}')
    assert len(rmqstore.open_snapshot(root).table("delayed", now_ms=0)) == (4 if reached == 0 else 0)
    line = f"level 3 was delivered up to offset {reached:,}, and its newest message has 3: "
    assert [line in each for each in caplog.messages] == ([True] if said else [])


@pytest.mark.parametrize("check", [(9000, 0, 0), None])
def test_timers_of_rocksdb_wait_until_their_topic_has_the_message(check, tmp_path):
    store = SmallStore()

    def timer(key, out_ms, **more):
        told = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": key} | more
        store.add(TIMER, 0, properties=told)

    def sent_on(key, topic="T", **told):
        store.add(topic, 0, properties={"UNIQ_KEY": key} | told)

    sent_on("early", TIMER_OUT_MS="5000")  # of an older timer with the same key
    for key in ("gone", "early", "waits", "elsewhere", "untimed"):
        timer(key, 5000)
    timer("rolled", 3000)
    timer("rolled", 6000, TIMER_ROLL_LABEL="R")
    timer("rolls", 3000)
    timer("rolls", 7000, TIMER_ROLL_LABEL="R")
    timer("none", 5000, REAL_TOPIC="")
    sent_on("gone", TIMER_OUT_MS="5000")
    sent_on("elsewhere", "U", TIMER_OUT_MS="5000")
    sent_on("untimed")
    sent_on("rolled", TIMER_OUT_MS="6000")
    root = store.write(tmp_path)
    (root / "config").mkdir()
    if check is not None:
        (root / "config" / "timercheck").write_bytes(b"".join(number.to_bytes(8, "big") for number in check))
    rows = rmqstore.open_snapshot(root).table("delayed", now_ms=0).to_pylist()
    waiting = [(row["msgId"], ms(row["deliverAt"])) for row in rows]
    assert waiting == [
        ("early", 5000), ("waits", 5000), ("elsewhere", 5000), ("untimed", 5000), ("rolls", 7000), ("none", 5000),
    ]  # fmt: skip


def test_timers_of_rocksdb_that_followed_file_timers_wait_until_their_topic_has_the_message(tmp_path):
    """RocksDB takes the timers from where those of files ended (Java: TimerMessageRocksDBStore.start), and timercheck
    stays."""
    store = SmallStore()

    def timer(key, out_ms):
        store.add(
            TIMER, 0, properties={"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": key}
        )

    for key, out_ms in (("past", 1000), ("late", 5000), ("last", 6000), ("gone", 5000), ("waits", 5000)):
        timer(key, out_ms)
    for key, out_ms in (("late", 5000), ("gone", 5000)):
        store.add("T", 0, properties={"UNIQ_KEY": key, "TIMER_OUT_MS": str(out_ms)})
    root = store.write(tmp_path)
    (root / "config").mkdir()
    (root / "config" / "timercheck").write_bytes(b"".join(number.to_bytes(8, "big") for number in (2000, 0, 3)))
    rows = rmqstore.open_snapshot(root).table("delayed", now_ms=0).to_pylist()
    assert [(row["msgId"], ms(row["deliverAt"])) for row in rows] == [("last", 6000), ("waits", 5000)]


def rocksdb_state(root, family, entries):
    """A column family of rocksdbstore/, as RocketMQ 5.4 and later make it."""
    path, options = str(root / "rocksdbstore"), rocksdict.Options(raw_mode=True)
    families = {name: rocksdict.Options(raw_mode=True) for name in ("default", "timer", "trans")}
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    database = rocksdict.Rdict(path, options, column_families=families)
    for key, value in entries.items():
        database.get_column_family(family)[key] = value
    database.close()


def i8(number):
    return number.to_bytes(8, "big", signed=True)


@pytest.mark.parametrize("extra", ["there", "missing"])
def test_rocksdb_tells_which_timers_wait(extra, tmp_path, monkeypatch, caplog):
    """Their topics may be gone, and with them what was delivered; the timers that RocksDB has not taken in yet wait."""
    store = SmallStore()
    for key, out_ms in (("of files", 9000), ("past", 1000), ("waits", 5000), ("taken back", 5000), ("sent on", 5000),
                        ("not yet", 1000)):  # fmt: skip
        told = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "Gone", "REAL_QID": "0", "UNIQ_KEY": key}
        store.add(TIMER, 0, properties=told)
    store.add("Gone", 0, properties={"UNIQ_KEY": "sent on", "TIMER_OUT_MS": "5000"})
    root = store.write(tmp_path)
    (root / "config").mkdir()
    (root / "config" / "timercheck").write_bytes(i8(2000) + i8(0) + i8(1))
    timers = {i8(out_ms) + key: bytes(12) for key, out_ms in ((b"past", 1000), (b"waits", 5000), (b"sent on", 5000))}
    progress = {b"sys_topic_scan_offset_checkpoint": i8(5), b"timeline_checkpoint": i8(2000)}
    rocksdb_state(root, "timer", timers | progress)
    if extra == "missing":
        monkeypatch.setitem(sys.modules, "rocksdict", None)
    rows = rmqstore.open_snapshot(root).table("delayed", now_ms=0).to_pylist()
    waiting = [row["msgId"] for row in rows]
    if extra == "there":
        assert waiting == ["of files", "waits", "not yet"]
    else:
        assert waiting == ["of files", "past", "waits", "taken back", "not yet"]
        assert "RocksDB may know how far timers were delivered" in caplog.text
        assert "pip install 'rmqstore[rocksdb]'" in caplog.text


@pytest.mark.parametrize("extra", ["there", "missing"])
def test_rocksdb_tells_how_often_transactions_were_checked_and_which_were_given_up(
    extra, tmp_path, monkeypatch, caplog
):
    store = SmallStore(file_size=16384)
    both = {"REAL_TOPIC": "T", "REAL_QID": "2", "PGROUP": "p", "TRAN_MSG": "true"}
    half_topic = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
    keys = ("committed", "checked", "given up", "not yet")
    places = {key: store.add(half_topic, 0, properties=both | {"UNIQ_KEY": key}) for key in keys}
    half(store, "of files")
    told = {"REAL_TOPIC": "T", "TRANS_OFFSET": str(places["committed"]), "TAGS": "d"}
    store.add("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", 0, body=bytes(1), properties=told)
    store.add("T", 2, sys_flag=8, prepared_transaction_offset=places["committed"], properties={"UNIQ_KEY": "committed"})
    root = store.write(tmp_path)
    open_one = {i8(places["checked"]) + b"@T@checked": b"\0\0\0\x05" + bytes(4)}
    rocksdb_state(root, "trans", open_one | {b"lastOffsetPy": i8(places["given up"])})
    if extra == "missing":
        monkeypatch.setitem(sys.modules, "rocksdict", None)
    (extent,) = rmqstore.open_snapshot(root).stores
    live = transaction_rows(replace(extent, lock_held=True), "auto")
    assert "discarded" not in live["state"].to_pylist()  # a broker that runs may have decided it meanwhile
    rows = rmqstore.open_snapshot(root).table("transactions").to_pylist()
    there = extra == "there"
    assert [(row["transactionId"], row["state"], row["checkTimes"]) for row in rows] == [
        ("committed", "committed", 0),
        ("checked", "pending", 5 if there else 0),
        ("given up", "discarded" if there else "pending", 0),
        ("not yet", "pending", 0),
        ("of files", "pending", 0),
    ]
    assert ("RocksDB may know how often transactions were checked" in caplog.text) != there


def test_a_database_without_its_file_current_is_told(tmp_path, caplog):
    store = SmallStore()
    told = {"REAL_TOPIC": "T", "REAL_QID": "2", "PGROUP": "p", "TRAN_MSG": "true", "UNIQ_KEY": "open"}
    store.add("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", 0, properties=told)
    root = store.write(tmp_path)
    rocksdb_state(root, "trans", {b"lastOffsetPy": i8(0)})
    (root / "rocksdbstore" / "CURRENT").unlink()
    (row,) = rmqstore.open_snapshot(root).table("transactions").to_pylist()
    assert row["state"] == "pending"
    assert "RocksDB may know how often transactions were checked" in caplog.text


def test_a_store_with_nothing_has_tables_of_no_row(tmp_path):
    (tmp_path / "commitlog").mkdir()
    snapshot = rmqstore.open_snapshot(tmp_path)
    for name in SCHEMAS:
        table = snapshot.table(name)
        assert table.num_rows == 0
        assert table.schema == table_schema(name)


def test_rows_of_several_stores_say_their_broker(tmp_path):
    paths = {name: small_store(4).write(tmp_path / name) for name in ("a", "b")}
    table = rmqstore.open_snapshot(paths).table("queues", ["brokerName", "messages"])
    assert table.to_pydict() == {"brokerName": ["a", "a", "b", "b"], "messages": [2, 2, 2, 2]}


def test_what_is_asked_for_wrongly_is_named(tmp_path):
    snapshot = rmqstore.open_snapshot(small_store(4).write(tmp_path))
    with pytest.raises(Rejected, match="did you mean queues"):
        snapshot.table("queue")
    with pytest.raises(Rejected, match="one of queues, topics"):
        snapshot.table("messages")
    with pytest.raises(UnknownColumn, match="did you mean messages"):
        snapshot.table("queues", "message")
    with pytest.raises(Rejected, match="name each column once"):
        snapshot.table("queues", [])
    assert "bytes" not in snapshot.table("queues").column_names
    assert snapshot.table("queues", "topic, bytes").column_names == ["topic", "bytes"]


@pytest.mark.host
def test_messages_per_topic_of_a_large_store_take_no_second(tmp_path):
    """2,000 queues and 100 GiB of log by its offsets; the files are sparse.

    A second of this process's own time: neighbours on the machine do not count.
    """
    shape = StoreShape(
        count=20_000, body_size=100, topic_count=500, queue_count=4, log_file_size=1024 * MIB, per_file_max=200
    )
    store = write_store(tmp_path / "store", shape)
    took = []
    for _ in range(2):
        began = process_time()
        table = rmqstore.open_snapshot(store).table("queues", ["topic", "messages"])
        per_topic = table.group_by("topic").aggregate([("messages", "sum")])
        took.append(process_time() - began)
        assert set(per_topic["messages_sum"].to_pylist()) == {40}
        assert (per_topic.num_rows, table.num_rows) == (500, 2000)
    assert min(took) < 1
