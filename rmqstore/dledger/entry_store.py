"""A node's log of entries in files, whatever they hold.  Java: DLedgerMmapFileStore; docs/dledger.md says where this
differs, and why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.config import OnMiddleDamage
from rmqstore.core.annotations import plain_values
from rmqstore.core.ledger_config import INDEX_FILE_SIZE
from rmqstore.directory.ledger.nodes import INDEX_ROOM, LedgerNode
from rmqstore.directory.ledger.walk import WRONG_BODY
from rmqstore.dledger.clean_space import DLEDGERS_POLICY, CleanSpace
from rmqstore.dledger.entry_log import Hook
from rmqstore.dledger.entry_plan import plan_entries
from rmqstore.dledger.entry_rules import require_body, require_entry, require_fit, require_number, require_term
from rmqstore.dledger.index import EntryIndex, opened_index
from rmqstore.dledger.repair import last_entry, repaired, require_no_hole
from rmqstore.dledger.state import (
    load_committed,
    load_term,
    require_alone,
    require_committed,
    require_own_directory,
    require_term_of,
    save_committed,
    save_term,
)
from rmqstore.dledger.windows import EntryFiles
from rmqstore.dledger.wrapping import EntryForm
from rmqstore.engine.log.put.commitlog import CommitLog, Wrapping
from rmqstore.engine.log.retention.plan import RetentionPlan, RetentionPolicy
from rmqstore.errors import NotNow, Rejected, StoreDamaged
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import FileSystem, RealFileSystem, directory_of, join
from rmqstore.files.ownership import OwnedFileSystem, Ownership
from rmqstore.files.reading import StorePath, canonical_path
from rmqstore.formats.dledger import ENTRY_BLANK, ENTRY_HEAD, INDEX_UNIT, Entry, Term, index_unit, read_entry
from rmqstore.formats.framing import Divided
from rmqstore.formats.names import LOCK_FILE
from rmqstore.formats.record_crc import masked_crc32

# --- The settings of a log of entries.


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStoreConfig:
    """Sizes of new files, in bytes; where the data files are, instead of `data`; what is done about damage in front of
    sound entries; how long data stay.  Nodes of one group have the same `data_file_size`.
    """

    data_file_size: int = 1024 * 1024 * 1024
    index_file_size: int = INDEX_FILE_SIZE
    data_paths: tuple[str, ...] = ()
    read_only_data_paths: tuple[str, ...] = ()
    on_middle_damage: OnMiddleDamage = "refuse"
    checkpoint_interval_ms: int = 3000
    retention: RetentionPolicy = DLEDGERS_POLICY

    def __post_init__(self) -> None:
        plain, mistakes = plain_values(self)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        least = ENTRY_HEAD.size + ENTRY_BLANK.size
        if not mistakes and not least <= self.data_file_size < 2**31:
            mistakes.append(f"data_file_size={self.data_file_size}: from {least} bytes to below 2 GiB")
        if not mistakes and (not 0 < self.index_file_size < 2**31 or self.index_file_size % INDEX_UNIT.size):
            mistakes.append(f"index_file_size={self.index_file_size}: a multiple of {INDEX_UNIT.size} below 2 GiB")
        if mistakes:
            raise Rejected("; ".join(mistakes))


# ---

_SYNC_S = 60.0
_ANY = 2**200


class EntryStore:
    """The log of the node in `directory`, for one thread at a time; to be closed.

    Opening recovers it: the data decide, and the index is made again where it differs.  Only `flush` makes durable.
    `begin_index` is the first entry's, -1 of an empty log; `committed_index` how far the group agrees, `committed_end`
    the byte of the log where that ends.  Raises StoreDamaged, StoreInUse, NotAStore, OSError.
    """

    def __init__(
        self, directory: StorePath, config: EntryStoreConfig | None = None, clock: Clock = SYSTEM_CLOCK,
        filesystem: FileSystem | None = None,
    ) -> None:  # fmt: skip
        fs = filesystem or RealFileSystem()
        self.config, self._clock = config or EntryStoreConfig(), clock
        self.node = LedgerNode(canonical_path(directory))
        require_own_directory(fs, self.node)
        fs.make_directories(self.node.directory)
        # A store with this member holds the lock of its root; so does a broker.
        locked = directory_of(self.node.directory) if self.node.self_id else self.node.directory
        self._ownership = Ownership(locked, fs.lock(join(locked, LOCK_FILE)))
        self._fs = OwnedFileSystem(fs, self._ownership)
        self._handles = FileHandles(self._fs, 64)
        self.committed_index, self.committed_end = -1, 0
        self._first = 0  # the index of the first entry, there or to come
        self._saved_s = clock.monotonic_s()
        try:
            self._claim()
            self._open()
            self._claim()
        except BaseException:
            self._release()
            raise

    def _claim(self) -> None:
        data = self.config.data_paths or (self.node.data,)
        self._ownership.claim(self._fs, (*data, *self.config.read_only_data_paths))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the state

    @property
    def begin_index(self) -> int:
        """The index of the first entry; -1 for none."""
        return self._first if self.index.end > self._first else -1

    @property
    def end_index(self) -> int:
        """The index of the last entry; -1 for none."""
        return self.index.end - 1 if self.index.end > self._first else -1

    @property
    def end_term(self) -> int:
        """The term of the last entry; 0 for none."""
        last = self.end_index
        return int(self.index.read(last, 1)["term"][0]) if last >= 0 else 0

    @property
    def data_end(self) -> int:
        """The byte of the log after the last entry, or where the next file begins."""
        return self._log.marks.appended

    @property
    def term(self) -> Term:
        """The term that the node is in, and whom it voted for."""
        return self._term

    def save_term(self, term: Term) -> None:
        """Notes a term and a vote, durably, before it answers for it.  Raises OSError; Rejected for an older term,
        and for a second vote in one."""
        self._require_open()
        require_term(term, self._term)
        save_term(self._fs, self.node, term)
        self._term = term

    def _note_term(self, term: int) -> None:
        """Before an entry of this term: a node that lost the note could be told from one that never voted."""
        if term > self._term.number:
            self.save_term(Term(term, None))

    # --- entries

    def append(self, bodies: Sequence[bytes], term: int, hook: Hook | None = None) -> list[Entry]:
        """Appends entries as the leader of a term, next to each other unless a file ends between them.  `hook` may
        change a body once its place is known.  A newer term than the noted one is noted first, durably, without a vote.
        Raises Rejected for a body that no file can hold, and for a term that is over; NotNow while the disk is full;
        OSError, DurabilityLost.
        """
        self._require_open()
        least = max(self.end_term, self._term.number)
        if require_number("term", term) < least:
            raise Rejected(f"term {term}: the node is in term {least}")
        bodies = [require_body(body, self._files.file_size) for body in bodies]
        self._require_room()
        self._note_term(term)
        gap, made = ENTRY_HEAD.size, list[Entry]()
        self._wrapper.term = term
        for body in bodies:
            with self._log.lock:
                place = self._log.place(len(body) + gap)
                changed = bytearray(body)
                if hook is not None:
                    hook(self.index.end, place, changed)
                index = self.index.end
                data = self._wrapper.wrap(place, (changed,))
                self._log.append(place, data, 0, {})
            made.append(Entry(index, term, place - gap, bytes(changed), body_crc=masked_crc32(bytes(changed))))
        return made

    def append_entry(self, entry: Entry) -> None:
        """Appends an entry of the leader's, as it is: at the same place, for all members have the same bytes.

        Raises Rejected unless it is the next one, of no older term, and of this place.
        """
        self._require_open()
        require_entry(entry, self._files.file_size)
        if entry.index != self.end_index + 1 and self.end_index >= 0:
            raise Rejected(f"entry {entry.index}: entry {self.end_index + 1} comes next")
        if entry.term < self.end_term:
            raise Rejected(f"entry {entry.index} of term {entry.term}: the last entry is of term {self.end_term}")
        self._require_room()
        if self.end_index < 0 and entry.index:
            raise Rejected(
                f"entry {entry.index}: an empty log takes entry 0 first; `truncate` begins it at another entry"
            )
        self._require_place(entry)
        self._note_term(entry.term)
        self._take(entry)

    def truncate(self, entry: Entry) -> None:
        """Makes an entry of the leader's the last one, durably: what stood after it cannot come back.  Where the log
        does not reach it, or has other bytes there, it takes its place, and a log that ends before it begins with it.

        Raises Rejected for one that the group has agreed on otherwise; OSError, DurabilityLost.
        """
        self._require_open()
        require_entry(entry, self._files.file_size)
        is_same = self._may_be_last(entry)
        self._note_term(entry.term)
        self.flush()  # what stays is durable from here on
        if not 0 <= self.begin_index <= entry.index <= self.end_index + 1:
            self._begin_again(entry)
        elif entry.index <= self.end_index:
            end = entry.offset + (entry.size if is_same else 0)
            self.index.cut(entry.index + int(is_same))
            self._files.cut(end)
            self._go_on(end)
        if not is_same:
            self._take(entry)
        self.flush()

    def _may_be_last(self, entry: Entry) -> bool:
        """Whether the log has this entry.  Raises Rejected, with nothing changed, where it may not become the last."""
        if entry.index < self.committed_index:
            raise Rejected(f"entry {entry.index}: the group agreed on entry {self.committed_index}")
        begin, end = self.begin_index, self.end_index
        if begin < 0 or entry.index < begin:
            require_fit(entry, self._files.file_size)
            return False
        if entry.index > end + 1:
            if entry.offset < self.data_end:
                raise Rejected(f"entry {entry.index} of byte {entry.offset}: entry {end} ends at {self.data_end}")
            require_fit(entry, self._files.file_size)
            return False
        before = self.get(entry.index - 1) if entry.index > begin else None
        if before is not None and entry.term < before.term:
            raise Rejected(f"entry {entry.index} of term {entry.term}: the previous entry has term {before.term}")
        if entry.index > end:
            self._require_place(entry)
            return False
        held = self.get(entry.index)
        if held.offset != entry.offset:
            raise Rejected(f"entry {entry.index} of byte {entry.offset}: here it is {held.offset}")
        is_same = replace(held, body_crc=0, chain_crc=0) == replace(entry, body_crc=0, chain_crc=0)
        if not is_same and entry.index == self.committed_index:
            raise Rejected(f"entry {entry.index}: the group agreed on a different entry")
        return is_same

    def _require_place(self, entry: Entry) -> None:
        """Raises Rejected unless the entry's place is that of the next one."""
        end, size = self.data_end, self._files.file_size
        room = -end % size if end % size else size
        fits = self._files.holds(end) and entry.size + ENTRY_BLANK.size <= room
        place = end if fits or (not self._files.starts and not end) else end + (-end % size)
        if entry.offset != place:
            raise Rejected(f"entry {entry.index} of byte {entry.offset}: here it is {place}")

    def _take(self, entry: Entry) -> None:
        with self._log.lock:
            place = self._log.place(entry.size)
            assert place - ENTRY_HEAD.size == entry.offset, (place, entry.offset)
            self._log.append(place, self._wrapper.taken(entry), 0, {})

    def get(self, index: int) -> Entry:
        """Entry `index`, agreed on or not.  Raises Rejected for one that is not here, StoreDamaged, OSError."""
        self._require_open()
        if not 0 <= self.begin_index <= require_number("index", index, -_ANY, _ANY) <= self.end_index:
            raise Rejected(f"entry {index}: the log has {self.begin_index} to {self.end_index}")
        unit = self.index.read(index, 1)
        offset, size = int(unit["offset"][0]), int(unit["size"][0])
        found = read_entry(self._files.read(offset, size), 0)
        if not isinstance(found, Entry) or (found.index, found.offset, found.size) != (index, offset, size):
            path = self._files.path_of(offset) if self._files.holds(offset) else self.node.data
            raise StoreDamaged(path, offset % self._files.file_size, f"entry {index} is not at its place in the log")
        if found.body_crc and found.body_crc != masked_crc32(found.body):
            raise StoreDamaged(self._files.path_of(offset), offset % self._files.file_size, WRONG_BODY)
        return found

    def update_committed(self, term: int, index: int) -> bool:
        """Notes that the group agrees up to entry `index`; False where that says nothing new.  It never goes back, and
        not beyond the last entry."""
        self._require_open()
        index = min(require_number("index", index, -_ANY, _ANY), self.end_index)
        if (
            require_number("term", term, -_ANY, _ANY) < self._term.number
            or index <= self.committed_index
            or index < self.begin_index
            or index < 0
        ):
            return False
        unit = self.index.read(index, 1)
        self.committed_index, self.committed_end = index, int(unit["offset"][0] + unit["size"][0])
        return True

    # --- the disk

    def flush(self) -> None:
        """Makes all entries durable.  Raises DurabilityLost, OSError, NotNow where the disk takes too long."""
        self._require_open()
        if not self._log.sync_to(self._log.marks.appended, _SYNC_S):
            raise NotNow(f"a sync of the data is not confirmed after {_SYNC_S:g} s")
        self.index.flush()

    def step(self) -> float:
        """Makes all durable, and now and then notes how far the group agrees; returns after how many seconds to come
        again.  Raises as `flush`."""
        self.flush()
        interval_s = self.config.checkpoint_interval_ms / 1000
        if self._clock.monotonic_s() - self._saved_s >= interval_s:
            self._save()
        return min(interval_s, 0.01)

    def plan_clean(self, *, any_age: bool = False) -> RetentionPlan:
        """The data files that `clean` would delete.  Changes nothing.  Raises OSError."""
        self._require_open()
        flushed, now_ms = self._log.marks.flushed, self._clock.now_ms()
        return self._space.plan(self._files, flushed, self.committed_end, now_ms, any_age=any_age)

    def clean(self, *, any_age: bool = False) -> RetentionPlan:
        """Deletes what `plan_clean` says, and what the index has of it; looks whether the disk is full.  Raises
        OSError."""
        plan = self.plan_clean(any_age=any_age)
        if self._space.apply(plan, self._files):
            self._find_begin()
        return plan

    def destroy(self) -> None:
        """Removes all entries, and what the node knew of its group's; the store stays open, and is empty.  Raises
        OSError."""
        self._require_open()
        save_committed(self._fs, self.node, -1, -1)
        self.committed_index, self.committed_end = -1, 0
        self.index.cut(0)
        self._files.cut(0)
        self._first = 0
        self._go_on(0)

    def close(self) -> None:
        """Makes all durable, notes how far the group agrees, and lets go.  Once more does nothing.  Raises as
        `flush`; it lets go even so."""
        if self._ownership.refusal is not None:
            self._release()
            return
        try:
            self.flush()
            self._save()
        finally:
            self._release()

    def abandon(self) -> None:
        """Lets go as a crash would."""
        self._release()

    # --- parts

    _log: CommitLog
    _term: Term
    _files: FileSequence
    index: EntryIndex
    _wrapper: EntryForm

    def _open(self) -> None:
        config, fs = self.config, self._fs
        require_alone(self.node)
        self._term = load_term(fs, self.node)
        writable = config.data_paths or (self.node.data,)
        paths = (*writable, *(path for path in config.read_only_data_paths if path not in writable))
        taking = sorted(set(writable) - set(config.read_only_data_paths)) or writable
        self._space = CleanSpace(fs, taking, join(self.node.directory, INDEX_ROOM), config.retention)
        for path in paths:
            fs.make_directories(path)
        self.index, self.warnings = opened_index(fs, self._handles, self.node, config.index_file_size)
        size = _data_file_size(fs, paths) or config.data_file_size
        self._files = FileSequence(fs, self._handles, paths, size, pick=self._space.pick, keep_open=True)
        self.warnings += self._files.load()
        require_no_hole(self._files, 0, may_lack=config.on_middle_damage == "cut")
        plan = plan_entries(fs, self._files, self.index, must_refuse=config.on_middle_damage == "refuse")
        last, newest = last_entry(plan.heads)
        require_term_of(self.node, self._term, newest)
        require_committed(fs, self.node, last, may_lack=config.on_middle_damage == "cut")
        repaired(self.index, EntryFiles(self._files, plan.begin, plan.end), plan.heads)
        self._files.cut(plan.end)
        self._files.sync(self._files.start, plan.end)
        self._go_on(plan.end)
        self._find_begin()
        self.update_committed(self._term.number, load_committed(fs, self.node))

    def _go_on(self, end: int) -> None:
        """A log that ends at byte `end`, all of it durable, with the index that there is."""
        self._wrapper = EntryForm(self.index, 0)
        self._log = CommitLog(self._files, end, ownership=self._ownership, wrapping=Wrapping(self._wrapper, Divided(0)))

    def _begin_again(self, entry: Entry) -> None:
        """An empty log whose next entry is this one, wherever in a file that is.

        Nothing counts as agreed on before all is gone: a crash in between leaves a log that is shorter, and can be
        opened.  The unit is on the disk first, as only the index tells where in a file the first entry is.
        """
        save_committed(self._fs, self.node, -1, -1)
        self.committed_index, self.committed_end = -1, 0
        self.index.cut(0)
        self._files.cut(0)
        self._files.add(entry.offset - entry.offset % self._files.file_size)
        self.index.begin(entry.index)
        self.index.announce(entry.index, index_unit(entry))
        self._first = entry.index
        self._go_on(entry.offset)

    def _find_begin(self) -> None:
        """Looks which entry is the first, and takes those before it out of the index."""
        self._first = self.index.number_from(self._files.start)
        self.index.forget(self._first)

    def _require_open(self) -> None:
        self._ownership.require_open()

    def _require_room(self) -> None:
        if self._space.is_full:
            raise NotNow("the disk is full; call `clean`, or free space on it")

    def _save(self) -> None:
        save_committed(self._fs, self.node, self.committed_index, self.end_index)
        self._saved_s = self._clock.monotonic_s()

    def _release(self) -> None:
        if not self._ownership.is_inherited:
            self._handles.close()
        self._ownership.end()


def _data_file_size(fs: FileSystem, paths: Sequence[str]) -> int | None:
    """The size that data files have; None for none, or several."""
    sizes = {entry.size for path in paths for entry in fs.entries(path) if not entry.is_directory and entry.size}
    return sizes.pop() if len(sizes) == 1 else None
