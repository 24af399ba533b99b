"""The file system that a path is on, by the kernel's list of mounts; nothing is written, and nothing tried."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqstore.cli.doctor.finding import Fact
from rmqstore.cli.output import byte_size

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
        advice = "read it anywhere, but write to it from one host alone: others may not see its locks"
        return Fact(area, "file system", f"{said}, over the network", "odd", advice)
    if mount.kind in _IN_MEMORY:
        return Fact(area, "file system", f"{said}, in memory", "odd", "nothing of it is left after a restart: move it")
    return Fact(area, "file system", f"{said}, local")


def _promises(area: str, mount: Mount) -> Iterator[Fact]:
    """Whether a sync and a lock mean something, as far as the options tell."""
    unsafe = sorted(mount.options & _NO_BARRIER)
    if unsafe or "eatmydata" in os.environ.get("LD_PRELOAD", ""):
        why = ", ".join(unsafe) or "LD_PRELOAD=…eatmydata…"
        yield Fact(area, "fsync", f"does not reach the disk ({why})", "odd",
                   "a power cut may take messages that were acknowledged: mount it without that")  # fmt: skip
    elif mount.kind in _IN_MEMORY:
        yield Fact(area, "fsync", "means nothing in memory")
    else:
        yield Fact(area, "fsync", "nothing speaks against it; --try measures it")
    unlocked = sorted(mount.options & _NO_LOCKS)
    if unlocked:
        yield Fact(area, "locks", f"are this host's only ({', '.join(unlocked)})", "odd",
                   "no other host is kept from writing: mount it with locks")  # fmt: skip


def _room(area: str, path: str) -> Iterator[Fact]:
    try:
        room = os.statvfs(path)
    except OSError as error:
        yield Fact(area, "room", f"unknown: {error.strerror}", "broken", "look at that disk")
        return
    free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    said = f"{byte_size(free)} of {byte_size(size)} free"
    is_low = free < _FREE_LEAST or free < size * _FREE_SHARE
    advice = "make room: a broker refuses messages above diskMaxUsedSpaceRatio; rmqstore clean deletes old files"
    yield Fact(area, "room", said, "odd" if is_low else "good", advice if is_low else "")
    if room.f_files:
        said = f"{room.f_favail:,} of {room.f_files:,} free"
        is_low = room.f_favail < room.f_files * _FREE_SHARE
        advice = "each queue takes one: delete topics that nobody needs" if is_low else ""
        yield Fact(area, "inodes", said, "odd" if is_low else "good", advice)
