"""The demo: what each part computes, and what a person sees of the whole."""

import datetime
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as f

import rmqstore
from jobs import demo
from jobs.topic_to_parquet import read_topics
from spark_source import job_table

OFFSETS = "group string, topic string, brokerName string, queueId int, offset long"
QUEUES = "topic string, brokerName string, queueId int, minOffset long, maxOffset long"
BACKLOG = "group string, topic string, consumed long, waiting long, waiting_by_queue string"


@pytest.mark.spark
def test_messages_are_counted_per_queue(spark):
    messages = spark.createDataFrame([("b", 1), ("b", 0), ("a", 3), ("b", 1)], "topic string, queueId int")
    expected = spark.createDataFrame([("a", 3, 1), ("b", 0, 1), ("b", 1, 2)], "topic string, queue int, messages long")
    assert_df_equality(demo.messages_per_queue(messages), expected, ignore_nullable=True)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([("g", "t", "a", 0, 4), ("g", "t", "a", 1, 1200)], ("g", "t", 1204, 6, "6 + 0")),
        ([("g", "t", "a", 0, 10)], ("g", "t", 10, 1000, "0 + 1,000")),  # never said anything about queue 1
        (
            [("g", "t", "a", 0, 10), ("g", "t", "a", 1, 3)],
            ("g", "t", 13, 1000, "0 + 1,000"),
        ),  # deleted ones do not wait
        (
            [("g", "t", "a", 0, 11), ("g", "t", "a", 1, 1201)],
            ("g", "t", 1212, 0, "0 + 0"),
        ),  # beyond a store that was cut
    ],
)
def test_a_backlog_is_what_still_waits(spark, offsets, expected):
    queues = spark.createDataFrame([("t", "a", 0, 0, 10), ("t", "a", 1, 200, 1200), ("u", "a", 0, 0, 5)], QUEUES)
    rows = demo.backlog(spark.createDataFrame(offsets, OFFSETS), queues)
    assert_df_equality(rows, spark.createDataFrame([expected], BACKLOG), ignore_nullable=True)


@pytest.mark.spark
def test_those_far_behind_come_first_and_brokers_are_kept_apart(spark):
    queues = spark.createDataFrame([("t", "a", 0, 0, 10), ("t", "b", 0, 0, 20)], QUEUES)
    offsets = [("near", "t", "a", 0, 9), ("near", "t", "b", 0, 20), ("far", "t", "a", 0, 0), ("far", "t", "b", 0, 1)]
    rows = demo.backlog(spark.createDataFrame(offsets, OFFSETS), queues).collect()
    assert [(row.group, row.waiting_by_queue) for row in rows] == [("far", "10 + 19"), ("near", "1 + 0")]


@pytest.mark.deep
@pytest.mark.spark
def test_the_example_store_has_the_backlog_that_it_is_said_to_have(spark, store):
    snapshot = rmqstore.open_snapshot(store)
    offsets, queues = spark.createDataFrame(snapshot.consumer_offsets()), spark.createDataFrame(snapshot.queues())
    assert [tuple(row) for row in demo.backlog(offsets, queues).where("topic = 'orders'").collect()] == [
        ("analytics", "orders", 296, 4478, "1,067 + 1,077 + 1,194 + 1,140"),
        ("billing", "orders", 3159, 1615, "297 + 359 + 239 + 720"),
        ("shipping", "orders", 4774, 0, "0 + 0 + 0 + 0"),
    ]


@pytest.mark.spark
def test_a_history_is_in_the_order_of_sending_and_says_what_is_new(spark):
    schema = "bornTimestamp timestamp, topic string, tags string, body binary"
    rows = [
        (
            datetime.datetime(2026, 11, 19, 8, tzinfo=datetime.UTC),
            "orders",
            "paid",
            b'{"order":"o","event":"paid","at":"x","n":7}',
        ),
        (
            datetime.datetime(2026, 11, 18, 9, 30, tzinfo=datetime.UTC),
            "orders",
            "created",
            '{"city":"東京","n":1}'.encode(),
        ),
        (datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC), "audit", None, b"not JSON"),
    ]
    assert [tuple(row) for row in demo.history(spark.createDataFrame(rows, schema)).collect()] == [
        ("2026-11-18 09:30:00", "orders", "created", "city=東京 n=1"),
        ("2026-11-19 08:00:00", "orders", "paid", "n=7"),
        ("2026-11-20 00:00:00", "audit", None, None),
    ]


@pytest.mark.spark
def test_the_sql_of_the_demo_answers_as_the_messages_do(spark, store):
    orders = read_topics(spark, str(store), "orders")
    orders.createOrReplaceTempView("orders")
    scan = rmqstore.open_snapshot(store).scan(topics=["orders"], columns=["bornTimestamp", "body"], tags=("paid",))
    expected: dict[str, list[int]] = {}
    for row in scan.read_all().to_pylist():
        if row["bornTimestamp"].strftime("%d %H") in ("19 08", "19 09", "19 10", "19 11"):
            cents = int(row["body"].split(b'"amount_cents":')[1].split(b",")[0])
            expected.setdefault(f"{row['bornTimestamp']:%H:00}", []).append(cents)
    answers = spark.sql(demo.PAID_BY_HOUR).select("hour_utc", "orders_paid", f.round(f.col("euros") * 100)).collect()
    assert [tuple(row) for row in answers] == [
        (hour, len(cents), sum(cents)) for hour, cents in sorted(expected.items())
    ]


def test_the_store_is_unpacked_once(tmp_path):
    store = demo.unpack(demo.ARCHIVE, tmp_path)
    assert (store / "commitlog").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    (store / "mark").touch()
    assert demo.unpack(demo.ARCHIVE, tmp_path) == store
    assert (store / "mark").exists()


def test_an_archive_that_ends_early_leaves_no_store(tmp_path):
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(demo.ARCHIVE.read_bytes()[:100_000])
    with pytest.raises((EOFError, tarfile.TarError)):
        demo.unpack(torn, tmp_path)
    assert not (tmp_path / "store").exists()
    assert demo.unpack(demo.ARCHIVE, tmp_path).is_dir()


def test_outside_a_checkout_one_line_says_what_to_do(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(demo, "ARCHIVE", tmp_path / "missing.tar.gz")
    assert demo.main(["--output", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "run it in a checkout of the project, with make demo" in error


def test_an_output_that_cannot_be_written_is_one_line(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert demo.main(["--output", str(tmp_path / "file" / "below")]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "choose another directory with --output" in captured.err


@pytest.fixture(scope="module")
def run(tmp_path_factory, environment) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The demo, run as `make demo` runs it, without the variables that make sets; and the directory that it ran in."""
    directory = tmp_path_factory.mktemp("demo")
    plain = {name: text for name, text in environment.items() if name not in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP")}
    command = [sys.executable, "-m", "jobs.demo"]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", check=False, cwd=directory, env=plain
    ), directory


@pytest.mark.spark
@pytest.mark.deep
def test_a_person_sees_only_the_demo_at_80_columns(run):
    done, _ = run
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(job_table.shown_width, done.stdout.splitlines())) <= 80


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize(
    "line",
    [
        "  written by    RocketMQ 5.x, by a broker called broker-a",
        "  orders         3     1,199",
        "  09:00              20  1,998.81",
        "  billing    orders            3,159    1,615  297 + 359 + 239 + 720",
        "  2026-11-19 08:36:29  orders    shipped  parcel=PX700000592 city=São Paulo",
        "    build/demo/orders.parquet/topic=orders/day=2026-11-20/",
        "  2026-11-20       928",
        "    $ rmqstore recover build/demo/engine-store --dry-run",
        "last exit  not clean: the file abort is there",
        "recovered, and closed cleanly",
        "Acknowledged and found are the same.",
        "The reminder came late, paid was sent, cancelled never was, and poison was given",
        "    rmqstore inspect build/demo/store",
    ],
)
def test_every_part_is_shown(run, line):
    assert line in run[0].stdout.splitlines()


@pytest.mark.spark
@pytest.mark.deep
def test_the_files_are_where_the_demo_says(run):
    _, directory = run
    assert [path.name for path in sorted((directory / "build" / "demo").iterdir())] == [
        "broker-store",
        "engine-store",
        "orders.parquet",
        "spark.log",
        "store",
    ]
    assert len(list((directory / "build" / "demo" / "orders.parquet").glob("topic=orders/day=*/*.parquet"))) >= 3
