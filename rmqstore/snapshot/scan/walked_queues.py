"""Which records that a walk of the commitlog meets are messages of their queues, by what the queues' entries say."""

import itertools
from dataclasses import dataclass

import numpy as np

from rmqstore.directory.deleted_queues import without_deleted
from rmqstore.directory.extension_files import contradicted, holds_tag_hashes, resolve_extensions
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import QueueFiles, holds_message, open_queue
from rmqstore.directory.undispatched import FOUND_ENTRY, entries_at, missing_rows
from rmqstore.formats.delay_levels import LevelTables
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.names import QueueKey
from rmqstore.formats.queue_extension import is_extension_address
from rmqstore.records.dispatch_rules import tags_codes
from rmqstore.records.queue_runs import QueueRun
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.scan.walk_count import WalkCount


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a queue about the records of a run, bool[n] each: its entries name them; they stand where messages
    may have no entry yet, and have none; they stand before that, and have none.  `codes` are their tags codes,
    int64[n], where these are asked for: of those without an entry what dispatch would put there.
    """

    dispatched: Mask
    undispatched: Mask
    unanswered: Mask
    codes: Ints | None


class WalkedQueues:
    """The queues of a walk, listed once more after each look at the store.

    Where CRCs are checked, from `crc_from` on, a record whose TAGS contradict its entry is not named by it.
    Delivery times are by the delay levels `levels`.
    """

    def __init__(
        self, view: LogView, count: WalkCount, request: ScanRequest, crc_from: int, levels: LevelTables
    ) -> None:
        self._levels = levels
        self._count, self._look, self._split = count, count.look, count.split
        self._view = view
        self._kinds = {span.key: span.kind for span in self._split.spans}
        place, spans = (self._split.disk, self._split.path), self._split.spans
        self._tags_from = {span.key: crc_from for span in spans if holds_tag_hashes(*place, span.key, span.kind)}
        self._wants_codes = "tagsCode" in request.columns
        self._queues: dict[QueueKey, QueueFiles] = {}
        self._looks_known = self._look.count

    def answers(self, run: QueueRun, stretch: Stretch, wanted: Mask) -> Answers:
        """The answers for a run.  Where a wanted record lacks the entry that the snapshot saw, the store is looked at
        once more: its queue may be being rebuilt.  Raises StoreChanging as SecondLook.
        """
        wanted = wanted & self._count.knew(run.key, run.queue_offsets)
        for attempt in itertools.count():
            found = self._look.asked(lambda: self._read(run, stretch))
            lacking = run.queue_offsets[found.unanswered & wanted]
            if not len(lacking) or self._look.is_lost(run.key, lacking, attempt):
                return found
        raise AssertionError

    def _read(self, run: QueueRun, stretch: Stretch) -> Answers:
        queue = self._queue(run.key)
        missing, taken = missing_rows(run, stretch, queue)
        if taken.any():
            taken &= ~self._is_of_later(run, queue)
        without, is_late = missing & ~taken, stretch.offsets[run.rows] >= self._look.walk_from
        dispatched, codes = ~missing, None
        is_checked = int(stretch.offsets[-1]) >= self._tags_from.get(run.key, self._split.log_end)
        if queue.files and dispatched.any() and is_checked:
            dispatched &= ~self._contradicted(run, stretch, queue)
        if self._wants_codes:
            codes = self._codes(run, stretch, queue)
        return Answers(dispatched, without & is_late, without & ~is_late, codes)

    def _queue(self, key: QueueKey) -> QueueFiles:
        if self._looks_known != self._look.count:
            self._looks_known = self._look.count
            self._queues.clear()
        if key not in self._queues:
            queue = open_queue(self._split.disk, self._split.path, *key, self._kinds[key])
            deleted = self._view.deleted_before
            self._queues[key] = without_deleted(queue, deleted, self._view) if deleted else queue
        return self._queues[key]

    def _is_of_later(self, run: QueueRun, queue: QueueFiles) -> Mask:
        """Whose place is held by an entry from after the snapshot: the topic was deleted, and is there again."""
        return np.asarray(entries_at(queue, run.queue_offsets)["physical_offset"] >= self._split.log_end)

    def _contradicted(self, run: QueueRun, stretch: Stretch, queue: QueueFiles) -> Mask:
        """Which records that are checked have other tags than their entries say."""
        entries, offsets = entries_at(queue, run.queue_offsets), stretch.offsets[run.rows]
        other = contradicted(stretch.located.take(run.rows), entries["tags_code"])
        # An entry that went since the run was read says nothing.
        own = holds_message(queue.kind, entries) & (entries["physical_offset"] == offsets)
        return np.asarray(other & own & (offsets >= self._tags_from[run.key]))

    def _codes(self, run: QueueRun, stretch: Stretch, queue: QueueFiles) -> Ints:
        """The codes that the entries hold, and those that dispatch would put there for records without one."""
        codes = tags_codes(stretch.located.take(run.rows), run.key[0], self._levels)
        if not queue.files:
            return codes
        entries = entries_at(queue, run.queue_offsets)
        own = holds_message(queue.kind, entries) & (entries["physical_offset"] == stretch.offsets[run.rows])
        found = np.zeros(len(run.rows), FOUND_ENTRY)
        found["tags_code"] = entries["tags_code"]
        if is_extension_address(int(found["tags_code"].min(initial=0))):
            resolve_extensions(self._split.disk, self._split.path, run.key, found)
        return np.where(own, found["tags_code"], codes)
