"""Up to which offset the consume queues know the log: entries added up and held against it, no record is read.

For a reader, which has to say where the records without an entry begin, in any number of files, in bounded memory.  A
recovery asks of one file after the other whether anything in it lacks its entry: `log_coverage.py`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.files.disk import StoredFile
from rmqstore.formats.message_columns import Ints

_BUCKET_SIZE = 1024 * 1024
# Of 32 bytes each.  A log of more than 1 TiB, or a sparse file that says it is, has larger buckets.
_BUCKETS_MAX = 1024 * 1024


class Covered(NamedTuple):
    """Queue entries account for every byte of the log before `until`, and for no record from there on.  `restart` is
    the last known place before it, or the first one.  A record, a blank or a file begins at both.
    """

    until: int
    restart: int


class Coverage:
    """Adds up queue entries by stretches of the log, to find the first record that no queue knows without reading
    records.

    The log of `files` is cut into buckets of 1 MiB, larger ones where there were too many; in a bucket that is wholly
    dispatched the entries lie end to end. Memory is bounded by the number of buckets.
    """

    def __init__(self, files: Sequence[StoredFile]) -> None:
        bucket_size = _BUCKET_SIZE
        while sum(file.size for file in files) > _BUCKETS_MAX * bucket_size:
            bucket_size *= 2
        starts = [np.arange(file.start, file.end, bucket_size) for file in files]
        self._bucket_starts = np.concatenate(starts) if starts else np.zeros(0, np.int64)
        count = len(self._bucket_starts)
        self._sum = np.zeros(count, np.int64)
        self._low = np.full(count, np.iinfo(np.int64).max)
        self._high = np.zeros(count, np.int64)
        self._file_starts = {file.start for file in files}

    def add(self, offsets: Ints, sizes: npt.NDArray[np.integer]) -> None:
        """Counts entries (each message once): int64[n] physical offsets, sizes in bytes."""
        if not len(self._bucket_starts):
            return
        known = offsets >= self._bucket_starts[0]
        if not known.all():
            offsets, sizes = offsets[known], sizes[known]
        if not len(offsets):
            return
        sizes = sizes.astype(np.int64)
        if not (offsets[1:] > offsets[:-1]).all():  # damaged entries: offsets rise along a queue
            order = np.argsort(offsets, kind="stable")
            offsets, sizes = offsets[order], sizes[order]
        first = int(np.searchsorted(self._bucket_starts, offsets[0], side="right")) - 1
        last = int(np.searchsorted(self._bucket_starts, offsets[-1], side="right"))
        edges = np.searchsorted(offsets, self._bucket_starts[first + 1 : last])
        firsts = np.concatenate(([0], edges))
        lasts = np.concatenate((edges, [len(offsets)])) - 1
        held = lasts >= firsts
        buckets = np.arange(first, last)[held]
        firsts, lasts = firsts[held], lasts[held]
        self._sum[buckets] += np.add.reduceat(sizes, firsts)
        self._low[buckets] = np.minimum(self._low[buckets], offsets[firsts])
        self._high[buckets] = np.maximum(self._high[buckets], offsets[lasts] + sizes[lasts])

    def covered_until(self, back: int, is_blank: Callable[[int], bool]) -> Covered:
        """How far the entries account for every byte of the log, and where to begin for a look back of at least
        `back` bytes.  `is_blank` is asked what stands where the entries of a file end: anything but a blank is a
        record that no queue knows.
        """
        expected = int(self._bucket_starts[0]) if len(self._bucket_starts) else 0
        boundaries = [expected]
        # Buckets after the last one that an entry points into say nothing.
        used = np.flatnonzero(self._sum)[-1:] + 1
        for number, start in enumerate(self._bucket_starts[: used.sum()].tolist()):
            if start in self._file_starts and start > expected:
                if not is_blank(expected):
                    break
                expected = start
            if self._sum[number] == 0:
                continue
            if self._low[number] != expected and len(boundaries) > 1:
                boundaries.pop()  # where the last one ends may be what a damaged entry says
                expected = boundaries[-1]
                break
            if self._low[number] != expected or self._high[number] - self._low[number] != self._sum[number]:
                break
            expected = int(self._high[number])
            boundaries.append(expected)
        earlier = [place for place in boundaries if place <= expected - back]
        return Covered(expected, earlier[-1] if earlier else boundaries[0])
