"""The broker's JSON files under config/, as fastjson 1.x writes them; `broker_json` reads what this writes.

Tabs, no spaces, null members left out, the members of an object by name, those of a map in the order of the map.  Maps
keyed by numbers are written on one line, their closing bracket on the next.  Java's maps stand in the order of their
hashes: a file that was read is written in the order that it had, what is new at the end.

`others` are members of the read document that have no parameter of their own; they are written back.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from rmqstore.core.annotations import plain_fields
from rmqstore.core.arguments import wrong_type
from rmqstore.formats.broker_json import DataVersion, SubscriptionGroup, TopicConfig

Offsets = Mapping[tuple[str, str], Mapping[int, int]]
_NOTHING: Mapping[str, Any] = {}
Config = TypeVar("Config", TopicConfig, SubscriptionGroup)

# Characters that fastjson 1.2.83 escapes.
_SPECIAL = re.compile('[\x00-\x1f"\\\\\x7f-\x9f\u2028\u2029]')
_ESCAPES = {code: f"\\u{code:04X}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)}
_ESCAPES |= {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", ord('"'): '\\"', ord("\\"): "\\\\"}

# The members of a group that have no field in SubscriptionGroup, as a broker makes a new one.
_GROUP_4 = {
    "brokerId": 0,
    "consumeFromMinEnable": True,
    "notifyConsumerIdsChangedEnable": True,
    "whichBrokerWhenConsumeSlowly": 1,
}
_GROUP_5 = _GROUP_4 | {
    "attributes": {},
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
}


def storable_fields(config: Config) -> Config:
    """A topic or group with fields of the types that its file holds.  Raises WrongType."""
    plain = plain_fields(config)
    members = plain.unknown_fields
    try:
        if all(isinstance(name, str) for name in members):
            json.dumps(dict(members), ensure_ascii=False).encode()
            return plain
    except (TypeError, ValueError, RecursionError):
        pass  # as where a name is no text
    raise wrong_type("unknown_fields", members, "members of a JSON object")


def topics_text(configs: Mapping[str, TopicConfig], version: DataVersion, others: Mapping[str, Any] = _NOTHING) -> str:
    """topics.json.  In the form of 4.9 topics have `attributes` only where there are some."""
    has_attributes = version.state_version is not None
    table = {
        name: _Text(_usual_topic_text(config, has_attributes))
        if _is_usual(config)
        else topic_members(config, has_attributes)
        for name, config in configs.items()
    }
    return _document(others, version, topicConfigTable=table)


def subscription_groups_text(
    groups: Mapping[str, SubscriptionGroup], version: DataVersion, others: Mapping[str, Any] = _NOTHING
) -> str:
    """subscriptionGroup.json.  A group made here gets the members that a broker of that version gives a new one."""
    usual = _GROUP_4 if version.state_version is None else _GROUP_5
    table = {name: _group(group, usual) for name, group in groups.items()}
    forbidden: dict[str, Any] = {} if version.state_version is None else {"forbiddenTable": {}}
    return _document(forbidden | dict(others), version, subscriptionGroupTable=table)


def consumer_offsets_text(
    offsets: Offsets,
    version: DataVersion | None,
    others: Mapping[str, Any] = _NOTHING,
    light_offsets: Mapping[tuple[str, str], int] | None = None,
) -> str:
    """consumerOffset.json, or lmqConsumerOffset.json if there are `light_offsets`: (group, topic) → offset in queue 0.

    Without a `version` it is the form of 4.9.
    """
    members = dict(others)
    table = {f"{topic}@{group}": dict(queues) for (group, topic), queues in offsets.items()}
    if light_offsets is not None:
        light = {f"{topic}@{group}": offset for (group, topic), offset in light_offsets.items()}
        members["lmqOffsetTable"] = light | (members.get("lmqOffsetTable") or {})
    if version is not None:
        members["groupTopicMap"] = _group_topics(offsets, members.get("groupTopicMap"))
    return _document(members, version, offsetTable=table)


def delay_offsets_text(
    offsets: Mapping[int, int], version: DataVersion | None, others: Mapping[str, Any] = _NOTHING
) -> str:
    """delayOffset.json, by delay level from 1 on; without a `version` in the form of 4.9."""
    return _document(others, version, offsetTable=dict(sorted(offsets.items())))


def value_text(value: Any, indent: str = "") -> str:
    """One value: dict (all keys text, or all numbers), list, str, int, float, bool or None."""
    if isinstance(value, _Text):
        return value
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return _map_text(value, indent)
    if isinstance(value, list):
        return f"[{','.join([value_text(item, indent) for item in value])}]"
    return json.dumps(value)


def _map_text(table: Mapping[Any, Any], indent: str) -> str:
    if not table:
        return "{}"
    inner = indent + "\t"
    if isinstance(next(iter(table)), int):
        members = ",".join([f"{key}:{value_text(value, inner)}" for key, value in table.items()])
    else:
        members = ",".join([
            f"\n{inner}{_quoted(key)}:{value_text(value, inner)}" for key, value in table.items() if value is not None
        ])  # fmt: skip
    return f"{{{members}\n{indent}}}"


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"' if _SPECIAL.search(text) else f'"{text}"'


def _document(others: Mapping[str, Any], version: DataVersion | None, **tables: Any) -> str:
    members = dict(others) | {name: _joined(table, others.get(name) or {}) for name, table in tables.items()}
    members.pop("dataVersion", None)
    if version is not None:
        members["dataVersion"] = _version(version)
    return value_text(_by_name(members.items()))


def _joined(table: Mapping[Any, Any], odd: Mapping[str, Any]) -> Mapping[Any, Any]:
    """A table with the entries that were passed over when it was read; what is known now takes their place."""
    known = set(map(str, table))
    joined = dict(table)
    for key, entry in odd.items():
        if key not in known:
            joined[key] = _Text("null") if entry is None else entry
        elif isinstance(entry, Mapping) and isinstance(table.get(key), Mapping):
            joined[key] = _joined(table[key], entry)
    return joined


def _version(version: DataVersion) -> dict[str, Any]:
    state = {} if version.state_version is None else {"stateVersion": version.state_version}
    return {"counter": version.counter} | state | {"timestamp": version.timestamp_ms}


class _Text(str):
    """A value that is JSON already."""

    __slots__ = ()


def _is_usual(config: TopicConfig) -> bool:
    return not (config.unknown_fields or config.attributes or _SPECIAL.search(config.topic + config.filter_type))


def _usual_topic_text(config: TopicConfig, has_attributes: bool) -> str:
    """The text of `topic_members`, ten times as fast: whenever a topic is made all of them are written."""
    attributes = '\n\t\t\t"attributes":{},' if has_attributes else ""
    return (
        f'{{{attributes}\n\t\t\t"order":{"true" if config.order else "false"},\n\t\t\t"perm":{config.perm},'
        f'\n\t\t\t"readQueueNums":{config.read_queue_nums},\n\t\t\t"topicFilterType":"{config.filter_type}",'
        f'\n\t\t\t"topicName":"{config.topic}",\n\t\t\t"topicSysFlag":{config.sys_flag},'
        f'\n\t\t\t"writeQueueNums":{config.write_queue_nums}\n\t\t}}'
    )


def topic_members(config: TopicConfig, has_attributes: bool) -> dict[str, Any]:
    """The members of one topic's object."""
    entry = {
        **config.unknown_fields,
        "order": config.order,
        "perm": config.perm,
        "readQueueNums": config.read_queue_nums,
        "topicFilterType": config.filter_type,
        "topicName": config.topic,
        "topicSysFlag": config.sys_flag,
        "writeQueueNums": config.write_queue_nums,
    }
    if has_attributes or config.attributes:
        entry["attributes"] = config.attributes
    return _by_name(entry.items())


def _group(group: SubscriptionGroup, usual: Mapping[str, Any]) -> dict[str, Any]:
    entry = {
        **usual,
        **group.unknown_fields,
        "consumeBroadcastEnable": group.consume_broadcast_enable,
        "consumeEnable": group.consume_enable,
        "groupName": group.group,
        "retryMaxTimes": group.retry_max_times,
        "retryQueueNums": group.retry_queue_nums,
    }
    return _by_name(entry.items())


def _group_topics(offsets: Offsets, before: Any) -> dict[str, list[str]]:
    """The topics of each group, which 5.x derives from the offsets; groups and topics as they stood `before`."""
    found: dict[str, dict[str, None]] = {}
    for group, topic in offsets:
        found.setdefault(group, {})[topic] = None
    ordered: dict[str, list[str]] = {}
    if isinstance(before, Mapping):
        for group, topics in before.items():
            if group in found and isinstance(topics, list):
                stood = dict.fromkeys(topic for topic in topics if isinstance(topic, str) and topic in found[group])
                ordered[group] = list(stood | found[group])
    return ordered | {group: list(topics) for group, topics in found.items() if group not in ordered}


def _by_name(members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return dict(sorted(members))
