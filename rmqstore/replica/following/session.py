"""A connection of a slave without its socket: what comes goes to the follower, and what is to be sent comes out."""

from collections.abc import Iterable

from rmqstore.errors import NotNow, Rejected
from rmqstore.replica.following.follower import Follower
from rmqstore.replica.link.slave_link import (
    ROCKETMQ_TIMING,
    Append,
    BeginsLater,
    Decision,
    Diverged,
    Drop,
    SlaveLink,
    Timing,
)
from rmqstore.replica.link.wire import Send, Wire

# Blocks are collected up to here before they are appended together: with one more they still are one window of
# `read_batches`.
_PORTION_SIZE = 3 * 1024 * 1024
# So much, and so long, may be taken before it is synced and acknowledged: a sync costs nearly the same for any size,
# and whoever waits for the acknowledgement waits for the sync.
_UNSYNCED_MAX, _UNSYNCED_S = 8 * 1024 * 1024, 0.1


class ConnectionLost(NotNow):
    """This connection has ended; another one may do better."""


class MasterBeginsLater(ConnectionLost):
    """The master has deleted the bytes that were asked for; its log begins at `offset`, where the next connection is to
    begin."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the master's log now begins at offset {offset}")
        self.offset = offset


class LogsDiverged(Rejected):
    """The master's log is another one than ours somewhere after `offset`: nothing is taken from it."""

    def __init__(self, offset: int, own_end: int, reason: str) -> None:
        super().__init__(offset, own_end, reason)
        self.offset, self.own_end, self.reason = offset, own_end, reason

    def _line(self) -> str:
        return (
            f"the replica's log and the master's differ after offset {self.offset} ({self.reason}); ours ends at "
            f"{self.own_end}: `rmqstore replicate --realign` shows where they differ and what it would cut (--yes "
            "cuts it), or that this is another master"
        )


class SlaveSession:
    """One connection to a master, from its first report on; no socket, no clock.

    `master_start` is where the master's log begins, as far as that is known.
    Raises ConnectionLost where the connection is to be closed, MasterBeginsLater, LogsDiverged, and what the follower
    raises.
    """

    def __init__(
        self, follower: Follower, now_s: float, wire: Wire | None = None, timing: Timing = ROCKETMQ_TIMING,
        master_start: int = 0,
    ) -> None:  # fmt: skip
        self._follower = follower
        self.link = SlaveLink(follower.own_end(master_start), now_s, timing, wire)
        self.received_size = 0
        self._size = 0  # bytes taken and not appended
        self._unsynced = 0  # bytes taken since the last sync
        self._synced_s = now_s

    def begin(self) -> bytes:
        """The bytes that are to be sent first."""
        return self._carried_out(self.link.begin())

    def received(self, data: bytes, now_s: float) -> bytes:
        """Takes what came; what is to be sent.  It is acknowledged by `settle`."""
        self.received_size += len(data)
        return self._carried_out(self.link.received(data, now_s))

    def takes_more(self, now_s: float) -> bool:
        """Whether what has come already may be taken before `settle`."""
        return self._unsynced < _UNSYNCED_MAX and now_s - self._synced_s < _UNSYNCED_S

    def settle(self, now_s: float) -> bytes:
        """Appends and syncs what came; what is to be sent, the acknowledgement of it."""
        if not self._unsynced:
            self._synced_s = now_s
            return b""
        self._append()
        end = self._follower.sync()
        self._unsynced, self._synced_s = 0, now_s
        return self._carried_out(self.link.durable(end, now_s))

    def tick(self, now_s: float) -> bytes:
        """Time has passed; what is to be sent."""
        return self._carried_out(self.link.tick(now_s))

    def _carried_out(self, decisions: Iterable[Decision]) -> bytes:
        sent = b""
        for decision in decisions:
            match decision:
                case Send(data):
                    sent += data
                case Append(_, data):
                    self._follower.take(data)
                    self._size += len(data)
                    self._unsynced += len(data)
                    if self._size >= _PORTION_SIZE:
                        self._append()
                case Drop(reason):
                    raise ConnectionLost(reason)
                case Diverged(offset, reason):
                    raise LogsDiverged(offset, self._follower.end, reason)
                case BeginsLater(offset):
                    raise MasterBeginsLater(offset)
        return sent

    def _append(self) -> None:
        self._follower.append(self.link.confirmed)
        self._size = 0
