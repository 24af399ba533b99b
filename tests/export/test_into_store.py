"""An export into another store that ends at any place of a commit: the next run adds what is missing, and nothing
twice."""

from pathlib import Path

import pytest

from rmqstore import Message, Rejected, open_snapshot, open_store
from rmqstore.export import ExportWish, export_messages, into_store
from tests.export.reading import require_each_once, rows_of
from tests.export.stores import filled
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

WISH = ExportWish(format="store", batch_rows=20, target_bytes=2000)


@pytest.mark.some(3)
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_run_that_ends_before_or_after_its_batch_goes_on(
    place: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, left = filled(tmp_path / "store", 90), [number]
    real = into_store.append_once

    def ended(*how, **more):
        is_now = left[0] == 0
        left[0] -= 1
        if is_now and place == "before":
            raise KeyboardInterrupt
        added = real(*how, **more)
        if is_now:
            raise KeyboardInterrupt
        return added

    with monkeypatch.context() as ending:
        ending.setattr(into_store, "append_once", ended)
        with pytest.raises(KeyboardInterrupt):
            export_messages(store, tmp_path / "target", WISH)
    assert left[0] == -1
    assert export_messages(store, tmp_path / "target", WISH).total_count == 90
    assert require_each_once(tmp_path / "target", "store", store) == 90


@pytest.mark.parametrize("wish", [{}, {"tags": "none"}], ids=str)
def test_where_nothing_is_to_be_exported_the_store_is_made_all_the_same(wish: dict, tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "target"
    open_store(store, workers=False).close()
    if wish:
        filled(store, 30)
    for _ in range(2):
        assert export_messages(store, target, ExportWish(format="store", **wish))[:2] == (0, 0)
        assert open_snapshot(target).scan().read_all().num_rows == 0
    with open_store(store, workers=False) as more:
        more.put(Message("orders", b"x", tags="none")).raise_for_status()
    assert export_messages(store, target, ExportWish(format="store", **wish)).added_count == 1


def test_an_end_before_the_store_is_made_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, target, wish = tmp_path / "store", tmp_path / "target", ExportWish(format="store")
    open_store(store, workers=False).close()

    def ended(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as ending:
        ending.setattr(into_store, "make_store", ended)
        with pytest.raises(KeyboardInterrupt):
            export_messages(store, target, wish)
    assert export_messages(store, target, wish).total_count == 0
    assert open_snapshot(target).scan().read_all().num_rows == 0


def test_a_record_that_no_store_takes_is_named_by_its_place(tmp_path: Path) -> None:
    """One that says that it is a batch; rows of a batch before it are read in the same piece."""
    made = SmallStore()
    for properties in ({}, {}, {}, {"INNER_NUM": "1"}, {"INNER_NUM": "1"}):
        made.add("orders", 1, properties=properties)
    store = made.write(tmp_path / "store")
    with pytest.raises(Rejected) as caught:
        export_messages(store, tmp_path / "target", ExportWish(format="store"))
    line = str(caught.value)
    assert line.startswith("orders/1, offset 3: cannot be put into a store (")
    assert "1 more like it" in line
    assert line.endswith("; choose other topics, or export them as parquet or json-lines")
    assert rows_of(tmp_path / "target", "store") == []
