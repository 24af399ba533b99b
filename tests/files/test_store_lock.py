"""The lock excludes other processes as Java's does, and this process from itself; its file alone means nothing."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys

import pytest

from rmqstore.errors import NotAStore, StoreInUse
from rmqstore.files.filesystem import RealFileSystem

FS = RealFileSystem()
# Another program: takes the lock in the way of Java's FileChannel.tryLock(0, 1, false), says how it went, and holds it.
OTHER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    print("taken", flush=True)
except OSError:
    print("refused", flush=True)
sys.stdin.read()
"""


class OtherProgram:
    def __init__(self, path):
        arguments = [sys.executable, "-I", "-S", "-c", OTHER, path]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.says = self._process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.communicate("")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "lock")


def test_another_program_is_excluded_until_release(path) -> None:
    held = FS.lock(path)
    with OtherProgram(path) as other:
        assert other.says == "refused"
    held.release()
    with OtherProgram(path) as other:
        assert other.says == "taken"


def test_another_programs_lock_is_respected_and_ends_with_it(path) -> None:
    with OtherProgram(path) as other:
        assert other.says == "taken"
        with pytest.raises(StoreInUse, match="another process"):
            FS.lock(path)
    FS.lock(path).release()


def test_a_second_writer_in_this_process_is_refused_and_takes_nothing_away(path) -> None:
    held = FS.lock(path)
    for _ in range(2):
        with pytest.raises(StoreInUse, match="this process"):
            FS.lock(path)
    with OtherProgram(path) as other:  # the refused tries did not drop the lock, as closing a descriptor would
        assert other.says == "refused"
    held.release()


def test_the_same_file_by_another_path_is_refused(path, tmp_path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    held = FS.lock(path)
    with pytest.raises(StoreInUse, match="this process"):
        FS.lock(str(tmp_path / "link" / "lock"))
    held.release()


def test_a_lock_file_left_behind_is_no_lock(path) -> None:
    """RocketMQ #7576: only the record lock counts, never the file."""
    with open(path, "wb") as file:
        file.write(b"anything at all")
    held = FS.lock(path)
    with open(path, "rb") as file:
        content = file.read()
    assert content == b"lockhing at all"
    held.release()


def test_release_may_come_twice_and_the_lock_may_be_taken_again(path) -> None:
    first = FS.lock(path)
    assert first.is_held
    first.release()
    first.release()
    assert not first.is_held
    second = FS.lock(path)
    first.release()
    assert second.is_held
    with OtherProgram(path) as other:
        assert other.says == "refused"
    second.release()


def test_a_copy_made_by_this_process_does_not_drop_the_lock(path, tmp_path) -> None:
    """Whoever opens and closes the file, a copy of the directory say, would drop a classic record lock."""
    held = FS.lock(path)
    shutil.copy(path, tmp_path / "backup")
    with open(path, "rb") as file:
        assert file.read() == b"lock"
    with OtherProgram(path) as other:
        assert other.says == "refused"
    held.release()
    with OtherProgram(path) as other:
        assert other.says == "taken"


def test_a_file_system_without_such_locks_gets_the_classic_one(path, monkeypatch) -> None:
    def refuse(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    held = FS.lock(path)
    with OtherProgram(path) as other:
        assert other.says == "refused"
    held.release()
    with OtherProgram(path) as other:
        assert other.says == "taken"


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(path) -> None:
    """A worker process that was left behind must not keep the next opener out."""
    program = """
import os, sys
from rmqstore.files.store_lock import RealLock
held = RealLock.take(sys.argv[1])
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()
os._exit(0)
"""
    arguments = [sys.executable, "-c", program, path]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "forked\n"
        parent.wait()
        FS.lock(path).release()
        parent.stdin.close()


def test_no_descriptor_is_leaked_by_refusals(path) -> None:
    with OtherProgram(path):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(StoreInUse):
                FS.lock(path)
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_child_made_by_fork_holds_nothing_and_cannot_take_it(path) -> None:
    program = """
import os, sys
from rmqstore.errors import NotAStore, StoreInUse
from rmqstore.files.store_lock import RealLock
held = RealLock.take(sys.argv[1])
child = os.fork()
if child == 0:
    is_held = held.is_held
    held.release()
    try:
        RealLock.take(sys.argv[1])
    except StoreInUse as refused:
        print(is_held, refused.reason, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(held.is_held, flush=True)
sys.stdin.read()
"""
    arguments = [sys.executable, "-c", program, path]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "False another process writes to the store\n"
        assert parent.stdout.readline() == "True\n"
        with pytest.raises(StoreInUse, match="another process"):  # the child's end did not give it back
            FS.lock(path)
        parent.communicate("")


def test_a_lock_file_that_is_a_link_is_not_followed(path, tmp_path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotAStore, match="symbolic link"):
        FS.lock(path)
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_lock_that_is_no_ordinary_file_is_refused_at_once(make, path) -> None:
    make(path)
    with pytest.raises(NotAStore, match=r"lock: is a .*, not an ordinary file; move it out"):
        FS.lock(path)


def test_the_error_says_what_to_do(path) -> None:
    held = FS.lock(path)
    with pytest.raises(StoreInUse) as caught:
        FS.lock(path)
    assert caught.value.path == path
    assert "open_snapshot" in str(caught.value)
    held.release()


def test_a_lock_file_that_is_replaced_while_it_is_locked_is_none(path, monkeypatch) -> None:
    """Another program may have the one that stands there now."""
    really = fcntl.fcntl

    def replaced_before(descriptor, *more) -> None:
        os.rename(path, path + ".moved")
        with open(path, "w"):
            pass
        really(descriptor, *more)

    monkeypatch.setattr(fcntl, "fcntl", replaced_before)
    with pytest.raises(StoreInUse, match="replaced while it was taken"):
        FS.lock(path)
    monkeypatch.undo()
    FS.lock(path).release()


@pytest.mark.parametrize("how", ["removed", "replaced", "moved back"])
def test_a_lock_knows_whether_its_file_still_stands_there(path, how: str) -> None:
    held = FS.lock(path)
    assert held.is_in_place()
    os.rename(path, path + ".moved")
    if how == "replaced":
        with open(path, "w"):
            pass
    if how == "moved back":
        os.rename(path + ".moved", path)
    assert held.is_in_place() is (how == "moved back")
    held.release()
