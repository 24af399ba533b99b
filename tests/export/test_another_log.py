"""A store that was made again, or lost its end, under an export: refused with --skip-lost as without."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from rmqstore import DataLost, open_store
from rmqstore.export import ExportWish, Window, export_messages
from tests.export.reading import require_each_once
from tests.export.stores import CONFIG, filled, put, rows
from tests.golden.rows import fingerprint

pytestmark = pytest.mark.stores

COLUMNS = ("topic", "queueId", "queueOffset", "body")
WISHES = {
    skips: ExportWish(columns=COLUMNS, partition_by=(), skip_lost=skips == "skip lost") for skips in ("", "skip lost")
}
every_wish = pytest.mark.parametrize("wish", WISHES.values(), ids=["fails", "skips"])
WORDS = r"is another log than was exported.*name another directory.*or restore the store that was exported"


def refuse(store: Path, place: Path, wish: ExportWish) -> str:
    """An export is refused, and changes nothing; its line."""
    before = {path: seen for path, seen in fingerprint(place).items() if not path.endswith("lock")}
    for _ in range(2):
        with pytest.raises(DataLost, match=WORDS) as caught:
            export_messages(store, place, wish)
        after = {path: seen for path, seen in fingerprint(place).items() if not path.endswith("lock")}
        assert after.keys() == before.keys()
        assert {path for path in before if before[path] != after[path] and not path.endswith(".rmqstore-export")} == (
            set()
        )
    return str(caught.value)


@every_wish
@pytest.mark.parametrize("count", [18, 60, 90], ids=["shorter", "as long", "longer"])
def test_a_store_that_was_made_again_is_refused(count: int, wish: ExportWish, tmp_path: Path) -> None:
    store, place = filled(tmp_path / "store", 60), tmp_path / "out"
    export_messages(store, place, wish)
    shutil.rmtree(store)
    with open_store(store, CONFIG, workers=False) as again:
        put(again, 1000, count)
    line = refuse(store, place, wish)
    assert "\n" not in line
    assert "skip" not in line
    assert line.startswith(("orders/", "pay/", "mail/"))


@pytest.mark.some(3)
@every_wish
@pytest.mark.parametrize("count", [4, 12, 40])
@pytest.mark.parametrize("looks", ["at once", "while it is gone"])
def test_so_is_a_topic_that_was_made_again(count: int, looks: str, wish: ExportWish, tmp_path: Path) -> None:
    place = tmp_path / "out"
    with open_store(tmp_path / "store", CONFIG) as store:
        put(store, 0, 12, ["orders"])
        put(store, 12, 4, ["pay"])
        export_messages(store.path, place, wish)
        store.delete_topic("orders")
        put(store, 50, 1, ["pay"])
        if looks == "while it is gone" and wish.skip_lost:
            assert export_messages(store.path, place, wish)[:2] == (1, 17)  # a topic that is gone is no other log
        put(store, 100, count, ["orders"])
        refuse(store.path, place, wish)


@every_wish
def test_so_is_one_whose_furthest_queue_is_gone_and_another_longer(wish: ExportWish, tmp_path: Path) -> None:
    """The mark is of the queue that is gone: what is read of the other cannot be compared, and is there."""
    store, place = tmp_path / "store", tmp_path / "out"

    def fill(first: int, counts: dict[int, int]) -> None:
        with open_store(store, CONFIG, workers=False) as one:
            for queue_id, count in counts.items():
                table = rows(first, count, ["orders"])
                ids = pa.array([queue_id] * count, pa.int32())
                assert one.put_columns(table.set_column(1, "queueId", ids)).message_count == count

    fill(0, {0: 5, 1: 5})
    export_messages(store, place, wish)
    shutil.rmtree(store)
    fill(100, {0: 9})
    with pytest.raises(DataLost):
        export_messages(store, place, wish)
    if wish.skip_lost:
        refuse(store, place, wish)


@every_wish
def test_so_is_a_backup_that_lags_until_it_has_caught_up(wish: ExportWish, tmp_path: Path) -> None:
    store, backup, place = filled(tmp_path / "store", 30), tmp_path / "backup", tmp_path / "out"
    shutil.copytree(store, backup)
    with open_store(store, CONFIG, workers=False) as more:
        put(more, 30, 30)
    export_messages(store, place, wish)
    store.rename(tmp_path / "kept")
    backup.rename(store)
    refuse(store, place, wish)
    shutil.rmtree(store)
    (tmp_path / "kept").rename(store)
    with open_store(store, CONFIG, workers=False) as more:
        put(more, 60, 6)
    assert export_messages(store, place, wish)[:2] == (6, 66)
    require_each_once(place, "parquet", store)


@every_wish
def test_so_is_one_of_which_nothing_was_in_the_window(wish: ExportWish, tmp_path: Path) -> None:
    """Where an export begins after the first message it has read none, and yet stands in a log."""
    store, place = filled(tmp_path / "store", 60), tmp_path / "out"
    later = ExportWish(
        columns=COLUMNS, partition_by=(), skip_lost=wish.skip_lost, window=Window(4_000_000_000_000)
    )  # fmt: skip
    assert export_messages(store, place, later)[:2] == (0, 0)
    shutil.rmtree(store)
    with open_store(store, CONFIG, workers=False) as again:
        put(again, 1000, 90)
    refuse(store, place, later)


def test_into_a_store_it_is_the_same(tmp_path: Path) -> None:
    store, place = filled(tmp_path / "store", 60), tmp_path / "out"
    wish = ExportWish(format="store", skip_lost=True)
    export_messages(store, place, wish)
    shutil.rmtree(store)
    with open_store(store, CONFIG, workers=False) as again:
        put(again, 1000, 90)
    with pytest.raises(DataLost, match=WORDS):
        export_messages(store, place, wish)
    shutil.rmtree(store)
    filled(store, 60)
    with pytest.raises(DataLost, match=WORDS):  # with other times of storing
        export_messages(store, place, wish)
    require_each_once(place, "store", store)
