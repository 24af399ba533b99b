"""The job that writes topics to Parquet: in one go, and again and again."""

import datetime
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException

import rmqstore
from jobs import topic_to_parquet

pytestmark = pytest.mark.spark

SCHEMA = "bornTimestamp timestamp, storeTimestamp timestamp, body binary, topic string, queueId int"


def at(text):
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


@pytest.fixture
def messages(spark):
    rows = [
        (at("2026-11-18T23:59:59.999"), at("2026-11-19T00:00:00"), b"late", "t", 0),
        (at("2026-11-18T00:00:00"), at("2026-11-18T00:00:00"), b"\x00\xff", "t", 1),
        (None, None, None, "%DLQ%g", 0),
    ]
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "the following arguments are required: --store, --topic, --output"),
        (["--help"], 0, "topics of a RocketMQ store to Parquet, by topic"),
        (["--store=s", "--topic=t", "--output=o"], 1, "pip install 'rmqstore[spark]'"),
    ],
)
def test_without_pyspark_it_says_what_to_install(arguments: list[str], status: int, said: str) -> None:
    run = "runpy.run_module('jobs.topic_to_parquet', run_name='__main__')"
    program = f"import runpy, sys; sys.modules['pyspark'] = None; {run}"
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
    assert_df_equality(topic_to_parquet.transform(messages, time_column), expected)


def test_the_day_is_that_of_the_time_of_storing_unless_said(messages):
    assert [row.day for row in topic_to_parquet.transform(messages).limit(1).collect()] == [datetime.date(2026, 11, 19)]


def test_what_is_written_is_read_back(messages, spark, tmp_path):
    days = topic_to_parquet.transform(messages)
    topic_to_parquet.write_by_day(days, str(tmp_path / "out"))
    read = spark.read.parquet(str(tmp_path / "out"))
    assert_df_equality(read, days, ignore_row_order=True, ignore_column_order=True)
    assert len(read.inputFiles()) == 3
    assert (tmp_path / "out" / "topic=t" / "day=2026-11-19").is_dir()


def test_an_output_that_exists_is_replaced_only_when_asked(messages, tmp_path):
    days, output = topic_to_parquet.transform(messages), str(tmp_path / "out")
    topic_to_parquet.write_by_day(days, output)
    with pytest.raises(AnalysisException, match="already exists"):
        topic_to_parquet.write_by_day(days, output)
    topic_to_parquet.write_by_day(days.limit(1), output, overwrite=True)
    assert len(list((tmp_path / "out").glob("topic=*/day=*"))) == 1


def test_topics_are_read_with_the_default_columns(spark, store):
    counts = topic_to_parquet.read_topics(spark, str(store), "payments,reminders").groupBy("topic").count().collect()
    assert {row["topic"]: row["count"] for row in counts} == {"payments": 1502, "reminders": 8}


@pytest.fixture
def same_session(spark, monkeypatch) -> None:
    """The job takes the session of the tests, and leaves it running."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


def put(store: Path, topic: str, count: int, size: int = 8) -> None:
    bodies = [random.Random(number).randbytes(size) for number in range(count)]
    with rmqstore.open_store(store) as one:
        one.put_columns(pa.table({"topic": [topic] * count, "body": bodies})).raise_for_status()


def run(capsys, store: Path, output: Path, *more: object) -> str:
    given = ["--store", store, "--topic", "t,u", "--output", output, *more]
    assert topic_to_parquet.main([str(one) for one in given]) == 0
    return str(capsys.readouterr().out)


def places(spark, output: Path) -> list[tuple[str, int, int]]:
    """Where each message of `output` stands in its topic: a doubled one is there twice."""
    rows = spark.read.parquet(str(output)).select("topic", "queueId", "queueOffset").collect()
    return sorted(tuple(row) for row in rows)


@pytest.fixture
def small(tmp_path) -> Path:
    put(tmp_path / "small", "t", 30)
    put(tmp_path / "small", "u", 10)
    return tmp_path / "small"


@pytest.mark.some(2)
@pytest.mark.parametrize("is_stream", [False, True])
def test_files_are_of_about_the_size_that_was_asked_for(same_session, spark, tmp_path, capsys, is_stream):
    more = ("--checkpoint", tmp_path / "c") if is_stream else ()
    put(tmp_path / "s", "t", 10 * 1024, 1024)  # 10 MiB that no compression makes smaller
    put(tmp_path / "s", "u", 8)
    run(capsys, tmp_path / "s", tmp_path / "out", "--target-mib", "2", *more)
    sizes = {
        topic: [path.stat().st_size / 2**20 for path in tmp_path.glob(f"out/topic={topic}/**/*.parquet")]
        for topic in "tu"
    }
    assert 5 <= len(sizes["t"]) <= 8
    assert max(sizes["t"]) < 2.5
    assert len(sizes["u"]) == 1
    assert len(places(spark, tmp_path / "out")) == 10 * 1024 + 8


def test_a_checkpoint_adds_what_is_new_and_no_more(same_session, spark, small, tmp_path, capsys):
    new = ("--checkpoint", tmp_path / "c")
    assert run(capsys, small, tmp_path / "out", *new) == f"40 messages of t,u were added to {tmp_path / 'out'}\n"
    assert run(capsys, small, tmp_path / "out", *new).startswith("0 messages")
    put(small, "u", 5)
    assert run(capsys, small, tmp_path / "out", *new).startswith("5 messages")
    found = places(spark, tmp_path / "out")
    assert len(found) == len(set(found)) == 45


def test_a_batch_that_was_cut_off_comes_again_and_is_there_once(same_session, spark, small, tmp_path, monkeypatch):
    """The files are there, all or some, and the checkpoint does not know."""
    given = [
        "--store",
        str(small),
        "--topic",
        "t,u",
        "--output",
        str(tmp_path / "out"),
        "--checkpoint",
        str(tmp_path / "c"),
    ]
    write = topic_to_parquet.add_batch

    def cut(days, output, *rest):
        write(days, output, *rest)
        shutil.rmtree(tmp_path / "out" / "topic=u")
        raise OSError("the power goes")

    with monkeypatch.context() as patched:
        patched.setattr(topic_to_parquet, "add_batch", cut)
        with pytest.raises(SystemExit):
            topic_to_parquet.main(given)
    assert len(places(spark, tmp_path / "out")) == 30
    put(small, "t", 7)
    assert topic_to_parquet.main(given) == 0
    found = places(spark, tmp_path / "out")
    assert len(found) == len(set(found)) == 47


@pytest.mark.deep
def test_two_checkpoints_do_not_replace_each_others_batches(same_session, spark, small, tmp_path, capsys):
    for name in "ab":
        run(capsys, small, tmp_path / "out", "--checkpoint", tmp_path / name)
    assert len(places(spark, tmp_path / "out")) == 80


def test_a_stream_does_not_mix_with_what_was_written_in_one_go(same_session, small, tmp_path, capsys):
    run(capsys, small, tmp_path / "out")
    with pytest.raises(SystemExit):
        run(capsys, small, tmp_path / "out", "--checkpoint", tmp_path / "c")
    assert "has files without batch=" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--overwrite", "--checkpoint", "c"], "would delete output that the checkpoint counts as done"),
        (["--target-mib", "0"], "'0': a whole number of MiB, at least 1"),
        (["--target-mib", "128m"], "'128m': a whole number of MiB"),
    ],
)
def test_a_mistake_is_told_before_spark_starts(more: list[str], words: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        topic_to_parquet.main(["--store", "s", "--topic", "t", "--output", "o", *more])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.deep
def test_the_job_runs_as_a_command(spark, store, tmp_path, environment):
    output = tmp_path / "orders.parquet"
    command = [sys.executable, topic_to_parquet.__file__, "--store", store, "--topic", "orders", "--output", output]
    done = subprocess.run(
        [*command, "--partition-by", "bornTimestamp"], capture_output=True, encoding="utf-8", check=True,
        env=environment,
    )  # fmt: skip
    assert done.stdout == f"4774 messages of orders are in {output}, 3 files\n"
    days = [f"day=2026-11-{day}" for day in (18, 19, 20)]
    assert sorted(path.name for path in output.glob("topic=orders/day=*")) == days
    assert spark.read.parquet(str(output)).count() == 4774
