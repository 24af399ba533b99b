"""`spark.read.format("rmqstore")` on a store that a real broker wrote, against the snapshot's own rows."""

import json
import shutil
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

import pyspark_rmqstore
import rmqstore
from rmqstore.snapshot.columns import COLUMNS, DEFAULT_COLUMNS, schema_of
from spark_source.source import RmqStoreDataSource

pytestmark = pytest.mark.spark

ORDER = [(name, "ascending") for name in ("brokerName", "topic", "queueId", "queueOffset")]


def rows_of(frame) -> pa.Table:
    """The rows of a DataFrame in rmqstore's own Arrow types, in a fixed order."""
    return frame.toArrow().cast(schema_of(frame.columns)).sort_by(ORDER)


@pytest.fixture(scope="module")
def snapshot(store):
    return rmqstore.open_snapshot(store)


def test_the_module_that_spark_looks_for_names_the_source():
    assert pyspark_rmqstore.DefaultSource is RmqStoreDataSource
    assert pyspark_rmqstore.DefaultSource.name() == "rmqstore"


def test_spark_finds_the_source_by_itself_and_reads_the_default_columns(load, snapshot, topic):
    frame = load()
    assert tuple(frame.columns) == DEFAULT_COLUMNS
    expected = snapshot.scan(topics=[topic]).read_all().sort_by(ORDER)
    assert expected.num_rows > 1000
    assert rows_of(frame).equals(expected)


def test_register_makes_the_source_known(spark, load):
    rmqstore.register(spark)
    assert load().count() > 1000


def test_every_column_of_every_topic(load, snapshot):
    frame = load(subscribe=None, subscribePattern=".*", includeSystemTopics="true", columns="*")
    expected = snapshot.scan(pattern=".*", include_system_topics=True, columns="*").read_all().sort_by(ORDER)
    rows = rows_of(frame)
    assert tuple(frame.columns) == tuple(name for name in COLUMNS if name != "propertiesText")
    assert rows.drop_columns(["properties"]).equals(expected.drop_columns(["properties"]))
    # The order of a map's entries means nothing to Spark.
    for mine, theirs in zip(rows["properties"].to_pylist(), expected["properties"].to_pylist(), strict=True):
        assert sorted(mine) == sorted(theirs)


def test_properties_come_when_asked_for(load):
    assert "properties" not in load().columns
    tagged = load(includeProperties="true").where("properties['TAGS'] is not null")
    assert tagged.count() > 0
    assert tagged.where("properties['TAGS'] <> tags").count() == 0


def test_a_user_schema_prunes_and_converts(spark, store, topic, snapshot):
    frame = (
        spark.read.format("rmqstore")
        .schema("bornTimestamp long, queueOffset long, queueId long, body string")
        .option("subscribe", topic)
        .load(str(store))
    )
    columns = ["bornTimestamp", "queueOffset", "queueId", "body"]
    expected = (
        snapshot.scan(topics=[topic], columns=columns)
        .read_all()
        .sort_by([("queueId", "ascending"), ("queueOffset", "ascending")])
    )
    rows = frame.orderBy("queueId", "queueOffset").collect()
    assert frame.columns == columns
    assert [row.bornTimestamp for row in rows] == [
        round(moment.timestamp() * 1000) for moment in expected["bornTimestamp"].to_pylist()
    ]
    assert [row.body for row in rows] == [body.decode("utf-8", "replace") for body in expected["body"].to_pylist()]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
def test_timestamps_are_instants_in_any_session_zone(spark, load, snapshot, topic, zone):
    expected = snapshot.scan(topics=[topic], columns=["storeTimestamp"]).read_all()["storeTimestamp"]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        low, high = (
            load().select(f.unix_micros(f.min("storeTimestamp")), f.unix_micros(f.max("storeTimestamp"))).first()
        )
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    instants = expected.cast(pa.int64()).to_pylist()
    assert (low, high) == (min(instants), max(instants))


def test_a_window_of_time_is_half_open(load, snapshot, topic):
    times = sorted(snapshot.scan(topics=[topic], columns=["storeTimestamp"]).read_all()["storeTimestamp"].to_pylist())
    start, end = times[len(times) // 3], times[2 * len(times) // 3]
    frame = load(startingTimestamp=start.isoformat(), endingTimestamp=str(round(end.timestamp() * 1000)))
    assert frame.count() == sum(start <= time < end for time in times)
    zoned = start.astimezone(UTC).isoformat().replace("+00:00", "Z")
    assert load(startingTimestamp=zoned).count() == sum(start <= time for time in times)


def test_offsets_bound_a_queue(load, topic):
    frame = load(
        assign=json.dumps({topic: [0, 1]}),
        subscribe=None,
        startingOffsets=json.dumps({topic: {"0": 5}}),
        endingOffsets=json.dumps({topic: {"0": 9, "1": -1}}),
    )
    assert {row.queueId for row in frame.select("queueId").distinct().collect()} == {0, 1}
    assert sorted(row.queueOffset for row in frame.where("queueId = 0").collect()) == [5, 6, 7, 8]


def test_tags_and_keys_choose_rows(load):
    rows = load()
    tags = [row.tags for row in rows.where("tags is not null").select("tags").distinct().limit(2).collect()]
    assert load(tags=" || ".join(tags)).count() == rows.where(f.col("tags").isin(tags)).count() > 0
    key = rows.where("keys is not null").first()["keys"].split(" ")[0]
    found = load(keys=key)
    assert found.count() > 0
    assert all(key in row["keys"].split(" ") for row in found.collect())


def test_a_pattern_without_topics_is_an_empty_frame(load):
    assert load(subscribe=None, subscribePattern="no such topic").count() == 0


def test_an_empty_selection_is_an_empty_frame(load):
    frame = load(startingTimestamp="2200-01-01T00:00:00Z", startingOffsetsByTimestampStrategy="latest")
    assert frame.count() == 0
    assert frame.collect() == []


def test_limit_stops_early_and_filters_leave_later_uses_alone(load):
    frame = load(batchRows="16")
    everything = frame.count()
    assert len(frame.limit(3).collect()) == 3
    assert frame.where("queueId = 0").count() < everything
    assert frame.count() == everything


def test_partitions_are_cut_and_merged(load):
    assert load().rdd.getNumPartitions() == 1
    assert load(mergePartitions="false").rdd.getNumPartitions() > 1
    assert load(minPartitions="7").rdd.getNumPartitions() >= 7
    small = load(maxRecordsPerPartition="100")
    assert small.rdd.getNumPartitions() >= small.count() // 100
    assert small.count() == load().count()
    assert load(maxBytesPerPartition="16k").rdd.getNumPartitions() > 4


def test_several_stores(load, store, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(store, other)
    once = load().count()
    both = load(None, stores=json.dumps({"broker-x": str(store), "broker-y": f"file://{other}"}))
    assert {row["brokerName"]: row["count"] for row in both.groupBy("brokerName").count().collect()} == {
        "broker-x": once,
        "broker-y": once,
    }


def test_sql_views_take_options(spark, store, topic, load):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING rmqstore OPTIONS (path '{store}', subscribe '{topic}')")
    assert spark.sql("SELECT count(*) AS n FROM messages").first().n == load().count()


def test_reading_leaves_the_store_as_it_is(load, store):
    def state():
        return sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in store.rglob("*"))

    before = state()
    load(columns="*").count()
    assert state() == before


def test_iso_times_and_ms_mean_the_same(load):
    late = datetime(2100, 1, 1, tzinfo=UTC)
    iso, ms = late.isoformat(), str(round(late.timestamp() * 1000))
    assert load(endingTimestamp=iso).count() == load(endingTimestamp=ms).count()
