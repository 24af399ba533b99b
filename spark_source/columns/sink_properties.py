"""Columns `property.NAME` of a DataFrame that is written: they become properties of each row."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.snapshot.columns import property_of

PROPERTIES = "properties"
_PAIR = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
_LISTS = pa.list_(_PAIR)


def with_properties(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns with those of single properties merged into `properties`; a null is no property.

    Where the map has the name, too, the column goes before it.
    """
    named = {name: column for column in columns if (name := property_of(column)) is not None}
    if not named:
        return dict(columns)
    single = {name: columns[column].cast(pa.string()) for name, column in named.items()}
    kept = {column: array for column, array in columns.items() if column not in named.values()}
    return kept | {PROPERTIES: _merged(kept.get(PROPERTIES), single)}


def _merged(maps: pa.Array | None, single: Mapping[str, pa.Array]) -> pa.Array:
    """map<string, string>[n]."""
    (count,) = {len(column) for column in single.values()}
    rows, keys, values = [], [], []
    if maps is not None:
        lists = maps.cast(_LISTS)
        pairs, owners = pc.list_flatten(lists), pc.list_parent_indices(lists)
        titles, texts = (pc.struct_field(pairs, [place]) for place in range(2))
        mask = _replaced(titles, owners, single)
        rows, keys, values = [owners.filter(mask)], [titles.filter(mask)], [texts.filter(mask)]
    for name, column in single.items():
        there = column.is_valid()
        rows.append(pa.array(np.arange(count)).filter(there))
        values.append(column.filter(there))
        keys.append(pa.repeat(pa.scalar(name, pa.string()), len(values[-1])))
    owner = pa.concat_arrays([row.cast(pa.int64()) for row in rows]).to_numpy()
    order = pa.array(np.argsort(owner, kind="stable"))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=count)))).astype(np.int32)
    both = [pa.concat_arrays([part.cast(pa.string()) for part in parts]).take(order) for parts in (keys, values)]
    return pa.MapArray.from_arrays(pa.array(offsets), *both)


def _replaced(titles: pa.Array, owners: pa.Array, single: Mapping[str, pa.Array]) -> pa.Array:
    """bool, the pairs of the maps that no column goes before."""
    kept = pa.array(np.ones(len(titles), bool))
    for name, column in single.items():
        hidden = pc.and_(pc.equal(titles, name), column.is_valid().take(owners))
        kept = pc.and_(kept, pc.invert(pc.fill_null(hidden, False)))
    return kept
