"""Single properties as columns, and their text: always what the map says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore.formats.properties import parse_properties
from tests.golden.cases import READ_CASES, layouts
from tests.golden.rows import SCAN_MODES
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

StoreOf = Callable[[str], Path]


def rows_of(store: Path, names: list[str], **how: Any) -> list[dict[str, Any]]:
    columns = ["properties", *(f"property.{name}" for name in names), "propertiesText", "corruptReason"]
    snapshot = rmqstore.open_snapshot(store)
    found: pa.Table = snapshot.scan(
        columns=columns, include_system_topics=True, on_corrupt_record="null", **how
    ).read_all()
    return list(found.to_pylist())


def names_in(store: Path) -> list[str]:
    """All names of properties, and some that no message has."""
    snapshot = rmqstore.open_snapshot(store)
    maps = snapshot.scan(columns="properties", include_system_topics=True, on_corrupt_record="null").read_all()
    names = {name for pairs in maps.column(0).to_pylist() for name, _ in pairs or ()}
    return [*sorted(names), "absent", "TAG", "keys"]


def differences(rows: list[dict[str, Any]], names: list[str]) -> list[object]:
    """Rows whose single properties, or whose text, say something else than their map."""
    wrong: list[object] = []
    for row in rows:
        if row["properties"] is None:
            wrong += [row] * any(row[name] is not None for name in row if name.startswith("propert"))
            continue
        pairs = dict(row["properties"])
        wrong += [(name, row) for name in names if row[f"property.{name}"] != pairs.get(name)]
        wrong += [row] * (parse_properties(row["propertiesText"].encode()) != pairs)
    return wrong


@pytest.mark.some(7)
@pytest.mark.parametrize("scan_mode", SCAN_MODES)
@pytest.mark.parametrize("case", layouts(READ_CASES))
def test_they_are_the_map_s_values_in_every_golden_store(case: str, scan_mode: Any, store_of: StoreOf) -> None:
    names = names_in(store_of(case))
    rows = rows_of(store_of(case), names, scan_mode=scan_mode)
    assert differences(rows, names) == []
    for name in names[:2]:  # one alone takes another way through the blocks
        assert differences(rows_of(store_of(case), [name], scan_mode=scan_mode), [name]) == []


TEXTS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=8)
BLOCKS = st.lists(
    st.lists(st.tuples(st.sampled_from(["TAGS", "KEYS", "a", "b", "имя", "x.y", " "]) | TEXTS, TEXTS), max_size=5),
    min_size=1, max_size=30,
)  # fmt: skip


@given(blocks=BLOCKS)
def test_they_are_the_map_s_values_of_any_blocks(
    blocks: list[list[tuple[str, str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("store")
    made = SmallStore(file_size=1024 * 1024)
    for block in blocks:
        text = "".join(f"{name}\x01{value}\x02" for name, value in block)
        made.add("T", properties=text.encode())
    made.write(root)
    names = sorted({name for block in blocks for name, _ in block} | {"absent"})
    rows = rows_of(root, names)
    assert len(rows) == len(blocks)
    assert differences(rows, names) == []


def test_names_may_be_anything_but_empty(tmp_path: Path) -> None:
    made = SmallStore()
    made.add("T", properties={"a b": "1", "property.x": "2", "topic": "3", "é": "4"})
    made.write(tmp_path)
    snapshot = rmqstore.open_snapshot(tmp_path)
    names = ["property.a b", "property.property.x", "property.topic", "property.é", "topic"]
    found = snapshot.scan(columns=names).read_all()
    assert found.column_names == names
    assert list(found.to_pylist()[0].values()) == ["1", "2", "3", "4", "T"]
    for wrong in ("property.", "property", "Property.x"):
        with pytest.raises(rmqstore.UnknownColumn):
            snapshot.scan(columns=wrong)
    with pytest.raises(rmqstore.Rejected, match="half a character"):
        snapshot.scan(columns="property.\ud800")
    with pytest.raises(rmqstore.Rejected, match="name each column once"):
        snapshot.scan(columns="property.x,property.x")


def test_a_star_brings_neither_text_nor_single_properties(tmp_path: Path) -> None:
    made = SmallStore()
    made.add("T")
    made.write(tmp_path)
    assert [name for name in rmqstore.open_snapshot(tmp_path).scan(columns="*").schema.names if "propert" in name] == [
        "properties"
    ]
