"""The queues of one store beside the commitlog of another: told by whoever opens them, and nothing is changed."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqstore import Corrupt, Message, NotAStore, StoreConfig, open_snapshot, open_store
from rmqstore.cli import main

pytestmark = pytest.mark.stores

SIZES = {"log_file_size": 65536, "queue_file_size": 2000, "preallocate": False, "index_slot_count": 50,
         "index_item_count": 200}  # fmt: skip


def config_of(log: Path, **more: str) -> StoreConfig:
    return StoreConfig(**SIZES, log_paths=(str(log),), **more)  # type: ignore[arg-type]


def make(root: Path, topic: str, size: int, count: int = 300) -> Path:
    """A store whose commitlog lies beside it."""
    with open_store(root, config_of(root.with_suffix(".log")), workers=False) as store:
        for number in range(count):
            store.put(Message(topic, bytes(size + number % 7), queue_id=number % 4, keys=[f"k{number}"]))
    return root


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("stores")
    make(base / "mine", "orders", 100)
    make(base / "other-topic", "payments", 80)
    make(base / "same-topic", "orders", 90)
    make(base / "longer", "payments", 200, 900)
    make(base / "tiny", "payments", 10, 2)
    return base


OTHERS = ["other-topic", "same-topic", "longer", "tiny"]


@pytest.mark.parametrize("other", OTHERS)
def test_a_reader_is_told_of_anothers_log(other: str, stores: Path) -> None:
    log = stores / f"{other}.log"
    with pytest.raises(
        NotAStore, match=rf"{stores}/mine: its queues and the commitlog in {log} are of two stores: entry"
    ):
        open_snapshot([[stores / "mine", log]])
    told = CliRunner().invoke(main, ["verify", str(stores / "mine"), str(log)])
    assert told.exit_code == 1  # verify lists it all
    assert open_snapshot([[stores / "mine", stores / "mine.log"]]).scan().read_all().num_rows == 300


@pytest.mark.parametrize("other", OTHERS)
def test_who_writes_is_refused_with_nothing_changed(other: str, stores: Path, tmp_path: Path) -> None:
    base = shutil.copytree(stores, tmp_path / "stores")
    before = files_of(base)
    with pytest.raises(NotAStore, match=r"are of two stores: .*storePathCommitLog"):
        open_store(base / "mine", config_of(base / f"{other}.log"), workers=False)
    after = files_of(base)
    assert {path: data for path, data in after.items() if not path.endswith("/lock")} == {
        path: data for path, data in before.items() if not path.endswith("/lock")
    }
    with open_store(base / "mine", config_of(base / "mine.log"), workers=False) as store:
        assert store.message_at(0).body == bytes(100)
    with open_store(base / "mine", config_of(base / f"{other}.log", on_middle_damage="cut"), workers=False) as store:
        assert store.message_at(0).body != bytes(100)


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_queue_that_leads_astray_beside_one_that_does_not_is_damage(
    damaged: int, stores: Path, tmp_path: Path
) -> None:
    base = shutil.copytree(stores, tmp_path / "stores")
    paths = sorted((base / "mine" / "consumequeue" / "orders").glob("*/0*"))
    for path in paths[damaged : damaged + 3]:
        data = bytearray(path.read_bytes())
        for at in range(7, 1500, 20):
            data[at] ^= 1
        path.write_bytes(data)
    snapshot = open_snapshot([[base / "mine", base / "mine.log"]])
    with pytest.raises(Corrupt):
        snapshot.scan(scan_mode="queue", verify_crc="always").read_all()


def test_a_log_whose_beginning_is_damaged_is_not_anothers(stores: Path, tmp_path: Path) -> None:
    base = shutil.copytree(stores, tmp_path / "stores")
    for path in (base / "mine.log").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert open_snapshot([[base / "mine", base / "mine.log"]]).stores[0].damage
