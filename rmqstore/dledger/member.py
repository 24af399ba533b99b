"""A store's directory of a DLedger group of which it is the only member: found, opened, kept up."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmqstore.config import StoreConfig
from rmqstore.core.ledger_config import LedgerConfig
from rmqstore.directory.ledger.nodes import (
    INDEX_ROOM,
    LOOKED_AT,
    TERM_FILE,
    LedgerNode,
    begins_with_message,
    nodes_below,
    term_of,
    wrapped_files,
)
from rmqstore.directory.listing import stored_files
from rmqstore.dledger.entry_rules import TERM_MAX
from rmqstore.dledger.index import looked_at_index, opened_index
from rmqstore.dledger.repair import last_entry, repaired, require_no_hole, require_repairable
from rmqstore.dledger.state import (
    load_term,
    noted_committed,
    require_alone,
    require_committed,
    save_committed,
    save_term,
)
from rmqstore.dledger.windows import EntryFiles
from rmqstore.dledger.wrapping import EntryForm
from rmqstore.engine.log.ledger_paths import entry_paths, node_of, with_ledger_paths
from rmqstore.engine.log.put.commitlog import CommitLog, Wrapping
from rmqstore.engine.log.recovery.apply import StoreParts
from rmqstore.engine.log.recovery.plan import RecoveryPlan
from rmqstore.errors import NotAStore, Rejected, StoreDamaged
from rmqstore.files.disk import StoredFile, read_part
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import FileSystem, directory_of, join
from rmqstore.formats.dledger import ENTRY_HEAD, Term, is_entry
from rmqstore.formats.framing import Divided
from rmqstore.formats.names import CONFIG_ROOM, LOG_ROOM, QUEUE_ROOMS

# Of the files that an opening looks at before it changes anything.
_OPEN_FILES_MAX = 16


class FoundMember(NamedTuple):
    """A member before it is opened: its directory, its term, the store's configuration with the paths of its log."""

    fs: FileSystem
    node: LedgerNode
    settings: LedgerConfig
    config: StoreConfig
    term: Term
    has_data: bool

    def require(self, plan: RecoveryPlan) -> None:
        """Looks at a plan of the store's recovery.  Raises StoreDamaged where it would go on without entries that the
        group has agreed on, or where the index has files of several sizes."""
        last, _ = last_entry(plan.heads)
        if not self.has_data:
            self._require_new(plan)
        require_committed(self.fs, self.node, last, may_lack=self.config.on_middle_damage == "cut")
        self._require_whole(plan)
        _, newest = last_entry(plan.heads)
        if max(newest, self.term.number) >= TERM_MAX:
            raise StoreDamaged(
                self.node.directory,
                0,
                f"term {max(newest, self.term.number)} is the largest that DLedger has: no new term can start",
            )

    def _require_new(self, plan: RecoveryPlan) -> None:
        """Raises StoreDamaged where no file of data is there, and something tells that there was one."""
        tells = [queue.directory for queue in plan.queues if queue.entry_end > queue.next_offset]
        index = join(self.node.directory, INDEX_ROOM)
        if stored_files(self.fs, index):
            tells.append(index)
        if self.term.number and tells and self.config.on_middle_damage != "cut":
            hint = "give the data_paths of before; on_middle_damage='cut' continues without the entries"
            raise StoreDamaged(
                self.config.log_paths[0],
                0,
                f"there is no data file, but {tells[0]} shows that there were entries; {hint}",
            )

    def _require_whole(self, plan: RecoveryPlan) -> None:
        """Raises StoreDamaged where data are missing between others, and where the index is lost and the data are not
        whole."""
        handles = FileHandles(self.fs, _OPEN_FILES_MAX)
        try:
            index = looked_at_index(self.fs, handles, self.node, self.settings.index_file_size)
            if plan.heads:
                log = FileSequence(self.fs, handles, plan.log_directories, plan.log_file_size)
                log.load(repair=False)
                begin = self.divider(log)
                require_no_hole(log, begin, may_lack=self.config.on_middle_damage == "cut")
                require_repairable(index, EntryFiles(log, begin, plan.log_end), plan.heads)
        finally:
            handles.close()

    def divider(self, log: FileSequence) -> int:
        """The offset from which on records stand in entries."""
        data = {*entry_paths(self.fs, self.config)}
        divider = next((start for start in log.starts if directory_of(log.path_of(start)) in data), None)
        return log.end if divider is None else divider

    def joining(self) -> "Joining":
        """Its part in the recovery of its store."""
        return Joining(self)


class Joining:
    """A member's part in the recovery of its store: an `Aside`, after which `member` is there."""

    member: "LedgerMember"

    def __init__(self, found: FoundMember) -> None:
        self._found = found

    def require(self, plan: RecoveryPlan) -> None:
        """As FoundMember.require."""
        self._found.require(plan)

    def log_settled(self, parts: StoreParts, plan: RecoveryPlan) -> None:
        """Opens the member, whose checkpoint has to say how far the group agrees before the queues, which say it as
        well, are cut to be made again: readers would not see messages that they saw before."""
        self.member = LedgerMember(self._found.fs, self._found, parts, plan)


def found_member(fs: FileSystem, root: str, config: StoreConfig) -> FoundMember:
    """The member of `config.dledger` below `root`, whose store's lock the caller holds.  Looks, and changes nothing.

    Raises NotAStore where another member is there, or an ordinary commitlog that nobody said to convert; Rejected for
    what another member may still decide about; StoreDamaged for a torn term, OSError.
    """
    settings = config.dledger
    assert settings is not None
    node, placed = node_of(root, settings), with_ledger_paths(fs, root, config)
    others = [other.self_id for other in nodes_below(fs, root) if other.self_id != settings.self_id]
    data = entry_paths(fs, placed)
    files = [file for path in data for file in _data_files(fs, path)]
    old = [path for path in placed.read_only_log_paths if path not in data]
    if others:
        raise NotAStore(root, f"has member {' and '.join(others)} of a DLedger group, and self_id={settings.self_id!r}")
    for path in dict.fromkeys((*settings.data_paths, *(each for each in data if each != node.data))):
        _require_apart(fs, path, root, node)
        _require_own(fs, path, node)
    require_alone(node)
    term = load_term(fs, node)
    if old and not files and not settings.converts and not term.number:
        raise NotAStore(
            root, f"has an ordinary commitlog, {old[0]}; open it without dledger=, or set "
                "LedgerConfig(converts=True) to continue in a DLedger log, which only brokers in DLedger mode can open",
        )  # fmt: skip
    if term.voted_for != settings.self_id and not settings.takes_over and _has_entries(fs, files):
        voted = f"the member voted for {term.voted_for!r} in term {term.number}, so its group has other members"
        if term.voted_for is None:
            voted = f"it has entries, and {TERM_FILE} names no vote for itself: its group may have other members"
        raise Rejected(
            f"{node.directory}: {voted}, which may have agreed on different last entries; "
            "LedgerConfig(takes_over=True) continues alone with the entries of this member"
        )
    return FoundMember(fs, node, settings, placed, term, bool(files))


def _taken_for_agreed(found: FoundMember, plan: RecoveryPlan) -> list[str]:
    """A warning where entries become messages that no checkpoint calls agreed on, and nobody said that they may.

    So it is after each kill of a member that is alone; and where a former leader of several is taken for one that is.
    """
    committed, (last, _) = noted_committed(found.fs, found.node), last_entry(plan.heads)
    if last <= committed or found.settings.takes_over:
        return []
    told = (
        f"{last - committed} entries, up to entry {last}, are taken as agreed on by the group; the checkpoint of "
        f"the member says {committed}"
    )
    return [f"{found.node.directory}: {told}. This is right if the group has no other member: if it has, ask them"]


def _require_apart(fs: FileSystem, path: str, root: str, node: LedgerNode) -> None:
    """Raises NotAStore for data in a directory that is the store's for other files."""
    rooms = (LOG_ROOM, CONFIG_ROOM, INDEX_ROOM, *QUEUE_ROOMS)
    taken = (root, node.directory, join(node.directory, INDEX_ROOM), *(join(root, room) for room in rooms))
    if fs.real_path(path) in map(fs.real_path, taken):
        raise NotAStore(path, "holds other files of this store; data_paths must name directories for data files alone")


def _require_own(fs: FileSystem, path: str, node: LedgerNode) -> None:
    """Raises NotAStore for the data of a member in another root, whose term and votes stand there."""
    other = LedgerNode(directory_of(path))
    if fs.real_path(other.directory) != fs.real_path(node.directory) and term_of(fs, other) is not None:
        raise NotAStore(path, f"belongs to the DLedger member in {other.directory}; open the root above that directory")


def _has_entries(fs: FileSystem, files: Sequence[StoredFile]) -> bool:
    heads = (read_part(fs, file.path, 0, ENTRY_HEAD.size) for file in files)
    return any(is_entry(head, file.start) for head, file in zip(heads, files, strict=True))


def _data_files(fs: FileSystem, path: str) -> Sequence[StoredFile]:
    """The files of a directory of data.  Raises NotAStore if they are no DLedger's."""
    listed = stored_files(fs, path)
    found = wrapped_files(fs, path)
    if listed and not found:
        raise NotAStore(path, "holds files that are not DLedger data, although dledger= names it as a data directory")
    for file in [each for each in found if each.size][:1]:
        data = read_part(fs, file.path, 0, LOOKED_AT)
        if is_entry(data, file.start) and not begins_with_message(data, file.start):
            raise NotAStore(path, "holds entries that are not messages: the log of another program")
    return found


class LedgerMember:
    """An open member: `wrapping` is for the commitlog; `step` keeps index and checkpoint up, `close` ends it cleanly.

    Made in the recovery of the store, once its log is settled: the data decide about the index.  Raises OSError,
    StoreDamaged.
    """

    def __init__(self, fs: FileSystem, found: FoundMember, parts: StoreParts, plan: RecoveryPlan) -> None:
        self._fs, self._node, self._settings = fs, found.node, found.settings
        self._log = parts.log
        self.divider = found.divider(parts.log)
        framing = Divided(self.divider)
        _, newest = last_entry(plan.heads)
        self.index, self.warnings = opened_index(fs, parts.handles, found.node, found.settings.index_file_size)
        self.warnings += _taken_for_agreed(found, plan)
        self.repaired_units = repaired(self.index, EntryFiles(parts.log, self.divider, plan.log_end), plan.heads)
        self.term = max(found.term.number, newest) + 1  # `require` saw that there is a next one
        save_term(fs, found.node, Term(self.term, found.settings.self_id))
        self.wrapping = Wrapping(EntryForm(self.index, self.term, has_crc=found.settings.body_crc), framing)
        self._saved: tuple[int, int] | None = None
        if self.index.end > noted_committed(fs, found.node) + 1:
            self.close()

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
            self.index.forget(self.index.number_from(start))
        return self._settings.checkpoint_interval_ms / 1000

    def close(self) -> None:
        """Notes the end, once the log is on the disk and nothing is appended any more.  Raises OSError."""
        self.index.flush()
        self._save(self.index.end - 1)

    def _save(self, last: int) -> None:
        if self._saved != (last, last):
            save_committed(self._fs, self._node, last, last)
            self._saved = (last, last)
