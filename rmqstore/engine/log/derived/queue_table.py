"""All consume queues of a store, and the dispatcher that fills them."""

import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import numpy as np

from rmqstore.directory.deleted_topics import without_deleted
from rmqstore.directory.queue_kinds import PLAIN_ONLY, BatchTopics, QueueKinds
from rmqstore.engine.log.derived.batch_queue import BatchQueues
from rmqstore.engine.log.derived.consume_queue import ConsumeQueue, Entries
from rmqstore.engine.log.derived.known_queues import NOTHING_KNOWN, KnownQueues
from rmqstore.engine.log.derived.queue_extension import QueueExtension
from rmqstore.errors import Corrupt
from rmqstore.files.file_sequence import FileHandles
from rmqstore.files.filesystem import FileSystem, directory_of, join
from rmqstore.formats import names
from rmqstore.formats.delay_levels import DEFAULT_TABLES, LevelTables
from rmqstore.formats.deleted_topics import Deleted, DeletedBefore
from rmqstore.formats.message_columns import Ints, take_rows
from rmqstore.formats.names import EXTENSION_ROOM, PLAIN_ROOM, QueueKey
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.records.batch import RecordBatch
from rmqstore.records.inner_batches import Rows, rows_by_kind
from rmqstore.records.light_queues import in_log_order, light_entries
from rmqstore.records.vectors import Records

_UNIT = QUEUE_ENTRY.size
_EVERYTHING = 2**63 - 1  # as a place in the log: all records are before it


class QueueTable:
    """The queues below consumequeue/ of the store at `root`, by topic and queue id.

    One thread dispatches, or none while queues are cut; everything else may be called from any thread, but queues
    expire in one at a time.  Another `levels` is for the records that are dispatched from then on.
    """

    def __init__(
        self,
        fs: FileSystem,
        handles: FileHandles,
        root: str,
        file_size: int,
        levels: LevelTables = DEFAULT_TABLES,
        kinds: QueueKinds = PLAIN_ONLY,
    ) -> None:
        self.store_ms = 0  # store time of the newest record dispatched here; 0 before the first
        self.newest_offset = 0  # and its place in the log
        self.refused_count = 0  # records whose topic or queue id names no directory
        self.faults: dict[QueueKey, str] = {}  # light queues that lack an entry which a record lists, and why
        self._fs = fs
        self._handles = handles
        self._root = join(root, PLAIN_ROOM)
        self._extension_root = join(root, EXTENSION_ROOM)
        self.kinds = kinds
        self.is_batch_topic = kinds.is_batch_topic
        self.batches = BatchQueues(fs, handles, root, kinds.batch_file_size)
        self._file_size = file_size
        self.levels = levels
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._writing = threading.Lock()  # held while a batch is dispatched, and while a topic is removed
        self._leaving: dict[str, list[ConsumeQueue]] = {}  # topic -> queues whose removal did not end well
        self._removed: dict[Deleted, int] = {}  # records before this place of the log are not for it any more
        self._flushing = threading.Lock()  # so that a second flush waits for what the one before it took
        self._lock = threading.Lock()  # guards `_dirty` and `_failure`
        self._dirty: set[ConsumeQueue] = set()
        self._failure: OSError | None = None

    def load(self, known: KnownQueues = NOTHING_KNOWN) -> list[str]:
        """Finds every queue and where it ends; returns warnings.  Raises Corrupt for files of a wrong size.

        Nothing is changed but that an empty file at a queue's end is removed.  What is `known` is not looked at again.
        """
        warnings: list[str] = []
        for topic in self._fs.entries(self._root):
            if not topic.is_directory or self.is_batch_topic(topic.name):
                continue  # the plan says a word about such a directory
            queue_ids = known.topics.get(topic.name)
            for queue_id in self._listed(topic.name, warnings) if queue_ids is None else queue_ids:
                queue = self._make(topic.name, queue_id)
                warnings += queue.load(known.queues.get((topic.name, queue_id)))
                self._queues[topic.name, queue_id] = queue
        return warnings + self.batches.load()

    def _listed(self, topic: str, warnings: list[str]) -> list[int]:
        """The queue ids in a topic's directory; warns of what else is there."""
        queue_ids = []
        for entry in self._fs.entries(join(self._root, topic)):
            queue_id = names.parse_queue_id(entry.name)
            if queue_id is None or not entry.is_directory:
                warnings.append(f"{join(self._root, topic, entry.name)}: no queue id, left as it is")
            else:
                queue_ids.append(queue_id)
        return queue_ids

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, None if there is none: asking creates nothing."""
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, a new empty one if there is none; its directory is made with its first entry.

        By the dispatching thread.  The names must be fit for directories.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._queues[topic, queue_id] = self._make(topic, queue_id)
        return queue

    def queues(self) -> list[ConsumeQueue]:
        """All queues."""
        return list(self._queues.values())

    def next_offsets(self) -> dict[QueueKey, int]:
        """The queue offset of the next message of every queue: RocketMQ's topic-queue table."""
        own = {(queue.topic, queue.queue_id): queue.max_offset for queue in self.queues()}
        return own | self.batches.next_offsets()

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """First queue offset that can be read and the one after the last; (0, 0) for a queue that is not there."""
        queue = self.find(topic, queue_id) or self.batches.find(topic, queue_id)
        return (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)

    def dispatch(self, batch: Records) -> None:
        """Appends an entry, or a unit, for each record of the batch that belongs to a queue and is not there yet.

        One write for each run of entries of a queue.  Raises Corrupt for a gap in a queue, OSError from the disk;
        some queues have their entries then, and the same batch can be dispatched again.
        """
        for part in self._in_order(batch):
            self._dispatch(part)
        self.store_ms = int(batch.store_ms[-1])  # the newest, though the clock may have stepped back
        self.newest_offset = int(batch.offsets[-1])

    def _in_order(self, batch: Records) -> Iterable[Records]:
        """The batch, in parts where the order of entries asks for that."""
        return in_log_order(batch) if self.kinds.multi_dispatch and isinstance(batch, RecordBatch) else (batch,)

    def _dispatch(self, batch: Records) -> None:
        touched: list[ConsumeQueue] = []
        with self._writing:
            rows, of_batches = (self._still_wanted(batch, rows) for rows in rows_by_kind(batch, self.is_batch_topic))
            try:
                if len(rows):
                    self._append(batch, rows, touched)
                if self.kinds.multi_dispatch and isinstance(batch, RecordBatch):
                    self._append_further(batch, touched)
                if len(of_batches):
                    self.batches.dispatch(batch, of_batches, batch.tags_codes(self.levels))
            finally:
                with self._lock:
                    self._dirty.update(touched)

    def append_run(self, key: QueueKey, first_offset: int, entries: bytes, ends: tuple[int, int]) -> None:
        """Appends entries of one plain queue, as a file holds them, whose queue offsets follow each other from
        `first_offset` on; `ends` is where the first and the last one's record end.  Raises as `dispatch`.
        """
        with self._writing:
            if self._removed and ends[1] <= max(self._removed.get(key[0], 0), self._removed.get(key, 0)):
                return
            queue = self._queue_of(*key)
            count = len(entries) // _UNIT
            if queue is None:
                self.refused_count += count
                return
            try:
                if not queue.append_run(first_offset, memoryview(entries), *ends):
                    offsets = np.arange(first_offset, first_offset + count)
                    queue.append(offsets, np.frombuffer(entries, QUEUE_ENTRY.dtype))
            finally:
                with self._lock:
                    self._dirty.add(queue)

    def remove_topic(self, topic: str, log_end: int | Callable[[], int], stay: Collection[int] = ()) -> int:
        """Removes the queues of a topic with their files, but those that `stay`, durably, and returns how many there
        were.

        Any thread, also while records of the topic are dispatched: those before `log_end` of the log, where it ended
        when the topic's next queue offsets were forgotten, make no queue again.  A callable tells it while nothing is
        dispatched; what it raises ends this with nothing changed.  Readers go on with what they have.  The messages
        stay in the log until they expire.  Raises OSError: nobody finds the queues any more, and until a repetition
        completes it the topic gets no entries.
        """
        with self._writing:
            end = log_end() if callable(log_end) else log_end
            leaving = self._leaving.setdefault(topic, [])
            goes = [queue for queue in self.queues() if queue.topic == topic and queue.queue_id not in stay]
            leaving += goes
            for queue in leaving:
                self._queues.pop((topic, queue.queue_id), None)
            self._removed[topic] = _EVERYTHING
            count = len(leaving)
            while leaving:
                leaving[-1].remove_all()
                self._remove(leaving.pop())
            whole = [queue for queue in self.batches.queues() if queue.topic == topic and queue.queue_id not in stay]
            for batch_queue in whole:
                self.batches.remove(batch_queue)
            del self._leaving[topic]
            if isinstance(self.is_batch_topic, BatchTopics):
                self.is_batch_topic.forget(topic)
            self._removed[topic] = end
        return count + len(whole)

    def leave_out(self, ends: DeletedBefore) -> None:
        """Records of these topics and queues that stand before an offset of the log make no queue; before anything is
        dispatched."""
        self._removed.update(ends)

    def correct_min(self, min_physical: int) -> None:
        """Moves every queue's minimum up to where the log begins."""
        for queue in self.queues():
            queue.correct_min(min_physical)
        self.batches.correct_min(min_physical)

    def flush(self) -> None:
        """Makes durable all that was dispatched until now.  Raises OSError, and ever after: a sync is not retried."""
        with self._flushing:
            with self._lock:
                if self._failure is not None:
                    raise OSError(self._failure.errno, self._failure.strerror, self._failure.filename)
                dirty, self._dirty = self._dirty, set()
            try:
                for queue in dirty:
                    queue.flush()
                self.batches.flush()
            except OSError as failure:
                self._failure = failure
                raise

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        directory = join(self._root, topic, f"{queue_id:d}")  # `d`: True is 1
        queue = ConsumeQueue(self._fs, self._handles, directory, topic, queue_id, self._file_size)
        if self.kinds.extension and not names.is_light_queue(topic):
            directory = join(self._extension_root, topic, f"{queue_id:d}")
            queue.extension = QueueExtension(self._fs, self._handles, directory, self.kinds.extension_file_size)
        return queue

    def _remove(self, queue: ConsumeQueue) -> None:
        """Forgets an empty queue and removes its directories, as far as nothing foreign lies in them."""
        with self._lock:
            self._dirty.discard(queue)
        self._queues.pop((queue.topic, queue.queue_id), None)
        for files in (queue.files, *((queue.extension.files,) if queue.extension is not None else ())):
            directory = files.directories[0]
            with suppress(OSError):
                for path in (directory, directory_of(directory)):
                    self._fs.remove_directory(path)
                    self._fs.sync_directory(directory_of(path))

    def _still_wanted(self, batch: Records, rows: Rows) -> Rows:
        """`rows` without records of topics that were removed after these were put; forgets removals that are past."""
        if not self._removed:
            return rows
        first = int(batch.offsets[0])
        self._removed = {of: end for of, end in self._removed.items() if end > first}
        return without_deleted(batch, rows, self._removed)

    def _append(self, batch: Records, rows: Ints, touched: list[ConsumeQueue]) -> None:
        """Groups the records by queue and appends each group."""
        topics, numbers = batch.topics
        keys = numbers[rows] << 32 | (batch.queue_ids[rows] & 0xFFFFFFFF)
        entries, queue_offsets = _entries(batch, rows, batch.tags_codes(self.levels))
        cuts = np.zeros(0, np.int64)
        if not (keys == keys[0]).all():
            order = np.argsort(keys, kind="stable")
            entries, queue_offsets, keys = take_rows(entries, order), queue_offsets[order], keys[order]
            rows = rows[order]
            cuts = np.flatnonzero(np.diff(keys)) + 1
        broken = np.flatnonzero(np.diff(queue_offsets) != 1) + 1  # a new queue, or a queue offset out of order
        irregular = set(np.searchsorted(cuts, broken[~np.isin(broken, cuts)], side="right").tolist())
        data = memoryview(entries.view(np.uint8))
        firsts = [0, *cuts.tolist()]
        lasts = [*firsts[1:], len(entries)]
        ends = entries["physical_offset"].astype(np.int64) + entries["size"]
        first_ends, last_ends = ends[firsts].tolist(), ends[np.subtract(lasts, 1)].tolist()
        places = queue_offsets[firsts].tolist()
        for group, (pair, low, high) in enumerate(zip(keys[firsts].tolist(), firsts, lasts, strict=True)):
            queue = self._queue_of(topics[pair >> 32], pair & 0xFFFFFFFF)
            if queue is None:
                self.refused_count += high - low
                continue
            touched.append(queue)
            if queue.extension is not None:
                units = batch.store_ms[rows[low:high]], self._bitmaps(batch, rows[low:high])
                queue.append(queue_offsets[low:high], entries[low:high], units)
                continue
            if group not in irregular:
                run = data[low * _UNIT : high * _UNIT]
                if queue.append_run(places[group], run, first_ends[group], last_ends[group]):
                    continue
            queue.append(queue_offsets[low:high], entries[low:high])

    def _append_further(self, batch: RecordBatch, touched: list[ConsumeQueue]) -> None:
        """Entries in the further queues that records list."""
        places = light_entries(batch)
        codes = batch.tags_codes(self.levels) if places else None
        for (topic, queue_id), (rows, queue_offsets) in places.items():
            queue = self._queue_of(topic, queue_id)
            if queue is None or codes is None:
                self.refused_count += len(rows)
                continue
            wanted = batch.offsets[rows] >= self._removed.get(topic, 0)
            entries, _ = _entries(batch, rows[wanted], codes)
            if len(entries):
                touched.append(queue)
                try:
                    queue.append(queue_offsets[wanted], entries)
                except Corrupt as gap:  # what a record says of another queue must not stop its own
                    self.faults[topic, queue_id] = gap.reason

    def _bitmaps(self, batch: Records, rows: Ints) -> list[bytes] | None:
        """The bitmaps of some records' extension units."""
        if self.kinds.bitmaps is None or not isinstance(batch, RecordBatch):
            return None
        bitmaps = self.kinds.bitmaps(batch)
        return [bitmaps[row] for row in rows.tolist()]

    def _queue_of(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue of a record; None where its names would lead out of the store, or are no names at all."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            return queue
        if queue_id >> 31 or not names.is_directory_name(topic):
            return None
        return self.get_or_create(topic, queue_id)


def _entries(batch: Records, rows: Ints, codes: Ints) -> tuple[Entries, Ints]:
    """The queue entries of some records, and their queue offsets."""
    entries = np.empty(len(rows), QUEUE_ENTRY.dtype)
    is_all = len(rows) == len(batch)
    entries["physical_offset"] = batch.offsets if is_all else batch.offsets[rows]
    entries["size"] = batch.sizes if is_all else batch.sizes[rows]
    entries["tags_code"] = codes if is_all else codes[rows]
    return entries, batch.queue_offsets if is_all else batch.queue_offsets[rows]
