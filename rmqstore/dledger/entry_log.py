"""A log of entries as a group uses it: `EntryStore` has it in files, and here is one in memory.

Both are a log and nothing of a group: who leads, and in which term, their caller knows, and gives them one thing after
the other.  Java: DLedgerStore, DLedgerMemoryStore.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from rmqstore.errors import Rejected
from rmqstore.formats.dledger import ENTRY_HEAD, Entry

# Called with an entry's index, the offset of its body in the log, and the body: it may change bytes of it.
Hook = Callable[[int, int, bytearray], object]


class EntryLog(Protocol):
    """The interface of both stores; see EntryStore."""

    begin_index: int
    committed_index: int

    @property
    def end_index(self) -> int:
        """The index of the last entry; -1 for none."""

    @property
    def end_term(self) -> int:
        """The term of the last entry; 0 for none."""

    def append(self, bodies: Sequence[bytes], term: int, hook: Hook | None = None) -> list[Entry]:
        """Appends entries as the leader of a term."""

    def append_entry(self, entry: Entry) -> None:
        """Appends an entry of the leader's, as it is."""

    def truncate(self, entry: Entry) -> None:
        """Makes an entry of the leader's the last one."""

    def get(self, index: int) -> Entry:
        """One entry."""

    def update_committed(self, term: int, index: int) -> bool:
        """Notes how far the group agrees."""


class MemoryEntryStore:
    """The same in memory, for tests: no files, so that an entry's place is what bytes before it would take."""

    def __init__(self) -> None:
        self.begin_index = self.committed_index = -1
        self._entries: dict[int, Entry] = {}
        self._end = 0

    @property
    def end_index(self) -> int:
        """As EntryStore."""
        return max(self._entries, default=-1)

    @property
    def end_term(self) -> int:
        """As EntryStore."""
        return self._entries[self.end_index].term if self._entries else 0

    def append(self, bodies: Sequence[bytes], term: int, hook: Hook | None = None) -> list[Entry]:
        """As EntryStore."""
        if term < self.end_term:
            raise Rejected(f"term {term}: the last entry has term {self.end_term}, which is newer")
        made = []
        for body in bodies:
            index, changed = self.end_index + 1, bytearray(body)
            if hook is not None:
                hook(index, self._end + ENTRY_HEAD.size, changed)
            made.append(Entry(index, term, self._end, bytes(changed)))
            self._take(made[-1])
        return made

    def append_entry(self, entry: Entry) -> None:
        """As EntryStore, at any place."""
        if entry.index != self.end_index + 1 or entry.term < self.end_term:
            raise Rejected(f"entry {entry.index} of term {entry.term}: entry {self.end_index + 1} comes next")
        self._take(entry)

    def truncate(self, entry: Entry) -> None:
        """As EntryStore."""
        if entry.index < self.committed_index:
            raise Rejected(f"entry {entry.index}: the group agreed on entry {self.committed_index}")
        if entry.index - 1 not in self._entries and entry.index:
            self._entries, self.begin_index = {}, -1
        for index in [index for index in self._entries if index >= entry.index]:
            del self._entries[index]
        self._take(entry)

    def get(self, index: int) -> Entry:
        """As EntryStore."""
        if index not in self._entries:
            raise Rejected(f"entry {index}: the log has {self.begin_index} to {self.end_index}")
        return self._entries[index]

    def update_committed(self, term: int, index: int) -> bool:
        """As EntryStore."""
        index = min(index, self.end_index)
        if index <= self.committed_index or term < 0:
            return False
        self.committed_index = index
        return True

    def _take(self, entry: Entry) -> None:
        self._entries[entry.index] = entry
        self._end = entry.offset + entry.size
        if self.begin_index < 0:
            self.begin_index = entry.index
