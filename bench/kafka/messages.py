"""The messages that are read from Kafka and from a store: the same ones, in the same order, in as many queues."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.kafka.node import KafkaNode
from rmqstore.config import StoreConfig
from rmqstore.core.message import PutStatus
from rmqstore.engine.store import open_store

QUEUE_COUNT, TAG_COUNT, BODY_SIZE = 4, 10, 100
# The properties of a message, in the order of a row, with the bytes of their values; Kafka gets them as headers.
PROPERTIES = {"TAGS": 4, "KEYS": 16, "UNIQ_KEY": 32}
WANTED_TAG = "Tag3"  # what a tenth of the messages have
_CHUNK, _BODY_KINDS = 250_000, 4096

Bytes = npt.NDArray[np.uint8]


def load(node: KafkaNode, store: Path, topic: str, count: int, scratch: Path) -> None:
    """Puts the messages into `topic` of a new store and of the node.  Raises RuntimeError unless both take all."""
    rows_path = scratch / f"{topic}.rows"
    shutil.rmtree(store, ignore_errors=True)
    with open_store(str(store), StoreConfig.broker(index_enabled=False)) as opened, rows_path.open("wb") as file:
        for first, rows in _rows(count):
            file.write(rows.data)
            result = opened.put_columns(_table(topic, first, rows))
            if result.status is not PutStatus.PUT_OK:
                raise RuntimeError(f"the store answers {result.status}")
        opened.flush()
    acknowledged = node.load(topic, QUEUE_COUNT, rows_path, BODY_SIZE, PROPERTIES, "KEYS")
    rows_path.unlink()
    if acknowledged != count:
        raise RuntimeError(f"Kafka took {acknowledged} of {count} messages")


def _rows(count: int) -> Iterator[tuple[int, Bytes]]:
    """uint8[n, row size]: body and properties of n messages, and the number of the first."""
    bodies = np.random.default_rng(1).integers(0, 256, (_BODY_KINDS, BODY_SIZE), np.uint8)
    tags = np.frombuffer(b"".join(b"Tag%d" % tag for tag in range(TAG_COUNT)), np.uint8).reshape(TAG_COUNT, -1)
    for first in range(0, count, _CHUNK):
        numbers = np.arange(first, min(first + _CHUNK, count), dtype=np.int64)
        mixed = numbers * 2654435761
        keys = np.tile(np.frombuffer(b"order-0000000000", np.uint8), (len(numbers), 1))
        unique = np.tile(np.frombuffer(b"7F0000010001" + b"0" * 20, np.uint8), (len(numbers), 1))
        digits = (numbers[:, None] // 10 ** np.arange(9, -1, -1, dtype=np.int64) % 10 + ord("0")).astype(np.uint8)
        keys[:, -10:] = unique[:, -10:] = digits
        pieces = (bodies[mixed % _BODY_KINDS], tags[(mixed >> 16) % TAG_COUNT], keys, unique)
        yield first, np.concatenate(pieces, axis=1)


def _table(topic: str, first: int, rows: Bytes) -> pa.RecordBatch:
    """The same rows as the columns that `put_columns` takes; message n goes to queue n % QUEUE_COUNT."""
    count, at = len(rows), BODY_SIZE
    texts = {}
    for name, size in PROPERTIES.items():
        texts[name] = _fixed(rows[:, at : at + size], pa.string())
        at += size
    offsets = pa.array(np.arange(count + 1, dtype=np.int32))
    names = pa.array(["UNIQ_KEY"]).take(pa.array(np.zeros(count, np.int32)))
    return pa.record_batch(
        {
            "topic": pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([topic])),
            "queueId": pa.array((np.arange(first, first + count) % QUEUE_COUNT).astype(np.int32)),
            "body": _fixed(rows[:, :BODY_SIZE], pa.binary()),
            "tags": texts["TAGS"],
            "keys": texts["KEYS"],
            "properties": pa.MapArray.from_arrays(offsets, names, texts["UNIQ_KEY"]),
        }
    )


def _fixed(values: Bytes, kind: pa.DataType) -> pa.Array:
    """Values of one size as text or bytes."""
    count, size = values.shape
    offsets = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))])
