"""Reads by queue offset, place, key and time: every status, the limits of a batch, filters; Java's answers on golden
stores."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest

from rmqstore.clock import ManualClock
from rmqstore.core.message import GetStatus
from rmqstore.engine.log.derived.index_log import IndexLog
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.engine.log.get.fetch import Fetch
from rmqstore.engine.log.get.readable import FetchLimits
from rmqstore.engine.log.get.tag_filter import parse_tags
from rmqstore.errors import Corrupt, DataLost, Rejected
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.java_hash import string_hash
from rmqstore.formats.message import BLANK, MAGIC_BLANK, encode_record
from rmqstore.formats.properties import encode_properties
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE, QUEUE_ENTRY, read_entries
from tests.formats.records import make_record
from tests.golden.cases import host, load_expected, unpack

LOG_FILE_SIZE = 1000
PER_FILE = 10  # entries of a queue file
FIRST_MS = 1_700_000_000_000
STEP_MS = 1000


@dataclass
class Files:
    """Of a fake log or queue."""

    file_size: int

    def path_of(self, offset: int) -> str:
        return f"commitlog/{offset - offset % self.file_size:020d}"


@dataclass
class FakeLog:
    """A log in memory that counts its reads."""

    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    files: Files = field(default_factory=lambda: Files(LOG_FILE_SIZE))
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def readable_end(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        self.reads.append((offset, size))
        return bytes(self.data[offset : offset + size]) if offset >= self.start else b""


@dataclass
class FakeQueue:
    """A queue in memory that counts its reads."""

    min_offset: int = 0
    entries: bytearray = field(default_factory=bytearray)
    files: Files = field(default_factory=lambda: Files(PER_FILE * QUEUE_ENTRY.size))
    reads: list[tuple[int, int]] = field(default_factory=list)
    missing: range = range(0)

    @property
    def max_offset(self) -> int:
        return len(self.entries) // QUEUE_ENTRY.size

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        self.reads.append((first, last))
        return read_entries(b"" if first in self.missing else bytes(self.entries[first * 20 : last * 20]))

    def tags_codes(self, entries: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        return entries["tags_code"].astype(np.int64)


@dataclass
class FakeStore:
    """A store of records of one size or another; also the table of its queues, and its index."""

    log: FakeLog = field(default_factory=FakeLog)
    queues: dict[tuple[str, int], FakeQueue] = field(default_factory=dict)
    keyed: dict[str, list[int]] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0

    def find(self, topic: str, queue_id: int) -> FakeQueue | None:
        return self.queues.get((topic, queue_id))

    def query(self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        self.asked.append((begin_ms, end_ms))
        times = {offset: FIRST_MS + number * STEP_MS for number, offset in enumerate(sorted(self.keyed[key]))}
        return [offset for offset in sorted(times, reverse=True) if begin_ms <= times[offset] <= end_ms][:count_max]

    def put(self, tag: str = "A", topic: str = "T", *, body: bytes = b"hello", key: str = "", **fields: Any) -> int:
        properties = encode_properties({"TAGS": tag} | ({"KEYS": key} if key else {}))
        time_ms = FIRST_MS + STEP_MS * self.count
        wanted = {"topic": topic.encode(), "body": body, "properties": properties, "store_timestamp": time_ms} | fields
        size = len(encode_record(make_record(**wanted)))
        file_size = self.log.files.file_size
        room = file_size - len(self.log.data) % file_size
        if size + BLANK.size > room:
            self.log.data += BLANK.struct.pack(room, MAGIC_BLANK).ljust(room, b"\0")
        offset = len(self.log.data)
        self.log.data += encode_record(make_record(**(wanted | {"physical_offset": offset})))
        queue = self.queues.setdefault((topic, 0), FakeQueue())
        queue.entries += QUEUE_ENTRY.struct.pack(offset, size, string_hash(tag))
        self.count += 1
        return offset

    def fetch(self, **limits: int) -> Fetch:
        return Fetch(self.log, self, self, limits=FetchLimits(**limits))

    @property
    def queue(self) -> FakeQueue:
        return self.queues["T", 0]


def store_of(count: int, tags: str = "A") -> FakeStore:
    store = FakeStore()
    for number in range(count):
        store.put(tags[number % len(tags)])
    return store


def test_statuses_outside_of_a_queue() -> None:
    store = store_of(8)
    store.queues["E", 0] = FakeQueue()
    store.queue.min_offset = 3
    fetch = store.fetch()
    for topic, offset, status, next_offset in (
        ("U", 5, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("E", 5, GetStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("T", -1, GetStatus.OFFSET_TOO_SMALL, 3),
        ("T", 2, GetStatus.OFFSET_TOO_SMALL, 3),
        ("T", 8, GetStatus.OFFSET_OVERFLOW_ONE, 8),
        ("T", 9, GetStatus.OFFSET_OVERFLOW_BADLY, 8),
    ):
        result = fetch.get(topic, 0, offset)
        assert (result.status, result.next_offset, result.messages) == (status, next_offset, []), (topic, offset)
    assert (result.min_offset, result.max_offset) == (3, 8)


def test_found_stops_at_the_end_of_the_queue_s_file() -> None:
    store = store_of(PER_FILE + 3)
    result = store.fetch().get("T", 0, 4)
    assert (result.status, result.next_offset, len(result.messages)) == (GetStatus.FOUND, PER_FILE, PER_FILE - 4)
    assert [message.topic for message in result.messages] == ["T"] * 6
    assert all(message.corrupt_reason is None for message in result.messages)
    rest = store.fetch().get("T", 0, result.next_offset)
    assert (rest.status, rest.next_offset, len(rest.messages)) == (GetStatus.FOUND, PER_FILE + 3, 3)


def test_a_missing_queue_file_sends_to_the_next() -> None:
    store = store_of(PER_FILE + 3)
    store.queue.missing = range(PER_FILE)
    result = store.fetch().get("T", 0, 4)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_FOUND_NULL, PER_FILE)


def test_the_filter_is_by_entry_and_then_by_text() -> None:
    store = store_of(6, "ABC")
    result = store.fetch().get("T", 0, 0, tags="A || C")
    assert [message.tags for message in result.messages] == ["A", "C", "A", "C"]
    assert (result.status, result.next_offset) == (GetStatus.FOUND, 6)
    nothing = store.fetch().get("T", 0, 0, tags="D")
    assert (nothing.status, nothing.next_offset, nothing.messages) == (GetStatus.NO_MATCHED_MESSAGE, 6, [])
    # Java's hash has twins: "Aa" and "BB".
    store.put("Aa")
    store.put("BB")
    twin = store.fetch().get("T", 0, 6, tags="BB")
    assert ([message.tags for message in twin.messages], twin.next_offset) == (["BB"], 8)
    only_twin = store.fetch().get("T", 0, 6, 1, tags="Aa")
    assert ([message.tags for message in only_twin.messages], only_twin.next_offset) == (["Aa"], 7)


def test_filtered_entries_are_not_read() -> None:
    store = store_of(9, "AB")
    store.fetch().get("T", 0, 0, tags="C")
    assert store.log.reads == []


def test_a_filter_looks_at_so_many_entries() -> None:
    store = store_of(9)
    result = store.fetch(filter_bytes=100).get("T", 0, 1, 2, tags="D")
    assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 6)
    result = store.fetch(filter_bytes=100).get("T", 0, 1, 7, tags="D")
    assert result.next_offset == 8


def test_entries_with_other_than_hashes_are_judged_by_their_records() -> None:
    """Delivery times and extension addresses."""
    store = store_of(2, "AB")
    for number, code in enumerate((FIRST_MS, -(2**63))):
        at = number * QUEUE_ENTRY.size + QUEUE_ENTRY.offset["tags_code"]
        store.queue.entries[at : at + 8] = code.to_bytes(8, "big", signed=True)
    assert [message.tags for message in store.fetch().get("T", 0, 0, tags="A").messages] == ["A"]


@pytest.mark.parametrize(
    ("expression", "tags"), [("*", None), ("", None), ("a", {"a"}), (" a|| b ||", {"a", "b"}), ("a || *", {"a", "*"})]
)
def test_tag_expressions(expression: str, tags: set[str] | None) -> None:
    parsed = parse_tags(expression)
    assert (parsed.tags if parsed else None) == tags


def test_wrong_questions_are_refused() -> None:
    fetch = store_of(1).fetch()
    with pytest.raises(Rejected, match="tags="):
        fetch.get("T", 0, 0, tags="||")
    with pytest.raises(Rejected, match="max_count=0"):
        fetch.get("T", 0, 0, 0)
    with pytest.raises(Rejected, match="boundary='nearest'"):
        fetch.offset_at("T", 0, 0, "nearest")


def test_a_batch_is_full_by_count_or_bytes() -> None:
    store = store_of(9)
    size = store.fetch().get("T", 0, 0).messages[0].store_size
    for limits, how, count in (
        ({}, {"max_count": 3}, 3),
        ({}, {"max_bytes": 2 * size}, 2),
        ({}, {"max_bytes": 2 * size - 1}, 1),
        ({}, {"max_bytes": 0}, 1),  # one in any case
        ({"bytes_in_memory": 4 * size}, {}, 4),
        ({"count_in_memory": 5}, {}, 5),
        ({"memory_bytes": 0, "bytes_on_disk": 4 * size}, {}, 4),
        ({"memory_bytes": 0}, {}, 8),
        ({"bytes_in_memory": 1}, {}, 1),
    ):
        result = store.fetch(**limits).get("T", 0, 0, **{"max_count": 32} | how)
        assert (len(result.messages), result.next_offset, result.status) == (count, count, GetStatus.FOUND), limits


def test_many_consecutive_messages_are_one_read_of_either() -> None:
    store = FakeStore(FakeLog(files=Files(100_000)))
    for _ in range(40):
        store.put(body=bytes(1024))
    store.queue.files = Files(100 * QUEUE_ENTRY.size)
    result = store.fetch().get("T", 0, 5)
    assert len(result.messages) == 32
    assert store.queue.reads == [(5, 37)]
    assert store.log.reads == [(result.messages[0].physical_offset, sum(m.store_size for m in result.messages))]


def test_records_far_apart_are_read_apart() -> None:
    store = FakeStore(FakeLog(files=Files(1_000_000)))
    for topic in "TUTUUT":
        store.put(topic=topic, body=bytes(3000))
    messages = store.fetch().get("T", 0, 0).messages
    # The first two have one record between them, the last two have two.
    assert [offset for offset, _ in store.log.reads] == [messages[0].physical_offset, messages[2].physical_offset]
    assert [message.corrupt_reason for message in messages] == [None] * 3


def test_removed_records_are_skipped_up_to_the_next_file() -> None:
    store = store_of(14)
    store.queue.files = Files(100 * QUEUE_ENTRY.size)
    per_log_file = sum(m.physical_offset < LOG_FILE_SIZE for m in store.fetch().get("T", 0, 0).messages)
    assert 4 < per_log_file < 14
    store.log.start = LOG_FILE_SIZE
    store.log.reads.clear()
    result = store.fetch().get("T", 0, 0, 4)
    assert result.status is GetStatus.FOUND
    assert result.messages[0].physical_offset >= LOG_FILE_SIZE
    assert result.next_offset == per_log_file + len(result.messages)
    store.log.start = len(store.log.data)
    gone = store.fetch().get("T", 0, 0, 4)
    assert (gone.status, gone.next_offset, gone.messages) == (GetStatus.MESSAGE_WAS_REMOVING, 14, [])


def test_a_file_that_goes_away_under_a_read_is_a_removed_one() -> None:
    store = store_of(4)
    store.log.read = lambda offset, size: b""  # type: ignore[method-assign]
    assert store.fetch().get("T", 0, 0).status is GetStatus.MESSAGE_WAS_REMOVING


def test_entries_with_sizes_that_cannot_be_are_not_followed() -> None:
    """REL H2: pre-blank entries, and sizes and offsets beyond everything."""
    for offset, size in ((0, PRE_BLANK_SIZE), (2**62, 100), (-5, 100), (0, 0), (0, -1), (100, 950)):
        store = store_of(2)
        store.queue.entries[:12] = QUEUE_ENTRY.struct.pack(offset, size, 0)[:12]
        result = store.fetch().get("T", 0, 0)
        assert result.next_offset == 2
        assert all(asked <= 1000 for _, asked in store.log.reads)


def test_a_damaged_record_comes_with_its_reason_and_the_cursor_moves() -> None:
    store = store_of(3)
    first = store.fetch().get("T", 0, 0).messages
    store.log.data[first[1].physical_offset + 4] ^= 0xFF
    for tags in ("*", "A"):
        result = store.fetch().get("T", 0, 0, tags=tags)
        assert (result.status, result.next_offset) == (GetStatus.FOUND, 3)
        assert [message.corrupt_reason is None for message in result.messages] == [True, False, True]


def test_message_at() -> None:
    store = store_of(12)
    fetch = store.fetch()
    for message in fetch.get("T", 0, 0).messages:
        assert fetch.message_at(message.physical_offset) == message
    for offset in (-1, len(store.log.data), 2**62):
        with pytest.raises(DataLost):
            fetch.message_at(offset)
    with pytest.raises(Corrupt, match="00000000000000000000 @ 1: "):
        fetch.message_at(1)
    blank = next(
        o for o in range(LOG_FILE_SIZE) if store.log.data[o + 4 : o + 8] == BLANK.struct.pack(0, MAGIC_BLANK)[4:]
    )
    with pytest.raises(Corrupt, match="blank"):
        fetch.message_at(blank)


def test_a_body_that_is_not_what_its_flag_says_is_shown_by_every_read() -> None:
    """What its sender flagged as compressed and is not: the record is sound, as Java's reads take it to be."""
    store = FakeStore()
    places = [store.put(key="k", body=b"plain", sys_flag=flags) for flags in (0x1, 0x201, 0x701)]
    store.keyed["k"] = places
    fetch = store.fetch()
    for found in (fetch.get("T", 0, 0).messages, fetch.query("T", "k"), [fetch.message_at(at) for at in places]):
        assert [message.physical_offset for message in found] == places
        assert all(message.body is None and message.stored_body == b"plain" for message in found)
        assert all(message.corrupt_reason for message in found)


def test_a_body_with_a_wrong_crc_is_found_neither_by_key_nor_by_place() -> None:
    store = FakeStore()
    places = [store.put(key="k", body_crc=crc) for crc in (1, crc32(b"hello"))]
    store.keyed["k"] = places
    assert [message.physical_offset for message in store.fetch().query("T", "k")] == places[1:]
    with pytest.raises(Corrupt, match="CRC"):
        store.fetch().message_at(places[0])


def test_key_queries_verify_the_key_and_answer_in_the_log_s_order() -> None:
    store = FakeStore()
    places = [store.put(key=key) for key in ("k", "other", "k x", "kk", "k")]
    store.keyed["k"] = places  # as if all had the hash
    found = store.fetch().query("T", "k")
    assert [message.physical_offset for message in found] == [places[0], places[2], places[4]]
    assert store.fetch().query("U", "k") == []
    store.keyed["none"] = []
    assert store.fetch().query("T", "none") == []
    assert Fetch(store.log, store, None).query("T", "k") == []


def test_items_of_other_keys_with_the_same_hash_take_no_place() -> None:
    store = FakeStore()
    places = [store.put(key="k" if number < 2 else "twin") for number in range(12)]
    store.keyed["k"] = places
    assert [m.physical_offset for m in store.fetch().query("T", "k", 5)] == places[:2]
    assert [m.physical_offset for m in store.fetch().query("T", "k", 1)] == places[1:2]
    assert store.fetch().query("T", "k", 5, begin_ms=FIRST_MS + 8 * STEP_MS) == []
    assert store.fetch().query("T", "k", 0) == []


def test_unreadable_index_items_are_skipped() -> None:
    store = FakeStore()
    place = store.put(key="k")
    store.keyed["k"] = [place, 5, 10**9]
    assert [message.physical_offset for message in store.fetch().query("T", "k")] == [place]


def test_offset_at() -> None:
    store = store_of(9)
    fetch = store.fetch()
    at = [FIRST_MS + STEP_MS * number for number in range(9)]
    for time_ms, lower, upper in (
        (0, 0, 0), (at[0], 0, 0), (at[4], 4, 4), (at[4] + 1, 5, 4), (at[4] - 1, 4, 3), (at[8], 8, 8), (at[8] + 1, 9, 8),
    ):  # fmt: skip
        assert fetch.offset_at("T", 0, time_ms) == lower, time_ms
        assert fetch.offset_at("T", 0, time_ms, "upper") == upper, time_ms
    assert fetch.offset_at("U", 0, at[4]) == 0


NOON_MS = 1_790_000_000_000


def test_offset_at_equal_times_and_removed_records() -> None:
    store = FakeStore()
    for s in (10, 20, 20, 20, 30, 30, 40, 50, 60, 70, 80):
        store.put(store_timestamp=NOON_MS + s)
    fetch = store.fetch()
    assert (fetch.offset_at("T", 0, NOON_MS + 20), fetch.offset_at("T", 0, NOON_MS + 20, "upper")) == (1, 3)
    store.log.start = LOG_FILE_SIZE
    store.queue.min_offset = 2
    first = next(
        n for n, (o, _, _) in enumerate(read_entries(bytes(store.queue.entries)).tolist()) if o >= LOG_FILE_SIZE
    )
    assert fetch.offset_at("T", 0, 0) == first
    assert fetch.offset_at("T", 0, 0, "upper") >= 2
    store.queue.min_offset = store.queue.max_offset
    assert fetch.offset_at("T", 0, 0) == fetch.offset_at("T", 0, 0, "upper") == 11


# Java's own answers.  Stores that were closed cleanly, so that opening changes nothing.
GOLDEN = [
    "basic", "basic-4.9.8", "batch", "crcprop", "deleted_head", "deleted_head-4.9.8", "delay", "ipv6", "longtopic",
    "multipath", "sysflags",
]  # fmt: skip


@dataclass
class GoldenLog:
    """The log of a golden store, as far as Java found it."""

    files: FileSequence
    readable_end: int

    @property
    def start(self) -> int:
        return self.files.start

    def read(self, offset: int, size: int) -> bytes:
        return self.files.read(offset, min(size, self.readable_end - offset))


def open_golden(case: str, path: Path) -> tuple[Fetch, GoldenLog]:
    expected = load_expected(case)
    config, fs, handles = expected["config"], RealFileSystem(), FileHandles(RealFileSystem(), 64)
    directories = [str(directory) for directory in path.iterdir() if directory.name in ("commitlog", "log-a", "log-b")]
    files = FileSequence(fs, handles, directories, config["mappedFileSizeCommitLog"])
    files.load()
    queues = QueueTable(fs, handles, str(path), config["mappedFileSizeConsumeQueue"])
    queues.load()
    queues.correct_min(files.start)
    index = IndexLog(fs, str(path), config["maxHashSlotNum"], config["maxIndexNum"], ManualClock())
    index.load()
    log = GoldenLog(files, expected["state"]["maxPhyOffset"])
    return Fetch(log, queues, index), log


@pytest.mark.parametrize("case", GOLDEN)
def test_java_s_answers(case: str, tmp_path: Path) -> None:
    expected = load_expected(case)
    fetch, log = open_golden(case, unpack(case, tmp_path))
    records = {record["physicalOffset"]: record for record in expected["records"]}
    compared = 0
    for name, queue in expected["queues"].items():
        topic, queue_id = name.rsplit("/", 1)
        for read, most in ((read, most) for kind, most in (("reads", 32), ("edges", 1)) for read in queue[kind]):
            result = fetch.get(topic, int(queue_id), read["offset"], most)
            assert (result.status.value, result.next_offset, result.min_offset, result.max_offset) == (
                read["status"], read["next"], read["min"], read["max"],
            ), (name, read["offset"])  # fmt: skip
            assert [message.physical_offset for message in result.messages] == read["physicalOffsets"]
            for message in result.messages:
                _assert_is(message, records[message.physical_offset])
                compared += 1
    assert compared > 50
    for question in expected["keyQueries"]:
        times = {"begin_ms": question["begin"], "end_ms": question["end"]}
        found = fetch.query(question["topic"], question["key"], question["max"], **times)
        assert [message.physical_offset for message in found] == question["physicalOffsets"], question
    for question in expected["timeQueries"]:
        for boundary in ("lower", "upper"):
            if isinstance(question.get(boundary), int):
                answer = fetch.offset_at(question["topic"], question["queueId"], question["timestamp"], boundary)
                assert answer == question[boundary], (question, boundary)
    for offset in list(records)[::7]:
        _assert_is(fetch.message_at(offset), records[offset])
    assert log.readable_end > 0


def _assert_is(message: Any, record: dict[str, Any]) -> None:
    names = {"topic": "topic", "queueId": "queue_id", "queueOffset": "queue_offset", "storeSize": "store_size",
             "flag": "flag", "bodyCrc": "body_crc", "bornTimestamp": "born_timestamp_ms",
             "storeTimestamp": "store_timestamp_ms", "reconsumeTimes": "reconsume_times", "msgId": "offset_msg_id",
             "preparedTransactionOffset": "prepared_transaction_offset", "tags": "tags", "keys": "keys",
             "properties": "properties"}  # fmt: skip
    for theirs, ours in names.items():
        assert getattr(message, ours) == record[theirs], (theirs, record["physicalOffset"])
    assert message.record.sys_flag == record["sysFlag"]
    assert (message.born_host, message.store_host) == (host(record["bornHost"]), host(record["storeHost"]))
    assert message.corrupt_reason is None
