"""The job that appends topics to tables, where Spark has no library for them; with one: tests/tables."""

from pathlib import Path

import pytest
from chispa import assert_df_equality

import rmqstore
from jobs import topic_to_parquet, topic_to_table
from tests.jobs.frames import at, messages

pytestmark = pytest.mark.spark

COLUMNS = ("topic", "body", "bornTimestamp", "storeTimestamp")


def arguments(directory: Path, table: str, kind: str) -> list[str]:
    given = ["--topic", "t", "--format", kind, "--table", table, "--checkpoint", str(directory / "c")]
    return ["--store", str(directory / "s"), *given]


def test_rows_have_the_day_as_those_of_parquet(spark):
    given = messages(spark, COLUMNS, {"topic": "t", "bornTimestamp": at("10:00:00"), "storeTimestamp": at("10:00:00")})
    assert_df_equality(topic_to_table.transform(given), topic_to_parquet.transform(given))


@pytest.mark.parametrize(
    ("kind", "needs"), [("delta", "--packages io.delta:delta-spark"), ("iceberg", "an Iceberg catalog")]
)
def test_without_the_library_it_says_what_to_start_spark_with(
    spark, tmp_path, capsys, monkeypatch, kind: str, needs: str
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    with rmqstore.open_store(tmp_path / "s") as one:
        one.put(rmqstore.Message("t", b"x"))
    table = str(tmp_path / "table") if kind == "delta" else "lake.db.t"
    with pytest.raises(SystemExit) as ended:
        topic_to_table.main(arguments(tmp_path, table, kind))
    assert ended.value.code == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "topic_to_table.py: " in line]
    assert f"Spark was started without what {table} needs: {needs}" in line
    assert not (tmp_path / "c").exists()


def test_an_iceberg_table_has_a_name(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        topic_to_table.main(arguments(tmp_path, "/data/table", "iceberg"))
    assert ended.value.code == 2
    assert "write an Iceberg table as" in capsys.readouterr().err
