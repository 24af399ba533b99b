"""The options of a stream, and what of them a batch read takes."""

import pickle

import pytest

from rmqstore.errors import Rejected
from rmqstore.snapshot.stream.limits import TriggerLimits
from spark_source.options.reads import parse_for_schema, parse_options, parse_stream_options

LEAST = {"path": "/s", "subscribe": "orders"}


def test_a_stream_starts_at_the_latest_and_has_no_limits():
    read = parse_stream_options(LEAST)
    assert read.rows.selection == {"topics": ("orders",), "start": "latest"}
    assert read.limits == TriggerLimits()
    assert not read.limits.is_any
    assert read.progress_file is None
    assert read.progress_group == "rmqstore"


def test_every_option_of_a_stream_arrives():
    read = parse_stream_options(
        LEAST
        | {
            "startingoffsets": '{"$from": {}, "orders": {"b": {"0": -1, "1": "earliest"}}}',
            "maxOffsetsPerTrigger": "100",
            "MINOFFSETSPERTRIGGER": "10",
            "maxTriggerDelay": "2 minutes",
            "maxBytesPerTrigger": "8m",
            "progressFile": "/p/offsets.json",
            "progressGroup": "billing",
            "tags": "A",
        }
    )
    assert read.rows.selection["start"] == {"orders": {"b": {"0": -1, "1": "earliest"}}}
    assert read.limits == TriggerLimits(rows_max=100, rows_min=10, bytes_max=8 << 20, delay_ms=120_000)
    assert (read.progress_file, read.progress_group) == ("/p/offsets.json", "billing")
    assert read.rows.request.tags == ("A",)
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("1 hour", 3_600_000)])
def test_delays(text, ms):
    options = LEAST | {"minOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    assert parse_stream_options(options).limits.delay_ms == ms


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("LATEST", "latest"),
        ("group:billing", "group:billing"),
        ('{"orders": {"0": 5}}', {"orders": {"0": 5}}),
        ('{"$$from": {"0": 5}, "$marks": {}}', {"$from": {"0": 5}}),
    ],
)
def test_starts_of_a_stream(text, start):
    assert parse_stream_options(LEAST | {"startingOffsets": text}).rows.selection["start"] == start


def test_a_batch_read_starts_where_a_group_stands_too():
    assert parse_options(LEAST | {"startingOffsets": "Group: billing"}).selection["start"] == "group:billing"


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"startingOffsets": "now"}, "write earliest, latest, group:<name> or offset JSON"),
        ({"startingOffsets": "group: "}, "write the consumer group after group:"),
        ({"startingOffsets": '{"$from": {"t": {"b": {"0": 1}}}}'}, "or offset JSON such as"),
        ({"startingOffsets": '{"orders": {"0": 1}, "$x": {"0": 1}}'}, "a topic of that name is written $$x"),
        (
            {"endingOffsets": "latest"},
            "endingOffsets is for batch reads and this is a stream: a stream has no end; use",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "write a whole number from 1"),
        ({"maxTriggerDelay": "5", "minOffsetsPerTrigger": "5"}, "write a time with its unit, such as 500ms, 30s"),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay bounds the wait for minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is above"),
        ({"maxOfsetsPerTrigger": "6"}, "did you mean maxOffsetsPerTrigger"),
        ({"progressGroup": "a b"}, "write a group name"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(options, advice):
    with pytest.raises(Rejected) as caught:
        parse_stream_options(LEAST | options)
    assert advice in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_schema_takes_what_either_of_both_takes():
    assert parse_for_schema(LEAST | {"startingOffsets": "latest", "columns": "body"}).request.columns == ("body",)
    assert parse_for_schema(LEAST | {"endingOffsets": "latest"}).selection["end"] == "latest"
    with pytest.raises(Rejected, match="did you mean maxOffsetsPerTrigger"):
        parse_for_schema(LEAST | {"maxBytesPerTrigger": "1m", "maxOfsetsPerTrigger": "6"})
    with pytest.raises(Rejected, match="endingOffsets is for batch reads"):
        parse_for_schema(LEAST | {"maxBytesPerTrigger": "1m", "endingOffsets": "latest"})
