"""A store is looked at in the same way on whatever disk it lies: on the host's, and in a test's memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.directory import config_files
from rmqstore.directory.deleted_topics import deleted_topics
from rmqstore.directory.index_files import finds_all, index_files
from rmqstore.directory.layouts import load_checkpoint, rocksdb_queues, root_hint
from rmqstore.directory.listing import numbered_files, seen_entries, stored_files
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import sound_end
from rmqstore.directory.queue_files import find_queues, open_queue
from rmqstore.directory.walk import WalkLimits, walk
from rmqstore.errors import DataLost, NotAStore
from rmqstore.files.disk import ReadableDisk, directory_of, join
from rmqstore.files.reading import LOCAL
from rmqstore.formats.deleted_topics import DeletedTopic, deleted_topics_text
from tests.crash.disks import MemoryDisk
from tests.log.recovering import ROOT, settled
from tests.snapshot.small_store import SmallStore


@pytest.fixture(scope="module")
def memory() -> MemoryDisk:
    store = SmallStore(file_size=4096)
    for number in range(60):
        store.add(topic=f"T{number % 3}", body=b"%d" % number, properties={"KEYS": f"k{number}"})
    disk = settled(store)
    disk.put_file(join(ROOT, "config", "topics.json"), b"{torn")
    disk.put_file(join(ROOT, "config", "topics.json.bak"), b'{"topicConfigTable": {"T0": {"topicName": "T0"}}}')
    disk.put_file(join(ROOT, "config", "deletedTopics.json"), deleted_topics_text({"D": DeletedTopic(9)}).encode())
    return disk


@pytest.fixture(scope="module")
def host_root(memory: MemoryDisk, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same store on the host's disk."""
    top = tmp_path_factory.mktemp("host")
    for path, data in memory.image().items():
        place = Path(f"{top}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return f"{top}{ROOT}"


def seen(disk: ReadableDisk, root: str, *, is_mapped: bool) -> Iterator[object]:
    """Everything that can be asked of a store, without paths and times."""
    files = stored_files(disk, join(root, "commitlog"))
    yield [(file.start, file.size) for file in files]
    yield len(numbered_files(disk, root).strays)
    with LogView(disk, files, files[-1].end if is_mapped else 0, files[-1].end) as view:
        for found in walk(view, WalkLimits(files[0].start, view.end, crc_from=0)):
            yield type(found), found.reasons.tolist() if hasattr(found, "reasons") else found
        for queue in find_queues(disk, root):
            end = sound_end(queue, view)
            yield queue.topic, queue.queue_id, end, queue.read(queue.first_slot(), end).tolist()
        record = view.whole_record(files[0].start, int.from_bytes(view.read(files[0].start, 4), "big"))
        assert record is not None
        yield record
        offsets = view.record_at(files[0].start)
        assert offsets is not None
        yield [page.positions.tolist() for page in view.gather(offsets.offsets, offsets.sizes) if not page.lost]
    for index in index_files(disk, root, is_mapped):
        yield index.header, index.slot_count, index.item_count, finds_all(disk, index, is_mapped)
    yield load_checkpoint(disk, root), rocksdb_queues(disk, root), root_hint(disk, directory_of(root), ["store"])[:12]
    yield config_files.topics(disk, root), config_files.consumer_offsets(disk, root), deleted_topics(disk, root)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_store_is_the_same_on_every_disk(memory: MemoryDisk, host_root: str, is_mapped: bool) -> None:
    in_memory, on_host = (list(seen(*where, is_mapped=is_mapped)) for where in ((memory, ROOT), (LOCAL, host_root)))
    assert len(in_memory) > 12
    assert str(in_memory) == str(on_host)


def test_a_file_that_goes_is_told_by_its_slots_on_every_disk(memory: MemoryDisk) -> None:
    disk = memory.crash("kept")
    queue = open_queue(disk, ROOT, "T1", 0, "SimpleCQ")
    disk.remove(queue.files[-1].path)
    with pytest.raises(DataLost, match="T1/0"):
        queue.read(queue.first_slot(), queue.first_slot() + 100)
    with pytest.raises(DataLost):
        queue.unbroken_end()


def test_a_link_in_a_circle_is_passed_over_by_whoever_only_lists(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "loop").symlink_to("loop")
    (tmp_path / "config" / "inner").mkdir()
    (tmp_path / "config" / "linked").symlink_to("inner")
    (tmp_path / "config" / "topics.json").write_bytes(b"{}")
    with pytest.raises(NotAStore, match="loop"):
        LOCAL.entries(str(tmp_path / "config"))
    seen = seen_entries(LOCAL, str(tmp_path / "config"))
    assert [(entry.name, entry.is_directory, entry.is_link) for entry in seen] == [
        ("inner", True, False), ("linked", True, True), ("topics.json", False, False),
    ]  # fmt: skip
    assert seen[-1].size == 2
