"""The entries of a DLedger node's log, whoever wrote them and whatever they hold."""

from typing import Any

import numpy as np
import pyarrow as pa

from rmqstore.directory.ledger.walk import EntryStretch, walk_entries
from rmqstore.directory.log_files import LogView
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.records.gather import binary_array
from rmqstore.snapshot.survey.extents import StoreExtent

_COLUMNS = {"index": "index", "term": "term", "position": "offset", "size": "size"}


def entry_rows(store: StoreExtent, wanted: frozenset[str]) -> dict[str, Any]:
    """The columns of the table `entries`, those of entries that are not agreed on yet included.  Damaged entries are
    passed over; a log that is no DLedger node's has none.  Raises DataLost.
    """
    files = [file for file in store.log_files if file.is_wrapped]
    end = files[-1].end if files else 0
    stretches: list[EntryStretch] = []
    bodies: list[pa.Array] = []
    with LogView(store.disk, store.log_files, 0, end) as log:
        for item in walk_entries(log, files[0].start, end) if files else ():
            if isinstance(item, EntryStretch):
                if "body" in wanted:
                    sizes = item.heads["body_size"].astype(np.int64)
                    bodies.append(binary_array(item.page, item.starts + ENTRY_HEAD.size, sizes))
                stretches.append(item)
    heads = np.concatenate([np.zeros(0, ENTRY_HEAD.dtype), *(item.heads for item in stretches)])
    columns: dict[str, Any] = {name: pa.array(heads[field].astype(np.int64)) for name, field in _COLUMNS.items()}
    columns["isCommitted"] = pa.array(
        heads["offset"].astype(np.int64) < (store.ledger.agreed_end if store.ledger else 0)
    )
    columns["body"] = pa.chunked_array(bodies, pa.binary()) if "body" in wanted else [None] * len(heads)
    return columns
