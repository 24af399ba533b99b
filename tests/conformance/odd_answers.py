"""What a store of RocketMQ's and one of ours answer to the requests of `odd_requests`, and what they have stored then.

Equal answers are equal values.  Of a stored record everything counts but its place, its time and the order of its
properties, which in RocketMQ is that of a hash map; 4.9.8 leaves out the last 0x02 of the properties.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.errors import DataLost
from rmqstore.formats.batch_queue_entry import is_valid, read_batch_entries
from rmqstore.formats.broker_json import TopicConfig
from rmqstore.formats.message import Record, Torn, read_record
from rmqstore.formats.names import SCHEDULE_TOPIC
from rmqstore.formats.properties import VALUE_END
from rmqstore.formats.queue_entry import read_entries
from rmqstore.message import Message, PutResult
from rmqstore.store import Store, open_store
from tests.conformance.java import Oracle
from tests.conformance.odd_requests import (
    AFTER_CLOSE,
    AFTER_EXPIRY,
    ASKED,
    BODY_SIZE_MAX,
    EVERY,
    LIGHTS,
    PUTS,
    Odd,
)
from tests.conformance.workload import JAVA_SIZES, LOG_FILE_SIZE, SIZES, STORE_HOST, Json

Ask = Callable[[Json], Json]
_OLD_COUNT = 100
_LIGHT_QUEUE_MAX = 2
_HASH_MAX = 2**31 - 1
_OLD_FILES = {"commitlog": 16 * 1024, "queue": 400}
# Not compared: where a record lies, when it was stored, where it ends in what was read.
_OF_ITS_OWN = ("position", "end", "physical_offset", "store_timestamp", "size", "properties")


def topic_of(odd: Odd) -> str:
    """The topic of a request: that it names, that of the put it names, or one of its own."""
    named = odd.request.get("topic", odd.name)
    return _OWN_TOPICS.get(named, named)


_OWN_TOPICS = {odd.name: f"t{number}" for number, odd in enumerate(EVERY) if "topic" not in odd.request}


@dataclass(frozen=True)
class Side:
    """One side's store: `ask` answers a request in the oracle's words, its files lie in `directory`."""

    directory: Path
    ask: Ask
    bounds: Callable[[str, int], list[int]]
    settle: Callable[[], object]
    expire: Callable[[], object]
    close: Callable[[], object]


def answers_of(version: str, side: Side, light: Side, old: Side) -> dict[str, Json]:
    """By request what the stores answer and hold then: `light` takes light queues, the oldest files of `old` go."""
    found, replies, owners = _put_all(side, [odd for odd in PUTS if version in odd.versions])
    for odd in ASKED:
        request = {"offset": replies[odd.request["topic"]]["physicalOffset"]} if odd.request["op"] == "record" else {}
        found[odd.name] = _named(side.ask(odd.request | request | {"topic": topic_of(odd)}), owners)
    found |= _put_all(light, [odd for odd in LIGHTS if version in odd.versions], True)[0]
    found |= _after_expiry(old)
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
    for odd in puts:
        found[odd.name] = _stored(replies[odd.name], log, places, odd, owners)
        found[odd.name]["bounds"] = side.bounds(topic_of(odd), odd.request["queueId"])
    return found, replies, owners


def _asked(side: Side, odd: Odd) -> Json:
    return side.ask(odd.request | {"topic": topic_of(odd)})


def _after_expiry(old: Side) -> dict[str, Json]:
    body = base64.b64encode(b"o" * 900).decode()
    request = PUTS[0].request | {"topic": "old", "body": body}
    for _ in range(_OLD_COUNT):
        assert old.ask(request)["status"] == "PUT_OK"
    old.settle()
    old.expire()
    low, high = old.bounds("old", 0)
    assert 0 < low < high
    words = {"-1": -1, "0": 0, "min-1": low - 1, "min": low, "max-1": high - 1, "max": high, "max+1": high + 1}
    return {
        odd.name: _named(old.ask(odd.request | {"offset": words[odd.request["offset"]]}), None) for odd in AFTER_EXPIRY
    }


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
        code = place["code"] - (record.store_timestamp if is_time else 0)
        whole = place["size"] == record.size
        shown["places"].append(place | {"code": code, "size": whole})
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


def _named(reply: Json, owners: Mapping[int, str] | None) -> Json:
    """An answer with the names of its messages in place of their offsets."""
    if "physicalOffsets" not in reply or owners is None:
        return {name: value for name, value in reply.items() if name != "physicalOffsets"} | {
            "count": len(reply.get("physicalOffsets", []))
        }
    return reply | {"physicalOffsets": [owners.get(offset, "nobody's") for offset in reply["physicalOffsets"]]}


def javas(oracle: Oracle, version: str, directory: Path, name: str) -> Side:
    """A store of RocketMQ's, opened by that name; 5.3.3 asks its broker's hooks."""
    config = JAVA_SIZES | {"maxMessageSize": BODY_SIZE_MAX}
    if name == "old":
        config |= {
            "mappedFileSizeCommitLog": _OLD_FILES["commitlog"],
            "mappedFileSizeConsumeQueue": _OLD_FILES["queue"],
        }
    if name == "light":
        config |= {"enableMultiDispatch": True, "enableLmq": True, "maxLmqConsumeQueueNum": _LIGHT_QUEUE_MAX}
    hooks: Json = {}
    if not version.startswith("4."):
        config |= {"timerWheelEnable": False}
        hooks = {
            "hooks": True,
            "topics": {topic: attributes for topic, attributes in _attributes().items() if attributes},
        }
    assert oracle.open(directory, config, **{"name": name} | hooks)["load"]

    def ask(request: Json) -> Json:
        oracle.call("use", name=name)
        reply = oracle.ask(request["op"], **{key: value for key, value in request.items() if key != "op"})
        if request["op"] == "query" and isinstance(reply, list):
            return {"status": "", "physicalOffsets": reply}
        if request["op"] == "record" and "exception" not in (reply or {}):
            return {"status": "nothing" if reply is None else "a record"}
        return {"status": reply["exception"].rsplit(".", 1)[-1]} if "exception" in reply else reply

    def bounds(topic: str, queue_id: int) -> list[int]:
        oracle.call("use", name=name)
        queue = oracle.call("state")["queues"].get(f"{topic}/{queue_id}", {"min": 0, "max": 0})
        return [max(queue["min"], 0), queue["max"]] if queue["max"] > 0 else [0, 0]

    def expire() -> None:
        oracle.call("use", name=name)
        oracle.call("expire", files=len(list((directory / "commitlog").iterdir())))

    return Side(directory, ask, bounds, lambda: (oracle.call("use", name=name), oracle.call("settle")), expire,
                lambda: (oracle.call("use", name=name), oracle.call("close")))  # fmt: skip


def _attributes() -> dict[str, Json]:
    return {topic_of(odd): odd.request["attributes"] for odd in PUTS if "attributes" in odd.request}


def ours(version: str, directory: Path, name: str) -> Side:
    """A store of ours, set as RocketMQ's of that release is."""
    config = SIZES | {"message_size_max": BODY_SIZE_MAX, "store_host": STORE_HOST}
    if name == "old":
        config |= {"log_file_size": _OLD_FILES["commitlog"], "queue_file_size": _OLD_FILES["queue"]}
    if name == "light":
        config |= {"multi_dispatch": True, "light_queue_max": _LIGHT_QUEUE_MAX}
    config["long_topics_as_v2"] = not version.startswith("4.")
    store = open_store(str(directory), StoreConfig(**config), clock=ManualClock())
    for topic, attributes in _attributes().items():
        store.topics.put(TopicConfig(topic, 8, 8, attributes=attributes))

    def bounds(topic: str, queue_id: int) -> list[int]:
        return list(store.bounds(topic, queue_id))

    return Side(directory, lambda request: _our_answer(store, request), bounds, lambda: store.flush(10),
                lambda: (store.clean(any_age=True), store.clean(any_age=True)), store.close)  # fmt: skip


def _our_answer(store: Store, request: Json) -> Json:
    try:
        return _ANSWERS[request["op"]](store, request)
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        return {"status": type(error).__name__}


def _answer_put(store: Store, request: Json) -> Json:
    return _told(store.put(_message(request)))


def _answer_batch(store: Store, request: Json) -> Json:
    own = {"WAIT": "true"}  # as RocketMQ's Message sets it
    pieces = [
        request | piece | {"properties": own | piece["properties"] | request["properties"]}
        for piece in request["messages"]
    ]
    return _told(store.put_batch([_message(piece) for piece in pieces]))


def _told(result: PutResult) -> Json:
    stored: Json = {}
    if result.is_stored:
        stored = {"append": "PUT_OK", "physicalOffset": result.physical_offset, "size": result.size}
    return {"status": result.status.name, "queueOffset": result.queue_offset} | stored


def _message(request: Json) -> Message:
    body: Any = request["body"]
    return Message(
        request["topic"], body if body is None else base64.b64decode(body), properties=request["properties"],
        queue_id=request["queueId"], flag=request["flag"], sys_flag=request["sysFlag"],
        born_timestamp_ms=request["bornTimestamp"], born_host=request["bornHost"],
        reconsume_times=request.get("reconsumeTimes", 0),
        prepared_transaction_offset=request.get("preparedTransactionOffset", 0),
    )  # fmt: skip


def _answer_get(store: Store, request: Json) -> Json:
    tags = {"tags": request["tags"]} if "tags" in request else {}
    result = store.get(request["topic"], request["queueId"], request["offset"], request["max"], **tags)
    return {
        "offset": request["offset"], "status": result.status.name, "next": result.next_offset,
        "min": result.min_offset, "max": result.max_offset,
        "physicalOffsets": [message.physical_offset for message in result.messages],
    }  # fmt: skip


def _answer_query(store: Store, request: Json) -> Json:
    found = store.query(request["topic"], request["key"], request["max"], request["begin"], request["end"])
    return {"status": "", "physicalOffsets": [message.physical_offset for message in found]}


def _answer_record(store: Store, request: Json) -> Json:
    try:
        store.message_at(request["offset"])
    except DataLost:
        return {"status": "nothing"}
    return {"status": "a record"}


_ANSWERS: dict[str, Callable[[Store, Json], Json]] = {
    "put": _answer_put, "putBatch": _answer_batch, "get": _answer_get, "query": _answer_query, "record": _answer_record,
}  # fmt: skip


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
