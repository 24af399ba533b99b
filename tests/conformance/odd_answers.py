"""What a store of RocketMQ's and one of ours answer to the requests of `odd_requests`, and what they have stored then.

Equal answers are equal values.  Of a stored record everything counts but its place, its time and the order of its
properties, which in RocketMQ is that of a hash map; 4.9.8 leaves out the last 0x02 of the properties.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from rmqstore.formats.batch_queue_entry import is_valid, read_batch_entries
from rmqstore.formats.message import Record, Torn, read_record
from rmqstore.formats.names import SCHEDULE_TOPIC
from rmqstore.formats.properties import VALUE_END
from rmqstore.formats.queue_entry import read_entries
from tests.conformance.odd_requests import AFTER_CLOSE, AFTER_EXPIRY, ASKED, IN_EXPIRY, LIGHTS, PUTS, Odd, topic_of
from tests.conformance.odd_stores import JavaStore, OurStore
from tests.conformance.workload import LOG_FILE_SIZE, Json

Side = JavaStore | OurStore
_OLD_COUNT = 100
_HASH_MAX = 2**31 - 1
# Not compared: where a record lies, when it was stored, where it ends in what was read.
_OF_ITS_OWN = ("position", "end", "physical_offset", "store_timestamp", "size", "properties")


def answers_of(version: str, side: Side, light: Side, old: Side) -> dict[str, Json]:
    """By request what the stores answer and hold then: `light` takes light queues, the oldest files of `old` go."""
    found, replies, owners = _put_all(side, [odd for odd in PUTS if version in odd.versions])
    for odd in ASKED:
        request = {"offset": replies[odd.request["topic"]]["physicalOffset"]} if odd.request["op"] == "record" else {}
        found[odd.name] = _named(side.ask(odd.request | request | {"topic": topic_of(odd)}), owners)
    found |= _put_all(light, [odd for odd in LIGHTS if version in odd.versions], True)[0]
    found |= _expiry(old)
    side.close()
    return found | {odd.name: {"status": _asked(side, odd)["status"]} for odd in AFTER_CLOSE}


def _put_all(
    side: Side, puts: Sequence[Odd], one_by_one: bool = False
) -> tuple[dict[str, Json], dict[str, Json], dict[int, str]]:
    """By request what came of it, and what was replied at once; whose each record is, by its offset.  `one_by_one`:
    each is in its queues before the next is put, as RocketMQ counts light queues when it dispatches to them.
    """
    replies = {}
    for odd in puts:
        replies[odd.name] = _asked(side, odd)
        if one_by_one:
            side.settle()
    side.settle()
    places, log = _places(side.directory), _Log(side.directory / "commitlog", LOG_FILE_SIZE)
    found: dict[str, Json] = {}
    owners: dict[int, str] = {}
    bounds = side.bounds()
    for odd in puts:
        found[odd.name] = _stored(replies[odd.name], log, places, odd, owners)
        found[odd.name]["bounds"] = bounds.get((topic_of(odd), odd.request["queueId"]))
    return found, replies, owners


def _asked(side: Side, odd: Odd) -> Json:
    return side.ask(odd.request | {"topic": topic_of(odd)})


def _expiry(old: Side) -> dict[str, Json]:
    """What is read while the oldest log files of a store go, and then."""
    body = base64.b64encode(b"o" * 900).decode()
    request = PUTS[0].request | {"topic": "old", "body": body}
    for _ in range(_OLD_COUNT):
        assert old.ask(request)["status"] == "PUT_OK"
    old.settle()
    old.delete_first()
    found = _asked_in_words(old, IN_EXPIRY)
    old.expire()
    return found | _asked_in_words(old, AFTER_EXPIRY)


def _asked_in_words(old: Side, reads: Sequence[Odd]) -> dict[str, Json]:
    """By request the answer, with the number of messages; offsets are words about the queue's bounds."""
    low, high = old.bounds()["old", 0]
    found = {}
    for odd in reads:
        word, distance = re.fullmatch(r"(min|max|)([+-]?\d*)", odd.request["offset"]).groups()
        offset = {"min": low, "max": high, "": 0}[word] + int(distance or 0)
        reply = old.ask(odd.request | {"offset": offset})
        found[odd.name] = reply | {"physicalOffsets": len(reply["physicalOffsets"])}
    return found


class _Log:
    """The files of a log, read back."""

    def __init__(self, directory: Path, file_size: int) -> None:
        self._files = {int(path.name): path for path in directory.iterdir()}
        self._file_size = file_size

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of one file."""
        position = offset % self._file_size
        return self._files[offset - position].read_bytes()[position : position + size]


def _stored(reply: Json, log: _Log, places: Mapping[int, list[Json]], odd: Odd, owners: dict[int, str]) -> Json:
    """The status of a put, and the records that it left with the places that queues give them."""
    found: Json = {"status": reply["status"]}
    if reply.get("append") != "PUT_OK":
        return found
    found["queueOffset"], found["records"] = reply["queueOffset"], []
    start, data = reply["physicalOffset"], log.read(reply["physicalOffset"], reply["size"])
    position = 0
    while position < len(data):
        record = read_record(data, position)
        if not isinstance(record, Record):
            found["records"].append({"unreadable": record.reason if isinstance(record, Torn) else "blank"})
            break
        owners[start + position] = f"{odd.name}, record {len(found['records'])}"
        found["records"].append(_shown(record, places.get(start + position, [])))
        position = record.end
    return found


def _shown(record: Record, places: list[Json]) -> Json:
    """A record without what is its own."""
    block = record.properties
    shown = {each.name: getattr(record, each.name) for each in fields(record) if each.name not in _OF_ITS_OWN}
    shown["properties"] = sorted(block.removesuffix(VALUE_END).split(VALUE_END))
    shown["size"] = record.size + (1 if block and not block.endswith(VALUE_END) else 0)
    shown["places"] = []
    for place in places:
        is_time = place["topic"] == SCHEDULE_TOPIC and place["code"] > _HASH_MAX
        code = place["code"] - (record.store_timestamp if is_time else 0)  # after how long it is delivered
        shown["places"].append(place | {"code": code, "size": place["size"] == record.size})
    return shown


def _places(directory: Path) -> dict[int, list[Json]]:
    """By record's offset in the log, the entries and units that point at it."""
    found: dict[int, list[Json]] = {}
    for kind in ("consumequeue", "batchconsumequeue"):
        for path in sorted((directory / kind).rglob("*")):
            if not path.is_file():
                continue
            *topic, queue_id, start = path.relative_to(directory / kind).parts
            queue = {"topic": "/".join(topic), "queue_id": int(queue_id)}
            for physical_offset, place in _entries(kind, path.read_bytes(), int(start)):
                found.setdefault(physical_offset, []).append(queue | place)
    return found


def _entries(kind: str, data: bytes, start: int) -> Iterator[tuple[int, Json]]:
    if kind == "batchconsumequeue":
        units = read_batch_entries(data)
        for unit in units[is_valid(units)]:
            base, count = int(unit["base_queue_offset"]), int(unit["message_count"])
            shown = {"queue_offset": base, "count": count, "size": int(unit["size"]), "code": int(unit["tags_code"])}
            yield int(unit["physical_offset"]), shown
        return
    entries = read_entries(data)
    for number, entry in enumerate(entries):
        if entry["size"] > 0:
            queue_offset = start // entries.itemsize + number
            yield int(entry["physical_offset"]), {
                "queue_offset": queue_offset, "size": int(entry["size"]), "code": int(entry["tags_code"]),
            }  # fmt: skip


def _named(reply: Json, owners: Mapping[int, str]) -> Json:
    """An answer with the names of its messages in place of their offsets."""
    if "physicalOffsets" not in reply:
        return reply
    return reply | {"physicalOffsets": [owners.get(offset, "nobody's") for offset in reply["physicalOffsets"]]}


def difference(mine: Json, theirs: Json) -> str | None:
    """In what two answers differ, in a few words; None if in nothing."""
    if any("unreadable" in record for record in theirs.get("records", [])):
        return f"{mine['status']}, RocketMQ a record that cannot be read"
    if mine["status"] != theirs["status"]:
        return f"{mine['status'] or 'an answer'}, RocketMQ {theirs['status'] or 'an answer'}"
    names = [name for name in sorted(mine.keys() | theirs.keys()) if mine.get(name) != theirs.get(name)]
    if "records" in names and len(mine["records"]) == len(theirs["records"]):
        pairs = zip(mine["records"], theirs["records"], strict=True)
        names += sorted(
            {key for one, other in pairs for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
        )
        names.remove("records")
    return ", ".join(names) or None
