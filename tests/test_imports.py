"""What the package brings into a process that only reads: each of Spark's Python workers pays for it."""

import subprocess
import sys
from pathlib import Path

import rmqstore

_TESTS = Path(__file__).parent
_SHOW = "import sys, rmqstore, spark_source.batch_reader, spark_source.stream.reader; print(*sys.modules)"


def test_readers_import_neither_the_engine_nor_pandas():
    shown = subprocess.run([sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True).stdout.split()
    assert "rmqstore.snapshot.reader" in shown
    assert {
        name for name in shown if name.startswith(("rmqstore.store", "rmqstore.log", "rmqstore.broker", "pandas"))
    } == set()


def test_the_engine_does_not_import_pandas():
    show = "import sys, rmqstore.store, spark_source.sink; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split()
    assert "rmqstore.log.encode.columns" in shown
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
    rooms = [_TESTS / room for room in ("bench", "conformance", "mutation", "soak", "teeth")]
    modules = [f"tests.{path.parent.name}.{path.stem}" for room in rooms for path in sorted(room.glob("*.py"))]
    assert "tests.bench.bench_replica_stream" in modules
    imports = "".join(f"import {module}\n" for module in modules if not module.endswith("__"))
    done = subprocess.run(
        [sys.executable, "-c", imports], capture_output=True, text=True, cwd=_TESTS.parent, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there():
    assert [name for name in rmqstore.__all__ if not hasattr(rmqstore, name)] == []
    assert rmqstore.open_store.__module__ == "rmqstore.store"
