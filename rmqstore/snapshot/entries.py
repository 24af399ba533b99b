"""The entries of DLedger nodes, with a broker or without."""

from collections.abc import Sequence

import pyarrow as pa

from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.store_paths import Paths


def ledger_entries(
    paths: Paths, columns: Sequence[str] | str | None = None, *, access: Access = "auto"
) -> pa.Table:  # fmt: skip
    """The table `entries` of stores, or of DLedger nodes by their directories alone, whose entries may be anything.

    Raises as `open_snapshot` and `Snapshot.table`, but takes a node's directory.
    """
    return look_at(paths, access).table("entries", columns)
