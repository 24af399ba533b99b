"""The files of a store, how full each is, and when its first and last message were stored."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from rmqstore.directory.index_files import index_files
from rmqstore.directory.layouts import logs_below
from rmqstore.directory.ledger.nodes import NODE_PREFIX
from rmqstore.directory.listing import directories, seen_entries
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import SIMPLE
from rmqstore.files.disk import GONE, DirectoryEntry, ReadableDisk, join, read_part
from rmqstore.formats import index, names
from rmqstore.formats.checkpoint import CHECKPOINT
from rmqstore.formats.java_text import java_text
from rmqstore.formats.names import LOG_ROOM
from rmqstore.snapshot.lookup.by_time import stored_time
from rmqstore.snapshot.lookup.end_times import first_time, last_time
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

# Rooms whose files are made ahead and hold no messages that a queue leads to.
_FILLED = ("consumequeue_ext", "compaction")
# Directories in each other, of which compaction has four.
_DEPTH_MAX = 5
_BLOCK_SIZE = 1024 * 1024
_NAMES = ("kind", "path", "start", "size", "used", "firstTimestamp", "lastTimestamp")
_Row = tuple[str, str, int | None, int, int, int | None, int | None]


def file_rows(store: StoreExtent, access: Access, wanted: frozenset[str]) -> dict[str, Any]:
    """The columns of the table `files`; times in ms, None where a file holds none or where nobody asked.

    Reads one record a file and a few entries; for the last message of a commitlog file also the records after the
    newest that one of the biggest queues knows of.
    """
    timed = bool(wanted & {"firstTimestamp", "lastTimestamp"})
    rows: list[_Row] = []
    with store.view(access) as view:
        rows += _log_rows(store, view, timed)
        rows += (row for queue in store.queues.values() for row in _queue_rows(queue, view, timed))
    rows += _index_rows(store)
    listed = _listed(store)
    rows += _other_rows(store, listed, {row[1] for row in rows})
    columns: dict[str, list[Any]] = {name: [row[place] for row in rows] for place, name in enumerate(_NAMES)}
    columns["allocated"] = [None if row[1] not in listed else listed[row[1]][1].allocated for row in rows]
    # Names need not be UTF-8, and Arrow's texts are.
    columns["path"] = [java_text(path.encode(errors="surrogateescape")) for path in columns["path"]]
    return columns


def _log_rows(store: StoreExtent, view: LogView, timed: bool) -> Iterator[_Row]:
    for file in store.log_files:
        used = min(max(store.log_end - file.start, 0), file.size)
        first = first_time(view, file.start) if timed and used else None
        last = last_time(store, view, file.start, file.start + used) if timed and used else None
        yield "commitlog", file.path, file.start, file.size, used, first, last


def _queue_rows(queue: QueueExtent, view: LogView, timed: bool) -> Iterator[_Row]:
    size = queue.files.layout.size
    kind = "consumequeue" if queue.files.kind == SIMPLE else "batchconsumequeue"
    for file in queue.files.files:
        used = min(max(queue.entry_end * size - file.start, 0), file.size)
        first = max(file.start // size, queue.entry_start)
        last = min(file.end // size, queue.entry_end)
        times: Sequence[int | None] = (None, None)
        if timed and first < last:
            times = [_entry_time(queue, view, slot) for slot in (first, last - 1)]
        yield kind, file.path, file.start, file.size, used, times[0], times[1]


def _entry_time(queue: QueueExtent, view: LogView, slot: int) -> int | None:
    return stored_time(view, int(queue.files.read(slot, slot + 1)["physical_offset"][0]))


def _index_rows(store: StoreExtent) -> Iterator[_Row]:
    for found in index_files(store.disk, store.path, store.maps_index):
        header = found.header
        used = index.file_size(found.slot_count, header.index_count) if found.slot_count else 0
        times = (header.begin_timestamp_ms or None, header.end_timestamp_ms or None)
        yield "index", found.file.path, header.begin_offset, found.file.size, min(used, found.file.size), *times


def _listed(store: StoreExtent) -> dict[str, tuple[str, DirectoryEntry]]:
    """Every file in the store's directories by its path, with its room, which is empty for a file of the root."""
    disk, root = store.disk, store.path
    found = {join(root, entry.name): ("", entry) for entry in seen_entries(disk, root) if not entry.is_directory}
    logs = {*logs_below(disk, root), *store.extra_logs, join(root, LOG_ROOM)}
    rooms = {path for _, path in directories(disk, root)}
    for room in sorted(rooms | logs):
        name = "commitlog" if room in logs else room[len(root) :].strip("/")
        for path, entry in _files_below(disk, room, _DEPTH_MAX):
            found.setdefault(path, (name, entry))
    return found


def _other_rows(
    store: StoreExtent, listed: Mapping[str, tuple[str, DirectoryEntry]], known: AbstractSet[str]
) -> Iterator[_Row]:
    """Every file that is not `known`: small ones, those of other rooms, empty ones and strays."""
    for path, (room, entry) in listed.items():
        if path in known:
            continue
        if room:
            yield _other_row(store.disk, room, path, entry)
        else:
            kind = entry.name if entry.name in ("checkpoint", "abort", "lock", "timerwheel") else "other"
            used = CHECKPOINT.size if kind == "checkpoint" else _used_size(kind, entry)
            yield kind, path, None, entry.size, min(used, entry.size), None, None


def _used_size(kind: str, entry: DirectoryEntry) -> int:
    """Bytes that may hold data: of a timer's file, which is made ahead and mostly holes, those that the disk keeps."""
    is_ahead = entry.allocated is not None and kind in ("timerwheel", "timerlog")
    return min(entry.size, entry.allocated or 0) if is_ahead else entry.size


def _files_below(disk: ReadableDisk, directory: str, depth: int) -> Iterator[tuple[str, DirectoryEntry]]:
    for entry in seen_entries(disk, directory):
        path = join(directory, entry.name)
        if not entry.is_directory:
            yield path, entry
        elif depth and not entry.is_link:
            yield from _files_below(disk, path, depth - 1)


def _other_row(disk: ReadableDisk, room: str, path: str, entry: DirectoryEntry) -> _Row:
    """A file that holds no message which can be read by it, or none at all."""
    start = names.parse_start(entry.name)
    if room in _FILLED and start is not None:
        return room, path, start, entry.size, _written_size(disk, path, entry.size), None, None
    is_named = names.parse_index_name(entry.name) is not None if room == "index" else start is not None
    if room in ("commitlog", "consumequeue", "batchconsumequeue", "index") and is_named:
        return room, path, start, entry.size, 0, None, None  # empty, or another with the same number counts
    if room.startswith(NODE_PREFIX):
        room = "dledger"
    kind = room if room in ("config", "timerlog", "compaction", "dledger") else "other"
    return kind, path, None, entry.size, _used_size(kind, entry), None, None


def _written_size(disk: ReadableDisk, path: str, size: int) -> int:
    """Bytes of a file made ahead up to the last one that is not 0; 0 for a file that is gone."""
    try:
        while size:
            start = max(size - _BLOCK_SIZE, 0)
            written = np.flatnonzero(np.frombuffer(read_part(disk, path, start, size - start), np.uint8))
            if len(written):
                return start + int(written[-1]) + 1
            size = start
    except OSError as error:
        if error.errno not in GONE:
            raise
    return 0
