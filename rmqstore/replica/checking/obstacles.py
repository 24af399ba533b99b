"""Reasons why a replica cannot begin, found before anything is written."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from rmqstore.directory.listing import stored_files
from rmqstore.directory.store_root import require_room
from rmqstore.errors import NotNow, StoreError, next_step
from rmqstore.files.disk import StoredFile, read_part
from rmqstore.files.filesystem import FileSystem, RealFileSystem, directory_of, join
from rmqstore.files.reading import StorePath, canonical_path, is_locked, is_writable
from rmqstore.formats.message import BLANK
from rmqstore.formats.names import LOCK_FILE, LOG_ROOM
from rmqstore.replica.following.connection import LinkTls, connected
from rmqstore.replica.following.note import read_origin, require_same
from rmqstore.replica.following.preparation import From, Preparation
from rmqstore.replica.following.probe import MasterLog
from rmqstore.replica.remoting.cluster import BrokerSettings, Runtime


class Prospect(NamedTuple):
    """The obstacles, in words; and bytes that the replica still takes of the disk at `disk`, of which `room` are left.

    Queues and index come on top, a few percent.
    """

    obstacles: list[str]
    needed: int
    disk: str
    room: int


def look(
    broker: BrokerSettings, present: Runtime | None, path: StorePath, start: From, tls: LinkTls | None = None
) -> Prospect:
    """The things that stand in the way of a replica at `path`, which is to begin as `start` says.

    `present` None: the master cannot be asked where its log begins and ends.  Looks, and changes nothing.
    """
    fs, root = RealFileSystem(), canonical_path(path)
    files: tuple[StoredFile, ...] = ()
    with suppress(StoreError, OSError):  # told below
        files = _begun(fs, stored_files(fs, join(root, LOG_ROOM)))
    prepare = Preparation(broker, present, start)
    found = [
        *_of_the_link(broker, tls, is_bare=present is None),
        *_said_by(lambda: _require_directory(fs, root, broker, prepare)),
        *_of_the_logs(files, present),
    ]
    place = _existing(fs, root)
    if not fs.is_directory(place):
        found.append(f"{place} is not a directory: give another one")
    elif not is_writable(place):
        found.append(f"{place} cannot be written to by this user: change its owner, or run as another user")
    if is_locked(join(root, LOCK_FILE)):
        found.append(f"{root} is in use: a replicator, or another program that writes to the store, has it open")
    needed, room = _needed(broker, present, files, prepare), fs.free_bytes(place)
    if room < needed:
        found.append(f"{place} has {room} free bytes, and the replica needs {needed} more")
    return Prospect(found, needed, place, room)


def together(seen: Sequence[Prospect]) -> str:
    """Whether the room is too small for several replicas together, where each has room alone: they lie below one
    directory.  "" where it is not."""
    needed, room = sum(one.needed for one in seen), min((one.room for one in seen), default=0)
    if needed <= room or any(one.needed > one.room for one in seen):
        return ""
    return f"{seen[0].disk} has {room} free bytes, and the replicas together need {needed} more"


def _of_the_link(broker: BrokerSettings, tls: LinkTls | None, *, is_bare: bool) -> Iterator[str]:
    """`is_bare`: nothing else of the master answers, so that what comes there is waited for."""
    try:
        if is_bare:
            if MasterLog(broker, tls).told_start() is None:
                yield (
                    f"the replication port: {broker.ha_address} accepts connections but sends nothing: an rmqstore "
                    "master sends its offset within a second"
                )
        else:
            connected(broker.ha_address, tls).close()
    except NotNow as lost:
        if is_bare:
            yield f"the replication port: {lost}"
            return
        yield (
            f"the replication port does not answer: {lost}; slaves must be able to reach this address, which the "
            "broker's brokerIP2 and haListenPort set"
        )


def _said_by(ask: Callable[[], object]) -> Iterator[str]:
    try:
        ask()
    except StoreError as error:
        yield str(error)
    except OSError as error:
        yield f"{error.filename or 'the directory'}: {error.strerror or error}; {next_step(error)}"


def _require_directory(fs: FileSystem, root: str, broker: BrokerSettings, prepare: Preparation) -> None:
    """Raises as a replica does when it first opens its directory."""
    require_room(fs, root)
    origin = read_origin(fs, root)
    if origin is None:
        prepare.require_beginning(fs, root)
    else:
        require_same(origin, broker, root)
    prepare.require_file_size(fs, join(root, LOG_ROOM))


def _of_the_logs(files: tuple[StoredFile, ...], present: Runtime | None) -> Iterator[str]:
    """Whether the master's log and the replica's can belong together, by their bounds; the bytes are compared later."""
    if present is None or not files:
        return
    if files[-1].end < present.log_start:
        yield (
            f"the master deleted the bytes that the replica needs next: its log begins at {present.log_start}, and "
            "the replica's ends before "
            f"{files[-1].end}; begin a new replica in another directory"
        )
    if files[-1].start > present.log_end:
        yield (
            f"the master's log ends at {present.log_end}, and the replica's log is longer (its last file begins at "
            f"{files[-1].start}): the master lost the end of its log, or is another master; `rmqstore replicate "
            "--realign` says what it would cut"
        )


def _begun(fs: FileSystem, files: tuple[StoredFile, ...]) -> tuple[StoredFile, ...]:
    """The files without those at the end that were only created in advance."""
    while files and not any(read_part(fs, files[-1].path, 0, BLANK.size)):
        files = files[:-1]
    return files


def _existing(fs: FileSystem, path: str) -> str:
    """The path itself, or what exists above it."""
    while not fs.exists(path):
        path = directory_of(path) or "/"
    return path


def _needed(
    broker: BrokerSettings, present: Runtime | None, files: tuple[StoredFile, ...], prepare: Preparation
) -> int:
    """Bytes that the log still takes, in whole files, once it has what the master has now."""
    if present is None:
        return 0
    size = broker.log_file_size
    begin = files[-1].end if files else prepare.first_offset()
    begin -= begin % size
    end = -(-present.log_end // size) * size
    return max(end - begin, 0)
