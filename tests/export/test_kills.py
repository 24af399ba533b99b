"""An export that is killed for real, at any moment and again and again, beside a writer: each message once.

`make crash N=20` kills twenty times as often.
"""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rmqstore import open_store
from rmqstore.export import export_messages
from tests.crash.strides import ROUNDS
from tests.export.killed_exports import wish_of
from tests.export.reading import require_each_once
from tests.export.stores import CONFIG, put

pytestmark = [pytest.mark.deep, pytest.mark.crash]

KILLS = 20 * ROUNDS
PROJECT = Path(__file__).parents[2]


class Exporter:
    """The process whose children export."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.export.killed_exports"]
        self._process = subprocess.Popen(
            command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )  # fmt: skip

    def run(
        self, form: str, store: str, place: Path, killed_after_s: float, meanwhile: Callable[[], None] = lambda: None
    ) -> tuple[int, float]:
        """One export, killed after a time unless it is over by then; its exit code, and how long it took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([form, store, str(place)]).encode() + b"\n")
        child, began_s = int(self._process.stdout.readline()), time.monotonic()
        meanwhile()
        left_s = max(killed_after_s - (time.monotonic() - began_s), 0)
        if not select.select([self._process.stdout], [], [], left_s)[0]:
            with suppress(ProcessLookupError):  # it was quicker
                os.kill(child, signal.SIGKILL)
        return int(self._process.stdout.readline()), time.monotonic() - began_s

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def exporter():
    process = Exporter()
    yield process
    process.end()


@pytest.mark.parametrize("form", ["parquet", "json-lines", "store"])
def test_each_message_is_there_once(form: str, exporter: Exporter, tmp_path: Path) -> None:
    chance = random.Random(f"{form} {KILLS}")
    place, number, killed = tmp_path / "out", 0, 0
    with open_store(tmp_path / "store", CONFIG) as store:

        def more() -> None:
            nonlocal number
            count = chance.randint(1, 100)
            put(store, number, count)
            number += count

        put(store, 0, 300)
        number = 300
        code, whole_s = exporter.run(form, store.path, tmp_path / "timed", 60)
        assert code == 0
        while killed < KILLS:
            more()
            code, _ = exporter.run(form, store.path, place, chance.uniform(0, 0.6 * whole_s), more)
            assert code in (0, -signal.SIGKILL)
            killed += code != 0
        assert export_messages(store.path, place, wish_of(form)).total_count == number
        assert require_each_once(place, form, Path(store.path)) == number
    leftovers = [path.name for path in place.rglob("*.tmp")]
    assert leftovers == []
