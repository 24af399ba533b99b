"""The rows of an export are those of a scan, on every golden store."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rmqstore import open_snapshot
from rmqstore.export import ExportWish, export_messages
from tests.export.reading import table_of
from tests.golden.cases import BROKER_CASES, READ_CASES, layouts
from tests.golden.conftest import store_of

pytestmark = pytest.mark.stores

__all__ = ["store_of"]

ALL = {"pattern": ".*", "include_system_topics": True}
ORDER = [(name, "ascending") for name in ("topic", "queueId", "queueOffset", "physicalOffset")]


def ordered(table: pa.Table) -> list[dict]:
    """The rows in the order of their queues."""
    keyed = table.append_column("reason", pc.fill_null(table["corruptReason"], ""))
    return keyed.sort_by([*ORDER, ("reason", "ascending")]).to_pylist()


@pytest.mark.some(7)
@pytest.mark.parametrize("case", layouts([*READ_CASES, *BROKER_CASES]))
def test_rows_are_those_of_a_scan(case: str, store_of: Callable[[str], Path], tmp_path: Path) -> None:
    store = store_of(case)
    scanned = (
        open_snapshot(store).scan(**ALL, columns="*", on_corrupt_record="null", fail_on_data_loss=False).read_all()
    )
    wish = ExportWish(**ALL, columns="*", partition_by=(), on_corrupt_record="null", skip_lost=True)
    done = export_messages(store, tmp_path / "out", wish)
    assert done.added_count == done.total_count == scanned.num_rows
    if scanned.num_rows:
        exported = table_of(tmp_path / "out")
        assert exported.schema == scanned.schema
        assert ordered(exported) == ordered(scanned)
    assert export_messages(store, tmp_path / "out", wish).added_count == 0
