"""A look at the files of a sequence: which belong to it, which a crash left half made, and what no writer leaves."""

from collections.abc import Sequence
from typing import NamedTuple

from rmqstore.errors import StoreDamaged
from rmqstore.files.disk import DirectoryEntry
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.files.zeros import is_zero
from rmqstore.formats.names import parse_start

_I64_MAX = 2**63 - 1


class SequenceFile(NamedTuple):
    """One file as listed; `start` is the number in its name."""

    start: int
    directory: str
    entry: DirectoryEntry

    @property
    def path(self) -> str:
        """Where it lies."""
        return join(self.directory, self.entry.name)


class ListedSequence(NamedTuple):
    """The files by start, the paths of last files that were being made when the writer ended, the newest first, and a
    sentence for each thing that is odd but harmless.
    """

    files: list[SequenceFile]
    unfinished_paths: list[str]
    warnings: list[str]


def listed_sequence(fs: FileSystem, directories: Sequence[str], file_size: int) -> ListedSequence:
    """The files of `file_size` bytes in some directories.

    Raises Corrupt for a wrong length, but of a last file without content, and for files that overlap or are there
    twice; OSError.
    """
    warnings: list[str] = []
    found: list[SequenceFile] = []
    for directory in directories:
        for entry in fs.entries(directory):
            start = None if entry.is_directory else parse_start(entry.name)
            if start is None or start > _I64_MAX - file_size:
                warnings.append(f"{join(directory, entry.name)}: not a file of this sequence, left as it is")
            else:
                found.append(SequenceFile(start, directory, entry))
    found.sort(key=lambda each: each.start)
    unfinished = []
    while found and _is_unfinished(fs, found[-1], file_size):
        unfinished.append(found.pop())
    _check(found, file_size, warnings)
    warnings += [f"{file.path}: {file.entry.size} bytes of a file that was being made when the writer ended"
                 for file in unfinished]  # fmt: skip
    return ListedSequence(found, [file.path for file in unfinished], warnings)


def _is_unfinished(fs: FileSystem, file: SequenceFile, file_size: int) -> bool:
    """Whether a last file is what a crash leaves of making one: shorter than it should be, and nothing in it."""
    if file.entry.size >= file_size:
        return False
    return is_zero(fs.open(file.path), 0, file.entry.size)


def _check(found: Sequence[SequenceFile], file_size: int, warnings: list[str]) -> None:
    """Raises Corrupt for lengths and places that no writer leaves; adds a warning for each gap."""
    end = None
    for file in found:
        path, start, size = file.path, file.start, file.entry.size
        if size != file_size:
            raise StoreDamaged(path, size, f"the file has {size} bytes, its sequence {file_size}")
        if end is not None and start < end:
            raise StoreDamaged(path, 0, f"starts at {start}, where the file before it, up to {end}, still reaches")
        if end is not None and start > end:
            warnings.append(f"{path}: no file holds [{end}, {start})")
        if start % file_size:
            warnings.append(f"{path}: {start} is no multiple of {file_size}")
        end = start + file_size
