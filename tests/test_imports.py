"""What the package brings into a process that only reads: each of Spark's Python workers pays for it."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import rmqstore

pytestmark = pytest.mark.stores

_TESTS = Path(__file__).parent
_OURS = ("rmqstore", "spark_source")
_NO_READER_S = {
    "rmqstore.engine.store",
    "rmqstore.engine.log",
    "rmqstore.engine.broker",
    "rmqstore.replica",
    "rmqstore.cli",
}
_NO_PLANNER_S = _NO_READER_S | {
    "rmqstore.records.batch", "rmqstore.snapshot.arrow", "rmqstore.snapshot.entries", "rmqstore.snapshot.lookup.by_key",
    "rmqstore.snapshot.plan.key_pruning", "rmqstore.snapshot.scan", "rmqstore.snapshot.snapshot",
    "rmqstore.snapshot.stream.following", "rmqstore.snapshot.tables.tables", "spark_source.tables",
}  # fmt: skip
_SLOW = {"asyncio", "difflib", "pandas", "secrets", "ssl"}
_SOURCE = "import sys; from pyspark_rmqstore import DefaultSource; source = DefaultSource({options!r})\n"


class _Process(NamedTuple):
    """What one of Spark's processes is asked, what nothing of that imports, and how many modules of ours it may take:
    each is paid for with every stream, or by the first read of a session."""

    asked: str
    not_ours: set[str]
    not_others: set[str]
    count_max: int


_PROCESSES = {
    "options": _Process(
        "source.schema()", _NO_PLANNER_S | {"rmqstore.snapshot.survey.survey"}, {*_SLOW, "pyarrow.compute"}, 70
    ),
    "plan": _Process(
        "assert len(source.reader(source.schema()).partitions()) == 1",
        (_NO_PLANNER_S - {"rmqstore.records.batch"}) | {"rmqstore.snapshot.stream.planner"},
        {*_SLOW, "pyarrow.compute"},
        110,
    ),
    "stream": _Process(
        """reader = source.streamReader(source.schema())
start = reader.initialOffset()
end = reader.latestOffset(start, reader.getDefaultReadLimit())
assert len(reader.partitions(start, end)) == 1
reader.commit(end)""",
        _NO_PLANNER_S,
        {*_SLOW, "pyarrow.compute"},
        120,
    ),
    "task": _Process(
        """reader = source.reader(source.schema())
assert sum(batch.num_rows for batch in reader.read(reader.partitions()[0])) == 20""",
        _NO_READER_S | {"rmqstore.snapshot.tables.tables", "rmqstore.snapshot.stream.planner"},
        _SLOW - {"secrets", "pandas"},
        140,
    ),
}


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    with rmqstore.open_store(root, rmqstore.StoreConfig(preallocate=False), workers=False) as store:
        for number in range(20):
            store.put(rmqstore.Message("t", b"x", tags=str(number)))
    return root


@pytest.mark.some(2)
@pytest.mark.parametrize("process", _PROCESSES)
def test_a_process_of_spark_s_imports_what_it_needs_and_no_more(process: str, small_store: Path) -> None:
    asked, not_ours, not_others, count_max = _PROCESSES[process]
    options = {"path": str(small_store), "subscribe": "t", "startingOffsets": "earliest"}
    text = _SOURCE.format(options=options) + asked + "\nprint(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()
    assert "rmqstore.snapshot.store_paths" in shown
    assert [name for name in shown if any(f"{name}.".startswith(f"{room}.") for room in not_ours)] == []
    assert not_others & set(shown) == set()
    ours = [name for name in shown if name.split(".")[0] in _OURS]
    assert len(ours) <= count_max, ours


def test_the_engine_does_not_import_pandas():
    show = "import sys, rmqstore.engine.store, spark_source.sink; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split()
    assert "rmqstore.engine.log.encode.columns" in shown
    assert "pandas" not in shown


def test_a_look_at_a_store_and_its_walk_import_no_pandas(tmp_path: Path) -> None:
    with rmqstore.open_store(tmp_path, rmqstore.StoreConfig(retention=False), workers=False) as store:
        for number in range(20):
            store.put(rmqstore.Message(f"t{number % 4}", b"x"))
    show = (
        "import sys; from rmqstore.snapshot import ScanRequest, SplitBudget, open_selected\n"
        f"for wanted in ({{'topics': ['t1']}}, {{}}):\n    look = open_selected({str(tmp_path)!r}, wanted)\n"
        "    print(len(look.plan(look.select(**wanted), ScanRequest(), SplitBudget())))\n"
        "print(*sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split()
    assert shown[:2] == ["1", "1"]
    assert "pandas" not in shown


def test_programs_that_no_test_runs_can_be_imported() -> None:
    """Those behind make targets of their own, which would fall behind unseen."""
    rooms = ["bench", *(f"tests/{room}" for room in ("conformance", "ladder", "mutation", "soak", "teeth"))]
    files = [path for room in rooms for path in sorted((_TESTS.parent / room).glob("*.py"))]
    modules = [".".join(path.relative_to(_TESTS.parent).with_suffix("").parts) for path in files]
    assert "bench.bench_replica_stream" in modules
    imports = "".join(f"import {module}\n" for module in modules if not module.endswith("__"))
    done = subprocess.run(
        [sys.executable, "-c", imports], capture_output=True, text=True, cwd=_TESTS.parent, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there():
    assert [name for name in rmqstore.__all__ if not hasattr(rmqstore, name)] == []
    assert rmqstore.open_store.__module__ == "rmqstore.engine.store"
