"""Facts that have to be tried: locks, maps, sparse files and syncs, in a directory of its own beside a store."""

import fcntl
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from rmqstore.cli.doctor.finding import Fact
from rmqstore.directory.store_root import found_store
from rmqstore.errors import StoreError

_SIZE = 4 * 1024 * 1024
_SYNCS = 15
# No disk is so fast, and no battery-backed cache behind a bus.
_SYNC_LEAST_S = 5e-6
_TAKE = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
_PATIENCE_S = 60.0


def tried_facts(given: str) -> Iterator[Fact]:
    """The facts of the file system beside a store, which itself is not touched.  What is made is removed again."""
    try:
        area = found_store(given, may_be_ledger=True)
    except StoreError:  # told already
        return
    beside = os.path.dirname(area)
    try:
        with tempfile.TemporaryDirectory(prefix=".rmqstore-doctor-", dir=beside) as directory:
            path = os.path.join(directory, "tried")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                yield _sparse(area, descriptor)
                yield _mapped(area, descriptor)
                yield _locked(area, descriptor, path)
                yield _synced(area, descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        yield Fact(
            area,
            "tried",
            f"nothing can be made in {beside}: {error.strerror}",
            "odd",
            "run as a user who may write there",
        )


def _sparse(area: str, descriptor: int) -> Fact:
    os.ftruncate(descriptor, _SIZE)
    if os.fstat(descriptor).st_blocks * 512 < _SIZE:
        return Fact(area, "sparse files", "tried: a file that is made ahead takes no room")
    return Fact(area, "sparse files", "tried: none", "odd", "each file made ahead takes its whole size at once")


def _mapped(area: str, descriptor: int) -> Fact:
    try:
        with mmap.mmap(descriptor, _SIZE) as page:
            os.pwrite(descriptor, b"written", 100)
            is_seen = page[100:107] == b"written"
    except OSError as error:
        return Fact(area, "mmap", f"tried: refused ({error.strerror})", "odd", "read with access='pread'")
    if is_seen:
        return Fact(area, "mmap", "tried: works, and sees what is written")
    return Fact(area, "mmap", "tried: does not see what is written", "broken", "read with access='pread'")


def _locked(area: str, descriptor: int, path: str) -> Fact:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        return Fact(area, "locks", f"tried: refused ({error.strerror})", "broken", "no store can be written here")
    done = subprocess.run(  # noqa: S603  this very Python
        [sys.executable, "-c", _TAKE, path], capture_output=True, timeout=_PATIENCE_S, check=False
    )
    if done.returncode:
        return Fact(area, "locks", "tried: keep a second process out")
    return Fact(
        area, "locks", "tried: a second process gets them too", "broken", "write to a store here from one program alone"
    )


def _synced(area: str, descriptor: int) -> Fact:
    took_s = []
    for number in range(_SYNCS):
        os.pwrite(descriptor, b"%d" % number, number * 4096)
        began_s = time.perf_counter()
        os.fsync(descriptor)
        took_s.append(time.perf_counter() - began_s)
    middle_s = statistics.median(took_s)
    said = f"tried: {middle_s * 1000:.3f} ms, as the median of {_SYNCS}"
    if middle_s < _SYNC_LEAST_S:
        return Fact(
            area, "fsync", said, "odd", "no disk is so fast: a power cut may take messages that were acknowledged"
        )
    return Fact(area, "fsync", said)
