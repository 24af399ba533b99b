"""Having the disk write while more is made ready, so that the last sync of a long write has little left to do."""

import threading
from collections.abc import Callable

# Below it a sync at the end costs less than the thread.
_STEP_SIZE = 32 * 1024 * 1024


class WriteBehind:
    """Calls `sync`, which makes durable what was written until then, in a thread of its own whenever `step_size` bytes
    more were written and no call is under way.

    One thread writes and calls this; it calls `end` before it lets go of what `sync` uses, whatever happened.  What
    `sync` raised comes out of `wrote` and `settle`: a failed sync must not be taken for one that never was.
    """

    def __init__(self, sync: Callable[[], object], step_size: int = _STEP_SIZE) -> None:
        self._sync = sync
        self._step_size = step_size
        self._unsynced_size = 0
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def wrote(self, size: int) -> None:
        """Says that `size` bytes more were written.  Raises what a sync raised."""
        self._raise_failure()
        self._unsynced_size += size
        if self._unsynced_size < self._step_size or (self._thread is not None and self._thread.is_alive()):
            return
        self._unsynced_size = 0
        self._thread = threading.Thread(target=self._run, name="rmqstore-write-behind")
        self._thread.start()

    def settle(self) -> None:
        """Waits for the sync that is under way.  Raises what a sync raised."""
        self.end()
        self._raise_failure()

    def end(self) -> None:
        """Waits for the sync that is under way, whatever becomes of it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        try:
            self._sync()
        except Exception as failure:  # noqa: BLE001 (the writing thread raises it)
            self._failure = failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
