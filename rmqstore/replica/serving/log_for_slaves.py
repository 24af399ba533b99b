"""The commitlog as slaves get it: only what is on the own disk, in one copy from file to socket."""

import errno
import socket

from rmqstore.engine.log.put.commitlog import CommitLog
from rmqstore.replica.link.master_link import LogBounds

_SYNC_S = 5.0


class LogForSlaves:
    """`log`, as Master serves it."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log

    def bounds(self) -> LogBounds:
        """The durable part: no slave ever has what this store loses in a power cut."""
        return LogBounds(self._log.start, self._log.marks.flushed, self._log.files.file_size)

    def sync(self) -> None:
        """Has what was appended become durable.  Raises DurabilityLost, OSError."""
        self._log.sync_to(self._log.marks.appended, _SYNC_S)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size); fewer where retention took the rest.  Raises OSError."""
        return self._log.read(offset, size)

    def send(self, connection: socket.socket, offset: int, size: int) -> int:
        """Sends bytes of the file that holds `offset`, as many as the socket takes; how many.  Raises BlockingIOError,
        and OSError, also where retention took the file since the block was begun.
        """
        try:
            file = self._log.files.file_of(offset)
        except ValueError as error:
            raise FileNotFoundError(errno.ENOENT, f"retention took it: {error}") from None
        return file.send(connection, offset % self._log.files.file_size, size)
