"""The golden stores that are there are those that names.txt lists: the tests take what they find."""

import importlib
import os
import tarfile
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent


def differences(listed: list[str], found: set[str]) -> list[str]:
    """What is listed and not there, and what is there and not listed, a line each."""
    missing = [f"{name}: listed in names.txt, and not in tests/golden" for name in listed if name not in found]
    return missing + [f"{name}: in tests/golden, and not listed in names.txt" for name in sorted(found - {*listed})]


def found_below(golden: Path) -> set[str]:
    """The cases of a directory: folders below `stores`, `broker` and `ledger` with their archive and the answers."""
    return {
        str(archive.parent.relative_to(golden))
        for kind, name in (("stores", "store"), ("broker", "store"), ("ledger", "node"))
        for archive in golden.glob(f"{kind}/*/{name}.tar.gz")
        if [*archive.parent.glob("*.json*")]
    }


def test_no_golden_store_is_missing_and_none_is_unknown() -> None:
    listed = (GOLDEN / "names.txt").read_text(encoding="utf-8").splitlines()
    assert listed == sorted({*listed}), "names.txt is sorted, and names each store once"
    assert differences(listed, found_below(GOLDEN)) == []


@pytest.mark.parametrize("kind", ["stores", "broker", "ledger"])
def test_a_store_that_is_gone_and_one_that_is_new_are_named(tmp_path: Path, kind: str) -> None:
    for name in ("a", "new"):
        folder = tmp_path / kind / name
        folder.mkdir(parents=True)
        (folder / ("node.tar.gz" if kind == "ledger" else "store.tar.gz")).touch()
        (folder / "expected.json.gz").touch()
    assert differences([f"{kind}/a", f"{kind}/gone"], found_below(tmp_path)) == [
        f"{kind}/gone: listed in names.txt, and not in tests/golden",
        f"{kind}/new: in tests/golden, and not listed in names.txt",
    ]
    (tmp_path / kind / "new" / "expected.json.gz").unlink()
    assert found_below(tmp_path) == {f"{kind}/a"}


def test_an_archive_keeps_times_to_the_millisecond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ 4.9 chooses the file that it searches for a time by when it was written."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "oracle")
    maker = importlib.import_module("make_golden").Maker
    times = {f"{ms:020d}": ms for ms in range(1_796_021_265_000, 1_796_021_265_100)}
    store = tmp_path / "store"
    store.mkdir()
    for name, ms in times.items():
        (store / name).touch()
        os.utime(store / name, ns=(0, ms * 1_000_000))
    maker.archive(store, tmp_path / "store.tar.gz")
    with tarfile.open(tmp_path / "store.tar.gz") as archive:
        archive.extractall(tmp_path / "out", filter="data")
    found = {path.name: path.stat().st_mtime_ns // 1_000_000 for path in (tmp_path / "out" / "store").iterdir()}
    assert found == times
