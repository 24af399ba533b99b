"""The files of a sink that adds whole batches exactly once, below `sink/` in a store: names, JSON, staged blocks.

They are this engine's own; RocketMQ passes the directory over.  Per writer (a query, a job) there are

    sink/<writer>/committed.json             the last batch that is in the log, for good
    sink/<writer>/intent.json                the batch that is being appended, if any
    sink/<writer>/batch-<n>/part-<p>-<a>     records that a task made ready: partition p, attempt a
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rmqstore.core.arguments import I64_MAX
from rmqstore.formats.layout import Layout
from rmqstore.formats.message_columns import Bytes, Ints
from rmqstore.formats.record_crc import crc32

SINK_DIRECTORY = "sink"
COMMITTED_FILE = "committed.json"
INTENT_FILE = "intent.json"
# An intent names every part: 100 bytes each, and Spark does not plan a million tasks.
JSON_SIZE_MAX = 128 * 1024 * 1024

_VERSION = 1
_WRITER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_BATCH = re.compile(r"batch-([0-9]{1,19})", re.ASCII)
# A block is made of at most 1 GiB of records, each of at least 91 bytes.
BLOCK_DATA_MAX = 2**30
_QUEUES_SIZE_MAX = 256 * 1024 * 1024

_MAGIC = 0x524D5142
_HAS_KINDS, _HAS_CRC, _HAS_ITEMS = 1, 2, 4
NOT_COUNTED, TIME_AT_V6 = 1, 2
"""Bits of a row's kind: it takes no number in its queue; its store time stands where an IPv6 birth host moves it."""

BLOCK = Layout(
    ("magic", "i4"), ("flags", "i4"), ("row_count", "i4"), ("queues_size", "i4"), ("item_count", "i4"),
    ("data_size", "i4"), ("front_crc", "i8"), ("data_crc", "i8"),
)  # fmt: skip
"""The head of a block: after it the queues as JSON, then as columns a row's size, its queue's number and (by flags)
its kind, its tags code and how many index items it has; the items' key hashes; then the records.  `front_crc`
covers what stands between the head and the records, `data_crc` the records."""
assert BLOCK.size == 40
# Bytes of a row's numbers, of its kind, of its tags code and its count of items; of an item.
_NUMBERS_SIZE, _KIND_SIZE, _ITEMS_SIZE, _HASH_SIZE = 8, 1, 8, 4


class BlockItems(NamedTuple):
    """The part of n rows that dispatch needs: `codes` int64[n] of their tags, `rows` and `hashes` int64[m] of their
    index items, rows ascending."""

    codes: Ints
    rows: Ints
    hashes: Ints


def is_writer_id(text: str) -> bool:
    """Whether this can be the name of a writer: it names a directory."""
    return _WRITER.fullmatch(text) is not None


def batch_name(batch_id: int) -> str:
    """The directory of one batch's staged parts."""
    return f"batch-{batch_id}"


def parse_batch_name(name: str) -> int | None:
    """The batch whose directory has this name; None for any other name."""
    match = _BATCH.fullmatch(name)
    return int(match[1]) if match else None


def part_name(partition: int, attempt: int) -> str:
    """The name of the file that one attempt at a partition stages."""
    return f"part-{partition:05d}-{attempt}"


@dataclass(frozen=True, slots=True)
class StagedPart:
    """One finished staged file: whose it is, its rows, bytes of the file and of the records in it, and their CRC-32.

    Raises ValueError for impossible values: it is also read from files and messages.
    """

    partition: int
    attempt: int
    row_count: int
    file_size: int
    record_size: int
    checksum: int

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is not int or not 0 <= value <= I64_MAX:
                raise ValueError(f"{each.name} of a staged part is {value!r}")

    @property
    def name(self) -> str:
        """The file's name."""
        return part_name(self.partition, self.attempt)


@dataclass(frozen=True, slots=True)
class BatchIntent:
    """A batch that is about to be appended at the end of the log, `start`: its parts in their order.

    `has_crc`: its records end in the CRC property.  `is_lasting`: the writer may come again at any time, so a record of
    its last batch is kept.
    """

    writer_id: str
    batch_id: int
    start: int
    has_crc: bool
    is_lasting: bool
    parts: tuple[StagedPart, ...]

    @property
    def row_count(self) -> int:
        """How many messages the batch has."""
        return sum(part.row_count for part in self.parts)

    @property
    def record_size(self) -> int:
        """Bytes of its records, blanks between them not counted."""
        return sum(part.record_size for part in self.parts)

    def to_json(self) -> bytes:
        """The content of its file."""
        names = [each.name for each in fields(StagedPart)]
        parts = [[getattr(part, name) for name in names] for part in self.parts]
        return _dump({"writer": self.writer_id, "batch": self.batch_id, "start": self.start, "hasCrc": self.has_crc,
                      "isLasting": self.is_lasting, "parts": parts})  # fmt: skip

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """The intent in a file's content.  Raises ValueError."""
        found = _load(
            data, {"writer": str, "batch": int, "start": int, "hasCrc": bool, "isLasting": bool, "parts": list}
        )
        width = len(fields(StagedPart))
        if not all(isinstance(part, list) and len(part) == width for part in found["parts"]):
            raise ValueError(f"a part is not a list of {width} numbers")
        parts = tuple(StagedPart(*part) for part in found["parts"])
        return cls(found["writer"], found["batch"], found["start"], found["hasCrc"], found["isLasting"], parts)


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """The last batch of a writer that is in the log; every earlier one is as well, or never will be."""

    writer_id: str
    batch_id: int
    row_count: int
    is_lasting: bool

    def to_json(self) -> bytes:
        """The content of its file."""
        return _dump({"writer": self.writer_id, "batch": self.batch_id, "rows": self.row_count,
                      "isLasting": self.is_lasting})  # fmt: skip

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """The record in a file's content.  Raises ValueError."""
        found = _load(data, {"writer": str, "batch": int, "rows": int, "isLasting": bool})
        return cls(found["writer"], found["batch"], found["rows"], found["isLasting"])


def _dump(document: dict[str, Any]) -> bytes:
    return json.dumps({"version": _VERSION} | document, separators=(",", ":")).encode() + b"\n"


def _load(data: bytes, kinds: Mapping[str, type]) -> dict[str, Any]:
    """A document with members of these types.  Raises ValueError."""
    if len(data) > JSON_SIZE_MAX:
        raise ValueError(f"{len(data)} bytes of JSON")
    try:
        document = json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError(f"not a document of version {_VERSION}")
    for name, kind in kinds.items():
        value = document.get(name)
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value <= I64_MAX):
            raise ValueError(f"{name} is {str(value)[:40]!r}")
    if not is_writer_id(document["writer"]):
        raise ValueError("a writer with an invalid name")
    return document


@dataclass(frozen=True, slots=True, eq=False)
class BlockRows:
    """The n records of a block but for their bytes: `sizes` int64[n], the distinct queues, `queue_numbers` int64[n],
    `kinds` uint8[n] or None where all are 0; `items` None where the records have to be asked."""

    sizes: Ints
    queues: list[tuple[str, int]]
    queue_numbers: Ints
    kinds: npt.NDArray[np.uint8] | None
    has_crc: bool
    items: BlockItems | None = None


@dataclass(frozen=True, slots=True)
class BlockHead:
    """A checked head of a block: counts, and sizes in bytes of the parts that follow it."""

    row_count: int
    item_count: int
    queues_size: int
    rows_size: int
    data_size: int
    flags: int
    front_crc: int
    data_crc: int


def encode_block(rows: BlockRows, data: Bytes) -> bytes:
    """The block up to its records, whose bytes are `data`."""
    queues = json.dumps([list(queue) for queue in rows.queues], separators=(",", ":")).encode()
    columns = [queues, rows.sizes.astype(">i4").tobytes(), rows.queue_numbers.astype(">i4").tobytes()]
    flags = _HAS_CRC if rows.has_crc else 0
    if rows.kinds is not None:
        flags |= _HAS_KINDS
        columns.append(rows.kinds.tobytes())
    item_count = 0
    if rows.items is not None:
        flags |= _HAS_ITEMS
        item_count = len(rows.items.rows)
        counts = np.bincount(rows.items.rows, minlength=len(rows.sizes))
        columns += [column.astype(">i4").tobytes() for column in (rows.items.codes, counts, rows.items.hashes)]
    body = b"".join(columns)
    head = BLOCK.struct.pack(
        _MAGIC, flags, len(rows.sizes), len(queues), item_count, len(data), running_crc(body), running_crc(data)
    )
    return head + body


def read_block_head(data: bytes, room: int) -> BlockHead:
    """The head of a block of which `room` bytes are left in its file.  Raises ValueError."""
    if len(data) < BLOCK.size:
        raise ValueError("the file ends inside a block's head")
    head = BLOCK.read(data)
    count, item_count, flags = head["row_count"], head["item_count"], head["flags"]
    if head["magic"] != _MAGIC or count < 1 or flags & ~(_HAS_KINDS | _HAS_CRC | _HAS_ITEMS):
        raise ValueError("no block begins here")
    if item_count < 0 or (item_count and not flags & _HAS_ITEMS):
        raise ValueError("the index items of a block do not add up")
    if not 0 <= head["data_size"] <= BLOCK_DATA_MAX or not 0 <= head["queues_size"] <= _QUEUES_SIZE_MAX:
        raise ValueError("a block that is too large")
    widths = _NUMBERS_SIZE + (_KIND_SIZE if flags & _HAS_KINDS else 0) + (_ITEMS_SIZE if flags & _HAS_ITEMS else 0)
    rows_size = count * widths + item_count * _HASH_SIZE
    if BLOCK.size + head["queues_size"] + rows_size + head["data_size"] > room:
        raise ValueError("the file ends inside a block")
    return BlockHead(
        count, item_count, head["queues_size"], rows_size, head["data_size"], flags, head["front_crc"], head["data_crc"]
    )


def decode_block(head: BlockHead, data: bytes) -> BlockRows:
    """The part of a block between its head and its records.  Raises ValueError."""
    if len(data) != head.queues_size + head.rows_size or running_crc(data) != head.front_crc:
        raise ValueError("the CRC of a block is wrong")
    count = head.row_count
    queues = [(str(topic), int(queue_id)) for topic, queue_id in json.loads(data[: head.queues_size])]
    numbers = np.frombuffer(data, ">i4", 2 * count, head.queues_size).astype(np.int64)
    sizes, queue_numbers = numbers[:count], numbers[count:]
    at = head.queues_size + _NUMBERS_SIZE * count
    kinds = np.frombuffer(data, np.uint8, count, at) if head.flags & _HAS_KINDS else None
    items = _items(head, data, at + (0 if kinds is None else len(kinds))) if head.flags & _HAS_ITEMS else None
    if int(sizes.sum()) != head.data_size or sizes.min() <= 0:
        raise ValueError("the sizes of a block's records do not add up")
    if queue_numbers.min() < 0 or queue_numbers.max() >= len(queues):
        raise ValueError("a record of no queue")
    return BlockRows(sizes, queues, queue_numbers, kinds, bool(head.flags & _HAS_CRC), items)


def _items(head: BlockHead, data: bytes, at: int) -> BlockItems:
    """The columns of a block for dispatch, which begin at `at`.  Raises ValueError."""
    count = head.row_count
    numbers = np.frombuffer(data, ">i4", 2 * count + head.item_count, at).astype(np.int64)
    codes, counts, hashes = np.split(numbers, (count, 2 * count))
    if counts.min() < 0 or int(counts.sum()) != head.item_count or hashes.min(initial=0) < 0:
        raise ValueError("the index items of a block do not add up")
    return BlockItems(codes, np.repeat(np.arange(count), counts), hashes)


def running_crc(data: bytes | memoryview | Bytes, crc: int = 0) -> int:
    """CRC-32 of bytes whose CRC-32 is `crc`, followed by `data`."""
    return int(crc32(memoryview(data), crc))
