"""The two text files of a member: the term that it is in, with its vote, and how far its group agreed.

Each is replaced as a whole and synced: after a crash it is the old one or the new one.  Java writes the old content to
`.bak` and takes the file away before it puts the new one there.
"""

from rmqstore.directory.ledger.nodes import (
    CHECKPOINT_FILE,
    DATA_ROOM,
    INDEX_ROOM,
    TERM_FILE,
    LedgerNode,
    committed_index,
    has_begun,
    nodes_below,
    term_of,
)
from rmqstore.errors import NotAStore, StoreDamaged, StoreInUse
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.files.replace import replace_file
from rmqstore.files.store_lock import mapping_process, unseen_owner
from rmqstore.formats.dledger import Term, checkpoint_text, term_text
from rmqstore.formats.names import LOCK_FILE, parse_start

# A node's checkpoint and term have some 40 bytes of text, a store's checkpoint 4,096.
_TEXT_SIZE_MAX = 1024


def require_own_directory(fs: FileSystem, node: LedgerNode) -> None:
    """Raises NotAStore for a directory with files that are no node's, as that above a node has: a node's checkpoint has
    the name of a store's."""
    if has_begun(fs, node):
        return
    files = {f"{name}{ending}" for name in (CHECKPOINT_FILE, TERM_FILE) for ending in ("", ".tmp", ".bak")}
    rooms = (DATA_ROOM, INDEX_ROOM)
    foreign = [
        each.name
        for each in fs.entries(node.directory)
        if each.name not in {*files, *rooms, LOCK_FILE} or (each.name in files and each.size > _TEXT_SIZE_MAX)
    ]
    for room in rooms:
        path = join(node.directory, room)
        held = fs.entries(path) if fs.is_directory(path) else ()
        foreign += [join(room, each.name) for each in held if each.is_directory or parse_start(each.name) is None]
    if foreign:
        below = " and ".join(other.directory for other in nodes_below(fs, node.directory))
        hint = (
            f"the directories of its nodes are {below}"
            if below
            else "give an empty directory, or the directory of a node"
        )
        raise NotAStore(node.directory, f"has {foreign[0]}, which does not belong to a DLedger node; {hint}")


def require_alone(node: LedgerNode) -> None:
    """Raises StoreInUse where another process has the node's files mapped, as a running one of Java has, and where
    that cannot be told."""
    process, owner = mapping_process(node.directory), unseen_owner(node.directory)
    if process is not None:
        raise StoreInUse(node.directory, f"process {process} has its files mapped, as a running DLedger node has")
    if owner is not None:
        raise StoreInUse(
            node.directory, f"user {owner} owns it, and only that user and root can see whether a DLedger node has its "
                "files mapped: open it as one of these users",
        )  # fmt: skip


def save_term(fs: FileSystem, node: LedgerNode, term: Term) -> None:
    """Notes the term and the vote, durably.  Raises OSError."""
    replace_file(fs, join(node.directory, TERM_FILE), term_text(term).encode())


def load_term(fs: FileSystem, node: LedgerNode) -> Term:
    """The term and the vote; term 0 without a vote where nothing was ever noted.  Raises StoreDamaged for a file that
    says nothing."""
    found = term_of(fs, node)
    if found is not None:
        return found
    path = join(node.directory, TERM_FILE)
    if fs.exists(path):
        hint = (
            f"find the term in its newest entries or at other members; then write currTerm=TERM and "
            f"voteLeader={node.self_id}"
        )
        raise StoreDamaged(path, 0, f"names no term: {hint}")
    return Term(0, None)


def require_term_of(node: LedgerNode, term: Term, newest: int) -> None:
    """Raises StoreDamaged where the node has entries of a `newest` term that its own file does not reach: that is gone
    or an older one, and the node may have voted since."""
    if term.number < newest:
        hint = f"write currTerm={newest} and voteLeader= with the vote of the node, which the other members know"
        raise StoreDamaged(
            join(node.directory, TERM_FILE),
            0,
            f"says term {term.number}, but the node has entries of term {newest}: {hint}",
        )


def save_committed(fs: FileSystem, node: LedgerNode, committed: int, end: int) -> None:
    """Notes the index of the last entry that is agreed on, and of the last one, durably.  Raises OSError."""
    replace_file(fs, join(node.directory, CHECKPOINT_FILE), checkpoint_text(committed, end).encode())


def require_committed(fs: FileSystem, node: LedgerNode, last: int, *, may_lack: bool) -> None:
    """Raises StoreDamaged where the data end with entry `last`, and more was agreed on, unless it `may_lack`."""
    committed = load_committed(fs, node)
    if committed > last and not may_lack:
        hint = "on_middle_damage='cut' continues with the remaining entries"
        reason = f"the group agreed on entry {committed}, but the data end with entry {last}; {hint}"
        raise StoreDamaged(join(node.directory, CHECKPOINT_FILE), 0, reason)


def load_committed(fs: FileSystem, node: LedgerNode) -> int:
    """The index of the last entry that is known to be agreed on; -1 for none."""
    return committed_index(fs, node)


def noted_committed(fs: FileSystem, node: LedgerNode) -> int:
    """As `load_committed`, by the checkpoint alone: what a crash left beside it may not be on the disk."""
    return committed_index(fs, node, spares=())
