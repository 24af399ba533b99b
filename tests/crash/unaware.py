"""The order of steps of somebody who knows nothing of batches."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.crash.disks import MemoryDisk
from tests.crash.workload import ROOT


@contextmanager
def unaware(disk: MemoryDisk) -> Iterator[None]:
    """As long as a broker has the store, which knows nothing of intents."""
    for source, target in ((f"{ROOT}/sink", "/aside"), ("/aside", f"{ROOT}/sink")):
        disk.rename(source, target)
        disk.sync_directory(ROOT)
        disk.sync_directory("/")
        if target == "/aside":
            yield
