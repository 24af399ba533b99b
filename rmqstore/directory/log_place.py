"""Log offsets as file names and byte positions, for people."""

from collections.abc import Sequence
from typing import NamedTuple

from rmqstore.errors import Corrupt
from rmqstore.files.disk import StoredFile


class LogPlace(NamedTuple):
    """Byte `position` of the file `path`."""

    path: str
    position: int


def log_place(files: Sequence[StoredFile], offset: int) -> LogPlace:
    """The commitlog file that holds a log offset, and the byte in it; where none holds it, the last file before it.
    Without such a file it is the offset itself, in "commitlog".
    """
    holder = next((file for file in reversed(files) if file.start <= offset), None)
    return LogPlace("commitlog", offset) if holder is None else LogPlace(holder.path, offset - holder.start)


def corrupt_at(files: Sequence[StoredFile], offset: int, reason: str) -> Corrupt:
    """The error for bytes at `offset` of the log, named by file and position."""
    return Corrupt(*log_place(files, offset), reason)
