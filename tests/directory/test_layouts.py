"""Which directories hold a log, and what is DLedger's: the same for whoever reads and whoever writes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import StoreConfig, UnsupportedLayout
from rmqstore.directory.layouts import logs_below
from rmqstore.directory.store_view import open_view
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import LOCAL
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.formats.names import format_start
from rmqstore.snapshot.survey.found_log import find_log_files
from tests.snapshot.small_store import SmallStore, small_store

COUNT = 90
FILE_SIZE = SmallStore.file_size


def split_over(root: Path, *log_names: str) -> SmallStore:
    """A closed store whose log files lie in several directories in turn."""
    store = small_store(COUNT)
    store.write(root)
    shutil.rmtree(root / "commitlog")
    store.write_log(*(root / name for name in log_names))
    return store


def seen_by_all(root: Path) -> list[str]:
    """The names of the log's files by directory, as a survey and a recovery have them."""
    read = [file.path for file in find_log_files(LOCAL, str(root))]
    assert [file.path for file in open_view(RealFileSystem(), str(root)).log.files] == read
    assert {path.rpartition("/")[0] for path in read} == set(logs_below(LOCAL, str(root)))
    return [path.removeprefix(f"{root}/") for path in read]


def junk(root: Path, name: str) -> None:
    """A directory of the root with the files of a queue, or anything else with numbers for names."""
    (root / name).mkdir()
    (root / name / format_start(0)).write_bytes(b"\1" * 1000)
    (root / name / format_start(6000000)).write_bytes(bytes(1000))


@pytest.mark.parametrize("log_names", [("commitlog",), ("a", "b"), ("commitlog", "z"), ("x", "y", "z")])
def test_directories_of_a_log_have_any_name(log_names: tuple[str, ...], tmp_path: Path) -> None:
    store = split_over(tmp_path, *log_names)
    expected = [f"{log_names[n % len(log_names)]}/{format_start(start)}" for n, start in enumerate(sorted(store.data))]
    assert len(expected) >= 3
    assert seen_by_all(tmp_path) == expected


@pytest.mark.parametrize("name", ["old", "0", "index", "timerlog", "consumequeue_ext"])
def test_numbered_files_alone_are_no_log(name: str, tmp_path: Path) -> None:
    store = split_over(tmp_path, "a", "b")
    junk(tmp_path, name)
    assert len(seen_by_all(tmp_path)) == len(store.data)
    snapshot = rmqstore.open_snapshot(tmp_path)
    assert not snapshot.stores[0].damage
    assert snapshot.scan(["T"]).read_all().num_rows == COUNT


def test_a_directory_whose_only_file_begins_with_damage_is_of_the_log_that_it_continues(tmp_path: Path) -> None:
    store = split_over(tmp_path, "a")
    last, middle = (max(store.data), sorted(store.data)[1])
    for name, start in (("b", last), ("c", middle)):
        (tmp_path / name).mkdir()
        path = tmp_path / name / format_start(start)
        (tmp_path / "a" / path.name).rename(path)
        path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    assert seen_by_all(tmp_path)[1:] == [f"c/{format_start(middle)}", f"b/{format_start(last)}"]
    assert rmqstore.open_snapshot(tmp_path).stores[0].damage


def test_a_file_made_ahead_is_of_the_log(tmp_path: Path) -> None:
    store = split_over(tmp_path, "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / format_start(max(store.data) + FILE_SIZE)).write_bytes(bytes(FILE_SIZE))
    assert seen_by_all(tmp_path)[-1].startswith("b/")


def ledger(directory: Path) -> Path:
    """A DLedger node's directory with one entry."""
    for room in ("data", "index"):
        (directory / room).mkdir(parents=True)
        head = ENTRY_HEAD.struct.pack(1, 148, 0, 1, 0, 0, 0, 0, 100)
        (directory / room / format_start(0)).write_bytes(head.ljust(4096, b"x"))
    return directory


def broker_of_ledger(root: Path) -> tuple[Path, list[Path]]:
    ledger(root / "dledger-n0")
    return root, []


def broker_that_went_to_ledger(root: Path) -> tuple[Path, list[Path]]:
    split_over(root, "commitlog")
    ledger(root / "dledger-n0")
    return root, []


def broker_about_to_begin(root: Path) -> tuple[Path, list[Path]]:
    split_over(root, "commitlog")
    shutil.rmtree(root / "commitlog")
    (root / "dledger-n0" / "data").mkdir(parents=True)
    return root, []


def ledger_as_log_path(root: Path) -> tuple[Path, list[Path]]:
    split_over(root / "store", "commitlog")
    shutil.rmtree(root / "store" / "commitlog")
    return root / "store", [ledger(root / "node") / "data"]


def ledger_copied_into_a_store(root: Path) -> tuple[Path, list[Path]]:
    split_over(root, "commitlog")
    shutil.rmtree(root / "commitlog")
    ledger(root / "node")
    (root / "node" / "data").rename(root / "commitlog")
    return root, []


@pytest.mark.parametrize("made", [broker_about_to_begin, ledger_as_log_path])
def test_dledger_is_refused_by_whoever_writes(made: Callable[[Path], tuple[Path, list[Path]]], tmp_path: Path) -> None:
    root, logs = made(tmp_path)
    assert_refused_by_writers(tmp_path, root, logs)


def assert_refused_by_writers(tmp_path: Path, root: Path, logs: list[Path]) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    config = StoreConfig(preallocate=False, log_file_size=FILE_SIZE, log_paths=tuple(map(str, logs)))
    with pytest.raises(UnsupportedLayout, match="DLedger"):
        rmqstore.open_store(root, config, workers=False)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "made",
    [
        broker_of_ledger,
        broker_that_went_to_ledger,
        ledger_copied_into_a_store,
        lambda root: (ledger(root), []),
        lambda root: (ledger(root) / "data", []),
        lambda root: (ledger(root) / "index", []),
    ],
)
def test_dledger_is_refused_by_whoever_reads_and_whoever_writes(
    made: Callable[[Path], tuple[Path, list[Path]]], tmp_path: Path
) -> None:
    root, logs = made(tmp_path)
    with pytest.raises(UnsupportedLayout, match="DLedger"):
        rmqstore.open_snapshot([[root, *logs]])
    assert_refused_by_writers(tmp_path, root, logs)
