"""A scan is an ordinary Arrow stream: DuckDB and Polars query it, and find what the example store is said to hold."""

import importlib.util
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import duckdb
import polars as pl
import pytest

import rmqstore

pytestmark = pytest.mark.stores

EXAMPLES = Path(__file__).parents[2] / "examples"

TAGS = {"created": 1700, "paid": 1502, "shipped": 1374, "cancelled": 198}
METHODS = {"card": 890, "transfer": 312, "wallet": 300}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("examples")
    with tarfile.open(EXAMPLES / "orders-store.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "store"


def example(name: str) -> ModuleType:
    """A script of examples/ as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_duckdb_sees_a_stream_by_the_name_of_its_variable(store):
    orders = rmqstore.open_snapshot(store).scan(topics=["orders"], columns=["tags"])  # noqa: F841
    assert dict(duckdb.sql("select tags, count(*) from orders group by all").fetchall()) == TAGS


def test_duckdb_joins_two_streams_and_keeps_instants(store):
    snapshot = rmqstore.open_snapshot(store)
    with duckdb.connect() as connection:
        connection.register("orders", snapshot.scan(topics=["orders"], tags=("paid",)))
        connection.register("payments", snapshot.scan(topics=["payments"]))
        joined, first_ms = connection.sql(
            "select count(*), epoch_ms(min(o.bornTimestamp)) from orders o join payments p using (keys)"
        ).fetchall()[0]
    times = snapshot.scan(topics=["orders"], columns=["bornTimestamp"], tags=("paid",)).read_all()["bornTimestamp"]
    assert joined == TAGS["paid"]
    assert first_ms == round(min(times.to_pylist()).timestamp() * 1000)


def test_duckdb_reads_the_property_map(store):
    snapshot = rmqstore.open_snapshot(store)
    with duckdb.connect() as connection:
        connection.register("orders", snapshot.scan(topics=["orders"], columns=["properties"], tags=("created",)))
        counts = dict(
            connection.sql("select properties['channel']::varchar, count(*) from orders group by all").fetchall()
        )
    assert set(counts) == {"app", "web"}
    assert sum(counts.values()) == TAGS["created"]


def test_polars_takes_every_column_but_maps_as_they_are(store):
    snapshot = rmqstore.open_snapshot(store)
    frame = pl.DataFrame(snapshot.scan(topics=["orders"]))
    table = snapshot.scan(topics=["orders"]).read_all()
    assert frame.columns == table.column_names
    assert frame["bornTimestamp"].dtype == pl.Datetime("us", "UTC")
    assert frame.to_dicts() == table.to_pylist()


def test_polars_goes_through_a_stream_batch_by_batch(store):
    stream = rmqstore.open_snapshot(store).scan(topics=["orders"], columns=["tags"], batch_rows=500)
    counts = [pl.DataFrame(batch)["tags"].eq("paid").sum() for batch in stream]
    assert len(counts) >= 4774 // 500
    assert sum(counts) == TAGS["paid"]


def test_the_duckdb_example_answers(store):
    rows = example("query_with_duckdb").paid_by_method(str(store))
    assert {method: orders for method, orders, _ in rows} == METHODS
    assert sum(cents for _, _, cents in rows) == 12_692_730


def test_the_polars_example_answers(store):
    frame = example("query_with_polars").orders_by_hour(str(store))
    assert frame["created"].sum() == TAGS["created"]
    assert frame["hour"].is_sorted()
    assert frame["hour"].n_unique() == len(frame) == 58


@pytest.mark.parametrize(
    ("name", "shown"), [("query_with_duckdb", "transfer     312"), ("query_with_polars", "(58, 2)")]
)
def test_an_example_runs_as_its_docstring_says(store, name, shown):
    script = EXAMPLES / f"{name}.py"
    run = subprocess.run(
        [sys.executable, script, store],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={"PYTHONPATH": str(EXAMPLES.parent)},
    )
    assert shown in run.stdout
    assert run.stderr == ""


@pytest.mark.parametrize("name", ["query_with_duckdb", "query_with_polars"])
def test_an_example_without_its_argument_says_its_usage(name):
    run = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={"PYTHONPATH": str(EXAMPLES.parent)},
    )
    assert (run.returncode, run.stderr.strip()) == (1, f"usage: python examples/{name}.py STORE")
