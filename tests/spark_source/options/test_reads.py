"""All options together: what a read becomes, and one line with every mistake in it."""

import pickle

import pytest

from rmqstore.errors import Rejected
from rmqstore.snapshot.columns import COLUMNS, DEFAULT_COLUMNS
from rmqstore.snapshot.request import ScanRequest, SplitBudget
from spark_source.options.reads import PARSERS, STREAM_ONLY, parse_options

LEAST = {"path": "/s", "subscribe": "orders"}


def mistake_of(**options: str) -> str:
    """The one line that is said about `options`."""
    with pytest.raises(Rejected) as caught:
        parse_options(options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_least_options_leave_the_defaults():
    read = parse_options(LEAST)
    assert read.stores == ("/s",)
    assert read.selection == {"topics": ("orders",)}
    assert read.request == ScanRequest()
    assert read.budget == SplitBudget()


def test_every_option_arrives_where_it_acts():
    read = parse_options(
        {
            "stores": '{"broker-a": "/a", "broker-b": "/b"}',
            "SUBSCRIBEPATTERN": "orders|pay.*",
            "startingOffsets": '{"orders": {"broker-a": {"0": 12}}}',
            "endingOffsets": "latest",
            "startingOffsetsByTimestamp": '{"orders": {"0": 1714521600000}}',
            "endingTimestamp": "1970-01-01T00:00:09Z",
            "startingOffsetsByTimestampStrategy": "latest",
            "includeSystemTopics": "true",
            "tags": "A || B",
            "keys": "k1",
            "columns": "topic, body",
            "includeProperties": "true",
            "failOnDataLoss": "false",
            "onCorruptRecord": "skip",
            "verifyCrc": "TRUE",
            "decompress": "false",
            "maxBodyBytes": "20m",
            "scanMode": "queue",
            "access": "pread",
            "batchRows": "100",
            "batchBytes": "1m",
            "minPartitions": "3",
            "maxRecordsPerPartition": "1000",
            "maxBytesPerPartition": "64m",
            "mergePartitions": "false",
        }
    )
    assert read.stores == {"broker-a": "/a", "broker-b": "/b"}
    assert read.selection == {
        "pattern": "orders|pay.*",
        "start": {"orders": {"broker-a": {"0": 12}}},
        "end": "latest",
        "start_time": {"orders": {"0": 1714521600000}},
        "end_time": 9000,
        "missing_time": "latest",
        "include_system_topics": True,
        "fail_on_data_loss": False,
    }
    assert read.request == ScanRequest(
        columns=("topic", "body", "properties"),
        tags=("A", "B"),
        keys=("k1",),
        scan_mode="queue",
        access="pread",
        on_corrupt_record="skip",
        fail_on_data_loss=False,
        verify_crc="always",
        decompress=False,
        body_bytes_max=20 << 20,
        batch_rows=100,
        batch_bytes=1 << 20,
    )
    assert read.budget == SplitBudget(min_partitions=3, max_records=1000, max_bytes=64 << 20, merge=False)
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, DEFAULT_COLUMNS),
        ({"columns": "*"}, tuple(name for name in COLUMNS if name != "propertiesText")),
        ({"columns": "body,topic"}, ("body", "topic")),
        ({"columns": "properties", "includeProperties": "true"}, ("properties",)),
        ({"includeProperties": "false"}, DEFAULT_COLUMNS),
    ],
)
def test_columns(options, columns):
    assert parse_options(LEAST | options).request.columns == columns


def test_properties_stand_beside_the_body_in_the_default_set():
    columns = parse_options(LEAST | {"includeProperties": "true"}).request.columns
    assert columns[columns.index("body") + 1] == "properties"
    assert set(columns) == {*DEFAULT_COLUMNS, "properties"}


def test_damaged_rows_that_are_kept_can_be_told_apart():
    assert parse_options(LEAST | {"onCorruptRecord": "null"}).request.columns == (*DEFAULT_COLUMNS, "corruptReason")
    assert parse_options(LEAST | {"onCorruptRecord": "null", "columns": "body"}).request.columns == ("body",)


def test_one_time_wins_over_times_by_queue():
    times = {
        "startingTimestamp": "1714521600005",
        "startingOffsetsByTimestamp": '{"orders": {"0": 1714521600000}}',
        "startingOffsets": "earliest",
    }
    assert parse_options(LEAST | times).selection["start_time"] == 1714521600005


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"subscribe": "a"}, "no store: name its directory in load('/data/rocketmq/store')"),
        ({"path": "/s"}, "no topic: give one of subscribe"),
        ({"path": "/s", "stores": '{"b": "/b"}', "subscribe": "a"}, "path and stores are given: keep one of them"),
        (LEAST | {"assign": '{"a": [0]}'}, "subscribe and assign are given: keep one of them"),
        (LEAST | {"subscribePattern": "("}, "subscribe and subscribePattern are given: keep one of them"),
        (LEAST | {"subcribe": "a"}, "unknown option 'subcribe': did you mean subscribe"),
        (LEAST | {"minpartition": "2"}, "did you mean minPartitions"),
        (LEAST | {"topic": "orders"}, "unknown option 'topic': did you mean subscribe?"),
        (LEAST | {"includeHeaders": "true"}, "did you mean includeProperties?"),
        (LEAST | {"kafka.bootstrap.servers": "h:1"}, "did you mean path?"),
        (LEAST | {"zzz": "1"}, "unknown option 'zzz': leave it out, the options are path, paths, "),
        (
            LEAST | {"maxoffsetspertrigger": "9"},
            "maxOffsetsPerTrigger is for streams and this is a batch read: leave it out",
        ),
        (
            LEAST | {"owner": "me", "provider": "rmqstore"},
            "Spark's CREATE TABLE loses OPTIONS: use CREATE TEMPORARY VIEW",
        ),
        ({}, "a table has none of them, for Spark's CREATE TABLE loses OPTIONS: use CREATE TEMPORARY VIEW"),
        (LEAST | {"minPartitions": "two"}, "minPartitions='two': write a whole number from 0 to 1000000"),
        (LEAST | {"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition='0': write a whole number from 1 to"),
        (
            LEAST | {"scanMode": "commitlog", "maxRecordsPerPartition": "9"},
            "maxRecordsPerPartition does not go with scanMode=commitlog",
        ),
        (
            LEAST | {"scanMode": "commitlog", "mergePartitions": "false"},
            "mergePartitions=false does not go with scanMode=commitlog",
        ),
        (LEAST | {"batchBytes": "4g"}, "batchBytes='4g': write a size in bytes from 1 to 1073741824"),
        (LEAST | {"startingOffsets": "latest"}, "startingOffsets='latest': a batch read cannot use latest here"),
        (LEAST | {"endingOffsets": "earliest"}, "endingOffsets='earliest': a batch read cannot use earliest here"),
        (LEAST | {"columns": "bodi"}, "columns='bodi': no column 'bodi': did you mean body"),
        (LEAST | {"columns": "body,body"}, "name each column once"),
        (
            LEAST | {"startingTimestamp": "1714521600009", "endingTimestamp": "1714521600008"},
            "startingTimestamp is after endingTimestamp",
        ),
        (LEAST | {"onCorruptRecord": "ignore"}, "onCorruptRecord='ignore': write fail, skip or null"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(options, advice):
    assert advice in mistake_of(**options)


def test_all_mistakes_are_told_at_once():
    line = mistake_of(path="/s", subcribe="a", minPartitions="x", tags="a || *", maxTriggerDelay="1s")
    assert line.startswith("5 mistakes: (1) unknown option 'subcribe'")
    for part in ("(2) minPartitions='x'", "(3) tags='a || *'", "(4) maxTriggerDelay is for streams", "(5) no topic"):
        assert part in line


def test_a_long_value_is_shown_in_part():
    assert len(mistake_of(path="/s", subscribe="a", assign="x" * 10_000)) < 300


def test_a_line_break_in_a_value_stays_in_the_line():
    assert "a, ,b" not in mistake_of(path="/s", subscribe="a,\n,b", **{"un\nknown": "1"})


@pytest.mark.parametrize("name", [*PARSERS, *STREAM_ONLY])
def test_names_are_known_in_any_case(name):
    with pytest.raises(Rejected) as caught:
        parse_options({name.upper(): "\0"})
    assert "unknown option" not in str(caught.value)
