"""RocketMQ's answers to a read of a queue: by where the offset lies, and by what was found from there on.

Java: DefaultMessageStore.getMessage.
"""

import enum
from dataclasses import dataclass

from rmqstore.formats.stored_message import StoredMessage
from rmqstore.log.get.tag_filter import TagFilter
from rmqstore.message import GetResult, GetStatus


class Where(enum.Enum):
    """Where a queue offset lies in its queue, which holds [low, high)."""

    NO_QUEUE = enum.auto()
    EMPTY = enum.auto()  # no message ever came
    TOO_SMALL = enum.auto()
    INSIDE = enum.auto()
    AT_END = enum.auto()
    BEYOND = enum.auto()


class _Next(enum.Enum):
    """Where the next read begins."""

    START = 0  # of the log: queue offset 0
    LOW = 1
    HIGH = 2


# Java makes the queue that is not there.  What lies inside is read.
STATUSES = {
    Where.NO_QUEUE: (GetStatus.NO_MESSAGE_IN_QUEUE, _Next.START),
    Where.EMPTY: (GetStatus.NO_MESSAGE_IN_QUEUE, _Next.START),
    Where.TOO_SMALL: (GetStatus.OFFSET_TOO_SMALL, _Next.LOW),
    Where.AT_END: (GetStatus.OFFSET_OVERFLOW_ONE, _Next.HIGH),
    Where.BEYOND: (GetStatus.OFFSET_OVERFLOW_BADLY, _Next.HIGH),
}


def where_of(offset: int, low: int, high: int) -> Where:
    """Where an offset lies in a queue that is there."""
    if high == 0:
        return Where.EMPTY
    if offset < low:
        return Where.TOO_SMALL
    if offset < high:
        return Where.INSIDE
    return Where.AT_END if offset == high else Where.BEYOND


def answer_outside(where: Where, low: int = 0, high: int = 0) -> GetResult:
    """The answer where nothing is read."""
    status, following = STATUSES[where]
    return GetResult(status, {_Next.START: 0, _Next.LOW: low, _Next.HIGH: high}[following], low, high)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request: at most `count` messages and `size` bytes of records, but one in any case, of these tags."""

    offset: int
    count: int
    size: int
    tags: TagFilter | None

    def takes(self, message: StoredMessage) -> bool:
        """Whether a message has one of the tags."""
        return self.tags is None or message.tags in self.tags.tags


class Answer:
    """The messages that a read has found so far; `next_offset` is where the next one begins.

    The status is FOUND from the first message on, and before it what the newest place that gave none came to.
    """

    __slots__ = ("messages", "next_offset", "status")

    def __init__(self, offset: int) -> None:
        self.status = GetStatus.NO_MATCHED_MESSAGE
        self.next_offset = offset
        self.messages: list[StoredMessage] = []

    def add(self, message: StoredMessage) -> None:
        """One more message."""
        self.messages.append(message)
        self.status = GetStatus.FOUND

    def missed(self, status: GetStatus) -> None:
        """A place gave no message."""
        if not self.messages:
            self.status = status

    def result(self, low: int, high: int) -> GetResult:
        """The answer, with the queue's bounds."""
        return GetResult(self.status, self.next_offset, low, high, self.messages)
