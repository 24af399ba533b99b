"""The slave's side of one connection: it asks for what its log lacks, and takes nothing that does not fit its end."""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from rmqstore.formats.message import size_without_first_byte
from rmqstore.replica.link.wire import Block, PeerError, Send, UsualWire, Wire

# Java's masters take a report of 0 for "the newest file only", so whoever wants the whole log asks for byte 1.  The one
# before it, the high byte of the first record's size, follows from the record's other lengths.
_SECOND = 1
# A master is heard by a whole block, or by so much of one: one that lets single bytes drip in is as good as silent.
_HEARD_SIZE = 4096


class Append(NamedTuple):
    """Bytes that belong at `offset`, which is where all that came before ends."""

    offset: int
    data: bytes


class Drop(NamedTuple):
    """The connection is to be closed; a new one may do better.  `farewell`: bytes to be sent before, if that goes."""

    reason: str
    farewell: bytes = b""


class Diverged(NamedTuple):
    """The two logs are not the same before the slave's end: no connection mends that.

    From `offset` on they differ, or the master's ends there.
    """

    offset: int
    reason: str


class BeginsLater(NamedTuple):
    """The master's log begins at `offset`, after what comes next.

    A master of ours says so before it closes the connection, by a block without bytes, and by another one where its log
    ends if that is before what comes next; RocketMQ's say nothing.
    """

    offset: int


Decision = Send | Append | Drop | Diverged | BeginsLater


class Timing(NamedTuple):
    """Seconds; those of RocketMQ (haSendHeartbeatInterval, haHousekeepingInterval)."""

    heartbeat_s: float = 5.0
    silence_s: float = 20.0


ROCKETMQ_TIMING = Timing()


class OwnEnd(NamedTuple):
    """The end of the slave's log: its newest bytes, from `offset` on, which the master's log must have too.

    No bytes: the log is empty.  It begins at `offset` then, or, if that is None, with the master's newest file.
    """

    offset: int | None
    data: bytes = b""

    @property
    def request(self) -> int:
        """The first report: where the master is to begin."""
        return 0 if self.offset is None else self.offset or _SECOND


class Phase(Enum):
    """The stages of a connection."""

    COMPARING = "comparing"  # the master sends what the slave has already
    FOLLOWING = "following"
    OVER = "over"


class SlaveLink:
    """One connection, from its first report to its end; knows no sockets, clocks, disks or records.

    Whatever the decisions are, the caller carries them out in their order.  After Drop, Diverged or BeginsLater
    nothing more comes.
    Invariants: what is to be appended begins where the last of it ended, and first where the own log ends; what is
    reported is durable, by `durable`, or has just been asked to be sent again.
    """

    def __init__(self, own: OwnEnd, now_s: float, timing: Timing = ROCKETMQ_TIMING, wire: Wire | None = None) -> None:
        self.phase = Phase.COMPARING if own.data else Phase.FOLLOWING
        self.master_end: int | None = None  # how far the master's log went, as far as it was heard
        self.idle_s: float | None = None  # when the master last said that it has no more than that
        self.is_level = False  # the master said last that it had no more
        self._own = own
        # What came after byte 0, until that byte is known.
        self._first: bytes | None = b"" if own == OwnEnd(0) else None
        self._timing = timing
        self._next = own.request if own.offset is not None else None  # the offset of the next block
        self._reported = own.request
        self._wire = wire or UsualWire()
        self._heard_s = self._sent_s = now_s
        self._unheard_size = 0

    @property
    def _is_over(self) -> bool:
        return self.phase is Phase.OVER

    @property
    def confirmed(self) -> int | None:
        """As Wire's."""
        return self._wire.confirmed

    @property
    def wakes_at_s(self) -> float:
        """When `tick` has something to do, if nothing comes before."""
        return min(self._sent_s + self._timing.heartbeat_s, self._heard_s + self._timing.silence_s)

    def begin(self) -> list[Decision]:
        """The first report."""
        return [Send(self._wire.first(self._reported))]

    def received(self, data: bytes, now_s: float) -> Iterator[Decision]:
        """Bytes from the master."""
        if self.phase is Phase.OVER:
            return
        self._unheard_size += len(data)
        if self._unheard_size >= _HEARD_SIZE:
            self._heard_s, self._unheard_size = now_s, 0
        try:
            for found in self._wire.read(data):
                self._heard_s, self._unheard_size = now_s, 0
                if isinstance(found, Send):
                    yield found
                    continue
                yield from self._taken(found)
                if self._is_over:
                    return
        except PeerError as error:
            yield self._drop(f"the other side does not speak RocketMQ's replication protocol: {error}")

    def durable(self, offset: int, now_s: float) -> list[Decision]:
        """The own log is on the disk up to `offset`: that is acknowledged, once."""
        if self.phase is not Phase.FOLLOWING or offset <= self._reported:
            return []
        self._reported, self._sent_s = offset, now_s
        return [Send(self._wire.report(offset))]

    def tick(self, now_s: float) -> list[Decision]:
        """Time has passed: a heartbeat, or the end of a connection on which nothing comes."""
        if self.phase is Phase.OVER:
            return []
        if now_s - self._heard_s >= self._timing.silence_s:
            return [self._drop(self._why_silent())]
        if now_s - self._sent_s >= self._timing.heartbeat_s:
            self._sent_s = now_s
            return [Send(self._wire.report(self._reported))]
        return []

    def _taken(self, block: Block) -> Iterator[Decision]:
        if self._next is None:
            self._next = block.offset  # the start of the newest file, wherever that is
        if block.offset > self._next and not block.data:
            self.phase = Phase.OVER
            yield BeginsLater(block.offset)
            return
        if block.offset < self._next and not block.data:
            yield self._diverged(block.offset, "the master's log ends there")
            return
        if block.offset != self._next:
            yield self._drop(f"the master sent offset {block.offset}, and {self._next} comes next")
            return
        # A new slave asks from byte 1 on, and a master that has nothing says that it has no more than that.
        end = 0 if self._first == b"" and not block.data else block.end
        self.master_end = max(self.master_end or 0, end)
        self.is_level = not block.data
        if self.phase is Phase.COMPARING:
            yield from self._compared(block)
        elif block.data:
            yield from self._append(block.offset, block.data)
        else:
            self.idle_s = self._heard_s

    def _append(self, offset: int, data: bytes) -> Iterator[Append]:
        self._next = offset + len(data)
        if self._first is None:
            yield Append(offset, data)
            return
        self._first += data
        size = size_without_first_byte(self._first)
        if size is not None:
            data, self._first = (size >> 24).to_bytes() + self._first, None
            yield Append(0, data)

    def _compared(self, block: Block) -> Iterator[Decision]:
        assert self._own.offset is not None
        begin = block.offset - self._own.offset
        ours = self._own.data[begin : begin + len(block.data)]
        theirs = block.data[: len(ours)]
        if ours != theirs:
            same = next(n for n in range(len(ours)) if ours[n] != theirs[n])
            yield self._diverged(block.offset + same, "the master's log has other bytes there")
            return
        own_end = self._own.offset + len(self._own.data)
        if not block.data:  # a heartbeat: the master has no more than this
            yield self._diverged(block.offset, f"the master's log ends there, and ours ends at {own_end}")
            return
        self._next = block.offset + len(ours)
        if self._next == own_end:
            self.phase = Phase.FOLLOWING
            if rest := block.data[len(ours) :]:
                yield from self._append(own_end, rest)

    def _why_silent(self) -> str:
        if self.phase is Phase.FOLLOWING and self.master_end is not None:
            return f"the master sent no valid block for {self._timing.silence_s:g} s"
        return (
            f"the master sent no block for {self._timing.silence_s:g} s: its log ends before offset {self._reported}, "
            f"or begins after it, or it is no master"
        )

    def _drop(self, reason: str) -> Drop:
        self.phase = Phase.OVER
        return Drop(reason)

    def _diverged(self, offset: int, reason: str) -> Diverged:
        self.phase = Phase.OVER
        return Diverged(offset, reason)
