"""The job that writes topics to Parquet."""

import datetime
import subprocess
import sys

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException

from jobs import to_parquet

pytestmark = pytest.mark.spark

SCHEMA = "bornTimestamp timestamp, storeTimestamp timestamp, body binary"


def at(text):
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


@pytest.fixture
def messages(spark):
    rows = [
        (at("2026-11-18T23:59:59.999"), at("2026-11-19T00:00:00"), b"late"),
        (at("2026-11-18T00:00:00"), at("2026-11-18T00:00:00"), b"\x00\xff"),
        (None, None, None),
    ]
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "the following arguments are required: --store, --topic, --output"),
        (["--help"], 0, "topics of a RocketMQ store to Parquet, by day"),
        (["--store=s", "--topic=t", "--output=o"], 1, "pip install 'rmqstore[spark]'"),
    ],
)
def test_without_pyspark_it_says_what_to_install(arguments: list[str], status: int, said: str) -> None:
    program = (
        "import runpy, sys; sys.modules['pyspark'] = None; runpy.run_module('jobs.to_parquet', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("time_column", "days"),
    [
        ("storeTimestamp", [datetime.date(2026, 11, 19), datetime.date(2026, 11, 18), None]),
        ("bornTimestamp", [datetime.date(2026, 11, 18), datetime.date(2026, 11, 18), None]),
    ],
)
def test_the_day_is_that_of_the_column(spark, messages, time_column, days):
    rows = messages.collect()
    expected = spark.createDataFrame([(*row, day) for row, day in zip(rows, days, strict=True)], f"{SCHEMA}, day date")
    assert_df_equality(to_parquet.transform(messages, time_column), expected)


def test_the_day_is_that_of_the_time_of_storing_unless_said(messages):
    assert [row.day for row in to_parquet.transform(messages).limit(1).collect()] == [datetime.date(2026, 11, 19)]


def test_what_is_written_is_read_back(messages, spark, tmp_path):
    days = to_parquet.transform(messages)
    to_parquet.write_by_day(days, str(tmp_path / "out"))
    assert_df_equality(spark.read.parquet(str(tmp_path / "out")), days, ignore_row_order=True)


def test_an_output_that_exists_is_replaced_only_when_asked(messages, tmp_path):
    days, output = to_parquet.transform(messages), str(tmp_path / "out")
    to_parquet.write_by_day(days, output)
    with pytest.raises(AnalysisException, match="already exists"):
        to_parquet.write_by_day(days, output)
    to_parquet.write_by_day(days.limit(1), output, overwrite=True)
    assert len(list((tmp_path / "out").glob("day=*"))) == 1


def test_topics_are_read_with_the_default_columns(spark, store):
    counts = to_parquet.read_topics(spark, str(store), "payments,reminders").groupBy("topic").count().collect()
    assert {row["topic"]: row["count"] for row in counts} == {"payments": 1502, "reminders": 8}


@pytest.mark.slow
def test_the_job_runs_as_a_command(spark, store, tmp_path, environment):
    output = tmp_path / "orders.parquet"
    command = [sys.executable, to_parquet.__file__, "--store", store, "--topic", "orders", "--output", output]
    run = subprocess.run(
        [*command, "--partition-by", "bornTimestamp"],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env=environment,
    )
    assert run.stdout == f"4774 messages of orders are in {output}, by the day of their bornTimestamp\n"
    assert sorted(path.name for path in output.glob("day=*")) == [f"day=2026-11-{day}" for day in (18, 19, 20)]
    assert spark.read.parquet(str(output)).count() == 4774
