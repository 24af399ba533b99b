"""Every golden store, recovered by us: what comes out is what Java has after its own recovery, or better.

Whatever is other than Java's stands in one of the tables below, with its reason.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqstore
from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.directory.queue_kinds import PLAIN_ONLY
from rmqstore.engine.log.opening import mark_closed, recovered
from rmqstore.engine.log.recovery.apply import StoreParts
from rmqstore.engine.log.recovery.first_read import records_to_keep
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.errors import Corrupt, UnsupportedLayout
from rmqstore.files import real_file
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import LocalDisk
from rmqstore.formats.delay_levels import DEFAULT_TABLES, LevelsSince
from rmqstore.formats.index import ITEM, file_size, read_header
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import CrcChecks, read_batches
from rmqstore.records.vectors import Records
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.verify import verify
from tests.golden.cases import FOLDERS, OPENED_CASES, STORE_CASES, base_name, load_expected, unpack
from tests.golden.departures import has_shifted_queue
from tests.golden.rows import scanned

pytestmark = pytest.mark.stores

# Opening refuses these, where Java throws sound messages away without a word.
REFUSED = {
    "basic-midflip": "the CRC of the body is wrong; the next sound record is at",
    "killed-midflip": "the CRC of the body is wrong; the next sound record is at",
    "basic-nocommitlog": "there is no commitlog file, while queues or index have entries",
}
IN_ROCKSDB = "rockscq"

_REFUSED_BY_JAVA = "Java does not start on this directory, although nothing is wrong with the messages"
_LIES = "the last record says a queue offset that is not its queue's next; Java believes it and shifts the queue"
_CRC = "the record's own CRC property says that it is damaged; a broker without forceVerifyPropCRC does not look"
# Where the log ends elsewhere than Java's.
LOG_ENDS = {
    "crcprop-flip": _CRC,
    "killed-headerflip": _LIES,
    "basic-emptylog": _REFUSED_BY_JAVA,
    "basic-shortlog": _REFUSED_BY_JAVA,
    "basic-strayfile": _REFUSED_BY_JAVA,
}
_ONE_QUEUE = "without abort Java does not dispatch again what one queue lacks; the log has the messages"
# Where queues hold something else than Java's.
QUEUES = {
    "basic-newzerocq": "an all-zero queue file makes a phantom entry in Java",
    "basic-zeroedcq": "the zeroed file hides messages from Java, and makes a phantom entry; the log has them",
    "basic-nolastcq": _ONE_QUEUE,
    "killed-lagcq-noabort": _ONE_QUEUE,
    "killed-nocq-noindex": "Java 5 builds queues from the checkpoint on only, with blanks before; we build all of them",
    "lite-killed-nocq": "Java 5 builds queues from the checkpoint on only, with blanks before; we build all of them",
    "killed-preblank": "Java's queues begin with blanks, which hide messages that the log has; we build them anew",
    "killed-headerflip": _LIES,
    "crcprop-flip": _CRC,
    "basic-emptylog": _REFUSED_BY_JAVA,
    "basic-shortlog": _REFUSED_BY_JAVA,
    "basic-strayfile": _REFUSED_BY_JAVA,
}
# Findings of `rmqstore verify` that stay: what a recovery has no business with.
FINDINGS = {
    "basic-strayfile": "a stray file among the commitlog files: RocketMQ does not start on it",
}

_BROKERS_LEVELS = "1s 2s 1s 2s 5s 1h 2h"  # of the brokers that wrote the stores in broker/

Entry = tuple[int, ...]  # queueOffset, physicalOffset, storeSize, tagsCode, in a batch queue count of messages


def _recover(store: Path, **changes: Any) -> StoreParts:
    """Recovers and leaves the store open, with `abort`."""
    sizes = load_expected(store.parent.name).get("config") if store.parent.name in STORE_CASES else None
    if sizes:  # for stores that have no index file left
        changes |= {"index_slot_count": sizes["maxHashSlotNum"], "index_item_count": sizes["maxIndexNum"]}
    config = StoreConfig(**({"on_middle_damage": "cut"} | changes))
    parts, _, _ = recovered(RealFileSystem(), str(store), config, ManualClock())
    return parts


def _plan(store: Path, **changes: Any) -> Any:
    return plan_recovery(LocalDisk(), str(store), StoreConfig(**changes))


def _contents(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def _records(parts: StoreParts) -> Iterator[RecordBatch]:
    """Every record of the log."""
    log = parts.log
    items = read_batches(log.read, log.start, log.end, log.file_size, checks=CrcChecks(bodies=True))
    for item in items if log.starts else ():
        if isinstance(item, RecordBatch):
            yield item


def _entries(parts: StoreParts) -> dict[str, list[Entry]]:
    found = {}
    for queue in parts.queues.queues():
        rows = queue.read(queue.min_offset, queue.max_offset).tolist()
        found[f"{queue.topic}/{queue.queue_id}"] = [
            (queue.min_offset + number, *row) for number, row in enumerate(rows)
        ]
    for queue in parts.queues.batches.queues():
        names = ["base_queue_offset", "physical_offset", "size", "tags_code", "message_count"]
        found[f"{queue.topic}/{queue.queue_id}"] = queue.read(*queue.slots)[names].tolist()
    return found


def _entries_of_log(parts: StoreParts, delay_ms: tuple[int, ...]) -> dict[str, list[Entry]]:
    """What the records say that the queues should hold."""
    entries: dict[str, list[Entry]] = defaultdict(list)
    for batch in _records(parts):
        topics, numbers = batch.topics
        codes = batch.tags_codes((LevelsSince(0, delay_ms),))
        bases, counts, _ = batch.numbers
        for row in np.flatnonzero(batch.queued).tolist():
            topic, record = topics[numbers[row]], (batch.offsets[row], batch.sizes[row], codes[row])
            is_batch = parts.queues.is_batch_topic(topic)
            place = (bases[row], *record, counts[row]) if is_batch else (batch.queue_offsets[row], *record)
            entries[f"{topic}/{batch.queue_ids[row]}"].append(tuple(map(int, place)))
    return entries


def _java_queues(expected: dict[str, Any]) -> dict[str, list[Entry]]:
    """Java's entries of consume queues, extension addresses as stored; those of batch queues end in their counts."""
    queues = {name: queue["entries"] for name, queue in expected.get("queues", {}).items() if queue["entries"]}
    return {name: [tuple(entry) for entry in entries] for name, entries in queues.items()}


def _index_items(store: Path) -> list[tuple[int, int]]:
    """Place and hash of every item of all index files, in order."""
    items: list[tuple[int, int]] = []
    for path in sorted((store / "index").glob("*")):
        data = path.read_bytes()
        header = read_header(data)
        assert header is not None
        sizes = load_sizes(store)
        rows = np.frombuffer(data, ITEM.dtype, header.index_count, file_size(sizes, 0))[1:]
        items += zip(rows["physical_offset"].tolist(), rows["key_hash"].tolist(), strict=True)
    return items


def load_sizes(store: Path) -> int:
    """Slots of the index files of a case's store."""
    return int(load_expected(store.parent.name)["config"]["maxHashSlotNum"])


@pytest.fixture(autouse=True)
def _no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut would leave is tested on a disk in memory; thousands of real syncs would only take time."""
    monkeypatch.setattr(real_file, "_sync_data", lambda descriptor: None)
    monkeypatch.setattr(RealFileSystem, "sync_directory", lambda self, path: None)


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unpacked store of a case, in a directory of the case's name."""
    (tmp_path / request.param).mkdir()
    return unpack(request.param, tmp_path / request.param)


@pytest.mark.parametrize("store", STORE_CASES, indirect=True)
def test_recovered_as_java_does_or_better(store: Path) -> None:
    case = store.parent.name
    expected, name = load_expected(case), base_name(case)
    before = _contents(store)
    if name == IN_ROCKSDB:
        with pytest.raises(UnsupportedLayout, match="consume queues in RocksDB"):
            _plan(store)
        assert _contents(store) == before
        return
    if name in REFUSED:
        with pytest.raises(Corrupt, match=REFUSED[name]):
            _plan(store)
        assert _contents(store) == before
    plan = _plan(store, on_middle_damage="cut")
    parts = _recover(store)
    assert plan.next_offsets() == {key: end for key, end in parts.queues.next_offsets().items() if end}
    _assert_log(name, expected, parts, plan.log_end)
    _assert_queues(name, expected, parts)
    _assert_kept(parts)
    if plan.log_file_size:
        _assert_index(store, parts)
    _assert_settled(store, before if plan.changes_nothing else None)


def _assert_log(name: str, expected: dict[str, Any], parts: StoreParts, log_end: int) -> None:
    offsets = np.concatenate([np.zeros(0, np.int64), *(batch.offsets for batch in _records(parts))]).tolist()
    if name not in LOG_ENDS or (LOG_ENDS[name] == _REFUSED_BY_JAVA and expected["open"]["load"]):
        assert log_end == max(expected["log"]["end"], 0)
        assert offsets == sorted(record["physicalOffset"] for record in expected["records"])
        return
    assert log_end != expected.get("log", {}).get("end")
    acked = sorted({place[0] for place in expected["before"]["acked"]})
    assert offsets == (acked if LOG_ENDS[name] == _REFUSED_BY_JAVA else acked[:-1])


def _assert_queues(name: str, expected: dict[str, Any], parts: StoreParts) -> None:
    ours, javas = {queue: found for queue, found in _entries(parts).items() if found}, _java_queues(expected)
    departs = name in QUEUES and (QUEUES[name] != _REFUSED_BY_JAVA or not expected["open"]["load"])
    departs |= name == "killed-lagcq" and has_shifted_queue(expected)
    if not departs:
        bounds = expected["state"]["queues"]
        assert ours == javas
        assert {queue: (found[0][0], found[-1][0] + (found[-1][4:] or (1,))[0]) for queue, found in ours.items()} == {
            queue: (bounds[queue]["min"], bounds[queue]["max"]) for queue in javas
        }
    plain = {queue: found for queue, found in ours.items() if not queue.startswith("%LMQ%")}
    if name != "cqext":  # its entries hold addresses
        assert plain == _entries_of_log(parts, StoreConfig().delay_ms())


def _assert_index(store: Path, parts: StoreParts) -> None:
    """The items of the index files are those of the log, each once and in its order.

    Where Java lost the older index files and went on, they stay lost: like those of messages before it was switched on.
    """
    assert parts.index is not None
    assert parts.index.with_tags == (("-5.4." in store.parent.name) or ("-5.5." in store.parent.name))
    wanted: list[tuple[int, int]] = []
    for batch in _records(parts):
        rows, hashes = batch.index_items(parts.index.with_tags)
        wanted += zip(batch.offsets[rows].tolist(), hashes.tolist(), strict=True)
    first = parts.log.start
    if base_name(store.parent.name) == "killed-preblank":
        again = store.parent / store.parent.name
        again.mkdir()
        first = min(offset for offset, _ in _index_items(unpack(again.name, again)))
    assert [item for item in _index_items(store) if item[0] >= first] == [item for item in wanted if item[0] >= first]


def _assert_settled(store: Path, before: dict[str, bytes] | None) -> None:
    """Verify finds nothing, and recovering again changes nothing: after a crash, and after a clean end."""
    if before is not None:
        assert _contents(store) == before | {"abort": b""}
        _recover(store)  # as after a crash now: what the checkpoint does not answer for is built again
    once = _contents(store)
    _recover(store)
    assert _contents(store) == once
    mark_closed(RealFileSystem(), str(store))
    assert _plan(store).changes_nothing
    if (store / "commitlog").exists() and any((store / "commitlog").iterdir()):
        damage = {finding.reason for extent in rmqstore.open_snapshot(store).stores for finding in verify(extent)
                  if finding.severity == DAMAGE}  # fmt: skip
        allowed = FINDINGS.get(base_name(store.parent.name))
        assert damage == ({allowed} if allowed else set())


def _assert_kept(parts: StoreParts) -> None:
    """What a recovery after a crash keeps of records says what they say."""
    keep = records_to_keep(StoreConfig(), PLAIN_ONLY, DEFAULT_TABLES)
    assert keep is not None
    for batch in _records(parts):
        kept = keep(batch)
        if kept is None:
            assert batch.numbers.are_said.any()  # an inner batch, whose queue asks for its properties
            continue
        rows = np.arange(0, len(batch), 2)
        for ours, records in ((kept, batch), (kept.take(rows), batch.take(rows))):
            assert (len(ours), ours.end) == (len(records), batch.end)
            for name in ("offsets", "sizes", "queue_ids", "queue_offsets", "store_ms", "queued"):
                assert np.array_equal(getattr(ours, name), getattr(records, name)), name
            assert _topics(ours) == _topics(records)
            assert np.array_equal(ours.tags_codes(()), records.tags_codes(DEFAULT_TABLES))
            for our_items, items in zip(ours.index_items(), records.index_items(), strict=True):
                assert np.array_equal(our_items, items)


def _topics(records: Records) -> list[str]:
    names, numbers = records.topics
    return [names[number] for number in numbers.tolist()]


@pytest.mark.parametrize("case", [case for case in STORE_CASES if base_name(case) in {*LOG_ENDS, *QUEUES}])
def test_the_tables_hold_no_case_too_many(case: str, tmp_path: Path) -> None:
    expected, name = load_expected(case), base_name(case)
    if _REFUSED_BY_JAVA in (LOG_ENDS.get(name), QUEUES.get(name)):
        return  # one of the two releases refuses
    (tmp_path / case).mkdir()
    parts = _recover(unpack(case, tmp_path / case))
    ours = {queue: found for queue, found in _entries(parts).items() if found}
    if name == "killed-preblank" or (name == "killed-nocq-noindex" and case.endswith("-4.9.8")):
        return  # Java's answers there are of the store before its queues began with blanks
    assert ours != _java_queues(expected) or ("NewTopic/3" in expected["state"]["queues"])


def test_what_is_refused_is_refused_for_a_reason() -> None:
    assert all(any(base_name(case) == name for case in FOLDERS) for name in REFUSED)


@pytest.mark.deep  # together
@pytest.mark.parametrize("store", OPENED_CASES, indirect=True)
def test_stores_of_whole_brokers(store: Path) -> None:
    """No field of any message changes, and nothing is left to find fault with."""
    before = scanned(rmqstore.open_snapshot(store))
    changes = {"on_middle_damage": "refuse", "delay_levels": _BROKERS_LEVELS}
    _recover(store, **changes)
    _recover(store, **changes)
    once = _contents(store)
    _recover(store, **changes)
    assert _contents(store) == once
    mark_closed(RealFileSystem(), str(store))
    after = rmqstore.open_snapshot(store)
    assert scanned(after) == before
    assert _plan(store).changes_nothing
    assert [finding for extent in after.stores for finding in verify(extent) if finding.severity == DAMAGE] == []


_KILLED = [case for case in ("broker-killed-5.3.3",) if case in FOLDERS]


@pytest.mark.parametrize("case", _KILLED)
def test_other_delay_levels_than_the_broker_s_are_told(case: str, tmp_path: Path) -> None:
    """Delivery times are written again with the levels of the configuration, which is not in the store."""
    store = unpack(case, tmp_path)
    waited = "messages of delay level 2 waited 2000 ms, and would now wait 5000 ms"
    told, others = _plan(store).warnings, _plan(store, delay_levels=_BROKERS_LEVELS).warnings
    assert others == ()
    assert [warning.split(":")[0] for warning in told if warning not in others] == [waited]


@pytest.mark.parametrize("case", _KILLED)
def test_no_delay_levels_at_all_are_told_as_well(case: str, tmp_path: Path) -> None:
    store = unpack(case, tmp_path)
    (told,) = (warning for warning in _plan(store, delay_levels="").warnings if "level 2" in warning)
    assert told.startswith("messages of delay level 2 waited 2000 ms, and would now wait 0 ms")
