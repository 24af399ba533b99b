"""Protocols of the log, queues and index as reads need them, and the limits of a read."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rmqstore.engine.log.derived.batch_queue import BatchQueue


class LogFiles(Protocol):
    """The files of a log, as reads need them."""

    @property
    def file_size(self) -> int:
        """Bytes of each."""

    def path_of(self, offset: int) -> str:
        """Path of the file that holds `offset`; ValueError if none does."""


class ReadableLog(Protocol):
    """A log, as reads need it."""

    @property
    def start(self) -> int:
        """The first offset that can be read."""

    @property
    def readable_end(self) -> int:
        """Where what can be read ends."""

    @property
    def files(self) -> LogFiles:
        """Its files."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from `offset` on, as far as they can be read."""


class SizedFiles(Protocol):
    """Files of one size, as reads need them."""

    @property
    def file_size(self) -> int:
        """Bytes of each."""


class ReadableQueue(Protocol):
    """A consume queue, as reads need it."""

    @property
    def min_offset(self) -> int:
        """The first queue offset that can be read."""

    @property
    def max_offset(self) -> int:
        """The queue offset of the next message."""

    @property
    def files(self) -> SizedFiles:
        """Its files."""

    def read(self, first: int, last: int) -> npt.NDArray[np.void]:
        """Entries of queue offsets [first, last), as far as they are written."""

    def tags_codes(self, entries: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        """The third field of entries, extension addresses resolved."""


class Queues(Protocol):
    """The table of queues, as reads need it."""

    def find(self, topic: str, queue_id: int) -> ReadableQueue | None:
        """The queue, None where there is none."""


class WholeBatches(Protocol):
    """The table of queues of whole batches, as reads need it."""

    def find(self, topic: str, queue_id: int) -> BatchQueue | None:
        """The queue, None where there is none."""


class KeyIndex(Protocol):
    """The index, as reads need it."""

    def query(self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        """Offsets of records by the hash of a key, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much one read of a queue brings and looks at; Apache's names, values and units.

    Messages within the newest 40 % of `memory_bytes` of the log are taken to be in memory: of those a read brings more.
    """

    memory_bytes: int = 24 * 1024**3  # Java's where it cannot find out
    memory_percent: int = 40  # accessMessageInMemoryMaxRatio
    bytes_in_memory: int = 262_144  # maxTransferBytesOnMessageInMemory
    count_in_memory: int = 32
    bytes_on_disk: int = 65_536
    count_on_disk: int = 8
    filter_bytes: int = 16_000  # maxFilterMessageSize: of queue entries
    bytes_min: int = 100
    bytes_max: int = 128 * 1024 * 1024  # MAX_PULL_MSG_SIZE


def holds_record(log: ReadableLog, offset: int, size: int) -> bool:
    """Whether a record of `size` bytes can lie at `offset`: inside what is readable, and inside one file."""
    file_size = log.files.file_size
    is_inside = log.start <= offset and size > 0 and offset + size <= log.readable_end
    return is_inside and offset % file_size + size <= file_size
