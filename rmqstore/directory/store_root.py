"""Whether a directory may be written to as a store: looked at before anything is made, cut or deleted in it.

A directory is a store in two cases: it holds nothing but names of RocketMQ's or this engine's; or it holds a commitlog
or queues that prove it, whatever else lies beside them.  Names alone prove little: a topic's queues, a DLedger node's
directory and many other programs hold numbered files, `index/` and `config/`, too.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rmqstore.directory.layouts import find_ledger, is_log_head, is_within_node, logs_below, rocksdb_queues, root_hint
from rmqstore.directory.ledger.nodes import NODE_PREFIX, nodes_below
from rmqstore.directory.listing import Numbered, numbered_files
from rmqstore.errors import NotAStore, Rejected, UnsupportedLayout, next_step
from rmqstore.files.disk import DirectoryEntry, ReadableDisk, read_part
from rmqstore.files.filesystem import FileSystem, directory_of, join
from rmqstore.files.reading import LOCAL, StorePath, canonical_path
from rmqstore.formats import message, names
from rmqstore.formats.checkpoint import FILE_SIZE as CHECKPOINT_SIZE
from rmqstore.formats.names import CONFIG_ROOM, INDEX_ROOM, LOG_ROOM, QUEUE_ROOMS
from rmqstore.formats.sink_files import COMMITTED_FILE, INTENT_FILE, SINK_DIRECTORY, parse_batch_name

# So deep do files lie below a root: consumequeue/<topic>/<queue id>.
_DEPTH = 3
# RocketMQ writes `lock`, and its process id into abort; this engine a note there, and blanks over it.
_LOCK_SIZE = len(b"lock")
_ABORT_CONTENT = re.compile(rb"[\s\0]*(\d{1,20}|unsynced from \d{1,19})?[\s\0]*\d*[\s\0]*")
_ROOT_CONTENT_MAX = 128

Paths = Sequence[str]


def require_room(disk: ReadableDisk, root: str, log_paths: Paths = (), *, may_be_ledger: bool = False) -> None:
    """Raises NotAStore, UnsupportedLayout unless a store stands at `root`, or nothing at all, so that one can be made;
    Rejected for one directory by two names.

    What file systems and desktops leave in every directory, lost+found and names with a dot in front, is nothing.  With
    `log_paths` each of these holds commitlog files or nothing, too.  `may_be_ledger`: its log may be DLedger's.
    """
    _require_each_once(disk, log_paths)
    if disk.exists(root):
        found = _look(disk, root, log_paths, may_be_ledger)
        if not found.is_store and (found.own or found.foreign):
            raise _no_store(disk, root, found, ", or an empty one for a new store")
    if not disk.exists(root) or not found.own:
        _refuse_parts(disk, root)
    for path in log_paths:
        if disk.exists(path) and not _fits_log(_listed(disk, path)):
            raise NotAStore(path, "holds other things than commitlog files; give an empty directory as a log path")


def _require_each_once(disk: ReadableDisk, log_paths: Paths) -> None:
    """Raises Rejected for two names of one directory: its files would count twice.  One name may come twice, as in
    RocketMQ, where a directory is in `storePathCommitLog` and `readOnlyCommitLogStorePaths`."""
    known: dict[str, str] = {}
    for path in dict.fromkeys(log_paths):
        other = known.setdefault(disk.real_path(path), path)
        if other != path:
            raise Rejected(f"log paths: {other} and {path} are one directory; name it once")


def require_store(
    disk: ReadableDisk, root: str, log_paths: Paths = (), *, may_be_ledger: bool = False
) -> tuple[str, ...]:
    """The paths of what stands at the root of a store and is none of its parts.  Raises NotAStore, UnsupportedLayout
    for what is no store, an empty path among it; Rejected.
    """
    canonical_path(root)
    _require_each_once(disk, log_paths)
    if not disk.exists(root):
        raise NotAStore(root, f"does not exist here; {names.ROOT_WANTED}")
    found = _look(disk, root, log_paths, may_be_ledger)
    if not found.is_store:
        raise _no_store(disk, root, found)
    return tuple(join(root, name) for name in found.foreign)


def found_store(
    path: StorePath, log_paths: Paths = (), disk: ReadableDisk = LOCAL, *, may_be_ledger: bool = False
) -> str:
    """The root of the store at a path as a user gives it; no store is made where there is none.  Raises as
    `require_store` and `canonical_path`.
    """
    root = canonical_path(path)
    require_store(disk, root, log_paths, may_be_ledger=may_be_ledger)
    return root


def require_replaceable(fs: FileSystem, root: str) -> None:
    """Raises NotAStore, UnsupportedLayout unless nothing stands at `root`, or a store and nothing beside it: a
    replacement deletes all that is there.  The error names the first entry that is no part of a store, or that belongs
    to another place.
    """
    if not fs.exists(root):
        _refuse_parts(fs, root)
        return
    if fs.is_apart(root):
        raise NotAStore(root, "is a link or a mount point, which cannot be replaced; give a directory below it")
    found = _look(fs, root, ())
    apart = {*fs.links(root), *(name for name in found.all if fs.is_apart(join(root, name)))}
    in_the_way = sorted({*found.foreign, *found.passed_over, *apart})
    if in_the_way:
        what = "leads out of the store" if in_the_way[0] in apart else "is no part of a store"
        raise NotAStore(root, f"would be deleted, and {in_the_way[0]!r} in it {what}; move it away, or write elsewhere")
    if found.own and not found.has_proof and not {names.LOCK_FILE, names.ABORT_FILE, SINK_DIRECTORY} & {*found.own}:
        raise _no_store(fs, root, found)
    if not found.own:
        _refuse_parts(fs, root)


def lies_about_a_store(disk: ReadableDisk, place: str, stores: Iterable[str]) -> bool:
    """Whether a place that is to be written, which may not be there yet, is one of `stores`, lies in one or has one in
    it, or is or lies in what looks like any store: what is replaced there would be messages.
    """
    real = disk.real_path(place)
    own = [disk.real_path(store) for store in stores]
    if any(_lies_in(real, store) or _lies_in(store, real) for store in own):
        return True
    while real.strip("/"):
        if disk.is_directory(join(real, LOG_ROOM)):
            return True
        real = directory_of(real)
    return False


def _lies_in(path: str, directory: str) -> bool:
    return f"{path}/".startswith(directory.rstrip("/") + "/")


def require_remains(fs: FileSystem, root: str) -> None:
    """Raises NotAStore unless what stands at `root` can be a store, or what the interrupted removal of one left."""
    found = _look(fs, root, ())
    if found.foreign:
        name = found.foreign[0]
        raise NotAStore(
            root, f"would be deleted as a replaced store, and {name!r} in it is no part of one; move it away"
        )


@dataclass(slots=True)
class _Found:
    """The names at a root: parts of a store, what is none, and what stands in every directory.

    `has_proof`: parts that no other program leaves.
    """

    own: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    has_proof: bool = False

    @property
    def all(self) -> list[str]:
        return [*self.own, *self.foreign, *self.passed_over]

    @property
    def is_store(self) -> bool:
        return bool(self.own) and (self.has_proof or not self.foreign)


def _look(disk: ReadableDisk, root: str, log_paths: Paths, may_be_ledger: bool = False) -> _Found:
    """The names at a root, sorted out.  Raises NotAStore for what is no directory, UnsupportedLayout for other
    layouts.
    """
    if not disk.is_directory(root):
        raise NotAStore(root, f"is not a directory; {names.ROOT_WANTED}")
    found = _Found()
    others: list[str] = []
    for entry in _listed(disk, root):
        path = join(root, entry.name)
        if entry.name == "lost+found" or entry.name.startswith("."):
            found.passed_over.append(entry.name)
        elif may_be_ledger and entry.is_directory and entry.name.startswith(NODE_PREFIX):
            found.own.append(entry.name)
            found.has_proof = found.has_proof or bool(nodes_below(disk, root))
        elif path in log_paths or _is_part(disk, path, entry, log_paths):
            found.own.append(entry.name)
            found.has_proof = found.has_proof or _is_proof(disk, path, entry)
        else:
            others.append(entry.name)
    below = _logs_below(disk, root)
    logs = [name for name in others if join(root, name) in below]
    found.foreign.extend(name for name in others if name not in logs)
    (found.own or found.foreign).extend(logs)  # of a broker with several paths, where something else tells of one
    found.has_proof = found.has_proof or (bool(found.own) and any(_has_record(disk, join(root, name)) for name in logs))
    logs_found = [*below.values(), *(numbered_files(disk, path) for path in log_paths)]
    _refuse_other_layouts(disk, root, logs_found, may_be_ledger)
    return found


def _logs_below(disk: ReadableDisk, root: str) -> dict[str, Numbered]:
    """As `logs_below`.  Raises NotAStore if a directory may not be read."""
    try:
        return logs_below(disk, root)
    except PermissionError as error:
        raise NotAStore(error.filename or root, f"cannot be read ({error.strerror}); {next_step(error)}") from None


def _has_record(disk: ReadableDisk, directory: str) -> bool:
    """Whether a file of a log begins with a record, or the blank that fills one up."""
    filled = [entry.name for entry in _listed(disk, directory) if _is_numbered(entry) and entry.size]
    return any(is_log_head(read_part(disk, join(directory, name), 0, message.BLANK.size)) for name in filled)


def _is_part(disk: ReadableDisk, path: str, entry: DirectoryEntry, log_paths: Paths) -> bool:
    """Whether an entry of a root has the name and the look of a part of a store."""
    if not entry.is_directory:
        return names.is_root_file(entry.name) and _is_root_content(disk, path, entry)
    if entry.name == LOG_ROOM and any(each.startswith(join(path, "")) for each in log_paths):
        return True
    if entry.name in QUEUE_ROOMS:
        return True  # not looked into: there may be a hundred thousand topics
    fits = _ROOMS.get(entry.name)
    if entry.name == SINK_DIRECTORY:
        return all(
            each.is_directory and _is_writer(_listed(disk, join(path, each.name))) for each in _listed(disk, path)
        )
    return fits is not None and fits(_listed(disk, path))


def _is_root_content(disk: ReadableDisk, path: str, entry: DirectoryEntry) -> bool:
    """Whether a file of a root may be what its name says; TensorFlow keeps a `checkpoint`, too, of text."""
    if not entry.size:
        return True
    if entry.name == names.CHECKPOINT_FILE:  # a crash may leave a short one; it begins with a time, whose top byte is 0
        return entry.size >= CHECKPOINT_SIZE or read_part(disk, path, 0, 1) == b"\0"
    if entry.name == names.LOCK_FILE:  # never opened: closing it would drop the lock of a store that is open
        return entry.size <= _LOCK_SIZE
    if entry.name != names.ABORT_FILE:
        return True
    return _ABORT_CONTENT.fullmatch(read_part(disk, path, 0, _ROOT_CONTENT_MAX)) is not None


_QUEUES_IN_ROCKSDB = (
    "consume queues in RocksDB, which only a broker writes: the store can be read; start its broker on it, or copy its "
    "messages (rmqstore export --to)"
)


def _is_proof(disk: ReadableDisk, path: str, entry: DirectoryEntry) -> bool:
    """Whether a part is one that no other program leaves."""
    if entry.name == names.CHECKPOINT_FILE:
        return entry.size >= CHECKPOINT_SIZE
    if entry.name in QUEUE_ROOMS:
        topics = (each for each in _listed(disk, path) if each.is_directory and names.is_directory_name(each.name))
        return any(
            queue.is_directory and names.parse_queue_id(queue.name) is not None
            for topic in topics
            for queue in _listed(disk, join(path, topic.name))
        )
    return entry.is_directory and any(map(_is_numbered, _listed(disk, path))) and entry.name != INDEX_ROOM


def _refuse_other_layouts(disk: ReadableDisk, root: str, logs: Iterable[Numbered], may_be_ledger: bool) -> None:
    """Raises UnsupportedLayout for the ways of RocketMQ to store messages that this engine does not write."""
    files = sorted((file for log in logs for file in log.files if file.size), key=lambda file: file.start)
    ledger = find_ledger(disk, root, files)
    if ledger is not None and may_be_ledger and is_within_node(disk, root):
        raise UnsupportedLayout(root, "belongs to a member of a DLedger group: give the broker's directory above it")
    if ledger is not None and not may_be_ledger:
        raise UnsupportedLayout(ledger, "a DLedger commitlog, which only StoreConfig(dledger=LedgerConfig()) opens")
    rocksdb = rocksdb_queues(disk, root)
    if rocksdb is not None:
        raise UnsupportedLayout(rocksdb, _QUEUES_IN_ROCKSDB)


def _no_store(disk: ReadableDisk, root: str, found: _Found, more: str = "") -> NotAStore:
    """Why a directory is no store, and what may have been meant."""
    _refuse_parts(disk, root)
    return NotAStore(root, f"holds no RocketMQ store; {root_hint(disk, root, found.all)}{more}")


def _refuse_parts(disk: ReadableDisk, root: str) -> None:
    """Raises NotAStore for a place inside of a store, which may be empty: a store made there would be in its way."""
    path = root
    for _ in range(_DEPTH):
        path, name = directory_of(path), path.rpartition("/")[2]
        is_room = name in _ROOMS or name in (*QUEUE_ROOMS, SINK_DIRECTORY)
        if not path or not is_room or not disk.is_directory(path):
            continue
        own = [entry for entry in _listed(disk, path) if _is_part(disk, join(path, entry.name), entry, ())]
        if any(each.name in (names.LOCK_FILE, names.ABORT_FILE) or _is_proof(disk, join(path, each.name), each)
               for each in own if each.name != name):  # fmt: skip
            raise NotAStore(root, f"holds no RocketMQ store; did you mean {path}?")


def _listed(disk: ReadableDisk, directory: str) -> Sequence[DirectoryEntry]:
    """The entries of a directory.  Raises NotAStore if it may not be read."""
    try:
        return disk.entries(directory)
    except PermissionError as error:
        raise NotAStore(directory, f"cannot be read ({error.strerror}); {next_step(error)}") from None


def _is_numbered(entry: DirectoryEntry) -> bool:
    return not entry.is_directory and names.parse_start(entry.name) is not None


def _fits_log(entries: Sequence[DirectoryEntry]) -> bool:
    """Whether commitlog files stand there, or nothing but what stands everywhere."""
    there = [entry for entry in entries if entry.name != "lost+found" and not entry.name.startswith(".")]
    return not there or any(map(_is_numbered, there))


def _fits_config(entries: Sequence[DirectoryEntry]) -> bool:
    return not entries or any(names.is_config_name(entry.name) for entry in entries)


def _fits_index(entries: Sequence[DirectoryEntry]) -> bool:
    """Index files are called by 17 digits; a DLedger index by 20, and a topic of that name has queues below it."""
    return not entries or any(names.parse_index_name(entry.name) is not None for entry in entries)


def _fits_compaction(entries: Sequence[DirectoryEntry]) -> bool:
    kept = {"compactionLog", "compactionCq", "position-checkpoint", "position-checkpoint.bak"}
    return {entry.name for entry in entries} <= kept


def _fits_rocksdb(entries: Sequence[DirectoryEntry]) -> bool:
    return not entries or any(entry.name == "CURRENT" for entry in entries)


def _fits_pop(entries: Sequence[DirectoryEntry]) -> bool:
    """Since 5.4 a broker has the database of POP in kvStore/ itself."""
    return _fits_rocksdb(entries) or all(entry.is_directory and entry.name == "pop" for entry in entries)


def _is_writer(entries: Sequence[DirectoryEntry]) -> bool:
    """Whether a directory holds what a sink keeps of one writer."""
    files = (COMMITTED_FILE, f"{COMMITTED_FILE}.tmp", INTENT_FILE, f"{INTENT_FILE}.tmp")
    return all(entry.name in files or parse_batch_name(entry.name) is not None for entry in entries)


# The directories at a root, and what tells by their entries that they are no others of that name.
_ROOMS: dict[str, Callable[[Sequence[DirectoryEntry]], bool]] = {
    LOG_ROOM: _fits_log,
    CONFIG_ROOM: _fits_config,
    INDEX_ROOM: _fits_index,
    "timerlog": _fits_log,
    "compaction": _fits_compaction,
    names.ROCKSDB_ROOM: _fits_rocksdb,
    names.SEPARATE_ROOM: _fits_rocksdb,
    names.POP_ROOM: _fits_pop,
}
