"""The read side of the door: a mapping is asked for anew before each use, and refused where the file has shrunk."""

import errno
import os
from pathlib import Path

import pytest

from rmqstore.files.reading import OpenFile


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
