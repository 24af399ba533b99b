"""Two stores whose roots differ and whose logs do not: the second is refused, whoever opens it."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore import LedgerConfig, Message, StoreConfig, open_store
from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from rmqstore.errors import StoreInUse
from rmqstore.files.filesystem import RealDirectoryLock, RealFileSystem
from tests.store.interrupting import Interrupt

pytestmark = pytest.mark.stores

SMALL = StoreConfig(log_file_size=4096, queue_file_size=400, statistics=False)
OPENS = """
import sys
from rmqstore import LedgerConfig, StoreConfig, open_store
from rmqstore.errors import StoreInUse
root, log, kind = sys.argv[1:]
paths = {"log_paths": (log,)} if kind == "plain" else {"dledger": LedgerConfig(data_paths=(log,), takes_over=True)}
try:
    open_store(root, StoreConfig(log_file_size=4096, queue_file_size=400, **paths)).close()
except StoreInUse as error:
    print(error)
"""


HOLDS = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1)
print("held", flush=True)
sys.stdin.read()
"""


def plain(log: Path) -> StoreConfig:
    return replace(SMALL, log_paths=(str(log),))


def ledger(log: Path) -> StoreConfig:
    config = LedgerConfig(index_file_size=640, data_paths=(str(log),), takes_over=True)
    return replace(SMALL, dledger=config)


def in_another_process(root: Path, log: Path, kind: str) -> str:
    """The path that a second writer is refused for; empty where it got in."""
    done = subprocess.run([sys.executable, "-c", OPENS, root, log, kind], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_lock_whose_making_was_interrupted_is_let_go_without_an_error() -> None:
    lock = RealDirectoryLock.__new__(RealDirectoryLock)
    lock.release()
    assert not lock.is_held


def test_a_sweep_of_interrupts_leaves_finalizers_out(tmp_path: Path) -> None:
    """The collector runs them at other lines each time, and Python swallows what they raise."""
    lock = RealDirectoryLock.take(str(tmp_path))
    assert lock is not None
    interrupt = Interrupt(1)
    interrupt.call(lock.__del__)
    assert (interrupt.place, lock.is_held) == (None, False)


@pytest.mark.parametrize(("kind", "config_of"), [("plain", plain), ("ledger", ledger)])
def test_one_log_has_one_writer(tmp_path: Path, kind: str, config_of: Callable[[Path], StoreConfig]) -> None:
    log = tmp_path / "log"
    with open_store(tmp_path / "a", config_of(log)) as store:
        store.put(Message("t", b"first"))
        for other in (tmp_path / "b", tmp_path / "c"):
            with pytest.raises(StoreInUse, match="another open store has this directory for its log"):
                open_store(other, config_of(log))
        assert in_another_process(tmp_path / "b", log, kind).startswith(f"{log}: another open store has")
        assert store.put(Message("t", b"second")).is_stored
    with open_store(tmp_path / "a", config_of(log)) as store:  # close gave it back
        assert [message.body for message in store.get("t", 0, 0).messages] == [b"first", b"second"]
        store.abandon()
    open_store(tmp_path / "a", config_of(log)).close()  # so did a death


def test_a_log_that_does_not_exist_yet_has_one_writer(tmp_path: Path) -> None:
    with open_store(tmp_path / "a", plain(tmp_path / "new")):
        assert in_another_process(tmp_path / "b", tmp_path / "new", "plain").startswith(
            f"{tmp_path / 'new'}: another open store has"
        )


def test_a_log_that_is_only_read_has_no_other_writer(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with open_store(tmp_path / "a", plain(old)) as store:
        store.put(Message("t", b"first"))
    with open_store(tmp_path / "a", replace(plain(new), read_only_log_paths=(str(old),))):
        assert in_another_process(tmp_path / "b", old, "plain").startswith(f"{old}: another open store has")


def test_a_link_to_the_log_is_the_log(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with open_store(tmp_path / "a", plain(tmp_path / "log")):
        assert in_another_process(tmp_path / "b", tmp_path / "link", "plain").startswith(
            f"{tmp_path / 'log'}: another open store has"
        )


def test_an_ordinary_stores_log_is_nobody_elses(tmp_path: Path) -> None:
    with open_store(tmp_path / "a", SMALL):
        answer = in_another_process(tmp_path / "b", tmp_path / "a" / "commitlog", "plain")
    assert answer.startswith(f"{tmp_path}/a/commitlog: it is a part of {tmp_path}/a, a store that is open")


@pytest.mark.parametrize("kind", ["plain", "ledger"])
@pytest.mark.parametrize("below", ["commitlog/sub", "commitlog/new/deeper", "batchconsumequeue", "consumequeue/u/0"])
def test_no_part_of_an_open_store_is_another_ones_log(tmp_path: Path, below: str, kind: str) -> None:
    """Neither what is there nor what the store may make later."""
    with open_store(tmp_path / "a", SMALL, workers=False) as store:
        store.put(Message("t", b"x"))
        if below == "commitlog/sub":
            (tmp_path / "a" / below).mkdir()
        before = sorted(tmp_path.glob("a/**/*"))
        answer = in_another_process(tmp_path / "b", tmp_path / "a" / below, kind)
        assert answer.startswith(f"{tmp_path}/a/{below}: it is a part of {tmp_path}/a, a store that is open")
        assert sorted(tmp_path.glob("a/**/*")) == before


def test_directories_beside_the_rooms_of_an_open_store_may_be_another_ones_log(tmp_path: Path) -> None:
    """RocketMQ's roots may lie in each other: `/data` and `/data/b`."""
    with open_store(tmp_path / "a", SMALL), open_store(tmp_path / "b", plain(tmp_path / "a" / "log-of-b")) as store:
        assert store.put(Message("t", b"x")).is_stored
    with open_store(tmp_path / "c", plain(tmp_path / "c" / "commitlog" / "sub")) as store:
        assert store.put(Message("t", b"x")).is_stored


def test_a_brokers_log_is_nobody_elses(tmp_path: Path) -> None:
    """A broker locks the file `lock` of its root, and not the directory of its log."""
    with open_store(tmp_path / "a", SMALL) as store:
        store.put(Message("t", b"x"))
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path / "a" / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"held\n"
        for paths in ("log_paths", "read_only_log_paths"):
            config = replace(
                SMALL, **{"log_paths": (str(tmp_path / "c"),), paths: (str(tmp_path / "a" / "commitlog"),)}
            )
            with pytest.raises(StoreInUse, match=r"it is a part of .*, a store that is open"):
                open_store(tmp_path / "b", config)
        broker.communicate()


def test_the_files_of_entries_have_one_writer(tmp_path: Path) -> None:
    small = EntryStoreConfig(data_file_size=4096, index_file_size=640, data_paths=(str(tmp_path / "data"),))
    with EntryStore(tmp_path / "dledger-n0", small), pytest.raises(StoreInUse):
        EntryStore(tmp_path / "dledger-n1", small)
    EntryStore(tmp_path / "dledger-n0", small).close()


def test_a_refused_opening_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with open_store(tmp_path / "a", plain(log)):
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(StoreInUse):
                open_store(tmp_path / "b", plain(log))
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before
        assert [path.name for path in (tmp_path / "b").iterdir()] == ["lock"]
    open_store(tmp_path / "b", plain(tmp_path / "other")).close()


def test_a_child_made_by_fork_does_not_keep_it(tmp_path: Path) -> None:
    """A worker that outlives its parent's store must not lock the next opening out."""
    log = tmp_path / "log"
    store = open_store(tmp_path / "a", plain(log))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)  # until the parent has opened the store again
        os._exit(0)
    try:
        os.close(reading)
        store.close()
        with open_store(tmp_path / "a", plain(log)):
            assert in_another_process(tmp_path / "b", log, "plain").startswith(f"{log}: another open store has")
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_a_directory_that_cannot_be_locked_is_no_obstacle(tmp_path: Path) -> None:
    assert RealFileSystem().lock_directory(str(tmp_path / "none")) is None
    (tmp_path / "file").touch()
    assert RealFileSystem().lock_directory(str(tmp_path / "file")) is None
    held = RealDirectoryLock.take(str(tmp_path))
    assert held is not None
    assert held.is_held
    assert held.is_in_place()
    held.release()
    held.release()
    assert not held.is_held
