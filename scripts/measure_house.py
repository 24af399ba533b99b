"""What the house weighs: files and lines, the files that each act runs, and those that each front door imports.

    .venv/bin/python scripts/measure_house.py

A file counts as run where a function of it ran in the thread that asked.  A closure is what a module imports at its top
or within a function.
"""

import ast
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import rmqstore
from rmqstore import Message, StoreConfig
from spark_source.source import RmqStoreDataSource

PROJECT = Path(__file__).resolve().parents[1]
ROOMS = ("rmqstore", "spark_source", "jobs", "pyspark_rmqstore")
DOORS = {
    "reader": "rmqstore.snapshot.reader", "engine": "rmqstore.engine.store", "replica": "rmqstore.replica.following",
    "sink": "rmqstore.sink", "Spark source": "spark_source.source", "command line": "rmqstore.cli",
}  # fmt: skip


def product_files() -> dict[str, Path]:
    """The product's modules by their names."""
    paths = [path for room in ROOMS for path in (PROJECT / room).rglob("*.py")]
    parts = {path: path.relative_to(PROJECT).with_suffix("").parts for path in paths}
    return {".".join(each[:-1] if each[-1] == "__init__" else each): path for path, each in parts.items()}


def line_count(paths: Any) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


class Run:
    """The product's files in which a function ran, and what was asked of the disk, while `watched`."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.asked: dict[str, int] = {"open": 0, "os.listdir": 0, "os.scandir": 0}
        self._root: str | None = None
        sys.addaudithook(self._heard)
        sys.setprofile(self._called)

    @contextmanager
    def watched(self, root: Path) -> Iterator[None]:
        """Counts anew; of the disk what lies below `root`."""
        self.files, self.asked = set(), dict.fromkeys(self.asked, 0)
        self._root = str(root)
        try:
            yield
        finally:
            self._root = None

    def _called(self, frame: Any, event: str, _: Any) -> None:
        if self._root and event == "call" and frame.f_code.co_name != "<module>":
            name = frame.f_code.co_filename
            if name.startswith(tuple(f"{PROJECT}/{room}/" for room in ROOMS)):
                self.files.add(name)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._root and event in self.asked and arguments and str(arguments[0]).startswith(self._root):
            self.asked[event] += 1


def closure(door: str, imports: dict[str, set[str]]) -> set[str]:
    """A module and all that it needs."""
    found, waiting = set(), [name for name in imports if name == door or name.startswith(f"{door}.")]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports[name]
    return found


def imported(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """The product's modules that one imports; a name that is no module belongs to what it is imported from."""
    wanted = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            wanted |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            longer = {f"{node.module}.{each.name}" for each in node.names}
            wanted |= {each if each in modules else node.module for each in longer}
    return {each for each in wanted if each in modules and each != name}


def batch_read(store: Path) -> None:
    source = RmqStoreDataSource({"path": str(store), "subscribe": "T"})
    reader: Any = source.reader(source.schema())
    for partition in reader.partitions():
        assert sum(batch.num_rows for batch in reader.read(partition))


def micro_batch(store: Path) -> None:
    source = RmqStoreDataSource({"path": str(store), "subscribe": "T", "startingOffsets": "earliest"})
    reader: Any = source.streamReader(source.schema())
    begin = reader.initialOffset()
    for partition in reader.partitions(begin, reader.latestOffset(begin, reader.getDefaultReadLimit())):
        assert sum(batch.num_rows for batch in reader.read(partition))


def acts(home: Path) -> Iterator[tuple[str, Path, Callable[[], Any]]]:
    """The acts, on a store of four queues and one log file."""
    store, config = home / "store", StoreConfig(log_file_size=1 << 20)
    made = rmqstore.open_store(store, config)
    for number in range(40):
        made.put(Message("T", b"body", queue_id=number % 4))
    yield "put", store, lambda: made.put(Message("T", b"body", queue_id=0))
    made.abandon()  # as a kill leaves it
    opened: list[rmqstore.Store] = []
    yield "opening after a kill", store, lambda: opened.append(rmqstore.open_store(store, config))
    opened.pop().close()
    yield "opening after a clean end", store, lambda: opened.append(rmqstore.open_store(store, config))
    yield "micro-batch of an open store", store, lambda: micro_batch(store)
    opened.pop().close()
    yield "scan", store, lambda: rmqstore.open_snapshot(store).scan(topics=["T"]).read_all()
    yield "batch read", store, lambda: batch_read(store)


def main() -> None:
    modules = product_files()
    click.echo(f"product files          {len(modules):6}")
    click.echo(f"lines                  {line_count(modules.values()):6}")
    entries = [name for name in os.listdir(PROJECT / "rmqstore") if not name.startswith(("__", "."))]
    click.echo(f"entries of rmqstore/   {len(entries):6}")
    click.echo(f"\n{'act':30} {'files run':>10} {'opens':>6} {'listings':>9}")
    run = Run()
    with tempfile.TemporaryDirectory() as home:
        for act, root, do in acts(Path(home)):
            with run.watched(root):
                do()
            listings = run.asked["os.listdir"] + run.asked["os.scandir"]
            click.echo(f"{act:30} {len(run.files):10} {run.asked['open']:6} {listings:9}")
    imports = {name: imported(name, path, modules) for name, path in modules.items()}
    click.echo(f"\n{'front door':30} {'files':>10} {'lines':>6}")
    for door, module in DOORS.items():
        found = closure(module, imports)
        click.echo(f"{door:30} {len(found):10} {line_count(modules[name] for name in found):6}")


if __name__ == "__main__":
    main()
