"""Where a replica's log and its master's part, and cutting the replica's there, so that it can follow again."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, Protocol

from rmqstore.directory.deleted_topics import load_deleted_topics
from rmqstore.engine.log.deleted_topics import save_deleted_topics
from rmqstore.engine.log.opening import mark_open
from rmqstore.errors import Rejected
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.formats import message, names
from rmqstore.formats.checkpoint import FILE_SIZE, encode_checkpoint, read_checkpoint
from rmqstore.records.read_batches import read_batches
from rmqstore.replica.following.note import Origin, read_origin, write_origin

# Bytes that are compared at a time.  A record's store time and host stand in its first 80: where the logs have parted
# no two windows are the same but in the unwritten rest of a file.
_WINDOW_SIZE = 64 * 1024

Read = Callable[[int, int], bytes]


class OwnLog(Protocol):
    """The replica's log, as far as it is needed here."""

    @property
    def start(self) -> int:
        """The first offset that it holds."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size), fewer where it ends."""


class Parting(NamedTuple):
    """Up to `offset`, where a record begins, the two logs are the same; the replica has bytes up to `own_end`, of which
    those from `offset` on, in `record_count` records, are to be cut."""

    offset: int
    own_end: int
    record_count: int

    @property
    def cut_bytes(self) -> int:
        """Bytes that are to be cut."""
        return self.own_end - self.offset


def parting(own: OwnLog, own_end: int, master: Read, master_bounds: tuple[int, int], file_size: int) -> Parting:
    """Where they part; `master` reads the master's log, of which there is [start, end) of `master_bounds`.

    Raises Rejected where they have nothing in common that both still hold.
    """
    low, high = max(own.start, master_bounds[0]), min(own_end, master_bounds[1])
    if low >= high:
        raise Rejected(
            f"our log, from {own.start} to {own_end}, and the master's, which begins at {master_bounds[0]}, have no "
            "part in common: start a new replica in another directory"
        )
    if not _is_same(own.read, master, low, min(high, low + _WINDOW_SIZE)):
        differs = _first_difference(own.read, master, low, high)
    else:
        same, other = low, high  # the window before `same` is the same, the one before `other` may not be
        if _is_same(own.read, master, max(low, high - _WINDOW_SIZE), high):
            same = high
        while other - same > _WINDOW_SIZE:
            middle = (same + other) // 2
            if _is_same(own.read, master, max(low, middle - _WINDOW_SIZE), middle):
                same = middle
            else:
                other = middle
        differs = _first_difference(own.read, master, max(low, same - _WINDOW_SIZE), high)
    return _at_record(own, own_end, differs, low, file_size)


def _is_same(ours: Read, theirs: Read, begin: int, end: int) -> bool:
    return ours(begin, end - begin) == theirs(begin, end - begin)


def _first_difference(ours: Read, theirs: Read, begin: int, end: int) -> int:
    """The first offset from `begin` on where they differ; `end` if none does before it."""
    while begin < end:
        size = min(_WINDOW_SIZE, end - begin)
        mine, other = ours(begin, size), theirs(begin, size)
        if mine != other:
            common = min(len(mine), len(other))
            return begin + next((n for n in range(common) if mine[n] != other[n]), common)
        begin += size
    return end


def _at_record(own: OwnLog, own_end: int, differs: int, low: int, file_size: int) -> Parting:
    """The record of our log in which they differ first."""
    cut, count = own_end, 0
    begin = max(own.start, min(differs, own_end - 1) // file_size * file_size)
    for standing in read_batches(own.read, begin, own_end, file_size):
        if isinstance(standing, message.Torn):
            raise Rejected(f"our log is damaged at {standing.position}: {standing.reason}")
        if isinstance(standing, message.Blank):
            if differs < standing.position + standing.size:
                cut = min(cut, standing.position)
            continue
        ends = standing.offsets + standing.located.total_size
        parted = standing.offsets[ends > differs]
        count += len(parted)
        if len(parted):
            cut = min(cut, int(parted[0]))
    if cut <= low:
        raise Rejected(
            f"the two logs differ from the first offset that both have, {low}: this is another master, or it was set "
            "up again; start a new replica in another directory"
        )
    return Parting(cut, own_end, count)


def cut_log(fs: FileSystem, root: str, offset: int, file_size: int) -> None:
    """Takes everything from `offset` on out of the log of the replica at `root`, whose lock the caller holds, durably.

    What is left of queues and index beyond it goes when the store is opened next, as after a crash.  Interrupted, it is
    gone on with when the replica is opened next: what a crash leaves of it may be a hole in front of sound records.
    Raises Rejected for what is no replica.
    """
    origin = read_origin(fs, root)
    if origin is None:
        raise Rejected(f"{root} is not a replica")
    kept = tuple(each for each in origin.delay_levels if each[0] < offset)
    cutting = origin._replace(cut_to=offset, delay_levels=kept or origin.delay_levels[:1])
    write_origin(fs, root, cutting)
    finish_cut(fs, root, cutting, file_size)


def finish_cut(fs: FileSystem, root: str, origin: Origin, file_size: int) -> None:
    """Does what `cut_log` noted in `origin`."""
    if origin.cut_to is not None:
        _cut(fs, root, origin.cut_to, file_size)
        write_origin(fs, root, origin._replace(cut_to=None))


def _forget_deletions(fs: FileSystem, root: str, offset: int) -> None:
    """Topics whose deletion was told by messages that are cut have what they had before: the master may never have
    deleted them, and if it did, its messages tell again.  Their queues went: all queues are made again from the log.
    """
    noted, _ = load_deleted_topics(fs, root)
    kept = {topic: one for topic, one in noted.items() if one.log_end < offset and not one.is_pending}
    if kept == noted:
        return
    for room in (*names.QUEUE_ROOMS, names.EXTENSION_ROOM, names.INDEX_ROOM):
        _remove_tree(fs, join(root, room))
    if fs.exists(join(root, names.CHECKPOINT_FILE)):  # it says that all that is in them
        fs.remove(join(root, names.CHECKPOINT_FILE))
    fs.sync_directory(root)
    save_deleted_topics(fs, root, kept)


def _forget_times(fs: FileSystem, path: str) -> None:
    """Nothing says any more that what is to be cut was on the disk: else the next opening would miss its files."""
    if not fs.exists(path):
        return
    file = fs.open(path)
    kept = read_checkpoint(file.read(0, FILE_SIZE))
    file.write(0, encode_checkpoint(replace(kept, physic_timestamp_ms=0, logics_timestamp_ms=0, index_timestamp_ms=0)))
    file.sync()
    file.close()


def _remove_tree(fs: FileSystem, directory: str) -> None:
    for entry in fs.entries(directory):
        path = join(directory, entry.name)
        if entry.is_directory and not entry.is_link:
            _remove_tree(fs, path)
        else:
            fs.remove(path)
    if fs.exists(directory):
        fs.remove_directory(directory)


def _cut(fs: FileSystem, root: str, offset: int, file_size: int) -> None:
    mark_open(fs, root)
    _forget_times(fs, join(root, names.CHECKPOINT_FILE))
    _forget_deletions(fs, root, offset)
    log = join(root, names.LOG_ROOM)
    for entry in sorted(fs.entries(log), key=lambda each: each.name, reverse=True):
        start = names.parse_start(entry.name)
        if start is not None and start >= offset and start > 0:
            fs.remove(join(log, entry.name))
            fs.sync_directory(log)
    if offset % file_size:
        file = fs.open(join(log, names.format_start(offset - offset % file_size)))
        zeros = bytes(min(_WINDOW_SIZE, file_size))
        for position in range(offset % file_size, file_size, len(zeros)):
            file.write(position, zeros[: file_size - position])
        file.sync()
        file.close()
