"""The file `checkpoint`: how far things were known flushed.  Java: StoreCheckpoint."""

from dataclasses import dataclass

from rmqstore.formats.layout import Layout

CHECKPOINT = Layout(
    ("physic_timestamp_ms", "i8"),  # store time of the newest message known flushed in the commitlog
    ("logics_timestamp_ms", "i8"),  # store time of the newest message put to consume queues
    ("index_timestamp_ms", "i8"),  # end time of the newest full and flushed index file
    ("master_flushed_offset", "i8"),  # since 5.0; 4.9 leaves this and the next as they are
    ("confirm_offset", "i8"),
    ("logics_physical_offset", "i8"),  # since 5.5: the newest record whose entry was flushed; others leave it as it is
)
assert CHECKPOINT.size == 48
FILE_SIZE = 4096

# The clock may have stepped and flushes run in parallel: Java goes back three seconds more.
MARGIN_MS = 3000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Store timestamps in ms since the epoch and commitlog offsets; 0 where nothing is known."""

    physic_timestamp_ms: int = 0
    logics_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def newest_ms(self) -> int:
        """The latest store time of which it tells that a message was flushed or dispatched; 0: it tells of none."""
        return max(self.physic_timestamp_ms, self.logics_timestamp_ms)

    @property
    def min_timestamp_ms(self) -> int:
        """Messages stored until then are in the commitlog and in the consume queues for sure (0: nothing is sure)."""
        return max(0, min(self.physic_timestamp_ms, self.logics_timestamp_ms) - MARGIN_MS)


def read_checkpoint(data: bytes | memoryview) -> Checkpoint:
    """The checkpoint that a file holds; bytes beyond its end count as zero, as Java's mapping makes them."""
    head = bytes(data[: CHECKPOINT.size]).ljust(CHECKPOINT.size, b"\0")
    return Checkpoint(*CHECKPOINT.struct.unpack(head))


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The whole file of FILE_SIZE bytes."""
    values = (getattr(checkpoint, name) for name in CHECKPOINT.names)
    return CHECKPOINT.struct.pack(*values).ljust(FILE_SIZE, b"\0")
