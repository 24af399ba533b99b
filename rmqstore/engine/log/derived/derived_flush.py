"""When the log and what is derived from it are made durable: the steps of the background workers."""

from collections.abc import Callable

from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.engine.log.derived.checkpoint import CheckpointFile
from rmqstore.engine.log.derived.index_log import IndexLog
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.engine.log.put.commitlog import CommitLog

_PAGE = 4096


class LogFlush:
    """Commits and syncs the commitlog in the background (RocketMQ: FlushRealTimeService, CommitRealTimeService).

    Puts that wait for the disk sync for themselves, in groups; this is for all others.
    """

    def __init__(self, log: CommitLog, config: StoreConfig, checkpoint: CheckpointFile, clock: Clock) -> None:
        self._log = log
        self._config = config
        self._checkpoint = checkpoint
        self._clock = clock
        self._thorough_at_s = clock.monotonic_s()

    def step(self) -> float:
        """Syncs when enough pages are written or the thorough interval is over.  Raises DurabilityLost."""
        now_s = self._clock.monotonic_s()
        is_thorough = now_s - self._thorough_at_s >= self._config.flush_thorough_interval_ms / 1000
        marks = self._log.marks
        pages = marks.committed // _PAGE - marks.flushed // _PAGE
        if is_thorough or pages >= self._config.flush_least_pages:
            self.flush()
            self._thorough_at_s = now_s
        return self._config.flush_interval_ms / 1000

    def flush(self) -> bool:
        """Makes all that is appended by now durable, and the checkpoint know of it; False if a sync that is under way
        does not end in time.  Raises DurabilityLost.
        """
        newest_ms = self._log.newest_ms  # before the end is looked at: messages up to this time are before the end
        self._log.commit()
        if not self._log.sync_to(self._log.marks.committed, self._config.sync_flush_timeout_ms / 1000):
            return False
        if newest_ms:
            self._checkpoint.update(physic_timestamp_ms=newest_ms)
        return True

    def commit_step(self) -> float:
        """Writes the pool's buffers to the file."""
        self._log.commit()
        return self._config.commit_interval_ms / 1000


class DerivedFlush:
    """Makes queues, full index files and then the checkpoint durable, in that order, so that it never says too much.

    The index file that still takes items is rebuilt after a crash, and synced at a clean close only, as RocketMQ does.
    `flush_entries` comes first: what tells of the entries in which records stand.  `tells_offset`: the checkpoint says
    up to which record queues are durable, as RocketMQ 5.5 has it; it does where it did before.
    """

    def __init__(
        self, queues: QueueTable, index: IndexLog | None, checkpoint: CheckpointFile, interval_ms: int,
        flush_entries: Callable[[], None] | None = None, *, tells_offset: bool = False,
    ) -> None:  # fmt: skip
        self._tells_offset = tells_offset or checkpoint.values.logics_physical_offset > 0
        self._flush_entries = flush_entries
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._interval_s = interval_ms / 1000

    def step(self) -> float:
        """One flush.  Raises OSError."""
        self.flush()
        return self._interval_s

    def flush(self, whole_index: bool = False) -> None:
        """Queues and index as they are now, then what the checkpoint may say about them.  Raises OSError."""
        dispatched_ms, dispatched = self._queues.store_ms, self._queues.newest_offset
        if self._flush_entries is not None:
            self._flush_entries()
        self._queues.flush()
        if self._index is not None:
            self._index.flush() if whole_index else self._index.flush_full()
            if self._index.full_ms:
                self._checkpoint.update(index_timestamp_ms=self._index.full_ms)
        if dispatched_ms:
            self._checkpoint.update(logics_timestamp_ms=dispatched_ms)
        if dispatched and self._tells_offset:
            self._checkpoint.update(logics_physical_offset=dispatched)
        self._checkpoint.flush()
