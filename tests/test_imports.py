"""What the package brings into a process that only reads: each of Spark's Python workers pays for it."""

import subprocess
import sys

import rmqstore

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


def test_every_public_name_is_there():
    assert [name for name in rmqstore.__all__ if not hasattr(rmqstore, name)] == []
    assert rmqstore.open_store.__module__ == "rmqstore.store"
