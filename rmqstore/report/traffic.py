"""One scan of narrow columns: how many messages and bytes came when, and how large they are.

Memory is that of one batch, of a fixed number of bins a line, and of a fixed number of bins of sizes a topic.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats.names import is_light_queue
from rmqstore.report.sizes import BIN_COUNT, SIZE_MAX, Ints, SizeBar, SizeSummary, bars_of, bins_of, summary_of
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.survey.extents import StoreExtent

TRAFFIC_COLUMNS = ("topic", "storeTimestamp", "storeSize")
BINS_MAX = 240
# A step is a number that people count time in, in seconds.
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
# Before this year there was no RocketMQ: 2012.
FIRST_MS = 1_325_376_000_000


@dataclass(frozen=True, slots=True)
class TimeBins:
    """`count` stretches of `step_ms` each; the first begins at `start_ms`, a multiple of the step since the epoch."""

    start_ms: int
    step_ms: int
    count: int

    @classmethod
    def between(cls, low_ms: int, high_ms: int) -> "TimeBins":
        """At most BINS_MAX bins from the one that holds `low_ms` to the one that holds `high_ms`."""
        fitting = (step * 1000 for step in _STEPS_S if _bin_count(low_ms, high_ms, step * 1000) <= BINS_MAX)
        days = (high_ms - low_ms) // (_STEPS_S[-1] * 1000 * (BINS_MAX - 1)) + 1
        step_ms = next(fitting, days * _STEPS_S[-1] * 1000)
        return cls(low_ms // step_ms * step_ms, step_ms, _bin_count(low_ms, high_ms, step_ms))


def _bin_count(low_ms: int, high_ms: int, step_ms: int) -> int:
    return high_ms // step_ms - low_ms // step_ms + 1


def is_plausible(time_ms: int | None, now_ms: int) -> bool:
    """Whether a message can have this store time: one before FIRST_MS, or later than tomorrow, is of a clock that went
    astray, or damage.
    """
    return time_ms is not None and FIRST_MS <= time_ms <= now_ms + _STEPS_S[-1] * 1000


class Line(NamedTuple):
    """Messages and their bytes, each int64[bins], of one topic, or of all others together (the empty name)."""

    topic: str
    messages: Ints
    bytes: Ints


@dataclass(frozen=True, slots=True)
class TrafficFigures:
    """The traffic of several stores: lines over `bins`, the sizes by (broker, topic), and those of all messages.

    `counted` messages were read; `outside` of them have a store time that no message can have.
    """

    bins: TimeBins
    lines: tuple[Line, ...]
    sizes: Mapping[tuple[str, str], SizeSummary]
    size_bars: tuple[SizeBar, ...]
    counted: int
    outside: int


@dataclass(slots=True)
class _TopicSizes:
    """The sizes of one topic's messages so far."""

    counts: Ints = field(default_factory=lambda: np.zeros(BIN_COUNT, np.int64))
    total: int = 0
    largest: int = 0


class TrafficCount:
    """Messages of many batches counted by time, by topic and by size; sizes by broker and topic."""

    def __init__(self, bins: TimeBins, lines: Sequence[str]) -> None:
        """`lines`: the topics that are told one by one."""
        self._bins = bins
        self._line_of = {topic: number for number, topic in enumerate(lines)}
        self._messages = np.zeros((len(lines) + 1, bins.count), np.int64)
        self._bytes = np.zeros_like(self._messages)
        self._sizes: dict[tuple[str, str], _TopicSizes] = {}
        self._outside = 0

    def add(self, broker: str, batch: pa.RecordBatch) -> int:
        """Counts the rows of a batch with TRAFFIC_COLUMNS; returns their bytes."""
        topics = batch.column("topic").dictionary_encode()
        names = topics.dictionary.to_pylist()
        topic = topics.indices.to_numpy().astype(np.int64)
        sizes = np.clip(batch.column("storeSize").to_numpy().astype(np.int64), 0, SIZE_MAX)
        self._add_sizes([(broker, name) for name in names], topic, sizes)
        line = np.array([self._line_of.get(name, len(self._line_of)) for name in names], np.int64)[topic]
        micros = pc.fill_null(batch.column("storeTimestamp").cast(pa.int64()), -1).to_numpy()
        place = (micros // 1000 - self._bins.start_ms) // self._bins.step_ms
        inside = (place >= 0) & (place < self._bins.count)
        self._outside += int(len(inside) - np.count_nonzero(inside))
        cell, shape = (line * self._bins.count + place)[inside], self._messages.shape
        self._messages += np.bincount(cell, minlength=self._messages.size).reshape(shape)
        # Sums in double precision are exact below 2^53, and a batch is far smaller.
        self._bytes += np.bincount(cell, sizes[inside], self._messages.size).astype(np.int64).reshape(shape)
        return int(sizes.sum())

    def _add_sizes(self, keys: Sequence[tuple[str, str]], topic: Ints, sizes: Ints) -> None:
        counts = np.bincount(topic * BIN_COUNT + bins_of(sizes), minlength=len(keys) * BIN_COUNT)
        totals = np.bincount(topic, sizes, len(keys)).astype(np.int64)
        largest = np.zeros(len(keys), np.int64)
        np.maximum.at(largest, topic, sizes)
        for number, key in enumerate(keys):
            known = self._sizes.setdefault(key, _TopicSizes())
            known.counts += counts[number * BIN_COUNT : (number + 1) * BIN_COUNT]
            known.total += int(totals[number])
            known.largest = max(known.largest, int(largest[number]))

    def traffic(self) -> TrafficFigures:
        """All that was counted."""
        summaries = ((key, summary_of(each.counts, each.total, each.largest)) for key, each in self._sizes.items())
        all_sizes = np.zeros(BIN_COUNT, np.int64)
        for each in self._sizes.values():
            all_sizes += each.counts
        rows = zip([*self._line_of, ""], self._messages, self._bytes, strict=True)
        return TrafficFigures(
            self._bins, tuple(Line(*row) for row in rows if row[0] or row[1].any()),
            {key: found for key, found in summaries if found is not None},
            tuple(bars_of(all_sizes)), int(all_sizes.sum()), self._outside,
        )  # fmt: skip


def traffic_batches(store: StoreExtent) -> Iterator[pa.RecordBatch]:
    """The messages of a store with TRAFFIC_COLUMNS, for TrafficCount; the log is read from its front to its end.

    Damaged and lost messages are passed over, and light queues left out: their messages are those of other topics.
    Raises StoreError where the store cannot be read.
    """
    topics = sorted({topic for topic, _ in store.queues if not is_light_queue(topic)})
    yield from SnapshotReader((store,), store.access).scan(
        topics, columns=TRAFFIC_COLUMNS, scan_mode="commitlog", on_corrupt_record="skip", fail_on_data_loss=False
    )
