"""Writing DataFrames and streams into a store, read back with Spark and with the engine."""

import itertools
import json
import logging
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import rmqstore
from rmqstore.sink import StagedPart
from spark_source import sink
from spark_source.options.writes import parse_sink_options
from spark_source.sink import SinkColumns
from tests.spark_source.advice import advice_in, advice_of
from tests.spark_source.sink_kills import PLAN, STEPS, TOPIC, bodies, check_stream, lines, query_of

pytestmark = pytest.mark.spark


def write(frame: DataFrame, store: Path, mode: str = "append", **options: object) -> None:
    frame.write.format("rmqstore").options(**options).mode(mode).save(str(store))


def read(spark: SparkSession, store: Path, topic: str = "orders", columns: str = "*") -> DataFrame:
    return spark.read.format("rmqstore").option("subscribe", topic).option("columns", columns).load(str(store))


def numbers(spark: SparkSession, count: int, parts: int = 2) -> DataFrame:
    return spark.range(0, count, 1, parts).select(f.col("id").cast("string").alias("body"))


def test_every_column_comes_back(spark, tmp_path):
    moment = datetime(2024, 5, 1, 12, 30, 0, 123000, tzinfo=UTC)
    rows = [
        ("orders", b"\x00\xff", "paid", ["k1", "k 2"], {"a": "1", "b": "ü"}, 5, 9, moment),
        ("refunds", b"", None, None, None, 0, None, None),
    ]
    frame = spark.createDataFrame(
        rows,
        "topic string, body binary, tags string, keys array<string>, properties map<string,string>, queueId int, "
        "flag int, bornTimestamp timestamp",
    )
    for zone, large in (("Asia/Shanghai", "true"), ("UTC", "false")):
        store = tmp_path / f"store-{large}"
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
        try:
            write(frame, store)
        finally:
            spark.conf.unset("spark.sql.session.timeZone")
            spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
        one = read(spark, store).first()
        assert (one.topic, bytes(one.body), one.tags, one["keys"], one.queueId) == (
            "orders",
            b"\x00\xff",
            "paid",
            "k1 k 2",
            5,
        )
        assert (one.flag, one.properties["a"], one.properties["b"]) == (9, "1", "ü")
        assert rmqstore.open_snapshot(store).scan(topics=["orders"], columns=["bornTimestamp"]).read_all()[
            "bornTimestamp"
        ].to_pylist() == [moment]
        other = read(spark, store, "refunds").first()
        assert (bytes(other.body), other.tags, other["keys"], other.flag) == (b"", None, None, 0)


def test_rows_are_there_once_in_the_order_of_their_partition_and_go_on_from_write_to_write(spark, tmp_path):
    store = tmp_path / "store"
    write(numbers(spark, 30_000), store, topic="orders", queues=3)
    assert bodies(store) == [str(number) for number in range(30_000)]
    write(numbers(spark, 10), store, topic="orders", queues=3)
    assert bodies(store)[30_000:] == [str(number) for number in range(10)]
    counts = {row.queueId: row["count"] for row in read(spark, store).groupBy("queueId").count().collect()}
    assert set(counts) == {0, 1, 2}
    assert max(counts.values()) - min(counts.values()) <= 4
    with rmqstore.open_store(str(store)) as opened:
        assert opened.get("orders", 1, 0).messages[0].queue_offset == 0
        assert not opened.warnings


def test_rows_of_one_key_go_to_one_queue(spark, tmp_path):
    keyed = numbers(spark, 200).withColumn("keys", f.concat(f.lit("k"), f.col("body") % 7))
    write(keyed, tmp_path / "store", topic="orders", queues=4)
    queues = read(spark, tmp_path / "store").groupBy("keys").agg(f.countDistinct("queueId").alias("n"))
    assert {row.n for row in queues.collect()} == {1}


def test_overwrite_is_a_new_store(spark, tmp_path):
    store = tmp_path / "store"
    write(numbers(spark, 100), store, topic="orders")
    write(numbers(spark, 7, 1), store, "overwrite", topic="orders")
    assert bodies(store) == [str(number) for number in range(7)]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_an_empty_frame_makes_an_empty_store(spark, tmp_path):
    write(numbers(spark, 0), tmp_path / "store", topic="orders")
    write(numbers(spark, 3, 1), tmp_path / "store", topic="orders")
    assert bodies(tmp_path / "store") == ["0", "1", "2"]


def test_a_batch_with_a_name_is_written_once(spark, tmp_path):
    store = tmp_path / "store"
    for batch_id in (0, 1, 1, 0, 2):
        write(numbers(spark, 4, 1), store, topic="orders", writerId="daily", batchId=batch_id)
    assert bodies(store) == ["0", "1", "2", "3"] * 3


def test_nothing_is_left_in_the_store_beside_it(spark, tmp_path):
    write(numbers(spark, 4), tmp_path / "store", topic="orders")
    assert not (tmp_path / "store" / "sink").exists()


@pytest.mark.parametrize(
    ("columns", "options", "advice"),
    [
        ("body", {}, "no topic: give the option topic"),
        ("body as payload", {"topic": "t"}, "2 mistakes: (1) no message has a column payload"),
        ("body, 1.5 as queueId", {"topic": "t"}, "column queueId is decimal(2,1): cast it to int"),
        ("body", {"topic": "t", "subscribe": "t"}, "unknown option 'subscribe'"),
        ("body", {"topic": "SCHEDULE_TOPIC_XXXX"}, "the topic SCHEDULE_TOPIC_XXXX is RocketMQ's own"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(spark, tmp_path, columns, options, advice):
    frame = numbers(spark, 2).selectExpr(*columns.split(", "))
    line = advice_of(lambda: write(frame, tmp_path / "store", **options))
    assert line.startswith("rmqstore.errors.Rejected: ")
    assert advice in line
    assert not (tmp_path / "store").exists()


@pytest.mark.deep
def test_a_row_that_makes_no_message_fails_the_job_and_nothing_is_added(spark, tmp_path):
    store = tmp_path / "store"
    write(numbers(spark, 2, 1), store, topic="orders")
    frame = spark.range(0, 100, 1, 2).select(
        f.col("id").cast("string").alias("body"),
        f.when(f.col("id") == 70, "no topic?").otherwise("orders").alias("topic"),
    )
    with pytest.raises(PySparkException, match=r"topic 'no topic\?' may not be stored: row 20"):
        write(frame, store)
    assert bodies(store) == ["0", "1"]
    # The task that was still running when the job failed may leave its part: nobody takes it, and a week later it goes.
    assert len(list(store.rglob("part-*"))) <= 1
    write(numbers(spark, 2, 1), store, topic="orders")
    assert bodies(store) == ["0", "1", "0", "1"]


@pytest.mark.deep
def test_a_store_that_somebody_writes_to_is_refused_at_once(spark, tmp_path):
    with rmqstore.open_store(str(tmp_path / "store")):
        line = advice_of(lambda: write(numbers(spark, 2), tmp_path / "store", topic="orders"))
    assert line.startswith("rmqstore.errors.StoreInUse: ")
    assert "stop the other writer" in line


def test_the_two_attempts_of_one_task_count_once(spark, tmp_path):
    """Speculation, without waiting for it: write() runs twice for a partition, and one message is committed."""
    request = parse_sink_options({"path": str(tmp_path / "store")}, is_stream=False)
    writer = sink.BatchSink(sink.StoreSink(request, SinkColumns("orders"), overwrite=False), "w", 0)
    batch = pa.record_batch({"body": [b"a", b"b"]})
    messages = [writer.write(iter([batch])) for _ in range(2)]
    assert len(list((tmp_path / "store").rglob("part-*"))) == 2
    for _ in range(2):
        writer.commit(messages[1:])
    assert bodies(tmp_path / "store") == ["a", "b"]
    assert not list((tmp_path / "store").rglob("part-*"))


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_lower_batch_number_is_passed_over_aloud(tmp_path, caplog, overwrite):
    """A query with a new checkpoint counts from 0 again; of the same batch once more a program is told, too."""
    request, seen = parse_sink_options({"path": str(tmp_path / "store")}, is_stream=False), list[int]()
    for number, body, told in ((7, b"a", 0), (7, b"a", 0), (3, b"b", 1), (8, b"c", 0)):
        writer = sink.BatchSink(sink.StoreSink(request, SinkColumns("orders"), overwrite=overwrite), "w", number)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "rmqstore.sink"):
            writer.commit([writer.write(iter([pa.record_batch({"body": [body, body]})]))])
        warnings = [line for line in caplog.messages if "its 2 rows count as added before" in line]
        assert len(warnings) == told
        assert all("batch 3 of writer w" in line and "batch 7 is there" in line for line in warnings)
        again = [line for line in caplog.messages if "its 2 rows are not added again" in line]
        assert len(again) == int(number == 7 and len(seen) == 1)
        seen.append(number)
    assert bodies(tmp_path / "store") == (["c", "c"] if overwrite else ["a", "a", "c", "c"])


@pytest.mark.parametrize("is_encoded", [False, True])
def test_rows_for_a_topic_that_brokers_take_nothing_for_are_refused(is_encoded: bool) -> None:
    topics = pa.array(["orders", "RMQ_SYS_TRANS_HALF_TOPIC"])
    batch = pa.record_batch({"body": [b"a", b"b"], "topic": topics.dictionary_encode() if is_encoded else topics})
    with pytest.raises(rmqstore.Rejected, match="RMQ_SYS_TRANS_HALF_TOPIC is RocketMQ's own"):
        SinkColumns(None).fit(batch)
    assert SinkColumns("orders").fit(batch).num_rows == 2


def test_an_aborted_write_leaves_no_parts(spark, tmp_path):
    request = parse_sink_options({"path": str(tmp_path / "store")}, is_stream=False)
    writer = sink.BatchSink(sink.StoreSink(request, SinkColumns("orders"), overwrite=False), None, 0)
    message = writer.write(iter([pa.record_batch({"body": [b"a"]})]))
    writer.abort([None, message])
    assert not list((tmp_path / "store").rglob("part-*"))


def test_a_commit_with_results_missing_is_refused(tmp_path):
    request = parse_sink_options({"path": str(tmp_path / "store")}, is_stream=False)
    writer = sink.BatchSink(sink.StoreSink(request, SinkColumns("orders"), overwrite=False), "w", 0)
    message = writer.write(iter([pa.record_batch({"body": [b"a"]})]))
    foreign = sink.PartMessage("w", 1, StagedPart(1, 0, 0, 0, 0, 0))
    for messages in ([message, None], [message, message], [message, foreign]):
        with pytest.raises(rmqstore.Rejected, match="run it again"):
            writer.commit(messages)
    writer.commit([])
    assert not (tmp_path / "store" / "commitlog").exists()


# --- streams


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([7], [7]),
        ([0], []),
        ([10_000] * 12, [50_000, 50_000, 20_000]),
        ([49_999, 1, 120_000, 0, 3], [50_000, 120_000, 3]),
    ],
)
def test_small_batches_are_put_together_in_their_order(sizes: list[int], expected: list[int]) -> None:
    ends = list(itertools.accumulate(sizes))
    batches = [
        pa.record_batch({"n": pa.array(range(end - size, end), pa.int64())})
        for size, end in zip(sizes, ends, strict=True)
    ]
    joined = [batch for batch in put_together(batches) if batch.num_rows]
    assert [batch.num_rows for batch in joined] == expected
    assert [n for batch in joined for n in batch["n"].to_pylist()] == list(range(sum(sizes)))


def put_together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return list(sink._joined(iter(batches)))


def test_large_rows_are_not_held_for_long() -> None:
    batch = pa.record_batch({"body": pa.array([bytes(1 << 20)] * 10, pa.binary())})
    assert [joined.num_rows for joined in put_together([batch] * 5)] == [20, 20, 10]


def test_a_stream_goes_on_where_it_was(spark, tmp_path):
    for number in range(5):
        lines(tmp_path, number)
    query_of(spark, tmp_path).awaitTermination()
    lines(tmp_path, 5)
    query_of(spark, tmp_path).awaitTermination()
    check_stream(tmp_path, 6)
    (writer,) = (tmp_path / "store" / "sink").iterdir()
    assert json.loads((writer / "committed.json").read_text())["batch"] == 3
    assert [path.name for path in writer.iterdir()] == ["committed.json"]


@pytest.mark.deep
def test_a_stream_whose_every_commit_is_killed(spark, tmp_path):
    """The process that commits dies at one step after the other; the query starts again from its checkpoint."""
    for number, (verb, part) in enumerate(STEPS):
        lines(tmp_path, number)
        (tmp_path / PLAN).write_text(f"{verb} {part} commit 0")
        with pytest.raises(PySparkException):
            query_of(spark, tmp_path).awaitTermination()
        assert not (tmp_path / PLAN).exists(), (verb, part)
    query_of(spark, tmp_path).awaitTermination()
    check_stream(tmp_path, len(STEPS))


@pytest.mark.deep
def test_a_stream_whose_driver_is_killed(tmp_path, worker_environment, project):
    """All processes of a driver die between the records and the record of the batch; the next driver adds it once."""
    for number in range(3):
        lines(tmp_path, number)
    (tmp_path / PLAN).write_text("write committed.json")
    command = [sys.executable, "-m", "tests.spark_source.sink_kills", str(tmp_path)]
    outcomes = [
        subprocess.run(command, cwd=project, env=worker_environment, capture_output=True, text=True, check=False)
        for _ in range(2)
    ]
    assert [outcome.returncode for outcome in outcomes] == [-9, 0], outcomes[-1].stderr[-2000:]
    assert not (tmp_path / PLAN).exists()
    check_stream(tmp_path, 3)


def test_complete_mode_overwrites(spark, tmp_path):
    for number in range(2):
        lines(tmp_path, number)
        frame = spark.readStream.schema("body string").text(f"{tmp_path}/in")
        counted = frame.groupBy(f.substring_index("body", "-", 1).alias("n")).count()
        (
            counted.select(f.concat_ws("=", "n", "count").alias("body"))
            .writeStream.format("rmqstore")
            .outputMode("complete")
            .option("topic", TOPIC)
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{tmp_path}/store")
            .awaitTermination()
        )
        assert sorted(bodies(tmp_path / "store", TOPIC)) == [f"{each}=20" for each in range(number + 1)]


def test_a_stream_takes_no_name_of_its_own(spark, tmp_path):
    lines(tmp_path, 0)
    frame = spark.readStream.schema("body string").text(f"{tmp_path}/in")
    stream = frame.writeStream.format("rmqstore").option("topic", TOPIC).option("writerId", "x").option("batchId", "1")
    query = stream.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).start(f"{tmp_path}/store")
    with pytest.raises(PySparkException) as caught:
        query.awaitTermination()
    assert "a stream takes its name from the checkpoint" in advice_in(caught.value)
