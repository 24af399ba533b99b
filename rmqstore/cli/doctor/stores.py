"""Facts about a store directory, found without writing to it or opening its lock: its owner and its state."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rmqstore.cli.doctor.finding import Fact, State
from rmqstore.cli.output import byte_size, counted, one_line, utc
from rmqstore.directory.store_root import found_store
from rmqstore.errors import StoreError, UnsupportedLayout
from rmqstore.files.reading import canonical_path
from rmqstore.formats import names
from rmqstore.snapshot.lookup.end_times import newest_time
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.survey.extents import StoreExtent

# --- The file system that a path is on, by the kernel's list of mounts; nothing is written, and nothing tried.

_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "fuse.sshfs",
                      "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "virtiofs", "beegfs"))  # fmt: skip
_IN_MEMORY = frozenset(("tmpfs", "ramfs"))
_NO_BARRIER = frozenset(("nobarrier", "barrier=0", "volatile"))
_NO_LOCKS = frozenset(("nolock", "local_lock=all", "local_lock=posix"))
_FREE_LEAST, _FREE_SHARE = 1024**3, 0.05


class Mount(NamedTuple):
    """Where a file system is mounted, its type and its options."""

    place: str
    kind: str
    options: frozenset[str]


def mount_of(path: str) -> Mount | None:
    """The mount that holds a path; None where the kernel gives no list."""
    real = os.path.realpath(path)
    try:
        lines = Path(_MOUNTS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    found: Mount | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        place = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), fields[4])
        holds = real == place or real.startswith(place.rstrip("/") + "/")
        if holds and (found is None or len(place) >= len(found.place)):
            found = Mount(place, more[0], frozenset((*fields[5].split(","), *more[-1].split(","))))
    return found


def disk_facts(area: str, path: str) -> Iterator[Fact]:
    """The file system of a path: its kind, whether writes last, locks, room."""
    mount = mount_of(path)
    if mount is not None:
        yield _kind(area, mount)
        yield from _promises(area, mount)
    yield from _room(area, path)


def _kind(area: str, mount: Mount) -> Fact:
    said = f"{mount.kind} at {mount.place}{', read-only' if 'ro' in mount.options else ''}"
    if mount.kind in _NETWORK:
        advice = "read it from any host, but write from one host alone: other hosts may not see its locks"
        return Fact(area, "file system", f"{said}, over the network", "odd", advice)
    if mount.kind in _IN_MEMORY:
        return Fact(area, "file system", f"{said}, in memory", "odd", "a restart deletes it: move it to a disk")
    return Fact(area, "file system", f"{said}, local")


def _promises(area: str, mount: Mount) -> Iterator[Fact]:
    """Whether a sync and a lock mean something, as far as the options tell."""
    unsafe = sorted(mount.options & _NO_BARRIER)
    if unsafe or "eatmydata" in os.environ.get("LD_PRELOAD", ""):
        why = ", ".join(unsafe) or "LD_PRELOAD=…eatmydata…"
        yield Fact(area, "fsync", f"does not reach the disk ({why})", "odd",
                   "a power cut may lose messages that were acknowledged: mount it without that")  # fmt: skip
    elif mount.kind in _IN_MEMORY:
        yield Fact(area, "fsync", "has no effect in memory")
    else:
        yield Fact(area, "fsync", "no mount option prevents it; --try measures it")
    unlocked = sorted(mount.options & _NO_LOCKS)
    if unlocked:
        yield Fact(area, "locks", f"are local to this host ({', '.join(unlocked)})", "odd",
                   "another host could write at the same time: mount it with locks")  # fmt: skip


def _room(area: str, path: str) -> Iterator[Fact]:
    try:
        room = os.statvfs(path)
    except OSError as error:
        yield Fact(area, "room", f"unknown: {error.strerror}", "broken", "check that disk")
        return
    free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    said = f"{byte_size(free)} of {byte_size(size)} free"
    is_low = free < _FREE_LEAST or free < size * _FREE_SHARE
    advice = "make room: a broker refuses messages above diskMaxUsedSpaceRatio; rmqstore clean deletes old files"
    yield Fact(area, "room", said, "odd" if is_low else "good", advice if is_low else "")
    if room.f_files:
        said = f"{room.f_favail:,} of {room.f_files:,} free"
        is_low = room.f_favail < room.f_files * _FREE_SHARE
        advice = "each queue takes one: delete topics that are not needed" if is_low else ""
        yield Fact(area, "inodes", said, "odd" if is_low else "good", advice)


# ---

_FUTURE_MS = 60_000
_OURS, _BROKER = b"rmqstore", b"org.apache.rocketmq"


def store_facts(given: str) -> Iterator[Fact]:
    """The facts of one place; where it is no store, that, and its disk."""
    try:
        area = root = canonical_path(given)
    except StoreError as error:
        yield Fact(given, "store", one_line(error), "broken", "give the directory that holds commitlog/")
        return
    refused, store = None, None
    try:
        try:
            found_store(root, may_be_ledger=True)
        except UnsupportedLayout as error:
            refused = error
        store = look_at(root).stores[0]
    except (StoreError, OSError) as error:
        yield _refusal(area, "store", error, "broken")
    if store is not None:
        yield from _contents(area, store)
        if refused is not None:
            yield _refusal(area, "writing", refused, "odd")
        yield _holder(area, root)
        yield _access(area, root)
    if os.path.isdir(root):
        yield from disk_facts(area, root)


def _refusal(area: str, name: str, error: Exception, state: State) -> Fact:
    said, _, advice = one_line(error).removeprefix(f"{area}: ").partition("; ")
    return Fact(area, name, said, state, advice or "rmqstore inspect says more")


def _contents(area: str, store: StoreExtent) -> Iterator[Fact]:
    count = sum(queue.max_offset - queue.min_offset for queue in store.queues.values())
    size = byte_size(store.log_end - store.log_start)
    yield Fact(area, "store", f"broker {store.broker_name}, RocketMQ {store.version_line}, "
               f"{counted(count, 'message')} in {counted(len(store.queues), 'queue')}, {size} of log")  # fmt: skip
    if store.was_killed:
        yield Fact(
            area,
            "last stop",
            "was not clean",
            "odd",
            "its next writer recovers it; rmqstore recover --dry-run shows how",
        )
    if store.damage:
        said = f"{counted(len(store.damage), 'damaged place')} near the end of the log"
        yield Fact(area, "damage", said, "broken", "rmqstore verify lists it")
    with suppress(StoreError, OSError):
        newest_ms = newest_time(store, store.queues)
        if newest_ms is not None:
            ahead_ms = newest_ms - time.time_ns() // 1_000_000
            is_ahead = ahead_ms > _FUTURE_MS
            advice = "that is in the future: compare the clocks of this host and of the broker" if is_ahead else ""
            yield Fact(area, "newest message", f"{utc(newest_ms)} (UTC)", "odd" if is_ahead else "good", advice)
    blocks = [_allocated(file.path) for file in store.log_files]
    if all(block is not None for block in blocks) and blocks:
        whole = sum(file.size for file in store.log_files)
        held = min(sum(filter(None, blocks)), whole)
        said = f"{counted(len(blocks), 'file')} of {byte_size(whole)}, {byte_size(held)} on the disk"
        yield Fact(area, "log files", said + " (sparse: a copy that keeps holes is smaller)" * (held < whole))


def _allocated(path: str) -> int | None:
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return None


def _holder(area: str, root: str) -> Fact:
    """Who has the store open for writing, by the kernel's list of locks: opening the lock file could drop a lock."""
    pid = _lock_owner(os.path.join(root, names.LOCK_FILE))
    if pid is None:
        return Fact(area, "lock", "no process of this host has it open")
    command = b""
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    who = "a RocketMQ broker" if _BROKER in command else "rmqstore" if _OURS in command else "a process"
    owner = f"process {pid}" if pid > 0 else "a process that this user cannot see"
    return Fact(area, "lock", f"held by {who} ({owner}): it can be read, but not written")


def _lock_owner(path: str) -> int | None:
    """The process that holds a record lock on a file; 0 or below where the kernel does not say which."""
    try:
        status = os.stat(path)
        lines = Path("/proc/locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        words = line.split()
        if place in words and "->" not in words:
            at = words.index(place)
            owner = words[at - 1]
            return int(owner) if owner.lstrip("-").isdigit() else 0
    return None


def _access(area: str, root: str) -> Fact:
    may_write = os.access(root, os.W_OK | os.X_OK)
    return Fact(area, "rights", "may be read and written by this user" if may_write else "may be read by this user")
