"""The log's next file, and the file after it, made ahead in the background."""

from collections.abc import Callable

from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.files.file_sequence import FileSequence
from rmqstore.files.filesystem import DiskFile, FileSystem, directory_of
from rmqstore.files.preallocation import Preallocator
from rmqstore.files.residency import make_resident


class NextLogFiles:
    """Begins the files of a commit log, and with `preallocate` has each one's successor made ready before it is needed.

    `step` is for one worker, the rest for the writer.  Without workers only a file that a `step` of another thread is
    making is waited for: one that is not begun is made when it is needed.  `warn` gets what the system refused of a
    file's warm-up or locking.
    """

    def __init__(
        self, fs: FileSystem, log: FileSequence, config: StoreConfig, clock: Clock, has_workers: bool,
        warn: Callable[[list[str]], object],
    ) -> None:  # fmt: skip
        self._fs = fs
        self._log = log
        self._config = config
        self._warn = warn
        self._has_workers = has_workers
        self._preallocator = Preallocator(fs, clock, self._prepare)
        if config.preallocate:
            log.ready = self._take

    def begin(self, end: int, wake: Callable[[], None]) -> None:
        """Asks for the first file past a log that ends at `end`; `wake` is called when `step` has work."""
        self._preallocator.wake = wake
        self._request(self._log.end or end)

    def make(self, start: int) -> None:
        """Begins the file at `start`, and asks for the one after it.  Raises OSError, TimeoutError."""
        self._log.add(start)
        if self._config.preallocate:
            self._request(start + self._log.file_size)

    def step(self) -> float | None:
        """Makes one file that was asked for, as a worker's step."""
        return self._preallocator.step()

    def discard_unused(self) -> None:
        """Removes what was made and never begun; call it when no `step` runs any more.  Raises OSError."""
        self._preallocator.discard_unused()

    def _request(self, start: int) -> None:
        path = self._log.path_for(start)
        self._fs.make_directories(directory_of(path))
        self._preallocator.request(path, self._log.file_size)

    def _take(self, path: str, _size: int) -> DiskFile | None:
        timeout_s = self._config.preallocation_timeout_ms / 1000
        return self._preallocator.take(path, timeout_s, may_be_begun=self._has_workers)

    def _prepare(self, file: DiskFile, size: int) -> None:
        """Warm-up and locking of a new file, as far as configured."""
        config = self._config
        sync_pages = 4096 if config.flush == "SYNC" else 0
        self._warn(
            make_resident(file, size, warms=config.warm_up, locks=config.lock_memory, sync_every_pages=sync_pages)
        )
