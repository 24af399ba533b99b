"""A store on DLedger's log beside a plain store of the same messages: putting, opening after a kill, scan and Spark.

python -m bench.bench_ledger
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

import pyarrow as pa

import rmqstore
from bench.bench_put import TOPIC, bench_table
from bench.bench_scan import THREE_COLUMNS
from bench.bench_spark import local_session, to_noop
from bench.figures import Figure, best_seconds, in_turns
from rmqstore.config import StoreConfig
from rmqstore.core.ledger_config import LedgerConfig
from rmqstore.engine.store import open_store

ROUNDS = 5
ROWS = 6144
GOALS = {"put_columns": 0.85, "recovery": 1 / 1.2, "scan": 0.9, "Spark": 0.9}
# The whole entry's CRC is this project's own addition; the second column shows what it costs.
PLAIN = StoreConfig.broker()
LEDGER = replace(PLAIN, dledger=LedgerConfig())
WITHOUT_CRC = replace(PLAIN, dledger=LedgerConfig(body_crc=False))


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """All figures; those of putting and opening are seconds of CPU in all threads."""
    figures = []
    for size, count in ((100, 614_400), (1024, 184_320)):
        stores = _Stores(scratch, size, count // (16 if is_small else 1))
        figures += stores.measured()
        if size == 100:
            figures.append(stores.spark())
        stores.remove()
    return figures


@dataclass(frozen=True, slots=True)
class _Stores:
    """The same messages in a store of each kind, below `scratch`."""

    scratch: Path
    size: int
    count: int

    def measured(self) -> list[Figure]:
        table = bench_table(min(ROWS, self.count), self.size)
        kinds = (("plain", PLAIN), ("ledger", LEDGER), ("bare", WITHOUT_CRC))
        taken = in_turns([lambda n=name, c=config: self._turn(n, c, table) for name, config in kinds], ROUNDS)  # type: ignore[misc]
        best = {part: [min(turn[number] for turn in turns) for turns in taken]
                for number, part in enumerate(("put_columns", "recovery"))}  # fmt: skip
        best["scan"] = best_seconds([lambda n=name: self._scan(self.scratch / n) for name, _ in kinds], ROUNDS)  # type: ignore[misc]
        figures = []
        for name, (plain, ledger, bare) in best.items():
            figures.append(
                Figure(
                    line=f"DLedger {name} {self.size} B",
                    value=self.count / ledger / 1e6,
                    unit="M messages/s",
                    against=f"plain {self.count / plain / 1e6:.2f} M/s, without entries' CRC {plain / bare:.2f}",
                    judged=plain / ledger,
                    goal=GOALS[name],
                )
            )
        return figures

    def spark(self) -> Figure:
        """Three columns to `noop`, from both stores in turns."""
        spark = local_session()
        try:
            frames = [
                spark.read.format("rmqstore")
                .option("subscribe", TOPIC)
                .option("columns", ",".join(THREE_COLUMNS))
                .load(str(self.scratch / name))
                for name in ("plain", "ledger")
            ]
            plain, ledger = best_seconds([lambda f=frame: to_noop(f) for frame in frames], ROUNDS)  # type: ignore[misc]
        finally:
            spark.stop()
        return Figure(
            line=f"DLedger Spark {self.size} B, three columns",
            value=self.count / ledger / 1e6,
            unit="M messages/s",
            against=f"plain {self.count / plain / 1e6:.2f} M/s",
            judged=plain / ledger,
            goal=GOALS["Spark"],
        )

    def remove(self) -> None:
        for name in ("plain", "ledger", "bare"):
            shutil.rmtree(self.scratch / name)

    def _turn(self, name: str, config: StoreConfig, table: pa.Table) -> tuple[float, float]:
        path = self.scratch / name
        shutil.rmtree(path, ignore_errors=True)
        store = open_store(str(path), config)
        put = _busy(lambda: self._put(store, table))
        store.flush()
        store.abandon()
        os.sync()  # what the kernel does for its cache is nobody's time
        opened = []
        recovery = _busy(lambda: opened.append(open_store(str(path), config)))
        assert sum(opened[0].bounds(*queue)[1] for queue in opened[0].queues()) == self.count
        opened[0].close()
        os.sync()
        return put, recovery

    def _put(self, store: rmqstore.Store, table: pa.Table) -> None:
        for left in range(self.count, 0, -len(table)):
            store.put_columns(table.slice(0, min(len(table), left)))

    def _scan(self, path: Path) -> None:
        snapshot = rmqstore.open_snapshot(path)
        assert sum(batch.num_rows for batch in snapshot.scan([TOPIC], columns=THREE_COLUMNS)) == self.count


def _busy(action: Callable[[], object]) -> float:
    began = process_time()
    action()
    return process_time() - began


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["ledger"]))
