"""The processor's time of an export beside that of reading the rows and writing them as plain Parquet."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqstore import open_snapshot, open_store
from rmqstore.export import ExportWish, export_messages
from tests.export.stores import CONFIG

pytestmark = pytest.mark.stores

COUNT, ROUNDS = 60_000, 3
# Measured: 1.3 with half a million messages; where there are few, beginning and ending weigh more.
RATIO_MAX = 3


def seconds(action: Callable[[int], object]) -> float:
    """The least of some rounds."""
    taken = []
    for turn in range(ROUNDS):
        began = time.process_time()
        action(turn)
        taken.append(time.process_time() - began)
    return min(taken)


@pytest.mark.host
def test_it_costs_about_what_reading_and_writing_cost(tmp_path: Path) -> None:
    store, text = tmp_path / "store", b'{"order": 1, "state": "paid", "sum": 7, "note": "%0130d"}'
    with open_store(store, CONFIG, workers=False) as one:
        one.put_columns(
            pa.table({
                "topic": ["orders"] * COUNT, "queueId": pa.array(np.arange(COUNT) % 8, pa.int32()),
                "body": pa.array([text % number for number in range(COUNT)], pa.binary()), "tags": ["paid"] * COUNT,
            })
        )  # fmt: skip

    def plain(turn: int) -> None:
        rows = open_snapshot(store).scan(topics=["orders"]).read_all().drop_columns(["topic"])
        pq.write_table(rows, tmp_path / "plain.parquet", compression="zstd")

    def exported(turn: int) -> None:
        export_messages(store, tmp_path / f"out{turn}", ExportWish(topics=("orders",)))

    plain_s, own_s = seconds(plain), seconds(exported)
    print(f"export: {own_s / COUNT * 1e6:.2f} us a message, {own_s / plain_s:.2f} times reading and plain Parquet")  # noqa: T201
    assert own_s < RATIO_MAX * plain_s
