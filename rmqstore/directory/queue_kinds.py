"""Which kinds of queues beyond the plain one a store has, and their sizes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqstore.errors import Rejected
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from rmqstore.formats.queue_extension import BLANK_SIZE, EXTENSION_HEAD

if TYPE_CHECKING:
    from rmqstore.records.batch import RecordBatch

# The bitmap of each record of a batch, b"" for none; see formats.queue_extension.
Bitmaps = Callable[["RecordBatch"], Sequence[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueKinds:
    """The kinds that are switched on; a store that has queues of a kind goes on with them whatever is said here.

    `multi_dispatch`: light queues (RocketMQ: enableMultiDispatch and enableLmq), at most `light_queue_max` of them.
    `extension`: entries point to extension units (enableConsumeQueueExt), `bitmaps` fills in theirs.  `is_batch_topic`
    tells the topics that have batch queues (queue.type=BatchCQ).  Sizes are bytes of a file.  Raises Rejected.
    """

    multi_dispatch: bool = False
    light_queue_max: int = 20_000
    extension: bool = False
    extension_file_size: int = 1024 * 1024
    bitmaps: Bitmaps | None = None
    is_batch_topic: Callable[[str], bool] = field(default=lambda _: False)
    batch_file_size: int = 10_000 * BATCH_QUEUE_ENTRY.size

    def __post_init__(self) -> None:
        if self.batch_file_size < BATCH_QUEUE_ENTRY.size or self.batch_file_size % BATCH_QUEUE_ENTRY.size:
            raise Rejected(f"batch_file_size={self.batch_file_size}: a multiple of {BATCH_QUEUE_ENTRY.size}")
        if self.extension_file_size < EXTENSION_HEAD.size + BLANK_SIZE:
            raise Rejected(
                f"extension_file_size={self.extension_file_size}: at least {EXTENSION_HEAD.size + BLANK_SIZE}"
            )


PLAIN_ONLY = QueueKinds()


class BatchTopics:
    """Which topics have batch queues, for the writer of a store: those that `is_told` says, the table of topics, and
    those that were `found` to have them when the store was opened, until they are forgotten.
    """

    def __init__(self, is_told: Callable[[str], bool], found: Iterable[str]) -> None:
        self._is_told = is_told
        self._found = set(found)

    def __call__(self, topic: str) -> bool:
        """Whether a topic has batch queues."""
        return topic in self._found or self._is_told(topic)

    def forget(self, topic: str) -> None:
        """The topic is gone: what comes of that name is as the table says."""
        self._found.discard(topic)
