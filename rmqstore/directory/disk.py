"""The read side of a disk, as a recovery plan needs it: nothing here can change a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqstore.files import reading


class ReadableFile(Protocol):
    """The part of a DiskFile that a plan needs."""

    def size(self) -> int:
        """The file's size at this moment."""

    def read(self, position: int, size: int) -> bytes:
        """Bytes [position, position + size), fewer where the file ends before."""

    def next_data(self, position: int) -> int:
        """The first position from `position` on that may hold anything but zeros; the file's size if there is none."""

    def close(self) -> None:
        """Gives the file back."""


class ReadableEntry(Protocol):
    """One name in a directory."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def size(self) -> int:
        """Bytes of the file."""

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""


class ReadableDisk(Protocol):
    """The part of a FileSystem that a plan needs; `ReadOnlyDisk` is the one that cannot write."""

    def entries(self, directory: str) -> Sequence[ReadableEntry]:
        """What a directory holds, sorted by name; empty if there is none."""

    def open(self, path: str) -> ReadableFile:
        """Opens a file.  Raises FileNotFoundError if there is none."""

    def exists(self, path: str) -> bool:
        """Whether anything stands at `path`."""

    def is_directory(self, path: str) -> bool:
        """Whether a directory stands at `path`, or a link to one."""


class ReadOnlyFile(reading.OpenFile):
    """A file open for reading only."""

    def next_data(self, position: int) -> int:
        """`position`: what lies there is not known before it is read."""
        return position


class ReadOnlyDisk:
    """The host's disk, where nothing can be written: for a look at a store that somebody else may be using."""

    def entries(self, directory: str) -> Sequence[ReadableEntry]:
        """Lists a directory."""
        return reading.list_entries(directory)

    def open(self, path: str) -> ReadableFile:
        """Opens a file for reading."""
        return ReadOnlyFile(path)

    def exists(self, path: str) -> bool:
        """Whether anything stands at `path`."""
        return reading.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether a directory stands at `path`."""
        return reading.is_directory(path)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a numbered series: `start` is the number in its name, `size` the length that it has."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        """The first number behind what the file holds."""
        return self.start + self.size
