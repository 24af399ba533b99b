"""Stores that RocketMQ or the engine left when it was killed: each recovers what the other does.

RMQSTORE_CONFORMANCE_SEED repeats a run.  Needs the oracle (`make conformance`).
"""

import random
import shutil
from pathlib import Path

import pytest

from tests.conformance.java import VERSIONS, jvm
from tests.conformance.kills import (
    compare_recoveries,
    killed_here,
    killed_java,
    plant_unmade_file,
    remove_newest_log_file,
)

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("nobody_delivers")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("how", ["puts", "race", "unmade file", "no next file"])
def test_a_killed_store_of_javas_is_recovered(version: str, how: str, seed: str, tmp_path: Path) -> None:
    """A JVM dies among its puts: we recover what a second JVM recovers from a copy, and Java opens ours afterwards."""
    acked = killed_java(version, how, random.Random(f"{seed}/{version}/{how}"), tmp_path / "ours")
    if how == "unmade file":
        plant_unmade_file(tmp_path / "ours")
    if how == "no next file":
        acked = remove_newest_log_file(tmp_path / "ours", acked)
        assert acked
    shutil.copytree(tmp_path / "ours", tmp_path / "javas")
    with jvm(version) as oracle:
        lines = compare_recoveries(oracle, version, tmp_path, acked)
    assert not lines, "\n".join([f"RMQSTORE_CONFORMANCE_SEED={seed} repeats this", *lines[:20]])


def test_a_killed_store_of_ours_is_recovered_by_java(seed: str, tmp_path: Path) -> None:
    """SIGKILL among SYNC puts, three times on the same store: Java finds every acknowledged message, and what we
    find."""
    rng = random.Random(f"{seed}/killed")
    store, acked = tmp_path / "store", {}
    lines: list[str] = []
    with jvm("5.3.3") as new, jvm("4.9.8") as old:
        for turn in range(3):
            acked |= killed_here(store, 1000 * turn, rng.randint(150, 500))
            for version, oracle in (("5.3.3", new), ("4.9.8", old)):
                work = tmp_path / f"{turn}-{version}"
                for copy in ("ours", "javas"):
                    shutil.copytree(store, work / copy)
                lines += [f"kill {turn}, {line}" for line in compare_recoveries(oracle, version, work, acked)]
    assert not lines, "\n".join([f"RMQSTORE_CONFORMANCE_SEED={seed} repeats this", *lines[:20]])
