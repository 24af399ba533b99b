"""`spark.readStream.format("rmqstore")` in real queries."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import rmqstore
from rmqstore import Message, StoreConfig, open_store
from rmqstore.directory import config_files
from rmqstore.files.reading import LOCAL
from spark_source.stream.reader import HAS_LIMITS
from tests.snapshot.growing_store import GrowingStore, made_anew
from tests.spark_source.advice import advice_in

pytestmark = pytest.mark.spark

PLACE = ["topic", "queueId", "queueOffset"]
# Seconds after which a query that should have ended is a failure.
PATIENCE_S = 600
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class Batches:
    """What a query brought: rows by batch, later attempts replacing earlier ones."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[Any, ...]]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.rows[number] = [tuple(row) for row in frame.select(*PLACE).collect()]

    @property
    def all(self) -> list[tuple[Any, ...]]:
        return sorted(row for rows in self.rows.values() for row in rows)


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., Any]:
    """Runs a query to the present end, with one checkpoint; what Spark reported of its batches that had rows."""

    def ran(path: Path, sink: Callable[[DataFrame, int], None], **options: str) -> list[Any]:
        stream = spark.readStream.format("rmqstore").options(**({"startingOffsets": "earliest"} | options))
        query = (
            stream.load(str(path))
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE_S)
        return [progress for progress in query.recentProgress if progress.numInputRows]

    return ran


@pytest.fixture(params=("false", "true"))
def is_wrapped(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Spark's setting for sources that do not say that they know AvailableNow; off by default."""
    spark.conf.set(WRAPPER, request.param)
    yield request.param == "true"
    spark.conf.unset(WRAPPER)


def no_room(_frame: DataFrame, number: int) -> None:
    """A sink that fails."""
    raise ValueError(f"no room for batch {number}")


def places_in(store: Path, topic: str) -> list[tuple[Any, ...]]:
    found = rmqstore.open_snapshot(store).scan([topic], columns=PLACE).read_all()
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_a_broker_s_store_is_the_batch_read(run, store, topic):
    batches = Batches()
    run(store, batches, subscribe=topic)
    assert batches.all == places_in(store, topic)


@pytest.mark.skipif(not HAS_LIMITS, reason="PySpark before 4.2 knows no limits, the options are refused there")
def test_a_broker_s_store_in_limited_batches_is_the_batch_read(run, store, topic):
    batches = Batches()
    progress = run(store, batches, subscribe=topic, maxOffsetsPerTrigger="1000")
    expected = places_in(store, topic)
    assert batches.all == expected
    assert [one.numInputRows for one in progress][:-1] == [1000] * (len(expected) // 1000)
    report = json.loads(progress[0].sources[0].latestOffset)
    assert report["$metrics"]["lagMessages"] == len(expected) - 1000
    lag = rmqstore.stream_lag(progress[0])
    assert lag == {name: report["$metrics"][name] for name in ("lagMs", "lagMessages", "lagBytes", "skippedMessages")}
    assert lag == rmqstore.stream_lag(progress[0].json) == rmqstore.stream_lag(json.loads(progress[0].json))
    assert json.loads(progress[-1].sources[0].endOffset)[topic] == report[topic]


def test_a_restart_goes_on_where_the_checkpoint_stands(run, tmp_path):
    store, batches = GrowingStore(tmp_path / "store"), Batches()
    store.add_many(20)
    store.publish()
    progress_file = tmp_path / "progress" / "config" / "consumerOffset.json"
    progress_file.parent.mkdir(parents=True)
    options = {"subscribePattern": "T|U", "progressFile": str(progress_file)}
    options |= {"maxBytesPerTrigger": "1000"} if HAS_LIMITS else {}
    assert len(run(store.root, batches, **options)) > (2 if HAS_LIMITS else 0)
    first = dict(batches.rows)
    store.add_many(60)
    store.add("U", 3)
    store.publish()
    run(store.root, batches, **options)
    assert {number: batches.rows[number] for number in first} == first
    expected = [("T", queue, offset) for queue in (0, 1) for offset in range(40)] + [("U", 3, 0)]
    assert batches.all == expected
    done = config_files.consumer_offsets(LOCAL, str(tmp_path / "progress"))
    # Before 4.2 Spark tells of a batch when it plans the next one, and of the last one not at all.
    last = {("rmqstore", "T"): {0: 40, 1: 40}, ("rmqstore", "U"): {3: 1}}
    assert done == (last if HAS_LIMITS else {("rmqstore", "T"): {0: 10, 1: 10}})


def test_a_failed_first_batch_is_read_again_as_planned(run, tmp_path):
    store, batches = GrowingStore(tmp_path / "store"), Batches()
    store.add_many(20)
    store.publish()
    with pytest.raises(PySparkException, match="no room for batch 0"):
        run(store.root, no_room, subscribe="T", startingOffsets='{"T": {"0": 4, "1": 4}}')
    # The options say something else by now, as "latest" does by itself: what was planned counts.
    run(store.root, batches, subscribe="T", startingOffsets='{"T": {"0": 9, "1": 9}}')
    assert batches.all == [("T", queue, offset) for queue in (0, 1) for offset in range(4, 10)]


@pytest.mark.some(2)
def test_available_now_goes_on_behind_a_batch_that_was_cut_off(run, tmp_path, is_wrapped):
    store, batches = GrowingStore(tmp_path / "store"), Batches()
    store.add_many(10)
    store.publish()
    run(store.root, batches, subscribe="T")
    store.add_many(4)
    store.publish()
    with pytest.raises(PySparkException, match="no room for batch 1"):
        run(store.root, no_room, subscribe="T")
    store.add_many(6)
    store.publish()
    run(store.root, batches, subscribe="T")
    # Before 4.2 a source in Python cannot say that it knows the trigger, and Spark then runs one batch.
    assert len(batches.all) == (20 if HAS_LIMITS or is_wrapped else 14)
    run(store.root, batches, subscribe="T")
    assert batches.all == [("T", queue, offset) for queue in (0, 1) for offset in range(10)]


def test_a_store_made_anew_while_a_query_stood_still_is_told(run, tmp_path):
    store, batches = GrowingStore(tmp_path / "store"), Batches()
    store.add_many(20)
    store.publish()
    run(store.root, batches, subscribe="T")
    made_anew(store, 8)
    with pytest.raises(PySparkException) as caught:
        run(store.root, batches, subscribe="T")
    assert "T/0: offsets [4, 10) wanted, it holds [0, 4)" in advice_in(caught.value)


def put_many(path: Path, bodies: range) -> None:
    """Stores messages of two queues, in a store that is made if it is not there."""
    with open_store(path, StoreConfig.embedded(log_file_size=256 * 1024)) as engine:
        for number in bodies:
            engine.put(Message("T", b"%d" % number, queue_id=number % 2))


class Bodies(Batches):
    """The bodies that a query brought."""

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.rows[number] = [(int(row.body),) for row in frame.select("body").collect()]


@pytest.mark.deep
def test_what_is_stored_between_two_runs_in_a_store_made_anew_comes_once(run, tmp_path):
    store, bodies = tmp_path / "store", Bodies()
    options = {"subscribe": "T", "failOnDataLoss": "false"}
    put_many(store, range(60))
    run(store, bodies, **options)
    shutil.rmtree(store)
    put_many(store, range(60, 70))
    for _ in range(3):  # which sees that there is less, and writes it down once
        run(store, bodies, **options)
    assert len(bodies.rows) == 2
    put_many(store, range(70, 110))
    with pytest.raises(PySparkException, match="no room for batch"):
        run(store, no_room, **options)
    put_many(store, range(110, 120))
    for _ in range(3):  # before 4.2 a run is one batch
        run(store, bodies, **options)
    assert [row[0] for row in bodies.all] == [*range(60), *range(70, 120)]


def test_a_running_query_follows_an_engine_that_writes(spark, tmp_path):
    batches = Batches()
    with open_store(tmp_path / "store", StoreConfig.embedded(log_file_size=256 * 1024)) as engine:
        engine.put(Message("T", b"before", queue_id=0))
        engine.flush()
        stream = spark.readStream.format("rmqstore").option("subscribe", "T").load(str(tmp_path / "store"))
        query = stream.writeStream.foreachBatch(batches).option("checkpointLocation", str(tmp_path / "c")).start()
        try:
            query.processAllAvailable()
            for number in range(3000):
                engine.put(Message("T", bytes(number % 300), queue_id=number % 5))
            query.processAllAvailable()
        finally:
            query.stop()
        expected = [("T", 0, offset) for offset in range(1, 601)]
        expected += [("T", queue, offset) for queue in range(1, 5) for offset in range(600)]
        assert batches.all == expected


def test_lost_messages_end_the_query_with_one_line_that_says_what_to_do(run, tmp_path):
    store, batches = GrowingStore(tmp_path / "store"), Batches()
    store.add_many(10)
    store.publish()
    run(store.root, batches, subscribe="T")
    store.add_many(90)
    store.publish()
    store.delete_log_file(0)
    with pytest.raises(PySparkException) as caught:
        run(store.root, batches, subscribe="T")
    line = advice_in(caught.value)
    assert line.startswith("rmqstore.errors.DataLost: T/0: offsets [5, ")
    assert "failOnDataLoss=false" in line
    run(store.root, batches, subscribe="T", failOnDataLoss="false")
    assert batches.all[-1] == ("T", 1, 49)


def test_a_stream_of_a_schema_of_ones_own(spark, store, topic, tmp_path):
    seen: list[list[str]] = []
    stream = spark.readStream.format("rmqstore").schema("body string, queueOffset long").option("subscribe", topic)
    query = (
        stream.option("startingOffsets", "earliest")
        .load(str(store))
        .writeStream.foreachBatch(lambda frame, _: seen.append([*frame.columns, str(frame.count())]))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    assert seen == [["body", "queueOffset", str(rmqstore.open_snapshot(store).scan([topic]).read_all().num_rows)]]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batch reads and this is a stream"),
        ({"startingOffsets": "group:nobody"}, "group 'nobody' has committed no offset of these topics"),
    ],
)
def test_what_a_stream_cannot_do_is_told_when_it_starts(run, store, topic, options, advice):
    with pytest.raises(PySparkException) as caught:
        run(store, Batches(), **({"subscribe": topic} | options))
    assert advice in advice_in(caught.value)
