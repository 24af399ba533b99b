"""The features of a store that real RocketMQ is shown: each writes in its own way, in two turns or more."""

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rmqstore.core.message import Message
from tests.conformance.workload import Book, Json, host, message

Write = Callable[[Book, random.Random], None]
V1_ONLY = "4.9.8"
V5 = ("5.3.3", "5.5.1")


@dataclass(frozen=True)
class Feature:
    """`write` puts one turn; `config` and `java` are settings beside the sizes, `{store}` being the store's path.

    `is_indexed_again`: RocketMQ dispatches the log once more, as its RocksDB lacks what was put here; its index files
    then get items from their newest record on, which is in them already (Java: IndexService.buildIndex).
    """

    name: str
    write: Write
    config: Json = field(default_factory=dict)
    java: Json = field(default_factory=dict)
    versions: tuple[str, ...] = (*V5, V1_ONLY)
    is_indexed_again: bool = False


def _plain(book: Book, rng: random.Random) -> None:
    for number in range(120):
        book.put(message(rng, ("orders", "%RETRY%g", "T|x-v_2")[number % 3], rng.randint(0, 2)))


def _long_topics(book: Book, rng: random.Random) -> None:
    topics = ("t" * 127, "%RETRY%" + "g" * 121, "%RETRY%" + "g" * 248, "short")
    for number in range(60):
        book.put(message(rng, topics[number % 4], number % 2, born_host=host(rng, number % 5 == 0)))
    book.put_columns([message(rng, topics[number % 4], number % 2) for number in range(40)])
    book.put_batch([message(rng, topics[1], 0) for _ in range(3)])


def _born_v6(book: Book, rng: random.Random) -> None:
    for number in range(60):
        book.put(message(rng, "six", number % 2, born_host=host(rng, number % 2 == 0)))
    book.put_columns([message(rng, "six", number % 3, born_host=host(rng, number % 3 == 0)) for number in range(40)])
    book.put_batch([message(rng, "six", 0, born_host=host(rng, number % 2 == 0)) for number in range(5)])


def _batches(book: Book, rng: random.Random) -> None:
    for number in range(30):
        topic, queue_id = ("batched", "single")[number % 3 == 0], rng.randint(0, 1)
        if number % 3 == 0:
            book.put(message(rng, topic, queue_id))
        else:
            book.put_batch([message(rng, topic, queue_id) for _ in range(rng.randint(1, 12))])
    # Pieces that fit a file's rest by themselves, and not together.
    book.put_batch([message(rng, "batched", 0, body=b"b" * 5000) for _ in range(9)])
    book.put_batch([message(rng, "batched", 1, body=b"b" * 5000) for _ in range(9)])


def _columns(book: Book, rng: random.Random) -> None:
    for count in (1, 150, 40):
        rows = [message(rng, rng.choice(("c1", "c2", "c3")), rng.randint(0, 2)) for _ in range(count)]
        book.put_columns(rows)
        book.put(message(rng, "c1", 0))


def _property_crc(book: Book, rng: random.Random) -> None:
    book.has_crc = True
    for number in range(50):
        book.put(message(rng, "sums", number % 2, born_host=host(rng, number % 5 == 0)))
    book.put(Message("sums", b"", born_timestamp_ms=1, born_host="192.0.2.1:1"))
    book.put_batch([message(rng, "sums", 0) for _ in range(6)])
    book.put_columns([message(rng, "sums", number % 3) for number in range(50)])


def _kinds(book: Book, rng: random.Random) -> None:
    for number in range(80):
        kind = (0x0, 0x4, 0x8, 0xC)[number % 4]
        book.put(message(rng, "kinds", number % 2, sys_flag=kind, prepared_transaction_offset=rng.getrandbits(40)))
    body = zlib.compress(b"many words, many words, " * 40)
    for flags in (0x1, 0x301, 0x309, 0x3):
        book.put(message(rng, "kinds", 0, sys_flag=flags, body=body))
    rows = [message(rng, "kinds", n % 3, sys_flag=(0x0, 0x4, 0x8, 0xC)[n % 4]) for n in range(40)]
    book.put_columns(rows)


def _rolls(book: Book, rng: random.Random) -> None:
    for number in range(170):
        book.put(message(rng, "rolling", 0, body=rng.randbytes(rng.choice((10, 900, 3000)))))
        if number % 40 == 0:
            book.put_columns([message(rng, "rolling", rng.randint(0, 1)) for _ in range(30)])
    # Bodies at the edge of a file: fitting to the byte, one byte too long.
    for spare in (0, -1, 1):
        sent = message(rng, "rolling", 0, body=b"")
        room = 65536 - book.end % 65536 - 8 - book.size_of(sent)
        if room + spare > 0:
            book.put(message(rng, "rolling", 0, body=b"e" * (room + spare), properties=sent.properties, tags=sent.tags,
                             keys=sent.keys))  # fmt: skip


def _delays(book: Book, rng: random.Random) -> None:
    for number in range(60):
        if number % 4 == 0:
            book.put(message(rng, "later", number % 2))
            continue
        level = rng.choice((1, 2, 3, 10, 18))
        real = {"DELAY": str(level), "REAL_TOPIC": "later", "REAL_QID": str(number % 2)}
        book.put(message(rng, "SCHEDULE_TOPIC_XXXX", level - 1, properties=real))


def _nothing(book: Book, rng: random.Random) -> None:
    """An opened and closed store is a store."""


_TWICE = {"rocksdbCQDoubleWriteEnable": True}
_TWICE_APART = _TWICE | {"useSeparateStorePathForRocksdbCQ": True}
_ACCELERATED = {"enableAcceleratedRecovery": True}
_BOTH_PATHS = ("{store}/log-b", "{store}/log-a")
FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("plain", _plain, {"flush": "SYNC"}),
        Feature("long-topics", _long_topics, versions=V5),
        Feature("born-v6", _born_v6),
        Feature("store-v6", _born_v6, {"store_host": "[2001:db8::7]:10911"}),
        Feature("batches", _batches),
        Feature("columns", _columns),
        Feature("property-crc", _property_crc, {"append_property_crc": True}),
        Feature("kinds", _kinds),
        Feature("rolls", _rolls, {"flush": "SYNC"}),
        Feature("paths", _rolls, {"log_paths": _BOTH_PATHS}, {"storePathCommitLog": ",".join(_BOTH_PATHS)}),
        Feature("pool", _rolls, {"pool_buffers": 3}),
        Feature("delays", _delays),
        Feature("no-index", _plain, {"index_enabled": False}, {"messageIndexEnable": False}),
        Feature("empty", _nothing),
        # Queues in files and in RocksDB, which RocketMQ brings up to what was put here.
        Feature("double-write", _rolls, {}, _TWICE, ("5.5.1",), is_indexed_again=True),
        # RocketMQ loads no store then whose checkpoint says nothing of queues, or what the log does not have.
        Feature("accelerated", _rolls, {"release": "5.5"}, _ACCELERATED, ("5.5.1",)),
        Feature("double-write-apart", _columns, {}, _TWICE_APART, ("5.5.1",), is_indexed_again=True),
    )
}
