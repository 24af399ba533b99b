"""A named background thread that calls `step()`; tests call the step without a thread."""

import threading
from collections.abc import Callable
from contextlib import suppress

from rmqstore.core.locks import Bell

Step = Callable[[], float | None]


class Worker:
    """Calls `step` again and again in a daemon thread.

    `step` returns the seconds until its next call: 0 means at once, None means not before `wake`.  An exception from
    `step` ends the thread: `failure` holds the exception, and `on_failure` is called once.
    """

    def __init__(self, name: str, step: Step, on_failure: Callable[[str, BaseException], None]) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._step = step
        self._on_failure = on_failure
        self._bell = Bell()
        self._stepping = threading.RLock()  # a step may come round to its own worker: a callback of the user's flushes
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name=f"rmqstore-{self.name}", daemon=True)
        self._thread.start()

    def step_once(self) -> None:
        """One step in the caller's thread, instead of `start`; nothing once a step has failed.  One thread at a time.

        An exception that ends the program, or a test's power cut, passes through.
        """
        with self._stepping:
            if self.failure is not None:
                return
            try:
                self._step()
            except Exception as failure:  # noqa: BLE001  as in `_run`
                self.failure = failure
                self._on_failure(self.name, failure)

    def wake(self) -> None:
        """Calls `step` soon, even if it returned a long wait.  Cheap; any thread."""
        self._bell.ring()

    def stop(self) -> None:
        """Ends the thread after the step that is running, and waits for it."""
        self._stopping = True
        self._bell.ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            with suppress(RuntimeError):  # its start was interrupted: it never comes, or ends before its first step
                self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._bell.wait(0)  # what rang until now, this step answers
                pause_s = self._step()
                if pause_s != 0 and not self._stopping:
                    self._bell.wait(pause_s)
        except BaseException as failure:  # noqa: BLE001  whatever ended it, the store must stop to acknowledge
            self.failure = failure
            self._on_failure(self.name, failure)
