"""Messages that say odd things of themselves, put in every way."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats import names
from rmqstore.formats.broker_json import TopicConfig
from rmqstore.formats.inner_batch import Piece, encode_pieces
from tests.crash.disks import MemoryDisk

ROOT = "/store"
SMALL = StoreConfig(log_file_size=16384, queue_file_size=200, index_slot_count=16, index_item_count=40,
                    batch_queue_file_size=46 * 4, statistics=False)  # fmt: skip
BATCH = TopicConfig("batch", attributes={"queue.type": "BatchCQ"})
TOPICS = st.sampled_from(
    ["plain", "plain", "batch", "batch", "batch", "other", "%RETRY%g", "%DLQ%g", "%LMQ%a", names.SCHEDULE_TOPIC,
     names.HALF_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC", "a/b", "..", "", "日", "t" * 127, "t" * 128]
)  # fmt: skip
FLAGS = st.sampled_from([0, 0, 0x40, 0x80, 0xC0, 0xC0, 0x4, 0x8, 0xC, 0xC4, 0xC8, 0x30, 0x700, -2])
NUMBERS = ["", "0", "1", "2", "3", "-1", "+2", "32768", "99999999999999999999", "x", "²", " 1"]
LISTS = ["%LMQ%a", "%LMQ%a,%LMQ%b", ",,", "%LMQ%a/b,%LMQ%", "plain", "%LMQ%..,..", "%LMQ%a,%LMQ%a", "%LMQ%" + "x" * 300]
ODD = {
    "INNER_NUM": NUMBERS, "INNER_BASE": NUMBERS, "DELAY": NUMBERS, "REAL_QID": NUMBERS,
    "REAL_TOPIC": ["plain", "batch", "..", "a/b", names.SCHEDULE_TOPIC, ""],
    "INNER_MULTI_DISPATCH": LISTS, "INNER_MULTI_QUEUE_OFFSET": ["7", "0,0", ",", *NUMBERS],
    "TAGS": ["", "a", "\ud800"], "KEYS": ["", "k", " k  l "], "UNIQ_KEY": ["U"], "WAIT": ["false", "x"],
    "TRAN_MSG": ["true"], "PGROUP": ["g"], "RETRY_TOPIC": ["batch"], "__CRC32#": ["1"],
}  # fmt: skip
PROPERTIES = st.lists(
    st.sampled_from(sorted(ODD)).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(ODD[name]))), max_size=4
).map(dict)
BODIES = st.sampled_from([b"", b"body", encode_pieces([Piece(0, b"m", b"")] * 2), encode_pieces([Piece(0, b"", b"")])])
MESSAGES = st.builds(
    Message, TOPICS, BODIES, queue_id=st.sampled_from([0, 0, 0, 1, 7, 2**31 - 1, -1]), sys_flag=FLAGS,
    properties=PROPERTIES,
)  # fmt: skip
PUTS = st.one_of(
    st.tuples(st.just("put"), MESSAGES),
    st.tuples(st.just("put_batch"), st.tuples(MESSAGES, st.integers(1, 3)).map(lambda pair: [pair[0]] * pair[1])),
    st.tuples(st.just("put_columns"), st.lists(MESSAGES, min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["commit", "rollback", "keep"]), MESSAGES),
    st.tuples(st.just("retry"), MESSAGES),
    st.tuples(st.sampled_from(["wait", "flush", "again"]), st.none()),
    st.tuples(st.just("delete"), st.sampled_from(["plain", "batch"])),
)
WHOLE = Message("batch", encode_pieces([Piece(0, b"1", b""), Piece(0, b"2", b"")]), sys_flag=0xC0,
                properties={"INNER_NUM": "2"})  # fmt: skip
LIGHT = Message("plain", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
FORGED = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "7"}


def columns_of(messages: list[Message]) -> pa.Table:
    kind = pa.map_(pa.string(), pa.string())
    clean = [
        {name: value for name, value in message.properties.items() if "\ud800" not in value} for message in messages
    ]
    return pa.table({
        "topic": pa.array([message.topic for message in messages], pa.string()),
        "body": pa.array([message.body for message in messages], pa.binary()),
        "queueId": pa.array([message.queue_id for message in messages], pa.int32()),
        "sysFlag": pa.array([message.sys_flag for message in messages], pa.int32()),
        "properties": pa.array([list(values.items()) for values in clean], kind),
    })  # fmt: skip


class Caller:
    """Does odd things with a store, and remembers what it was told."""

    def __init__(self, config: StoreConfig, changes: dict[str, Any]) -> None:
        self.disk, self.clock, self.config = MemoryDisk(), ManualClock(), config
        self.changes = changes  # what a hook makes of each message
        self.acknowledged: list[PutResult] = []
        self.has_deleted = False  # then the log alone does not tell which queue a record was for
        self.store = self.opened(self.disk)
        self.make_batch_topic()

    def opened(self, disk: FileSystem) -> Store:
        hooks = [lambda message: replace(message, **self.changes)] if self.changes else []
        return open_store(ROOT, self.config, clock=self.clock, filesystem=disk, workers=False, hooks=hooks)

    def make_batch_topic(self) -> None:
        if self.store.topics.find("batch") is None:
            self.store.topics.put(BATCH)

    def do(self, what: str, with_what: Any) -> None:
        store = self.store
        match what:
            case "put" | "put_batch":
                self.told(getattr(store, what)(with_what))
            case "put_columns":
                result = store.put_columns(columns_of(with_what))
                assert (result.status is PutStatus.PUT_OK) == (result.message_count == len(with_what))
            case "commit" | "rollback" | "keep":
                result = store.transactions.prepare(with_what, group="g")
                self.told(result)
                if result.status is PutStatus.PUT_OK and what != "keep":
                    getattr(store.transactions, what)(store.transactions.prepared(result))
            case "retry":
                result = store.put(with_what)
                self.told(result)
                if result.is_stored:
                    store.retries.send_back("g", store.message_at(result.physical_offset))
            case "wait":
                self.clock.advance(3_000)
                for _ in range(3):
                    store.step()
            case "flush":
                store.flush()
            case "again":
                store.close()
                self.store = self.opened(self.disk)
            case "delete":
                self.has_deleted = True
                store.delete_topic(with_what)
                self.acknowledged = [result for result in self.acknowledged if topic_of(store, result) != with_what]
                self.make_batch_topic()

    def told(self, result: PutResult) -> None:
        if result.status is PutStatus.PUT_OK:
            self.acknowledged.append(result)


def topic_of(store: Store, result: PutResult) -> str:
    return store.message_at(result.physical_offset).topic
