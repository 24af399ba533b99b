"""Offset JSON: where a stream stands, in one shape everywhere: {"orders": {"broker-a": {"0": 123}}}.

A number is the next offset to read.  Spark compares these as text, so keys are sorted and nothing that changes by
itself is in them.  Keys that begin with `$` are notes: `$from` stands in an end offset and says where those queues
begin whose start is written down nowhere else, because Spark keeps no initial offset of a Python source; `$since` and
`$behind` say what is known of queues that were found shorter than where the stream stands (`turned_back`); `$marks` has
a checksum of the last message that was read of a queue (`same_logs`); `$metrics` stands in reports only.  Before 4.2
Spark asks for the first end without saying whether it is a new query's: `$initial` in that end is where a new one would
begin, and counts for the first batch, which on those versions is the one whose start says `"$initial": true`.  A topic
whose own name begins with `$` is written with one more: the offsets of `$x` stand under `$$x`.
"""

import re
from collections.abc import Mapping
from typing import Any

from rmqstore.core.arguments import I64_MAX
from rmqstore.errors import Rejected
from rmqstore.snapshot.request import Place

FROM, INITIAL, MARKS, METRICS = "$from", "$initial", "$marks", "$metrics"
SINCE, BEHIND = "$since", "$behind"
_NOTES = frozenset({FROM, INITIAL, MARKS, METRICS, SINCE, BEHIND})

# The next offset to read of each queue, and what notes say of them.
Offsets = dict[Place, int]
Notes = Mapping[str, Mapping[Place, int]]


def offset_json(offsets: Mapping[Place, int], notes: Notes | None = None) -> dict[str, Any]:
    """`offsets` as JSON, sorted, with those of the notes that say anything."""
    shaped: dict[str, Any] = {name: offset_json(note) for name, note in sorted((notes or {}).items()) if note}
    for (broker, topic, queue_id), offset in sorted(offsets.items(), key=_sort_key):
        shaped.setdefault(_key_of(topic), {}).setdefault(broker, {})[str(queue_id)] = offset
    return dict(sorted(shaped.items()))


def _key_of(topic: str) -> str:
    return "$" + topic if topic.startswith("$") else topic


def topics_in(shaped: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of offset JSON by topic, without its notes.  Raises Rejected for a key that is neither."""
    found = {}
    for key, value in shaped.items():
        if not isinstance(key, str):
            raise _wrong(str(key))
        if key.startswith("$$"):
            found[key[1:]] = value
        elif not key.startswith("$"):
            found[key] = value
        elif key not in _NOTES:
            raise Rejected(f"{key!r} in offset JSON is no note of this source: a topic of that name is written ${key}")
    return found


def _sort_key(item: tuple[Place, int]) -> tuple[str, ...]:
    """As json.dumps(sort_keys=True) would have it: also numbers by their digits."""
    broker, topic, queue_id = item[0]
    return topic, broker, str(queue_id)


def offsets_in(shaped: Mapping[str, Any] | None) -> Offsets:
    """The offsets that JSON holds, without its notes.  Raises Rejected for another shape."""
    offsets: Offsets = {}
    for topic, brokers in topics_in(_whole(shaped)).items():
        for broker, queues in _table(brokers, topic).items():
            for queue_id, offset in _table(queues, topic).items():
                whole = isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset <= I64_MAX
                if not whole or not re.fullmatch(r"0|[1-9]\d{0,9}", str(queue_id), re.ASCII):
                    raise _wrong(topic)
                offsets[broker, topic, int(queue_id)] = offset
    return offsets


def begins_of(start: Mapping[str, Any], end: Mapping[str, Any], *, is_first: bool) -> Offsets:
    """Where the queues of the batch between two offsets begin, notes of the end included.

    `is_first`: the batch is its query's first, whose start is whatever the options say by now.  Raises Rejected for
    another shape.
    """
    notes = [INITIAL, FROM] if is_first else [FROM]
    begun = offsets_in(start)
    for note in notes:
        begun |= note_in(end, note)
    return begun


def note_in(shaped: Mapping[str, Any], name: str) -> Offsets:
    """The content of a note of offset JSON; empty if it is not there.  Raises Rejected for another shape."""
    return offsets_in(_table(_whole(shaped).get(name, {}), name))


def _whole(shaped: object) -> Mapping[str, Any]:
    return {} if shaped is None else _table(shaped, str(shaped)[:80])


def _table(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(name)
    return value


def _wrong(name: str) -> Rejected:
    return Rejected(
        f"the offset of {name!r} to go on from is not of this source: "
        'it should read {"topic": {"broker": {"0": 12}}}; give back the offsets of a batch as they came'
    )
