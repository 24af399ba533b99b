"""The log that follows another one: its end as the master must have it, and the master's bytes appended and synced."""

from collections.abc import Callable, Sequence

from rmqstore.engine import Engine
from rmqstore.errors import NotNow, Rejected
from rmqstore.log.put.block import BlockPart, block_parts
from rmqstore.replication.link.slave_link import OwnEnd

# The newest bytes of the own log that the master must have too, before anything is taken from it.
COMPARED_SIZE = 64 * 1024
# Bytes that wait for the rest of their record; no message comes near it, in RocketMQ 4 MiB are the most by default.
PENDING_SIZE_MAX = 64 * 1024 * 1024
# The average size of a record is that of about so many bytes, the newer ones more than the older ones.
_AVERAGED_SIZE = 16 * 1024 * 1024


class ForeignRecord(Rejected):
    """The master's log holds, at `offset`, what this store cannot take: nothing of it is appended.

    The bytes came as the master has them, so a new connection brings the same.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset, self.reason = offset, reason

    def _line(self) -> str:
        return f"the master's log at offset {self.offset}: {self.reason}; look at it there with `rmqstore verify`"


class Follower:
    """The log of `engine`, which nobody else appends to; one thread.

    Bytes come in any portions; only whole records are appended, and the rest waits in memory for what follows.  Before
    the first message of a topic that is in no table is appended, `learn` is called: of which kind the topic's queues
    are decides what dispatch makes of it.
    """

    def __init__(self, engine: Engine, learn: Callable[[], None]) -> None:
        self._engine = engine
        self._log = engine.log
        self._learn = learn
        self._unlisted: set[str] = set()  # topics that the master does not know either
        self._pending = bytearray()
        self._counted = (0.0, 0.0)  # records, and their bytes

    @property
    def record_size(self) -> float | None:
        """The average size of the records that came last, in bytes; None while none came."""
        count, size = self._counted
        return size / count if count else None

    @property
    def end(self) -> int:
        """How far the log goes, in whole records."""
        return self._log.marks.appended

    def own_end(self) -> OwnEnd:
        """The newest bytes, which the master must have too; forgets what was not appended, as it comes again."""
        self._pending.clear()
        begin = max(self._log.start, self.end - COMPARED_SIZE)
        return OwnEnd(begin, self._log.read(begin, self.end - begin))

    def take(self, data: bytes) -> None:
        """The bytes that follow those taken before.  Raises ForeignRecord."""
        self._pending += data
        if len(self._pending) > PENDING_SIZE_MAX:
            raise ForeignRecord(self.end, f"a record of more than {PENDING_SIZE_MAX} bytes, or none")

    def append(self) -> int:
        """Appends what is whole, and makes it durable; how far that is.

        Raises ForeignRecord with nothing appended; DurabilityLost, and NotNow where the disk has no room for the next
        file, or takes too long: what was not appended comes again.
        """
        if self._pending:
            self._append()
        end = self.end
        if not self._log.sync_to(end, self._engine.config.sync_flush_timeout_ms / 1000):
            raise NotNow(f"a sync of the log is not confirmed after {self._engine.config.sync_flush_timeout_ms} ms")
        return end

    def _append(self) -> None:
        offset, data = self.end, bytes(self._pending)
        parts = self._parts(offset, data)
        if self._learned(parts):
            parts = self._parts(offset, data)
        end = self._log.append_block(offset, data, parts)
        self._count(parts)
        del self._pending[: end - offset]
        self._engine.appended()

    def _count(self, parts: Sequence[BlockPart]) -> None:
        count, size = self._counted
        count += sum(part.record_count for part in parts)
        size += sum(part.end - part.offset for part in parts if part.record_count)
        fading = min(_AVERAGED_SIZE / size, 1.0) if size else 1.0
        self._counted = (count * fading, size * fading)

    def _parts(self, offset: int, data: bytes) -> list[BlockPart]:
        kinds = self._engine.parts.queues.kinds
        try:
            return block_parts(offset, data, self._log.files.file_size, kinds, may_be_cut=True)
        except Rejected as refusal:
            raise ForeignRecord(offset, str(refusal)) from None

    def _learned(self, parts: Sequence[BlockPart]) -> bool:
        """Whether the table of topics was asked for once more."""
        find = self._engine.features.topics.find
        unknown = {topic for part in parts for topic, _ in part.moved if find(topic) is None} - self._unlisted
        if unknown:
            self._learn()
            self._unlisted |= {topic for topic in unknown if find(topic) is None}
        return bool(unknown)
