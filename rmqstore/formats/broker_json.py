"""The broker's JSON files under config/, in the dialect of fastjson 1.x: bare and numeric keys beside quoted ones, and
what hands leave that RocketMQ reads: a byte order mark, comments, single quotes, commas too many, numbers as in Java's
source (`2L`, `+2`, `02`).

`parse` gives plain values; the functions for a file give its content a shape, ignore members that they do not know,
take values of other types that fastjson casts (`"4"`, `4.0`), and raise Corrupt for an entry of another kind; `sifted`
passes such entries over.
"""

import json
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from rmqstore.core.arguments import I32_MAX, I64_MAX, shown
from rmqstore.errors import Corrupt, TooLarge
from rmqstore.formats.java_text import java_text

# A broker with 100,000 topics writes about 30 MB, and 900,000 members.
TEXT_SIZE_MAX = 64 * 1024 * 1024
MEMBER_COUNT_MAX = 1_500_000
# Of each kind of token that becomes an object of Python: two strings a member, which have two quotes each.
TOKEN_COUNT_MAX = 4 * MEMBER_COUNT_MAX
_TOKENS_BY_NAME = (("quotes", ('"', "'")), ("commas", (",",)), ("comments", ("//", "/*")))
# Shapes nest five deep; the parser recurses.
DEPTH_MAX = 100

# A string, up to the end of the text where it has none of its own.  Possessive: no text takes longer than its length.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_STRINGS = re.compile(f'({_STRING}(?:"|\\\\?\\Z))', re.DOTALL)
_WHOLE_STRING = re.compile(f'{_STRING}"', re.DOTALL)
_BARE_KEY = re.compile(r"(?<![A-Za-z0-9_$%.@+-])([A-Za-z0-9_$%.@+-]++)(?=\s*+:)")
# Stands for a string in what is between the strings; JSON has it nowhere.
_GAP = "\0"
# By how much each character changes the depth.
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("{"), ord("[")]] = 1
_STEPS[[ord("}"), ord("]")]] = -1
# Strings in either quotes and comments, each up to the end of the text where it has none of its own.
_TOKENS = re.compile(
    rf"({_STRING}(?:\"|\\?\Z)|'[^'\\]*+(?:\\.[^'\\]*+)*+(?:'|\\?\Z)"
    r"|//[^\r\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/|\Z))",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\x([0-9A-Fa-f]{2})|\\([0-7])|\\.|\"", re.DOTALL)
_COMMAS = re.compile(r"(?<=[\[{,])[\s,]*,|,[\s,]*(?=[\]}])")
# Numbers as Java's source has them, where a value ends.
_LITERAL = re.compile(
    r"(?<![\w$%.@+-])([+-]?)([0-9]++)(\.[0-9]*+)?+([eE][+-]?[0-9]++)?+[LSBDF]?+(?=\s*+[,}\]])", re.ASCII
)
_SET = re.compile(r"(?<!\w)(?:Tree)?Set(?=\[)", re.ASCII)
# White space of fastjson, and none of JSON's; a file that was not written whole ends in zeros.
_SPACES = str.maketrans("\f\b\v", "   ")
_ENDS = "\0\f\b\v \t\r\n"
# The tables of the files, and on how many levels their entries are told apart.
_TABLE_DEPTHS = {
    "topicConfigTable": 1,
    "subscriptionGroupTable": 1,
    "offsetTable": 2,
    "lmqOffsetTable": 1,
    "deletedTopics": 1,
    "cleanedQueues": 1,
}
# What a 5.x broker puts behind the group in the key of a broadcasting consumer (Java: BroadcastOffsetManager).
_BROADCAST = "@broadcast"
# A table may hold a million odd entries, and somebody is to read why.
_TOLD_MAX = 100
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")

_I64 = range(-(2**63), 2**63)
_DIGITS = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)

# Bits of TopicConfig.perm (Java: PermName).
PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4
# The attribute of a topic that says of which kind its queues are (Java: TopicAttributes.QUEUE_TYPE_ATTRIBUTE, CQType).
QUEUE_TYPE, PLAIN_QUEUES, BATCH_QUEUES = "queue.type", "SimpleCQ", "BatchCQ"


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Which state of a table a file holds.  `state_version` None is the form of 4.9, which has no such field."""

    counter: int = 0
    timestamp_ms: int = 0
    state_version: int | None = 0

    def next(self, now_ms: int) -> "DataVersion":
        """The version after one more change."""
        return DataVersion((self.counter + 1) & I64_MAX, now_ms, self.state_version)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic of topics.json; `perm` bits are 4 read, 2 write, 1 inherit.  `attributes` is empty before 5.x.

    `unknown_fields` are the members of its object that have no field here, so that writing it back loses none.
    """

    topic: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    order: bool = False
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    unknown_fields: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def has_batch_queues(self) -> bool:
        """Whether the topic's queues are batch queues, of 46-byte units; all others' are plain.

        It alone decides what a record of the topic gets (Java: ConsumeQueueStore.findOrCreateConsumeQueue), whatever
        the record's sysFlag says.
        """
        return self.attributes.get(QUEUE_TYPE, "").upper() == BATCH_QUEUES.upper()


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """One consumer group of subscriptionGroup.json; `unknown_fields` as in a TopicConfig."""

    group: str
    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_max_times: int = 16
    retry_queue_nums: int = 1
    unknown_fields: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


Shape = TypeVar("Shape")


@dataclass(frozen=True, slots=True)
class Sifted(Generic[Shape]):
    """A document in its shape, and the entries that were passed over: by table as they stand there (`odd`), and why."""

    value: Shape
    odd: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reasons: Sequence[str] = ()


# The members of one topic and of one group that have a field of their own.
TOPIC_FIELDS = frozenset(
    ("attributes", "order", "perm", "readQueueNums", "topicFilterType", "topicName", "topicSysFlag", "writeQueueNums")
)
GROUP_FIELDS = frozenset(("consumeBroadcastEnable", "consumeEnable", "groupName", "retryMaxTimes", "retryQueueNums"))


def parse(text: str | bytes) -> Any:
    """The value that `text` says: dict (keys are always text), list, str, int, float, bool, None.

    Raises Corrupt(path="", offset=character) for anything else, for NaN and infinities and beyond DEPTH_MAX; TooLarge
    beyond TEXT_SIZE_MAX, MEMBER_COUNT_MAX (colons are counted) and TOKEN_COUNT_MAX.  Malformed UTF-8 and lone
    surrogates read as U+FFFD; the last of equal keys wins.
    """
    if len(text) > TEXT_SIZE_MAX:
        raise TooLarge("", 0, f"more than {TEXT_SIZE_MAX} bytes of JSON, which is the most that is read")
    _refuse_count(text)
    plain = text if isinstance(text, str) else java_text(text)
    try:
        value = _value(plain)
    except Corrupt:
        tidy = _tidied(plain)
        if tidy == plain:
            raise
        try:
            value = _value(tidy)
        except Corrupt as error:  # its place is one of the tidy text
            raise Corrupt("", 0, error.reason) from error
    return _without_surrogates(value) if "\\u" in plain or _LONE_SURROGATES.search(plain) else value


def is_utf8(data: bytes) -> bool:
    """Whether reading it as text loses nothing."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _refuse_count(text: str | bytes) -> None:
    """Raises TooLarge for more members, quotes, commas or comments than a file has that a broker wrote.

    Some bytes of text become an object of fifty and more: a list of empty lists takes twenty times its text.
    """
    members = _count_of(text, ":")
    if members > MEMBER_COUNT_MAX:
        raise TooLarge("", 0, f"the JSON has {members} members, the most that is read is {MEMBER_COUNT_MAX}")
    for name, tokens in _TOKENS_BY_NAME:
        count = sum(_count_of(text, token) for token in tokens)
        if count > TOKEN_COUNT_MAX:
            raise TooLarge("", 0, f"the JSON has {count} {name}, the most that is read is {TOKEN_COUNT_MAX}")


def _count_of(text: str | bytes, token: str) -> int:
    return text.count(token) if isinstance(text, str) else text.count(token.encode())


def _value(text: str) -> Any:
    try:
        return json.loads(_quote_keys(text), strict=False, parse_constant=_finite, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise Corrupt("", error.pos, f"not JSON: {error.msg}") from error
    except ValueError as error:  # an integer of thousands of digits, NaN
        raise Corrupt("", 0, f"not JSON: {error}") from error


def _tidied(text: str) -> str:
    """The same without what hands leave and fastjson passes over: a byte order mark, comments, commas too many, zeros
    at the end; strings in single quotes get double ones, and numbers and escapes of Java's source those of JSON.
    """
    parts = _TOKENS.split(text.removeprefix("\ufeff").rstrip(_ENDS))
    if any(_GAP in part for part in parts[::2]):
        return text
    between, strings = parts[:1], list[str]()
    for token, following in zip(parts[1::2], parts[2::2], strict=True):
        if not token.startswith("/"):
            strings.append(_double_quoted(token))
        between += [" " if token.startswith("/") else _GAP, following]
    tidy = _SET.sub("", "".join(between).translate(_SPACES))
    pieces = _LITERAL.sub(_number_text, _COMMAS.sub("", tidy)).split(_GAP)
    return "".join(each for pair in zip(pieces, [*strings, ""], strict=True) for each in pair)


def _number_text(found: re.Match[str]) -> str:
    """A number of Java's source as JSON has it."""
    sign, digits, fraction, power = found.groups("")
    return sign.removeprefix("+") + (digits.lstrip("0") or "0") + (fraction if len(fraction) > 1 else "") + power


def _double_quoted(token: str) -> str:
    """A string in either quotes, or one that does not end, in double ones."""
    ends = len(token) > 1 and token.endswith(token[0])
    return f'"{_ESCAPE.sub(_escaped, token[1 : -1 if ends else None])}' + ('"' if ends else "")


def _escaped(found: re.Match[str]) -> str:
    """An escape, or a quote in single quotes, as JSON has it."""
    if found[1] or found[2]:
        return f"\\u{int(found[1] or found[2], 16):04x}"
    return {'"': '\\"', "\\'": "'", "\\v": "\\u000b"}.get(found[0], found[0])


def _quote_keys(text: str) -> str:
    """The same as strict JSON: bare keys in quotes.  Raises Corrupt for too deep nesting and an unclosed string."""
    parts = _STRINGS.split(text)
    strings = parts[1::2]
    if strings and not parts[-1] and not _WHOLE_STRING.fullmatch(strings[-1]):
        raise Corrupt("", len(text) - len(strings[-1]), "not JSON: a string does not end")
    between = _GAP.join(parts[::2])
    if between.count(_GAP) != len(strings):
        raise Corrupt("", text.index(_GAP), "not JSON: it has a NUL character")
    _refuse_depth(between, strings)
    quoted = _BARE_KEY.sub(r'"\1"', between)
    if quoted == between:
        return text
    parts[::2] = quoted.split(_GAP)
    return "".join(parts)


def _refuse_depth(between: str, strings: Sequence[str]) -> None:
    """Raises Corrupt for brackets nested too deep outside of the strings of a text."""
    marks = np.frombuffer(between.encode("latin-1", "replace"), np.uint8)
    places = np.flatnonzero(_STEPS[marks])
    depths = np.cumsum(_STEPS[marks[places]], dtype=np.int64)
    if depths.max(initial=0) > DEPTH_MAX:
        place = int(places[np.argmax(depths > DEPTH_MAX)])
        before = between.count(_GAP, 0, place)
        offset = place - before + sum(map(len, strings[:before]))
        raise Corrupt("", offset, f"the JSON is nested deeper than {DEPTH_MAX}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def _without_surrogates(value: Any) -> Any:
    """The same value with lone surrogates, which no UTF-8 can hold, replaced in every text."""
    if isinstance(value, str):
        return _LONE_SURROGATES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def sifted(document: Any, shape: Callable[[Any], Shape]) -> Sifted[Shape]:
    """`shape` of a document without the entries of its tables for which it raises Corrupt.

    Brokers write entries that are not known here, and hands write others.  That one is odd says nothing of its
    neighbours, and a dataVersion nothing of the entries.  Keys `topic@group@broadcast` are sound, and passed over
    without a reason.  Raises Corrupt for what is no entry's fault.
    """
    try:
        return Sifted(shape(document))
    except Corrupt:
        if not isinstance(document, dict):
            raise
    clean, odd, reasons = dict(document), dict[str, Mapping[str, Any]](), list[str]()
    for name, depth in _TABLE_DEPTHS.items():
        if isinstance(table := document.get(name), dict):
            within = partial(_within, shape, name)
            clean[name], left = _sift(table, within, depth, ("", reasons))
            odd |= {name: left} if left else {}
    try:
        data_version(document)
    except Corrupt as error:
        del clean["dataVersion"]
        reasons.append(f"dataVersion is ignored: {error.reason}")
    return Sifted(shape(clean), odd, told(reasons))


def told(reasons: list[str]) -> list[str]:
    """As many reasons as anybody reads, and how many more there are."""
    more = len(reasons) - _TOLD_MAX
    return [*reasons[:_TOLD_MAX], f"{more} more entries are ignored"] if more > 0 else reasons


def _sift(
    table: Mapping[str, Any], shape: Callable[[Any], object], depth: int, told: tuple[str, list[str]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries that `shape` takes, and the others.  `told`: the table's own name, and the reasons so far."""
    taken, left = dict[str, Any](), dict[str, Any]()
    for key, entry in table.items():
        try:
            shape({key: entry})
            taken[key] = entry
        except Corrupt as error:
            if depth > 1 and isinstance(entry, dict) and _is_taken(shape, {key: {}}):
                inner = f"{key!r}, ", told[1]
                taken[key], left[key] = _sift(entry, partial(_within, shape, key), depth - 1, inner)
                continue
            left[key] = entry
            if not key.endswith(_BROADCAST):
                told[1].append(f"{told[0]}{key!r} is ignored: {error.reason}")
    return taken, left


def _within(shape: Callable[[Any], object], key: str, part: Mapping[str, Any]) -> object:
    return shape({key: part})


def _is_taken(shape: Callable[[Any], object], part: Mapping[str, Any]) -> bool:
    try:
        shape(part)
    except Corrupt:
        return False
    return True


def topic_configs(document: Any) -> dict[str, TopicConfig]:
    """The topics of topics.json by name.  Raises Corrupt where a known field has another type."""
    return {
        name: TopicConfig(
            topic=name,
            read_queue_nums=_queue_count(entry, "readQueueNums"),
            write_queue_nums=_queue_count(entry, "writeQueueNums"),
            perm=_count(entry, "perm", 6),
            order=_flag(entry, "order", False),
            filter_type=_text(entry, "topicFilterType", "SINGLE_TAG"),
            sys_flag=_count(entry, "topicSysFlag", 0),
            attributes={key: _text(entry["attributes"], key, "") for key in _table(entry, "attributes")},
            unknown_fields=others_of(entry, TOPIC_FIELDS),
        )
        for name, entry in _entries(document, "topicConfigTable")
    }


def subscription_groups(document: Any) -> dict[str, SubscriptionGroup]:
    """The groups of subscriptionGroup.json by name.  Raises Corrupt where a known field has another type."""
    return {
        name: SubscriptionGroup(
            group=name,
            consume_enable=_flag(entry, "consumeEnable", True),
            consume_broadcast_enable=_flag(entry, "consumeBroadcastEnable", True),
            retry_max_times=_number(entry, "retryMaxTimes", 16),
            retry_queue_nums=_count(entry, "retryQueueNums", 1),
            unknown_fields=others_of(entry, GROUP_FIELDS),
        )
        for name, entry in _entries(document, "subscriptionGroupTable")
    }


def consumer_offsets(document: Any) -> dict[tuple[str, str], dict[int, int]]:
    """Next queue offset to consume by (group, topic) and queue id, of consumerOffset.json or lmqConsumerOffset.json.

    Keys are `topic@group`; light queues have queue id 0 only.  Raises Corrupt for keys and values of another kind.
    """
    found: dict[tuple[str, str], dict[int, int]] = {}
    for key, offsets in _entries(document, "offsetTable"):
        found[_group_and_topic(key)] = _numbers(offsets)
    for key, offset in _table(document, "lmqOffsetTable").items():
        found.setdefault(_group_and_topic(key), {})[0] = _integer(offset, key)
    return found


def delay_offsets(document: Any) -> dict[int, int]:
    """Next queue offset to deliver by delay level (1-based: queue id + 1), of delayOffset.json."""
    return _numbers(_whole_table(document, "offsetTable"))


def data_version(document: Any) -> DataVersion | None:
    """The dataVersion of any of the files; None where it has none (offsets, before 5.x).  Raises Corrupt."""
    version = _table(document, "dataVersion")
    if not version:
        return None
    state_version = _number(version, "stateVersion", 0) if "stateVersion" in version else None
    return DataVersion(_number(version, "counter", 0), _number(version, "timestamp", 0), state_version)


def others_of(document: Any, known: Container[str]) -> dict[str, Any]:
    """The members of an object that are not among the known ones.  Raises Corrupt for anything but an object."""
    if not isinstance(document, dict):
        raise Corrupt("", 0, "no object")
    return {name: value for name, value in document.items() if name not in known}


def _group_and_topic(key: str) -> tuple[str, str]:
    topic, at, group = key.partition("@")
    if not (topic and at and group) or "@" in group:
        raise Corrupt("", 0, f"{key!r} is not topic@group")
    return group, topic


def _table(document: Any, name: str) -> dict[str, Any]:
    """A member object; empty where it is absent or null."""
    if not isinstance(document, dict):
        raise Corrupt("", 0, f"an object with {name} is missing")
    table = document.get(name)
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise Corrupt("", 0, f"{name} is no object")
    return table


def _whole_table(document: Any, name: str) -> dict[str, Any]:
    """The table that a file is made for.  Raises Corrupt where it is null: no release writes that, or goes by it."""
    table = _table(document, name)
    if name in document and document[name] is None:
        raise Corrupt("", 0, f"{name} is null")
    return table


def _entries(document: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, entry in _whole_table(document, name).items():
        if not isinstance(entry, dict):
            raise Corrupt("", 0, f"{name}: {key!r} is no object")
        yield key, entry


def _numbers(table: dict[str, Any]) -> dict[int, int]:
    """An object of integers keyed by queue ids or levels."""
    numbers = {}
    for key, value in table.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) <= I32_MAX):
            raise Corrupt("", 0, f"{key!r} is not a queue id")
        numbers[int(key)] = _integer(value, f"the offset of {key}")
    return numbers


def _integer(value: Any, name: str) -> int:
    """A number as fastjson casts values to one: also digits in quotes, and a fraction without its end."""
    number = value
    if isinstance(value, float) or (isinstance(value, str) and _DIGITS.fullmatch(value)):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or number not in _I64:
        raise Corrupt("", 0, f"{name} is {shown(value)}, not an integer of 64 bits")
    return number


def _number(entry: dict[str, Any], name: str, default: int) -> int:
    value = entry.get(name)
    return default if value in (None, "") else _integer(value, name)


def _count(entry: dict[str, Any], name: str, default: int) -> int:
    value = _number(entry, name, default)
    if not 0 <= value <= I32_MAX:
        raise Corrupt("", 0, f"{name} is {value}")
    return value


def _queue_count(entry: dict[str, Any], name: str) -> int:
    """A number of queues.  Raises Corrupt for null, too: it is 16 for RocketMQ up to 5.3, and 0 for 5.5."""
    if name in entry and entry[name] in (None, ""):
        raise Corrupt("", 0, f"{name} is {shown(entry[name])}, not a number of queues")
    return _count(entry, name, 16)


def _flag(entry: dict[str, Any], name: str, default: bool) -> bool:
    value = entry.get(name)
    if value in (None, ""):
        return default
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, int):
        raise Corrupt("", 0, f"{name} is {shown(value)}, not true or false")
    return value == 1  # a boolean, or as fastjson takes a number


def _text(entry: dict[str, Any], name: str, default: str) -> str:
    value = entry.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        raise Corrupt("", 0, f"{name} is {shown(value)}, no text")
    return default if value is None else value
