"""Stores to export, and what is put into them while they are."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from rmqstore import Store, StoreConfig, open_store

CONFIG = StoreConfig(preallocate=False)
TOPICS = ("orders", "pay", "mail")


def rows(first: int, count: int, topics: Sequence[str] = TOPICS) -> pa.Table:
    """Messages numbered from `first` on, over topics and two queues each, with tags, keys and bodies of some size."""
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "topic": [topics[number % len(topics)] for number in numbers],
            "queueId": pa.array(numbers // 3 % 2, pa.int32()),
            "body": pa.array([b"%d %s" % (number, b"x" * (number % 90)) for number in numbers], pa.binary()),
            "tags": ["ab"[number % 2] for number in numbers],
            "keys": [f"k{number}" for number in numbers],
        }
    )


def put(store: Store, first: int, count: int, topics: Sequence[str] = TOPICS) -> None:
    """Puts rows, and makes them seen."""
    assert store.put_columns(rows(first, count, topics)).message_count == count
    store.flush()


def filled(path: Path, count: int, topics: Sequence[str] = TOPICS) -> Path:
    """A closed store of so many messages."""
    with open_store(path, CONFIG, workers=False) as store:
        put(store, 0, count, topics)
    return path
