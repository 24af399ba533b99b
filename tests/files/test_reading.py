"""The read side of the door: what may not be read, paths that are none, files that shrink or grow while mapped."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore import NotAStore, StoreConfig, open_snapshot, open_store
from rmqstore.core.message import Message
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import OpenFile, canonical_path
from tests.store.interrupting import Interrupt, sweep


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A store of one log file."""
    with open_store(tmp_path / "store", StoreConfig(preallocate=False), workers=False) as store:
        store.put(Message("orders", b"body"))
    return tmp_path / "store"


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Beginnings of paths whose opening fails, with the error's number.  A test may run as a user who may read all."""
    beginnings: list[tuple[str, int]] = []
    really = os.open

    def opened(path: str, *how: int, **more: int) -> int:
        for beginning, number in beginnings:
            if os.fspath(path).startswith(beginning):
                raise OSError(number, os.strerror(number), path)
        return really(path, *how, **more)

    monkeypatch.setattr(os, "open", opened)
    return beginnings


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EACCES, "run as a user who may read it"), (errno.EMFILE, "raise the limit of open files")],
)
@pytest.mark.parametrize("fails", [True, False])
def test_a_log_file_that_may_not_be_read_is_never_called_deleted(
    closed: Path, refused: list[tuple[str, int]], number: int, advice: str, fails: bool
) -> None:
    """Nor are its messages left out where those that are gone may be."""
    snapshot = open_snapshot(closed)
    refused.append((str(closed / "commitlog"), number))
    for ask in (
        lambda: open_snapshot(closed),
        lambda: snapshot.scan(["orders"], fail_on_data_loss=fails).read_all(),
        lambda: snapshot.message_at(0),
    ):
        with pytest.raises(NotAStore, match=r"cannot be read \(") as caught:
            ask()
        assert str(caught.value).endswith(advice if number == errno.EACCES else f"{advice} (ulimit -n)")
        assert caught.value.path.startswith(str(closed / "commitlog"))


def test_a_file_that_is_gone_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OpenFile(str(tmp_path / "nothing"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        OpenFile(str(tmp_path / "file" / "below"))


@pytest.mark.parametrize("look", [canonical_path, open_snapshot, open_store, lambda path: open_snapshot({"a": path})])
def test_an_empty_path_is_not_the_directory_that_one_is_in(closed: Path, monkeypatch: pytest.MonkeyPatch, look) -> None:
    monkeypatch.chdir(closed)
    before = sorted(path.name for path in closed.iterdir())
    with pytest.raises(NotAStore, match="is an empty path; give the broker's storePathRootDir"):
        look("")
    assert sorted(path.name for path in closed.iterdir()) == before


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_mapping_is_refused_where_the_file_shrank(tmp_path: Path, is_mapped: bool) -> None:
    """Touching it there would end the process by a signal that nothing can handle."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    with OpenFile(str(path)) as file:
        if is_mapped:
            assert bytes(file.map_bytes(10_000)[9_000:]) == b"x" * 1000
        os.truncate(path, 5_000)
        with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is what is checked
            file.map_bytes(10_000)
        assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(path))
        assert bytes(file.map_bytes(5_000)[:5_000]) == b"x" * 5_000


def test_a_file_that_grew_is_mapped_anew(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with OpenFile(str(path)) as file:
        file.map_bytes(100)
        with path.open("ab") as more:
            more.write(b"y" * 100)
        assert bytes(file.map_bytes(200)[100:200]) == b"y" * 100


def test_a_read_ends_where_the_file_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with OpenFile(str(path)) as file:
        assert (file.read(4, 3), file.read(8, 5), file.read(20, 5)) == (b"456", b"89", b"")


@pytest.mark.parametrize("opened", [OpenFile, RealFileSystem().open], ids=["to read", "to write"])
def test_a_descriptor_is_closed_once_wherever_an_interrupt_comes(
    tmp_path: Path, opened: Callable[[str], OpenFile]
) -> None:
    """Closed once more it is another file's by then: a store's, which would end with EBADF or write elsewhere."""
    path = tmp_path / "file"
    path.touch()

    def check(interrupt: Interrupt) -> None:
        file = opened(str(path))
        interrupt.call(file.close)
        others = [os.open(path, os.O_RDONLY) for _ in range(3)]
        file.close()
        for descriptor in others:
            assert os.path.exists(f"/proc/self/fd/{descriptor}")
            os.close(descriptor)

    assert sweep(check) > 2
