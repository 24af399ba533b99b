"""Where things stand below a store's root, and which layouts of RocketMQ tell of themselves there."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from rmqstore.directory.ledger.nodes import NODE_PREFIX, LedgerNode, has_begun, is_node, room_of_node
from rmqstore.directory.listing import Numbered, directories, has_numbered, numbered_files
from rmqstore.files.disk import DirectoryEntry, ReadableDisk, StoredFile, join, read_part, read_small
from rmqstore.formats import dledger, message, names
from rmqstore.formats.checkpoint import FILE_SIZE, Checkpoint, read_checkpoint
from rmqstore.formats.names import CONFIG_ROOM, INDEX_ROOM, LOG_ROOM, PLAIN_ROOM, QUEUE_ROOMS, SEPARATE_ROOM

# Directories of a root that hold files with numbers for names and are no commitlog.
_NO_LOGS = frozenset((*QUEUE_ROOMS, "timerlog", INDEX_ROOM, CONFIG_ROOM, "compaction"))


def logs_below(
    disk: ReadableDisk, root: str, children: Sequence[DirectoryEntry] | None = None
) -> dict[str, Numbered]:  # fmt: skip
    """The directories of a root that hold files of its commitlog, by path, with what stands in them: `commitlog`, and
    those of a broker with several paths (storePathCommitLog), whatever they are called.

    A directory of another name that holds a file of which `commitlog` has one as well is a copy, whatever it is called:
    of two files for one part of the log the store's own counts.

    Numbered files alone are no log: queues have them too.  Of a directory of another name one file must begin as
    a log's does, or all with nothing yet; or one must follow a file of a directory that is a log, or go before one, as
    a file does whose first record is damaged.  `children`: what the root holds, where it was listed already.
    """
    own = join(root, LOG_ROOM)
    candidates = {
        path: found
        for child in (disk.entries(root) if children is None else children)
        if child.is_directory and child.name not in _NO_LOGS and not child.name.startswith(NODE_PREFIX)
        for path in (join(root, child.name),)
        if path == own or has_numbered(disk, path)
        for found in (numbered_files(disk, path),)
        if any(file.size for file in found.files)
    }
    starts = {file.start for file in candidates[own].files} if own in candidates else set[int]()
    candidates = {
        path: found
        for path, found in candidates.items()
        if path == own or starts.isdisjoint(file.start for file in found.files)
    }
    logs = {path for path, found in candidates.items() if path == own or _begins_as_log(disk, found.files)}
    while more := [path for path in candidates.keys() - logs
                   if any(_adjoin(candidates[path].files, candidates[log].files) for log in logs)]:  # fmt: skip
        logs.update(more)
    return {path: found for path, found in candidates.items() if path in logs}


def _begins_as_log(disk: ReadableDisk, files: Iterable[StoredFile]) -> bool:
    """Whether one of these files begins as a commitlog file does, or all with nothing yet."""
    is_blank = True
    for file in files:
        if not file.size:
            continue
        head = _head(disk, file.path, message.BLANK.size)
        if head is None or is_log_head(head):
            return True
        is_blank = is_blank and not any(head)
    return is_blank


def _adjoin(files: Iterable[StoredFile], others: Iterable[StoredFile]) -> bool:
    """Whether one of these files ends where one of the others begins, or begins where one ends."""
    starts, ends = {file.start for file in files if file.size}, {file.end for file in files if file.size}
    return any(file.size and (file.start in ends or file.end in starts) for file in others)


def _head(disk: ReadableDisk, path: str, size: int) -> bytes | None:
    """The first bytes of a file; nothing of one that its owner deleted; None where they cannot be read, so that whoever
    reads the file tells why.
    """
    try:
        return read_part(disk, path, 0, size)
    except FileNotFoundError:
        return b""
    except OSError:
        return None


def is_log_head(head: bytes) -> bool:
    """Whether a record, or the blank that fills up a file, begins so."""
    magics = (*message.MESSAGE_MAGICS, message.MAGIC_BLANK)
    return len(head) == message.BLANK.size and message.BLANK.read(head)["magic"] in magics


def find_ledger(disk: ReadableDisk, root: str, log_files: Sequence[StoredFile]) -> str | None:
    """The path that tells of DLedger: a directory of its group below `root`, beside no commitlog or of a member that
    has begun, wherever its data are; `root` where it is the directory of a node, or `data` or `index` in one; or the
    first of `log_files`, wherever they lie, if it is one of DLedger's.  None elsewhere.
    """
    for name, path in directories(disk, root):
        if name.startswith(NODE_PREFIX) and (not log_files or has_begun(disk, LedgerNode(path))):
            return path
    if is_within_node(disk, root):
        return root
    if log_files and dledger.is_entry(
        _head(disk, log_files[0].path, dledger.ENTRY_HEAD.size) or b"", log_files[0].start
    ):
        return log_files[0].path
    return None


def is_within_node(disk: ReadableDisk, root: str, children: Collection[str] | None = None) -> bool:
    """Whether a path is the directory of a DLedger node, or `data` or `index` in one.  `children`: see `is_node`."""
    return is_node(disk, root, children) or room_of_node(disk, root)


class QueueDatabase(NamedTuple):
    """The RocksDB database that queues stand in: consumequeue/, or since 5.5 consumequeue_rocksdb/.  Alone
    (storeType=defaultRocksDB), or beside directories of entries (rocksdbCQDoubleWriteEnable).
    """

    path: str
    is_alone: bool


def queue_database(disk: ReadableDisk, root: str) -> QueueDatabase | None:
    """The database of a store's queues; None where there is none.  Where RocksDB has a room of its own, it is there
    without its file CURRENT as well, and cannot be read.
    """
    room = next((room for room in (PLAIN_ROOM, SEPARATE_ROOM) if disk.exists(join(root, room, "CURRENT"))), None)
    if room is None:
        own = join(root, SEPARATE_ROOM)
        if not disk.exists(own) or not is_database(disk, own):
            return None
        room = SEPARATE_ROOM
    return QueueDatabase(
        join(root, room), not any(_is_queue(disk, path) for _, path in directories(disk, join(root, PLAIN_ROOM)))
    )


def rocksdb_queues(disk: ReadableDisk, root: str) -> str | None:
    """The database that all queues stand in, and none in files; None elsewhere."""
    database = queue_database(disk, root)
    return database.path if database is not None and database.is_alone else None


def has_light_files(disk: ReadableDisk, root: str) -> bool:
    """Whether a light queue has a directory of its own."""
    return any(map(names.is_light_queue, disk.names(join(root, PLAIN_ROOM))))


def _is_queue(disk: ReadableDisk, path: str) -> bool:
    """Whether a directory is a topic's, with queues in it."""
    return any(names.parse_queue_id(name) is not None for name, _ in directories(disk, path))


def is_database(disk: ReadableDisk, path: str) -> bool:
    """Whether a directory is a RocksDB database, also one that lost its file CURRENT and cannot be read."""
    return any(name == "CURRENT" or name.startswith("MANIFEST-") for name in disk.names(path))


def is_since_5_4(disk: ReadableDisk, root: str) -> bool:
    """Whether a broker of RocketMQ 5.4 or later has had the store: each makes a database there, used or not."""
    return disk.is_directory(join(root, names.ROCKSDB_ROOM))


def load_checkpoint(disk: ReadableDisk, root: str, *, past_directories: bool = True) -> Checkpoint | None:
    """The fields of the checkpoint file, zeros where it is cut short; None where there is none.  Raises as
    `read_small`.

    `past_directories`: a directory of that name counts as none, for callers that will not put a file in its place.
    """
    path = join(root, names.CHECKPOINT_FILE)
    data = read_small(disk, path, FILE_SIZE, past_directories=past_directories)
    return None if data is None else read_checkpoint(data)


def root_hint(disk: ReadableDisk, root: str, children: Iterable[str]) -> str:
    """The end of an error about a directory that is no store: the directory in it that may have been meant."""
    nested = [join(root, name) for name in children if disk.is_directory(join(root, name, LOG_ROOM))]
    if len(nested) > 1:
        all_of_them = "or read all that are there: the option `stores` in Spark, rmqstore.StoresIn(PATH) in Python"
        return f"it has {len(nested)} stores in it: name one, as {min(nested)}, {all_of_them}"
    return f"did you mean {nested[0]}?" if nested else names.LOG_WANTED
