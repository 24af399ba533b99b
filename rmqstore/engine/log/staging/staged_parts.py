"""Staged parts: records made ready by a task, whole but for their places, in a file of their own beside the log.

Appending what a task wrote here costs no more than reading it, `EncodedColumns.stamp` and writing it.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from rmqstore.engine.log.encode.columns import EncodedColumns, Goals, ranks, scatter
from rmqstore.engine.log.encode.dispatch_rows import DispatchRows
from rmqstore.engine.log.encode.record_frame import PLACE_AT, STORE_TIME_AT_V4, STORE_TIME_AT_V6
from rmqstore.engine.log.staging.write_behind import WriteBehind
from rmqstore.errors import Corrupt
from rmqstore.files.filesystem import DiskFile, FileSystem, join
from rmqstore.formats.message_columns import Bytes, Ints
from rmqstore.formats.record_crc import PROPERTY_CRC_SIZE, property_crc
from rmqstore.formats.sink_files import (
    BLOCK,
    NOT_COUNTED,
    TIME_AT_V6,
    BlockHead,
    BlockItems,
    BlockRows,
    StagedPart,
    decode_block,
    encode_block,
    part_name,
    read_block_head,
    running_crc,
)

# --- Having the next thing read while the present one is worked on.

Item = TypeVar("Item")


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; each is made, in a thread of its own, while the one before is used.

    Worth it for megabytes an item, as reading, copying and checksums let other threads run.  What making one raises is
    raised in its place.  The thread is gone when the iterator is exhausted or closed.
    """
    nothing = object()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="rmqstore-read-ahead") as reader:
        coming = reader.submit(next, items, nothing)
        while (item := coming.result()) is not nothing:
            coming = reader.submit(next, items, nothing)
            yield item  # type: ignore[misc]  # `nothing` is no item


# ---

_PLACE_SIZE = 16  # queueOffset and physicalOffset
_TIME_SIZE = 8
# Parts of fewer bytes in all are read before a thread would have helped.
_READ_AHEAD_SIZE = 32 * 1024 * 1024
_DIGITS = property_crc(b"")[-11:-1]


class PartWriter:
    """Writes the part of one attempt at one partition, block by block, into a directory that it makes.

    A task that does not come to `finish` calls `discard`, or leaves the file to `committed_batches.sweep`.
    """

    def __init__(self, fs: FileSystem, directory: str, partition: int, attempt: int) -> None:
        self._fs = fs
        self._directory = directory
        self._partition, self._attempt = partition, attempt
        self._written: tuple[DiskFile, WriteBehind] | None = None
        self._position = self._row_count = self._record_size = self._checksum = 0

    @property
    def path(self) -> str:
        """The file, which is there once a row is."""
        return join(self._directory, part_name(self._partition, self._attempt))

    def add(self, encoded: EncodedColumns) -> None:
        """Writes rows after those that were written.  Raises OSError."""
        if not encoded.count:
            return
        if self._written is None:
            self._written = self._begun()
        file, write_behind = self._written
        front = encode_block(_rows_of(encoded), encoded.data)
        file.write(self._position, front)
        file.write(self._position + len(front), encoded.data)
        self._position += len(front) + len(encoded.data)
        self._row_count += encoded.count
        self._record_size += len(encoded.data)
        self._checksum = running_crc(encoded.data, self._checksum)
        write_behind.wrote(len(front) + len(encoded.data))

    def finish(self) -> StagedPart:
        """Makes the part durable and says what it is.  Raises OSError."""
        if self._written is not None:
            file, write_behind = self._written
            write_behind.settle()
            file.sync()
            self._fs.sync_directory(self._directory)
        return StagedPart(
            self._partition, self._attempt, self._row_count, self._position, self._record_size, self._checksum
        )

    def discard(self) -> None:
        """Removes what was written, as far as that is possible."""
        if self._written is not None:
            self._written[1].end()
            with suppress(OSError):
                self._fs.remove(self.path)

    def _begun(self) -> tuple[DiskFile, WriteBehind]:
        """The file, new, and the `WriteBehind` that syncs it.  Raises OSError."""
        self._fs.make_directories(self._directory)
        file = self._fs.create(self.path, 0)
        return file, WriteBehind(file.sync)


def _rows_of(encoded: EncodedColumns) -> BlockRows:
    counted, time_at = encoded.counted, encoded.store_time_at
    kinds = np.zeros(encoded.count, np.uint8)
    if counted is not None:
        kinds |= np.where(counted, 0, NOT_COUNTED).astype(np.uint8)
    kinds |= np.where(np.asarray(time_at) == STORE_TIME_AT_V6, TIME_AT_V6, 0).astype(np.uint8)
    return BlockRows(
        np.diff(encoded.starts), encoded.queues, encoded.queue_numbers, kinds if kinds.any() else None,
        encoded.has_crc, encoded.dispatch_rows().items(with_tags=False) if encoded.dispatch_rows is not None else None,
    )  # fmt: skip


def read_parts(fs: FileSystem, directory: str, parts: Sequence[StagedPart]) -> Iterator[EncodedColumns]:
    """The rows of all parts in their order, of large ones the next while the present ones are used.  Raises as
    `read_part`.
    """
    rows = (encoded for part in parts for encoded in read_part(fs, directory, part))
    return read_ahead(rows) if sum(part.file_size for part in parts) >= _READ_AHEAD_SIZE else rows


def read_part(fs: FileSystem, directory: str, part: StagedPart) -> Iterator[EncodedColumns]:
    """The rows of a part, block by block; their data is the reader's own.

    Raises Corrupt for a file that is not what `part` says it is, in place of the first block that shows it: nobody ever
    has a damaged block, nor the whole of a part that is another one.
    """
    if not part.row_count:
        return
    path = join(directory, part.name)
    try:
        file = fs.open(path)
    except FileNotFoundError:
        raise Corrupt(path, 0, "the staged part is gone") from None
    if file.size() != part.file_size:
        raise Corrupt(path, 0, f"the staged part has {file.size()} bytes, {part.file_size} were written")
    position = row_count = checksum = 0
    while position < part.file_size:
        front_at = position
        try:
            rows, head, data_at = _read_front(file, position, part.file_size)
        except ValueError as error:
            raise Corrupt(path, position, str(error)) from None
        data = np.frombuffer(file.read(data_at, head.data_size), np.uint8).copy()
        if len(data) < head.data_size or running_crc(data) != head.data_crc:
            raise Corrupt(path, data_at, "the records of a block are not those that were written")
        file.forget(data_at, head.data_size)  # memory for what is written into the log now, and the part goes soon
        checksum = running_crc(data, checksum)
        row_count += len(rows.sizes)
        position = data_at + head.data_size
        if position == part.file_size and (row_count, checksum) != (part.row_count, part.checksum):
            found = f"{row_count} rows with checksum {checksum}"
            raise Corrupt(path, 0, f"{found}, {part.row_count} with {part.checksum} were written")
        encoded = _encoded(rows, data)
        if rows.items is not None:
            encoded.dispatch_rows, encoded.is_held = partial(_dispatch_rows, fs, path, front_at), False
        yield encoded


def _dispatch_rows(fs: FileSystem, path: str, position: int) -> DispatchRows:
    """The rows of a block, once more read but for its records.  Raises Corrupt, OSError."""
    file = fs.open(path)
    try:
        rows = _read_front(file, position, file.size()).rows
    except ValueError as error:
        raise Corrupt(path, position, str(error)) from None
    items = rows.items
    if items is None:
        raise Corrupt(path, position, "another block than before")
    places = rows.queue_numbers, ranks(rows.queue_numbers, len(rows.queues), None)

    def made(with_tags: bool) -> BlockItems | None:
        return None if with_tags and items.codes.any() else items  # the tags themselves stand in the records alone

    return DispatchRows(_starts(rows), rows.queues, places, made)


class _Front(NamedTuple):
    """All of a block but its records, which begin at `data_at`."""

    rows: BlockRows
    head: BlockHead
    data_at: int


def _read_front(file: DiskFile, position: int, end: int) -> _Front:
    head = read_block_head(file.read(position, BLOCK.size), end - position)
    at = position + BLOCK.size
    rows = decode_block(head, file.read(at, head.queues_size + head.rows_size))
    return _Front(rows, head, at + head.queues_size + head.rows_size)


def _encoded(rows: BlockRows, data: Bytes) -> EncodedColumns:
    counted = time_at = None
    if rows.kinds is not None:
        counted = rows.kinds & NOT_COUNTED == 0
        time_at = _time_at(rows.kinds & TIME_AT_V6 != 0)
    goals = Goals(rows.queues, rows.queue_numbers, None if counted is None or counted.all() else counted)
    store_time_at = STORE_TIME_AT_V4 if time_at is None else time_at
    return EncodedColumns(data, _starts(rows), goals, store_time_at=store_time_at, has_crc=rows.has_crc)


def _starts(rows: BlockRows) -> Ints:
    starts = np.zeros(len(rows.sizes) + 1, np.int64)
    np.cumsum(rows.sizes, out=starts[1:])
    return starts


def _time_at(is_v6: np.ndarray) -> Ints:
    return np.where(is_v6, STORE_TIME_AT_V6, STORE_TIME_AT_V4).astype(np.int64)


def unstamp(data: Bytes, starts: Ints, ends: Ints, is_v6: np.ndarray, has_crc: bool) -> None:
    """Makes stored records what they were when they were staged: no places, no store time, no CRC in their property.

    `data` uint8[] is changed; the records are data[starts:ends] each; `is_v6`: born on a host with an IPv6 address.
    """
    scatter(data, starts + PLACE_AT, np.zeros(len(starts), f"V{_PLACE_SIZE}"))
    scatter(data, starts + _time_at(is_v6), np.zeros(len(starts), f"V{_TIME_SIZE}"))
    if has_crc:
        scatter(data, ends - 1 - len(_DIGITS), np.full(len(ends), np.void(_DIGITS), f"V{len(_DIGITS)}"))


assert len(_DIGITS) == PROPERTY_CRC_SIZE - len(property_crc(b"")[:-11]) - 1
