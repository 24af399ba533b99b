"""Numbered files as directories list them, and the directories above them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rmqstore.errors import NotAStore
from rmqstore.files.disk import DirectoryEntry, ReadableDisk, StoredFile, join
from rmqstore.formats import names


class Numbered(NamedTuple):
    """The files of a series by start, and the paths of whatever else stands there."""

    files: list[StoredFile]
    strays: list[str]


def numbered_files(
    disk: ReadableDisk, directory: str, parse: Callable[[str], int | None] = names.parse_start
) -> Numbered:
    """The files of a series in one directory, empty ones too: those whose names `parse` takes, as a number."""
    found, strays = [], []
    for entry in disk.entries(directory):
        path = join(directory, entry.name)
        start = None if entry.is_directory else parse(entry.name)
        if start is None:
            strays.append(path)
        else:
            found.append(StoredFile(path, start, entry.size, entry.modified_ms, entry.identity))
    return Numbered(sorted(found, key=lambda file: file.start), strays)


def stored_files(
    disk: ReadableDisk, directory: str, parse: Callable[[str], int | None] = names.parse_start
) -> tuple[StoredFile, ...]:
    """The files of a series that hold anything, in order."""
    found = [
        StoredFile(join(directory, entry.name), start, entry.size, entry.modified_ms, entry.identity)
        for entry in disk.entries(directory)
        if not entry.is_directory and entry.size and (start := parse(entry.name)) is not None
    ]
    return tuple(found if len(found) < 2 else sorted(found, key=lambda file: file.start))


def has_numbered(disk: ReadableDisk, directory: str) -> bool:
    """Whether a name in a directory is a number; what else stands there, links that lead in a circle among it, is not
    looked at.
    """
    return any(names.parse_start(name) is not None for name in disk.names(directory))


def is_log_directory(disk: ReadableDisk, directory: str) -> bool:
    """Whether a directory holds commitlog files by their names."""
    return has_numbered(disk, directory) and bool(stored_files(disk, directory))


def seen_entries(disk: ReadableDisk, directory: str) -> Sequence[DirectoryEntry]:
    """The names in a directory, sorted: links that lead round in a circle, and what else cannot be
    looked at, are left out, for whoever asks for no messages there.  Raises NotAStore if it may not be read.
    """
    try:
        return disk.entries(directory)
    except NotAStore:
        found = []
        for name in disk.names(directory):
            path = join(directory, name)
            version = disk.version_of(path)
            if version:
                is_link = disk.real_path(path) != join(disk.real_path(directory), name)
                found.append(DirectoryEntry(name, version[1], disk.is_directory(path), is_link=is_link))
        return found


def usual_size(series: Sequence[Sequence[StoredFile]], is_used: Callable[[StoredFile], bool] | None = None) -> int:
    """The length that files of some series have by setting: most files, and most distances between starts, agree on
    it; 0 without files.  With `is_used`, one of them must be in use: a crash leaves a file that was being made with any
    length."""
    votes: Counter[int] = Counter()
    for files in series:
        votes.update(file.size for file in files if file.size)
        votes.update(later.start - file.start for file, later in pairwise(files))
    listed = [file for files in series for file in files]
    for size, _ in votes.most_common():
        if is_used is None or any(file.size == size and is_used(file) for file in listed):
            return size
    return 0


def file_with(files: Sequence[StoredFile], number: int) -> StoredFile | None:
    """The file of a series that has room for that byte of it, the later of two that overlap; None if none does."""
    return next((file for file in reversed(files) if file.start <= number < file.end), None)


def directories(disk: ReadableDisk, directory: str) -> Iterator[tuple[str, str]]:
    """Name and path of the directories in a directory."""
    for entry in disk.entries(directory):
        if entry.is_directory:
            yield entry.name, join(directory, entry.name)
