"""What both sides are given to store: messages at random, as RocketMQ's requests too, and the records they must become.

`Book` is the model: it puts into a store of ours and notes down, by itself, which record each message has to be in.
"""

import base64
import ipaddress
import random
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rmqstore.clock import ManualClock
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.store import Store
from rmqstore.formats.message_id import offset_message_id

Json = dict[str, Any]

# Sizes at which a few hundred messages roll every kind of file, in our names and RocketMQ's.
LOG_FILE_SIZE = 64 * 1024
SIZES: Json = {
    "log_file_size": LOG_FILE_SIZE, "queue_file_size": 2000, "index_slot_count": 100, "index_item_count": 200,
}  # fmt: skip
JAVA_SIZES: Json = {
    "mappedFileSizeCommitLog": LOG_FILE_SIZE, "mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 100,
    "maxIndexNum": 200,
}  # fmt: skip
STORE_HOST = "192.0.2.7:10911"
BLANK_SIZE = 8
COUNTED = (0x0, 0x8)  # transaction bits of messages that take a number in their queue: none, commit
_TRANSACTION = 0xC

TAGS = ("TagA", "TagB", "polygenelubricants", "标签", "été-ß", "😀🚀", "a||b", "x" * 200, "*")
KEYS = ("k0", "k1", "k2", "order-17", "ключ", "键", "😀", "K" * 300)
NAMES = ("region", "имя", "数量", "a=b", "TRACE_ON", "PGROUP", "emoji😀")
VALUES = ("true", " ", "значение", "值😀", "=;:,", "v" * 120, "0")


def message(rng: random.Random, topic: str, queue_id: int, **more: Any) -> Message:
    """A message at random."""
    size = min(int(rng.lognormvariate(4.3, 1.3)), 3000)
    properties = {name: rng.choice(VALUES) for name in rng.sample(NAMES, rng.choice((0, 0, 1, 3)))}
    if rng.random() < 0.7:
        properties["UNIQ_KEY"] = f"{rng.getrandbits(128):032X}"
    fields: Json = {
        "body": rng.randbytes(size),
        "tags": rng.choice(TAGS) if rng.random() < 0.8 else None,
        "keys": rng.choices(KEYS, k=rng.choice((0, 1, 1, 2, 3))),
        "properties": properties,
        "flag": rng.choice((0, 1, -1, rng.randint(-(2**31), 2**31 - 1))),
        "born_timestamp_ms": 1_700_000_000_000 + rng.randint(0, 10**9),
        "born_host": host(rng),
        "reconsume_times": rng.choice((0, 0, 1, 16)),
    }
    return Message(topic, queue_id=queue_id, **(fields | more))


def host(rng: random.Random, is_v6: bool = False) -> str:
    """An address and port at random."""
    port = rng.choice((80, 10911, 65535))
    if is_v6:
        return f"[{ipaddress.IPv6Address(rng.getrandbits(128) | 1 << 125)}]:{port}"
    return f"{ipaddress.IPv4Address(rng.randint(1 << 24, 223 << 24))}:{port}"


def all_properties(sent: Message) -> dict[str, str]:
    """Every property of a message, TAGS, KEYS and WAIT too."""
    found = dict(sent.properties)
    keys = sent.keys if isinstance(sent.keys, str) else " ".join(sent.keys)
    own = {"TAGS": sent.tags, "KEYS": keys, "WAIT": "" if sent.wait_store_ok else "false"}
    return {name: value for name, value in own.items() if value} | found


def as_request(sent: Message, store_host: str = STORE_HOST) -> Json:
    """The oracle's request to put a message."""
    return {
        "op": "put", "topic": sent.topic, "queueId": sent.queue_id, "storeHost": store_host,
        "body": base64.b64encode(sent.body).decode(), "flag": sent.flag, "sysFlag": sent.sys_flag,
        "bornTimestamp": sent.born_timestamp_ms, "bornHost": sent.born_host, "properties": all_properties(sent),
        "reconsumeTimes": sent.reconsume_times, "preparedTransactionOffset": sent.prepared_transaction_offset,
    }  # fmt: skip


def as_batch_request(sent: Sequence[Message], more: dict[str, str], store_host: str = STORE_HOST) -> Json:
    """The oracle's request to put a batch, with properties of the batch as such; born as its first message."""
    first = as_request(sent[0], store_host)
    same = ("topic", "queueId", "storeHost", "bornTimestamp", "bornHost")
    pieces = [{name: as_request(piece)[name] for name in ("body", "flag", "properties")} for piece in sent]
    return {name: first[name] for name in same} | {"op": "putBatch", "properties": more, "messages": pieces}


def java_host(text: str) -> str:
    """A host as the oracle prints it: every group of an IPv6 address, no brackets."""
    address, _, port = text.rpartition(":")
    parsed = ipaddress.ip_address(address.strip("[]"))
    if parsed.version == 4:
        return f"{parsed}:{port}"
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + f":{port}"


class Book:
    """Puts into a store of ours, a little later each time, and notes the records that must come of it.

    `end` is where the log ends, `next_offsets` what number each queue gives next; both are reckoned here, from the
    format's description, and every answer of the store is held to them.
    """

    def __init__(self, store: Store, clock: ManualClock, rng: random.Random, store_host: str = STORE_HOST) -> None:
        self.store, self.clock, self.rng = store, clock, rng
        self.store_host = store_host
        self.has_crc = False
        self.records: list[Json] = []
        self.end = 0
        self.next_offsets: Counter[tuple[str, int]] = Counter()
        self.problems: list[str] = []

    def go_on(self, records: Sequence[Json], end: int) -> None:
        """Takes over what a store holds already, as Java describes it."""
        self.records, self.end = [], end
        for record in records:
            if record["sysFlag"] & _TRANSACTION in COUNTED:
                self.next_offsets[record["topic"], record["queueId"]] += 1

    def put(self, sent: Message) -> PutResult:
        """Puts one message."""
        self._wait()
        result = self.store.put(sent)
        self._check(result, [self._note(sent)])
        return result

    def put_batch(self, sent: Sequence[Message]) -> None:
        """Puts a batch."""
        self._wait()
        result = self.store.put_batch(sent)
        self._roll(sum(self.size_of(piece) for piece in sent))
        self._check(result, [self._note(piece) for piece in sent])

    def put_columns(self, sent: Sequence[Message]) -> None:
        """Puts the rows of a table."""
        self._wait()
        result = self.store.put_columns(as_table(sent))
        noted = [self._note(piece) for piece in sent]
        if (result.status, result.message_count) != (PutStatus.PUT_OK, len(sent)):
            self.problems.append(f"put_columns of {len(sent)} rows: {result}")
        if result.physical_offset != noted[0]["physicalOffset"]:
            self.problems.append(f"put_columns began at {result.physical_offset}, not {noted[0]['physicalOffset']}")

    def size_of(self, sent: Message) -> int:
        """Bytes of a message's record."""
        block = sum(len(f"{name}={value};".encode()) for name, value in all_properties(sent).items())
        hosts = sum(20 if text.startswith("[") else 8 for text in (sent.born_host or "", self.store_host))
        length = 1 if len(sent.topic) <= 127 else 2
        return 72 + hosts + len(sent.body) + length + len(sent.topic) + 2 + block + (20 if self.has_crc else 0)

    def _wait(self) -> None:
        self.clock.advance(self.rng.choice((1, 1, 2, 7, 1100)))

    def _roll(self, size: int) -> None:
        room = LOG_FILE_SIZE - self.end % LOG_FILE_SIZE
        if size + BLANK_SIZE > room:
            self.end += room

    def _note(self, sent: Message) -> Json:
        size = self.size_of(sent)
        self._roll(size)
        is_counted = sent.sys_flag & _TRANSACTION in COUNTED
        place = (sent.topic, sent.queue_id)
        born, stored = sent.born_host or "", self.store_host
        flags = sent.sys_flag | (0x10 if born.startswith("[") else 0) | (0x20 if stored.startswith("[") else 0)
        found = {
            "topic": sent.topic, "queueId": sent.queue_id, "queueOffset": self.next_offsets[place] * is_counted,
            "physicalOffset": self.end, "storeSize": size, "flag": sent.flag, "sysFlag": flags,
            "magic": -626843481 if len(sent.topic) <= 127 else -626843477,
            "bodyCrc": zlib.crc32(sent.body) & 0x7FFFFFFF, "bornTimestamp": sent.born_timestamp_ms,
            "storeTimestamp": self.clock.now_ms(), "bornHost": java_host(born), "storeHost": java_host(stored),
            "reconsumeTimes": sent.reconsume_times, "preparedTransactionOffset": sent.prepared_transaction_offset,
            "body": base64.b64encode(sent.body).decode(), "properties": all_properties(sent),
        }  # fmt: skip
        self.next_offsets[place] += is_counted
        self.end += size
        self.records.append(found)
        return found

    def _check(self, result: PutResult, noted: Sequence[Json]) -> None:
        first = noted[0]
        host_bytes = self.store.config.host_bytes()
        ids = ",".join(offset_message_id(host_bytes, record["physicalOffset"]) for record in noted)
        size = sum(record["storeSize"] for record in noted)
        place = (first["physicalOffset"], size, ids, first["storeTimestamp"], first["queueOffset"], len(noted))
        if result != PutResult(PutStatus.PUT_OK, *place):
            self.problems.append(f"{result} instead of {place}")


def as_table(sent: Sequence[Message]) -> pa.Table:
    """Messages as the columns that put_columns takes."""
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "topic": ([one.topic for one in sent], pa.string()),
        "body": ([one.body for one in sent], pa.binary()),
        "tags": ([one.tags for one in sent], pa.string()),
        "keys": ([list(one.keys) for one in sent], pa.list_(pa.string())),
        "properties": ([list(one.properties.items()) for one in sent], pa.map_(pa.string(), pa.string())),
        "queueId": ([one.queue_id for one in sent], pa.int32()),
        "flag": ([one.flag for one in sent], pa.int32()),
        "sysFlag": ([one.sys_flag for one in sent], pa.int32()),
        "bornTimestamp": ([one.born_timestamp_ms for one in sent], pa.int64()),
        "bornHost": ([one.born_host for one in sent], pa.string()),
        "reconsumeTimes": ([one.reconsume_times for one in sent], pa.int32()),
        "preparedTransactionOffset": ([one.prepared_transaction_offset for one in sent], pa.int64()),
    }
    return pa.table({name: pa.array(values, kind) for name, (values, kind) in columns.items()})


def differing(noted: Sequence[Json], found: Sequence[Json]) -> list[str]:
    """Where records are not what was noted of them; fields that nobody noted may be anything."""
    lines = [] if len(noted) == len(found) else [f"{len(found)} records, not {len(noted)}"]
    for want, have in zip(noted, found, strict=False):
        for name, value in want.items():
            shown = have.get(name)
            if name == "properties" and shown is not None:
                shown = {key: text for key, text in shown.items() if key != "__CRC32#"}
            if shown != value:
                lines.append(f"@{want['physicalOffset']} {name}: {str(shown)[:100]} instead of {str(value)[:100]}")
    return lines
