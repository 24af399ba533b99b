"""The commitlog as a writer has it: where the next bytes go, and getting them there.

Everything that changes it happens under its one lock, `CommitLog.lock`: the end of the log, the rolling of files and,
for the store, the queue offsets and the order of store timestamps.
"""

import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from rmqstore.core.locks import let_go
from rmqstore.engine.log.put.block import BlockPart
from rmqstore.engine.log.put.watermarks import Watermarks
from rmqstore.errors import DurabilityLost, NotNow, Rejected
from rmqstore.files.file_sequence import FileSequence
from rmqstore.files.ownership import Ownership
from rmqstore.formats import message
from rmqstore.formats.framing import Framing, bare
from rmqstore.formats.message_columns import Bytes, Ints
from rmqstore.formats.names import QueueKey

_FREE_S = -1.0


class TransientPool:
    """At most `count` buffers of `size` bytes (RocketMQ: TransientStorePool); one thread at a time.

    A buffer is made when it is first asked for, so an idle pool costs nothing.  It keeps what its last user left in it.
    The user says which are in use: nothing has to be given back, so an exception cannot lose one.
    """

    def __init__(self, count: int, size: int) -> None:
        if count < 0 or size <= 0:
            raise ValueError(f"a pool of {count} buffers of {size} bytes")
        self.count = count
        self.size = size
        self._buffers: list[bytearray] = []

    def unused(self, in_use: Collection[bytearray]) -> bytearray | None:
        """A buffer of `size` bytes that is none of those in use; None if all are."""
        taken = {id(buffer) for buffer in in_use}
        for buffer in self._buffers:
            if id(buffer) not in taken:
                return buffer
        if len(self._buffers) >= self.count:
            return None
        self._buffers.append(bytearray(self.size))
        return self._buffers[-1]


class NewEntries(Protocol):
    """Puts records into the entries of a log; under the put lock.  See `dledger.wrapping.EntryForm`."""

    gap: int

    @property
    def locks(self) -> tuple[threading.RLock, ...]:
        """The locks that `locks.let_go` may have to give back."""

    def wrap(self, place: int, records: Sequence[bytes | bytearray | memoryview]) -> bytes:
        """The entries of records of which the first stands at `place`."""

    def fill_heads(self, place: int, data: Bytes, starts: Ints) -> None:
        """Makes entries of records with `gap` bytes of room in front of each, at `starts` int64[n + 1] of `data`."""

    def appended(self) -> None:
        """Says that what was wrapped last is in the log; again does nothing.  Raises OSError."""


class Wrapping(NamedTuple):
    """A log whose new records stand in entries; `framing` says how they stand in the file of an offset."""

    wrapper: NewEntries
    framing: Callable[[int], Framing]


class NoLogFile(NotNow):
    """No new log file could be made: the put stored nothing, and may succeed when there is room again."""


class CommitLog:
    """Appends to the files of `files`, from `end` on.

    `make_next(start)` makes the file that starts there (and has the one after made ready).  With a `pool`, bytes wait
    in its buffers until `commit`, and only committed bytes can be read.  `sync_failed` is told from where on bytes may
    never reach the disk, before anybody hears of it.  `next_offsets` (queue → queue offset of the next message) is
    filled in before the first put, and changed under the lock.  `ownership`, where there is one, says whether the log
    may still be written.  With `wrapping` records are put into entries: `gap` bytes in front of each are the head of
    its entry, and what is appended begins with one.
    """

    def __init__(
        self,
        files: FileSequence,
        end: int,
        make_next: Callable[[int], None] | None = None,
        pool: TransientPool | None = None,
        pool_fast_fail: bool = False,
        sync_failed: Callable[[int], None] | None = None,
        ownership: Ownership | None = None,
        wrapping: Wrapping | None = None,
    ) -> None:
        self.files = files
        self.wrapper: NewEntries | None = None if wrapping is None else wrapping.wrapper
        self.framing: Callable[[int], Framing] = bare if wrapping is None else wrapping.framing
        self.gap = 0 if self.wrapper is None else self.wrapper.gap
        self.lock = threading.RLock()  # one that `let_go` may free; nobody takes it twice, see `begin_turn`
        self.held_since_s = _FREE_S  # when the present turn began, on the monotonic clock; below 0: there is none
        self.next_offsets: dict[QueueKey, int] = {}
        self._ownership = ownership
        self._sync_failed = sync_failed
        self.marks = Watermarks(end, self._sync)
        self.newest_ms = 0  # store time of the newest message; under the lock
        self._make_next = make_next or (lambda start: _made(files, start))
        self._pool = pool
        self._pool_fast_fail = pool_fast_fail
        self._buffers: dict[int, bytearray] = {}  # by file start: bytes that are appended and not all committed
        self._commit_lock = threading.RLock()  # one committer at a time
        self._file_end = files.end if files.holds(end) else end

    @property
    def start(self) -> int:
        """The first offset that the files hold."""
        return self.files.start

    @property
    def readable_end(self) -> int:
        """How far the log can be read: all that is committed to the file."""
        return self.marks.committed

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size), as far as they can be read; empty for an offset that no file holds."""
        room = self.marks.committed - offset
        return self.files.read(offset, min(size, room)) if room > 0 else b""

    def room(self) -> int:
        """Bytes of records that still go into the present file, the blank's room left out; under the lock."""
        return self._file_end - self.marks.appended - message.BLANK.size

    def begin_turn(self, now_s: float) -> None:
        """Begins a turn, just after the lock was taken; `end_turn` ends it."""
        self.held_since_s = now_s

    def end_turn(self) -> None:
        """Ends a turn, just before the lock is given back."""
        self.held_since_s = _FREE_S

    def is_in_own_turn(self) -> bool:
        """Whether this thread stands in the middle of a turn: in a signal handler that interrupted it."""
        if self.held_since_s < 0 or not self.lock.acquire(blocking=False):
            return False
        try:
            return self.held_since_s >= 0
        finally:
            self.lock.release()

    def let_go(self) -> None:
        """Gives back what an exception left this thread with (see `locks.let_go`); not in the middle of a turn."""
        wrapped = () if self.wrapper is None else self.wrapper.locks
        let_go((self.lock, self._commit_lock, self.marks.lock, *self.files.locks, *wrapped))
        if self.lock.acquire(blocking=False):
            self.end_turn()  # nobody's, as the lock is free
            self.lock.release()

    def place(self, size: int, *, begins_file: bool = False) -> int:
        """Where a record goes, or a batch that must stay together, which takes `size` bytes with the heads of its
        entries; under the lock.  `begins_file`: as the first thing in a file of its own, whatever room there is.

        Closes the file with a blank record when it does not fit, and begins the next one.  Raises Rejected for what no
        file can hold, NoLogFile, DurabilityLost, and StoreClosed once the store is being closed.
        """
        if self.marks.failure is not None:
            raise self.marks.failure
        if self._ownership is not None and self._ownership.refusal is not None:
            self._ownership.require_open()
        if size > self._file_end - self.marks.appended - message.BLANK.size or begins_file:
            self._roll(size)
        return self.marks.appended + self.gap

    def append(
        self, offset: int, data: bytes | bytearray | memoryview, store_ms: int, moved: Mapping[QueueKey, int]
    ) -> None:
        """Appends at the place that `place` gave, and notes the `next_offsets` that changed by it; under the lock.
        `data` begins with the head of the record's entry, where it has one.

        Both or neither: a record without its note would have its queue offset given out twice.  So whatever interrupts
        it (Ctrl-C, say), it is done once more before the exception goes on: the same bytes at the same place, the same
        numbers.  Interrupted again, the log takes nothing more.  Raises DurabilityLost when the disk refuses.
        """
        offset -= self.gap
        try:
            self._write(offset, data)
            if self.wrapper is not None:
                _noted(self.wrapper, self.marks)
            self.next_offsets.update(moved)
            self.newest_ms = store_ms
        except DurabilityLost:
            raise
        except BaseException:
            self._append_again(offset, data, store_ms, moved)
            raise

    def append_block(self, offset: int, data: bytes, parts: Sequence[BlockPart]) -> int:
        """Appends bytes of another log as they are, `offset` being where they stand there and where this one ends; not
        under the lock.  Files end where the other log's do: its blank records are part of the bytes.

        `parts` are those that `block.block_parts` found in them; where they end is the answer.  Nobody waits for the
        disk, and what follows the log is not woken.  Raises Rejected, with nothing appended, for another offset than
        the log's end; otherwise as `place` and `append`: then some whole records may be in, as `marks.appended` says,
        and the rest can be brought again from there.
        """
        view = memoryview(data)
        try:
            with self.lock:
                self.begin_turn(math.inf)  # it keeps nobody waiting for as long as would count as busy
                try:
                    if offset != self.marks.appended:
                        raise Rejected(f"a block of offset {offset}: the log ends at {self.marks.appended}")
                    for part in parts:
                        self.place(0)
                        store_ms = self.newest_ms if part.store_ms is None else part.store_ms
                        self.append(part.offset, view[part.offset - offset : part.end - offset], store_ms, part.moved)
                finally:
                    self.end_turn()
        except BaseException:
            self.let_go()
            raise
        return parts[-1].end if parts else offset

    def forget_topic(self, topic: str, stay: Collection[int] = ()) -> None:
        """Has the queues of a topic but those that `stay` begin again at 0, all of them whatever interrupts it; under
        the lock."""
        try:
            self._forget_topic(topic, stay)
        except BaseException:
            self._forget_topic(topic, stay)
            raise

    def _forget_topic(self, topic: str, stay: Collection[int]) -> None:
        for key in [key for key in self.next_offsets if key[0] == topic and key[1] not in stay]:
            del self.next_offsets[key]

    def _append_again(
        self, offset: int, data: bytes | bytearray | memoryview, store_ms: int, moved: Mapping[QueueKey, int]
    ) -> None:
        try:
            self._write(offset, data)
            if self.wrapper is not None:
                _noted(self.wrapper, self.marks)
            self.next_offsets.update(moved)
            self.newest_ms = store_ms
        except BaseException as again:
            self.marks.latch(f"a put was interrupted twice ({again!r})")
            raise

    def _write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        end = offset + len(data)
        position = offset % self.files.file_size
        buffer = self._buffers.get(offset - position) if self._buffers else None
        if buffer is not None:
            buffer[position : position + len(data)] = data
            self.marks.appended = end
            return
        try:
            self.files.write(offset, data)
        except OSError as error:
            raise self.marks.latch(f"a write to the commitlog failed ({error.strerror or error})") from error
        self.marks.appended = self.marks.committed = end

    def commit(self, least_pages: int = 0) -> bool:
        """Writes what the pool's buffers hold to the files; whether anything moved.  Raises DurabilityLost."""
        if self._pool is None:
            return False
        with self._commit_lock:
            moved = False
            self._drop_committed()
            while (low := self.marks.committed) < (high := self.marks.appended):
                size = self.files.file_size
                file_start = low - low % size
                high = min(high, file_start + size)
                is_full = high == file_start + size
                if not is_full and high // _PAGE - low // _PAGE < least_pages:
                    break
                self._write_out(file_start, low, high)
                moved = True
                if is_full:
                    self._drop_committed()
            return moved

    def sync_to(self, offset: int, timeout_s: float) -> bool:
        """Waits until what is before `offset` is on the disk; False at a timeout.  Raises DurabilityLost."""
        return self.marks.sync_to(offset, timeout_s, self.commit if self._pool is not None else None)

    def _sync(self, low: int, high: int) -> None:
        try:
            self.files.sync(low, high)
            if self._ownership is not None and not self._ownership.is_in_place():
                self._ownership.require_place(self.files.directories[0])  # what was removed syncs as well as ever
        except OSError:
            if self._sync_failed is not None:
                self._sync_failed(low)
            raise

    def _drop_committed(self) -> None:
        """Lets go of the buffers of files that are full and committed."""
        for start in list(self._buffers):
            if start + self.files.file_size <= self.marks.committed:
                del self._buffers[start]

    def _write_out(self, file_start: int, low: int, high: int) -> None:
        view = memoryview(self._buffers[file_start])[low - file_start : high - file_start]
        try:
            self.files.write(low, view)
        except OSError as error:
            raise self.marks.latch(f"a write to the commitlog failed ({error.strerror or error})") from error
        finally:
            view.release()
        self.marks.advance_committed(high)

    def _roll(self, size: int) -> None:
        """Makes the next file, then fills the present one up with a blank record.

        Each step leaves a state from which the next call goes on, whatever interrupts it.
        """
        file_size = self.files.file_size
        if size + message.BLANK.size > file_size:
            raise Rejected(f"{size} bytes in one piece: the log's files have {file_size}")
        end, start = self.marks.appended, self._file_end
        if start % file_size:
            raise DurabilityLost(f"the log ends at {end}, where no file of {file_size} bytes can begin")
        if self._pool is not None and start not in self._buffers:
            self._borrow(start)
        if not self.files.holds(start):
            self._make(start)
        if end < start:
            self._fill_up(end, start)
        self._file_end = start + file_size

    def _make(self, start: int) -> None:
        try:
            self._make_next(start)
        except (OSError, NotNow) as error:
            self._buffers.pop(start, None)
            if not isinstance(error, OSError):
                raise
            raise NoLogFile(f"no log file can be made at {start}: {error.strerror or error}") from error

    def _fill_up(self, end: int, file_end: int) -> None:
        """The blank record, and zeros after it, which a new file has already and a buffer has not.

        The end moves once, to where the next record goes: in between nothing may be put.
        """
        blank = self.framing(end).blank(file_end - end)
        if end - end % self.files.file_size in self._buffers:
            self._write(end, blank.ljust(file_end - end, b"\0"))
            return
        try:
            self.files.write(end, blank)
        except OSError as error:
            raise self.marks.latch(f"a write to the commitlog failed ({error.strerror or error})") from error
        self.marks.appended = self.marks.committed = file_end

    def _borrow(self, start: int) -> None:
        """A buffer for the file that begins there; whichever no other file has is free."""
        assert self._pool is not None
        buffer = self._pool.unused(list(self._buffers.values()))
        if buffer is None and not self._pool_fast_fail:
            self.commit()
            buffer = self._pool.unused(list(self._buffers.values()))
        if buffer is None:
            raise NoLogFile("every buffer of the write pool is in use")
        self._buffers[start] = buffer


_PAGE = 4096


def _made(files: FileSequence, start: int) -> None:
    files.add(start)


def _noted(new: NewEntries, marks: Watermarks) -> None:
    try:
        new.appended()
    except OSError as error:
        raise marks.latch(f"a write to the index of entries failed ({error.strerror or error})") from error
