"""What a store of ours answers to the questions that the oracle asks RocketMQ, in the oracle's words."""

import base64
from collections.abc import Sequence
from pathlib import Path

from rmqstore.engine.log.derived.index_log import COUNT_MAX
from rmqstore.engine.store import Store
from rmqstore.formats import index
from rmqstore.formats.checkpoint import read_checkpoint
from rmqstore.formats.message import NO_DATA, Blank, Record, read_record
from rmqstore.formats.names import SCHEDULE_TOPIC
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.testing import Probe
from tests.conformance.workload import Json, java_host

_COMPRESSED = 0x1
_TRANSACTION, _ROLLED_BACK = 0xC, 0xC
ROOMY = 2**62  # later than every message


def answers(store: Store, key_questions: Sequence[Json], time_questions: Sequence[Json]) -> Json:
    """Everything that oracle.answers asks, but what only RocketMQ has."""
    walk = _walk(store)
    bounds = {place: store.bounds(*place) for place in store.queues() if store.bounds(*place)[1]}
    found = {f"{topic}/{queue_id}": _queue(store, topic, queue_id) for topic, queue_id in bounds}
    codes = {entry[1]: entry[3] for queue in found.values() for entry in queue["entries"]}
    for record in walk["records"]:
        if record["topic"] == SCHEDULE_TOPIC and record["physicalOffset"] in codes:
            record["dispatchTagsCode"] = codes[record["physicalOffset"]]
    shown = {f"{topic}/{queue_id}": {"min": low, "max": high} for (topic, queue_id), (low, high) in bounds.items()}
    state = {"minPhyOffset": walk["start"], "maxPhyOffset": walk["end"], "queues": shown}
    return {
        "state": state | {"indexFiles": _index_files(Path(store.path))},
        "log": {"blanks": walk["blanks"], "end": walk["end"], "stopped": None},
        "records": walk["records"], "queues": found,
        "keyQueries": [_by_key(store, question) for question in key_questions],
        "timeQueries": [_by_time(store, question) for question in time_questions],
    }  # fmt: skip


def comparable(javas: Json, version: str) -> Json:
    """Java's answers without what a store of ours has no word for."""
    state = dict(javas["state"])
    state = {name: state[name] for name in ("minPhyOffset", "maxPhyOffset", "queues", "indexFiles")}
    log = dict(javas["log"])
    if log["end"] == state["minPhyOffset"] == -1:  # Java's word for a log that has no file yet
        log["end"] = state["minPhyOffset"] = 0
    state["queues"] = {
        name: {bound: queue[bound] for bound in ("min", "max")}
        for name, queue in sorted(state["queues"].items())
        if queue["max"] > 0
    }
    queues = {name: dict(javas["queues"][name]) for name in state["queues"]}
    for queue in queues.values():
        assert queue.pop("readsEqualLog"), "Java's own reads are not its own log"
    times = [dict(answer) for answer in javas["timeQueries"]]
    for answer in times:
        if version.startswith("4."):
            answer["lower"] = answer["upper"] = answer["offset"]
            if answer["offset"] is None:
                answer.update(skipped=True)
    same = {name: javas[name] for name in ("records", "keyQueries")}
    return same | {"log": log, "state": state, "queues": queues, "timeQueries": times}


def lost_keys(found: Json, *, is_indexed_again: bool = False) -> list[str]:
    """Questions about all times whose answer is not every message with the key, once for each time it has it.

    `is_indexed_again`: RocketMQ may have written items a second time, see Feature.
    """
    lines = []
    for answer in found["keyQueries"]:
        if answer["begin"] or answer["end"] < ROOMY:
            continue
        wanted = [
            record["physicalOffset"]
            for record in found["records"]
            if record["sysFlag"] & _TRANSACTION != _ROLLED_BACK
            for key in [record["properties"].get("UNIQ_KEY"), *(record["keys"] or "").split(" ")]
            if (record["topic"], key) == (answer["topic"], answer["key"])
        ]
        told = answer["physicalOffsets"]
        if is_indexed_again:  # what is told twice takes the place of older ones where no more are asked for
            is_full = len(told) == min(answer["max"], COUNT_MAX)
            told, wanted = sorted({*told}), sorted({*wanted})
            wanted = wanted[-len(told) :] if is_full else wanted
        if len(wanted) <= min(answer["max"], COUNT_MAX) and told != wanted:
            lines.append(f"key {answer['key'][:40]!a}: {answer['physicalOffsets']} instead of {wanted}")
    return lines


def checkpoint_of(directory: Path) -> Json:
    """The checkpoint's fields."""
    found = read_checkpoint((directory / "checkpoint").read_bytes())
    return {name: getattr(found, name) for name in found.__slots__}


def _walk(store: Store) -> Json:
    """Every record from the log's start on, as the store reads it, and the blanks."""
    records: list[Json] = []
    blanks: list[int] = []
    directories = store.config.log_paths or (f"{store.path}/commitlog",)
    files = sorted((path for folder in directories for path in Path(folder).iterdir()), key=lambda path: path.name)
    start = end = int(files[0].name) if files else 0
    for path in files:
        data, position, found = path.read_bytes(), 0, None
        while isinstance(found := read_record(data, position), Record):
            records.append(described(store.message_at(int(path.name) + position)))
            position = found.end
        if isinstance(found, Blank):
            blanks.append(int(path.name) + position)
            end = int(path.name) + len(data)
            continue
        assert found.reason == NO_DATA, f"{path.name} @{position}: {found.reason}"
        end = int(path.name) + position
        break
    return {"records": records, "blanks": blanks, "start": start, "end": end}


def described(found: StoredMessage) -> Json:
    """A message as the oracle describes a record."""
    assert found.corrupt_reason is None, found.corrupt_reason
    shown = {
        "topic": found.topic, "queueId": found.queue_id, "queueOffset": found.queue_offset,
        "physicalOffset": found.physical_offset, "storeSize": found.store_size, "magic": found.record.magic,
        "sysFlag": found.record.sys_flag, "flag": found.flag, "bodyCrc": found.body_crc,
        "bornTimestamp": found.born_timestamp_ms, "storeTimestamp": found.store_timestamp_ms,
        "bornHost": java_host(found.born_host), "storeHost": java_host(found.store_host),
        "reconsumeTimes": found.reconsume_times, "preparedTransactionOffset": found.prepared_transaction_offset,
        "msgId": found.offset_msg_id, "tags": found.tags, "keys": found.keys, "body": _base64(found.stored_body),
        "properties": dict(sorted(found.properties.items())), "dispatchTagsCode": found.tags_code,
    }  # fmt: skip
    return shown | ({"bodyUncompressed": _base64(found.body or b"")} if found.record.sys_flag & _COMPRESSED else {})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _queue(store: Store, topic: str, queue_id: int) -> Json:
    """Entries from the files themselves, then the reads of a consumer and those at odd places."""
    low, high = store.bounds(topic, queue_id)
    files = sorted((Path(store.path) / "consumequeue" / topic / str(queue_id)).iterdir())
    data = b"".join(file.read_bytes() for file in files)
    first = int(files[0].name) // QUEUE_ENTRY.size
    entries = []
    for number in range(low, high):
        entry = QUEUE_ENTRY.read(data[(number - first) * QUEUE_ENTRY.size :][: QUEUE_ENTRY.size])
        entries.append([number, entry["physical_offset"], entry["size"], entry["tags_code"]])
    reads, offset = [], low
    while offset < high:
        reads.append(_get(store, topic, queue_id, offset, 32))
        if reads[-1]["next"] <= offset:
            break
        offset = reads[-1]["next"]
    odd = sorted({-1, 0, low - 1, low, high - 1, high, high + 1, high + 1000})
    edges = [_get(store, topic, queue_id, offset, 1) for offset in odd]
    return {"entries": entries, "reads": reads, "edges": edges}


def _get(store: Store, topic: str, queue_id: int, offset: int, max_count: int) -> Json:
    result = store.get(topic, queue_id, offset, max_count)
    return {
        "offset": offset, "status": result.status.name, "next": result.next_offset, "min": result.min_offset,
        "max": result.max_offset, "physicalOffsets": [found.physical_offset for found in result.messages],
    }  # fmt: skip


def _index_files(directory: Path) -> list[Json]:
    shown = []
    for file in sorted((directory / "index").glob("*")):
        header = index.read_header(file.read_bytes()[: index.HEADER.size])
        assert header is not None
        shown.append({
            "name": file.name, "beginTimestamp": header.begin_timestamp_ms, "endTimestamp": header.end_timestamp_ms,
            "endPhyOffset": header.end_offset, "beginPhyOffset": header.begin_offset,
            "hashSlotCount": header.used_slot_count, "indexCount": header.index_count,
        })  # fmt: skip
    return shown


def _by_key(store: Store, question: Json) -> Json:
    asked = {name: question[name] for name in ("topic", "key", "begin", "end", "max")}
    times = {"begin_ms": asked["begin"], "end_ms": asked["end"], "max_count": asked["max"]}
    found = [one.physical_offset for one in store.query(asked["topic"], asked["key"], **times)]
    raw: list[int] = []
    # What the index says before the messages are looked at is no one's business but Java's.
    keyed = Probe(store).engine.parts.index
    if keyed is not None:
        raw = keyed.query(asked["topic"], asked["key"], asked["begin"], asked["end"], min(asked["max"], COUNT_MAX))
    files = _index_files(Path(store.path))
    last = {
        "lastUpdateTimestamp": files[-1]["endTimestamp"] if files else 0,
        "lastUpdatePhyOffset": files[-1]["endPhyOffset"] if files else 0,
    }
    return asked | {"physicalOffsets": found, "index": raw} | last


def _by_time(store: Store, question: Json) -> Json:
    asked = {name: question[name] for name in ("topic", "queueId", "timestamp")}
    place = (asked["topic"], asked["queueId"], asked["timestamp"])
    lower, upper = (store.offset_at(*place, boundary) for boundary in ("lower", "upper"))
    return asked | {"offset": lower, "lower": lower, "upper": upper}
