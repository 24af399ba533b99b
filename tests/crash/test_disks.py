"""The disks that other tests rely on: the one in memory behaves like a real one, and forgets only what it may."""

import errno
import os
import random
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import StoreInUse
from rmqstore.files.filesystem import RealFileSystem
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, PowerCut, WatchedDisk

NAMES = st.sampled_from(["a", "b", "d/a", "d/b"])
PLACES = st.integers(0, 10_000)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, PLACES),
        st.tuples(st.just("write"), NAMES, PLACES, st.binary(max_size=40).map(lambda each: each * 50)),
        st.tuples(st.just("read"), NAMES, PLACES, PLACES),
        st.tuples(st.just("truncate"), NAMES, PLACES),
        st.tuples(st.just("store"), NAMES, PLACES, st.binary(max_size=40)),
        st.tuples(st.just("sync"), NAMES),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("sync_directory"), st.sampled_from(["", "d", "e"])),
        st.tuples(st.just("make_directories"), st.sampled_from(["d", "e", "e/f"])),
        st.tuples(st.just("remove_directory"), st.sampled_from(["d", "e", "e/f", "a"])),
        st.tuples(st.just("entries"), st.sampled_from(["", "d", "e", "a"])),
    ),
    max_size=25,
)


def do(disk, root: str, step: tuple):
    """One step on a disk: what it answers, or the number of the error that it raises."""
    verb, name, *rest = step
    path = f"{root}/{name}".rstrip("/")
    try:
        match verb:
            case "create":
                return disk.create(path, rest[0]).size()
            case "write":
                return disk.open(path).write(*rest)
            case "read":
                return disk.open(path).read(*rest)
            case "truncate":
                return disk.open(path).truncate(rest[0])
            case "sync":
                return disk.open(path).sync()
            case "rename":
                return disk.rename(path, f"{root}/{rest[0]}")
            case "entries":
                # A directory's own size is the file system's affair.
                return [(each.name, each.is_directory or each.size, each.is_directory) for each in disk.entries(path)]
            case "store":
                file = disk.open(path)
                room = max(file.size() - rest[0], 0)
                if room:
                    with file.view() as view:
                        view[rest[0] : rest[0] + len(rest[1])] = rest[1][:room]
                return room
            case _:
                return getattr(disk, verb)(path)
    except OSError as error:
        return error.errno


def files_below(root: str) -> dict[str, bytes]:
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                found[os.path.join(directory, name)] = file.read()
    return found


@given(STEPS)
def test_without_a_crash_it_answers_as_a_real_disk(tmp_path_factory, steps) -> None:
    root = str(tmp_path_factory.mktemp("disk"))
    memory, real = MemoryDisk(), RealFileSystem()
    memory.make_directories(f"{root}/d")
    real.make_directories(f"{root}/d")
    for step in steps:
        assert do(memory, root, step) == do(real, root, step), step
    assert memory.image() == files_below(root)
    assert memory.crash("killed").image() == memory.crash("kept").image() == memory.image()
    shutil.rmtree(root)


@given(STEPS, st.integers(0, 2**32))
def test_what_was_synced_is_never_lost(steps, seed) -> None:
    disk = MemoryDisk()
    disk.make_directories("/r/d")
    for step in steps:
        do(disk, "/r", step)
    for path in disk.image():
        disk.open(path).sync()
    for directory in ("/r", "/r/d", "/r/e", "/r/e/f"):
        if disk.exists(directory):
            disk.sync_directory(directory)
    for choose in ("lost", "kept", "killed", random.Random(seed)):
        assert disk.crash(choose).image() == disk.image()


def half_synced() -> MemoryDisk:
    """One file of five pages whose name and first content are durable, and writes that are not."""
    disk = MemoryDisk()
    disk.make_directories("/d")
    file = disk.create("/d/f", 5 * 4096)
    disk.sync_directory("/d")
    for page in range(5):
        file.write(page * 4096, b"1" * 4096)
    file.write(0, b"2" * 100)
    return disk


def test_every_subset_of_pages_can_be_lost() -> None:
    disk, seen = half_synced(), set()
    for seed in range(1500):
        content = disk.crash(random.Random(seed)).image()["/d/f"]
        assert len(content) == 5 * 4096
        seen.add(tuple(content[page * 4096 + 200] for page in range(5)))
        assert content[:100] in (bytes(100), b"1" * 100, b"2" * 100)
    assert len(seen) == 2**5


def test_pages_can_be_torn_at_sectors() -> None:
    disk = half_synced()
    contents = [disk.crash(random.Random(seed)).image()["/d/f"] for seed in range(50)]
    assert any(len(set(content[4096:8192:512])) == 2 for content in contents)


def test_all_is_lost_or_kept_when_asked() -> None:
    disk = half_synced()
    assert disk.crash("lost").image() == {"/d/f": bytes(5 * 4096)}
    assert disk.crash("kept").image() == disk.image()
    assert disk.crash("kept").crash("lost").image() == disk.image()


def test_a_kill_keeps_what_only_a_power_cut_may_take() -> None:
    disk = half_synced()
    disk.create("/d/new", 10)
    killed = disk.crash("killed")
    assert killed.image() == disk.image()
    assert killed.crash("lost").image() == {"/d/f": bytes(5 * 4096)}
    killed.open("/d/f").sync()
    killed.sync_directory("/d")
    assert killed.crash("lost").image() == disk.image()
    assert disk.crash("lost").image() == {"/d/f": bytes(5 * 4096)}


def test_a_view_is_pages_that_may_be_lost_until_a_sync() -> None:
    disk = MemoryDisk()
    disk.put_file("/f", bytes(3 * 4096))
    file = disk.open("/f")
    view = file.view()
    view[10], view[9000] = 1, 2
    seen = {(image[10], image[9000]) for image in (disk.crash(random.Random(s)).image()["/f"] for s in range(40))}
    assert seen == {(0, 0), (1, 0), (0, 2), (1, 2)}
    file.sync()
    view[10] = 3
    file.write(20, b"x")
    assert (disk.crash("lost").image()["/f"][10], disk.crash("kept").image()["/f"][10]) == (1, 3)


@pytest.mark.parametrize("size", [0, 5000, 20_000])
def test_a_size_that_was_not_synced_may_be_the_old_or_the_new(size) -> None:
    disk = MemoryDisk()
    disk.put_file("/f", b"x" * 10_000)
    disk.open("/f").truncate(size)
    sizes = {len(disk.crash(random.Random(seed)).image()["/f"]) for seed in range(40)}
    assert {10_000, size} <= sizes
    assert (len(disk.crash("lost").image()["/f"]), len(disk.crash("kept").image()["/f"])) == (10_000, size)


def test_names_are_lost_or_kept_one_by_one_and_a_rename_is_one_step() -> None:
    disk = MemoryDisk()
    disk.put_file("/d/old", b"old")
    disk.put_file("/d/gone", b"gone")
    disk.put_file("/d/tmp", b"new")
    disk.rename("/d/tmp", "/d/old")
    disk.remove("/d/gone")
    disk.create("/d/made", 1)
    outcomes = [disk.crash(random.Random(seed)).image() for seed in range(200)]
    assert {image["/d/old"] for image in outcomes} == {b"old", b"new"}
    assert all((image["/d/old"] == b"old") == ("/d/tmp" in image) for image in outcomes)
    assert {("/d/gone" in image, "/d/made" in image) for image in outcomes} == {
        (True, True), (True, False), (False, True), (False, False),
    }  # fmt: skip
    disk.sync_directory("/d")
    assert disk.crash("lost").image() == {"/d/old": b"new", "/d/made": b"\0"}


def test_a_removed_file_that_comes_back_has_its_durable_content() -> None:
    disk = MemoryDisk()
    disk.put_file("/f", b"first")
    disk.open("/f").write(0, b"later")
    disk.remove("/f")
    assert disk.crash("lost").image() == {"/f": b"first"}
    assert disk.crash("kept").image() == {}


def test_a_crash_releases_locks_and_a_second_lock_is_refused() -> None:
    disk = MemoryDisk()
    held = disk.lock("/lock")
    with pytest.raises(StoreInUse):
        disk.lock("/lock")
    disk.crash("kept").lock("/lock")
    held.release()
    held.release()
    assert disk.lock("/lock").is_held


def test_closed_files_refuse() -> None:
    file = MemoryDisk().create("/f", 5)
    file.close()
    for use in (file.size, file.sync, file.view, lambda: file.read(0, 1), lambda: file.write(0, b"x")):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()


def test_a_full_memory_disk_has_no_room() -> None:
    disk = MemoryDisk(free=100)
    with pytest.raises(OSError, match="No space left"):
        disk.create("/f", 101)
    assert (disk.image(), disk.free_bytes("/")) == ({}, 100)


# --- disks that fail ---


def workload(disk) -> None:
    """Eight operations."""
    disk.make_directories("/d")
    file = disk.create("/d/f", 4096)
    disk.sync_directory("/d")
    file.write(0, b"abcdef")
    file.sync()
    file.truncate(8192)
    disk.rename("/d/f", "/d/g")
    disk.remove("/d/g")


def test_operations_are_counted_and_traced() -> None:
    disk = WatchedDisk(MemoryDisk(), keep_trace=True)
    workload(disk)
    assert [each.verb for each in disk.trace] == [
        "make_directories", "create", "sync_directory", "write", "sync", "truncate", "rename", "remove",
    ]  # fmt: skip
    assert [each.number for each in disk.trace] == list(range(1, 9))


@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_the_nth_operation_fails(at, error) -> None:
    disk = FailingDisk(MemoryDisk(), at, error)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what is checked
        workload(disk)
    assert (caught.value.errno, disk.failed.number, disk.operations) == (error, at, at)


def test_it_fails_once_or_for_ever() -> None:
    once, forever = (FailingDisk(MemoryDisk(), 2, errno.EIO, forever=each) for each in (False, True))
    for disk in (once, forever):
        disk.make_directories("/d")
        with pytest.raises(OSError, match="Input/output"):
            disk.create("/d/f", 0)
    once.create("/d/f", 0)
    with pytest.raises(OSError, match="Input/output"):
        forever.create("/d/f", 0)
    assert forever.entries("/d") == []


def test_a_short_write_leaves_its_first_half() -> None:
    disk = FailingDisk(MemoryDisk(), 2, "short")
    file = disk.create("/f", 10)
    with pytest.raises(OSError, match="No space left"):
        file.write(2, b"abcdef")
    assert file.read(0, 10) == b"\0\0abc" + bytes(5)


def test_what_a_failed_sync_lost_is_lost_though_later_syncs_succeed() -> None:
    memory = MemoryDisk()
    memory.put_file("/f", bytes(4096))
    disk = FailingDisk(memory, 2, errno.EIO)
    file = disk.open("/f")
    file.write(0, b"lost")
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.write(10, b"held")
    file.sync()
    assert file.read(0, 14) == b"lost" + bytes(6) + b"held"
    assert memory.crash("lost").image()["/f"][:14] == memory.crash("kept").image()["/f"][:14] == bytes(10) + b"held"


@pytest.mark.parametrize("at", range(1, 9))
def test_after_the_power_cut_nothing_works(at) -> None:
    memory = MemoryDisk()
    disk = CrashAt(memory, at)
    with pytest.raises(PowerCut):
        workload(disk)
    for use in (lambda: disk.entries("/"), lambda: disk.open("/d/f"), lambda: disk.exists("/"), lambda: workload(disk)):
        with pytest.raises(PowerCut):
            use()
    memory.crash("kept").make_directories("/again")


def test_a_power_cut_while_a_file_is_made_leaves_any_part_of_it() -> None:
    memory = MemoryDisk()
    with pytest.raises(PowerCut):
        workload(CrashAt(memory, 2))
    sizes = {len(memory.crash(random.Random(seed)).image().get("/d/f", b"gone")) for seed in range(60)}
    assert {0, 4, 4096} < sizes
    assert memory.crash("lost").image() == {}


def test_without_a_place_it_only_counts() -> None:
    disk = CrashAt(MemoryDisk())
    workload(disk)
    assert (disk.operations, disk.is_off) == (8, False)
