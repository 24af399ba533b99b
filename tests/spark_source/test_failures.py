"""Every failure that a user can cause: the last line of what Spark shows says what to do."""

import json

import pytest
from pyspark.errors import PySparkException

from tests.spark_source.advice import advice_of

pytestmark = pytest.mark.spark

TOPIC = "G101Normal"


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"subcribe": "a"}, "unknown option 'subcribe': did you mean subscribe"),
        ({"minPartitions": "many"}, "minPartitions='many': write a whole number"),
        ({"assign": '{"a": [0]}'}, "subscribe and assign are given: keep one of them"),
        ({"subscribe": None}, "no topic: give one of subscribe"),
        ({"columns": "bodi"}, "no column 'bodi': did you mean body"),
        ({"tags": "*||", "scanMode": "fast"}, "2 mistakes: (1) "),
    ],
)
def test_load_itself_tells_of_wrong_options(load, options, advice):
    line = advice_of(lambda: load(**options))
    assert line.startswith("rmqstore.errors.")
    assert advice in line


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"startingOffsets": "latest"}, "a batch read cannot use latest here"),
        ({"maxOffsetsPerTrigger": "10"}, "maxOffsetsPerTrigger is for streams and this is a batch read"),
    ],
)
def test_what_only_a_stream_can_do_is_refused_when_rows_are_asked_for(load, options, advice):
    assert advice in advice_of(load(**options).count)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"subcribe": "a"}, None),
        ({}, "/nowhere/store"),
        ({"subscribe": "Nope"}, None),
        ({"columns": "bodi"}, None),
        ({"onCorruptRecord": "ignore"}, None),
    ],
)
def test_a_mistake_is_one_line_and_no_frames(load, store, options, path):
    """Of the words of Spark only the heading stands before it, and the SQLSTATE behind."""
    with pytest.raises(PySparkException) as caught:
        load(path or store, **options).count()
    lines = str(caught.value).strip().splitlines()
    assert [line.split("]")[0] for line in lines] == ["[PYTHON_DATA_SOURCE_ERROR", " SQLSTATE: 38000"]
    assert len(str(caught.value)) < 200 + len(str(store))


def test_load_without_a_path(load):
    assert "no store: name its directory" in advice_of(lambda: load(None))


def test_a_path_of_another_file_system(load):
    assert "hdfs: is not a file system path; mount or copy" in advice_of(lambda: load("hdfs://name/store"))


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_a_path_that_is_no_store(load, tmp_path, kind):
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("x")
    line = advice_of(lambda: load(path))
    assert line.startswith(f"rmqstore.errors.NotAStore: {path}: ")
    assert "the directory that holds commitlog/" in line


def test_a_path_that_is_no_store_with_a_schema_of_ones_own(spark, tmp_path):
    frame = spark.read.format("rmqstore").schema("body binary").option("subscribe", "t").load(str(tmp_path / "nowhere"))
    assert advice_of(frame.count).startswith(f"rmqstore.errors.NotAStore: {tmp_path / 'nowhere'}: does not exist here")


def test_a_topic_that_is_not_there_brings_near_names(load, topic):
    line = advice_of(lambda: load(subscribe=topic[:-1]).count())
    assert line.startswith(f"rmqstore.errors.UnknownTopic: no topic '{topic[:-1]}'")
    assert f"did you mean {topic}" in line


def test_offsets_out_of_range(load, topic):
    line = advice_of(lambda: load(endingOffsets=json.dumps({topic: {"0": 10**9}})).count())
    assert line.startswith(f"rmqstore.errors.DataLost: {topic}/0: ")
    assert "set failOnDataLoss=false" in line
    assert load(endingOffsets=json.dumps({topic: {"0": 10**9}}), failOnDataLoss="false").count() == load().count()


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("offsets", "advice"),
    [
        ({"nope": {"0": 1}}, "'nope' is not among the topics that are read"),
        ({TOPIC: {"99": 1}}, f"'{TOPIC}' has no queue 99 that is read; it has 0, 1, 2, 3"),
        ({TOPIC: {"0": "one"}}, "'one' is not an integer"),
        ({TOPIC: {"broker-z": {"0": 1}}}, f"'{TOPIC}' has no broker 'broker-z'; it has "),
    ],
)
def test_offsets_of_what_is_not_read(load, offsets, advice):
    line = advice_of(lambda: load(startingOffsets=json.dumps(offsets)).count())
    assert line.startswith("rmqstore.errors.Rejected: ")
    assert advice in line


def test_a_queue_that_is_not_there(load):
    assign = json.dumps({TOPIC: [77]})
    assert "has no queue 77; it has 0, 1, 2, 3" in advice_of(lambda: load(subscribe=None, assign=assign).count())


def test_a_time_after_the_newest_message(load):
    line = advice_of(lambda: load(startingTimestamp="2200-01-01T00:00:00Z").count())
    assert "choose an earlier time, or startingOffsetsByTimestampStrategy=latest" in line


@pytest.mark.parametrize(
    ("schema", "advice"),
    [
        ("bodi binary", "no column 'bodi': did you mean body"),
        ("topic long", "column topic cannot be read as bigint: declare it string"),
        ("queueId int, storeTimestamp date", "declare it timestamp or long"),
    ],
)
def test_a_schema_that_no_message_has(spark, store, topic, schema, advice):
    frame = spark.read.format("rmqstore").schema(schema).option("subscribe", topic).load(str(store))
    assert advice in advice_of(frame.count)
