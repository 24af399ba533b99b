"""Where a file holds anything but zeros: files are allocated ahead, so nothing else tells what was written."""

import mmap

import numpy as np

from rmqstore.files.disk import ReadableDisk, ReadableFile, StoredFile
from rmqstore.files.filesystem import DiskFile

_CHUNK_SIZE = 1024 * 1024
# How much is read after a place to see whether something stands there, and how many pages of the rest are looked at.
_LOOK_SIZE = 64 * 1024
_PROBES = 16


def nonzero(source: ReadableFile, start: int, end: int, *, first_only: bool = False) -> tuple[int, int] | None:
    """From the first byte of [start, end) that is not zero to after the last one, as far as the file reaches; None if
    all are.  With `first_only` the search ends soon after the first one.  Holes are passed over.
    """
    low, high, position = -1, 0, start
    while (position := source.next_data(position)) < end:
        page = np.frombuffer(source.read(position, min(_CHUNK_SIZE, end - position)), np.uint8)
        if not len(page):
            break
        hits = np.flatnonzero(page)
        if len(hits):
            low = position + int(hits[0]) if low < 0 else low
            high = position + int(hits[-1]) + 1
            if first_only:
                break
        position += len(page)
    return None if low < 0 else (low, high)


def holds_nothing(disk: ReadableDisk, listed: StoredFile) -> bool:
    """Whether a file holds nothing but zeros.  Raises OSError."""
    source = disk.open(listed.path)
    try:
        return is_zero(source, 0, listed.size)
    finally:
        source.close()


def is_zero(source: ReadableFile, start: int, end: int) -> bool:
    """Whether bytes [start, end) of a file are all zero, as far as it reaches; holes are passed over."""
    position = start
    while (position := source.next_data(position)) < end:
        data = source.read(position, min(_CHUNK_SIZE, end - position))
        if not data:
            return True
        if not _are_zero(data):
            return False
        position += len(data)
    return True


def is_blank(disk: ReadableDisk, path: str, start: int, end: int) -> bool:
    """As `is_zero` of a file that is not kept open.  Raises as the disk's `open`, OSError."""
    source = disk.open(path)
    try:
        return is_zero(source, start, end)
    finally:
        source.close()


def seems_zero(source: ReadableFile, start: int, end: int) -> bool:
    """Whether bytes [start, end) of a file look like zeros, without reading all of them: holes are passed over, then
    64 KiB are read, and of the rest, which a copy may have without holes, the last page and 15 more.

    False is certain.  Raises OSError as the system gives it.
    """
    position = source.next_data(start)
    if position >= end:
        return True
    if not _are_zero(source.read(position, min(_LOOK_SIZE, end - position))):
        return False
    rest = source.next_data(position + _LOOK_SIZE) if position + _LOOK_SIZE < end else end
    if rest >= end:
        return True
    last = max(end - mmap.PAGESIZE, rest)
    places = {rest + (last - rest) * number // (_PROBES - 1) for number in range(_PROBES)}
    return all(_are_zero(source.read(place, min(mmap.PAGESIZE, end - place))) for place in places)


def blank(file: DiskFile, position: int) -> None:
    """Makes everything from `position` on zero, writing only where it is not, and syncs in any case: the zeros of an
    attempt that was interrupted may not be on the disk yet.
    """
    for low, high in file.data_ranges(position):  # all of them before the first read, which would add to them
        for at in range(low, high, _CHUNK_SIZE):
            chunk = file.read(at, min(_CHUNK_SIZE, high - at))
            if not _are_zero(chunk):
                file.write(at, bytes(len(chunk.rstrip(b"\0"))))
    file.sync()


def _are_zero(data: bytes) -> bool:
    return data == bytes(len(data))  # 20 times as fast as counting the zeros
