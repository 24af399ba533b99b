"""Which files are a store's log, and which directories hold none that can be read."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rmqstore.directory.layouts import is_within_node, logs_below, root_hint
from rmqstore.directory.ledger.nodes import (
    NODE_PREFIX,
    LedgerNode,
    chosen_node,
    holds_entries,
    nodes_below,
    wrapped_files,
)
from rmqstore.directory.listing import numbered_files
from rmqstore.errors import NotAStore, UnsupportedLayout
from rmqstore.files.disk import DirectoryEntry, ReadableDisk, StoredFile, join
from rmqstore.formats import names

NODE_ADVICE = (
    "belongs to a node of a DLedger group: give the broker's directory above it; of a group without a broker "
    "table=entries shows the entries"
)
_CHOOSE_ADVICE = "name the one to read: storePathCommitLog={data}, in Python [[{root!r}, {data!r}]]"
_ELSEWHERE_ADVICE = (
    "a DLedger node without data files: name their directory (storePathDLedgerCommitLog) as storePathCommitLog"
)
_ALONE_ADVICE = (
    "of a DLedger group, and nothing of a broker stands beside it: table=entries shows its entries; where they are a "
    "broker's messages, open the store for writing once, which makes its queues"
)
_NO_PATTERN = (
    "a path is no pattern: the directory in which all stores are goes to the option `stores` of Spark, or to "
    "rmqstore.StoresIn(PATH) in Python"
)
_FOREIGN_ADVICE = "entries of DLedger's outside of a node's directory; name their directory as storePathCommitLog"
_OF_A_STORE = frozenset((names.LOG_ROOM, names.PLAIN_ROOM, names.BATCH_ROOM, names.INDEX_ROOM, names.CHECKPOINT_FILE,
                         names.CONFIG_ROOM))  # fmt: skip
_JUST_OPENED = frozenset((names.LOCK_FILE, names.ABORT_FILE))  # by a writer who has put nothing yet


class _Logs(NamedTuple):
    """Files of an ordinary log, and of a DLedger node's; each as they were found."""

    plain: list[StoredFile]
    wrapped: list[StoredFile]

    @property
    def is_doubled(self) -> bool:
        """Whether both have the same part of the log."""
        return bool(self.wrapped) and any(file.size and file.end > self.divided_at for file in self.plain)

    @property
    def divided_at(self) -> int:
        """Where the node's log begins."""
        return self.wrapped[0].start


class RootLook(NamedTuple):
    """A root at one moment: the names of all that is in it, and the files of its log, those of `extra_logs`
    among them, which are log directories that somebody names.
    """

    root: str
    extra_logs: tuple[str, ...]
    children: frozenset[str]
    log_files: tuple[StoredFile, ...]


def look_at_root(disk: ReadableDisk, root: str, extra_logs: tuple[str, ...] = ()) -> RootLook:
    """The root as it is now; nothing is in it where there is no such directory.  Raises NotAStore."""
    children = disk.entries(root)
    files = _by_start(_logs(disk, root, extra_logs, children))
    return RootLook(root, extra_logs, frozenset(child.name for child in children), files)


def find_log_files(disk: ReadableDisk, root: str, extra: tuple[str, ...] = ()) -> tuple[StoredFile, ...]:
    """Commitlog files of all directories by start; of two with one name the first found counts, as Java sorts them.

    A file that is still empty is left out where it is being made: after all others.  A broker that went over to
    DLedger has its log from before in front of the node's.
    """
    return look_at_root(disk, root, extra).log_files


def _by_start(logs: _Logs) -> tuple[StoredFile, ...]:
    by_start: dict[int, StoredFile] = {}
    for file in logs.plain:
        if not logs.wrapped or file.start < logs.divided_at:
            by_start.setdefault(file.start, file)
    for file in logs.wrapped:
        by_start.setdefault(file.start, file)
    found = [by_start[start] for start in sorted(by_start)]
    while found and not found[-1].size:
        found.pop()
    return tuple(found)


def _logs(disk: ReadableDisk, root: str, extra: Sequence[str], children: Sequence[DirectoryEntry]) -> _Logs:
    """The files of each kind.  The only node below the root is read unless `extra`, log directories that somebody
    names, has another's, or the root's own commitlog.
    """
    wrapped = {directory: wrapped_files(disk, directory) for directory in extra}
    is_told = any(wrapped.values()) or join(root, names.LOG_ROOM) in extra
    if not is_told and any(child.name.startswith(NODE_PREFIX) for child in children):
        node = chosen_node(disk, root, ())
        wrapped |= {} if node is None else {node.data: wrapped_files(disk, node.data)}
    plain = [*logs_below(disk, root, children).values()]
    plain += [numbered_files(disk, directory) for directory in extra if not wrapped[directory]]
    entries = sorted((file for files in wrapped.values() for file in files), key=lambda file: file.start)
    return _Logs([file for log in plain for file in log.files], entries)


def refuse_unread_layouts(disk: ReadableDisk, found: RootLook) -> None:
    """Raises NotAStore for a directory without a store; UnsupportedLayout for a DLedger node's, for several nodes, or a
    node and a commitlog, of which nobody chose one, and for data files elsewhere.
    """
    root, log_files = found.root, found.log_files
    # Names tell of links that lead nowhere, too.
    children: Collection[str] = found.children if names.LOG_ROOM in found.children else disk.names(root)
    if not disk.is_directory(root):
        reason = "is not a directory" if disk.exists(root) else "does not exist here"
        wanted = _NO_PATTERN if {"*", "?"}.intersection(root) else names.ROOT_WANTED
        raise NotAStore(root, f"{reason}; {wanted}")
    if is_within_node(disk, root, children):
        raise UnsupportedLayout(root, NODE_ADVICE)
    if any(name.startswith(NODE_PREFIX) for name in children):
        _refuse_nodes(disk, found, children)
    first = log_files[0] if log_files else None
    if first is not None and not first.is_wrapped and holds_entries(disk, first):
        raise UnsupportedLayout(first.path, _FOREIGN_ADVICE)
    log = join(root, names.LOG_ROOM)
    if names.LOG_ROOM in children and not disk.is_directory(log):
        raise NotAStore(root, f"{log} is no directory, or a link that leads nowhere: the messages are elsewhere")
    if not log_files and not _OF_A_STORE.intersection(children) and not _JUST_OPENED.issubset(children):
        raise NotAStore(root, f"holds no RocketMQ store; {root_hint(disk, root, children)}")


def _refuse_nodes(disk: ReadableDisk, found: RootLook, children: Collection[str]) -> None:
    root, extra, log_files = found.root, found.extra_logs, found.log_files
    nodes = nodes_below(disk, root)
    if not nodes or join(root, names.LOG_ROOM) in extra:
        return
    known = ", ".join(node.self_id for node in nodes)
    if not any(file.is_wrapped for file in log_files):
        if len(nodes) == 1:
            raise UnsupportedLayout(nodes[0].directory, _ELSEWHERE_ADVICE)
        raise UnsupportedLayout(root, f"holds the nodes {known}; {_to_choose(root, nodes[0])}")
    if len(nodes) > 1 and chosen_node(disk, root, extra) is None:
        raise UnsupportedLayout(root, f"holds the nodes {known}, and the log that is named lies outside of all of them")
    if not extra and _logs(disk, root, extra, disk.entries(root)).is_doubled:
        reason = f"holds a commitlog and the DLedger log of {known} for the same offsets"
        raise UnsupportedLayout(root, f"{reason}; {_to_choose(root, nodes[0])}, or its commitlog in the same way")
    if not _OF_A_STORE.intersection(children):
        raise UnsupportedLayout(nodes[0].directory, _ALONE_ADVICE)


def _to_choose(root: str, node: LedgerNode) -> str:
    return _CHOOSE_ADVICE.format(root=root, data=node.data)
