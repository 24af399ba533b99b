"""How much of a DLedger node's log counts: what its group has agreed on, as far as the node's own files tell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rmqstore.directory.ledger.nodes import (
    LedgerNode,
    chosen_node,
    committed_index,
    entry_end,
    index_units,
    term_of,
    wrapped_files,
)
from rmqstore.directory.ledger.walk import EntryBreak, walk_entries
from rmqstore.directory.log_files import LogView
from rmqstore.files.disk import ReadableDisk, StoredFile
from rmqstore.formats.dledger import ENTRY_HEAD, Term, is_entry
from rmqstore.snapshot.survey.queue_entries import QueueEntries


@dataclass(frozen=True, slots=True)
class LedgerExtent:
    """A node's log at the moment of opening.

    `committed_index` and `committed_end`, where in the log that entry ends, are the checkpoint's, -1 and 0 where it
    tells nothing.  The group has agreed on what stands before `agreed_end` of the log, by the queues as well.  From
    there on stand `uncommitted_count` entries, the first of index `uncommitted_from`, as far as the node's index goes:
    the group may still revoke them.  `divided_at`: before it the log is the one
    that the broker kept before it went over to DLedger; 0 where it had none.
    """

    node: LedgerNode
    term: Term | None
    committed_index: int
    committed_end: int
    divided_at: int
    agreed_end: int = 0
    uncommitted_from: int = 0
    uncommitted_count: int = 0


def ledger_extent(
    disk: ReadableDisk, root: str, extra_logs: Sequence[str], log_files: Sequence[StoredFile]
) -> LedgerExtent | None:
    """The node's log as its small files tell of it; None where the log is an ordinary one.  Raises OSError."""
    wrapped = [file for file in log_files if file.is_wrapped]
    node = chosen_node(disk, root, extra_logs) if wrapped else None
    if node is None:
        return None
    divided_at = wrapped[0].start if len(wrapped) < len(log_files) else 0
    return LedgerExtent(node, term_of(disk, node), *_committed(disk, node, wrapped), divided_at)


def bare_log(disk: ReadableDisk, directory: str) -> tuple[LedgerExtent, tuple[StoredFile, ...]]:
    """A node's log and data files by its directory alone, as where the group is another program's than a broker."""
    node = LedgerNode(directory)
    files = wrapped_files(disk, node.data)
    ledger = LedgerExtent(node, term_of(disk, node), *_committed(disk, node, files), 0)
    return settled(disk, ledger, ledger.committed_end), files


def _committed(disk: ReadableDisk, node: LedgerNode, files: Sequence[StoredFile]) -> tuple[int, int]:
    """The last entry that the checkpoint calls agreed on, and where in the log it ends: by the index of entries, or,
    where that is lost, by the entries of the data files."""
    index = committed_index(disk, node)
    end = entry_end(disk, node, index)
    files = [file for file in files if file.size]
    if end is None and index >= 0 and files:
        with LogView(disk, files, 0, files[-1].end) as view:
            end = _end_in_data(view, files, index)
    return index, end or 0


def _end_in_data(view: LogView, files: Sequence[StoredFile], index: int) -> int:
    """Where entry `index` ends.  Where damage took that entry: where a later one begins, or, without any, behind the
    first bytes that its head would take: then all entries that are there were agreed on.
    """
    begins = [file.start for file in files if (first := _first_index(view, file)) is not None and first <= index]
    reached = start = begins[-1] if begins else files[0].start
    following: int | None = None  # not trusted before that entry was looked for: a head may be damaged
    for item in walk_entries(view, start, view.end):
        if isinstance(item, EntryBreak):
            continue
        own = np.flatnonzero(item.heads["index"] == index)
        if len(own):
            return int(item.offsets[own[0]]) + int(item.heads["size"][own[0]])
        later = np.flatnonzero(item.heads["index"] > index)
        if len(later) and following is None:
            following = int(item.offsets[later[0]])
        reached = item.end
    return reached + ENTRY_HEAD.size if following is None else following


def _first_index(view: LogView, file: StoredFile) -> int | None:
    """The index of a data file's first entry; None where none stands there."""
    page, position = view.window(file.start, ENTRY_HEAD.size)
    head = page[position : position + ENTRY_HEAD.size].tobytes()
    return int(ENTRY_HEAD.read(head)["index"]) if is_entry(head, file.start) else None


def agreed_end(ledger: LedgerExtent, entries: QueueEntries, view: LogView) -> int:
    """Where the part of the log ends that cannot be revoked: what the queues list, for a broker dispatches no further
    than its group has agreed, or what the checkpoint says, whichever is more.  Raises DataLost.
    """
    return min(max(ledger.committed_end, ledger.divided_at, entries.listed_end()), view.end)


def settled(disk: ReadableDisk, ledger: LedgerExtent, end: int) -> LedgerExtent:
    """The node's log, whose group has agreed on what stands before `end`, with what it has besides."""
    first, count = 0, 0
    for units in index_units(disk, ledger.node, max(ledger.committed_index, 0)):
        behind = np.flatnonzero(units["offset"] >= end)
        if len(behind) and not count:
            first = int(units["index"][behind[0]])
        count += len(behind)
    return replace(ledger, agreed_end=end, uncommitted_from=first, uncommitted_count=count)
