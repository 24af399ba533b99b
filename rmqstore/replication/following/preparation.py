"""The directory of a replica before it is opened: it must be this master's replica, or become it."""

from typing import Literal

from rmqstore.arguments import I64_MAX
from rmqstore.directory.store_root import require_room
from rmqstore.errors import NotNow, Rejected, StoreError
from rmqstore.files.filesystem import FileSystem, RealFileSystem, directory_of, join
from rmqstore.files.reading import StorePath, canonical_path
from rmqstore.formats import names
from rmqstore.formats.names import LOG_ROOM
from rmqstore.remoting.cluster import BrokerSettings, Runtime
from rmqstore.replication.following.connection import LinkTls, connected
from rmqstore.replication.following.note import Origin, read_origin, require_same, write_origin

From = Literal["earliest", "latest", "backup"]


class Preparation:
    """To be called with the store's lock held, before the store is looked at.

    `present` None: the master cannot be asked where its log begins and ends.  Raises Rejected, with nothing changed,
    for a directory that is another master's, or no replica; Corrupt, OSError.
    """

    def __init__(self, broker: BrokerSettings, present: Runtime | None, start: From) -> None:
        self._broker, self._present, self._start = broker, present, start

    def __call__(self, fs: FileSystem, root: str) -> None:
        """Makes a new directory ready, and looks at one that is there."""
        origin = read_origin(fs, root)
        if origin is None:
            origin = self._begun(fs, root)
        require_same(origin, self._broker, root)
        log = join(root, LOG_ROOM)
        self._require_file_size(fs, log)
        if origin.log_start and not (fs.exists(log) and fs.entries(log)):
            fs.make_directories(log)
            fs.create(join(log, names.format_start(origin.log_start)), self._broker.log_file_size).close()
            fs.sync_directory(log)

    def _begun(self, fs: FileSystem, root: str) -> Origin:
        """The origin of a directory that is no replica yet, noted."""
        log = join(root, LOG_ROOM)
        has_log = fs.exists(log) and bool(fs.entries(log))
        if has_log != (self._start == "backup"):
            raise Rejected(
                f"{root} holds a store that is no replica: --from backup goes on with a copy of its master's"
                if has_log
                else f"{root} holds no commitlog to go on with: copy the master's store there, or leave --from out"
            )
        self._require_file_size(fs, log)
        start = 0 if has_log else self._first_offset()
        origin = Origin(self._broker.cluster, self._broker.broker_name, start)
        write_origin(fs, root, origin)
        return origin

    def _first_offset(self) -> int:
        if self._present is None:
            if self._start == "latest":
                raise Rejected("where the newest file of this master begins cannot be asked: leave --from out")
            return 0
        start, end, size = self._present.log_start, self._present.log_end, self._broker.log_file_size
        if start % size or not start <= end <= I64_MAX - size:
            raise Rejected(
                f"the master says that its log goes from {start} to {end}: none of files of {size} bytes does"
            )
        return end - end % size if self._start == "latest" else start

    def _require_file_size(self, fs: FileSystem, log: str) -> None:
        sizes = {entry.size for entry in fs.entries(log) if entry.size} if fs.exists(log) else set[int]()
        if sizes - {self._broker.log_file_size}:
            raise Rejected(
                f"{log} has files of {max(sizes)} bytes, and the master's have {self._broker.log_file_size} "
                "(mappedFileSizeCommitLog): it is no copy of this master's"
            )


def obstacles(
    broker: BrokerSettings, present: Runtime | None, path: StorePath, tls: LinkTls | None = None,
    fs: FileSystem | None = None,
) -> list[str]:  # fmt: skip
    """The things that stand in the way of a replica at `path`, in words; looks, and changes nothing."""
    fs, root, found = fs or RealFileSystem(), canonical_path(path), list[str]()
    try:
        connected(broker.ha_address, tls).close()
    except NotNow as lost:
        found.append(f"the replication port does not answer: {lost}; slaves must be able to reach it")
    has_log = fs.exists(join(root, LOG_ROOM))
    try:
        require_room(fs, root)
        origin = read_origin(fs, root)
        if origin is not None:
            require_same(origin, broker, root)
        elif has_log:
            found.append(f"{root} holds a store that is no replica: --from backup goes on with a copy of its master's")
    except StoreError as error:
        found.append(str(error))
    place = root
    while not fs.exists(place):
        place = directory_of(place)
    room, needed = fs.free_bytes(place), 0 if present is None else present.log_end - present.log_start
    if room < needed and not has_log:
        found.append(f"{place} has room for {room} bytes, and the master's log has {needed}")
    return found
