"""A store's directory of a DLedger group of which it is the only member: found, opened, kept up."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmqstore.config import StoreConfig
from rmqstore.directory.ledger.nodes import LedgerNode, nodes_below, wrapped_files
from rmqstore.directory.listing import stored_files
from rmqstore.dledger.entry_rules import TERM_MAX
from rmqstore.dledger.index import opened_index, require_index
from rmqstore.dledger.repair import last_entry, repaired
from rmqstore.dledger.state import load_term, require_alone, require_committed, save_committed, save_term
from rmqstore.dledger.windows import EntryFiles
from rmqstore.dledger.wrapping import EntryForm
from rmqstore.errors import NotAStore, Rejected, StoreDamaged
from rmqstore.files.disk import StoredFile, read_part
from rmqstore.files.filesystem import FileSystem, directory_of
from rmqstore.formats.dledger import ENTRY_HEAD, Term, is_entry
from rmqstore.formats.framing import Divided
from rmqstore.formats.message import BLANK, MESSAGE_MAGICS
from rmqstore.ledger_config import LedgerConfig
from rmqstore.log.ledger_paths import node_of, with_ledger_paths
from rmqstore.log.put.commitlog import CommitLog, Wrapping
from rmqstore.log.recovery.apply import StoreParts
from rmqstore.log.recovery.plan import RecoveryPlan

_LOOKED_AT = 1024


class FoundMember(NamedTuple):
    """A member before it is opened: its directory, its term, the store's configuration with the paths of its log."""

    fs: FileSystem
    node: LedgerNode
    settings: LedgerConfig
    config: StoreConfig
    term: Term

    def require(self, plan: RecoveryPlan) -> None:
        """Looks at a plan of the store's recovery.  Raises StoreDamaged where it would go on without entries that the
        group has agreed on, or where the index has files of several sizes."""
        last, _ = last_entry(plan.heads)
        require_committed(self.fs, self.node, last, may_lack=self.config.on_middle_damage == "cut")
        require_index(self.fs, self.node)
        _, newest = last_entry(plan.heads)
        if max(newest, self.term.number) >= TERM_MAX:
            raise StoreDamaged(self.node.directory, 0, f"its term is {max(newest, self.term.number)}: none can follow")

    def opened(self, parts: StoreParts, plan: RecoveryPlan) -> "LedgerMember":
        """The member, open; see there."""
        return LedgerMember(self.fs, self, parts, plan)


def found_member(fs: FileSystem, root: str, config: StoreConfig) -> FoundMember:
    """The member of `config.dledger` below `root`, whose store's lock the caller holds.  Looks, and changes nothing.

    Raises NotAStore where another member is there, or an ordinary commitlog that nobody said to convert; Rejected for
    what another member may still decide about; StoreDamaged for a torn term, OSError.
    """
    settings = config.dledger
    assert settings is not None
    node, placed = node_of(root, settings), with_ledger_paths(fs, root, config)
    others = [other.self_id for other in nodes_below(fs, root) if other.self_id != settings.self_id]
    files, old = [file for path in placed.log_paths for file in _data_files(fs, path)], placed.read_only_log_paths
    if others:
        raise NotAStore(root, f"has member {' and '.join(others)} of a DLedger group, and self_id={settings.self_id!r}")
    require_alone(node)
    term = load_term(fs, node)
    if old and not files and not settings.converts and not term.number:
        raise NotAStore(
            root, f"has an ordinary commitlog, {old[0]}; open it without dledger=, or say LedgerConfig(converts=True) "
            "to go on in a DLedger log after it, which only brokers in DLedger mode open afterwards",
        )  # fmt: skip
    if files and term.voted_for not in (None, settings.self_id) and not settings.takes_over:
        raise Rejected(
            f"{node.directory}: the member voted for {term.voted_for!r} in term {term.number}, so its group has "
            "others, which may have agreed on other entries at its end; LedgerConfig(takes_over=True) goes on alone "
            "with what it has"
        )
    return FoundMember(fs, node, settings, placed, term)


def _data_files(fs: FileSystem, path: str) -> Sequence[StoredFile]:
    """The files of a directory of data.  Raises NotAStore if they are no DLedger's."""
    listed = stored_files(fs, path)
    found = wrapped_files(fs, path)
    if listed and not found:
        raise NotAStore(path, "holds files that are no DLedger's, though dledger= says that its data are there")
    for file in found[:1]:
        data = read_part(fs, file.path, 0, _LOOKED_AT)
        body = data[ENTRY_HEAD.size :]
        if is_entry(data, file.start) and len(body) >= BLANK.size and BLANK.read(body)["magic"] not in MESSAGE_MAGICS:
            raise NotAStore(path, "holds entries that are no messages: the log of another program's group")
    return found


class LedgerMember:
    """An open member: `wrapping` is for the commitlog; `step` keeps index and checkpoint up, `close` ends it cleanly.

    Made after the recovery of the store, whose data decide about the index.  Raises OSError, StoreDamaged.
    """

    def __init__(self, fs: FileSystem, found: FoundMember, parts: StoreParts, plan: RecoveryPlan) -> None:
        self._fs, self._node, self._settings = fs, found.node, found.settings
        self._log = parts.log
        data = {*found.config.log_paths}
        divider = next((start for start in parts.log.starts if directory_of(parts.log.path_of(start)) in data), None)
        self.divider = parts.log.end if divider is None else divider
        framing = Divided(self.divider)
        _, newest = last_entry(plan.heads)
        self.index, self.warnings = opened_index(fs, parts.handles, found.node, found.settings.index_file_size)
        self.repaired_units = repaired(self.index, EntryFiles(parts.log, self.divider, plan.log_end), plan.heads)
        self.term = max(found.term.number, newest) + 1  # `require` saw that there is a next one
        save_term(fs, found.node, Term(self.term, found.settings.self_id))
        self.wrapping = Wrapping(EntryForm(self.index, self.term, has_crc=found.settings.body_crc), framing)
        self._saved: tuple[int, int] | None = None

    def begin(self, log: CommitLog) -> None:
        """Has the commitlog go on in entries: one that stands without them is closed by its blank, after which the
        first file of entries begins.  Raises NoLogFile, DurabilityLost."""
        end = log.marks.appended
        if self._log.starts and end <= self.divider and not self._log.holds(self.divider):
            with log.lock:
                log.place(0, begins_file=True)

    def step(self, log: CommitLog, sync: Callable[[], bool]) -> float:
        """Makes log and index durable, notes how far the group, which is this member, agrees, and removes files of the
        index whose entries are gone.  Raises OSError, DurabilityLost."""
        with log.lock:
            last = self.index.end - 1
        if sync():
            self.index.flush()
            self._save(last)
        start = next((start for start in self._log.starts if start >= self.divider), None)
        if start is not None and start > self.divider:
            head = self._log.read(start, ENTRY_HEAD.size)
            if len(head) == ENTRY_HEAD.size and any(head):
                self.index.forget(ENTRY_HEAD.read(head)["index"])
        return self._settings.checkpoint_interval_ms / 1000

    def close(self) -> None:
        """Notes the end, once the log is on the disk and nothing is appended any more.  Raises OSError."""
        self.index.flush()
        self._save(self.index.end - 1)

    def _save(self, last: int) -> None:
        if self._saved != (last, last):
            save_committed(self._fs, self._node, last, last)
            self._saved = (last, last)
