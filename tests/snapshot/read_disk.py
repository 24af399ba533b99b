"""Everything that can be asked of a store by its readers, and a disk that they can do no more than read."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rmqstore.files.disk import DirectoryEntry, PlainDisk, ReadableDisk, ReadableFile, join
from rmqstore.snapshot import ScanRequest, Snapshot, SplitBudget, open_selected, open_snapshot, read_split
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.request import TableName
from rmqstore.snapshot.store_paths import require_stores
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.snapshot.tables.tables import SCHEMAS
from rmqstore.snapshot.verify import verify
from tests.crash.disks import MemoryDisk
from tests.log.recovering import ROOT, settled
from tests.snapshot.small_store import FIRST_MS, SmallStore

GROUPS = b'{"offsetTable": {"T0@billing": {0: 3}}}'
TOPICS = b'{"topicConfigTable": {"T0": {"topicName": "T0", "readQueueNums": 4, "writeQueueNums": 4}}}'
SCHEDULE, HALF = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"
COLUMNS = ("topic", "queueId", "queueOffset", "physicalOffset", "body", "keys", "tagsCode", "msgId", "storeTimestamp")


class ReadDisk(PlainDisk):
    """What a reader may ask of another disk, and nothing else.  Asked for the `at`-th time, and with `forever` from
    then on, it fails with EIO; `count` is how often it was asked.
    """

    def __init__(self, inner: ReadableDisk, at: int = 0, *, forever: bool = False) -> None:
        self.count, self.open_count = 0, 0
        self._inner, self._at, self._forever = inner, at, forever

    def ask(self, path: str) -> ReadableDisk:
        """Counts a question about `path`, and fails it."""
        self.count += 1
        if self.count == self._at or (self._forever and 0 < self._at < self.count):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return self._inner

    def entries(self, directory: str) -> Sequence[DirectoryEntry]:
        return self.ask(directory).entries(directory)

    def names(self, directory: str) -> Sequence[str]:
        return self.ask(directory).names(directory)

    def open(self, path: str) -> ReadableFile:
        return _ReadFile(self, self.ask(path).open(path))

    def exists(self, path: str) -> bool:
        return self.ask(path).exists(path)

    def is_directory(self, path: str) -> bool:
        return self.ask(path).is_directory(path)

    def version_of(self, path: str) -> tuple[int, ...]:
        return self.ask(path).version_of(path)

    def is_locked(self, path: str) -> bool:
        return self.ask(path).is_locked(path)

    def real_path(self, path: str) -> str:
        return self.ask(path).real_path(path)


class _ReadFile:
    """A file of a `ReadDisk`."""

    def __init__(self, disk: ReadDisk, inner: ReadableFile) -> None:
        self.path, self._disk, self._inner = inner.path, disk, inner
        self._is_open = True
        disk.open_count += 1

    def size(self) -> int:
        self._disk.ask(self.path)
        return self._inner.size()

    def read(self, position: int, size: int) -> bytes:
        self._disk.ask(self.path)
        return self._inner.read(position, size)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._disk.ask(self.path)
        return self._inner.read_ranges(ranges)

    def next_data(self, position: int) -> int:
        self._disk.ask(self.path)
        return self._inner.next_data(position)

    def map_bytes(self, _: int) -> None:
        raise AssertionError("a disk that maps nothing is not asked for a mapping")

    def prefault(self, _: int, __: int) -> None:
        raise AssertionError

    def drop(self, _: int, __: int) -> None:
        raise AssertionError

    def close(self) -> None:
        self._disk.open_count -= self._is_open
        self._is_open = False
        self._inner.close()


def small_disk(*, is_killed: bool) -> MemoryDisk:
    """A store of a few topics with queues, index, checkpoint and configuration; `is_killed`: of the newest messages no
    queue knows yet, and the last one is torn.
    """
    store = SmallStore(file_size=4096)

    def add(topic: str, number: int, dispatched: bool = True, **properties: str) -> None:
        keys = {} if number % 4 else {"KEYS": f"k{number} all", "UNIQ_KEY": f"U{number}"}
        named = {"TAGS": "AB"[number % 2]} | keys | properties
        store.add(topic, number % 2, body=b"%d" % number, properties=named, dispatched=dispatched)

    for number in range(36):
        add(f"T{number % 3}", number)
    add(SCHEDULE, 36, DELAY="3", REAL_TOPIC="T0", REAL_QID="1")
    add(HALF, 38, REAL_TOPIC="T0", REAL_QID="0", PGROUP="g")
    disk = settled(store)
    if is_killed:
        for number in range(40, 46):
            add(f"T{number % 3}", number, dispatched=False)
        store.change(store.offsets[-1] + 90, b"\xff\xff\xff")
        for start, data in store.data.items():
            disk.put_file(join(ROOT, "commitlog", f"{start:020d}"), bytes(data))
        disk.put_file(join(ROOT, "abort"), b"1234")
    disk.put_file(join(ROOT, "config", "topics.json"), TOPICS)
    disk.put_file(join(ROOT, "config", "consumerOffset.json"), GROUPS)
    disk.put_file(join(ROOT, "config", "deletedTopics.json"), b"{}")
    return disk


def copied(host: Path) -> MemoryDisk:
    """The files of a store of the host's."""
    memory = MemoryDisk()
    for path in host.rglob("*"):
        if path.is_file():
            memory.put_file(join(ROOT, str(path.relative_to(host))), path.read_bytes())
    return memory


def scanned(snapshot: Snapshot, **how: Any) -> object:
    """The rows of a scan, those of each queue in their order."""
    how = {"columns": COLUMNS, "include_system_topics": True} | how
    return by_queue(snapshot.scan(**how).read_all().to_pylist())


def by_queue(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows queue by queue: how those of several are mixed is up to the plan."""
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"]))


def rows_of_splits(snapshot: Snapshot, mode: Any) -> object:
    request = ScanRequest(columns=COLUMNS, scan_mode=mode)
    splits = snapshot.plan(snapshot.select(pattern="T.*"), request, SplitBudget(max_bytes=1500, merge=mode != "queue"))
    return by_queue([row for split in splits for batch in read_split(split, request) for row in batch.to_pylist()])


def table_of(snapshot: Snapshot, name: TableName) -> list[dict[str, Any]]:
    """A table's rows; without what only a disk with holes knows: the bytes that a file takes there."""
    rows: list[dict[str, Any]] = snapshot.table(name, SCHEMAS[name].names, now_ms=FIRST_MS).to_pylist()
    for row in rows if name == "files" else ():
        del row["allocated"]
        if row["kind"] in ("timerwheel", "timerlog"):
            del row["used"]
    return rows


QUESTIONS: dict[str, Callable[[Snapshot], object]] = {
    "queues": lambda snapshot: snapshot.queues().to_pylist(),
    "topics": lambda snapshot: (snapshot.topics().to_pylist(), snapshot.consumer_offsets().to_pylist()),
    "by queue": lambda snapshot: scanned(snapshot, scan_mode="queue", verify_crc="always"),
    "along the log": lambda snapshot: scanned(snapshot, scan_mode="commitlog"),
    "entries alone": lambda snapshot: scanned(snapshot, columns=["topic", "queueId", "queueOffset", "physicalOffset"]),
    "with damage": lambda snapshot: scanned(snapshot, on_corrupt_record="null", columns=[*COLUMNS, "corruptReason"]),
    "splits by queue": lambda snapshot: rows_of_splits(snapshot, "queue"),
    "splits of the log": lambda snapshot: rows_of_splits(snapshot, "auto"),
    "tags and keys": lambda snapshot: scanned(snapshot, tags="A", keys="k4"),
    "by key": lambda snapshot: [message.body for message in snapshot.query("T1", "all")],
    "index": lambda snapshot: snapshot.index_offsets("T1", "U4"),
    "by time": lambda snapshot: [
        snapshot.offset_at("T0", 0, FIRST_MS + 9000, way) for way in ("lower", "upper", "nearest")
    ],
    "by place": lambda snapshot: snapshot.message_at(snapshot.stores[0].log_start).body,
    "from a time": lambda snapshot: scanned(snapshot, start_time=FIRST_MS + 7000, end_time=FIRST_MS + 21000),
    "group": lambda snapshot: scanned(snapshot, topics=["T0"], start="group:billing"),
} | {f"table {name}": lambda snapshot, name=name: table_of(snapshot, name) for name in SCHEMAS}


def found_by_verify(disk: ReadableDisk, root: str) -> list[object]:
    return [
        (os.path.relpath(found.path, root), found.position, found.reason, found.severity)
        for store in look_at(root, disk=disk).stores
        for found in verify(store)
    ]


def ends(disk: ReadableDisk, root: str) -> object:
    """The ends of all queues by a first look, and by one that builds on it."""
    watched = StreamEnds(root, disk=disk)
    return [watched.look().queues().to_pylist() for _ in range(2)]


DOORS: dict[str, Callable[[ReadableDisk, str], object]] = {
    "verify": found_by_verify,
    "stream": ends,
    "require": lambda disk, root: require_stores(root, disk),
    "selected": lambda disk, root: scanned(open_selected(root, {"topics": ["T1"]}, disk=disk), topics=["T1"]),
} | {
    name: lambda disk, root, ask=ask: ask(open_snapshot(root, disk=disk)) for name, ask in QUESTIONS.items()
}  # fmt: skip
