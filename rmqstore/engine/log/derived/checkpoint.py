"""The file `checkpoint`: what recovery may rely on.  It says less than is true, never more."""

import threading
from dataclasses import replace

from rmqstore.files.filesystem import DiskFile, FileSystem
from rmqstore.files.replace import replace_file
from rmqstore.formats.checkpoint import FILE_SIZE, Checkpoint, encode_checkpoint, read_checkpoint


class CheckpointFile:
    """The checkpoint at `path`, in memory until `flush`; any thread.

    The caller updates it with times of what is durable already.  A file that is missing, or shorter than it should be,
    reads as zeros: nothing is known.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._lock = threading.Lock()  # guards the four below
        self._file: DiskFile | None = fs.open(path) if fs.exists(path) else None
        data = b"" if self._file is None else self._file.read(0, FILE_SIZE)
        self._values = read_checkpoint(data)
        self._flushed = self._values if len(data) == FILE_SIZE else None  # what the file holds
        self._failure: OSError | None = None

    @property
    def values(self) -> Checkpoint:
        """The present values, flushed or not."""
        return self._values

    def update(self, **changes: int) -> None:
        """Sets some fields of formats.checkpoint.Checkpoint by name; TypeError for a name that it has not."""
        with self._lock:
            self._values = replace(self._values, **changes)

    def make(self) -> None:
        """Makes the file, durably, where there is none: only a hand takes it away from a log of several files.  Raises
        OSError.
        """
        if self._file is None:
            self.flush()

    def flush(self) -> None:
        """Makes the present values durable, if they are not.  Raises OSError, and ever after: a sync is not retried."""
        with self._lock:
            if self._failure is not None:
                raise OSError(self._failure.errno, self._failure.strerror, self._failure.filename)
            if self._flushed == self._values:
                return
            try:
                self._write()
            except OSError as failure:
                self._failure = failure
                raise
            self._flushed = self._values

    def _write(self) -> None:
        """All fields stand in the first sector of the disk, which is written whole or not at all."""
        data = encode_checkpoint(self._values)
        if self._file is None:  # whole from its first moment: one that is cut short is damage
            replace_file(self._fs, self.path, data.ljust(FILE_SIZE, b"\0"))
            self._file = self._fs.open(self.path)
            return
        if self._flushed is None and self._file.size() < FILE_SIZE:
            self._file.truncate(FILE_SIZE)
        self._file.write(0, data)
        self._file.sync()
