"""Damage at the edges of a node's data, in the head of the first entry of an old file and in the last entry that the
group has agreed on.

No recovery reads the former: the index stands in for it, and where that is lost as well the opening is refused and
changes nothing.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmqstore import Corrupt, LedgerConfig, Message, StoreConfig, open_snapshot, open_store
from rmqstore.config import OnMiddleDamage
from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from rmqstore.errors import StoreDamaged
from rmqstore.formats.dledger import ENTRY_HEAD, INDEX_UNIT
from rmqstore.formats.names import format_start
from rmqstore.testing import Probe

pytestmark = pytest.mark.stores

COUNT = 120
NODE = "dledger-n0"
FIELDS = ("magic", "size", "index", "term", "offset", "channel", "chain_crc", "body_crc", "body_size")
INDEX_HARMS: dict[str, Callable[[Path], object]] = {
    "gone": shutil.rmtree,
    "its first file gone": lambda index: min(index.iterdir()).unlink(),
    "its second file zero": lambda index: sorted(index.iterdir())[1].write_bytes(bytes(640)),
    "an old unit zero": lambda index: changed(min(index.iterdir()), 0, bytes(32)),
}


def config(on_middle_damage: OnMiddleDamage = "refuse") -> StoreConfig:
    return StoreConfig(
        flush="SYNC", log_file_size=4096, queue_file_size=2000, on_middle_damage=on_middle_damage,
        dledger=LedgerConfig(index_file_size=640),
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with five files of entries, closed well; to be copied."""
    root = tmp_path_factory.mktemp("whole") / "store"
    with open_store(root, config()) as store:
        for number in range(COUNT):
            store.put(Message("t", b"%d" % number * 10)).raise_for_status()
    return root


def changed(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def damage(root: Path, number: int, field: str) -> None:
    """Another value in the head of the first entry of a file."""
    path = sorted((root / NODE / "data").iterdir())[number]
    at = ENTRY_HEAD.dtype.fields[field][1]
    changed(path, at, bytes([path.read_bytes()[at] ^ 0x15]))


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*")
            if path.is_file() and path.name != "lock"}  # fmt: skip


@pytest.mark.parametrize("mode", ["refuse", "cut"])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("field", FIELDS)
def test_it_is_opened_with_all_of_its_messages(
    whole: Path, tmp_path: Path, field: str, number: int, mode: OnMiddleDamage
) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    damage(root, number, field)
    before = {name: data for name, data in tree(root).items() if "/data/" in name or "/index/" in name}
    with open_store(root, config(mode)) as store:
        assert store.bounds("t", 0) == (0, COUNT)
    after = tree(root)
    assert {name: after[name] for name in before} == before
    with open_store(root, config(mode)) as store:
        store.put(Message("t", b"more")).raise_for_status()
        store.flush()
        assert store.bounds("t", 0) == (0, COUNT + 1)


@pytest.mark.parametrize("mode", ["refuse", "cut"])
@pytest.mark.parametrize("harm", INDEX_HARMS)
@pytest.mark.parametrize("field", ["magic", "size", "index", "offset"])
def test_with_its_index_lost_it_is_refused_unchanged(
    whole: Path, tmp_path: Path, field: str, harm: str, mode: OnMiddleDamage
) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    damage(root, 0, field)
    INDEX_HARMS[harm](root / NODE / "index")
    before = tree(root)
    with pytest.raises(
        StoreDamaged, match="the index of entries is lost, and can be built again only from undamaged data"
    ):
        open_store(root, config(mode))
    assert tree(root) == before


@pytest.mark.parametrize("harm", INDEX_HARMS)
def test_an_index_that_is_lost_alone_is_made_again(whole: Path, tmp_path: Path, harm: str) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    INDEX_HARMS[harm](root / NODE / "index")
    with open_store(root, config()) as store:
        assert store.bounds("t", 0) == (0, COUNT)
    assert {path.name: path.read_bytes() for path in (root / NODE / "index").iterdir()} == {
        path.name: path.read_bytes() for path in (whole / NODE / "index").iterdir()
    }


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("field", FIELDS)
def test_an_entry_store(tmp_path: Path, field: str, number: int) -> None:
    sizes = EntryStoreConfig(data_file_size=4096, index_file_size=640)
    with EntryStore(tmp_path / NODE, sizes) as store:
        store.append([b"%03d" % each * 40 for each in range(COUNT)], 1)
    damage(tmp_path, number, field)
    before = tree(tmp_path)
    with EntryStore(tmp_path / NODE, sizes) as store:
        assert (store.begin_index, store.end_index) == (0, COUNT - 1)
    after = tree(tmp_path)
    assert {name: after[name] for name in before if "/data/" in name or "/index/" in name} == {
        name: data for name, data in before.items() if "/data/" in name or "/index/" in name
    }


def entry_at(root: Path, number: int) -> tuple[Path, int, int]:
    """The file of an entry, counted from the end, with the place and size that the index tells."""
    files = sorted((root / NODE / "index").iterdir())
    units = np.concatenate([np.frombuffer(path.read_bytes(), INDEX_UNIT.dtype) for path in files])
    unit = units[units["size"] > 0][number]
    offset = int(unit["offset"])
    return root / NODE / "data" / format_start(offset - offset % 4096), offset % 4096, int(unit["size"])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A killed store, whose node noted that 60 entries are agreed on; three came after."""
    root = tmp_path_factory.mktemp("killed") / "store"
    store = open_store(root, config(), workers=False)
    for number in range(63):
        store.put(Message("t", b"%d" % number * 10)).raise_for_status()
        if number == 59:
            store.flush()
            Probe(store).step("ledger")
    store.flush()
    Probe(store).crash()
    return root


@pytest.mark.parametrize("has_queues", [True, False])
@pytest.mark.parametrize("at", [48, 52, 60, 110, -3])
def test_an_entry_that_is_agreed_on_and_damaged_at_the_end_is_told(
    killed: Path, tmp_path: Path, at: int, has_queues: bool
) -> None:
    root = shutil.copytree(killed, tmp_path / "store")
    for number in (-1, -2, -3):  # as if they had never come
        path, begin, size = entry_at(root, number)
        changed(path, begin, bytes(size))
    path, begin, size = entry_at(root, -4)
    changed(path, begin + at % size, bytes([path.read_bytes()[begin + at % size] ^ 0x55]))
    if not has_queues:
        shutil.rmtree(root / "consumequeue")
    for mode in ("auto", "queue", "commitlog"):
        with pytest.raises(Corrupt):
            open_snapshot(root).scan(topics=["t"], scan_mode=mode).read_all()
        found = open_snapshot(root).scan(topics=["t"], scan_mode=mode, on_corrupt_record="skip").read_all()
        assert found.num_rows == 59


def test_one_that_nobody_knows_to_be_agreed_on_is_the_end(killed: Path, tmp_path: Path) -> None:
    root = shutil.copytree(killed, tmp_path / "store")
    path, begin, _ = entry_at(root, -1)
    changed(path, begin + 60, b"\xff")
    for mode in ("auto", "queue", "commitlog"):
        assert open_snapshot(root).scan(topics=["t"], scan_mode=mode).read_all().num_rows == 62


@pytest.mark.parametrize("number", range(1, 4))
def test_a_file_that_is_missing_between_others_is_refused(whole: Path, tmp_path: Path, number: int) -> None:
    """As by DLedger; the old ones as well, which no recovery reads."""
    root = shutil.copytree(whole, tmp_path / "store")
    sorted((root / NODE / "data").iterdir())[number].unlink()
    before = tree(root)
    with pytest.raises(StoreDamaged, match=r"no data file holds|commitlog files are missing"):
        open_store(root, config())
    assert tree(root) == before


def test_cutting_goes_on_with_what_there_is(whole: Path, tmp_path: Path) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    sorted((root / NODE / "data").iterdir())[1].unlink()
    with open_store(root, config("cut")) as store:
        assert store.bounds("t", 0) == (0, COUNT)
        assert store.warnings[0] == "no commitlog file holds 4096 to 8192"


def test_an_entry_store_tells_what_is_missing_or_wrong(tmp_path: Path) -> None:
    sizes = EntryStoreConfig(data_file_size=4096, index_file_size=640)
    with EntryStore(tmp_path / NODE, sizes) as store:
        bodies = [b"%03d" % each * 40 for each in range(COUNT)]
        store.append(bodies, 1)
        store.flush()
        path, begin, _ = entry_at(tmp_path, 5)
        changed(path, begin + ENTRY_HEAD.size + 7, b"#")
        assert [store.get(number).body for number in (4, 6)] == [bodies[4], bodies[6]]
        with pytest.raises(StoreDamaged, match=f"{path} @ {begin}: the CRC of the entry's body is wrong"):
            store.get(5)
    sorted((tmp_path / NODE / "data").iterdir())[1].unlink()
    with pytest.raises(StoreDamaged, match="no data file holds bytes 4096 to 8192 of the log"):
        EntryStore(tmp_path / NODE, sizes)


def test_entries_that_no_checkpoint_calls_agreed_on_become_messages_with_a_word(killed: Path, tmp_path: Path) -> None:
    """A member that was alone and killed looks as a former leader of several does."""
    words = "3 entries, up to entry 62, are taken as agreed on by the group; the checkpoint of the member says 59"
    for takes_over in (False, True):
        root = shutil.copytree(killed, tmp_path / str(takes_over))
        asked = replace(config(), dledger=LedgerConfig(index_file_size=640, takes_over=takes_over))
        for is_first in (True, False):
            with open_store(root, asked) as store:
                assert store.bounds("t", 0) == (0, 63)
                told = [each for each in store.warnings if words in each]
            assert len(told) == (is_first and not takes_over)
