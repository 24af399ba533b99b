"""The directory of a replica before it is opened: it must be this master's replica, or become it."""

from collections.abc import Callable
from typing import Literal

from rmqstore.core.arguments import I64_MAX
from rmqstore.errors import Rejected
from rmqstore.files.disk import DirectoryEntry
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.files.zeros import is_zero
from rmqstore.formats import names
from rmqstore.formats.names import LOG_ROOM, PLAIN_ROOM
from rmqstore.replica.following.note import Origin, read_origin, require_same, with_levels, write_origin
from rmqstore.replica.following.realign import finish_cut
from rmqstore.replica.remoting.cluster import BrokerSettings, Runtime

From = Literal["earliest", "latest", "backup"]


class Preparation:
    """To be called with the store's lock held, before the store is looked at.

    `present` None: the master cannot be asked where its log begins and ends; `log_start` tells the former, then, to a
    new replica.  Raises Rejected, with nothing changed, for a directory that is another master's, or no replica;
    Corrupt, OSError; what `log_start` raises.
    """

    def __init__(
        self, broker: BrokerSettings, present: Runtime | None, start: From, log_start: Callable[[], int] = lambda: 0
    ) -> None:  # fmt: skip
        self._broker, self._present, self._start, self._log_start = broker, present, start, log_start

    def __call__(self, fs: FileSystem, root: str) -> None:
        """Makes a new directory ready, and looks at one that is there."""
        origin = read_origin(fs, root)
        log = join(root, LOG_ROOM)
        is_new = origin is None
        if origin is None:
            origin = self._begun(fs, root)
        elif origin.cut_to is None and _has_nothing(fs, root):
            # It was killed, or its master was away, before the first byte came: it begins where it was to, unless its
            # master's log begins later by now.
            start = self.first_offset(is_new=False)
            if start > origin.log_start:
                origin = origin._replace(log_start=start)
                write_origin(fs, root, origin)
                _clear(fs, log)
        require_same(origin, self._broker, root)
        # What a replica has already was told by the usual levels; the master's hold for what comes.
        if not origin.delay_levels and self._broker.delay_levels is not None and (is_new or not _has_log(fs, log)):
            origin = with_levels(origin, 0, self._broker.delay_levels)
            write_origin(fs, root, origin)
        self.require_file_size(fs, log)
        if origin.cut_to is not None:
            finish_cut(fs, root, origin, self._broker.log_file_size)
        if origin.log_start and not _has_log(fs, log):
            fs.make_directories(log)
            fs.create(join(log, names.format_start(origin.log_start)), self._broker.log_file_size).close()
            fs.sync_directory(log)

    def _begun(self, fs: FileSystem, root: str) -> Origin:
        """The origin of a directory that is no replica yet, noted."""
        self.require_beginning(fs, root)
        log = join(root, LOG_ROOM)
        self.require_file_size(fs, log)
        start = 0 if _has_log(fs, log) else self.first_offset()
        origin = Origin(self._broker.cluster, self._broker.broker_name, start)
        write_origin(fs, root, origin)
        return origin

    def require_beginning(self, fs: FileSystem, root: str) -> None:
        """Raises Rejected unless a replica may begin at `root`, which is none yet, as it is to begin."""
        has_log = _has_log(fs, join(root, LOG_ROOM))
        if has_log != (self._start == "backup"):
            raise Rejected(
                f"{root} holds a store that is not a replica: for a copy of the master's store use --from backup"
                if has_log
                else f"{root} holds no commitlog to continue: copy the master's store there, or leave --from out"
            )

    def first_offset(self, *, is_new: bool = True) -> int:
        """Where a new log begins, else where the master's does.  Raises Rejected where that cannot be known."""
        if self._present is None:
            if is_new and self._start == "latest":
                raise Rejected(
                    "--from latest: a master by --ha cannot be asked where its newest file begins; name it by "
                    "--namesrv or --master, or leave --from out"
                )
            start = end = self._log_start()
        else:
            start, end = self._present.log_start, self._present.log_end
        size = self._broker.log_file_size
        if start % size or not start <= end <= I64_MAX - size:
            raise Rejected(
                f"the master says that its log goes from {start} to {end}, which no log with files of {size} bytes can"
            )
        return end - end % size if is_new and self._start == "latest" else start

    def require_file_size(self, fs: FileSystem, log: str) -> None:
        """Raises Rejected where a file of `log` has another size than the master's."""
        sizes = {entry.size for entry in fs.entries(log) if entry.size} if fs.exists(log) else set[int]()
        size = self._broker.log_file_size
        if sizes - {size} and self._present is None:
            raise Rejected(
                f"{log} has files of {max(sizes)} bytes, and --log-file-size says {size}: if the master's files are "
                f"as large as these, give --log-file-size {max(sizes)}; else this store is not a copy of the master's"
            )
        if sizes - {size}:
            raise Rejected(
                f"{log} has files of {max(sizes)} bytes, and the master's have {size} (mappedFileSizeCommitLog): "
                "this store is not a copy of the master's"
            )


def _has_nothing(fs: FileSystem, root: str) -> bool:
    """Whether no byte of a log has come: there is no file, or one as it was made, and no queue."""
    log = join(root, LOG_ROOM)
    files = fs.entries(log)
    return len(files) < 2 and not fs.entries(join(root, PLAIN_ROOM)) and all(_is_empty(fs, log, file) for file in files)


def _is_empty(fs: FileSystem, log: str, listed: DirectoryEntry) -> bool:
    if listed.is_directory or names.parse_start(listed.name) is None:
        return False
    file = fs.open(join(log, listed.name))
    try:
        return is_zero(file, 0, file.size())
    finally:
        file.close()


def _clear(fs: FileSystem, log: str) -> None:
    """Removes the files of a log that has nothing."""
    for file in fs.entries(log):
        fs.remove(join(log, file.name))
        fs.sync_directory(log)


def _has_log(fs: FileSystem, log: str) -> bool:
    return fs.exists(log) and bool(fs.entries(log))
