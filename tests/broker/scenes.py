"""Stores of a broker on a disk in memory, and where they come from."""

from tests.crash.disks import MemoryDisk
from tests.formats.config_files import config_files


def disk_of(case: str) -> MemoryDisk:
    disk = MemoryDisk()
    for name, content in config_files(case).items():
        disk.put_file(f"/store/config/{name}", content)
    return disk
