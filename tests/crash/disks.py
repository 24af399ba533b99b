"""Disks for tests: one in memory that knows what is durable, one that fails, one whose power goes.

`MemoryDisk` keeps beside what a program sees what a power cut would leave.  `FailingDisk` and `CrashAt` stand in front
of any disk and count the operations that change or sync something, from 1 on.
"""

import copy
import errno
import os
import random
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from rmqstore.errors import StoreInUse
from rmqstore.files.disk import DirectoryEntry, PlainDisk, PlainReads
from rmqstore.files.filesystem import DiskFile, FileSystem, HeldLock
from rmqstore.files.regular import require_regular

SECTOR_SIZE = 512
PAGE_SIZE = 4096

Choice = random.Random | Literal["lost", "kept", "killed"]
"""What becomes of what was not synced.  A power cut: any part of it is lost, all is lost, or all is kept.  "killed":
only the program ended; the next one sees all of it, and the next power cut may still take it."""


class PowerCut(BaseException):
    """The moment at which the power went; not an Exception, so that nothing under test handles it."""


@dataclass(eq=False)
class _File:
    """One file's bytes: as seen, as durable, and what happened in between, in order."""

    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (position, bytes written) or (size, None)
    seen: bytes | None = None  # once it was viewed: the content up to which `pending` tells all

    def write(self, position: int, data: bytes) -> None:
        if len(self.live) < position:
            self.resize(position)
        if self.seen is not None:
            self.note_view()
        self.live[position : position + len(data)] = data
        self.pending.append((position, data))
        if self.seen is not None:
            self.seen = bytes(self.live)

    def resize(self, size: int) -> None:
        self.note_view()
        if size < len(self.live):
            del self.live[size:]
        else:
            self.live.extend(bytes(size - len(self.live)))
        self.pending.append((size, None))
        if self.seen is not None:
            self.seen = bytes(self.live)

    def note_view(self) -> None:
        """Finds the pages that were stored through a view, by comparing."""
        if self.seen is None or self.seen == self.live:
            return
        for low in range(0, len(self.live), PAGE_SIZE):
            page = bytes(self.live[low : low + PAGE_SIZE])
            if page != self.seen[low : low + PAGE_SIZE]:
                self.pending.append((low, page))
        self.seen = bytes(self.live)

    def sync(self) -> None:
        self.note_view()
        for position, data in self.pending:  # not simply `live`, from which a failed sync may have let go
            _apply(self.durable, position, data)
        self.pending.clear()

    def lose_pending(self) -> None:
        """What a failed sync does: the pages count as clean from now on, and never reach the disk."""
        self.note_view()
        _apply(self.durable, len(self.live), None)
        self.pending.clear()

    def after_cut(self, choose: random.Random | Literal["lost", "kept"]) -> bytes:
        """What a power cut leaves."""
        self.note_view()
        content = bytearray(self.durable)
        if choose == "kept":
            for position, data in self.pending:
                _apply(content, position, data)
        elif choose != "lost" and self.pending:
            return _torn(content, self.pending, choose)
        return bytes(content)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        if position < len(content):
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _torn(result: bytearray, pending: list[tuple[int, bytes | None]], chance: random.Random) -> bytes:
    """Each page, or each sector, comes from some moment between the last sync and now; so does the file's size.

    `result` comes in as the durable content and is changed.
    """
    grain = chance.choice((SECTOR_SIZE, PAGE_SIZE))
    moments: dict[int, int] = {}  # page -> how many of `pending` it has seen
    count = len(pending)
    sizes = [len(result)]
    for number, (position, data) in enumerate(pending):
        size = sizes[-1]
        if data is None:
            sizes.append(position)
            if position < size:
                low, high = position, max(len(result), position)
            else:
                continue
        else:
            sizes.append(max(size, position + len(data)))
            low, high = position, position + len(data)
            if len(result) < high:
                result.extend(bytes(high - len(result)))
        for page in range(low // grain, -(-high // grain)):
            moment = moments.get(page)
            if moment is None:
                # Half of the pages get all or nothing, the others any moment in between.
                moment = moments[page] = chance.choice((0, count, chance.randint(0, count), chance.randint(0, count)))
            if number < moment:
                part_low, part_high = max(low, page * grain), min(high, (page + 1) * grain)
                zeros = bytes(part_high - part_low)
                result[part_low:part_high] = zeros if data is None else data[part_low - position : part_high - position]
    size = chance.choice((sizes[0], sizes[-1], chance.choice(sizes), chance.randint(min(sizes), max(sizes))))
    return bytes(result[:size]).ljust(size, b"\0")


@dataclass(eq=False)
class _Directory:
    """One directory's names: as seen, and as durable."""

    live: dict[str, "_File | _Directory"] = field(default_factory=dict)
    durable: dict[str, "_File | _Directory"] = field(default_factory=dict)


@dataclass(frozen=True)
class _NameChange:
    """A change of names that is not durable yet: `node` is put at `add` and, in the same step, `drop` is taken away."""

    add: tuple[_Directory, str, "_File | _Directory"] | None
    drop: tuple[_Directory, str] | None

    def touches(self, directory: _Directory) -> bool:
        return any(place is not None and place[0] is directory for place in (self.add, self.drop))

    def apply_durably(self) -> None:
        if self.drop is not None:
            self.drop[0].durable.pop(self.drop[1], None)
        if self.add is not None:
            self.add[0].durable[self.add[1]] = self.add[2]


class _MemoryFile(PlainReads):
    """An open file of a `MemoryDisk`."""

    def __init__(self, disk: "MemoryDisk", path: str, node: _File) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._is_open = True
        disk.open_count += 1

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._disk.open_count -= 1

    def size(self) -> int:
        self._check()
        return len(self._node.live)

    def read(self, position: int, size: int) -> bytes:
        self._check()
        return bytes(self._node.live[position : position + size]) if size > 0 else b""

    def write(self, position: int, data) -> None:
        self._check()
        content = memoryview(data).tobytes()
        with self._disk.lock_of_state:
            self._disk.operations += 1
            if content:
                self._node.write(position, content)

    def sync(self) -> None:
        self._check()
        with self._disk.lock_of_state:
            self._disk.operations += 1
            self._node.sync()

    def truncate(self, size: int) -> None:
        self._check()
        with self._disk.lock_of_state:
            self._disk.operations += 1
            self._node.resize(size)

    def next_data(self, position: int) -> int:
        ranges = self.data_ranges(position)
        return ranges[0][0] if ranges else max(position, self.size())

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Tells zeros for real, a page at a time, so that what relies on it is tested."""
        self._check()
        live = self._node.live
        pages = ((low, min(low + PAGE_SIZE, len(live))) for low in range(position, len(live), PAGE_SIZE))
        return [(low, high) for low, high in pages if live.count(0, low, high) != high - low]

    def forget(self, position: int, size: int) -> None:
        """There is nothing but memory."""
        self._check()

    def view(self) -> memoryview:
        """The bytes themselves; the file cannot change its size while a view lives."""
        self._check()
        node = self._node
        if node.seen is None:
            node.seen = bytes(node.live)
        return memoryview(node.live)

    def lose_pending(self) -> None:
        """What a failed sync does to the content; `FailingDisk` calls it."""
        with self._disk.lock_of_state:
            self._node.lose_pending()

    def _check(self) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)


class _MemoryLock:
    """A lock on a `MemoryDisk`."""

    def __init__(self, disk: "MemoryDisk", path: str) -> None:
        self._disk, self._path = disk, path
        self.is_held = True

    def is_in_place(self) -> bool:
        return self._disk.exists(self._path)

    def release(self) -> None:
        if self.is_held:
            self.is_held = False
            self._disk.locks.discard(self._path)


class MemoryDisk(PlainDisk):
    """A file system in memory that remembers what is durable; paths are absolute, directories are made like any other.

    `operations` counts what changed or synced something; `open_count` is the files open now.  `modified_ms` of every
    entry is `now_ms`, which a test may set.
    """

    def __init__(self, free: int = 1 << 40) -> None:
        self.operations = 0
        self.open_count = 0
        self.now_ms = 1_700_000_000_000
        self.free = free
        self.used = 0.0
        self.locks: set[str] = set()
        self.lock_of_state = threading.RLock()
        self._root = _Directory()
        self._changes: list[_NameChange] = []

    def crash(self, choose: Choice) -> "MemoryDisk":
        """The disk that the next start finds; this one stays as it is and may crash again in another way."""
        with self.lock_of_state:
            after = MemoryDisk(self.free)
            after.now_ms = self.now_ms
            if choose == "killed":
                after._root, after._changes = copy.deepcopy((self._root, self._changes))
                return after
            changes = [] if choose == "lost" else self._changes
            if isinstance(choose, random.Random) and changes:
                rate = choose.choice((0.0, 0.1, 0.5, 0.9, 1.0))
                changes = [change for change in changes if choose.random() < rate]
            names: dict[int, dict[str, _File | _Directory]] = {}

            def names_of(directory: _Directory) -> dict[str, _File | _Directory]:
                return names.setdefault(id(directory), dict(directory.durable))

            for change in changes:
                if change.drop is not None:
                    names_of(change.drop[0]).pop(change.drop[1], None)
                if change.add is not None:
                    names_of(change.add[0])[change.add[1]] = change.add[2]
            copies: dict[int, _File] = {}
            after._root = self._copy(self._root, names_of, choose, copies)
            return after

    def _copy(
        self,
        directory: _Directory,
        names_of: Callable[[_Directory], dict[str, "_File | _Directory"]],
        choose: random.Random | Literal["lost", "kept"],
        copies: dict[int, _File],
    ) -> _Directory:
        twin = _Directory()
        for name, node in names_of(directory).items():
            if isinstance(node, _Directory):
                twin.live[name] = self._copy(node, names_of, choose, copies)
            else:
                if id(node) not in copies:
                    content = node.after_cut(choose)
                    copies[id(node)] = _File(bytearray(content), bytearray(content))
                twin.live[name] = copies[id(node)]
        twin.durable = dict(twin.live)
        return twin

    def image(self) -> dict[str, bytes]:
        """Every file by path with its content as seen now: what two disks are compared by."""

        def walk(directory: _Directory, path: str) -> Iterator[tuple[str, bytes]]:
            for name, node in sorted(directory.live.items()):
                if isinstance(node, _Directory):
                    yield from walk(node, f"{path}/{name}")
                else:
                    yield f"{path}/{name}", bytes(node.live)

        return dict(walk(self._root, ""))

    def put_file(self, path: str, content: bytes) -> None:
        """Lays a durable file down, directories and all, without an operation: how a test sets a scene."""
        directory = self._root
        *above, name = _parts(path)
        for part in above:
            child = directory.live.setdefault(part, _Directory())
            assert isinstance(child, _Directory)
            directory.durable[part] = child
            directory = child
        node = _File(bytearray(content), bytearray(content))
        directory.live[name] = directory.durable[name] = node

    def make_directories(self, path: str) -> None:
        directory = self._root
        for part in _parts(path):
            child = directory.live.get(part)
            if child is None:
                child = _Directory()
                with self.lock_of_state:
                    self._change((directory, part, child), None)
                    self._sync_names(directory)
            if not isinstance(child, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            directory = child

    def entries(self, directory: str) -> list[DirectoryEntry]:
        node = self._find(directory)
        if not isinstance(node, _Directory):
            return []
        with self.lock_of_state:
            return [
                DirectoryEntry(name, 4096, True, self.now_ms)
                if isinstance(child, _Directory)
                else DirectoryEntry(name, len(child.live), False, self.now_ms)
                for name, child in sorted(node.live.items())
            ]

    def open(self, path: str) -> DiskFile:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Directory):
            require_regular(path, stat.S_IFDIR)
        return _MemoryFile(self, path, node)

    def create(self, path: str, size: int) -> DiskFile:
        with self.lock_of_state:
            directory, name = self._parent(path)
            if name in directory.live:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            if size > self.free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            node = _File()
            self._change((directory, name, node), None)
            if size > 0:
                node.resize(size)
                node.sync()
        return _MemoryFile(self, path, node)

    def remove(self, path: str) -> None:
        with self.lock_of_state:
            directory, name = self._parent(path)
            node = self._child(directory, name, path)
            if isinstance(node, _Directory):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self._change(None, (directory, name))

    def rename(self, source: str, target: str) -> None:
        with self.lock_of_state:
            directory, name = self._parent(source)
            node = self._child(directory, name, source)
            self._change((*self._parent(target), node), (directory, name))

    def remove_directory(self, path: str) -> None:
        with self.lock_of_state:
            directory, name = self._parent(path)
            node = self._child(directory, name, path)
            if not isinstance(node, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if node.live:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            self._change(None, (directory, name))

    def sync_directory(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        with self.lock_of_state:
            self.operations += 1
            self._sync_names(node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def is_apart(self, path: str) -> bool:
        return False

    def links(self, directory: str) -> list[str]:
        return []

    def free_bytes(self, path: str) -> int:
        return self.free

    def used_ratio(self, path: str) -> float:
        return self.used

    def lock(self, path: str) -> HeldLock:
        with self.lock_of_state:
            if path in self.locks:
                raise StoreInUse(
                    path,
                    "this process already writes to the store (rmqstore.opened_store gives what open_store opened)",
                )
            file = self.open(path) if self.exists(path) else self.create(path, 0)
            file.write(0, b"lock")
            file.sync()
            self.locks.add(path)
        return _MemoryLock(self, path)

    def lock_directory(self, path: str) -> HeldLock | None:
        return None  # one store at a time is open on such a disk

    def _find(self, path: str) -> "_File | _Directory | None":
        node: _File | _Directory | None = self._root
        for part in _parts(path):
            if not isinstance(node, _Directory):
                return None
            node = node.live.get(part)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        *_, name = _parts(path)
        node = self._find(os.path.dirname(path))
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node, name

    def _child(self, directory: _Directory, name: str, path: str) -> "_File | _Directory":
        node = directory.live.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _change(
        self, add: tuple[_Directory, str, "_File | _Directory"] | None, drop: tuple[_Directory, str] | None
    ) -> None:
        self.operations += 1
        if drop is not None:
            del drop[0].live[drop[1]]
        if add is not None:
            add[0].live[add[1]] = add[2]
        self._changes.append(_NameChange(add, drop))

    def _sync_names(self, directory: _Directory) -> None:
        """Applies what concerns the directory, and what came before in another one that a rename ties to it."""
        tied, done, rest = [directory], [], []
        for change in reversed(self._changes):
            if any(change.touches(each) for each in tied):
                done.append(change)
                tied += [place[0] for place in (change.add, change.drop) if place is not None]
            else:
                rest.append(change)
        for change in reversed(done):
            change.apply_durably()
        self._changes = rest[::-1]


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


@dataclass(frozen=True)
class Operation:
    """One thing that a program asked the disk to do: `verb` is the method's name."""

    number: int
    verb: str
    path: str


class WatchedDisk(PlainDisk):
    """A disk in front of another: counts what changes or syncs something, and lets `before` fail it.

    `trace` holds every such operation when `keep_trace` is set.
    """

    def __init__(self, inner: FileSystem, *, keep_trace: bool = False) -> None:
        self.inner = inner
        self.operations = 0
        self.trace: list[Operation] | None = [] if keep_trace else None
        self._count_lock = threading.Lock()

    def before(self, operation: Operation) -> None:
        """Raises what the operation fails with, which then does not happen."""

    def before_reading(self, path: str) -> None:
        """Raises what a read of any kind fails with."""

    def write_in(self, file: DiskFile, operation: Operation, position: int, data) -> None:
        """Writes, after `before`; a disk that writes in part overrides it."""
        self.before(operation)
        file.write(position, data)

    def sync_in(self, file: DiskFile, operation: Operation) -> None:
        """Syncs, after `before`; a disk that forgets at a failed sync overrides it."""
        self.before(operation)
        file.sync()

    def note(self, verb: str, path: str) -> Operation:
        """Counts one operation."""
        with self._count_lock:
            self.operations += 1
            operation = Operation(self.operations, verb, path)
            if self.trace is not None:
                self.trace.append(operation)
        return operation

    def make_directories(self, path: str) -> None:
        if not self.inner.exists(path):
            self.before(self.note("make_directories", path))
        self.inner.make_directories(path)

    def entries(self, directory: str) -> list[DirectoryEntry]:
        self.before_reading(directory)
        return self.inner.entries(directory)

    def open(self, path: str) -> DiskFile:
        self.before_reading(path)
        return _WatchedFile(self, self.inner.open(path))

    def create(self, path: str, size: int) -> DiskFile:
        self.before(self.note("create", path))
        return _WatchedFile(self, self.inner.create(path, size))

    def remove(self, path: str) -> None:
        self.before(self.note("remove", path))
        self.inner.remove(path)

    def rename(self, source: str, target: str) -> None:
        self.before(self.note("rename", target))
        self.inner.rename(source, target)

    def remove_directory(self, path: str) -> None:
        self.before(self.note("remove_directory", path))
        self.inner.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.before(self.note("sync_directory", path))
        self.inner.sync_directory(path)

    def exists(self, path: str) -> bool:
        self.before_reading(path)
        return self.inner.exists(path)

    def is_directory(self, path: str) -> bool:
        self.before_reading(path)
        return self.inner.is_directory(path)

    def is_apart(self, path: str) -> bool:
        self.before_reading(path)
        return self.inner.is_apart(path)

    def links(self, directory: str) -> list[str]:
        self.before_reading(directory)
        return self.inner.links(directory)

    def free_bytes(self, path: str) -> int:
        self.before_reading(path)
        return self.inner.free_bytes(path)

    def used_ratio(self, path: str) -> float:
        self.before_reading(path)
        return self.inner.used_ratio(path)

    def lock(self, path: str) -> HeldLock:
        self.before(self.note("lock", path))
        return self.inner.lock(path)

    def lock_directory(self, path: str) -> HeldLock | None:
        return self.inner.lock_directory(path)


class _WatchedFile(PlainReads):
    """An open file of a `WatchedDisk`."""

    def __init__(self, disk: WatchedDisk, inner: DiskFile) -> None:
        self.path = inner.path
        self._disk = disk
        self._inner = inner

    def size(self) -> int:
        self._disk.before_reading(self.path)
        return self._inner.size()

    def read(self, position: int, size: int) -> bytes:
        self._disk.before_reading(self.path)
        return self._inner.read(position, size)

    def write(self, position: int, data) -> None:
        self._disk.write_in(self._inner, self._disk.note("write", self.path), position, data)

    def sync(self) -> None:
        self._disk.sync_in(self._inner, self._disk.note("sync", self.path))

    def truncate(self, size: int) -> None:
        self._disk.before(self._disk.note("truncate", self.path))
        self._inner.truncate(size)

    def next_data(self, position: int) -> int:
        self._disk.before_reading(self.path)
        return self._inner.next_data(position)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        self._disk.before_reading(self.path)
        return self._inner.data_ranges(position)

    def forget(self, position: int, size: int) -> None:
        self._inner.forget(position, size)

    def view(self) -> memoryview:
        self._disk.before_reading(self.path)
        return self._inner.view()

    def close(self) -> None:
        self._inner.close()


class FailingDisk(WatchedDisk):
    """Fails the `at`-th operation with `error`, and with `forever` every later one too.

    "short" writes the first half and then has no room (ENOSPC); other operations fail with ENOSPC at once.  A failed
    sync loses what it should have made durable, for good, while later syncs succeed: what Linux does.  `failed` is the
    first operation that failed, None if none was reached.
    """

    def __init__(self, inner: FileSystem, at: int, error: int | Literal["short"], forever: bool = False) -> None:
        super().__init__(inner)
        self.failed: Operation | None = None
        self._at = at
        self._is_short = error == "short"
        self._errno = errno.ENOSPC if error == "short" else int(error)
        self._forever = forever

    def heal(self) -> None:
        """From now on nothing fails."""
        self._at, self._forever = 0, False

    def _fails(self, operation: Operation) -> bool:
        fails = operation.number == self._at or (self._forever and operation.number > self._at)
        if fails and self.failed is None:
            self.failed = operation
        return fails

    def before(self, operation: Operation) -> None:
        if self._fails(operation):
            raise OSError(self._errno, os.strerror(self._errno), operation.path)

    def write_in(self, file: DiskFile, operation: Operation, position: int, data) -> None:
        if self._is_short and self._fails(operation):
            content = memoryview(data).tobytes()
            file.write(position, content[: len(content) // 2])
        self.before(operation)
        file.write(position, data)

    def sync_in(self, file: DiskFile, operation: Operation) -> None:
        if self._fails(operation) and isinstance(file, _MemoryFile):
            file.lose_pending()
        self.before(operation)
        file.sync()


class BreakingDisk(WatchedDisk):
    """Fails every write to a path of which `broken` is a part, with EIO; none before it is set."""

    broken = ""

    def before(self, operation: Operation) -> None:
        if operation.verb == "write" and self.broken and self.broken in operation.path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), operation.path)


class CrashAt(WatchedDisk):
    """Cuts the power just before the `at`-th operation: it and all that is asked after raise PowerCut.

    Then `inner.crash(...)` is what the next start finds.  Without `at` it only counts: `operations` after a run is
    how many places there are.
    """

    def __init__(self, inner: FileSystem, at: int | None = None) -> None:
        super().__init__(inner)
        self.is_off = False
        self._at = at

    def before(self, operation: Operation) -> None:
        if self._at is not None and operation.number >= self._at:
            self.is_off = True
        if self.is_off:
            raise PowerCut(f"{operation.number}: {operation.verb} {operation.path}")

    def before_reading(self, path: str) -> None:
        if self.is_off:
            raise PowerCut(path)

    def create(self, path: str, size: int) -> DiskFile:
        """A power cut in the middle of it may leave the name with any part of the room."""
        was_off = self.is_off
        try:
            return super().create(path, size)
        except PowerCut:
            if not was_off:
                with suppress(OSError):
                    self.inner.create(path, 0).truncate(size)
            raise
