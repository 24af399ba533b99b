"""Large stores for the benches, written straight with numpy: one template record, patched at fixed places, many at
a time.

The records are those of a broker: unique key, keys, tags, cluster, region, trace; body CRCs, consume queues and
checkpoint are right,
so that RocketMQ itself opens such a store and reads it (the oracle's `benchGet` asks for BenchTopic, 4 queues).
"""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

MIB = 1024 * 1024
FIRST_TIME_MS = 1_700_000_000_000
TAGS_CODE = 2598919  # of "TagA": Java's String.hashCode
MAGIC, MAGIC_BLANK = -626843481, -875286124
QUEUE_ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
CHUNK_BYTES = 64 * MIB
BODY_KINDS = 4096
KEY_DIGITS, UNIQUE_DIGITS, TOPIC_DIGITS = 10, 12, 4
# Where fields stand in a record with IPv4 hosts.
CRC_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT, OFFSET_AT, BORN_AT, STORED_AT, BODY_AT = 8, 12, 20, 28, 40, 56, 88

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreShape:
    """`count` messages of `body_size` bytes, dealt round robin to `topic_count` topics of `queue_count` queues.

    One topic is called BenchTopic, several Bench0000, Bench0001, …  `per_file_max` > 0: a log file holds no more
    records than that, and one blank to its end, so that a large log takes little of the disk.
    """

    count: int
    body_size: int
    topic_count: int = 1
    queue_count: int = 4
    log_file_size: int = 256 * MIB
    queue_file_size: int = 6_000_000
    per_file_max: int = 0

    @classmethod
    def of_size(cls, store_bytes: int, body_size: int) -> "StoreShape":
        """BenchTopic of 4 queues with a commitlog of at least `store_bytes` bytes of records."""
        record_size = len(_template("BenchTopic", body_size))
        return cls(count=-(-store_bytes // record_size), body_size=body_size)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics, of equal length."""
        if self.topic_count == 1:
            return ("BenchTopic",)
        return tuple(f"Bench{number:0{TOPIC_DIGITS}}" for number in range(self.topic_count))

    @property
    def record_size(self) -> int:
        """Bytes of each record."""
        return len(_template(self.topics[0], self.body_size))

    @property
    def per_file(self) -> int:
        """Records that fit into one log file beside the blank that ends it."""
        fitting = (self.log_file_size - 8) // self.record_size
        return min(fitting, self.per_file_max or fitting)

    def offsets(self, first: int, count: int) -> Ints:
        """Physical offsets of the messages from number `first` on."""
        number = np.arange(first, first + count, dtype=np.int64)
        return number // self.per_file * self.log_file_size + number % self.per_file * self.record_size


def write_store(root: Path, shape: StoreShape) -> Path:
    """Writes a store of this shape, as a broker leaves it after a clean stop; returns `root`."""
    (root / "commitlog").mkdir(parents=True)
    _write_log(root / "commitlog", shape)
    for topic_number, topic in enumerate(shape.topics):
        for queue_id in range(shape.queue_count):
            _write_queue(
                root / "consumequeue" / topic / str(queue_id), shape, topic_number * shape.queue_count + queue_id
            )
    newest_ms = FIRST_TIME_MS + shape.count // 1000
    (root / "checkpoint").write_bytes(struct.pack(">5q", newest_ms, newest_ms, 0, 0, shape.count).ljust(4096, b"\0"))
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": _topic_configs(shape)}, indent=1))
    (root / "abort.bak").touch()  # what a 5.x store has beside a removed abort file
    return root


def _topic_configs(shape: StoreShape) -> dict[str, dict[str, object]]:
    numbers = {"readQueueNums": shape.queue_count, "writeQueueNums": shape.queue_count, "perm": 6}
    return {
        name: {"topicName": name, "topicFilterType": "SINGLE_TAG", "attributes": {}} | numbers for name in shape.topics
    }


def _template(topic: str, body_size: int) -> bytes:
    unique, key = "7F0000010001" + "0" * (UNIQUE_DIGITS + 8), "order-" + "0" * KEY_DIGITS
    properties = (
        f"MSG_REGION\1DefaultRegion\2UNIQ_KEY\1{unique}\2CLUSTER\1DefaultCluster\2TAGS\1TagA\2KEYS\1{key}\2WAIT\1true\2TRACE_ON\1true\2"
    ).encode()
    host = struct.pack(">4Bi", 127, 0, 0, 1, 10911)
    tail = struct.pack(">b", len(topic)) + topic.encode() + struct.pack(">h", len(properties)) + properties
    size = BODY_AT + body_size + len(tail)
    head = struct.pack(">iiiiiqqiq", size, MAGIC, 0, 0, 0, 0, 0, 0, 0) + host + struct.pack(">q", 0) + host
    return head + struct.pack(">iqi", 0, 0, body_size) + bytes(body_size) + tail


def _write_log(directory: Path, shape: StoreShape) -> None:
    template = _template(shape.topics[0], shape.body_size)
    bodies = np.random.default_rng(1).integers(0, 256, (BODY_KINDS, shape.body_size), np.uint8)
    crcs = np.array([zlib.crc32(body) & 0x7FFFFFFF for body in bodies], ">i4")
    chunk = max(1, CHUNK_BYTES // len(template))
    for file_start, first in enumerate(range(0, shape.count, shape.per_file)):
        in_file = min(shape.per_file, shape.count - first)
        with (directory / f"{file_start * shape.log_file_size:020}").open("wb") as file:
            for begin in range(first, first + in_file, chunk):
                numbers = np.arange(begin, min(begin + chunk, first + in_file), dtype=np.int64)
                file.write(_records(template, shape, numbers, bodies, crcs).data)
            room = shape.log_file_size - in_file * len(template)
            if in_file == shape.per_file:
                file.write(struct.pack(">ii", room, MAGIC_BLANK))
            file.truncate(shape.log_file_size)


def _records(template: bytes, shape: StoreShape, numbers: Ints, bodies: Bytes, crcs: npt.NDArray[np.int32]) -> Bytes:
    records = np.tile(np.frombuffer(template, np.uint8), (len(numbers), 1))
    kinds = numbers * 2654435761 % BODY_KINDS
    queues = numbers % (shape.topic_count * shape.queue_count)
    times = FIRST_TIME_MS + numbers // 1000
    _patch(records, CRC_AT, crcs[kinds])
    _patch(records, QUEUE_ID_AT, (queues % shape.queue_count).astype(">i4"))
    _patch(records, QUEUE_OFFSET_AT, (numbers // (shape.topic_count * shape.queue_count)).astype(">i8"))
    _patch(records, OFFSET_AT, shape.offsets(int(numbers[0]), len(numbers)).astype(">i8"))
    _patch(records, BORN_AT, (times - 3).astype(">i8"))
    _patch(records, STORED_AT, times.astype(">i8"))
    records[:, BODY_AT : BODY_AT + shape.body_size] = bodies[kinds]
    for marker, digits, value in _digit_places(template, shape, queues):
        place = template.index(marker, BODY_AT + shape.body_size) + len(marker)
        records[:, place : place + digits] = _decimal(numbers if value is None else value, digits)
    return records


def _digit_places(template: bytes, shape: StoreShape, queues: Ints) -> Iterator[tuple[bytes, int, Ints | None]]:
    """Marker before the digits, how many, and their values (None: the number of the message)."""
    yield b"UNIQ_KEY\x017F0000010001", UNIQUE_DIGITS, None
    yield b"KEYS\1order-", KEY_DIGITS, None
    if shape.topic_count > 1:
        yield b"Bench", TOPIC_DIGITS, queues // shape.queue_count


def _patch(records: Bytes, place: int, values: npt.NDArray[np.generic]) -> None:
    records[:, place : place + values.itemsize] = values.view(np.uint8).reshape(len(records), -1)


def _decimal(numbers: Ints, digits: int) -> Bytes:
    """The last `digits` decimal digits of each number, as ASCII."""
    powers = 10 ** np.arange(digits - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def _write_queue(directory: Path, shape: StoreShape, place: int) -> None:
    directory.mkdir(parents=True)
    per_file = shape.queue_file_size // QUEUE_ENTRY.itemsize
    step = shape.topic_count * shape.queue_count
    numbers = np.arange(place, shape.count, step, dtype=np.int64)
    entries = np.empty(len(numbers), QUEUE_ENTRY)
    entries["offset"] = numbers // shape.per_file * shape.log_file_size + numbers % shape.per_file * shape.record_size
    entries["size"], entries["tags_code"] = shape.record_size, TAGS_CODE
    for first in range(0, len(entries), per_file):
        with (directory / f"{first * QUEUE_ENTRY.itemsize:020}").open("wb") as file:
            file.write(entries[first : first + per_file].tobytes())
            file.truncate(shape.queue_file_size)
