"""A stream reader as Spark drives it, without Spark."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqstore.snapshot.stream.offsets import MARKS
from spark_source.columns.schema import shape_for, spark_schema
from spark_source.options.reads import parse_stream_options
from spark_source.stream.reader import StreamReader

COLUMNS = ("topic", "queueId", "queueOffset", "body")
BROKER = "default"


class Clock:
    """Seconds that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Stream:
    """What Spark does with a reader: offsets as text, batches one after the other, restarts from what it wrote down."""

    columns: tuple[str, ...] = COLUMNS

    def __init__(self, root: Path, *, clock: Clock | None = None, **options: str) -> None:
        chosen = {"path": str(root), "subscribe": "T", "startingOffsets": "earliest"} | options
        self.options = {name: text for name, text in chosen.items() if text != "-"}
        self._clock = clock or Clock()
        self.rows: list[tuple[str, int, int, bytes]] = []
        self.ends: list[str] = []
        self.start()

    def start(self) -> None:
        """A new reader process."""
        read = parse_stream_options(self.options)
        shape = shape_for(spark_schema(self.columns))
        read = read.with_columns(self.columns)
        self.reader = StreamReader(read, shape, self._clock)
        self._tasks: StreamReader = pickle.loads(pickle.dumps(StreamReader(read, shape)))

    def begin(self) -> str:
        return json.dumps(self.reader.initialOffset())

    def plan(self, limit: Any = None) -> tuple[str, str]:
        """Start and end of the next batch; equal when there is none."""
        start = self.ends[-1] if self.ends else self.begin()
        end = self.reader.latestOffset(json.loads(start), limit or self.reader.getDefaultReadLimit())
        return start, json.dumps(end)

    def run(self, start: str, end: str) -> list[tuple[str, int, int, bytes]]:
        """The rows of a batch."""
        parts = self.reader.partitions(json.loads(start), json.loads(end))
        batches = [batch for part in parts for batch in self._tasks.read(pickle.loads(pickle.dumps(part)))]
        rows = pa.Table.from_batches(batches, batches[0].schema).to_pylist() if batches else []
        return [tuple(row.values()) for row in rows]

    @property
    def stands(self) -> dict[str, Any]:
        """The last offset, without the marks of messages, which are numbers of the records' bytes."""
        return {name: found for name, found in json.loads(self.ends[-1]).items() if name != MARKS}

    def step(self) -> int:
        """One trigger; how many rows it brought."""
        start, end = self.plan()
        if start == end:
            return 0
        rows = self.run(start, end)
        self.rows += rows
        self.ends.append(end)
        return len(rows)


def places(rows: list[tuple[str, int, int, bytes]]) -> list[tuple[str, int, int]]:
    return sorted(row[:3] for row in rows)


def expected(counts: Mapping[tuple[str, int], range]) -> list[tuple[str, int, int]]:
    return sorted((topic, queue, offset) for (topic, queue), offsets in counts.items() for offset in offsets)
