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
from rmqstore.directory.log_files import LogView
from rmqstore.files.disk import ReadableDisk, StoredFile
from rmqstore.formats.dledger import Term
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
    index = committed_index(disk, node)
    divided_at = wrapped[0].start if len(wrapped) < len(log_files) else 0
    return LedgerExtent(node, term_of(disk, node), index, entry_end(disk, node, index) or 0, divided_at)


def bare_log(disk: ReadableDisk, directory: str) -> tuple[LedgerExtent, tuple[StoredFile, ...]]:
    """A node's log and data files by its directory alone, as where the group is another program's than a broker."""
    node = LedgerNode(directory)
    index = committed_index(disk, node)
    ledger = LedgerExtent(node, term_of(disk, node), index, entry_end(disk, node, index) or 0, 0)
    return settled(disk, ledger, ledger.committed_end), wrapped_files(disk, node.data)


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
