"""Whose a store is: from its opening to its end, of the process that opened it, and where its lock was taken.

A child made by fork has all that its parent has open, but not the lock; a directory that is renamed takes the lock with
it, and another store may stand at its old path.  So what changes a store asks here first: puts for `Ownership.refusal`
under their lock, everything that goes by a path through `OwnedFileSystem`.
"""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from weakref import WeakSet

from rmqstore.errors import StoreClosed, StoreInUse
from rmqstore.files.disk import DirectoryEntry, PlainDisk
from rmqstore.files.filesystem import DiskFile, FileSystem, join
from rmqstore.files.store_lock import HeldLock
from rmqstore.formats.names import LOCK_FILE, STORE_ROOMS


def process_id() -> int:
    """The number of this process, by which a child made by fork is told from its parent."""
    return os.getpid()


class _State(Enum):
    OPEN = 0
    CLOSING = 1  # nothing new begins; what was put is made durable
    ENDED = 2  # the lock is given back: the directory may be somebody else's
    INHERITED = 3  # in a child made by fork; the parent's goes on


class Ownership:
    """Who may still change one open store; any thread.  `refusal`: why no operation may begin, None while the store is
    open.  `is_in_place` as HeldLock's.
    """

    def __init__(self, path: str, lock: HeldLock) -> None:
        self.refusal: str | None = None
        self._path = path
        self._lock = lock
        self.is_in_place = lock.is_in_place
        self._pid = os.getpid()
        self._state = _State.OPEN
        self._claimed: dict[str, HeldLock] = {}
        self._when_inherited: list[Callable[[], None]] = []
        _owned.add(self)

    @property
    def is_inherited(self) -> bool:
        """Whether this is a child made by fork of the process that opened the store."""
        return self._state is _State.INHERITED

    @property
    def has_ended(self) -> bool:
        """Whether the lock was given back."""
        return self._state is _State.ENDED

    def claim(self, fs: FileSystem, directories: Iterable[str]) -> None:
        """Locks directories of the log as far as they are there, until the end.  Raises StoreInUse where another store
        that is open writes to one, or one is in the `commitlog/`, or another room, of a store or broker that is open:
        RocketMQ locks its root alone.
        """
        own = fs.real_path(self._path)
        for path in directories:
            real = fs.real_path(path)
            if real in self._claimed:
                continue
            above = real
            while above not in ("", own):
                above, _, room = above.rpartition("/")
                if room in STORE_ROOMS and above != own and fs.is_locked(join(above, LOCK_FILE)):
                    raise StoreInUse(real, f"it is a part of {above}, a store that is open")
            if (lock := fs.lock_directory(real)) is not None:
                self._claimed[real] = lock

    def when_inherited(self, let_go: Callable[[], None]) -> None:
        """Has `let_go` called in a child made by fork: for what a child would hold for whoever comes after its
        parent."""
        self._when_inherited.append(let_go)

    def begin_closing(self) -> None:
        """From now on nothing new begins."""
        if self._state is _State.OPEN:
            self._state, self.refusal = _State.CLOSING, f"{self._path} is closed"

    def end(self) -> None:
        """Gives the lock back; nothing is changed any more.  Once more ends what an interrupt cut short."""
        if self._state is not _State.INHERITED:
            self.begin_closing()
            self._state = _State.ENDED
            for claimed in self._claimed.values():
                claimed.release()
            self._lock.release()

    def require_open(self) -> None:
        """Raises StoreClosed."""
        if self.refusal is not None:
            raise StoreClosed(self.refusal)

    def require_process(self) -> None:
        """Raises StoreClosed in a child made by fork."""
        if self._state is _State.INHERITED:
            raise StoreClosed(self.refusal or "")

    def require_not_ended(self) -> None:
        """Raises StoreClosed when the lock was given back, and in a child made by fork."""
        if self._state in (_State.ENDED, _State.INHERITED):
            raise StoreClosed(self.refusal or "")

    def require_place(self, path: str) -> None:
        """Raises StoreClosed as `require_not_ended`, and OSError (ESTALE) where the directory is not that of the lock
        any more.
        """
        self.require_not_ended()
        if not self.is_in_place():
            raise OSError(errno.ESTALE, self.displaced_reason, path)

    @property
    def displaced_reason(self) -> str:
        """The text of the error for a directory that is not that of the lock any more."""
        return (
            f"{self._path} was moved, removed or replaced while this store was open: close it, and open it where it is"
        )

    def _inherit(self) -> None:
        if self._state in (_State.OPEN, _State.CLOSING):
            self._state = _State.INHERITED
            self.refusal = f"{self._path}: opened by process {self._pid}: open it after the fork"
            for let_go in self._when_inherited:
                with suppress(OSError):
                    let_go()


_owned: WeakSet[Ownership] = WeakSet()


def _after_fork_in_child() -> None:
    for ownership in list(_owned):
        ownership._inherit()


os.register_at_fork(after_in_child=_after_fork_in_child)


class OwnedFileSystem(PlainDisk):
    """The disk of one open store: as the disk that it wraps, but nothing is opened, made or removed there that is
    not the store's any more.  Raises as `Ownership.require_place` says.

    Files that are open stay usable: they are the right ones wherever their directory went.
    """

    def __init__(self, fs: FileSystem, ownership: Ownership) -> None:
        self._fs = fs
        self._ownership = ownership

    def make_directories(self, path: str) -> None:
        """As FileSystem.make_directories."""
        self._ownership.require_place(path)
        self._fs.make_directories(path)

    def entries(self, directory: str) -> Sequence[DirectoryEntry]:
        """As FileSystem.entries."""
        return self._fs.entries(directory)

    def names(self, directory: str) -> Sequence[str]:
        """As FileSystem.names."""
        return self._fs.names(directory)

    def open(self, path: str) -> DiskFile:
        """As FileSystem.open."""
        self._ownership.require_place(path)
        return self._fs.open(path)

    def create(self, path: str, size: int) -> DiskFile:
        """As FileSystem.create."""
        self._ownership.require_place(path)
        return self._fs.create(path, size)

    def remove(self, path: str) -> None:
        """As FileSystem.remove."""
        self._ownership.require_place(path)
        self._fs.remove(path)

    def rename(self, source: str, target: str) -> None:
        """As FileSystem.rename."""
        self._ownership.require_place(target)
        self._fs.rename(source, target)

    def remove_directory(self, path: str) -> None:
        """As FileSystem.remove_directory."""
        self._ownership.require_place(path)
        self._fs.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        """As FileSystem.sync_directory."""
        self._fs.sync_directory(path)

    def exists(self, path: str) -> bool:
        """As FileSystem.exists."""
        return self._fs.exists(path)

    def is_directory(self, path: str) -> bool:
        """As FileSystem.is_directory."""
        return self._fs.is_directory(path)

    def version_of(self, path: str) -> tuple[int, ...]:
        """As FileSystem.version_of."""
        return self._fs.version_of(path)

    def is_locked(self, path: str) -> bool:
        """As FileSystem.is_locked."""
        return self._fs.is_locked(path)

    def is_apart(self, path: str) -> bool:
        """As FileSystem.is_apart."""
        return self._fs.is_apart(path)

    def links(self, directory: str) -> list[str]:
        """As FileSystem.links."""
        return self._fs.links(directory)

    def free_bytes(self, path: str) -> int:
        """As FileSystem.free_bytes."""
        return self._fs.free_bytes(path)

    def used_ratio(self, path: str) -> float:
        """As FileSystem.used_ratio."""
        return self._fs.used_ratio(path)

    def lock(self, path: str) -> HeldLock:
        """As FileSystem.lock."""
        return self._fs.lock(path)

    def real_path(self, path: str) -> str:
        """As ReadableDisk.real_path."""
        return self._fs.real_path(path)

    def lock_directory(self, path: str) -> HeldLock | None:
        """As FileSystem.lock_directory."""
        return self._fs.lock_directory(path)
