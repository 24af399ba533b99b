"""A directory of stores, as `rmqstore replicate` makes it: each in a directory that has its broker's name.

Stores come and go while somebody reads: a directory that is empty, or in which a store is just begun, is not yet one.
Files, names with a dot in front and what file systems leave in every directory are none.  Anything else is told, as
its messages would be missing.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from rmqstore.directory.listing import file_with
from rmqstore.errors import NotAStore, Rejected, StoreError
from rmqstore.files.disk import ReadableDisk, join, read_part
from rmqstore.files.reading import canonical_path
from rmqstore.formats import names
from rmqstore.snapshot.survey.extents import NAMELESS, StoreExtent, stored_broker_name
from rmqstore.snapshot.survey.found_log import look_at_root, refuse_unread_layouts

_NOT_OURS = "lost+found"
# A store begins with these, before anything tells what it is.
_FIRST_FILES = frozenset((names.LOCK_FILE, names.ABORT_FILE))
_ASIDE = "move it away, or call it by a name that begins with a dot"
# More than a record's head: no two brokers write the same bytes there, which hold times and addresses.
_HEAD_SIZE = 256


@dataclass(frozen=True, slots=True)
class StoresIn:
    """All stores in a directory, such as there are at each look; the name of a store's directory is its broker's."""

    directory: str


class StoreName(NamedTuple):
    """A directory among the stores: the broker's name, and its path."""

    broker_name: str
    path: str


class Listed(NamedTuple):
    """The directories that hold stores, by name, and the reason for each other one that should not be there."""

    stores: list[StoreName]
    strays: dict[str, StoreError]


def required_stores(disk: ReadableDisk, paths: StoresIn) -> list[StoreName]:
    """The stores that there are now, at least one.  Raises NotAStore, UnsupportedLayout, Rejected for a directory
    without any, or in which something else stands.
    """
    directory = canonical_path(paths.directory)
    if not disk.is_directory(directory):
        reason = "is not a directory" if disk.exists(directory) else "does not exist here"
        raise NotAStore(directory, f"{reason}; give the directory in which the stores are")
    if {names.LOG_ROOM, names.PLAIN_ROOM}.intersection(disk.names(directory)):
        raise NotAStore(directory, "is a store itself: give it as the path, or here the directory above it")
    listed = list_stores(disk, directory)
    for stray in listed.strays.values():
        raise stray
    if not listed.stores:
        raise none_left(directory)
    return listed.stores


def none_left(directory: str) -> NotAStore:
    """The error for a directory without any store."""
    return NotAStore(
        directory, "holds no store; is its file system mounted? `rmqstore replicate` makes one for each broker"
    )


def list_stores(disk: ReadableDisk, directory: str, known: Collection[str] = ()) -> Listed:
    """The directories in an absolute one, without those of the brokers that are `known`."""
    listed = Listed([], {})
    for name, path in _candidates(disk, directory):
        if name in known:
            continue
        try:
            if _is_there(disk, name, path):
                listed.stores.append(StoreName(name, path))
        except StoreError as stray:
            listed.strays[path] = stray
    return listed


def is_begun(disk: ReadableDisk, path: str) -> bool:
    """Whether a store may stand there: a directory with something in it."""
    return disk.is_directory(path) and not _FIRST_FILES.issuperset(_visible(disk, path))


def refuse_one_log_twice(stores: Sequence[StoreExtent]) -> None:
    """Raises Rejected for two stores with the same log, a store and its copy: each message would come twice."""
    for one, other in combinations(stores, 2):
        place = max(one.log_start, other.log_start)
        head = _log_head(one, place)
        if head and head == _log_head(other, place):
            raise Rejected(
                f"{one.path} and {other.path} hold the same log, so that each message would come twice: {_ASIDE}"
            )


def _candidates(disk: ReadableDisk, directory: str) -> Iterator[tuple[str, str]]:
    for name in _visible(disk, directory):
        path = join(directory, name)
        is_file = not disk.is_directory(path) and bool(disk.version_of(path))
        if not is_file and name != _NOT_OURS:
            yield name, path


def _visible(disk: ReadableDisk, directory: str) -> list[str]:
    return [name for name in disk.names(directory) if not name.startswith(".")]


def _is_there(disk: ReadableDisk, name: str, path: str) -> bool:
    """Whether a store stands there, and not only the place for one.  Raises NotAStore, UnsupportedLayout, Rejected for
    anything else.
    """
    if not disk.is_directory(path):
        if not disk.exists(path):
            return False  # it went meanwhile
        raise NotAStore(path, "is a link that leads nowhere: mount what it leads to, or remove it")
    if not is_begun(disk, path):
        return False
    try:
        refuse_unread_layouts(disk, look_at_root(disk, path))
    except NotAStore as error:
        if not is_begun(disk, path):
            return False
        raise NotAStore(path, f"{error.reason}; if nothing of it is to be read, {_ASIDE}") from None
    told = stored_broker_name(disk, path)
    if name not in (told.name, *told.others) and told.name != NAMELESS:
        brokers = " or ".join(repr(each) for each in (told.name, *told.others))
        raise Rejected(
            f"{path} is a store of the broker {brokers}, and its directory should have that name; a copy beside "
            f"the store itself would bring each message twice: rename it, {_ASIDE}, or name all stores one by one "
            """(stores={"broker-a": "/data/a"})"""
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Rejected(f"{path}: its name is no text, and can be no broker's: rename it") from None
    return True


def _log_head(store: StoreExtent, place: int) -> bytes:
    """The bytes of the log from an offset on; empty where it has none."""
    file = file_with(store.log_files, place)
    if file is None or place >= store.log_end:
        return b""
    try:
        return read_part(store.disk, file.path, place - file.start, min(_HEAD_SIZE, store.log_end - place))
    except OSError:  # its owner deleted it
        return b""
