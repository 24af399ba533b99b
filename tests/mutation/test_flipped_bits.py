"""What one flipped bit can hide: nothing that the CRC property covers, without it what no checksum covers at all, and
never a message."""

import os
from pathlib import Path

import pytest

from tests.mutation.flipped_bits import DETECTED, MISSING, WRONG, Figures, build, flipped
from tests.mutation.uncovered import UNCOVERED

pytestmark = pytest.mark.mutation
EVERY = int(os.environ.get("RMQSTORE_FLIPS_EVERY", "131"))  # no multiple of it is the size of a field


def figures_of(root: Path, *, crc: bool) -> Figures:
    build(root, crc=crc)
    return flipped(root, EVERY)


def test_without_the_crc_property_only_what_no_checksum_covers_changes_unsaid(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, crc=False)
    assert not figures.count(MISSING)
    assert figures.columns.keys() <= UNCOVERED
    assert figures.count(DETECTED, "commitlog") > 0
    assert figures.count(WRONG, "commitlog") > 0


def test_with_the_crc_property_no_changed_record_passes(tmp_path: Path) -> None:
    figures = figures_of(tmp_path, crc=True)
    assert not figures.count(MISSING)
    assert not figures.count(WRONG, "commitlog")
    assert figures.columns.keys() <= {"tagsCode"}  # what the queue's entry says
    assert figures.count(DETECTED, "commitlog")
