"""Another look at a store that lacks messages which a plan counts on: they are lost, or its queues are being rebuilt.

The next opening of a killed store removes or cuts queue files, and writes them again from the commitlog.  Meanwhile the
messages are in the log: a survey finds there what has no entry.
"""

from collections.abc import Callable
from typing import TypeVar

from rmqstore.errors import DataLost, StoreChanging
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.snapshot.split import Split
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.survey.footprint import stands_still
from rmqstore.snapshot.survey.survey import LOSSES_MIN, LooksLeft, SurveyScope, changing, survey

Answer = TypeVar("Answer")


class StoreRetry:
    """The store of a split at the last look, or as planned before the first one.  Not for several threads at once.

    `count`: how many looks there were.  `walk_from`: the offset of the log from which on messages may have no entry.
    `queue_disk`: the disk that queues are read from.
    """

    def __init__(self, split: Split) -> None:
        self.count = 0
        self.walk_from, self.queue_disk = split.walk_from, split.queue_disk
        self._split = split
        self._store: StoreExtent | None = None
        self._looks = LooksLeft()
        self._lacking: tuple[QueueKey, bytes] | None = None
        self._same_count = 0
        self._with_holes: set[QueueKey] = set()

    def is_lost(self, key: QueueKey, queue_offsets: Ints, attempt: int) -> bool:
        """Whether messages of a queue (int64[n], n > 0) that the plan counts on and a reader did not find are lost.

        False: a survey just now finds some of them, and the reader goes on by it.  `attempt` counts these from 0.
        Raises StoreChanging where no looks are left, and for messages of a light queue whose store is open: no record
        of the log would tell of them.
        """
        lacking = (key, queue_offsets.tobytes())
        self._same_count = self._same_count + 1 if attempt and lacking == self._lacking else 1
        self._lacking = lacking
        if self._store is not None and self._stands(self._store, key):
            if not self._holds(self._store, key, queue_offsets):
                return True
            if key in self._with_holes or self._same_count >= LOSSES_MIN:
                self._with_holes.add(key)
                return True
        if attempt:
            self._looks.again(self._changing(key), self._split.path)
        else:
            self._looks = LooksLeft()
        return not self._holds(self._look(self._looks), key, queue_offsets)

    def lost_of(self, key: QueueKey, low: int, high: int) -> tuple[int, int] | None:
        """The part of the queue offsets [low, high) that the store has no longer; None if it has them all.  Raises as
        `is_lost`.
        """
        store = self._store
        if store is None or not self._stands(store, key):
            store = self._look()
        queue = store.queues.get(key)
        if queue is None or queue.max_offset <= low or queue.min_offset >= high:
            self._require_records(store, key)
            return low, high
        if queue.max_offset < high:
            self._require_records(store, key)
            return queue.max_offset, high
        return (low, queue.min_offset) if low < queue.min_offset else None

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        """The answer to what is asked of the files of a queue.  Where one vanishes meanwhile it is asked once more,
        after a look: `count` tells that the files have to be listed again.

        Raises DataLost for files of the log, and for a queue file that is there and cannot be read; StoreChanging.
        """
        looks = LooksLeft()
        while True:
            try:
                return ask()
            except (DataLost, FileNotFoundError) as gone:
                if isinstance(gone, DataLost) and gone.queue == "commitlog":
                    raise
                looks.again(changing(self._split.path, gone), self._split.path)
            self._look(looks)

    def _look(self, looks: LooksLeft | None = None) -> StoreExtent:
        split = self._split
        scope = SurveyScope(by_database=split.queue_disk is not split.disk)
        self._store = store = survey(split.disk, split.path, split.broker_name, "auto", split.extra_logs, scope, looks)
        self.walk_from, self.queue_disk = store.walk_from, store.queue_disk
        self.count += 1
        return store

    def _holds(self, store: StoreExtent, key: QueueKey, queue_offsets: Ints) -> bool:
        """Whether a store has some of the messages."""
        queue = store.queues.get(key)
        if queue is not None and ((queue_offsets >= queue.min_offset) & (queue_offsets < queue.max_offset)).any():
            return True
        self._require_records(store, key)
        return False

    def _require_records(self, store: StoreExtent, key: QueueKey) -> None:
        """Raises StoreChanging for messages that a look found nowhere and that may be there all the same."""
        if is_light_queue(key[0]) and store.is_live and store.queue_layout == "file":
            raise self._changing(key)

    def _stands(self, store: StoreExtent, key: QueueKey) -> bool:
        """Whether the files of a queue are those of that look."""
        queue = store.queues.get(key)
        try:
            return queue is None or stands_still(queue, store)
        except DataLost:
            return False

    def _changing(self, key: QueueKey) -> StoreChanging:
        return StoreChanging(self._split.path, f"its queue {key[0]}/{key[1]} was deleted, cut or built again")
