"""Which queue files and index files expire: the one rule, for a store that is open and for one that nobody has open."""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import TypeVar

File = TypeVar("File")


def expired_files(files: Iterable[File], last_place: Callable[[File], int | None], min_physical: int) -> list[File]:
    """The oldest of `files`, in their order, that lead only to records before `min_physical` of the log.

    `last_place` says where the last record stands that a file leads to.  Where that cannot be read (None), the file and
    all after it stay.
    """

    def expires(file: File) -> bool:
        place = last_place(file)
        return place is not None and place < min_physical

    return list(takewhile(expires, files))


def expired_starts(
    starts: Sequence[int], file_size: int, end: int, min_physical: int, last_place: Callable[[int], int | None]
) -> list[int]:
    """`expired_files` of a queue, by their starts.

    Never the file with the newest entry, which ends at `end`: by it the next queue offset is known.
    Java: ConsumeQueue.deleteExpiredFile.
    """
    return expired_files((start for start in starts[:-1] if start + file_size < end), last_place, min_physical)
