"""Work in a child made by fork, and what it says."""

import os
import select
import signal
import time
import traceback
from collections.abc import Callable

from tests.patience import PATIENCE_S


def in_child(work: Callable[[Callable[[str], None]], object]) -> list[str]:
    """The lines that `work(tell)` told in a child of this process; a traceback is one, and so is "hangs"."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            work(lambda line: os.write(writing, line.replace("\n", "\\n").encode() + b"\n"))
        except BaseException:  # noqa: BLE001  the parent shows it
            os.write(writing, traceback.format_exc().replace("\n", "\\n").encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    data, deadline_s = b"", time.monotonic() + PATIENCE_S
    while select.select([reading], [], [], max(deadline_s - time.monotonic(), 0))[0]:
        more = os.read(reading, 65536)
        if not more:
            break
        data += more
    else:
        data += b"hangs\n"
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    os.waitpid(child, 0)
    return data.decode().splitlines()
