"""Puts that wait for the disk, together: of the threads that wait one appends and syncs for all of them.

The frames that come in while a sync is under way go into the log in one write and get to the disk in the next sync, so
that each waiting thread sleeps once and is woken once, whatever the number of threads.  A few are woken at first, and
each of them wakes another: all at once would only stand in line for the interpreter, and sleep there again.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from rmqstore.core.message import PutStatus
from rmqstore.engine.log.encode.batch_frame import BatchFrame
from rmqstore.engine.log.encode.record_frame import Frame
from rmqstore.engine.log.put.confirmation import UNCONFIRMED
from rmqstore.engine.log.put.turn import Placed, WaitingFrame
from rmqstore.errors import DurabilityLost, StoreClosed

# How many are woken at first: with 64 threads 4 give 24 k puts/s, 1 and all at once 20 k.
_STRANDS = 4


class Member(WaitingFrame):
    """One frame of a group, and the thread that waits for it."""

    __slots__ = ("confirmed", "following", "group", "is_gone", "is_settled", "leads", "turn")

    def __init__(self, frame: Frame | BatchFrame, count: int) -> None:
        self.frame, self.count = frame, count  # not by `super`, which costs 0.2 µs
        self.outcome = None
        self.confirmed = UNCONFIRMED
        self.is_settled = False  # it is woken, or will be by the one before it
        self.is_gone = False  # its thread waits no longer
        self.leads = False  # a group, at once or when it is woken
        self.group: Sequence[Member] = ()  # the one that it leads, while it does
        self.following: Member | None = None  # the one to wake next
        self.turn = threading.Lock()
        self.turn.acquire()


class GroupPut:
    """`append` puts frames into the log in their order and sets every `outcome`; `confirm` answers for all that is
    appended (`Confirmation.confirm_all`), and raises DurabilityLost.
    """

    def __init__(
        self, append: Callable[[Sequence[Member]], None], confirm: Callable[[], PutStatus], timeout_s: float
    ) -> None:
        self._append = append
        self._confirm = confirm
        self._timeout_s = timeout_s
        self.lock = threading.RLock()  # guards `_waiting`, `_leader` and what a Member says of groups
        self._waiting: list[Member] = []
        self._leader: Member | None = None  # who leads the present group, or was woken to lead the next

    def put(self, frame: Frame | BatchFrame, count: int) -> tuple[Placed | PutStatus, PutStatus]:
        """Appends a frame and waits until it is confirmed: where it is or why not, and what `confirm` answered.

        Raises DurabilityLost, StoreClosed.  A thread that is interrupted (Ctrl-C, say) leaves its group to another.
        """
        own = Member(frame, count)
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
        return outcome, own.confirmed

    def _leads_at_once(self, own: Member) -> bool:
        with self.lock:
            self._waiting.append(own)
            if self._leader is None:
                own.leads, self._leader = True, own
        return own.leads

    def _was_served(self, own: Member) -> bool:
        """Sleeps until the frame is on the disk or the time is over; False when it is to lead the next group."""
        while not own.turn.acquire(timeout=self._timeout_s):
            with self.lock:
                if own.is_settled or own.leads:
                    break  # the thread that should have woken it did not
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

    def _lead(self, own: Member) -> None:
        """Appends and syncs what waits, then hands over to one of those that came meanwhile."""
        failure = None
        with self.lock:
            own.group, self._waiting = self._waiting, []
        try:
            self._append([each for each in own.group if each.outcome is None])
            confirmed = self._confirm()
        except DurabilityLost as lost:
            failure = lost
        else:
            for each in own.group:
                each.confirmed = confirmed
        self._settle(own, failure)
        own.group = ()  # which holds `own`: else each put would leave a cycle to the collector

    def _settle(self, own: Member, failure: DurabilityLost | None) -> None:
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

    def _hand_over(self, own: Member) -> Member | None:
        """Who leads from now on, if `own` did; under the lock."""
        own.leads = False
        if self._leader is own:
            self._leader = self._waiting[0] if self._waiting else None
            if self._leader is not None:
                self._leader.leads = True
        return self._leader

    def _leave(self, own: Member) -> None:
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
    def _wake_following(own: Member) -> None:
        if own.following is not None:
            _wake(own.following)


def _wake(waiting: Member) -> None:
    with suppress(RuntimeError):  # it is awake
        waiting.turn.release()
