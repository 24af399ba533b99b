"""Puts that wait for the disk, together: of the threads that wait one appends and syncs for all of them.

The frames that come in while a sync is under way go into the log in one write and get to the disk in the next sync, so
that each waiting thread sleeps once and is woken once, whatever the number of threads.  A few are woken at first, and
each of them wakes another: all at once would only stand in line for the interpreter, and sleep there again.
"""

import threading
from collections.abc import Callable, MutableMapping, Sequence
from typing import NamedTuple

from rmqstore.errors import DurabilityLost, Rejected
from rmqstore.formats.batch_frames import BatchFrame
from rmqstore.formats.record_frame import Frame
from rmqstore.log.commitlog import CommitLog, NoLogFile
from rmqstore.message import PutStatus

QueueKey = tuple[str, int]
# How many are woken at first: with 64 threads 4 give 24 k puts/s, 1 and all at once 20 k.
_STRANDS = 4


class Placed(NamedTuple):
    """Where and when a frame was appended."""

    offset: int
    queue_offset: int
    store_ms: int


Outcome = Placed | PutStatus | DurabilityLost


class Waiting:
    """One frame that waits, `count` messages of its queue; `outcome` is set when it is appended, or refused."""

    __slots__ = ("count", "following", "frame", "is_gone", "is_settled", "is_synced", "leads", "outcome", "turn")

    def __init__(self, frame: Frame | BatchFrame, count: int) -> None:
        self.frame = frame
        self.count = count
        self.outcome: Outcome | None = None
        self.is_synced = False
        self.is_settled = False  # it is woken, or will be by the one before it
        self.is_gone = False  # its thread waits no longer
        self.leads = False  # the next group, when it is woken
        self.following: Waiting | None = None  # whom to wake next
        self.turn = threading.Lock()
        self.turn.acquire()


class Run:
    """Frames that go into the log side by side, in one write; under the put lock, which is held all the time.

    `next_offsets` is moved on with each write, so only for what is in the log.
    """

    def __init__(self, log: CommitLog, next_offsets: MutableMapping[QueueKey, int], store_ms: int) -> None:
        self._log = log
        self._next_offsets = next_offsets
        self._store_ms = store_ms
        self._parts: list[bytes | bytearray] = []
        self._start = self._end = self._limit = 0
        self._moved: dict[QueueKey, int] = {}

    def add(self, frame: Frame | BatchFrame, count: int) -> Placed | PutStatus:
        """Gives the frame its place; `count` messages get queue offsets.  Raises DurabilityLost."""
        size, key = len(frame.data), (frame.topic, frame.queue_id)
        if self._end + size > self._limit:
            self.write()
            try:
                self._start = self._end = self._log.place(size)
            except NoLogFile:
                return PutStatus.CREATE_MAPPED_FILE_FAILED
            except Rejected:
                return PutStatus.MESSAGE_ILLEGAL
            self._limit = self._end + self._log.room()
        offset, queue_offset = self._end, 0
        if count:
            queue_offset = self._moved.get(key, -1)
            if queue_offset < 0:
                queue_offset = self._next_offsets.get(key, 0)
            self._moved[key] = queue_offset + count
        frame.stamp(queue_offset, offset, self._store_ms)
        self._parts.append(frame.data)
        self._end = offset + size
        return Placed(offset, queue_offset, self._store_ms)

    def write(self) -> None:
        """Writes what was added since the last write.  Raises DurabilityLost."""
        if self._parts:
            self._log.write(self._start, self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
            self._log.newest_ms = self._store_ms
            self._next_offsets.update(self._moved)
        self._parts, self._moved, self._limit = [], {}, 0


class GroupPut:
    """`append` puts frames into the log in their order and sets every `outcome`; `sync` answers whether the log is on
    the disk as far as it is appended, False at its timeout, and raises DurabilityLost.
    """

    def __init__(self, append: Callable[[Sequence[Waiting]], None], sync: Callable[[], bool], timeout_s: float) -> None:
        self._append = append
        self._sync = sync
        self._timeout_s = timeout_s
        self._lock = threading.Lock()  # guards `_waiting` and `_is_led`
        self._waiting: list[Waiting] = []
        self._is_led = False

    def put(self, frame: Frame | BatchFrame, count: int) -> tuple[Placed | PutStatus, bool]:
        """Appends a frame and waits for the disk: where it is or why not, and whether the disk has it.

        Raises DurabilityLost.
        """
        own = Waiting(frame, count)
        with self._lock:
            self._waiting.append(own)
            leads, self._is_led = not self._is_led, True
        if leads or not self._was_served(own):
            self._lead(own)
        outcome = own.outcome
        if isinstance(outcome, DurabilityLost):
            raise outcome
        assert outcome is not None
        return outcome, own.is_synced

    def _was_served(self, own: Waiting) -> bool:
        """Sleeps until the frame is on the disk or the time is over; False when it is to lead the next group."""
        while not own.turn.acquire(timeout=self._timeout_s):
            with self._lock:
                if own.is_settled or own.leads:
                    continue  # is being woken
                own.is_gone = own.outcome is not None  # appended, but its sync takes too long
                if own in self._waiting:
                    self._waiting.remove(own)
                elif not own.is_gone:
                    continue  # is being appended
            if not own.is_gone:
                self._append([own])  # the sync before takes too long
            return True
        if own.following is not None:
            own.following.turn.release()
        return own.is_settled

    def _lead(self, own: Waiting) -> None:
        """Appends and syncs what waits, then hands over to one of those that came meanwhile."""
        with self._lock:
            group, self._waiting = self._waiting, []
        failure = None
        try:
            self._append(group)
            is_synced = self._sync()
        except DurabilityLost as lost:
            failure = lost
        except BaseException:  # what ends this thread must not leave the others asleep
            self._settle(group, own, DurabilityLost("the thread that synced for others was interrupted"))
            raise
        else:
            for each in group:
                each.is_synced = is_synced
        self._settle(group, own, failure)

    def _settle(self, group: Sequence[Waiting], own: Waiting, failure: DurabilityLost | None) -> None:
        """Tells the group, and who leads the next."""
        with self._lock:
            successor = self._waiting[0] if self._waiting else None
            self._is_led = successor is not None
            if successor is not None:
                successor.leads = True
            for each in group:
                each.outcome = failure or each.outcome
                each.is_settled = True
            asleep = [each for each in group if each is not own and not each.is_gone]
            for each, following in zip(asleep, asleep[_STRANDS:], strict=False):
                each.following = following
        for each in asleep[:_STRANDS]:
            each.turn.release()
        if successor is not None:
            successor.turn.release()
