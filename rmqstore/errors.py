"""Every error that rmqstore raises, grouped by the person who can fix it.

- `Rejected`: the caller changes the request.
- `NotNow`: the caller retries later.
- `Corrupt`, `DataLost`: an operator checks the file.
- `DurabilityLost`: nobody; the store has to be opened again.

Every error carries its fields and reads as one line that names the next step.  It survives pickling: Spark carries it
from a worker to the driver.
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
    errno.EIO: "check the system's log: the disk may be failing",
    errno.ELOOP: "replace or remove the symbolic link that leads back to itself",
    errno.ENOENT: "check the path: nothing is there",
    errno.ENOTDIR: "check the path: nothing is there",
}


def next_step(error: OSError, right: str = "read") -> str:
    """The next step after an error of the operating system; `right` is the access that was refused: read or write."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"run as a user who may {right} it"
    return _ADVICE.get(error.errno or 0, "try again")


def in_words(failure: BaseException) -> str:
    """The text of a failure for a user: the message of a StoreError or OSError; `repr` of any other exception."""
    is_worded = isinstance(failure, (OSError, StoreError)) and str(failure)
    return str(failure) if is_worded else repr(failure)


# A longer word without a blank loses its middle: its two ends tell a reader which value it is.
WORD_SIZE_MAX = 1000
# Characters of the longest message, which has room for many mistakes.
LINE_SIZE_MAX = 3000
# Largest number of row numbers in one message.
_ROWS_NAMED_MAX = 10
_LONG_WORD = re.compile(rf"\S{{{WORD_SIZE_MAX + 1},}}")
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+ *")
_SURROGATES = re.compile("[\ud800-\udfff]")


def in_one_line(text: str) -> str:
    """The text as one line of UTF-8; a text that is too long loses its middle."""
    line = _SURROGATES.sub("\ufffd", _STEERING.sub(" ", text))
    return _without_middle(
        _LONG_WORD.sub(lambda word: _without_middle(word[0], WORD_SIZE_MAX // 5), line), LINE_SIZE_MAX
    )


def _without_middle(text: str, size: int) -> str:
    """The text itself, or its two ends: about `size` characters together."""
    if len(text) <= size:
        return text
    return f"{text[: size * 3 // 4]}… ({len(text):,} characters) …{text[-size // 4 :]}"


class PutAnswer(Protocol):
    """The fields of a PutResult (core/message.py) that PutFailed shows."""

    @property
    def status(self) -> Enum:
        """The PutStatus."""

    @property
    def reason(self) -> str:
        """Why the status is not PUT_OK."""

    @property
    def physical_offset(self) -> int:
        """The commitlog offset of the first record."""

    @property
    def message_count(self) -> int:
        """How many messages are stored."""

    @property
    def is_stored(self) -> bool:
        """Whether any message is stored."""


class StoreError(Exception):
    """The base class of all errors that rmqstore raises on purpose.

    `str` is one line of at most LINE_SIZE_MAX printable characters, whatever text of a user or a file is in it; the
    fields of the error hold that text whole.  Messages name options as Python arguments; `say` replaces the message.
    """

    _said: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, self.__dict__

    def __str__(self) -> str:
        return in_one_line(self._line() if self._said is None else self._said)

    def say(self, line: str) -> None:
        """Replaces the message: the command line and Spark name their own options."""
        self._said = line

    def _line(self) -> str:
        """The message: what happened, and the next step."""
        return super().__str__()


class Rejected(StoreError, ValueError):
    """The request cannot be served as it is; the message says what to change."""


class WrongType(Rejected, TypeError):
    """A value of the wrong type: the `field`, the value that was `given`, shortened, and the type that is `wanted`.

    It is a TypeError, as of any function that is called with the wrong type, and through Rejected a ValueError.
    """

    def __init__(self, field: str, given: str, wanted: str) -> None:
        super().__init__(field, given, wanted)
        self.field, self.given, self.wanted = field, given, wanted

    def _line(self) -> str:
        return f"{self.field}={self.given}: expected {self.wanted}"


class NotAStore(Rejected):
    """A path that holds no RocketMQ store, or that cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def _line(self) -> str:
        return f"{self.path}: {self.reason}"


class UnsupportedLayout(Rejected):
    """A RocketMQ store in a layout that this version does not read; the message names a workaround."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def _line(self) -> str:
        return f"{self.path}: {self.reason}"


class WrongRows(Rejected):
    """Rows that are not valid messages: `rows` maps each reason to row numbers, counted from 0."""

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
            hint = "write the whole name of a topic; pattern= takes a regular expression, .* for all, orders.* for some"
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
    """A store that kept changing while it was read: another process recovers, cleans or replaces it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def _line(self) -> str:
        return f"{self.path}: the store kept changing while it was read ({self.reason}); retry when its writer is idle"


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
    """Damage in a store that is open for writing or being opened for writing, which cannot skip damaged records."""

    def _line(self) -> str:
        return (
            f"{self.path} @ {self.offset}: {self.reason}; `rmqstore verify` lists all damage, and "
            "rmqstore.open_snapshot reads the undamaged messages"
        )


class TooLarge(Corrupt):
    """A JSON file that is too large to be read.  It may be undamaged, so it is neither used nor replaced."""

    def _line(self) -> str:
        return (
            f"{self.path}: {self.reason}; remove the entries that you do not need, or move the file aside to continue "
            "without it"
        )


class NoRecord(Corrupt):
    """No record begins at the requested commitlog offset: the offset is wrong, or the log is damaged there."""

    def _line(self) -> str:
        return (
            f"{self.path} @ {self.offset}: {self.reason}; give the physicalOffset of a message, as `rmqstore cat "
            "--json-lines` shows it; if it is one, `rmqstore verify` lists the damage"
        )


# The reason of a DataLost where no record begins at the requested commitlog offset.
NO_RECORD_BEGINS = "no record begins there"
# A reason begins with this where a file exists and the operating system fails to read it.
DISK_FAILS = "the disk fails: "


class DataLost(StoreError):
    """Requested messages that the store does not hold any more, or not yet.

    - `queue`: topic/queueId.  Of several queues it is the first, and ends with "and 2 more queues".
    - `wanted` and `available`: half-open ranges of queue offsets in that queue.
    - `path`: the file or directory.

    If only commitlog offsets are known, `queue` begins with "commitlog" and both ranges are commitlog offsets.
    """

    def __init__(
        self, queue: str, wanted: tuple[int, int], available: tuple[int, int] | None, path: str, reason: str
    ) -> None:
        super().__init__(queue, wanted, available, path, reason)
        self.queue, self.wanted, self.available, self.path, self.reason = queue, wanted, available, path, reason

    def _line(self) -> str:
        held = f"it holds [{self.available[0]}, {self.available[1]})" if self.available else "it holds none of them"
        advice = (
            "open the store again for its current offsets, or set fail_on_data_loss=False to skip the missing messages"
        )
        if self.reason.startswith(DISK_FAILS):
            advice = "the messages may be there: check that disk, and try again"
        elif self.reason == NO_RECORD_BEGINS:
            advice = "the column physicalOffset says where records begin"
        wanted = f"[{self.wanted[0]}, {self.wanted[1]})"
        return f"{self.queue}: offsets {wanted} wanted, {held} ({self.path}: {self.reason}); {advice}"


class OtherLog(DataLost):
    """The commitlog at this path is not the one that was read before: the store or the topic was made again, lost its
    newest messages, or is a copy that lags.  Offsets cannot tell which of its messages are new."""


class DurabilityLost(StoreError):
    """A write could not be made durable: the store takes no more messages until it is opened again.

    Messages that were acknowledged before are safe; the message of this call may be lost.  Reads still work.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def _line(self) -> str:
        return f"{self.reason}; the store is read-only now: close it, check the disk, and open it again"


class PutFailed(StoreError):
    """Raised by `PutResult.raise_for_status`: a put whose status is not PUT_OK.  `result` holds the reason.

    With FLUSH_DISK_TIMEOUT the message is stored nevertheless: putting it again would store it twice.
    """

    def __init__(self, result: "PutAnswer") -> None:
        super().__init__(result)
        self.result = result

    def _line(self) -> str:
        result = self.result
        end = "nothing is stored"
        if result.is_stored:
            end = f"the message is stored nevertheless, at offset {result.physical_offset}"
        if result.message_count and result.status.name != "FLUSH_DISK_TIMEOUT":
            end = f"the first {result.message_count} messages are stored, the others are not"
        return f"{result.status.name}: {result.reason or 'no reason is known'}; {end}"
