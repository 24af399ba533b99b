"""The mark of being open: there before anything is changed, gone only when all is on the disk, and what it notes."""

import os
import shutil
from pathlib import Path

import pytest

from rmqstore import NotAStore, open_store, recovery_plan
from rmqstore.core.message import Message
from rmqstore.engine.log.opening import mark_closed, mark_open, mark_unsynced
from rmqstore.engine.store import Store
from rmqstore.files.filesystem import join
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk, Operation, WatchedDisk
from tests.crash.workload import ASYNC, ROOT, SYNC, open_again

ABORT = join(ROOT, "abort")


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directories(ROOT)
    return disk


def test_the_mark_is_durable_before_anything_else_happens() -> None:
    disk = new_disk()
    mark_open(disk, ROOT)
    assert disk.crash("lost").exists(ABORT)
    mark_closed(disk, ROOT)
    assert not disk.crash("lost").exists(ABORT)
    mark_closed(disk, ROOT)  # once more does nothing


def test_the_mark_of_a_store_that_was_not_closed_is_made_durable_anew() -> None:
    """Whoever made it may have been killed before its name was on the disk."""
    disk = new_disk()
    disk.create(ABORT, 0)
    mark_open(disk, ROOT)
    assert disk.crash("lost").exists(ABORT)


def test_the_lowest_place_that_may_be_in_memory_only_stays_noted() -> None:
    disk = new_disk()
    mark_open(disk, ROOT)
    for offset in (500, 200, 900):
        mark_unsynced(disk, ROOT, offset)
    assert disk.image()[ABORT].startswith(b"unsynced from 200\n")


class _AtClose(WatchedDisk):
    """Keeps what a power cut would leave at the moment when the mark is taken away."""

    left: MemoryDisk | None = None

    def before(self, operation: Operation) -> None:
        if (operation.verb, operation.path) == ("remove", ABORT) and self.left is None:
            assert isinstance(self.inner, MemoryDisk)
            self.left = self.inner.crash("lost")


@pytest.mark.parametrize("config", [SYNC, ASYNC], ids=["SYNC", "ASYNC"])
def test_the_mark_goes_when_all_is_on_the_disk(config) -> None:
    """A broker that finds none takes the queues as they are."""
    disk = _AtClose(MemoryDisk())
    store: Store = open_again(disk, config)
    for number in range(9):
        store.put(Message("orders", b"%d" % number, keys=f"key{number}", queue_id=number % 2))
    store.close()
    assert disk.left is not None
    at_the_end = disk.inner.image()  # type: ignore[attr-defined]
    assert disk.left.image() == at_the_end | {ABORT: disk.left.image()[ABORT]}


def _filled(root: Path, is_closed: bool) -> None:
    store = open_store(root)
    for number in range(40):
        store.put(Message(f"t{number % 2}", b"%d" % number, keys=[f"k{number}"]))
    Probe(store).catch_up()
    store.close() if is_closed else Probe(store).crash()


def _files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("place", [
    "index", "consumequeue", "consumequeue/t0", "consumequeue/t0/0", "config", "config/topics.json", "checkpoint",
    "config/consumerOffset.json",
])  # fmt: skip
def test_an_opening_that_cannot_use_a_place_changes_nothing(tmp_path: Path, place: str, is_closed: bool) -> None:
    """A file stands for a directory, or a directory for a file."""
    root = tmp_path / "store"
    _filled(root, is_closed)
    node = root / place
    if node.suffix or place == "checkpoint":
        node.unlink(missing_ok=True)
        node.mkdir(parents=True)
    else:
        node.mkdir(exist_ok=True)
        shutil.move(node, tmp_path / "aside")
        node.touch()
    before = _files(root)
    for attempt in (open_store, recovery_plan, open_store):
        with pytest.raises(NotAStore, match=f"{node}: "):
            attempt(root)
    assert _files(root) == before
    if node.is_dir():
        node.rmdir()
        return
    node.unlink()
    shutil.move(tmp_path / "aside", node)
    with open_store(root) as store:
        assert [len(store.get(f"t{number}", 0, 0, 100).messages) for number in (0, 1)] == [20, 20]


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("kind", ["FIFO", "link"])
@pytest.mark.parametrize("place", [
    "index", "consumequeue", "consumequeue/t0", "config", "config/topics.json", "checkpoint",
    "config/consumerOffset.json", "config/lmqConsumerOffset.json", "config/delayOffset.json",
])  # fmt: skip
def test_nor_where_a_place_is_a_pipe_or_a_link_that_leads_nowhere(
    tmp_path: Path, place: str, kind: str, is_closed: bool
) -> None:
    """A link leads, as a rule, to a disk that is not mounted today: nothing is made in the place of what is there."""
    root = tmp_path / "store"
    _filled(root, is_closed)
    node = root / place
    node.mkdir(exist_ok=True) if "." not in node.name and not node.exists() else None
    if node.exists():
        shutil.move(node, tmp_path / "aside")
    os.mkfifo(node) if kind == "FIFO" else node.symlink_to(tmp_path / "not" / "mounted")
    before = _files(root)
    for attempt in (open_store, recovery_plan, open_store):
        with pytest.raises(NotAStore, match=f"{node}: is "):
            attempt(root)
    assert _files(root) == before


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_a_queue_that_is_a_link_that_leads_nowhere_is_named(tmp_path: Path, is_closed: bool) -> None:
    root = tmp_path / "store"
    _filled(root, is_closed)
    node = root / "consumequeue" / "t0" / "0"
    shutil.move(node, tmp_path / "aside")
    node.symlink_to(tmp_path / "not")
    for _ in range(2):
        with pytest.raises(NotAStore, match=f"{node}: is a symbolic link that leads nowhere"):
            open_store(root)
    (tmp_path / "aside").rename(tmp_path / "not")
    with open_store(root) as store:
        assert [len(store.get(f"t{number}", 0, 0, 100).messages) for number in (0, 1)] == [20, 20]
