"""A store directory, as it can be seen without writing or opening its lock: who has it, and what state it is in."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rmqstore.cli.doctor.finding import Fact
from rmqstore.cli.doctor.mounts import disk_facts
from rmqstore.cli.output import byte_size, counted, one_line, utc
from rmqstore.directory.store_root import found_store
from rmqstore.errors import StoreError
from rmqstore.files.reading import canonical_path
from rmqstore.formats import names
from rmqstore.snapshot.lookup.queue_times import newest_time
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.survey.extents import StoreExtent

_FUTURE_MS = 60_000
_OURS, _BROKER = b"rmqstore", b"org.apache.rocketmq"


def store_facts(given: str) -> Iterator[Fact]:
    """The facts of one place; where it is no store, that, and its disk."""
    try:
        area = root = canonical_path(given)
    except StoreError as error:
        yield Fact(given, "store", one_line(error), "broken", "give the directory that holds commitlog/")
        return
    try:
        found_store(root, may_be_ledger=True)
        store: StoreExtent | None = look_at(root).stores[0]
    except (StoreError, OSError) as error:
        said, _, advice = one_line(error).removeprefix(f"{area}: ").partition("; ")
        yield Fact(area, "store", said, "broken", advice or "rmqstore inspect says more")
        store = None
    if store is not None:
        yield from _contents(area, store)
        yield _holder(area, root)
        yield _access(area, root)
    if os.path.isdir(root):
        yield from disk_facts(area, root)


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
            advice = "that is in the future: compare the clocks of this host and the broker's" if is_ahead else ""
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
        return Fact(area, "lock", "nobody of this host holds it")
    command = b""
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    who = "a RocketMQ broker" if _BROKER in command else "rmqstore" if _OURS in command else "a process"
    owner = f"process {pid}" if pid > 0 else "a process that is not shown"
    return Fact(area, "lock", f"held by {who} ({owner}): it can be read, and not written")


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
