"""What is written under config/ is what brokers write there: byte for byte, and nothing that they wrote is lost."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.broker_json import (
    DataVersion,
    SubscriptionGroup,
    TopicConfig,
    consumer_offsets,
    data_version,
    delay_offsets,
    others_of,
    parse,
    subscription_groups,
    topic_configs,
)
from rmqstore.formats.broker_json_text import (
    consumer_offsets_text,
    delay_offsets_text,
    subscription_groups_text,
    topic_members,
    topics_text,
    value_text,
)
from tests.formats.config_files import config_files
from tests.golden.cases import BROKER_CASES

V4 = DataVersion(3, 1_700_000_000_000, None)
V5 = DataVersion(3, 1_700_000_000_000, 0)


def version_of(document: Any) -> DataVersion:
    version = data_version(document)
    assert version is not None
    return version


def written_topics(document: Any) -> str:
    others = others_of(document, ("dataVersion", "topicConfigTable"))
    return topics_text(topic_configs(document), version_of(document), others)


def written_groups(document: Any) -> str:
    others = others_of(document, ("dataVersion", "subscriptionGroupTable"))
    return subscription_groups_text(subscription_groups(document), version_of(document), others)


def written_offsets(document: Any) -> str:
    others = others_of(document, ("dataVersion", "offsetTable"))
    return consumer_offsets_text(consumer_offsets(document), data_version(document), others)


def written_delays(document: Any) -> str:
    others = others_of(document, ("dataVersion", "offsetTable"))
    return delay_offsets_text(delay_offsets(document), data_version(document), others)


WRITTEN: dict[str, Callable[[Any], str]] = {
    "topics.json": written_topics,
    "subscriptionGroup.json": written_groups,
    "consumerOffset.json": written_offsets,
    "delayOffset.json": written_delays,
    "consumerFilter.json": value_text,
}


# With queues in RocksDB brokers have their tables there, too.
JSON_CASES = [case for case in BROKER_CASES if not case.startswith("rocksdb-")]
# 5.5 writes each number of a table on a line of its own.
ON_LINES = ("consumerOffset.json", "delayOffset.json")


@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case in JSON_CASES for name in WRITTEN if "5.5.1" not in case or name not in ON_LINES],
)
def test_a_brokers_file_is_written_back_as_it_was(case: str, name: str) -> None:
    for present in (name, f"{name}.bak"):
        text = config_files(case)[present]
        assert WRITTEN[name](parse(text)).encode() == text


@pytest.mark.parametrize("case", JSON_CASES)
def test_a_group_made_here_is_as_a_brokers(case: str) -> None:
    """Those that brokers make at their start have the settings of a new group."""
    text = config_files(case)["subscriptionGroup.json"].decode()
    own = {name: SubscriptionGroup(name) for name in ("TOOLS_CONSUMER", "SELF_TEST_C_GROUP")}
    _, _, entries = subscription_groups_text(own, version_of(parse(text))).partition('"subscriptionGroupTable":{')
    for entry in entries.removesuffix("\n\t}\n}").split(',\n\t\t"'):
        assert entry in text


@pytest.mark.parametrize("case", JSON_CASES)
def test_a_topic_made_here_is_as_a_brokers(case: str) -> None:
    text = config_files(case)["topics.json"].decode()
    made = topics_text({"AutoX": TopicConfig("AutoX", 4, 4)}, version_of(parse(text)))
    (name,) = [name for name in topic_configs(parse(text)) if name.startswith("Auto")]
    entry = made.partition('"topicConfigTable":{')[2].removesuffix("\n\t}\n}")
    assert entry.replace("AutoX", name) in text


def test_text_is_escaped_as_fastjson_does() -> None:
    """Seen with 1.2.83: these are escaped, everything else of the first plane stands as it is, as do pairs."""
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 0x22: '\\"', 0x5C: "\\\\"}
    for code in (*range(0xD800), *range(0xE000, 0x10000), 0x1F600):
        is_escaped = code < 0x20 or 0x7F <= code < 0xA0 or code in (0x2028, 0x2029)
        expected = short.get(code) or (f"\\u{code:04X}" if is_escaped else chr(code))
        assert value_text(chr(code)) == f'"{expected}"'


def test_the_shapes_are_those_of_fastjson() -> None:
    """Printed by 1.2.83 from the same maps; a list stands as a Set does."""
    value = {
        "im": {3: 4, 1: 4},
        "m": {"b": "1", "n": None, "a": {}},
        "set": ["q", {"z": 1}],
        "empty": [],
        "no": {0: {}},
    }
    assert value_text(value) == (
        '{\n\t"im":{3:4,1:4\n\t},\n\t"m":{\n\t\t"b":"1",\n\t\t"a":{}\n\t},\n\t"set":["q",{\n\t\t"z":1\n\t}],'
        '\n\t"empty":[],\n\t"no":{0:{}\n\t}\n}'
    )
    assert value_text([True, False, None, 1.5, -3]) == "[true,false,null,1.5,-3]"


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
NUMBERS = st.integers(0, 2**31 - 1)
TOPICS = st.builds(
    TopicConfig, TEXT, NUMBERS, NUMBERS, NUMBERS, st.booleans(), TEXT, NUMBERS, st.dictionaries(TEXT, TEXT, max_size=2)
)


@given(VALUES)
def test_what_is_written_reads_the_same(value: object) -> None:
    assert parse(value_text(value).encode()) == value


@given(TOPICS, st.sampled_from([V4, V5]))
def test_topics_read_the_same_and_their_short_cut_writes_the_same(config: TopicConfig, version: DataVersion) -> None:
    text = topics_text({config.topic: config}, version)
    document = parse(text)
    assert topic_configs(document) == {config.topic: config}
    assert data_version(document) == version
    members = topic_members(config, version.state_version is not None)
    assert text.endswith(f'"topicConfigTable":{value_text({config.topic: members}, chr(9))}\n}}')


OFFSET_TABLES = st.dictionaries(
    st.tuples(st.sampled_from("gh%"), st.sampled_from("tuv")),
    st.dictionaries(NUMBERS, st.integers(-(2**63), 2**63 - 1), max_size=3),
)


@given(OFFSET_TABLES, st.sampled_from([None, V5]))
def test_offsets_read_the_same(offsets, version) -> None:
    document = parse(consumer_offsets_text(offsets, version))
    assert consumer_offsets(document) == offsets
    assert data_version(document) == version
    assert ("groupTopicMap" in document) == (version is not None)


def test_offsets_of_light_queues_have_a_table_of_their_own() -> None:
    text = consumer_offsets_text({("g", "t"): {0: 5}}, V5, light_offsets={("%LMQ%c", "%LMQ%x"): 17})
    assert '"lmqOffsetTable":{\n\t\t"%LMQ%x@%LMQ%c":17\n\t},\n\t"offsetTable":{' in text
    assert consumer_offsets(parse(text)) == {("g", "t"): {0: 5}, ("%LMQ%c", "%LMQ%x"): {0: 17}}


def test_the_topics_of_groups_follow_the_offsets_and_keep_their_order() -> None:
    before = {"b": ["z", "gone", "y", "y", 5], "lost": ["t"], "a": "no list"}
    offsets = {("a", "x"): {0: 1}, ("b", "y"): {0: 1}, ("b", "new"): {0: 1}, ("b", "z"): {0: 1}}
    document = parse(consumer_offsets_text(offsets, V5, {"groupTopicMap": before}))
    assert document["groupTopicMap"] == {"b": ["z", "y", "new"], "a": ["x"]}
    assert list(document["groupTopicMap"]) == ["b", "a"]


def test_unknown_members_survive_a_change() -> None:
    text = topics_text({"t": TopicConfig("t", unknown_fields={"zone": {"a": [1]}, "aFirst": None})}, V5, {"mapping": 7})
    document = parse(text)
    changed = {"t": replace(topic_configs(document)["t"], perm=4)}
    again = topics_text(changed, V5, others_of(document, ("dataVersion", "topicConfigTable")))
    assert again == text.replace('"perm":6', '"perm":4')
    assert parse(again)["mapping"] == 7
    assert parse(again)["topicConfigTable"]["t"]["zone"] == {"a": [1]}
    group = SubscriptionGroup("g", unknown_fields={"brokerId": 3, "extra": True})
    (entry,) = parse(subscription_groups_text({"g": group}, V5))["subscriptionGroupTable"].values()
    assert (entry["brokerId"], entry["extra"], entry["consumeTimeoutMinute"]) == (3, True, 15)


def test_each_version_of_brokers_has_its_form() -> None:
    assert '"stateVersion":0' in topics_text({}, V5)
    assert "stateVersion" not in topics_text({}, V4)
    assert '"forbiddenTable":{},' in subscription_groups_text({}, V5)
    assert "forbiddenTable" not in subscription_groups_text({}, V4)
    assert delay_offsets_text({3: 7, 1: 12}, None) == '{\n\t"offsetTable":{1:12,3:7\n\t}\n}'
    attributes = TopicConfig("t", attributes={"queue.type": "BatchCQ"})
    assert "attributes" in topics_text({"t": attributes}, V4)
    assert "attributes" not in topics_text({"t": TopicConfig("t")}, V4)


def test_a_version_counts_changes() -> None:
    assert V5.next(5) == DataVersion(4, 5, 0)
    assert V4.next(5) == DataVersion(4, 5, None)
    assert DataVersion(2**63 - 1, 0, 7).next(5) == DataVersion(0, 5, 7)
