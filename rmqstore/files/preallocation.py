"""The next files made ahead, in the background, so that a put need not wait for the disk to find room."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from rmqstore.clock import Clock
from rmqstore.core.locks import Bell
from rmqstore.files.filesystem import DiskFile, FileSystem


@dataclass(eq=False, slots=True)
class _Request:
    """One file that was asked for: not begun, being made, made, or failed."""

    path: str
    size: int
    is_begun: bool = False
    file: DiskFile | None = None
    failure: OSError | None = None
    done: Bell = field(default_factory=Bell)

    @property
    def is_done(self) -> bool:
        return self.file is not None or self.failure is not None


class Preallocator:
    """Makes files that were requested, the largest first, then by path (RocketMQ: AllocateMappedFileService).

    `step` is for one worker; `request`, `take` and `discard_unused` for the writer.  `wake`, when set, is called after
    each request; `prepare(file, size)`, when set, gets each new file before it can be taken (warm-up).  A file and its
    name are durable before it can be taken.  `take_count`, `wait_count` and `waited_s` say how often a file was taken,
    how often it was not ready yet, and how long that took in all.
    """

    def __init__(self, fs: FileSystem, clock: Clock, prepare: Callable[[DiskFile, int], object] | None = None) -> None:
        self.wake: Callable[[], None] | None = None
        self.take_count = 0
        self.wait_count = 0
        self.waited_s = 0.0
        self._fs = fs
        self._clock = clock
        self._prepare = prepare
        self._requests: dict[str, _Request] = {}
        self.lock = threading.RLock()  # guards _requests and what is in them; no file is made under it

    def request(self, path: str, size: int) -> None:
        """Asks for a new file of `size` bytes and returns at once; nothing happens if it was asked for already."""
        with self.lock:
            if path in self._requests:
                return
            self._requests[path] = _Request(path, size)
        if self.wake is not None:
            self.wake()

    def step(self) -> float | None:
        """Makes one requested file; 0 to be called again at once, None if there is nothing to do until `wake`."""
        request = None
        try:
            with self.lock:
                waiting = [each for each in self._requests.values() if not each.is_begun]
                if not waiting:
                    return None
                request = min(waiting, key=lambda each: (-each.size, each.path))
                request.is_begun = True
            file, failure = self._made(request.path, request.size)
            with self.lock:
                request.file, request.failure = file, failure
        except BaseException:
            if request is not None:
                request.is_begun = request.is_done  # or the put that needs the file would wait for it for ever
            raise
        request.done.ring()
        return 0.0

    def take(self, path: str, timeout_s: float, *, may_be_begun: bool = True) -> DiskFile | None:
        """The file, now the caller's; waits for it up to `timeout_s`.

        None if it was not requested, or its making had not begun by then, or without `may_be_begun` has not yet: the
        request is withdrawn, and the caller may make the file.  Raises the OSError that making it failed with (a new
        request tries again), or TimeoutError if it is still being made: a later call may get it.
        """
        with self.lock:
            request = self._requests.get(path)
            if request is None:
                return None
            if request.is_done or not (request.is_begun or may_be_begun):
                return self._taken(request)
        began_s = self._clock.monotonic_s()
        request.done.wait(timeout_s)
        self.wait_count += 1
        self.waited_s += self._clock.monotonic_s() - began_s
        with self.lock:
            if request.is_begun and not request.is_done:
                raise TimeoutError(f"{path} is still being made after {timeout_s} s")
            return self._taken(request)

    def _taken(self, request: _Request) -> DiskFile | None:
        """Withdraws a request that nobody is at work on; its file, or None.  Raises its failure."""
        self._requests.pop(request.path, None)
        if request.failure is not None:
            raise request.failure
        self.take_count += request.file is not None
        return request.file

    def discard_unused(self) -> list[str]:
        """Withdraws all requests and removes the files that nobody took; returns their paths.

        Call it when no `step` runs any more.  Newest first, so that no gap is left at any moment.  Raises OSError.
        """
        with self.lock:
            requests, self._requests = self._requests, {}
        paths = sorted((each.path for each in requests.values() if each.file is not None), reverse=True)
        for path in paths:
            self._fs.remove(path)
            self._fs.sync_directory(os.path.dirname(path))
        return paths

    def _made(self, path: str, size: int) -> tuple[DiskFile | None, OSError | None]:
        """A durable file with a durable name, or why there is none; then no file is left."""
        try:
            file = self._fs.create(path, size)
            try:
                if self._prepare is not None:
                    self._prepare(file, size)
                self._fs.sync_directory(os.path.dirname(path))
            except BaseException:
                with suppress(OSError):
                    self._fs.remove(path)
                raise
        except OSError as failure:
            return None, failure
        return file, None
