"""Small files replaced as a whole: after a crash at any moment there is the old content or the new, never neither."""

import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rmqstore.errors import Rejected, next_step
from rmqstore.files.filesystem import FileSystem, directory_of
from rmqstore.files.reading import is_writable, real_path

if TYPE_CHECKING:
    from collections.abc import Buffer

_NEW = ".tmp"
_OLD = ".bak"
_KEPT = ".unreadable"


def replace_file(fs: FileSystem, path: str, data: "Buffer", *, backup: bool = False) -> None:
    """Makes `data` the content of the file at `path`, durably.

    With `backup` the content that it had is in `path`.bak afterwards, unless it was empty; that file is replaced in the
    same way, by a copy, so `path` exists at every moment (RocketMQ's MixAll.string2File deletes it in between).  Raises
    OSError; then the old content is still there.
    """
    if backup and fs.exists(path):
        file = fs.open(path)
        old = file.read(0, file.size())
        file.close()
        if old:
            _put_in_place(fs, path + _OLD, old)
    _put_in_place(fs, path, data)
    fs.sync_directory(directory_of(path))


def keep_copy(fs: FileSystem, path: str) -> None:
    """A copy of a file that nobody could read whole, before it is written over: `path`.unreadable, durable.  Copies of
    before stay, under further numbers.  Raises OSError.
    """
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return
    data, number = file.read(0, file.size()), 0
    while fs.exists(kept := f"{path}{_KEPT}{number or ''}"):
        other = fs.open(kept)
        if other.read(0, other.size()) == data:
            return
        number += 1
    replace_file(fs, kept, data)


def _put_in_place(fs: FileSystem, path: str, data: "Buffer") -> None:
    """Writes and syncs the content under another name, then gives it the name; the directory is not synced."""
    temporary = path + _NEW
    if fs.exists(temporary):
        fs.remove(temporary)  # a crash left it
    file = fs.create(temporary, 0)
    try:
        file.write(0, data)
        file.sync()
        file.close()  # not by its end, in which a signal's exception would be lost
        fs.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            fs.remove(temporary)
        raise


def output_path(path: str, stores: Sequence[str]) -> str:
    """Where a file that a user names is to be written, links followed; nothing is written yet.

    Raises Rejected, NotAStore for a path that no file can have, that is a directory or another thing that is no
    ordinary file, or that lies in one of the directories `stores`, into which nothing but a store's own goes.
    """
    real = real_path(path)
    directory = os.path.dirname(real)
    for store in stores:
        if f"{real}/".startswith(os.path.realpath(store).rstrip("/") + "/"):
            raise Rejected(f"{path}: lies in the store {store}; name a file outside of it")
    if os.path.isdir(real) or path.endswith("/"):
        raise Rejected(f"{path}: is a directory; name a file in it")
    if os.path.lexists(real) and not os.path.isfile(real):
        raise Rejected(f"{path}: is no ordinary file, and would be replaced by one; name another")
    if not os.path.isdir(directory):
        raise Rejected(f"{path}: there is no directory {directory}; create it")
    if not is_writable(directory):
        raise Rejected(f"{path}: no file can be made in {directory}; name another place")
    return real


def replace_output(path: str, data: bytes) -> None:
    """Makes `data` the content of the file at `path`, of `output_path`: at every moment there is the old file or the
    new one, whole.  It keeps the permissions of the file that it replaces; a new one has what the user's umask says.

    Raises Rejected where the disk refuses.
    """
    temporary = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
        with os.fdopen(descriptor, "wb") as file:
            with suppress(FileNotFoundError):
                os.fchmod(descriptor, stat.S_IMODE(os.stat(path).st_mode))
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException as failure:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(failure, OSError):
            raise Rejected(f"{path}: cannot be written ({failure.strerror}); {next_step(failure, 'write')}") from None
        raise
