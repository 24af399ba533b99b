"""Members whose data are not below the root: whoever does not know where they are changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore import StoreConfig, open_snapshot, open_store
from rmqstore.errors import NotAStore, StoreDamaged, UnsupportedLayout
from tests.dledger.ledgers import LEDGER, PLAIN, converted, image, member, put

pytestmark = pytest.mark.stores


def count(*paths: Path) -> int:
    return open_snapshot([list(paths)]).scan().read_all().num_rows


@pytest.mark.parametrize("is_ended_cleanly", [True, False])
def test_an_ordinary_store_it_is_no_more(tmp_path: Path, is_ended_cleanly: bool) -> None:
    """Recovered as an ordinary store, its queues were cut to the end of the old log."""
    root, data = converted(tmp_path, is_ended_cleanly)
    before = image(tmp_path)
    with pytest.raises(UnsupportedLayout, match="LedgerConfig"):
        open_store(root, PLAIN)
    assert image(tmp_path) == before
    with open_store(root, member(data)) as store:
        put(store, 5, "more")
    assert count(root, data) == 55


def forgotten(tmp_path: Path) -> StoreConfig:
    return LEDGER


def another_directory(tmp_path: Path) -> StoreConfig:
    return member(tmp_path / "another")


def another_directory_to_convert(tmp_path: Path) -> StoreConfig:
    return member(tmp_path / "another", converts=True)


@pytest.mark.parametrize("wrong", [forgotten, another_directory, another_directory_to_convert])
@pytest.mark.parametrize("is_ended_cleanly", [True, False])
def test_data_paths_must_be_as_they_were(
    tmp_path: Path, wrong: Callable[[Path], StoreConfig], is_ended_cleanly: bool
) -> None:
    """An empty directory would have begun the log anew, with the queues cut to it."""
    root, data = converted(tmp_path, is_ended_cleanly)
    before = image(tmp_path)
    with pytest.raises(StoreDamaged, match="say data_paths as they were"):
        open_store(root, wrong(tmp_path))
    assert image(tmp_path) == before
    open_store(root, member(data)).close()
    assert count(root, data) == 50


def test_data_below_the_root_are_not_forgotten(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", LEDGER) as store:
        put(store, 20)
    before = image(tmp_path)
    with pytest.raises(StoreDamaged, match=r"say data_paths as they were|no commitlog file, while queues"):
        open_store(tmp_path / "store", member(tmp_path / "another"))
    assert image(tmp_path) == before


def test_the_data_of_another_roots_member_are_its_own(tmp_path: Path) -> None:
    """Its term and its votes stand beside them."""
    with open_store(tmp_path / "first", LEDGER) as store:
        put(store, 20)
    before = image(tmp_path)
    with pytest.raises(NotAStore, match=r"belongs to the DLedger member in .*first/dledger-n0; open the root above"):
        open_store(tmp_path / "second", member(tmp_path / "first" / "dledger-n0" / "data"))
    assert {path: data for path, data in image(tmp_path).items() if path.startswith("first")} == before
    with open_store(tmp_path / "first", LEDGER) as store:
        put(store, 1)
    assert count(tmp_path / "first") == 21


def test_its_own_directory_may_be_said_through_a_link(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", LEDGER) as store:
        put(store, 20)
    (tmp_path / "link").symlink_to(tmp_path / "store" / "dledger-n0" / "data")
    with open_store(tmp_path / "store", member(tmp_path / "link")) as store:
        put(store, 1)
    assert count(tmp_path / "store") == 21


@pytest.mark.parametrize("below", [".", "dledger-n0", "dledger-n0/index", "index", "consumequeue", "config"])
def test_data_have_a_directory_of_their_own(tmp_path: Path, below: str) -> None:
    with pytest.raises(NotAStore, match="holds other files of this store"):
        open_store(tmp_path, member(tmp_path / below))
    assert image(tmp_path) == {}


def test_a_members_own_directory_is_no_root(tmp_path: Path) -> None:
    with open_store(tmp_path, LEDGER) as store:
        put(store, 20)
    for below in ("dledger-n0", "dledger-n0/data"):
        with pytest.raises(UnsupportedLayout, match="give the broker's directory above it"):
            open_store(tmp_path / below, LEDGER)


def test_data_are_not_put_beside_other_things(tmp_path: Path) -> None:
    (tmp_path / "home" / "pictures").mkdir(parents=True)
    with pytest.raises(NotAStore, match="give an empty directory"):
        open_store(tmp_path / "store", member(tmp_path / "home"))
    assert not (tmp_path / "store").exists()


def test_data_that_are_only_read_are_this_members(tmp_path: Path) -> None:
    with open_store(tmp_path / "first", LEDGER) as store:
        put(store, 20)
    before = image(tmp_path)
    config = replace(member(tmp_path / "data"), read_only_log_paths=(str(tmp_path / "first" / "dledger-n0" / "data"),))
    with pytest.raises(NotAStore, match="belongs to the DLedger member in"):
        open_store(tmp_path / "second", config)
    assert image(tmp_path) == before
