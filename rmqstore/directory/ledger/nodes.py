"""DLedger's directories as anybody may look at them: which node's they are, its data files, how far its group agreed.

`ROOT/dledger-ID/` holds `index/`, `checkpoint`, `currterm` and, unless the broker has them elsewhere
(storePathDLedgerCommitLog), `data/`.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rmqstore.directory.listing import directories, file_with, numbered_files, stored_files
from rmqstore.errors import Corrupt
from rmqstore.files.disk import ReadableDisk, StoredFile, directory_of, join, read_part, read_small
from rmqstore.formats import dledger
from rmqstore.formats.dledger import COMMITTED_INDEX, INDEX_UNIT, Term
from rmqstore.formats.framing import WRAPPED
from rmqstore.formats.message import BLANK, HEAD, MESSAGE_MAGICS

NODE_PREFIX = "dledger-"
DATA_ROOM, INDEX_ROOM = "data", "index"
CHECKPOINT_FILE, TERM_FILE = "checkpoint", "currterm"
LOOKED_AT = dledger.ENTRY_HEAD.size + HEAD.size + 1
_TEXT_SIZE_MAX = 64 * 1024
_UNITS_AT_ONCE = 64 * 1024

Units = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class LedgerNode:
    """One node's directory: `self_id` as its name says it."""

    directory: str

    @property
    def self_id(self) -> str:
        """The node's name in its group; empty where the directory has another name."""
        name = self.directory.rpartition("/")[2]
        return name.removeprefix(NODE_PREFIX) if name.startswith(NODE_PREFIX) else ""

    @property
    def data(self) -> str:
        """The directory of the data files, where the broker has none of its own for them."""
        return join(self.directory, DATA_ROOM)


def nodes_below(disk: ReadableDisk, root: str) -> list[LedgerNode]:
    """The nodes that have their directories in a root: those with files of data, or of an index."""
    found = (LedgerNode(path) for name, path in directories(disk, root) if name.startswith(NODE_PREFIX))
    return [node for node in found
            if stored_files(disk, node.data) or stored_files(disk, join(node.directory, INDEX_ROOM))]  # fmt: skip


def has_begun(disk: ReadableDisk, node: LedgerNode) -> bool:
    """Whether a node has files of data or of an index, or was in a term once: its entries may be elsewhere."""
    rooms = (node.data, join(node.directory, INDEX_ROOM))
    if any(stored_files(disk, room) for room in rooms):
        return True
    term = term_of(disk, node)
    return term is not None and term.number > 0


def holds_messages(disk: ReadableDisk, node: LedgerNode) -> bool:
    """Whether the first entry of a node's data is a message's, and no other program's."""
    files = [file for file in wrapped_files(disk, node.data) if file.size][:1]
    return any(begins_with_message(read_part(disk, file.path, 0, LOOKED_AT), file.start) for file in files)


def begins_with_message(data: bytes, start: int) -> bool:
    """Whether a file of data, from byte `start` of the log on, begins with an entry of a message, or a part of one:
    `data` are its first `LOOKED_AT` bytes."""
    body = data[dledger.ENTRY_HEAD.size :]
    if len(body) >= BLANK.size and BLANK.read(body)["magic"] in MESSAGE_MAGICS:
        return True
    return any(data) and WRAPPED.may_begin(data, start)


def is_node(disk: ReadableDisk, directory: str, children: Collection[str] | None = None) -> bool:
    """Whether a directory is a node's, whatever it is called: both rooms hold files by number of bytes.  The index of a
    store is named by times.  `children`: the names in the directory, where it was listed already.
    """
    rooms = (DATA_ROOM, INDEX_ROOM)
    if children is not None and not all(room in children for room in rooms):
        return False
    return all(stored_files(disk, join(directory, room)) for room in rooms)


def room_of_node(disk: ReadableDisk, path: str) -> bool:
    """Whether a path is `data` or `index` of a node."""
    parent, _, name = path.rpartition("/")
    return name in (DATA_ROOM, INDEX_ROOM) and is_node(disk, parent or "/")


def wrapped_files(disk: ReadableDisk, directory: str) -> tuple[StoredFile, ...]:
    """The data files of a directory, without empty ones at the end; nothing where none of them begins as DLedger's do,
    and one holds anything else than the beginning of a first entry whose write was cut short."""
    files = numbered_files(disk, directory).files
    while files and not files[-1].size:
        files.pop()
    heads = [_head(disk, file) for file in files]
    is_ledger = any(dledger.is_entry(head, file.start) for head, file in zip(heads, files, strict=True))
    begins = (WRAPPED.may_begin(head, file.start) for head, file in zip(heads, files, strict=True))
    is_new = directory.rpartition("/")[2] == DATA_ROOM and all(begins)
    return tuple(replace(file, is_wrapped=True) for file in files) if is_ledger or is_new else ()


def chosen_node(disk: ReadableDisk, root: str, extra: Sequence[str]) -> LedgerNode | None:
    """The node whose data files are read: that of a directory named in `extra`, or the only one; None if there is
    none, or if several are and nobody chose.
    """
    nodes = nodes_below(disk, root)
    if not nodes:
        return None
    real = {disk.real_path(directory_of(path)) for path in extra}
    named = [node for node in nodes if disk.real_path(node.directory) in real]
    if named or len(nodes) != 1:
        return named[0] if len(named) == 1 else None
    return nodes[0]


def committed_index(disk: ReadableDisk, node: LedgerNode, spares: Sequence[str] = (".tmp", ".bak")) -> int:
    """The index of the last entry that the group had agreed on when the node wrote its checkpoint, every 3 s; -1 where
    it says nothing.  It may be far behind.  `spares`: endings of the files that stand in for it.
    """
    for name in (CHECKPOINT_FILE, *(f"{CHECKPOINT_FILE}{spare}" for spare in spares)):
        data = read_small(disk, join(node.directory, name), _TEXT_SIZE_MAX, past_directories=True)
        with suppress(Corrupt):
            if data is not None and (found := dledger.read_numbers(data).get(COMMITTED_INDEX)) is not None:
                return found
    return -1


def term_of(disk: ReadableDisk, node: LedgerNode) -> Term | None:
    """The term that the node is in; None where nothing says so.

    Where a crash took the file away before the new one was there, what stands beside it says the term.  A file that is
    there and torn was the newer one: the older term, and its vote, would not be the node's.
    """
    for name in (TERM_FILE, f"{TERM_FILE}.tmp", f"{TERM_FILE}.bak"):
        data = read_small(disk, join(node.directory, name), _TEXT_SIZE_MAX, past_directories=True)
        with suppress(Corrupt):
            if data is not None:
                return dledger.read_term(data)
        if data is not None and name == TERM_FILE:
            return None
    return None


def index_units(disk: ReadableDisk, node: LedgerNode, first: int) -> Iterator[Units]:
    """The units of a node's index from entry `first` on that stand in their places and follow each other, in blocks of
    `INDEX_UNIT`'s dtype; ends with the first that does not."""
    files = stored_files(disk, join(node.directory, INDEX_ROOM))
    size, expected = INDEX_UNIT.size, first
    while (file := file_with(files, expected * size)) is not None:
        position = expected * size - file.start
        data = read_part(disk, file.path, position, min(_UNITS_AT_ONCE * size, file.size - position))
        units = np.frombuffer(data[: len(data) // size * size], INDEX_UNIT.dtype)
        right = units["index"] == np.arange(expected, expected + len(units))
        right &= (units["magic"] == dledger.MAGIC_MESSAGE) & (units["size"] >= dledger.ENTRY_HEAD.size)
        right[1:] &= units["offset"][1:] >= units["offset"][:-1] + units["size"][:-1]
        count = len(right) if right.all() else int(np.argmin(right))
        if count:
            yield units[:count]
        if not count or count < len(units):
            return
        expected += count


def is_unit_blank(disk: ReadableDisk, node: LedgerNode, index: int) -> bool:
    """Whether nothing stands in the index for entry `index`.  Raises OSError."""
    position = index * INDEX_UNIT.size
    file = file_with(stored_files(disk, join(node.directory, INDEX_ROOM)), position)
    return file is None or not any(read_part(disk, file.path, position - file.start, INDEX_UNIT.size))


def entry_end(disk: ReadableDisk, node: LedgerNode, index: int) -> int | None:
    """Where in the log entry `index` ends, by the index; None if it does not have it."""
    if index < 0:
        return None
    file = file_with(stored_files(disk, join(node.directory, INDEX_ROOM)), index * INDEX_UNIT.size)
    if file is None:
        return None
    data = read_part(disk, file.path, index * INDEX_UNIT.size - file.start, INDEX_UNIT.size)
    if len(data) < INDEX_UNIT.size:
        return None
    unit = INDEX_UNIT.read(data)
    is_right = unit["index"] == index and unit["size"] >= dledger.ENTRY_HEAD.size and unit["offset"] >= 0
    return unit["offset"] + unit["size"] if is_right else None


def holds_entries(disk: ReadableDisk, file: StoredFile) -> bool:
    """Whether a log file begins with an entry of DLedger's."""
    return dledger.is_entry(_head(disk, file), file.start)


def _head(disk: ReadableDisk, file: StoredFile) -> bytes:
    """The first bytes of a file; nothing of one that is gone, or that cannot be read: whoever reads it tells why."""
    with suppress(OSError):
        return read_part(disk, file.path, 0, dledger.ENTRY_HEAD.size)
    return b""
