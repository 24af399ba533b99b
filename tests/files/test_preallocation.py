"""Files made ahead: taken once, waited for within bounds, and none left behind."""

import errno
import itertools
import threading

import pytest

from rmqstore.clock import ManualClock
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.preallocation import Preallocator
from tests.crash.disks import FailingDisk, MemoryDisk
from tests.patience import PATIENCE_S
from tests.store.interrupting import Interrupt

SIZE = 4096


@pytest.fixture
def disk():
    disk = MemoryDisk()
    disk.make_directories("/log")
    return disk


def preallocator(disk, **options) -> Preallocator:
    return Preallocator(disk, ManualClock(), **options)


def test_a_requested_file_is_made_by_a_step_and_taken_once(disk) -> None:
    ahead = preallocator(disk)
    ahead.request("/log/1", SIZE)
    ahead.request("/log/1", SIZE)
    assert (ahead.step(), ahead.step()) == (0.0, None)
    file = ahead.take("/log/1", 0)
    assert (file.path, file.size()) == ("/log/1", SIZE)
    assert disk.crash("lost").image() == {"/log/1": bytes(SIZE)}
    assert ahead.take("/log/1", 0) is None
    assert (ahead.take_count, ahead.wait_count, ahead.waited_s) == (1, 0, 0.0)


def test_the_largest_is_made_first_then_by_path(disk) -> None:
    ahead = preallocator(disk)
    for path, size in (("/log/c", 10), ("/log/b", 10), ("/log/d", 99), ("/log/a", 5)):
        ahead.request(path, size)
    made = []
    while ahead.step() is not None:
        made += [each.name for each in disk.entries("/log") if each.name not in made]
    assert made == ["d", "b", "c", "a"]


def test_a_request_wakes_the_worker(disk) -> None:
    ahead, woken = preallocator(disk), []
    ahead.wake = lambda: woken.append(True)
    ahead.request("/log/1", SIZE)
    assert woken == [True]


def test_what_was_not_begun_in_time_is_withdrawn(disk) -> None:
    ahead = preallocator(disk)
    assert ahead.take("/log/1", 0) is None
    ahead.request("/log/1", SIZE)
    assert ahead.take("/log/1", 0.001) is None
    assert ahead.step() is None
    assert disk.image() == {}
    assert (ahead.take_count, ahead.wait_count) == (0, 1)


def test_a_file_that_nobody_has_begun_is_not_waited_for_where_nobody_may_begin_it(disk) -> None:
    ahead = preallocator(disk)
    ahead.request("/log/1", SIZE)
    assert ahead.take("/log/1", PATIENCE_S, may_be_begun=False) is None
    assert (ahead.step(), ahead.wait_count) == (None, 0)


def test_a_file_that_somebody_has_begun_is_waited_for_all_the_same(disk) -> None:
    """A put of a store without threads was refused while another thread of the program was in `step`."""
    begun, awaited = threading.Event(), threading.Event()

    class Asked(ManualClock):
        def monotonic_s(self) -> float:
            awaited.set()
            return super().monotonic_s()

    def prepare(_file, _size) -> None:
        begun.set()
        assert awaited.wait(PATIENCE_S)

    ahead = Preallocator(disk, Asked(), prepare)
    ahead.request("/log/1", SIZE)
    maker = threading.Thread(target=ahead.step)
    maker.start()
    assert begun.wait(PATIENCE_S)
    file = ahead.take("/log/1", PATIENCE_S, may_be_begun=False)
    maker.join()
    assert file is not None
    assert (file.path, ahead.take_count, ahead.wait_count) == ("/log/1", 1, 1)


def test_what_is_still_being_made_is_waited_for_and_can_be_taken_later(disk) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def prepare(file, size) -> None:
        begun.set()
        go_on.wait(PATIENCE_S)

    ahead = preallocator(disk, prepare=prepare)
    ahead.request("/log/1", SIZE)
    worker = threading.Thread(target=ahead.step)
    worker.start()
    assert begun.wait(PATIENCE_S)
    with pytest.raises(TimeoutError, match="still being made"):
        ahead.take("/log/1", 0.001)
    go_on.set()
    assert ahead.take("/log/1", PATIENCE_S).size() == SIZE
    worker.join()
    assert ahead.wait_count >= 1


@pytest.mark.parametrize("at", [1, 2])
def test_a_failure_reaches_who_takes_and_the_next_request_tries_again(disk, at) -> None:
    failing = FailingDisk(disk, at, errno.ENOSPC)  # the creation, or the directory's sync
    ahead = preallocator(failing)
    ahead.request("/log/1", SIZE)
    assert ahead.step() == 0.0
    assert disk.image() == {}
    with pytest.raises(OSError, match="No space left"):
        ahead.take("/log/1", 0)
    ahead.request("/log/1", SIZE)
    ahead.step()
    assert ahead.take("/log/1", 0).size() == SIZE


def test_a_file_that_cannot_be_prepared_is_not_left(disk) -> None:
    def prepare(file, size) -> None:
        raise OSError(errno.EIO, "Input/output error")

    ahead = preallocator(disk, prepare=prepare)
    ahead.request("/log/1", SIZE)
    ahead.step()
    with pytest.raises(OSError, match="Input/output"):
        ahead.take("/log/1", 0)
    assert disk.image() == {}


def test_unused_files_are_removed_at_the_end(disk) -> None:
    ahead = preallocator(disk)
    for name in "1234":
        ahead.request(f"/log/{name}", SIZE)
    for _ in range(3):
        ahead.step()
    ahead.take("/log/1", 0)
    assert ahead.discard_unused() == ["/log/3", "/log/2"]
    assert list(disk.crash("lost").image()) == ["/log/1"]
    assert ahead.step() is None


def test_a_sequence_takes_its_files_from_it(disk) -> None:
    ahead = preallocator(disk)
    files = FileSequence(disk, FileHandles(disk, 4), ["/log"], SIZE)
    files.ready = lambda path, size: ahead.take(path, 5)
    for start in range(0, 5 * SIZE, SIZE):
        files.add(start)
        ahead.request(files.path_for(start + SIZE), SIZE)
        ahead.step()
    assert (ahead.take_count, ahead.wait_count) == (4, 0)
    assert files.end == 5 * SIZE
    assert ahead.discard_unused() == [files.path_for(5 * SIZE)]


def test_a_step_that_is_interrupted_at_any_line_leaves_no_maker_to_wait_for() -> None:
    for at in itertools.count(1):
        disk = MemoryDisk()
        disk.make_directories("/log")
        ahead = preallocator(disk)
        ahead.request("/log/1", SIZE)
        interrupt = Interrupt(at, is_real=True)
        interrupt.call(ahead.step)
        file = ahead.take("/log/1", 0, may_be_begun=False)
        assert file is None or file.size() == SIZE, interrupt.place
        if interrupt.place is None:
            break
    assert at > 12
    assert file is not None
