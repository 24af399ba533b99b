"""The entries of a DLedger node's log, whoever wrote them and whatever they hold."""

from typing import Any

import numpy as np
import pyarrow as pa

from rmqstore.directory.ledger.walk import WRONG_BODY, EntryStretch, walk_entries
from rmqstore.directory.log_files import LogView
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.records.gather import binary_array
from rmqstore.snapshot.survey.extents import StoreExtent

_COLUMNS = {"index": "index", "term": "term", "position": "offset", "size": "size"}
_SCHEMA = pa.schema(
    [("index", pa.int64()), ("term", pa.int64()), ("position", pa.int64()), ("size", pa.int64()),
     ("isCommitted", pa.bool_()), ("body", pa.binary()), ("corruptReason", pa.string())]
)  # fmt: skip


def entry_rows(store: StoreExtent, wanted: frozenset[str]) -> dict[str, Any]:
    """The columns of the table `entries`, those of entries that are not agreed on yet included; a log that is
    no DLedger node's has none.  A place without an entry in front of others is a row of its position and size alone,
    with its `corruptReason`.  Raises DataLost.
    """
    files = [file for file in store.log_files if file.is_wrapped]
    end = files[-1].end if files else 0
    agreed_end = store.ledger.agreed_end if store.ledger else 0
    parts = [_SCHEMA.empty_table()]
    index, term = -1, -1
    with LogView(store.disk, store.log_files, 0, end) as log:
        for item in walk_entries(log, files[0].start, end) if files else ():
            if isinstance(item, EntryStretch):
                parts.append(_of_stretch(item, index, term, agreed_end, with_bodies="body" in wanted))
                index, term = int(item.heads["index"][-1]), int(item.heads["term"][-1])
            elif item.resume is not None:
                parts.append(_of_break(item.offset, item.resume, item.reason))
    whole = pa.concat_tables(parts)
    return {name: whole[name] for name in whole.column_names}


def _of_stretch(item: EntryStretch, index: int, term: int, agreed_end: int, *, with_bodies: bool) -> pa.Table:
    """The rows of entries; in front of them is entry `index` of `term`."""
    reasons = np.full(len(item.heads), None, object)
    reasons[item.out_of_order(index, term)] = "the entry does not follow the one before"
    reasons[item.wrong_bodies()] = WRONG_BODY
    columns: dict[str, Any] = {name: item.heads[field].astype(np.int64) for name, field in _COLUMNS.items()}
    columns["isCommitted"] = item.offsets < agreed_end
    sizes = item.heads["body_size"].astype(np.int64)
    columns["body"] = (
        binary_array(item.page, item.starts + ENTRY_HEAD.size, sizes) if with_bodies else [None] * len(sizes)
    )
    columns["corruptReason"] = reasons
    return pa.table({name: pa.array(columns[name], _SCHEMA.field(name).type) for name in _SCHEMA.names})


def _of_break(offset: int, resume: int, reason: str) -> pa.Table:
    row = dict.fromkeys(_SCHEMA.names) | {"position": offset, "size": resume - offset, "corruptReason": reason}
    return pa.Table.from_pylist([row], _SCHEMA)
