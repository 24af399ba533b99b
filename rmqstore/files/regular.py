"""Opening a file that has to be an ordinary one: what else may stand under its name would hang or harm its reader.

A FIFO waits for its other end, a device may do anything when it is opened, and /dev/zero never ends.
"""

import errno
import os
import stat

from rmqstore.errors import NotAStore, next_step

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFREG: "a file",
}
# Should another thing take the name between the look and the opening, the opening does not wait for it.
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


def require_regular(path: str, mode: int) -> None:
    """Raises NotAStore unless `mode`, of what stands at `path`, is that of an ordinary file."""
    if not stat.S_ISREG(mode):
        what = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise NotAStore(path, f"is {what}, not an ordinary file; move it out of the store")


def status_of(path: str, *, follow: bool = True) -> os.stat_result:
    """The status of what stands at `path`.  Raises NotAStore where symbolic links lead round in a circle, which no
    waiting changes; other OSErrors as the system gives them.
    """
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NotAStore(path, f"cannot be reached ({error.strerror}); {next_step(error)}") from None


def require_directory(path: str) -> None:
    """Raises NotAStore unless a directory stands at `path`, or a link to one; OSError as the system gives it."""
    try:
        mode = status_of(path).st_mode
    except FileNotFoundError:
        if not os.path.lexists(path):
            raise
        raise NotAStore(
            path, "is a symbolic link that leads nowhere, not a directory; move it out of the store"
        ) from None
    if not stat.S_ISDIR(mode):
        what = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise NotAStore(path, f"is {what}, not a directory; move it out of the store")


def open_regular(path: str, flags: int) -> int:
    """A descriptor of the ordinary file at `path`; never waits for anything but the disk.

    Without O_NOFOLLOW in `flags` a link to one will do.  Raises NotAStore for anything else, FileNotFoundError and
    other OSErrors as the system gives them.
    """
    follow = not flags & getattr(os, "O_NOFOLLOW", 0)
    require_regular(path, status_of(path, follow=follow).st_mode)
    try:
        descriptor = os.open(path, flags | _FLAGS)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # it was replaced just now, by a link or a socket
            require_regular(path, status_of(path, follow=follow).st_mode)
        raise
    try:
        require_regular(path, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def missing_right(path: object) -> str:
    """Of a file that the system refused: `write` where this user may read it, or may look there and nothing is."""
    if not isinstance(path, (str, bytes)):
        return "read"
    if os.path.lexists(path):
        return "write" if os.access(path, os.R_OK) else "read"
    return "write" if os.access(os.path.dirname(path), os.R_OK | os.X_OK) else "read"
