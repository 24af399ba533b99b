"""The master's side of one connection: it sends what the slave lacks, and believes no acknowledgement blindly."""

import math
from typing import NamedTuple

from rmqstore.replica.link.slave_link import ROCKETMQ_TIMING, Drop, Timing
from rmqstore.replica.link.wire import BLOCK_HEADER, ReportReader, Send

# Java: haTransferBatchSize, maxHaTransferByteInSecond.
_BLOCK_SIZE = 32 * 1024
# Where slaves ask RocketMQ's masters to begin that want the whole log: 0 would mean the newest file, and byte 0 follows
# from what comes after it.
FIRST_BYTE = 1
_RATE_BYTES_S = 100 * 1024 * 1024
# A slave hears so soon that it has all, and not only with the heartbeats of a master that has long had nothing.
_ALL_SAID_S = 0.2


class SendRegion(NamedTuple):
    """A block's header, then `size` bytes of the own log from `offset` on."""

    header: bytes
    offset: int
    size: int


class Acknowledged(NamedTuple):
    """The slave has everything before `offset` on its disk."""

    offset: int


Decision = Send | SendRegion | Acknowledged | Drop


class Pace(NamedTuple):
    """Bytes: how large a block is at the most, and how much goes out in a second at the most (0: whatever fits)."""

    block_size: int = _BLOCK_SIZE
    rate_bytes_s: int = _RATE_BYTES_S


ROCKETMQ_PACE = Pace()


class LogBounds(NamedTuple):
    """The part of the own log that can be sent: [start, end), in files of `file_size` bytes."""

    start: int
    end: int
    file_size: int


class MasterLink:
    """One connection, from its first report to its end; knows no sockets, clocks or disks.

    The caller carries out the decisions in their order, and asks `more` when it has sent them all: at most one block is
    under way.  `whole_history`: a slave that reports 0 gets the log from its first byte on, instead of the newest file
    only, as RocketMQ's masters have it.
    """

    def __init__(
        self,
        now_s: float,
        timing: Timing = ROCKETMQ_TIMING,
        pace: Pace = ROCKETMQ_PACE,
        *,
        whole_history: bool = False,
    ) -> None:
        self.next: int | None = None  # the offset of the next block; None until the slave has asked
        self.acknowledged = 0
        self.is_over = False
        self._timing, self._pace, self._whole_history = timing, pace, whole_history
        self._reader = ReportReader()
        self._heard_s = self._sent_s = self._second_s = now_s
        self._sent_in_second = 0
        self._has_said_all = False  # the last thing sent was a heartbeat

    def received(self, data: bytes, log: LogBounds, now_s: float) -> list[Acknowledged | Drop]:
        """Bytes from the slave.  It can have what it asked to begin with and what it was sent, and no more: a false
        report would have puts acknowledged that nobody has."""
        if self.is_over:
            return []
        self._heard_s = now_s
        answers: list[Acknowledged | Drop] = []
        for report in self._reader.read(data):
            if self.next is None:
                if report < 0:  # RocketMQ: no request yet
                    continue
                if report > max(log.end, FIRST_BYTE):  # an empty log may be asked for as a whole
                    reason = f"the slave asks for offset {report}, but this log ends at {log.end}"
                    return [self._drop(reason, BLOCK_HEADER.pack(log.end, 0))]
                self.next = self._first(report, log)
                self._sent_s = -math.inf  # a slave that has all of it hears so at once
            elif not 0 <= report <= self.next:
                return [*answers, self._drop(f"the slave acknowledges {report}, but was sent only {self.next}")]
            if report > self.acknowledged:
                self.acknowledged = report
                answers = [Acknowledged(report)]
        return answers

    def more(self, log: LogBounds, now_s: float) -> SendRegion | Send | Drop | None:
        """The next thing to be sent; None while there is nothing."""
        if self.is_over or self.next is None:
            return None
        if self.next < log.start:
            reason = f"the slave needs offset {self.next}, but this log now begins at {log.start}"
            return self._drop(reason, BLOCK_HEADER.pack(log.start, 0))
        size = min(log.end - self.next, self._pace.block_size, log.file_size - self.next % log.file_size)
        size = min(size, self._left_in_second(now_s))
        if size > 0:
            region = SendRegion(BLOCK_HEADER.pack(self.next, size), self.next, size)
            self._sent_in_second += size
            self.next += size
            self._sent_s, self._has_said_all = now_s, False
            return region
        due_s = self._timing.heartbeat_s if self._has_said_all else _ALL_SAID_S
        if now_s - self._sent_s >= due_s and self.next >= log.end:
            self._sent_s, self._has_said_all = now_s, True
            return Send(BLOCK_HEADER.pack(self.next, 0))
        return None

    def tick(self, now_s: float) -> list[Drop]:
        """Time has passed: a slave that says nothing for too long is let go."""
        if not self.is_over and now_s - self._heard_s >= self._timing.silence_s:
            return [self._drop(f"nothing came from the slave for {self._timing.silence_s:g} s")]
        return []

    def _first(self, report: int, log: LogBounds) -> int:
        if report:
            return report
        if self._whole_history:
            return log.start
        return log.end - log.end % log.file_size

    def _left_in_second(self, now_s: float) -> int:
        if not self._pace.rate_bytes_s:
            return self._pace.block_size
        if not 0 <= now_s - self._second_s < 1:
            self._second_s, self._sent_in_second = now_s, 0
        return max(self._pace.rate_bytes_s - self._sent_in_second, 0)

    def _drop(self, reason: str, farewell: bytes = b"") -> Drop:
        self.is_over = True
        return Drop(reason, farewell)
