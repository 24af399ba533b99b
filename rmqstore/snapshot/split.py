"""Units of work: small picklable values that any process that sees the store's disk can read."""

import json
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqstore.files.disk import ReadableDisk
from rmqstore.formats.inner_batch import EVERY_TOPIC, OwnBases
from rmqstore.formats.names import NOWHERE, QueueKey


class Span(NamedTuple):
    """The queue offsets [start, end) of one queue; `kind` as of `QueueFiles`."""

    topic: str
    queue_id: int
    kind: str
    start: int
    end: int

    @property
    def key(self) -> QueueKey:
        """Topic and queue id."""
        return self.topic, self.queue_id

    def part(self, start: int, end: int) -> "Span":
        """Other queue offsets of the same queue."""
        return self._replace(start=start, end=end)


@dataclass(frozen=True, slots=True)
class Split:
    """The part of one store that one task reads, from the store's disk, which is pickled with it, and the disk of its
    queues, which is another where a database has them.

    With `log_range` the `spans` are found by walking that part of the commitlog, whose ends are record boundaries; else
    through the consume queues, one after the other, or `together` in the order of the log.  `log_end`, `walk_from` and
    `crc_from` are the store's as planned: what came later is not read.  `deleted_before` is the store's for topics and
    queues of the spans; `batch_topics` of a DLedger store's those with batch queues; `light_from` as of Stretch;
    `torn_at` as of StoreExtent.  With `log_range`, `known` are the queue offsets [first, end) of each span that entries
    were there for.
    """

    disk: ReadableDisk = field(compare=False, repr=False)
    queue_disk: ReadableDisk = field(compare=False, repr=False)
    path: str
    broker_name: str
    spans: tuple[Span, ...]
    log_end: int
    walk_from: int
    crc_from: int
    is_live: bool
    has_queues: bool
    log_range: tuple[int, int] | None = None
    extra_logs: tuple[str, ...] = ()
    together: bool = False
    deleted_before: tuple[tuple[str | QueueKey, int], ...] = ()
    known: tuple[tuple[int, int], ...] = ()
    batch_topics: tuple[str, ...] = ()
    light_from: int = NOWHERE
    torn_at: int = NOWHERE

    @property
    def own_bases(self) -> OwnBases:
        """As of Stretch."""
        if not self.has_queues or self.queue_disk is not self.disk:
            return EVERY_TOPIC
        return frozenset(topic.encode() for topic in self.batch_topics)

    def __repr__(self) -> str:
        """One line: a split may have hundreds of queues."""
        count = sum(span.end - span.start for span in self.spans)
        part = "" if self.log_range is None else f", log [{self.log_range[0]}, {self.log_range[1]})"
        return f"<Split {self.path!r}, {len(self.spans)} ranges of {count} messages{part}>"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles small: hundreds of queues repeat their topics, and a plan of many splits repeats them again."""
        fields = [getattr(self, name) for name in self.__slots__[2:]]
        return _unpickled, (
            self.disk,
            self.queue_disk,
            zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), 9),
        )


def _unpickled(disk: ReadableDisk, queue_disk: ReadableDisk, data: bytes) -> Split:
    *first, log_range, logs, together, deleted, known, batches, light_from, torn_at = json.loads(zlib.decompress(data))
    path, broker, spans, log_end, walk_from, crc_from, is_live, has_queues = first
    return Split(
        disk, queue_disk, path, broker, tuple(Span(*span) for span in spans), log_end, walk_from, crc_from, is_live,
        has_queues, tuple(log_range) if log_range else None, tuple(logs), together,
        tuple((tuple(of) if isinstance(of, list) else of, end) for of, end in deleted),
        tuple((low, high) for low, high in known), tuple(batches), light_from, torn_at,
    )  # fmt: skip
