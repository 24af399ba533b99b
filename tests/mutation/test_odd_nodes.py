"""FIFOs, devices, sockets and directories where files should stand: nobody waits for them, nobody falls over them."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore import Message, StoreConfig, StoreError, open_snapshot, open_store
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.errors import NotAStore
from rmqstore.files.reading import LocalDisk
from rmqstore.snapshot.verify import verify
from tests.mutation.damage import no_hang

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(flush="SYNC", log_file_size=65536, queue_file_size=2000, index_slot_count=50, index_item_count=200,
                     preallocate=False)  # fmt: skip
PLACES = (
    "lock", "abort", "checkpoint", "brokerIdentity", "commitlog/00000000000000065536",
    "consumequeue/orders/0/00000000000000002000", "consumequeue/new/0/00000000000000000000", "index/20991231235959999",
    "config/topics.json", "config/topics.json.bak", "config/consumerOffset.json", "config/delayOffset.json",
    "config/deletedTopics.json", "sink/w/intent.json", "sink/w/committed.json",
    "consumequeue_ext/orders/0/00000000000000000000",
)  # fmt: skip


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket holds only a hundred bytes
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


NODES: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "socket": make_socket,
    "directory": Path.mkdir,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a fifo": lambda path: (os.mkfifo(f"{path}.fifo"), path.symlink_to(f"{path}.fifo")),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "store"
    with open_store(root, CONFIG, workers=False) as store:
        for number in range(20):
            store.put(Message("orders", b"body %d" % number, tags="a", keys=["k"], queue_id=0))
        store.flush()
    return root


@pytest.fixture
def with_node(sound: Path, tmp_path: Path) -> Callable[[str, str], Path]:
    def made(place: str, node: str) -> Path:
        root = shutil.copytree(sound, tmp_path / "store")
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        NODES[node](path)
        return root

    return made


def read_all(root: Path) -> None:
    snapshot = open_snapshot(root)
    snapshot.scan(["orders"]).read_all()
    snapshot.query("orders", "k")
    for name in ("queues", "topics", "groups", "files", "transactions", "delayed"):
        snapshot.table(name)
    list(verify(snapshot.stores[0]))


def write(root: Path) -> None:
    with open_store(root, CONFIG, workers=False) as store:
        store.put(Message("orders", b"more", keys=["k"]))
        store.query("orders", "k")
        store.flush()


def plan(root: Path) -> None:
    plan_recovery(LocalDisk(), str(root), CONFIG)


LOOKS = {"read": read_all, "write": write, "plan": plan}


@pytest.mark.some(4)
@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_ordinary_file_is_named_or_passed_over_at_once(
    place: str, node: str, with_node: Callable[[str, str], Path]
) -> None:
    root = with_node(place, node)
    for look in LOOKS.values():
        with no_hang():
            try:
                look(root)
            except StoreError as error:
                assert Path(place).name in str(error)  # noqa: PT017 - it may also go well


@pytest.mark.parametrize("place", ["checkpoint", "config/topics.json", "brokerIdentity"])
def test_a_reader_says_what_stands_there_and_what_to_do(place: str, with_node: Callable[[str, str], Path]) -> None:
    root = with_node(place, "fifo")
    with no_hang(), pytest.raises(NotAStore, match=f"{place}: is a FIFO, not an ordinary file; move it out"):
        read_all(root)


@pytest.mark.parametrize("place", ["lock", "abort", "checkpoint", "config/topics.json", "index/20991231235959999"])
def test_the_engine_says_what_stands_there_and_what_to_do(place: str, with_node: Callable[[str, str], Path]) -> None:
    root = with_node(place, "fifo")
    with no_hang(), pytest.raises(NotAStore, match=f"{place}: is a FIFO, not an ordinary file; move it out"):
        write(root)


@pytest.mark.parametrize("place", ["config", "index", "commitlog", "consumequeue", "consumequeue/orders/0"])
def test_links_that_lead_round_in_a_circle_are_named(place: str, sound: Path, tmp_path: Path) -> None:
    root = shutil.copytree(sound, tmp_path / "store")
    shutil.rmtree(root / place, ignore_errors=True)
    (root / place).symlink_to(f"{root / place}.other")
    Path(f"{root / place}.other").symlink_to(root / place)
    for look in (write, read_all):
        with pytest.raises(
            NotAStore, match=f"{place}.*; replace or remove the symbolic link that leads back to itself"
        ):
            look(root)


@pytest.mark.parametrize("place", ["config", "index"])
def test_what_stands_in_place_of_a_directory_is_named(place: str, sound: Path, tmp_path: Path) -> None:
    root = shutil.copytree(sound, tmp_path / "store")
    shutil.rmtree(root / place, ignore_errors=True)
    os.mkfifo(root / place)
    with no_hang(), pytest.raises(NotAStore, match=f"{place}: is (?:a FIFO, )?not a directory; move it"):
        write(root)
