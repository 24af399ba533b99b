"""`rmqstore sync` beside plain Parquet files of the same rows: CPU a row, all threads counted.

python -m bench --small sync
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pyarrow.parquet as pq

import rmqstore
from bench.figures import Figure, in_turns
from bench.synth import StoreShape
from rmqstore.lake import Sync, TableColumns, open_table

ROUNDS = 3
GOAL = 1.5
COLUMNS = TableColumns()


def measure(store: Path, shape: StoreShape, scratch: Path) -> list[Figure]:
    """Both formats, in turns with the plain files and with a scan that keeps nothing."""
    room = scratch / "sync"

    def spent(work: Callable[[], int]) -> Callable[[], float]:
        def timed() -> float:
            room.mkdir()
            began = process_time()
            count = work()
            taken = process_time() - began
            assert count == shape.count
            shutil.rmtree(room)
            return taken

        return timed

    works = (lambda: _plain(store, room), lambda: _sync(store, room, "iceberg"), lambda: _sync(store, room, "delta"))
    scan_s, plain_s, *synced_s = (
        min(seen) for seen in in_turns([spent(lambda: _scan(store)), *map(spent, works)], ROUNDS)
    )
    body = f"{shape.body_size} B"
    per_row = 1e9 / shape.count
    return [
        Figure(
            line=f"sync to {kind}, {body}",
            value=taken * per_row,
            unit="ns CPU a row",
            against=(
                f"plain Parquet {plain_s * per_row:,.0f} ns, of which the scan {scan_s * per_row:,.0f}; writing alone "
                f"{(taken - scan_s) / (plain_s - scan_s):.2f} x"
            ),
            judged=taken / plain_s,
            goal=GOAL,
            at_least=False,
        )
        for kind, taken in zip(("Iceberg", "Delta"), synced_s, strict=True)
    ]


def _scan(store: Path) -> int:
    return sum(batch.num_rows for batch in rmqstore.open_snapshot(store).scan(columns=COLUMNS.asked))


def _plain(store: Path, room: Path) -> int:
    """As any program would write them: Arrow's defaults, but for the compression of tables."""
    rows = rmqstore.open_snapshot(store).scan(columns=COLUMNS.asked)
    count = 0
    with pq.ParquetWriter(room / "plain.parquet", rows.schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _sync(store: Path, room: Path, kind: str) -> int:
    if kind == "delta":
        table = open_table("delta", str(room / "table"))
    else:
        options = {"type": "sql", "uri": f"sqlite:///{room}/catalog.db", "warehouse": str(room)}
        table = open_table("iceberg", "bench.messages", options=options)
    return Sync(str(store), table).run().rows
