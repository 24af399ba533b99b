"""The broker's JSON dialect and the shapes of its files."""

import contextlib
import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import Corrupt, TooLarge
from rmqstore.formats import broker_json
from rmqstore.formats.broker_json import (
    DEPTH_MAX,
    MEMBER_COUNT_MAX,
    TOKEN_COUNT_MAX,
    DataVersion,
    SubscriptionGroup,
    TopicConfig,
    consumer_offsets,
    data_version,
    delay_offsets,
    parse,
    subscription_groups,
    topic_configs,
)

TOPICS = """{
\t"dataVersion":{
\t\t"counter":3,
\t\t"timestamp":1700000000000
\t},
\t"topicConfigTable":{
\t\t"TopicTest":{
\t\t\t"attributes":{"queue.type":"BatchCQ"},
\t\t\t"order":true,
\t\t\t"perm":4,
\t\t\t"readQueueNums":8,
\t\t\t"topicFilterType":"MULTI_TAG",
\t\t\t"topicName":"TopicTest",
\t\t\t"topicSysFlag":1,
\t\t\t"writeQueueNums":2
\t\t},
\t\t"bare":{}
\t}
}"""
OFFSETS = """{
\t"offsetTable":{
\t\t"TopicTest@groupA":{0:250,1:-1
\t\t},
\t\t"%RETRY%groupA@groupA":{"0":0
\t\t},"empty@g":{}
\t},
\t"lmqOffsetTable":{"%LMQ%x@groupA":17}
}"""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:250,1:251}", {"0": 250, "1": 251}),
        ("{-1 : 2}", {"-1": 2}),
        ('{a:1,"b":{c_d:[true,false,null]}}', {"a": 1, "b": {"c_d": [True, False, None]}}),
        ('{"a:1,{":"x:y, b:2"}', {"a:1,{": "x:y, b:2"}),
        ('{"quote \\" 1:2":"\\\\",3:4}', {'quote " 1:2': "\\", "3": 4}),
        ('"a\tb"', "a\tb"),
        ("[1,2.5,-3e2]", [1, 2.5, -300.0]),
        ("9223372036854775807", 2**63 - 1),
        ('{"a":1,"a":2}', {"a": 2}),
        ('"\\ud83d\\ude00 \\ud800"', "😀 \ufffd"),
        ('{"\\udc00":["\\udc00"]}', {"\ufffd": ["\ufffd"]}),
        (b'{"\xd1\x82":"\xff"}', {"т": "\ufffd"}),
    ],
)
def test_the_dialect_is_read(text: str | bytes, value: object) -> None:
    assert parse(text) == value


# What the releases 4.9.8, 5.3.3 and 5.5.1 read in a table, all three unless it says so.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":\f{"b":2\b}}\f', {"a": {"b": 2}}),
        ('{"a":\v2}', {"a": 2}),  # not 5.5.1
        ('{"a":2}\0\0\0', {"a": 2}),  # a file that was not written whole
        ('{"a":2}\n\0\0', {"a": 2}),
        ("{a:2L,b:[2S,2B],c:2D,d:-2L}", {"a": 2, "b": [2, 2], "c": 2, "d": -2}),
        ('{"a":+2,"b":02,"c":-007,"d":0,"e":00}', {"a": 2, "b": 2, "c": -7, "d": 0, "e": 0}),
        ('{"a":2.,"b":+2.5,"c":1.5e1 }', {"a": 2, "b": 2.5, "c": 15.0}),
        ('{"\\x6fT\\v\\7":"\\\'"}', {"oT\v\7": "'"}),
        ("{'\\x6f\"':2}", {'o"': 2}),
        ('{"a":Set[1],"b":TreeSet["x"]}', {"a": [1], "b": ["x"]}),
        ('{"a":"2L, 02,} Set[1] \f",02:+3}', {"a": "2L, 02,} Set[1] \f", "02": 3}),  # in strings and keys: as they are
    ],
)
def test_what_fastjson_reads_besides_is_read(text: str, value: object) -> None:
    assert parse(text) == value
    assert parse(text.encode()) == value


@pytest.mark.parametrize(
    "text", ['{"a":0x2}', '{"a":2;}', '{"a":2} trailing', '{"a"=2}', '{"a":2', "# no comment\n{}", '{"a":1.2.3}',
             '{"a":+-2}', '{"a":2 3}', '{"a":L}', '{"a":Set}', '{"a":"\\x6"}'],
)  # fmt: skip
def test_what_no_release_reads_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "}", "[1,", "{0:}", "{:1}", '{"a" 1}', '"open', "{a:b}", "NaN", "[-Infinity]", "1e999", "nul",
     "{} {}", "9" * 5000, b"\x00\x01", b"\xff"],
)  # fmt: skip
def test_other_text_is_corrupt(text: str | bytes) -> None:
    with pytest.raises(Corrupt):
        parse(text)


def test_depth_and_size_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    with pytest.raises(Corrupt, match="nested deeper"):
        parse("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1))
    with pytest.raises(Corrupt, match="nested deeper"):
        parse('{"a":' * 1_000_000)
    monkeypatch.setattr(broker_json, "TEXT_SIZE_MAX", 10)
    assert parse("[1,2,3,4] ") == [1, 2, 3, 4]
    with pytest.raises(Corrupt, match="more than 10 bytes of JSON"):
        parse("[1,2,3,4]  ")


@pytest.mark.parametrize(
    "text", ["a" * 2_000_000, "a " * 1_000_000, '"' + "\\" * 2_000_000, ": " * 1_000_000, " " * 2_000_000 + "x"]
)
def test_no_text_takes_long(text: str) -> None:
    """Quadratic matching would take hours here."""
    with pytest.raises(Corrupt):
        parse(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_strict_json_reads_as_the_standard_library_reads_it(value: object, ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1), max_size=8))
def test_bare_numeric_keys_read_as_quoted_ones(table: dict[int, int]) -> None:
    bare = "{" + ",\n\t".join(f"{key} :{value}" for key, value in table.items()) + "}"
    assert parse(bare) == parse(json.dumps(table))
    assert delay_offsets(parse(f'{{"offsetTable":{bare}}}')) == table


@given(st.text(alphabet='{}[]":,\\ab1.\n-', max_size=40) | st.binary(max_size=40))
def test_any_text_is_a_value_or_corrupt(text: str | bytes) -> None:
    for shape in (topic_configs, subscription_groups, consumer_offsets, delay_offsets):
        with contextlib.suppress(Corrupt):
            assert isinstance(shape(parse(text)), dict)


def test_topics_have_their_configuration() -> None:
    assert topic_configs(parse(TOPICS)) == {
        "TopicTest": TopicConfig("TopicTest", 8, 2, 4, True, "MULTI_TAG", 1, {"queue.type": "BatchCQ"}),
        "bare": TopicConfig("bare", 16, 16, 6, False, "SINGLE_TAG", 0, {}),
    }


def test_groups_have_theirs() -> None:
    text = '{"subscriptionGroupTable":{"g":{"consumeEnable":false,"retryMaxTimes":-1,"retryQueueNums":2,"brokerId":0},'
    text += '"h":{}}}'
    assert subscription_groups(parse(text)) == {
        "g": SubscriptionGroup("g", consume_enable=False, retry_max_times=-1, retry_queue_nums=2),
        "h": SubscriptionGroup("h"),
    }


def test_offsets_are_keyed_by_group_and_topic() -> None:
    assert consumer_offsets(parse(OFFSETS)) == {
        ("groupA", "TopicTest"): {0: 250, 1: -1},
        ("groupA", "%RETRY%groupA"): {0: 0},
        ("g", "empty"): {},
        ("groupA", "%LMQ%x"): {0: 17},
    }


def test_delay_levels_count_from_one() -> None:
    assert delay_offsets(parse('{"dataVersion":{"counter":1},\n"offsetTable":{1:12,3:7}}')) == {1: 12, 3: 7}


@pytest.mark.parametrize("text", ["{}", '{"offsetTable":{},"topicConfigTable":{},"lmqOffsetTable":null}'])
def test_missing_tables_are_empty(text: str) -> None:
    for shape in (topic_configs, subscription_groups, consumer_offsets, delay_offsets):
        assert shape(parse(text)) == {}


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (topic_configs, "[]"),
        (topic_configs, '{"topicConfigTable":[]}'),
        (topic_configs, '{"topicConfigTable":{"t":1}}'),
        (topic_configs, '{"topicConfigTable":null}'),
        (topic_configs, '{"topicConfigTable":{"a":{"readQueueNums":null}}}'),  # 16 up to 5.3, 0 for 5.5
        (topic_configs, '{"topicConfigTable":{"a":{"writeQueueNums":""}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"perm":" 6 "}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"perm":"rw"}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"perm":true}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"readQueueNums":-1}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"readQueueNums":2147483648}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"order":"yes"}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"order":0.5}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"attributes":{"a":[]}}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"attributes":[]}}}'),
        (topic_configs, '{"topicConfigTable":{"t":{"topicFilterType":{}}}}'),
        (subscription_groups, '{"subscriptionGroupTable":null}'),
        (consumer_offsets, '{"offsetTable":null}'),
        (consumer_offsets, '{"offsetTable":{"a@b":{0:null}}}'),
        (consumer_offsets, '{"offsetTable":{"a@b":{0:""}}}'),
        (consumer_offsets, '{"offsetTable":{"a@b":{0:true}}}'),
        (consumer_offsets, '{"offsetTable":{"a@b":{0:"99999999999999999999"}}}'),
        (delay_offsets, '{"offsetTable":null}'),
        (subscription_groups, '{"subscriptionGroupTable":{"g":{"consumeEnable":"yes"}}}'),
        (consumer_offsets, '{"offsetTable":{"no-group":{0:1}}}'),
        (consumer_offsets, '{"offsetTable":{"a@b@c":{0:1}}}'),
        (consumer_offsets, '{"offsetTable":{"@b":{0:1}}}'),
        (consumer_offsets, '{"offsetTable":{"a@b":{"x":1}}}'),
        (consumer_offsets, '{"offsetTable":{"a@b":{"²":1}}}'),
        (consumer_offsets, '{"offsetTable":{"a@b":{2147483648:1}}}'),
        (consumer_offsets, '{"offsetTable":{"a@b":{0:9223372036854775808}}}'),
        (consumer_offsets, '{"offsetTable":{"a@b":5}}'),
        (delay_offsets, '{"offsetTable":{-1:5}}'),
        (delay_offsets, "7"),
    ],
)
def test_other_shapes_are_corrupt(shape, text: str) -> None:
    with pytest.raises(Corrupt):
        shape(parse(text))


# What fastjson 1.2.69 (RocketMQ 4.9.7) and 1.2.83 (5.3.3) make of the same text, both.
@pytest.mark.parametrize(
    ("member", "field", "value"),
    [
        ('"perm":"4"', "perm", 4),
        ('"perm":4.0', "perm", 4),
        ('"perm":4.7', "perm", 4),
        ('"perm":null', "perm", 6),
        ('"perm":""', "perm", 6),
        ('"perm":"+2"', "perm", 2),
        ('"order":"true"', "order", True),
        ('"order":1', "order", True),
        ('"order":0', "order", False),
        ('"order":"False"', "order", False),
        ('"order":null', "order", False),
        ('"order":""', "order", False),
        ('"topicFilterType":7', "filter_type", "7"),
        ('"attributes":null', "attributes", {}),
        ('"attributes":{"queue.type":7}', "attributes", {"queue.type": "7"}),
    ],
)
def test_values_of_another_type_are_cast_as_by_fastjson(member: str, field: str, value: object) -> None:
    (config,) = topic_configs(parse(f'{{"topicConfigTable":{{"a":{{{member}}}}}}}')).values()
    assert getattr(config, field) == value


def test_offsets_and_versions_of_another_type_are_cast_too() -> None:
    text = '{"dataVersion":{"counter":"1","timestamp":5.5},"offsetTable":{"t@g":{0:"2",1:2.0,2:2.5,3:"-7"}}}'
    assert consumer_offsets(parse(text)) == {("g", "t"): {0: 2, 1: 2, 2: 2, 3: -7}}
    assert data_version(parse(text)) == DataVersion(1, 5, None)


def test_a_version_that_is_none_says_nothing_of_the_entries() -> None:
    document = {"dataVersion": {"counter": "abc"}, "offsetTable": {"t@g": {"0": 7}}}
    found = broker_json.sifted(document, lambda each: (broker_json.data_version(each), consumer_offsets(each)))
    assert found.value == (None, {("g", "t"): {0: 7}})
    assert found.reasons == ["dataVersion is ignored: counter is 'abc', not an integer of 64 bits"]


def test_more_members_than_are_read_are_refused_before_they_are_parsed() -> None:
    text = '{"offsetTable":{"orders@g":{' + ",".join(f"{n}:1" for n in range(MEMBER_COUNT_MAX)) + "}}}"
    with pytest.raises(Corrupt, match="members, the most that is read"):
        parse(text)


@pytest.mark.parametrize(
    ("name", "token"),
    [("quotes", '"'), ("quotes", "'"), ("quotes", '"\''), ("commas", ","), ("commas", "[],"), ("comments", "//\n"),
     ("comments", "/**/")],
)  # fmt: skip
@pytest.mark.parametrize("coded", [str, str.encode], ids=["text", "bytes"])
def test_more_tokens_than_are_read_are_refused_before_they_become_objects(
    name: str, token: str, coded: Callable[[str], str | bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten million quotes cost 1.1 GB and 9 s, and sixty million bytes of empty lists more."""
    monkeypatch.setattr(broker_json, "_value", pytest.fail)
    monkeypatch.setattr(broker_json, "_tidied", pytest.fail)
    with pytest.raises(TooLarge, match=rf"the JSON has \d+ {name}, the most that is read is {TOKEN_COUNT_MAX}"):
        parse(coded(token * (TOKEN_COUNT_MAX + 1)))


def test_of_many_odd_entries_some_are_told_and_the_others_counted() -> None:
    document = {"offsetTable": {"t@g": {"0": 7}} | {f"odd {number}": 1 for number in range(5000)}}
    found = broker_json.sifted(document, broker_json.consumer_offsets)
    assert found.value == {("g", "t"): {0: 7}}
    assert len(found.odd["offsetTable"]) == 5000
    assert len(found.reasons) == 101
    assert found.reasons[-1] == "4900 more entries are ignored"


@pytest.mark.host
@pytest.mark.parametrize(
    "text",
    [
        '{"' + "a" * 300_000, "a" * 300_000, '{"a":"' + "\\" * 300_001 + '"}', '\\"' * 300_000, "{" + " " * 300_000,
        "{a" + " " * 300_000, "{" + '"",' * 100_000, "[" * 300_000, "//\n" * 900_000 + "{", "/*" * 900_000 + "{",
        "{a:1" + ", " * 900_000 + "x", "'" * 900_000,
        "[" + "0" * 300_000 + "x", "[" + "1 " * 300_000 + "x", "[" + "1" + " " * 300_000 + "x", "[" + "1." * 300_000,
    ],
    ids=range(16),
)  # fmt: skip
def test_a_text_takes_no_longer_than_its_length(text: str) -> None:
    began = time.process_time()
    with pytest.raises(Corrupt):
        parse(text)
    assert time.process_time() - began < 2  # by squares it takes a quarter of an hour
