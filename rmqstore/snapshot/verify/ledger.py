"""A DLedger node's entries against each other and against its index, and its small files."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rmqstore.directory.ledger.nodes import (
    CHECKPOINT_FILE,
    TERM_FILE,
    LedgerNode,
    holds_messages,
    index_units,
    is_unit_blank,
)
from rmqstore.directory.ledger.walk import WRONG_BODY, EntryBreak, EntryStretch, walk_entries
from rmqstore.directory.log_files import LogView
from rmqstore.files.disk import join
from rmqstore.formats import dledger
from rmqstore.snapshot.finding import DAMAGE, NOTE, Finding, Tally, log_place
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.survey.missing_log import nothing_agreed

_UNIT_FIELDS = ("magic", "offset", "size", "index", "term")


def ledger_findings(store: StoreExtent) -> Iterator[Finding]:
    """Everything that is not as it should be in the log of a store's node; nothing where its log is an ordinary one.

    Raises DataLost if a file is deleted meanwhile.
    """
    ledger = store.ledger
    files = [file for file in store.log_files if file.is_wrapped]
    if ledger is None or not files:
        return
    if store.is_bare_node and holds_messages(store.disk, ledger.node):
        reason = "only entries are looked at here; the broker's directory above it has the messages and their queues"
        yield Finding(store.path, 0, reason, NOTE)
    check = _EntryCheck(store, ledger.node)
    end = files[-1].end
    with LogView(store.disk, store.log_files, 0, end) as log:
        for item in walk_entries(log, files[0].start, end):
            yield from check.stretch(item) if isinstance(item, EntryStretch) else check.broken(item)
    yield from check.findings()
    nothing = nothing_agreed(store)
    if nothing is not None:
        yield Finding(join(ledger.node.directory, CHECKPOINT_FILE), 0, nothing)
    if ledger.uncommitted_count:
        reason = (
            f"{ledger.uncommitted_count} entries from index {ledger.uncommitted_from} on, which the group may revoke"
        )
        yield Finding(*log_place(store.log_files, store.log_end), reason, NOTE)
    if ledger.committed_index > check.last_index:
        reason = f"says that entry {ledger.committed_index} is agreed on; the last one is {check.last_index}"
        yield Finding(join(ledger.node.directory, CHECKPOINT_FILE), 0, reason)
    if ledger.term is None:
        yield Finding(join(ledger.node.directory, TERM_FILE), 0, "is missing or says no term", NOTE)
    elif ledger.term.number < check.last_term:
        reason = f"says term {ledger.term.number}; the last entry has {check.last_term}"
        yield Finding(join(ledger.node.directory, TERM_FILE), 0, reason)


class _EntryCheck:
    """Follows a walk of the entries with the units of the index."""

    def __init__(self, store: StoreExtent, node: LedgerNode) -> None:
        self._store, self._node = store, node
        self._tally = Tally()
        self._units: Iterator[npt.NDArray[np.void]] | None = None
        self._block = np.zeros(0, dledger.INDEX_UNIT.dtype)
        self._lost_from: int | None = None
        self.last_index, self.last_term = -1, -1

    def broken(self, found: EntryBreak) -> Iterator[Finding]:
        """A place without an entry; the end of the log is none of these."""
        if found.resume is None and (found.is_empty or found.offset >= self._store.log_end):
            if not found.is_empty:
                yield self._at(found.offset, f"after the last entry: {found.reason}", NOTE)
            return
        follows = "" if found.resume is None else f"; the next entry is at {found.resume} of the log"
        yield self._at(found.offset, f"{found.reason}{follows}")

    def stretch(self, found: EntryStretch) -> Iterator[Finding]:
        """Numbers that do not follow each other, terms that fall, a body that its CRC contradicts, and units of the
        index that say something else.
        """
        heads = found.heads
        index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
        before = np.concatenate(([self.last_index], index[:-1]))
        for row in np.flatnonzero(found.out_of_order(self.last_index, self.last_term)).tolist():
            said = f"entry {index[row]} of term {term[row]} follows entry {before[row]}"
            yield self._at(int(found.offsets[row]), said)
        if self._store.is_bare_node:  # of a broker's messages the walk of their records tells
            for offset in found.offsets[found.wrong_bodies()].tolist():
                yield self._at(offset, WRONG_BODY)
        self._compare(found)
        self.last_index, self.last_term = int(index[-1]), int(term[-1])

    def findings(self) -> Iterator[Finding]:
        """The findings that were counted on the way."""
        yield from self._tally.findings()

    def _compare(self, found: EntryStretch) -> None:
        """Counts the entries of a stretch whose units in the index are missing or wrong."""
        expected = np.zeros(len(found.heads), dledger.INDEX_UNIT.dtype)
        for name in _UNIT_FIELDS:
            expected[name] = found.heads[name]
        done = 0
        while done < len(expected):
            block = self._units_from(int(expected["index"][done]))
            count = min(len(block), len(expected) - done)
            if not count:
                self._miss(expected[done:])
                return
            same = block[:count] == expected[done : done + count]
            if not same.all():
                self._miss(expected[done : done + count][~same])
            self._block = block[count:]
            done += count

    def _units_from(self, index: int) -> npt.NDArray[np.void]:
        """The units from entry `index` on as far as they are at hand; nothing where the index ends."""
        if len(self._block) and int(self._block["index"][0]) == index:
            return self._block
        if self._units is None or len(self._block):
            self._units = index_units(self._store.disk, self._node, index)
        self._block = next(self._units, self._block[:0])
        return self._block if len(self._block) and int(self._block["index"][0]) == index else self._block[:0]

    def _miss(self, entries: npt.NDArray[np.void]) -> None:
        position = int(entries["index"][0]) * dledger.INDEX_UNIT.size
        reason = "entries have no unit in the index, or another one; RocketMQ writes it again from the data"
        severity = NOTE if self._is_unwritten(entries) else DAMAGE
        self._tally.add(join(self._node.directory, "index"), position, reason, severity, len(entries))

    def _is_unwritten(self, entries: npt.NDArray[np.void]) -> bool:
        """Whether the index of a member that is running or was killed holds nothing yet for these: it is written in the
        background."""
        ends = {int(entries["index"][0]), int(entries["index"][-1])}
        return self._store.is_live and all(is_unit_blank(self._store.disk, self._node, index) for index in ends)

    def _at(self, offset: int, reason: str, severity: str = "damage") -> Finding:
        return Finding(*log_place(self._store.log_files, offset), reason, severity)
