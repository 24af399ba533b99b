"""Committed offsets: what was persisted is there after any crash, from many threads."""

import errno
import itertools
import threading
from collections.abc import Sequence

import pytest

from rmqstore.clock import ManualClock
from rmqstore.engine.broker.consumer_offsets import ConsumerOffsets
from rmqstore.errors import Rejected
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.broker_json import consumer_offsets, parse
from tests.broker.scenes import disk_of
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk
from tests.golden.cases import OPENED_CASES, topic_prefix

PATH = "/store/config/consumerOffset.json"
LIGHT = "/store/config/lmqConsumerOffset.json"


def offsets_on(fs: FileSystem, clock: ManualClock | None = None, told: Sequence[str] = ()) -> ConsumerOffsets:
    offsets = ConsumerOffsets(fs, "/store", clock or ManualClock())
    warnings = offsets.load()
    assert len(warnings) == len(told)
    assert all(word in each for word, each in zip(told, warnings, strict=True))
    return offsets


def test_a_commit_is_seen_at_once_and_durable_when_persisted() -> None:
    disk = MemoryDisk()
    offsets = offsets_on(disk)
    assert offsets.committed("g", "t", 0) is None
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "t", 3, 7)
    assert (offsets.committed("g", "t", 0), offsets.committed("g", "t", 1)) == (5, None)
    assert disk.image() == {}
    offsets.persist()
    offsets.commit("g", "t", 0, 6)
    again = offsets_on(disk.crash("lost"))
    assert again.all() == {("g", "t"): {0: 5, 3: 7}}
    assert offsets.all() == {("g", "t"): {0: 6, 3: 7}}


def test_nothing_is_written_when_nothing_changed() -> None:
    disk = MemoryDisk()
    offsets = offsets_on(disk)
    offsets.persist()
    assert disk.operations == 0
    offsets.commit("g", "t", 0, 5)
    offsets.persist()
    operations = disk.operations
    offsets.commit("g", "t", 0, 5)
    offsets.remove_topic("other")
    offsets.persist()
    offsets_on(disk).persist()
    assert disk.operations == operations
    offsets.commit("g", "t", 0, 4)  # a reset goes back
    offsets.persist()
    assert offsets_on(disk).committed("g", "t", 0) == 4


def test_a_step_persists_every_five_seconds() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    offsets = offsets_on(disk, clock)
    offsets.commit("g", "t", 0, 5)
    clock.advance(2000)
    assert offsets.step() == 3.0
    assert disk.image() == {}
    clock.advance(3000)
    assert offsets.step() == 5.0
    assert offsets_on(disk.crash("lost")).committed("g", "t", 0) == 5
    operations = disk.operations
    clock.advance(5000)
    assert offsets.step() == 5.0
    assert disk.operations == operations


def test_a_topic_is_forgotten() -> None:
    disk = MemoryDisk()
    offsets = offsets_on(disk)
    for topic in ("t", "u"):
        offsets.commit("g", topic, 0, 1)
    offsets.persist()
    offsets.remove_topic("t")
    offsets.persist()
    assert offsets_on(disk).all() == {("g", "u"): {0: 1}}


@pytest.mark.parametrize(
    "commit",
    [("a@b", "t", 0, 1), ("", "t", 0, 1), ("g", "t/u", 0, 1), ("g", "t@u", 0, 1), ("g", "t", -1, 1),
     ("g", "t", 2**31, 1), ("g", "t", 0, 2**63)],
)  # fmt: skip
def test_a_commit_that_no_file_could_hold_is_refused(commit) -> None:
    offsets = offsets_on(MemoryDisk())
    with pytest.raises(Rejected):
        offsets.commit(*commit)
    assert offsets.all() == {}


@pytest.mark.parametrize("case", OPENED_CASES)
def test_a_commit_changes_nothing_else_of_a_brokers_file(case: str) -> None:
    """The brokers of 5.5 had enableLmq, and thus the file of light queues alone; its numbers stand on lines of their
    own."""
    disk, normal, slow = disk_of(case), f"{topic_prefix(case)}Normal", f"g_slow_{topic_prefix(case)}"
    path = LIGHT if "5.5.1" in case else PATH
    assert {PATH, LIGHT} & disk.image().keys() == {path}
    text = disk.image()[path].decode()
    offsets = offsets_on(disk)
    assert offsets.all() == consumer_offsets(parse(text))
    assert offsets.committed(slow, normal, 1) == 3
    offsets.commit(slow, normal, 1, 4)
    offsets.persist()
    written = disk.image()[path].decode()
    if path == LIGHT:
        assert consumer_offsets(parse(disk.image()[PATH])) == offsets.all()
        before, after = parse(text), parse(written)
        before["offsetTable"][f"{normal}@{slow}"]["1"] = 4
        assert before.pop("dataVersion")["counter"] < after.pop("dataVersion")["counter"]
        assert after == before
        return
    expected = text.replace(f'"{normal}@{slow}":{{0:2,1:3,', f'"{normal}@{slow}":{{0:2,1:4,')
    assert written.partition('"offsetTable"')[2] == expected.partition('"offsetTable"')[2] != ""
    assert written.partition('"groupTopicMap"')[2] == expected.partition('"groupTopicMap"')[2]
    assert ('"dataVersion"' in written) == ("5.3.3" in case)
    assert LIGHT not in disk.image()


def test_what_is_not_known_is_kept() -> None:
    disk = MemoryDisk()
    disk.put_file(PATH, b'{"offsetTable":{"t@g":{0:1},"a@b@c":{0:9},"odd":7},"more":[1],"groupTopicMap":{"g":["t"]}}')
    offsets = offsets_on(disk, told=("'a@b@c' is ignored", "'odd' is ignored"))
    assert offsets.all() == {("g", "t"): {0: 1}}
    offsets.commit("g", "t", 0, 2)
    offsets.persist()
    document = parse(disk.image()[PATH])
    assert document["offsetTable"] == {"t@g": {"0": 2}, "a@b@c": {"0": 9}, "odd": 7}
    assert document["more"] == [1]


def test_light_groups_have_the_file_that_brokers_with_light_queues_read_instead() -> None:
    disk = MemoryDisk()
    offsets = offsets_on(disk)
    offsets.commit("g", "t", 0, 1)
    offsets.persist()
    assert LIGHT not in disk.image()
    offsets.commit("%LMQ%c", "%LMQ%x", 0, 17)
    offsets.commit("%LMQ%d", "t", 2, 3)
    offsets.persist()
    document = parse(disk.image()[LIGHT])
    assert document["lmqOffsetTable"] == {"%LMQ%x@%LMQ%c": 17}
    assert document["offsetTable"] == {"t@g": {"0": 1}, "t@%LMQ%d": {"2": 3}}
    assert offsets_on(disk).all() == offsets.all() == consumer_offsets(parse(disk.image()[PATH]))


@pytest.mark.parametrize(("light_ms", "committed"), [(1, 5), (2, 5), (3, 8)])
def test_of_both_files_the_later_one_is_right(light_ms: int, committed: int) -> None:
    class DatedDisk(MemoryDisk):
        def entries(self, directory: str):
            times = {"consumerOffset.json": 2, "lmqConsumerOffset.json": light_ms}
            return [type(entry)(entry.name, entry.size, entry.is_directory, times[entry.name])
                    for entry in super().entries(directory)]  # fmt: skip

    disk = DatedDisk()
    disk.put_file(PATH, b'{"offsetTable":{"t@g":{0:5}}}')
    disk.put_file(LIGHT, b'{"offsetTable":{"t@g":{0:8,1:3}},"lmqOffsetTable":{"%LMQ%x@%LMQ%c":17,"odd":1}}')
    offsets = offsets_on(disk, told=["'odd' is ignored"])
    assert offsets.all() == {("g", "t"): {0: committed, 1: 3}, ("%LMQ%c", "%LMQ%x"): {0: 17}}
    offsets.commit("g", "t", 0, 9)
    offsets.persist()
    assert parse(disk.image()[LIGHT])["lmqOffsetTable"] == {"%LMQ%x@%LMQ%c": 17, "odd": 1}
    assert parse(disk.image()[LIGHT])["offsetTable"] == {"t@g": {"0": 9, "1": 3}}
    assert "dataVersion" not in parse(disk.image()[PATH])


def test_a_broken_pair_is_an_empty_table_and_a_warning() -> None:
    disk = MemoryDisk()
    for path in (PATH, f"{PATH}.bak", LIGHT):
        disk.put_file(path, bytes(64))
    warnings = ConsumerOffsets(disk, "/store", ManualClock()).load()
    assert [warning.endswith("an empty table is used") for warning in warnings] == [True, True]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, "short"])
def test_a_failing_disk_leaves_the_old_file_and_is_told(error) -> None:
    def scene() -> MemoryDisk:
        disk = MemoryDisk()
        offsets = offsets_on(disk)
        offsets.commit("g", "t", 0, 1)
        offsets.persist()
        return disk

    def stepped(fs: FileSystem, disk: MemoryDisk) -> ConsumerOffsets:
        clock = ManualClock()
        offsets = offsets_on(fs, clock)
        offsets.commit("g", "t", 0, 2)
        clock.advance(5000)
        assert offsets.step() == 5.0
        if offsets.last_failure is not None:
            assert offsets_on(disk.crash("lost")).committed("g", "t", 0) in (1, 2)
            clock.advance(5000)
            assert offsets.step() == 5.0
            assert offsets.last_failure is None
        assert offsets_on(disk.crash("lost")).committed("g", "t", 0) == 2
        return offsets

    disk = scene()
    whole = CrashAt(disk)
    stepped(whole, disk)
    for at in range(1, whole.operations + 1):
        disk = scene()
        failing = FailingDisk(disk, at, error)
        stepped(failing, disk)
        assert failing.failed is not None


def test_a_disk_that_never_works_again_is_told_by_persist() -> None:
    disk = MemoryDisk()
    offsets = offsets_on(FailingDisk(disk, 1, errno.EIO, forever=True))
    offsets.commit("g", "t", 0, 2)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            offsets.persist()
    assert offsets.committed("g", "t", 0) == 2
    assert disk.crash("lost").image() == {}


@pytest.mark.usefixtures("restless")
def test_commits_of_many_threads_are_written_as_one_state() -> None:
    """Each thread commits two groups one behind the other: in every file the first is ahead by one at most."""
    disk = MemoryDisk()
    offsets = offsets_on(disk)
    for group in ("ahead", *(f"between{number}" for number in range(300)), "behind"):  # so that copying takes its time
        offsets.commit(group, "t", 0, 0)
    seen: list[dict[tuple[str, str], dict[int, int]]] = []

    enough = threading.Event()

    def commit(queue_id: int) -> None:
        for offset in itertools.count(1):
            offsets.commit("ahead", "t", queue_id, offset)
            offsets.commit("behind", "t", queue_id, offset)
            if offset % 100 == 0:  # new entries while the table is copied
                offsets.commit(f"new{queue_id}", f"t{offset}", 0, offset)
            if enough.is_set():
                return

    threads = [threading.Thread(target=commit, args=(queue_id,)) for queue_id in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            offsets.persist()
            seen.append(consumer_offsets(parse(disk.image()[PATH])))
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    offsets.persist()
    seen.append(consumer_offsets(parse(disk.image()[PATH])))
    for table in seen:
        ahead, behind = table["ahead", "t"], table["behind", "t"]
        assert all(0 <= offset - behind.get(queue_id, 0) <= 1 for queue_id, offset in ahead.items())
        assert set(behind) <= set(ahead)
    assert seen[-1] == offsets.all()
    assert seen[-1]["ahead", "t"] == seen[-1]["behind", "t"]
