"""SIGKILL at random while another process puts: every message in the table, once.

RMQSTORE_LAKE_KILLS=50: so many kills of each kind of table.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from tests.lake.conftest import stored
from tests.lake.tables import Lake

pytestmark = pytest.mark.deep

KILLS = int(os.environ.get("RMQSTORE_LAKE_KILLS", "2"))
SEED = int(os.environ.get("RMQSTORE_LAKE_SEED", "1"))
PROJECT = Path(__file__).parents[2]
RMQSTORE = [sys.executable, "-c", "from rmqstore.cli import main; main(prog_name='rmqstore')"]
WRITER = """
import sys, threading
from rmqstore import Message, open_store
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
with open_store(sys.argv[1]) as store:
    number = 0
    while not over.wait(0.005):
        for _ in range(10):
            store.put(Message(f"topic-{number % 4}", b"%d" % number, queue_id=number % 3)).raise_for_status()
            number += 1
print(number)
"""


@contextmanager
def writing(store: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that puts for as long as this lasts."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=PROJECT,
    )  # fmt: skip
    try:
        yield writer
    finally:
        writer.kill()
        writer.communicate()


def killed(command: list[str], chance: random.Random) -> int:
    """Runs a sync and kills it, mostly once it has committed; how many commits it told of."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT)
    assert child.stdout is not None
    told = 0
    try:
        if chance.random() < 0.8:
            told += bool(child.stdout.readline())
            time.sleep(chance.random() * 0.4)
        else:
            time.sleep(chance.random() * 1.5)
    finally:
        child.kill()
        told += len(child.communicate()[0].splitlines())
    assert child.returncode == -signal.SIGKILL
    return told


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_sync_that_is_killed_again_and_again_puts_each_message_in_the_table_once(kind: str, tmp_path: Path) -> None:
    lake, chance = Lake(kind, tmp_path / "lake", tmp_path / "store"), random.Random(SEED)
    sync = [*RMQSTORE, "sync", str(lake.store), *lake.arguments, "--columns", "body"]
    with writing(lake.store) as writer:
        while not (lake.store / "commitlog").exists():
            assert writer.poll() is None
            time.sleep(0.01)
        commits = sum(
            killed([*sync, "--follow", "--json", "--commit-seconds", "0.1"], chance) for _ in range(KILLS)
        )  # fmt: skip
        count = int(writer.communicate()[0])
    assert commits > KILLS / 2
    done = subprocess.run(sync, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    assert lake.places() == stored(lake.store)
    rows = lake.rows()  # DuckDB reads it by this name
    bodies = duckdb.sql("select count(*), count(distinct body), min(body::text::int), max(body::text::int) from rows")
    assert rows.num_rows == count
    assert bodies.fetchall() == [(count, count, 0, count - 1)]
