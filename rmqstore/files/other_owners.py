"""Whether another process of this machine has files of a directory mapped: DLedger's nodes take no lock."""

import os
from contextlib import suppress

_PROC = "/proc"


def mapping_process(directory: str) -> int | None:
    """The id of another process that has a file below `directory` mapped, as Java's stores have; None where none is
    seen.  Processes of other users are not seen without the right to, and none on systems without /proc.
    """
    wanted = os.path.realpath(directory).rstrip("/").encode() + b"/"
    own = os.getpid()
    with suppress(OSError):
        for name in os.listdir(_PROC):
            if name.isdigit() and int(name) != own and _maps(int(name), wanted):
                return int(name)
    return None


def _maps(process: int, wanted: bytes) -> bool:
    with suppress(OSError), open(f"{_PROC}/{process}/maps", "rb") as maps:
        return any(wanted in line for line in maps)
    return False
