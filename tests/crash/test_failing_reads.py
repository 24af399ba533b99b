"""A disk that fails at any question of a reader takes no message away and makes none up.

Of a reader that asks very often some questions fail, evenly spread; all of them in `make crash`.
"""

from pathlib import Path

import pytest

from rmqstore.errors import StoreError
from rmqstore.files.disk import ReadableDisk
from rmqstore.snapshot import open_snapshot
from tests.crash.disks import MemoryDisk
from tests.crash.strides import IS_WHOLE, every
from tests.log.recovering import ROOT
from tests.snapshot.read_disk import DOORS, QUESTIONS, ReadDisk, copied, small_disk
from tests.snapshot.small_ledger import small_ledger

pytestmark = [pytest.mark.stores, pytest.mark.crash]

_PLACES_MAX = 20


def failure_of(door: str, disk: ReadableDisk, whole: object) -> Exception | None:
    """The error with which a door ends on a disk that fails; None where it answers, which must be the whole answer."""
    try:
        answer = DOORS[door](disk, ROOT)
    except (OSError, StoreError) as error:
        return error
    assert answer == whole
    return None


@pytest.mark.some(8)
@pytest.mark.parametrize("door", [door for door in DOORS if door != "table entries"])  # there are none
@pytest.mark.parametrize(("is_killed", "forever"), [(True, False), (False, True)])
def test_a_disk_that_fails_is_told_with_the_file(door: str, is_killed: bool, forever: bool) -> None:
    assert_told(small_disk(is_killed=is_killed), door, forever)


@pytest.mark.some(4)
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("door", ["verify", "stream", "queues", "by queue", "along the log", "table entries"])
def test_a_disk_that_fails_under_a_ledger_is_told_with_the_file(tmp_path: Path, door: str, forever: bool) -> None:
    assert_told(copied(small_ledger(200).write(tmp_path, committed=150)), door, forever)


def assert_told(memory: MemoryDisk, door: str, forever: bool) -> None:
    counting = ReadDisk(memory)
    open_snapshot(ROOT, disk=counting)
    first = 1 if door not in QUESTIONS or door == "queues" else counting.count  # opening is the same for all questions
    counting = ReadDisk(memory)
    whole = DOORS[door](counting, ROOT)
    failures, places = 0, range(first, counting.count + 1)
    for at in every(-(-len(places) // _PLACES_MAX), places):
        disk = ReadDisk(memory, at, forever=forever)
        error = failure_of(door, disk, whole)
        failures += error is not None
        assert error is None or ROOT in str(error), at
        assert disk.open_count == 0, at
    assert failures or not IS_WHOLE
