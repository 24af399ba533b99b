"""One option at a time: what its text means, and what is said about text that means nothing."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore import StoresIn
from rmqstore.core.arguments import instant
from rmqstore.errors import Rejected
from rmqstore.formats.wanted_words import key_words, tag_words
from spark_source.options import values


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (values.flag, " True ", True),
        (values.flag, "false", False),
        (values.one_of("fail", "skip"), "SKIP", "skip"),
        (values.count(0, 10), "10", 10),
        (values.byte_size(1 << 30), "8m", 8 << 20),
        (values.byte_size(1 << 30), "64 KiB", 64 << 10),
        (values.byte_size(1 << 30), "1GB", 1 << 30),
        (values.byte_size(1 << 30), "12", 12),
        (values.comma_list, "orders, payments,orders", ("orders", "payments")),
        (tag_words, "paid || shipped", ("paid", "shipped")),
        (tag_words, "paid", ("paid",)),
        (tag_words, "*", ()),
        (tag_words, "", ()),
        (key_words, "o-1 || o-2", ("o-1", "o-2")),
        (key_words, "o-1 o-2  o-1", ("o-1", "o-2")),
        (key_words, ' ["o-1", "o-2,3", "\'a|b\'"] ', ("o-1", "o-2,3", "'a|b'")),
        (values.pattern, "orders.*", "orders.*"),
        (values.local_path, "/data/store", "/data/store"),
        (values.local_path, "file:///data/a%20b", "/data/a b"),
        (values.local_path, "file:/data/store", "/data/store"),
        (values.local_path, "C:/data", "C:/data"),
        (values.path_list, '["/a", "file:/b"]', ("/a", "/b")),
        (values.store_paths, '{"broker-a": "/a"}', {"broker-a": "/a"}),
        (values.store_paths, "/data/rmq", StoresIn("/data/rmq")),
        (values.store_paths, "file:///data/r%20q", StoresIn("/data/r q")),
        (values.assignment, '{"t": [0, 1]}', {"t": [0, 1]}),
        (values.offsets("latest"), "Earliest", "earliest"),
        (values.offsets("earliest"), "latest", "latest"),
        (values.offsets("latest"), '{"t": {"b": {"0": 12, "1": -2}}}', {"t": {"b": {"0": 12, "1": -2}}}),
        (instant, "1714521600000", 1714521600000),
        (instant, "2024-05-01T00:00:00Z", 1714521600000),
        (instant, "2024-05-01T08:00:00+08:00", 1714521600000),
        (instant, "2024-05-01T00:00:00.000001Z", 1714521600001),
        (instant, "0", 0),
        (instant, "100000000000", 10**11),
        (
            values.instants,
            '{"t": {"0": 1714521600000, "1": "1970-01-01T00:00:01Z"}}',
            {"t": {"0": 1714521600000, "1": 1000}},
        ),
    ],
)
def test_text_means_a_value(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "advice"),
    [
        (values.flag, "yes", "write true or false"),
        (values.one_of("fail", "skip", "null"), "drop", "write fail, skip or null"),
        (values.count(1, 9), "0", "write a whole number from 1 to 9"),
        (values.count(1, 9), "1_0", "write a whole number from 1 to 9"),
        (values.count(1, 9), "３", "write a whole number from 1 to 9"),
        (values.count(1, 9), "9" * 5000, "write a whole number from 1 to 9"),
        (values.byte_size(100), "101", "from 1 to 100"),
        (values.byte_size(100), "many", "such as 8388608 or 8m"),
        (values.comma_list, "a,,b", "separated by commas"),
        (tag_words, "a || *", "write tags as A || B"),
        (tag_words, " ", "write tags as A || B, or * for any"),
        (key_words, " ", "write message keys as k1 || k2"),
        (key_words, "a,b", 'write a || b (no quotes, || between keys); if it is one key, ["a,b"]'),
        (key_words, "a | b", "write a || b (no quotes, || between keys)"),
        (key_words, "'a' || b", "write a || b (no quotes, || between keys)"),
        (key_words, "[a]", 'write keys as A || B, or as a JSON list such as ["A", "B"]'),
        (key_words, '["a b"]', "no message has the key 'a b': blanks separate keys"),
        (values.pattern, "orders(", "not a regular expression of Python"),
        (values.pattern, "", "1 to 4096 characters"),
        (values.local_path, "hdfs://name/store", "hdfs: is not a file system path; mount or copy"),
        (values.local_path, "s3a://bucket/store", "s3a: is not a file system path"),
        (values.local_path, " ", "write the path of a store directory"),
        (values.path_list, "[]", "JSON list of directories"),
        (values.store_paths, '{"broker-a": 1}', "by broker name"),
        (values.store_paths, '["/a", "/b"]', "write the directory that holds the stores, or a JSON object"),
        (values.store_paths, '"/data/rmq"', "write the directory that holds the stores, or a JSON object"),
        (values.store_paths, " ", "write the path of a store directory"),
        (values.store_paths, "s3://bucket/rmq", "is not a file system path"),
        (values.assignment, "[0]", "queue ids by topic"),
        (values.offsets("latest"), "latest", "cannot use latest here; write earliest"),
        (values.offsets("latest"), '{"t": "latest"}', "cannot use latest ('latest')"),
        (values.offsets("latest"), '{"t": {"0": -1}}', "cannot use latest (-1)"),
        (values.offsets("earliest"), '{"t": {"0": -2}}', "cannot use earliest (-2)"),
        (values.offsets("latest"), "newest", "write earliest or offset JSON such as"),
        (values.offsets("latest"), '{"t": 1.5}', "whole numbers only, not 1.5"),
        (values.offsets("latest"), '{"t": NaN}', "whole numbers only, not NaN"),
        (values.offsets("latest"), '{"t": 1, "t": 2}', "the same key twice"),
        (values.offsets("latest"), '{"t": ' + "9" * 5000 + "}", "wider than 64 bits"),
        (values.offsets("latest"), '{"t": ', "not JSON"),
        (values.offsets("latest"), '{"t":' * 9, "nested more than 8 deep"),
        (values.path_list, "[" * 100_000, "nested more than 8 deep"),
        (values.path_list, "[" + " " * values.JSON_BYTES_MAX, "JSON of more than"),
        (instant, "2024-05-01T00:00:00", "a time without a zone; write 2024-05-01T00:00:00Z"),
        (instant, "2024-05-01", "a time without a zone"),
        (instant, "yesterday", "or ISO-8601"),
        (instant, "-5", "or ISO-8601"),
        (instant, "1969-12-31T23:59:59Z", "1970 or later"),
        (instant, "9999999999999999999", "64 bits hold"),
        (instant, "1795000000", "milliseconds, and 1795000000 looks like seconds: write 1795000000000"),
        (instant, "99999999999", "looks like seconds"),
        (values.instants, '{"t": {"0": 1795000000}}', "looks like seconds: write 1795000000000"),
        (tag_words, "paid,shipped", "write paid || shipped "),
        (values.instants, '{"t": {"0": true}}', "a time is a number of ms"),
        (values.instants, '{"t": {"0": -1}}', "or ISO-8601"),
        (values.instants, "12", "write times as JSON"),
    ],
)
def test_text_that_means_nothing_says_what_to_write(parse, text, advice):
    with pytest.raises(Rejected, match=re.escape(advice)):
        parse(text)


PARSERS = [
    values.flag,
    values.count(0, 5),
    values.byte_size(1 << 40),
    values.comma_list,
    tag_words,
    key_words,
    values.pattern,
    values.local_path,
    values.path_list,
    values.store_paths,
    values.assignment,
    values.offsets("latest"),
    values.instant,
    values.instants,
]

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(PARSERS), st.text(max_size=60) | JSON_VALUES.map(json.dumps))
def test_any_text_is_a_value_or_rejected(parse, text):
    try:
        parse(text)
    except Rejected as mistake:
        assert str(mistake).strip()  # noqa: PT017  whatever else it raises fails the test too


@given(st.integers(0, 2**52))
def test_a_time_is_the_first_whole_ms_not_before_it(at_us):
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    at_ms = values.instant(moment.isoformat())
    assert at_ms * 1000 - 1000 < at_us <= at_ms * 1000


def test_a_doubled_bracket_is_a_pattern_without_a_warning() -> None:
    assert values.pattern("[[]orders") == "[[]orders"
    with pytest.raises(Rejected, match="not a regular expression"):
        values.pattern("[[")
