"""The map of properties and the columns that are cut out of it, whatever the messages' properties have in common."""

from collections.abc import Mapping
from pathlib import Path

import pytest

import rmqstore
from tests.snapshot.small_store import SmallStore

# By name: the properties of the n-th message.
KINDS = {
    "values of one size": lambda n: {"TAGS": "paid", "KEYS": f"o-{n:05}", "UNIQ_KEY": f"{n:032X}"},
    "now and then a longer one": lambda n: {"TAGS": "cancelled" if n % 50 == 49 else "paid", "KEYS": f"o-{n:05}"},
    "one of another name": lambda n: {"TAGS" if n != 77 else "TAGZ": "paid", "KEYS": f"o-{n:05}"},
    "characters of one size beyond ASCII": lambda n: {"TAGS": "bezahlt" if n % 2 else "gezählt"[:6], "KEYS": f"{n:05}"},
    "the same value everywhere": lambda n: {"TAGS": "paid"},
    "none": lambda n: {},
}


@pytest.mark.parametrize("columns", [["properties"], ["tags", "keys", "msgId", "properties"], ["keys", "tags"]])
@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_are_the_properties(kind: str, columns: list[str], tmp_path: Path) -> None:
    store = SmallStore(64 * 1024)
    written: list[Mapping[str, str]] = [KINDS[kind](number) for number in range(120)]
    for properties in written:
        store.add("T", 0, properties=properties)
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    rows = snapshot.scan(topics=["T"], columns=columns).read_all()
    rows.validate(full=True)
    for row, properties in zip(rows.to_pylist(), written, strict=True):
        if "properties" in columns:
            assert dict(row["properties"]) == properties
            assert len(row["properties"]) == len(properties)
        if "tags" in columns:
            assert (row["tags"], row["keys"]) == (properties.get("TAGS"), properties.get("KEYS"))
        if "msgId" in columns and "UNIQ_KEY" in properties:
            assert row["msgId"] == properties["UNIQ_KEY"]
