"""Tables of either format below a directory, as their own libraries read and change them."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table.snapshots import ancestors_of

from rmqstore.lake import Consent, Sync, SyncListener, SyncRequest, SyncTotals, TableColumns, TableSink, open_table

KINDS = ("iceberg", "delta")
Place = tuple[str, str, int, int]


class Lake:
    """One table of a kind; `store` is what goes into it."""

    def __init__(self, kind: str, directory: Path, store: Path) -> None:
        self.kind, self.directory, self.store = kind, directory, store
        directory.mkdir(exist_ok=True)

    @property
    def name(self) -> str:
        return "shop.orders" if self.kind == "iceberg" else str(self.directory / "orders.delta")

    @property
    def catalog_uri(self) -> str:
        return f"sqlite:///{self.directory}/catalog.db"

    @property
    def arguments(self) -> list[str]:
        """Of `rmqstore sync`, after the store."""
        catalog = ["--catalog", self.catalog_uri] if self.kind == "iceberg" else []
        return ["--to", self.kind, self.name, *catalog]

    def catalog(self) -> Catalog:
        return load_catalog(None, type="sql", uri=self.catalog_uri, warehouse=str(self.directory))

    def sink(self, columns: str | None = None, consent: Consent | None = None) -> TableSink:
        options = {"type": "sql", "uri": self.catalog_uri, "warehouse": str(self.directory)}
        return open_table(
            self.kind, self.name, options=options if self.kind == "iceberg" else None,
            columns=None if columns is None else TableColumns(columns), consent=consent,
        )  # fmt: skip

    def sync(self, columns: str | None = None, consent: Consent | None = None, **how: Any) -> SyncTotals:
        return self.started(columns, consent, **how).run()

    def started(
        self, columns: str | None = None, consent: Consent | None = None, listener: SyncListener | None = None,
        **how: Any,
    ) -> Sync:  # fmt: skip
        return Sync(how.pop("paths", str(self.store)), self.sink(columns, consent), SyncRequest(**how), listener)

    def delta(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.name)

    def iceberg(self) -> Any:
        return self.catalog().load_table(self.name)

    def rows(self) -> pa.Table:
        """All rows, as the format's library reads them."""
        return self.delta().to_pyarrow_table() if self.kind == "delta" else self.iceberg().scan().to_arrow()

    def places(self) -> list[Place]:
        return places_of(self.rows())

    def commit_count(self) -> int:
        return int(self.delta().version()) if self.kind == "delta" else len(self.iceberg().snapshots())

    def commit_of_another(self) -> None:
        """Somebody else adds a row that is no message."""
        row = self.rows().slice(0, 0).schema
        made = pa.Table.from_pylist([{"topic": "of another", "storeTimestamp": 0}], row)
        if self.kind == "delta":
            deltalake.write_deltalake(self.delta(), made, mode="append")
            return
        table = self.iceberg()
        with table.update_spec() as spec:  # pyiceberg alone does not write partitions of days
            for field in table.spec().fields:
                spec.remove_field(field.name)
        table.append(made)

    def roll_back(self, commits: int) -> None:
        """To so many commits ago."""
        if self.kind == "delta":
            self.delta().restore(self.delta().version() - commits)
            return
        table = self.iceberg()
        wanted = list(ancestors_of(table.current_snapshot(), table.metadata))[commits]
        table.manage_snapshots().rollback_to_snapshot(wanted.snapshot_id).commit()

    def drop(self) -> None:
        if self.kind == "iceberg":
            self.catalog().drop_table(self.name)
            return
        Path(self.name).rename(self.directory / f"gone {len(list(self.directory.iterdir()))}")


def places_of(table: pa.Table | pa.RecordBatch) -> list[Place]:
    """Where each message stands, sorted: a doubled one is there twice."""
    names = ("brokerName", "topic", "queueId", "queueOffset")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return sorted(row for row in rows if row[0] is not None)
