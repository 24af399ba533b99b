"""Every error that rmqstore raises, ordered by the one who can act on it.

`Rejected` is for the caller (change the request), `NotNow` for the caller later (retry), `Corrupt` and
`DataLost` for an operator (look at the file), `DurabilityLost` for nobody (reopen the store). All carry their fields,
read as one line that names the next step, and survive pickling: Spark carries them from a worker to the driver.
"""

import errno
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

_ADVICE = {
    errno.ENOSPC: "make room on that disk, then try again",
    errno.EDQUOT: "make room on that disk, then try again",
    errno.EROFS: "mount that file system for writing, or work on a copy",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "look into the system's log: the disk may be failing",
    errno.ELOOP: "replace or remove the symbolic link that leads back to itself",
    errno.ENOENT: "look at the path: nothing is there",
    errno.ENOTDIR: "look at the path: nothing is there",
}


def next_step(error: OSError, right: str = "read") -> str:
    """The next step after an error of the system; `right` is the one that was asked for: read or write."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"run as a user who may {right} it"
    return _ADVICE.get(error.errno or 0, "try again")


def in_words(failure: BaseException) -> str:
    """A failure for people: the system's or the store's words, and of a mistake in a program its type."""
    is_worded = isinstance(failure, (OSError, StoreError)) and str(failure)
    return str(failure) if is_worded else repr(failure)


# Where a value of a user goes on for so long without a blank, nobody reads it: its two ends tell which it is.
WORD_SIZE_MAX = 1000
# The longest line: many mistakes in one message have room in it.
LINE_SIZE_MAX = 3000
# Rows that a line names.
_ROWS_NAMED_MAX = 10
_LONG_WORD = re.compile(rf"\S{{{WORD_SIZE_MAX + 1},}}")
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+ *")
_SURROGATES = re.compile("[\ud800-\udfff]")


def in_one_line(text: str) -> str:
    """The text in one line of UTF-8, with the middle left out where it is too long to be read."""
    line = _SURROGATES.sub("\ufffd", _STEERING.sub(" ", text))
    return _without_middle(
        _LONG_WORD.sub(lambda word: _without_middle(word[0], WORD_SIZE_MAX // 5), line), LINE_SIZE_MAX
    )


def _without_middle(text: str, size: int) -> str:
    """The text itself, or its ends of about `size` characters together."""
    if len(text) <= size:
        return text
    return f"{text[: size * 3 // 4]}… ({len(text):,} characters) …{text[-size // 4 :]}"


class PutAnswer(Protocol):
    """The part of a put's answer (message.PutResult) that its error needs."""

    @property
    def status(self) -> Enum:
        """RocketMQ's word for it."""

    @property
    def reason(self) -> str:
        """The reason, in words."""

    @property
    def physical_offset(self) -> int:
        """Where the first record lies."""

    @property
    def message_count(self) -> int:
        """How many messages are stored."""

    @property
    def is_stored(self) -> bool:
        """Whether any is."""


class StoreError(Exception):
    """The root of the tree: anything that rmqstore raises on purpose.

    Read as one line of at most LINE_SIZE_MAX characters that any terminal can bear, whatever a user or a file brought
    into it; the fields of an error have it whole.  Options are named as Python's arguments; `say` gives it other words.
    """

    _said: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__

    def __str__(self) -> str:
        return in_one_line(self._line() if self._said is None else self._said)

    def say(self, line: str) -> None:
        """Has the error read as `line` from now on: the same in the words of those who see it."""
        self._said = line

    def _line(self) -> str:
        """One line: the event, and the next step."""
        return super().__str__()


class Rejected(StoreError, ValueError):
    """The request cannot be served as it is; the message says what to change."""


class WrongType(Rejected, TypeError):
    """A value of a type that its place does not take: `field`, what was `given`, in short, and what is `wanted`.

    Also a TypeError, as of any function that is called with the wrong type, and by Rejected a ValueError.
    """

    def __init__(self, field: str, given: str, wanted: str) -> None:
        super().__init__(field, given, wanted)
        self.field, self.given, self.wanted = field, given, wanted

    def _line(self) -> str:
        return f"{self.field}={self.given}: wanted is {self.wanted}"


class NotAStore(Rejected):
    """A path that holds no RocketMQ store, or that cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def _line(self) -> str:
        return f"{self.path}: {self.reason}"


class UnsupportedLayout(Rejected):
    """A RocketMQ store in a layout that this version does not read; the message names the way round."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def _line(self) -> str:
        return f"{self.path}: {self.reason}"


class WrongRows(Rejected):
    """Rows of which no messages can be made: `rows` are their numbers, from 0 on, by the reason."""

    def __init__(self, rows: Mapping[str, Sequence[int]]) -> None:
        super().__init__(rows)
        self.rows = rows

    def _line(self) -> str:
        wrong = "; ".join(f"{reason}: {_rows_text(numbers)}" for reason, numbers in self.rows.items())
        return f"{wrong}; nothing was stored (rows count from 0)"


def _rows_text(rows: Sequence[int]) -> str:
    shown = ", ".join(map(str, rows[:_ROWS_NAMED_MAX]))
    more = len(rows) - _ROWS_NAMED_MAX
    return f"row{'s' if len(rows) > 1 else ''} {shown}{f' and {more} more' if more > 0 else ''}"


class UnknownTopic(Rejected):
    """A topic or queue that the store does not hold; `near` lists the closest names."""

    def __init__(self, topic: str, path: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(topic, path, near)
        self.topic, self.path, self.near = topic, path, near

    def _line(self) -> str:
        hint = f"did you mean {', '.join(self.near)}?" if self.near else "`rmqstore inspect` lists the topics"
        if any(character in self.topic for character in "*?["):
            hint = "a topic is named whole; pattern= takes a regular expression, .* for all, orders.* for some"
        return f"no topic {self.topic!r} in {self.path}: {hint}"


class UnknownColumn(Rejected):
    """A column that no message has; `near` lists the closest names."""

    def __init__(self, column: str, near: tuple[str, ...] = ()) -> None:
        super().__init__(column, near)
        self.column, self.near = column, near

    def _line(self) -> str:
        hint = f"did you mean {', '.join(self.near)}?" if self.near else "columns='*' brings every column"
        return f"no column {self.column!r}: {hint}"


class NotNow(StoreError):
    """The store cannot serve this at the moment; the same request may work later."""


class StoreInUse(NotNow):
    """Another process, or another part of this one, writes to the store: `path` is its lock file."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def _line(self) -> str:
        return f"{self.path}: {self.reason}; stop the other writer, or read with rmqstore.open_snapshot"


class StoreChanging(NotNow):
    """A store that kept changing while it was looked at: it is being recovered, cleaned or replaced."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def _line(self) -> str:
        return (
            f"{self.path}: {self.reason} while it was looked at, time and again; look again when its owner has settled"
        )


class StoreClosed(NotNow):
    """The store was closed, or never started."""


class Corrupt(StoreError):
    """Bytes that contradict the format: `path` (a file), `offset` (byte inside that file), `reason`."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path, self.offset, self.reason = path, offset, reason

    def _line(self) -> str:
        return (
            f"{self.path} @ {self.offset}: {self.reason}; "
            "on_corrupt_record='skip' leaves such records out, `rmqstore verify` lists them all"
        )


class StoreDamaged(Corrupt):
    """Damage met by a store that is open for writing, or about to be opened, where nothing can be left out."""

    def _line(self) -> str:
        return (
            f"{self.path} @ {self.offset}: {self.reason}; `rmqstore verify` lists all damage, and "
            "rmqstore.open_snapshot reads what is sound"
        )


class TooLarge(Corrupt):
    """A JSON file that is larger than is read.  It may be sound, so it is neither replaced nor used."""

    def _line(self) -> str:
        return f"{self.path}: {self.reason}; take out of it what nobody needs, or move it away to go on without"


class NoRecord(Corrupt):
    """No record begins where one was asked for by its place: the place is wrong, or the log is damaged there."""

    def _line(self) -> str:
        return (
            f"{self.path} @ {self.offset}: {self.reason}; give the physicalOffset of a message, as `rmqstore cat "
            "--json-lines` shows it, and if this is one, see what `rmqstore verify` finds"
        )


# Why no record can be given by its place in the log, as DataLost says it.
NO_RECORD_BEGINS = "no record begins there"
# What a reason begins with where files are there and the system does not give their bytes.
DISK_FAILS = "the disk fails: "


class DataLost(StoreError):
    """Messages that were asked for and are no longer, or not yet, in the store.

    `queue` is topic/queueId, the first of several where it goes on with "and 2 more queues"; `wanted` and `available`
    are half-open ranges of its queue offsets, `path` the file or directory.  Where only the place in the log is known,
    `queue` begins with "commitlog" and the ranges are of the log.
    """

    def __init__(
        self, queue: str, wanted: tuple[int, int], available: tuple[int, int] | None, path: str, reason: str
    ) -> None:
        super().__init__(queue, wanted, available, path, reason)
        self.queue, self.wanted, self.available, self.path, self.reason = queue, wanted, available, path, reason

    def _line(self) -> str:
        held = f"it holds [{self.available[0]}, {self.available[1]})" if self.available else "it holds none of them"
        advice = "open it again for the present offsets, or set fail_on_data_loss=False to go on with what is there"
        if self.reason.startswith(DISK_FAILS):
            advice = "the messages may be there: look at that disk, and try again"
        elif self.reason == NO_RECORD_BEGINS:
            advice = "the column physicalOffset says where records begin"
        wanted = f"[{self.wanted[0]}, {self.wanted[1]})"
        return f"{self.queue}: offsets {wanted} wanted, {held} ({self.path}: {self.reason}); {advice}"


class OtherLog(DataLost):
    """Another log stands where one was read: the store or the topic was made again, lost its newest messages, or is a
    copy that lags.  Which of its messages are new nobody can tell by their offsets."""


class DurabilityLost(StoreError):
    """A write could not be made durable: the store takes no more messages until it is opened again.

    Messages acknowledged before are safe; whether the message of this call is, nobody knows.  Reads go on.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def _line(self) -> str:
        return f"{self.reason}; the store is read-only now: close it, look at the disk, and open it again"


class PutFailed(StoreError):
    """Raised by `PutResult.raise_for_status`: a put that was not answered PUT_OK.  `result` says why, and whether the
    message is stored all the same (FLUSH_DISK_TIMEOUT): putting that again makes it two.
    """

    def __init__(self, result: "PutAnswer") -> None:
        super().__init__(result)
        self.result = result

    def _line(self) -> str:
        result = self.result
        end = f"it is stored at {result.physical_offset} all the same" if result.is_stored else "nothing is stored"
        if result.message_count and result.status.name != "FLUSH_DISK_TIMEOUT":
            end = f"the first {result.message_count} messages are stored, the others are not"
        return f"{result.status.name}: {result.reason or 'no reason is known'}; {end}"
