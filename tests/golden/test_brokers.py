"""Stores of whole brokers under traffic: stopped, killed, and copied while running."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rocksdict

import rmqstore
from rmqstore import Corrupt, UnsupportedLayout
from rmqstore.directory.config_files import topics
from rmqstore.files.reading import LOCAL
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.names import is_system_topic
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.golden.broker_answers import (
    ANSWERED,
    Answers,
    _shown_body,
    answers_of,
    as_a_client_shows_all,
    begins_in_rocksdb,
    digest,
    is_asked_for,
    miscounts,
    pulled_rows,
)
from tests.golden.cases import BROKER_CASES, FOLDERS, INNER_BATCH, Row, read_json, unpack, unpack_folder
from tests.golden.rows import SCAN_MODES, differences, fingerprint, scanned

pytestmark = pytest.mark.stores

DLEDGER = Path(__file__).parent / "broker" / "broker-dledger-5.3.3"
LIVE = [case for case in BROKER_CASES if case not in ANSWERED]

HALF_TOPIC, ROCKSDB_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"


@pytest.mark.some(6)
@pytest.mark.parametrize("scan_mode", SCAN_MODES)
@pytest.mark.parametrize("case", ANSWERED)
def test_rows_are_what_a_client_pulled(case: str, scan_mode: str, store_of: Callable[[str], Path]) -> None:
    store, answers = store_of(case), answers_of(case)
    before = fingerprint(store)
    rows = scanned(rmqstore.open_snapshot(store), scan_mode=scan_mode)
    visible = [row for row in as_a_client_shows_all(rows, answers) if is_asked_for(row, answers)]
    assert differences(visible, pulled_rows(answers)) == []
    assert fingerprint(store) == before


@pytest.mark.parametrize("case", ANSWERED)
def test_bounds_are_the_broker_s(case: str, store_of: Callable[[str], Path]) -> None:
    """A recovered broker may have put more messages since a killed store was copied; a stopped one cannot."""
    answers = answers_of(case)
    snapshot = rmqstore.open_snapshot(store_of(case))
    ours = {f"{q['topic']}@{q['queueId']}": (q["minOffset"], q["maxOffset"]) for q in snapshot.queues().to_pylist()}
    end = answers["meta"]["commitlogEnd"]
    for name, queue in answers["queues"].items():
        if "offsetError" in queue or miscounts(name, answers):
            sent = read_json(FOLDERS[case], "sent")
            count = sum(f"{send['topic']}@{send.get('queueId')}" == name for send in sent)
            assert ours.get(name, (0, 0)) == (0, count)
            continue
        begin = 0 if begins_in_rocksdb(name, answers) else queue["minOffset"]
        later = sum(message["commitLogOffset"] >= end for message in queue.get("messages", ()))
        highest = queue["maxOffset"]
        if "dledger" in case and queue["messages"]:
            # In this mode RocketMQ counts each inner batch as one message, and still gives all of them out.
            highest = max(highest, queue["messages"][-1]["queueOffset"] + 1)
        assert ours.get(name, (0, 0)) == (begin, highest - later + _unasked(snapshot, name, answers)), name
    assert ours.keys() <= answers["queues"].keys()


def _unasked(snapshot: rmqstore.Snapshot, name: str, answers: Answers) -> int:
    """How many messages of a queue a broker put after the questions about its clean store, as one of 5.5.1 did."""
    topic, _, queue_id = name.rpartition("@")
    if not answers["queues"][name]["maxOffset"]:
        return 0
    times = snapshot.scan(assign={topic: [int(queue_id)]}, columns=["storeTimestamp"]).read_all()["storeTimestamp"]
    return sum(time.timestamp() * 1000 > answers["takenMs"] for time in times.to_pylist())


@pytest.mark.parametrize("case", ANSWERED)
def test_tag_filters_find_what_a_client_got(case: str, store_of: Callable[[str], Path]) -> None:
    snapshot, answers = rmqstore.open_snapshot(store_of(case)), answers_of(case)
    asked = 0
    for name, answer in answers["filteredPulls"].items():
        queue, _, rest = name.partition(" from ")
        first, _, expression = rest.partition(" tags ")
        if not expression or answer["status"] not in ("FOUND", "NO_MATCHED_MSG"):
            continue
        topic, _, queue_id = queue.partition("@")
        tags = tuple(tag.strip() for tag in expression.split("||"))
        found = snapshot.scan(assign={topic: [int(queue_id)]}, columns=["queueOffset"], tags=tags).read_all()
        inside = [offset for offset in found["queueOffset"].to_pylist() if int(first) <= offset < answer["next"]]
        assert inside == answer["queueOffsets"], name
        asked += 1
    assert asked


@pytest.mark.parametrize("case", ANSWERED)
def test_keys_find_what_the_broker_found(case: str, store_of: Callable[[str], Path]) -> None:
    snapshot, answers = rmqstore.open_snapshot(store_of(case)), answers_of(case)
    end = answers["meta"]["commitlogEnd"]
    answered = [question for question in answers["queryMessage"] if "commitLogOffsets" in question]
    assert answered
    for question in answered:
        found = snapshot.query(
            question["topic"],
            question["key"],
            begin_ms=question["begin"],
            end_ms=question["end"],
            count_max=question["maxNum"],
        )
        theirs = [offset for offset in question["commitLogOffsets"] if offset < end]
        assert sorted({message.physical_offset for message in found}) == sorted(set(theirs)), question


@pytest.mark.parametrize("case", ANSWERED)
def test_a_message_by_its_offset_id(case: str, store_of: Callable[[str], Path]) -> None:
    snapshot, answers = rmqstore.open_snapshot(store_of(case)), answers_of(case)
    for seen in answers["viewMessageByOffsetId"]:
        if "error" in seen:  # 5.5.1 shows none of internal topics
            place = int(seen["id"][16:], 16)
            assert is_system_topic(snapshot.message_at(place).topic)
            continue
        message = snapshot.message_at(seen["commitLogOffset"])
        assert (message.topic, message.queue_id, message.queue_offset) == (
            seen["topic"],
            seen["queueId"],
            seen["queueOffset"],
        )
        assert message.offset_msg_id == seen["id"]


@pytest.mark.parametrize("case", [case for case in ANSWERED if "-clean-5" in case])
def test_offsets_by_time_are_the_broker_s(case: str, store_of: Callable[[str], Path]) -> None:
    """5.x answers with the lower boundary.  4.9 goes by the files' modification times, which stopping it has
    changed."""
    snapshot, answers = rmqstore.open_snapshot(store_of(case)), answers_of(case)
    inner = {message["topic"] for message in _messages(answers) if message["sysFlag"] & INNER_BATCH}
    for name, offsets in answers["searchOffsetByTime"].items():
        topic, _, queue_id = name.rpartition("@")
        if topic in inner:
            continue  # Java answers with the first message of an inner batch
        for time_ms, offset in offsets.items():
            begin = answers["queues"][name]["minOffset"] if begins_in_rocksdb(name, answers) else 0
            assert max(snapshot.offset_at(topic, int(queue_id), int(time_ms)), begin) == offset, (name, time_ms)


def _messages(answers: Answers) -> Iterator[Mapping[str, Any]]:
    return (message for queue in answers["queues"].values() for message in queue.get("messages", ()))


@pytest.mark.parametrize("case", [case for case in ANSWERED if "-clean-" in case])
def test_topics_are_the_broker_s(case: str, store_of: Callable[[str], Path]) -> None:
    ours = {topic["topic"]: topic for topic in rmqstore.open_snapshot(store_of(case)).topics().to_pylist()}
    for name, theirs in answers_of(case)["topics"].items():
        if name not in ours:
            assert is_system_topic(name), name  # known to every broker, in no file
            continue
        for field in ("readQueueNums", "writeQueueNums", "perm"):
            assert ours[name][field] == theirs[field], name
        assert dict(ours[name]["attributes"]) == theirs.get("attributes", {}), name


@pytest.mark.parametrize("scan_mode", SCAN_MODES)
@pytest.mark.parametrize("case", LIVE)
def test_a_live_copy_holds_all_that_was_acknowledged(
    case: str, scan_mode: str, store_of: Callable[[str], Path]
) -> None:
    """Everything acknowledged before the copy began is there; later messages may be, whole or not at all."""
    store = store_of(case)
    before = fingerprint(store)
    rows = scanned(rmqstore.open_snapshot(store), scan_mode=scan_mode, on_corrupt_record="skip")
    by_record = {row["offsetMsgId"]: row for row in rows if not row["sysFlag"] & INNER_BATCH}
    by_place = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in rows}
    by_key = {(row["topic"], row["msgId"]) for row in rows}
    for send in read_json(FOLDERS[case], "sent"):
        if not send.get("offsetMsgId"):
            # No answer came (one way), or one that names no place: half messages wait in a topic of their own.
            half_topic = ROCKSDB_HALF_TOPIC if case.startswith("rip82-") else HALF_TOPIC
            topic = half_topic if send["kind"].startswith("transaction:") else send["topic"]
            assert (topic, send["properties"]["UNIQ_KEY"]) in by_key
            continue
        piece = int(send["note"].split()[3]) if "piece" in send.get("note", "") else 0
        place = (send["topic"], send["queueId"], send["queueOffset"] + piece)
        ids = send["offsetMsgId"].split(",")
        found = (
            by_place.get(place) if send["kind"] == "innerBatch" else by_record.get(ids[piece if len(ids) > 1 else 0])
        )
        if found is None:
            assert not send["mustBePresent"], send
        else:
            _assert_is_what_was_sent(found, send, place)
    assert fingerprint(store) == before


def _assert_is_what_was_sent(row: Row, send: Mapping[str, Any], place: tuple[str, int, int]) -> None:
    """Body, flag and properties; delayed and transactional messages wait in a system topic, and lose nothing there."""
    if send["kind"] in ("normal", "ordered", "large", "autoCreated", "batch", "innerBatch"):
        assert (row["topic"], row["queueId"], row["queueOffset"]) == place
    assert digest(row["body"]) == _shown_body(send)
    assert row["flag"] == send["flag"]
    # The broker drops WAIT, writes the unique key of a whole batch over those of its messages, and answers for DELAY
    # itself.
    kept = {name: text for name, text in send["properties"].items() if name not in ("WAIT", "UNIQ_KEY", "DELAY")}
    assert row["properties"].items() >= kept.items()


# Nothing that is left says that the newest file's messages were on the disk: the checkpoint tells an older time than
# that of the last message in the file before, or the queues are RocksDB's.
_UNTOLD = (
    "broker-killed-4.9.8",
    "broker-live-4.9.8",
    "broker-live-5.3.3",
    "rocksdb-killed-5.5.1",
    "rocksdb-live-5.5.1",
)


@pytest.mark.parametrize("case", [case for case in BROKER_CASES if case not in _UNTOLD])
def test_a_store_without_its_newest_log_file_is_not_read_as_whole(case: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path)
    files = [path for room in ("commitlog", "dledger-*/data") for path in store.glob(f"{room}/*")]
    max((path for path in files if any(path.read_bytes())), key=lambda path: path.name).unlink()
    with pytest.raises(Corrupt, match="is missing or empty, and messages were in it"):
        rmqstore.open_snapshot(store).scan().read_all()


@pytest.mark.parametrize("case", [case for case in ("rocksdb-clean-5.5.1", "broker-clean-5.5.1") if case in FOLDERS])
def test_delivery_times_that_only_rocksdb_knows_are_told_to_be_those_of_rocketmq_s_levels(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    levels = rmqstore.open_snapshot(unpack(case, tmp_path)).table("delayed")["level"].to_pylist()
    assert any(level is not None for level in levels)
    assert ("the broker may have others (messageDelayLevel)" in caplog.text) == case.startswith("rocksdb")


_WITH_LIGHT_QUEUES = ("broker-clean-5.5.1", "broker-killed-5.5.1", "lite-5.5.1", "lite-killed-5.4.0")


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("keeps_batches", [True, False])
@pytest.mark.parametrize("case", [case for case in _WITH_LIGHT_QUEUES if case in FOLDERS])
def test_light_queues_are_made_again_with_all_others_that_are_lost(
    case: str, keeps_batches: bool, has_index: bool, tmp_path: Path
) -> None:
    """As a reader has them; an opening without multi_dispatch left them out."""
    store = unpack(case, tmp_path)
    whole = {row for row in _rows_by_place(store, "auto", has_all=True) if row[0].startswith("%LMQ%")}
    rooms = {"consumequeue", *(() if keeps_batches else ["batchconsumequeue"]), *(() if has_index else ["index"])}
    for room in rooms:
        shutil.rmtree(store / room, ignore_errors=True)
    before = _rows_by_place(store, "auto", has_all=True)
    assert whole
    assert whole <= {row for row in before if row[0].startswith("%LMQ%")}
    rmqstore.open_store(store).close()
    assert _rows_by_place(store, "auto", has_all=True) == before


def _light_queues(store: Path) -> list[str]:
    return sorted(topic for topic, _ in rmqstore.open_snapshot(store).stores[0].queues if topic.startswith("%LMQ%"))


@pytest.mark.parametrize("state", ["read", "read, and behind", "of another log", "not read"])
@pytest.mark.parametrize("case", [case for case in BROKER_CASES if case == "rocksdb-clean-5.5.1"])
def test_light_queues_that_a_broker_deleted_are_gone_where_rocksdb_is_read(
    case: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ takes their keys out of the database; their records name them as long as the log has these.  Where the
    database is behind, a later record may have made one again."""
    store = unpack(case, tmp_path)
    gone, *kept = _light_queues(store)
    path = str(store / "consumequeue_rocksdb")
    options = {name: rocksdict.Options(raw_mode=True) for name in rocksdict.Rdict.list_cf(path)}
    database = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True), column_families=options)
    family = database.get_column_family("offset")
    for key in list(family.keys()):
        if gone.encode() in key:
            del family[key]
        elif b"CHECKPOINT_TOPIC" in key and state == "read, and behind":
            family[key] = bytes(7) + b"\1"
        elif b"LMQ" not in key and b"\1max\1" in key and state == "of another log":
            family[key] = (int.from_bytes(family[key][:8]) - 1).to_bytes(8) + family[key][8:]
    database.close()
    if state == "not read":
        monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert kept
    assert _light_queues(store) == (kept if state == "read" else [gone, *kept])


@pytest.mark.parametrize("state", ["deleted", "configured", "killed", "not read"])
@pytest.mark.parametrize("case", [case for case in BROKER_CASES if case == "rocksdb-clean-5.5.1"])
def test_topics_that_a_broker_deleted_are_gone_where_rocksdb_is_read(
    case: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of queues in files: neither the broker's configuration nor its queues have them."""
    store = unpack(case, tmp_path)
    before = {topic for topic, *_ in _rows_by_place(store, "auto")}
    gone = min(topic for topic in before if topic.endswith("Normal"))
    kept = {name for name in topics(LOCAL, str(store)) if name != gone or state == "configured"}
    shutil.rmtree(store / "config" / "metadata")
    table = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for name in kept}
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    path = str(store / "consumequeue_rocksdb")
    options = {name: rocksdict.Options(raw_mode=True) for name in rocksdict.Rdict.list_cf(path)}
    database = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True), column_families=options)
    family = database.get_column_family("offset")
    for key in list(family.keys()):
        if gone.encode() in key:
            del family[key]
    database.close()
    if state == "killed":
        (store / "abort").write_text("")
    if state == "not read":
        monkeypatch.setitem(sys.modules, "rocksdict", None)
    after = {topic for topic, *_ in _rows_by_place(store, "auto")}
    assert before - after == ({gone} if state == "deleted" else set())


@pytest.mark.parametrize("case", [case for case in BROKER_CASES if case.startswith("rocksdb-")])
def test_a_copy_without_the_database_of_queues_has_all_messages(
    case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its inner batches name no INNER_BASE: they were one row with their batch's bytes, or damage."""
    store = unpack(case, tmp_path)
    before = _rows_by_place(store, "auto")
    shutil.rmtree(store / "consumequeue_rocksdb")
    assert _rows_by_place(store, "auto") == before
    assert "no consume queue is here" in caplog.text
    shutil.rmtree(store / "consumequeue", ignore_errors=True)
    assert _rows_by_place(store, "auto") == before


@pytest.mark.parametrize("case", [case for case in BROKER_CASES if case.startswith("rocksdb-")])
def test_a_database_of_queues_that_lost_its_file_current_is_one_all_the_same(case: str, tmp_path: Path) -> None:
    """Its inner batches name no INNER_BASE: they were one row with their batch's bytes, or damage."""
    store = unpack(case, tmp_path)
    before = _rows_by_place(store, "auto")
    assert any(topic.endswith("BatchCq") for topic, *_ in before)
    (store / "consumequeue_rocksdb" / "CURRENT").unlink()
    assert _rows_by_place(store, "auto") == before
    with pytest.raises(UnsupportedLayout, match="consume queues in RocksDB"):
        rmqstore.open_store(store)


@pytest.mark.parametrize("scan_mode", ["auto", "commitlog"])
@pytest.mark.parametrize("lost", [("consumequeue",), ("batchconsumequeue",), ("consumequeue", "batchconsumequeue")])
def test_inner_batches_of_dledger_are_taken_apart_without_their_units(
    lost: tuple[str, ...], scan_mode: str, tmp_path: Path
) -> None:
    """In DLedger mode they name no INNER_BASE: configuration or queue files tell what they are."""
    store = unpack_folder(DLEDGER, tmp_path)
    before = _rows_by_place(store, "auto")
    for room in lost:
        shutil.rmtree(store / room)
    assert _rows_by_place(store, scan_mode) == before


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_inner_batches_of_dledger_that_were_not_dispatched_are_taken_apart(kept: int, tmp_path: Path) -> None:
    store = unpack_folder(DLEDGER, tmp_path)
    before = _rows_by_place(store, "auto")
    (units,) = (store / "batchconsumequeue/G301BatchCq/0").iterdir()
    with units.open("r+b") as file:
        entries = np.frombuffer(file.read(4 * BATCH_QUEUE_ENTRY.size), BATCH_QUEUE_ENTRY.dtype)
        file.seek(kept * BATCH_QUEUE_ENTRY.size)
        file.write(bytes((4 - kept) * BATCH_QUEUE_ENTRY.size))
    _erase_entries_from(store / "consumequeue", int(entries["physical_offset"][kept]))
    assert _rows_by_place(store, "auto") == before


def _rows_by_place(store: Path, scan_mode: str, *, has_all: bool = False) -> list[tuple[Any, ...]]:
    table = rmqstore.open_snapshot(store).scan(scan_mode=scan_mode, include_system_topics=has_all).read_all()
    names = ("topic", "queueId", "queueOffset", "physicalOffset", "body")
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))


def _erase_entries_from(room: Path, log_offset: int) -> None:
    """As a kill leaves it: no queue has what stands in the log from `log_offset` on."""
    for path in room.glob("*/*/*"):
        entries = np.fromfile(path, QUEUE_ENTRY.dtype)
        entries[entries["physical_offset"] >= log_offset] = np.zeros(1, QUEUE_ENTRY.dtype)
        entries.tofile(path)
