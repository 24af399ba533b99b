"""Small files replaced as a whole: after a crash at any moment there is the old content or the new, never neither."""

from contextlib import suppress
from typing import TYPE_CHECKING

from rmqstore.files.filesystem import FileSystem, directory_of

if TYPE_CHECKING:
    from collections.abc import Buffer

_NEW = ".tmp"
_OLD = ".bak"


def replace_file(fs: FileSystem, path: str, data: "Buffer", *, backup: bool = False) -> None:
    """Makes `data` the content of the file at `path`, durably.

    With `backup` the content that it had is in `path`.bak afterwards, unless it was empty; that file is replaced in the
    same way, by a copy, so `path` exists at every moment (RocketMQ's MixAll.string2File deletes it in between).  Raises
    OSError; then the old content is still there.
    """
    if backup and fs.exists(path):
        file = fs.open(path)
        old = file.read(0, file.size())
        if old:
            _put_in_place(fs, path + _OLD, old)
    _put_in_place(fs, path, data)
    fs.sync_directory(directory_of(path))


def _put_in_place(fs: FileSystem, path: str, data: "Buffer") -> None:
    """Writes and syncs the content under another name, then gives it the name; the directory is not synced."""
    temporary = path + _NEW
    if fs.exists(temporary):
        fs.remove(temporary)  # a crash left it
    file = fs.create(temporary, 0)
    try:
        file.write(0, data)
        file.sync()
        fs.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            fs.remove(temporary)
        raise
