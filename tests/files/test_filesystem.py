"""The real file system: what is written is there, what fails leaves nothing behind, nothing leads out of the store."""

import errno
import os
import resource
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqstore.errors import NotAStore
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.real_file import byte_size

FS = RealFileSystem()


@contextmanager
def file_size_limit(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def made(tmp_path, size=0, name="file"):
    return FS.create(str(tmp_path / name), size)


def test_a_new_file_has_its_size_really_allocated_and_zero(tmp_path) -> None:
    file = made(tmp_path, 1_000_000)
    status = os.stat(file.path)
    assert (file.size(), status.st_blocks * 512 >= 1_000_000) == (1_000_000, True)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert file.read(0, 2_000_000) == bytes(1_000_000)


def test_a_new_file_never_replaces_one(tmp_path) -> None:
    (tmp_path / "file").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        made(tmp_path, 10)
    assert (tmp_path / "file").read_bytes() == b"precious"


def test_a_file_too_large_for_the_limit_leaves_nothing(tmp_path) -> None:
    with file_size_limit(1 << 20), pytest.raises(OSError, match="too large"):
        made(tmp_path, 2 << 20)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_no_partly_grown_file(tmp_path, monkeypatch) -> None:
    def grow_and_fail(descriptor, position, size):
        os.ftruncate(descriptor, size // 3)  # what ext4 does
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", grow_and_fail)
    with pytest.raises(OSError, match="No space left"):
        made(tmp_path, 1 << 20)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_where_the_system_cannot_allocate_zeros_are_written(tmp_path, monkeypatch, number) -> None:
    def refuse(*_):
        raise OSError(number, "refused")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = made(tmp_path, (1 << 20) + 5)
    assert file.read(0, 2 << 20) == bytes((1 << 20) + 5)
    assert os.stat(file.path).st_blocks * 512 >= 1 << 20


def test_a_failed_sync_of_a_new_file_leaves_nothing(tmp_path, monkeypatch) -> None:
    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("rmqstore.files.real_file._sync_data", fail)
    with pytest.raises(OSError, match="Input/output"):
        made(tmp_path, 4096)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "data",
    [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4], memoryview(b"\1\0\0\0\2\0\0\0").cast("i")],
    ids=["bytes", "bytearray", "slice", "numbers"],
)
def test_any_buffer_is_written_whole(tmp_path, data) -> None:
    file = made(tmp_path, 20)
    file.write(3, data)
    assert file.read(0, 20) == (b"\0\0\0" + bytes(data)).ljust(20, b"\0")
    assert byte_size(data) == len(bytes(data))


@pytest.mark.parametrize("data", [bytes(range(200)), memoryview(bytes(range(200))).cast("q")], ids=["bytes", "numbers"])
def test_short_writes_are_gone_on_with(tmp_path, monkeypatch, data) -> None:
    file, whole = made(tmp_path, 300), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, part, at: whole(fd, bytes(part)[:7], at))
    file.write(50, data)
    assert file.read(50, 200) == bytes(range(200))
    assert file.read(250, 50) == bytes(50)


def test_a_disk_that_takes_nothing_is_an_error(tmp_path, monkeypatch) -> None:
    file = made(tmp_path, 300)
    monkeypatch.setattr(os, "pwrite", lambda fd, part, at: 0)
    with pytest.raises(OSError, match="took no byte"):
        file.write(0, b"abc")


def test_a_short_write_and_then_no_room_is_an_error(tmp_path) -> None:
    file = made(tmp_path)
    with file_size_limit(100), pytest.raises(OSError, match="too large"):
        file.write(90, bytes(50))


def test_a_sync_asks_the_system_for_that_very_file(tmp_path, monkeypatch) -> None:
    """No test without a power cut can tell by the bytes: the page cache has them either way."""
    asked = []

    def sync(descriptor):
        asked.append(os.path.samestat(os.fstat(descriptor), os.stat(tmp_path / "file")))

    file = made(tmp_path, 10)
    monkeypatch.setattr("rmqstore.files.real_file._sync_data", sync)
    file.write(0, b"x")
    assert asked == []
    file.sync()
    assert asked == [True]


def test_a_new_file_is_synced_before_anybody_has_it(tmp_path, monkeypatch) -> None:
    sizes = []
    monkeypatch.setattr(
        "rmqstore.files.real_file._sync_data", lambda descriptor: sizes.append(os.fstat(descriptor).st_size)
    )
    made(tmp_path, 4096)
    assert sizes == [4096]


def test_a_sync_of_a_directory_asks_the_system_for_that_very_directory(tmp_path, monkeypatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    asked = []

    def sync(descriptor):
        asked.extend(
            path for path in (tmp_path, *tmp_path.rglob("*")) if os.path.samestat(os.fstat(descriptor), os.stat(path))
        )

    monkeypatch.setattr(os, "fsync", sync)
    FS.sync_directory(str(tmp_path / "a"))
    assert asked == [tmp_path / "a"]
    FS.make_directories(str(tmp_path / "a" / "b" / "c"))
    assert asked == [tmp_path / "a", tmp_path / "a", tmp_path / "a" / "b"]


def test_a_write_behind_the_end_grows_the_file(tmp_path) -> None:
    file = made(tmp_path)
    file.write(5, b"x")
    assert file.read(0, 100) == b"\0\0\0\0\0x"


@pytest.mark.parametrize(("position", "size", "read"), [(8, 5, b"89"), (10, 1, b""), (99, 1 << 40, b""), (0, 0, b"")])
def test_reading_ends_where_the_file_ends(tmp_path, position, size, read) -> None:
    file = made(tmp_path)
    file.write(0, b"0123456789")
    assert file.read(position, size) == read


def test_a_hostile_size_allocates_no_more_than_the_file_has(tmp_path) -> None:
    file = made(tmp_path, 100)
    assert len(file.read(10, 1 << 50)) == 90


def test_a_file_cut_by_somebody_else_reads_short(tmp_path) -> None:
    file = made(tmp_path, 200_000)
    os.truncate(file.path, 1000)
    assert (len(file.read(0, 200_000)), len(file.read(0, 2000)), file.read(5000, 10)) == (1000, 1000, b"")


def test_reads_in_parts_are_put_together(tmp_path, monkeypatch) -> None:
    file, whole = made(tmp_path), os.pread
    file.write(0, bytes(range(100)))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: whole(fd, min(size, 13), at))
    assert file.read(5, 90) == bytes(range(5, 95))
    assert file.read(5, 900) == bytes(range(5, 100))


def test_a_removed_file_goes_on_for_who_has_it_open(tmp_path) -> None:
    file = made(tmp_path, 10)
    FS.remove(file.path)
    file.write(0, b"still")
    assert file.read(0, 5) == b"still"
    assert not FS.exists(file.path)


def test_a_closed_file_refuses_and_its_view_lives(tmp_path) -> None:
    file = made(tmp_path, 4096)
    view = file.view()
    file.close()
    file.close()
    for use in (
        file.size,
        file.sync,
        lambda: file.data_ranges(0),
        lambda: file.read(0, 1),
        lambda: file.write(0, b"x"),
        lambda: file.truncate(0),
    ):
        with pytest.raises(OSError, match="Bad file descriptor"):
            use()
    view[:2] = b"ab"
    assert FS.open(file.path).read(0, 2) == b"ab"


def test_the_last_user_closes_a_file(tmp_path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file = made(tmp_path, 10)
    also = file
    del file
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del also
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_view_and_writes_see_each_other(tmp_path) -> None:
    file = made(tmp_path, 8192)
    view = file.view()
    view[4096:4100] = b"view"
    file.write(10, b"file")
    file.sync()
    assert (file.read(4096, 4), bytes(view[10:14])) == (b"view", b"file")
    file.truncate(16384)
    assert len(file.view()) == 16384


@pytest.mark.parametrize("part", [(0, 20_000), (1, 5), (4095, 8194), (19_999, 100_000)])
def test_forgotten_bytes_are_still_there(tmp_path, part) -> None:
    file = FS.create(str(tmp_path / "f"), 0)
    data = bytes(range(250)) * 80
    file.write(0, data)
    file.forget(*part)  # not durable yet: kept all the same
    file.sync()
    file.forget(*part)
    assert file.read(0, len(data)) == data


def test_data_ranges_leave_out_only_what_was_never_written(tmp_path) -> None:
    file = made(tmp_path, 64 << 20)
    assert sum(high - low for low, high in file.data_ranges(0)) <= 64 << 20
    for position in (5_000, 30_000_000):
        file.write(position, b"x")
    ranges = file.data_ranges(100)
    assert ranges == sorted(ranges)
    for position in (5_000, 30_000_000):
        assert any(low <= position < high for low, high in ranges)
    assert file.data_ranges(64 << 20) == file.data_ranges(1 << 40) == []
    assert all(low >= 6_000 for low, _ in file.data_ranges(6_000))
    assert file.next_data(0) <= 5_000
    assert 6_000 <= file.next_data(6_000) <= 30_000_000
    assert (file.next_data(64 << 20), file.next_data(1 << 40)) == (64 << 20, 1 << 40)


def test_all_is_data_where_the_system_cannot_tell(tmp_path, monkeypatch) -> None:
    file = made(tmp_path, 1000)

    def refuse(*_):
        raise OSError(errno.EINVAL, "refused")

    monkeypatch.setattr(os, "lseek", refuse)
    assert file.data_ranges(5) == [(5, 1000)]
    assert file.next_data(5) == 5


def test_links_and_what_is_no_file_are_not_opened(tmp_path) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name in ("link", "dangling", "pipe", "directory"):
        with pytest.raises(NotAStore, match=f"{name}: is a .*, not an ordinary file; move it"):
            FS.open(str(tmp_path / name))
        with pytest.raises(FileExistsError):
            FS.create(str(tmp_path / name), 0)
    with pytest.raises(FileNotFoundError):
        FS.open(str(tmp_path / "absent"))


def test_a_descriptor_is_not_inherited(tmp_path) -> None:
    path = str(tmp_path / "file")
    file = FS.create(path, 0)
    (descriptor,) = (each for each in map(int, os.listdir("/proc/self/fd")) if _name_of(each) == path)
    assert not os.get_inheritable(descriptor)
    file.close()


def _name_of(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # that of the list itself
        return ""


def test_entries_are_sorted_and_say_what_they_are(tmp_path) -> None:
    (tmp_path / "b").write_bytes(b"12345")
    (tmp_path / "a").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.utime(tmp_path / "b", ns=(0, 1_234_567_890))
    entries = FS.entries(str(tmp_path))
    assert [(each.name, each.is_directory) for each in entries] == [("a", True), ("b", False)]
    assert (entries[1].size, entries[1].modified_ms) == (5, 1234)
    assert FS.entries(str(tmp_path / "absent")) == FS.entries(str(tmp_path / "b")) == []


def test_directories_are_made_from_the_top_each_synced_into_its_parent(tmp_path) -> None:
    synced = []

    class Watched(RealFileSystem):
        def sync_directory(self, path):
            synced.append(os.path.relpath(path, tmp_path))
            super().sync_directory(path)

    Watched().make_directories(str(tmp_path / "a" / "b" / "c"))
    assert synced == ["..", ".", "a", "a/b"]  # the first: tmp_path itself may be what a killed process left undone
    assert stat.S_IMODE(os.stat(tmp_path / "a" / "b").st_mode) == 0o700
    Watched().make_directories(str(tmp_path / "a" / "b" / "c"))


def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotAStore, match="file: is a file, not a directory; move it"):
        FS.make_directories(str(tmp_path / "file" / "below"))


def test_names_are_renamed_and_removed(tmp_path) -> None:
    made(tmp_path, 3, "a")
    made(tmp_path, 5, "b")
    FS.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    assert [(each.name, each.size) for each in FS.entries(str(tmp_path))] == [("b", 3)]
    FS.remove(str(tmp_path / "b"))
    FS.sync_directory(str(tmp_path))
    FS.remove_directory(str(tmp_path))
    assert not FS.exists(str(tmp_path))


def test_free_bytes_are_some(tmp_path) -> None:
    assert FS.free_bytes(str(tmp_path)) > 0


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_disk_fault_is_an_exception(tmp_path, monkeypatch, number) -> None:
    """RocketMQ #9693, #1790: a device that fails or goes read-only raises, where a mapped file ends the process."""
    file = made(tmp_path, 10)

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what is checked
        file.write(0, b"x")
    assert caught.value.errno == number


def test_a_file_gets_its_name_when_it_is_whole(tmp_path, monkeypatch) -> None:
    """RocketMQ 4.9 refuses a store with a log file of another length: a killed process must not leave one."""
    seen = []
    allocate = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", lambda *room: (seen.append(os.listdir(tmp_path)), allocate(*room)))
    made(tmp_path, 4096)
    assert seen == [[]]
    assert os.listdir(tmp_path) == ["file"]


@pytest.fixture(params=["open", "link"])
def no_nameless_files(request, monkeypatch):
    """A system without O_TMPFILE, or without /proc."""
    open_file = os.open

    def open_named(path, flags, *more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return open_file(path, flags, *more)

    def link(*_, **__):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(os, request.param, open_named if request.param == "open" else link)


def test_files_come_about_where_none_can_be_nameless(tmp_path, no_nameless_files) -> None:
    made(tmp_path, 4096)
    assert (tmp_path / "file").read_bytes() == bytes(4096)


def test_nor_do_they_leave_anything_there_when_they_fail(tmp_path, no_nameless_files, monkeypatch) -> None:
    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("rmqstore.files.real_file._sync_data", fail)
    with pytest.raises(OSError, match="Input/output"):
        made(tmp_path, 4096)
    assert os.listdir(tmp_path) == []


def test_links_are_told_from_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("room")
    (tmp_path / "lost").symlink_to("nowhere")
    fs = RealFileSystem()
    assert fs.links(str(tmp_path)) == ["link", "lost"]
    assert fs.links(str(tmp_path / "nowhere")) == fs.links(str(tmp_path / "file")) == []
    assert [name for name in ("room", "file", "link", "lost") if fs.is_directory(str(tmp_path / name))] == [
        "room",
        "link",
    ]
    assert [name for name in ("room", "file", "link", "lost") if fs.is_apart(str(tmp_path / name))] == ["link", "lost"]
    assert fs.is_apart("/proc")
