"""Stores of a broker on a disk in memory, and where they come from."""

import sys
from collections.abc import Iterator

import pytest

from tests.crash.disks import MemoryDisk
from tests.formats.config_files import config_files


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads are switched as often as it goes."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def disk_of(case: str) -> MemoryDisk:
    disk = MemoryDisk()
    for name, content in config_files(case).items():
        disk.put_file(f"/store/config/{name}", content)
    return disk
