"""The blank rule, the rolling of files, the write pool, and what a disk that refuses does to the log."""

import struct

import pytest

from rmqstore.engine.log.put.commitlog import CommitLog, NoLogFile, TransientPool
from rmqstore.errors import DurabilityLost, Rejected
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.formats import message
from tests.crash.disks import MemoryDisk

FILE_SIZE = 4096
BLANK = struct.Struct(">ii")


def new_log(disk: object, pool: TransientPool | None = None, *, fast_fail: bool = False) -> CommitLog:
    disk.make_directories("/s/commitlog")  # type: ignore[attr-defined]
    files = FileSequence(disk, FileHandles(disk, 16), ["/s/commitlog"], FILE_SIZE, keep_open=True)  # type: ignore[arg-type]
    return CommitLog(files, 0, pool=pool, pool_fast_fail=fast_fail)


def append(log: CommitLog, size: int) -> int:
    with log.lock:
        offset = log.place(size)
        log.append(offset, b"x" * size, 1, {})
    return offset


@pytest.mark.parametrize(
    ("size", "second_at"),
    [(FILE_SIZE - 100 - 8, 100), (FILE_SIZE - 100 - 7, FILE_SIZE), (FILE_SIZE - 100, FILE_SIZE)],
    ids=["leaves exactly the blank", "one byte too many", "would fill the file"],
)
def test_a_record_leaves_room_for_a_blank(size: int, second_at: int) -> None:
    log = new_log(MemoryDisk())
    assert append(log, 100) == 0
    assert append(log, size) == second_at
    if second_at == FILE_SIZE:
        assert BLANK.unpack(log.read(100, 8)) == (FILE_SIZE - 100, message.MAGIC_BLANK)
    assert log.marks.appended == log.marks.committed == second_at + size


def test_the_blank_may_be_the_last_8_bytes() -> None:
    log = new_log(MemoryDisk())
    append(log, FILE_SIZE - 8)
    assert append(log, 10) == FILE_SIZE
    assert BLANK.unpack(log.read(FILE_SIZE - 8, 8)) == (8, message.MAGIC_BLANK)


class InterruptedNotes(dict[tuple[str, int], int]):
    """Ctrl-C comes before the first note, when the record is in."""

    is_first = True

    def update(self, *given: dict[tuple[str, int], int]) -> None:  # type: ignore[override]
        if self.is_first:
            self.is_first = False
            raise KeyboardInterrupt
        super().update(*given)


def test_a_record_is_never_without_the_note_of_its_queue_offset() -> None:
    log = new_log(MemoryDisk())
    log.next_offsets = InterruptedNotes()
    with log.lock, pytest.raises(KeyboardInterrupt):
        log.append(log.place(100), b"x" * 100, 1, {("alpha", 0): 1})
    assert (log.marks.appended, dict(log.next_offsets)) == (100, {("alpha", 0): 1})
    assert append(log, 50) == 100


def test_what_no_file_can_hold_is_refused_and_changes_nothing() -> None:
    log = new_log(MemoryDisk())
    append(log, 50)
    with log.lock, pytest.raises(Rejected, match="files have 4096"):
        log.place(FILE_SIZE - 7)
    assert (log.marks.appended, log.files.end) == (50, FILE_SIZE)


def test_a_file_that_cannot_be_made_is_no_damage() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, 4000)
    room, disk.free = disk.free, 0
    with log.lock, pytest.raises(NoLogFile, match="No space left"):
        log.place(200)
    assert log.marks.appended == 4000
    assert log.read(4000, 8) == b""  # not even a blank
    disk.free = room
    assert append(log, 200) == FILE_SIZE  # there is room again


def test_a_write_that_fails_latches_the_log() -> None:
    inner = MemoryDisk()
    log = new_log(inner)
    append(log, 100)
    assert log.sync_to(100, 1.0)

    def fail(offset: int, data: object) -> None:
        raise OSError(5, "Input/output error")

    log.files.write = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(DurabilityLost, match="Input/output error"):
        append(log, 10)
    assert log.marks.appended == 100
    with log.lock, pytest.raises(DurabilityLost):
        log.place(10)
    with pytest.raises(DurabilityLost):
        log.sync_to(100, 1.0)
    assert log.read(0, 100) == b"x" * 100  # reads go on


def test_the_pool_holds_bytes_back_until_they_are_committed() -> None:
    log = new_log(MemoryDisk(), TransientPool(2, FILE_SIZE))
    append(log, 1000)
    assert (log.marks.appended, log.marks.committed, log.read(0, 10)) == (1000, 0, b"")
    assert log.commit()
    assert log.read(0, 1000) == b"x" * 1000
    assert not log.commit()


def test_a_sync_commits_first() -> None:
    log = new_log(MemoryDisk(), TransientPool(2, FILE_SIZE))
    append(log, 1000)
    assert log.sync_to(1000, 1.0)
    assert (log.marks.committed, log.marks.flushed) == (1000, 1000)


def test_what_comes_into_the_pool_between_commit_and_sync_is_not_called_flushed() -> None:
    """It is in memory only: the put that waits for it needs a commit and a sync of its own."""
    disk = MemoryDisk()
    log = new_log(disk, TransientPool(2, FILE_SIZE))
    append(log, 100)
    commit, sync = log.commit, log.files.sync

    def commit_then_put() -> None:
        commit()
        append(log, 50)

    def checked_sync(low: int, high: int) -> None:
        assert high <= log.marks.committed, f"a sync of bytes up to {high} that no file has"
        sync(low, high)

    log.files.sync = checked_sync  # type: ignore[method-assign]
    log.commit = commit_then_put  # type: ignore[method-assign, assignment]
    assert log.sync_to(100, 1.0)
    assert log.marks.flushed == 100
    log.commit = commit  # type: ignore[method-assign]
    assert log.sync_to(150, 1.0)
    assert disk.crash("lost").image()["/s/commitlog/00000000000000000000"].count(b"x") == 150


def test_a_commit_comes_before_the_sync_of_its_bytes() -> None:
    disk = MemoryDisk()
    log = new_log(disk, TransientPool(2, FILE_SIZE))
    append(log, 1000)
    assert log.sync_to(1000, 1.0)
    assert disk.crash("lost").image()["/s/commitlog/00000000000000000000"].count(b"x") == 1000


def test_full_buffers_come_back_and_their_blanks_are_clean() -> None:
    pool = TransientPool(2, FILE_SIZE)
    log = new_log(MemoryDisk(), pool)
    for _ in range(8):
        append(log, 3000)
        log.commit()
    assert len(log._buffers) == 1
    for start in range(0, 7 * FILE_SIZE, FILE_SIZE):
        assert BLANK.unpack(log.read(start + 3000, 8)) == (FILE_SIZE - 3000, message.MAGIC_BLANK)
        assert log.read(start + 3008, FILE_SIZE - 3008).count(0) == FILE_SIZE - 3008


def test_without_a_buffer_a_put_commits_or_fails_fast() -> None:
    pool = TransientPool(1, FILE_SIZE)
    log = new_log(MemoryDisk(), pool, fast_fail=True)
    append(log, 3000)
    with log.lock, pytest.raises(NoLogFile, match="every buffer"):
        log.place(3000)
    assert log.marks.appended == 3000
