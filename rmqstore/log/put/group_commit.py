"""Puts that wait for the disk, together: of the threads that wait one appends and syncs for all of them.

The frames that come in while a sync is under way go into the log in one write and get to the disk in the next sync, so
that each waiting thread sleeps once and is woken once, whatever the number of threads.  A few are woken at first, and
each of them wakes another: all at once would only stand in line for the interpreter, and sleep there again.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from rmqstore.errors import DurabilityLost, Rejected, StoreClosed
from rmqstore.formats.names import QueueKey
from rmqstore.log.encode.batch_frame import BatchFrame
from rmqstore.log.encode.record_frame import Frame
from rmqstore.log.put.commitlog import CommitLog, NoLogFile
from rmqstore.message import PutStatus

# How many are woken at first: with 64 threads 4 give 24 k puts/s, 1 and all at once 20 k.
_STRANDS = 4


class Placed(NamedTuple):
    """Where and when a frame was appended."""

    offset: int
    queue_offset: int
    store_ms: int


Outcome = Placed | PutStatus | DurabilityLost | StoreClosed


class Waiting:
    """One frame that waits, `count` messages of its queue; `outcome` is set once it is appended, or refused."""

    __slots__ = (
        "count", "following", "frame", "group", "is_gone", "is_settled", "is_synced", "leads", "outcome", "turn",
    )  # fmt: skip

    def __init__(self, frame: Frame | BatchFrame, count: int) -> None:
        self.frame = frame
        self.count = count
        self.outcome: Outcome | None = None
        self.is_synced = False
        self.is_settled = False  # it is woken, or will be by the one before it
        self.is_gone = False  # its thread waits no longer
        self.leads = False  # a group, at once or when it is woken
        self.group: Sequence[Waiting] = ()  # the one that it leads, while it does
        self.following: Waiting | None = None  # whom to wake next
        self.turn = threading.Lock()
        self.turn.acquire()


class Run:
    """Frames that go into the log side by side, in one write; under the put lock, which is held all the time.

    A frame gets its `outcome` only when it is in the log.
    """

    def __init__(self, log: CommitLog, store_ms: int) -> None:
        self._log = log
        self._store_ms = store_ms
        self._parts: list[bytes | bytearray] = []
        self._placed: list[tuple[Waiting, Placed]] = []
        self._start = self._end = self._limit = 0
        self._moved: dict[QueueKey, int] = {}

    def add(self, waiting: Waiting) -> None:
        """Gives the frame its place, or why it has none.  Raises DurabilityLost."""
        frame, count = waiting.frame, waiting.count
        size, key = len(frame.data), (frame.topic, frame.queue_id)
        if self._end + size > self._limit:
            self.write()
            try:
                self._start = self._end = self._log.place(size)
            except NoLogFile:
                waiting.outcome = PutStatus.CREATE_MAPPED_FILE_FAILED
                return
            except Rejected:
                waiting.outcome = PutStatus.MESSAGE_ILLEGAL
                return
            except StoreClosed as closed:
                waiting.outcome = closed
                return
            self._limit = self._end + self._log.room()
        offset, queue_offset = self._end, 0
        if count:
            queue_offset = self._moved.get(key, -1)
            if queue_offset < 0:
                queue_offset = self._log.next_offsets.get(key, 0)
            self._moved[key] = queue_offset + count
        frame.stamp(queue_offset, offset, self._store_ms)
        self._parts.append(frame.data)
        self._placed.append((waiting, Placed(offset, queue_offset, self._store_ms)))
        self._end = offset + size

    def write(self) -> None:
        """Writes what was added since the last write.  Raises DurabilityLost."""
        if self._parts:
            data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            try:
                self._log.append(self._start, data, self._store_ms, self._moved)
            finally:
                if self._log.marks.appended == self._end:  # also where an interrupt came too late
                    for waiting, placed in self._placed:
                        waiting.outcome = placed
        self._parts, self._placed, self._moved, self._limit = [], [], {}, 0


class GroupPut:
    """`append` puts frames into the log in their order and sets every `outcome`; `sync` answers whether the log is on
    the disk as far as it is appended, False at its timeout, and raises DurabilityLost.
    """

    def __init__(self, append: Callable[[Sequence[Waiting]], None], sync: Callable[[], bool], timeout_s: float) -> None:
        self._append = append
        self._sync = sync
        self._timeout_s = timeout_s
        self.lock = threading.RLock()  # guards `_waiting`, `_leader` and what a Waiting says of groups
        self._waiting: list[Waiting] = []
        self._leader: Waiting | None = None  # who leads the present group, or was woken to lead the next

    def put(self, frame: Frame | BatchFrame, count: int) -> tuple[Placed | PutStatus, bool]:
        """Appends a frame and waits for the disk: where it is or why not, and whether the disk has it.

        Raises DurabilityLost, StoreClosed.  Who is interrupted (Ctrl-C, say) leaves its group to another thread.
        """
        own = Waiting(frame, count)
        try:
            if self._leads_at_once(own) or not self._was_served(own):
                self._lead(own)
        except BaseException:
            self._leave(own)
            raise
        outcome = own.outcome
        if isinstance(outcome, DurabilityLost | StoreClosed):
            raise outcome
        assert outcome is not None
        return outcome, own.is_synced

    def _leads_at_once(self, own: Waiting) -> bool:
        with self.lock:
            self._waiting.append(own)
            if self._leader is None:
                own.leads, self._leader = True, own
        return own.leads

    def _was_served(self, own: Waiting) -> bool:
        """Sleeps until the frame is on the disk or the time is over; False when it is to lead the next group."""
        while not own.turn.acquire(timeout=self._timeout_s):
            with self.lock:
                if own.is_settled or own.leads:
                    break  # whoever should have woken it did not
                own.is_gone = own.outcome is not None  # appended, but its sync takes too long
                if own in self._waiting:
                    self._waiting.remove(own)
                elif not own.is_gone:
                    continue  # is being appended
            if not own.is_gone:
                self._append([own])  # the sync before takes too long
            return True
        self._wake_following(own)
        return own.is_settled

    def _lead(self, own: Waiting) -> None:
        """Appends and syncs what waits, then hands over to one of those that came meanwhile."""
        failure = None
        with self.lock:
            own.group, self._waiting = self._waiting, []
        try:
            self._append([each for each in own.group if each.outcome is None])
            is_synced = self._sync()
        except DurabilityLost as lost:
            failure = lost
        else:
            for each in own.group:
                each.is_synced = is_synced
        self._settle(own, failure)
        own.group = ()  # which holds `own`: else each put would leave a cycle to the collector

    def _settle(self, own: Waiting, failure: DurabilityLost | None) -> None:
        """Tells the group what became of it, and who leads the next; again and again if need be."""
        with self.lock:
            for each in own.group:
                each.outcome = failure or each.outcome
                each.is_settled = True
            if len(own.group) == 1 and not self._waiting:
                self._hand_over(own)
                return
            asleep = [each for each in own.group if each is not own and not each.is_gone]
            for each, following in zip(asleep, asleep[_STRANDS:], strict=False):
                each.following = following
            successor = self._hand_over(own)
        for each in asleep[:_STRANDS]:
            _wake(each)
        if successor is not None:
            _wake(successor)

    def _hand_over(self, own: Waiting) -> Waiting | None:
        """Who leads from now on, if `own` did; under the lock."""
        own.leads = False
        if self._leader is own:
            self._leader = self._waiting[0] if self._waiting else None
            if self._leader is not None:
                self._leader.leads = True
        return self._leader

    def _leave(self, own: Waiting) -> None:
        """After an exception: what belongs to others goes on without this thread."""
        with self.lock:
            own.is_gone = True
            others = [each for each in own.group if each is not own and not each.is_settled and not each.is_gone]
            self._waiting = [*others, *(each for each in self._waiting if each is not own and each not in others)]
            successor = self._hand_over(own)
        for each in own.group:
            if each.is_settled and each is not own:
                _wake(each)
        self._wake_following(own)
        if successor is not None:
            _wake(successor)

    @staticmethod
    def _wake_following(own: Waiting) -> None:
        if own.following is not None:
            _wake(own.following)


def _wake(waiting: Waiting) -> None:
    with suppress(RuntimeError):  # it is awake
        waiting.turn.release()
