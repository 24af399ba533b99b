"""The job that appends topics to tables, with the libraries that write the tables."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame

import rmqstore
from jobs import topic_to_table

KILLED_JOB = Path(__file__).with_name("killed_job.py")
KINDS = ("delta", "iceberg")


def put(store: Path, topic: str, count: int) -> None:
    with rmqstore.open_store(store) as one:
        for number in range(count):
            one.put(rmqstore.Message(topic, b"%d" % number, tags="a", keys=["k"])).raise_for_status()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    put(tmp_path / "store", "t", 30)
    put(tmp_path / "store", "u", 10)
    return tmp_path / "store"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(kind: str, tmp_path: Path) -> str:
    """A table of this test's own: a path of Delta's, a name in Iceberg's catalog."""
    return str(tmp_path / "a delta `table`") if kind == "delta" else f"lake.db.{tmp_path.name}"


@pytest.fixture
def arguments(kind: str, table: str, store: Path, tmp_path: Path) -> list[str]:
    checkpoint = str(tmp_path / "checkpoint")
    return ["--store", str(store), "--topic", "t,u", "--format", kind, "--table", table, "--checkpoint", checkpoint]


def rows_of(spark, kind: str, table: str) -> DataFrame:
    if kind == "delta":
        return spark.read.format("delta").load(table)
    spark.catalog.refreshTable(table)  # the job has a session of its own
    return spark.table(table)


def places(spark, kind: str, table: str) -> list[tuple[str, int, int]]:
    """Where each message of the table stands in its topic: a doubled one is there twice."""
    rows = rows_of(spark, kind, table).select("topic", "queueId", "queueOffset").collect()
    return sorted(tuple(row) for row in rows)


def ran(capsys, arguments: list[str]) -> str:
    assert topic_to_table.main(arguments) == 0
    return str(capsys.readouterr().out)


def test_a_table_has_the_rows_of_the_store(spark, kind, table, arguments, store, capsys):
    assert ran(capsys, arguments) == f"40 messages of t,u were added to {table}\n"
    read = spark.read.format("rmqstore").option("subscribe", "t,u").load(str(store))
    expected = topic_to_table.transform(read)
    order = ["topic", "queueId", "queueOffset"]
    assert_df_equality(rows_of(spark, kind, table).orderBy(order), expected.orderBy(order), ignore_nullable=True)


def test_what_is_new_is_added_and_no_more(spark, kind, table, arguments, store, capsys):
    assert ran(capsys, arguments).startswith("40 messages")
    assert ran(capsys, arguments).startswith("0 messages")
    put(store, "u", 5)
    assert ran(capsys, arguments).startswith("5 messages")
    found = places(spark, kind, table)
    assert len(found) == len(set(found)) == 45


def test_a_kill_between_the_table_and_the_checkpoint_doubles_nothing(
    spark, kind, table, arguments, store, environment, capsys
):
    killed = subprocess.run([sys.executable, KILLED_JOB, *arguments], env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert len(places(spark, kind, table)) == 40
    put(store, "t", 7)
    ran(capsys, arguments)
    found = places(spark, kind, table)
    assert len(found) == len(set(found)) == 47
    assert ran(capsys, arguments).startswith("0 messages")


def test_a_batch_that_was_rolled_back_is_not_in_the_table(spark, tmp_path):
    """Iceberg keeps its snapshot, which is no reason to leave it out."""
    table = f"lake.db.{tmp_path.name}"
    frame = spark.range(3).selectExpr("'t' as topic", "current_date() as day", "id")
    topic_to_table.make_table(spark, frame.schema, table, "iceberg")
    for number in (0, 1):
        topic_to_table.append_to_iceberg(frame, table, "q", number)
    assert topic_to_table.last_batch(spark, table, "q") == 1
    assert topic_to_table.last_batch(spark, table, "another query") == -1
    first = spark.table(f"{table}.history").orderBy("made_current_at").collect()[-2]["snapshot_id"]
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.removeprefix('lake.')}', {first})")
    assert topic_to_table.last_batch(spark, table, "q") == 0
    topic_to_table.append_to_iceberg(frame, table, "q", 1)
    assert spark.table(table).count() == 6


def test_a_table_is_made_with_partitions(spark, kind, table, arguments, capsys):
    ran(capsys, arguments)
    if kind == "delta":
        assert spark.sql(f"describe detail '{table}'").first()["partitionColumns"] == ["topic", "day"]
    else:
        assert {row["partition"]["topic"] for row in spark.table(f"{table}.partitions").collect()} == {"t", "u"}


def test_a_table_with_other_columns_is_refused(spark, kind, table, arguments, capsys):
    one = spark.range(1).write.format(kind)
    one.save(table) if kind == "delta" else one.saveAsTable(table)
    with pytest.raises(SystemExit) as ended:
        topic_to_table.main(arguments)
    assert ended.value.code == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert rows_of(spark, kind, table).count() == 1
