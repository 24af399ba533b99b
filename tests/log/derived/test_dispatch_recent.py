"""Dispatch from what the puts know: queues and index are those that dispatch from the log makes, byte for byte."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.engine import Engine
from rmqstore.engine.log.encode.dispatch_rows import DispatchRows, RecentBlock
from rmqstore.engine.log.put import recent_puts
from rmqstore.engine.log.put.recent_puts import COUNT_MAX, RecentPut, RecentPuts
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import Corrupt
from rmqstore.formats import names, sys_flag
from rmqstore.records.batch import RecordBatch
from tests.crash.disks import MemoryDisk

pytestmark = pytest.mark.stores

ROOT = "/store"
CONFIG = StoreConfig(
    log_file_size=16 * 1024,
    queue_file_size=400,
    index_slot_count=7,
    index_item_count=40,
    preallocate=False,
    append_property_crc=True,
)
Action = Message | list[Message] | pa.RecordBatch | None  # a put, a batch, rows, or steps of the workers


class Unconcerned:
    """A caller's dispatcher, because of which the store dispatches from the log."""

    def dispatch(self, batch: RecordBatch) -> None:
        """Takes no notice."""

    def flush(self) -> None:
        """Nothing to do."""


def derived(
    actions: Sequence[Action], dispatchers: Sequence[Unconcerned], release: str | None = None
) -> dict[str, bytes]:
    """The queue and index files after the actions and a last step."""
    disk, clock, config = MemoryDisk(), ManualClock(), replace(CONFIG, release=release)
    store = open_store(ROOT, config, clock=clock, filesystem=disk, workers=False, dispatchers=dispatchers)
    for action in actions:
        clock.advance(700)
        if isinstance(action, Message):
            store.put(action)
        elif isinstance(action, pa.RecordBatch):
            store.put_columns(action)
        elif action:
            store.put_batch(action)
        else:
            dispatch_all(store)
    dispatch_all(store)
    return {path: data for path, data in files_of(disk, ROOT).items() if "/consumequeue/" in path or "/index/" in path}


def dispatch_all(store: Store) -> None:
    """Steps until nothing is behind."""
    while store.health().dispatch_behind_bytes:
        assert store.health().is_writable, store.health()
        store.step()


def files_of(disk: MemoryDisk, directory: str) -> dict[str, bytes]:
    """Every file below a directory."""
    found: dict[str, bytes] = {}
    for entry in disk.entries(directory):
        path = f"{directory}/{entry.name}"
        if entry.is_directory:
            found |= files_of(disk, path)
        else:
            found[path] = disk.open(path).read(0, entry.size)
    return found


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), max_size=12)
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["a", "b", "orders", names.SCHEDULE_TOPIC]),
    body=st.binary(max_size=40),
    tags=st.none() | WORDS,
    keys=st.lists(WORDS, max_size=3),
    queue_id=st.integers(0, 2),
    sys_flag=st.sampled_from([0, 0, 0, sys_flag.PREPARED, sys_flag.COMMIT, sys_flag.ROLLBACK]),
    properties=st.dictionaries(st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "DELAY", "x"]), WORDS, max_size=3),
)
BATCHES = st.lists(
    st.builds(Message, topic=st.just("a"), body=st.binary(max_size=9), tags=st.none() | WORDS), min_size=1, max_size=3
)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["a", "b", "orders"]),
            "body": st.binary(max_size=40),
            "queueId": st.integers(0, 2),
            "tags": st.none() | WORDS,
            "keys": st.none() | WORDS | st.sampled_from(["k1 k2", " k1  k2 ", "k1"]),
            "sysFlag": st.sampled_from([0] * 30 + [sys_flag.PREPARED, sys_flag.COMMIT]),
            "delayLevel": st.sampled_from([0] * 30 + [3]),
            "properties": st.sampled_from([None, [("x", "1")]] * 20 + [[("UNIQ_KEY", "u")], [("KEYS", "k")]]),
        }
    ),
    min_size=1,
    max_size=60,
)
ROW_SCHEMA = pa.schema(
    [("topic", pa.string()), ("body", pa.binary()), ("queueId", pa.int32()), ("tags", pa.string()),
     ("keys", pa.string()), ("sysFlag", pa.int32()), ("delayLevel", pa.int32()),
     ("properties", pa.map_(pa.string(), pa.string()))]
)  # fmt: skip
TABLES = st.builds(
    lambda rows, skipped: pa.RecordBatch.from_pylist(rows, schema=ROW_SCHEMA).slice(min(skipped, len(rows) - 1)),
    ROWS, st.integers(0, 3),
)  # fmt: skip


RELEASES = st.sampled_from([None, "5.4"])  # the index without tags, and with them


@settings(deadline=None)
@given(st.lists(st.none() | MESSAGES | TABLES | TABLES | BATCHES, max_size=12), RELEASES)
def test_rows_put_in_bulk_come_out_as_from_the_log(actions: list[Action], release: str | None) -> None:
    assert derived(actions, [], release) == derived(actions, [Unconcerned()], release)


@settings(deadline=None)
@given(st.lists(st.none() | MESSAGES | MESSAGES | MESSAGES | BATCHES, max_size=40), RELEASES)
def test_the_files_are_those_of_dispatch_from_the_log(actions: list[Action], release: str | None) -> None:
    assert derived(actions, [], release) == derived(actions, [Unconcerned()], release)


def test_many_at_once_and_then_few_again() -> None:
    many = [Message("a", b"x", tags="T", keys=f"k{number}") for number in range(COUNT_MAX + 50)]
    few = [Message("b", b"x", keys=f"k{number}") for number in range(5)]
    actions: list[Action] = [*few, None, *many, None, *few, None, None, *few]
    assert derived(actions, []) == derived(actions, [Unconcerned()])


def opened(disk: MemoryDisk) -> Store:
    return open_store(ROOT, CONFIG, clock=ManualClock(), filesystem=disk, workers=False)


def engine_on(disk: MemoryDisk) -> Engine:
    """The parts of such a store alone, for tests that stand in their way."""
    return Engine(ROOT, CONFIG, ManualClock(), disk, threads=False)


def test_single_puts_are_not_read_back() -> None:
    engine = engine_on(MemoryDisk())
    engine.log.read = None  # type: ignore[assignment,method-assign]
    for number in range(3):
        assert engine.put(Message("a", b"x", tags="T", keys=f"k{number}")).is_stored
        engine.dispatch.step()
    assert engine.parts.queues.bounds("a", 0) == (0, 3)


def test_after_a_batch_the_log_is_read_and_then_no_longer() -> None:
    engine = engine_on(MemoryDisk())
    engine.put_batch([Message("a", b"1"), Message("a", b"2")])
    engine.put(Message("a", b"3"))
    engine.dispatch.step()
    assert engine.parts.queues.bounds("a", 0) == (0, 3)
    engine.log.read = None  # type: ignore[assignment,method-assign]
    engine.put(Message("a", b"4"))
    engine.dispatch.step()
    assert engine.parts.queues.bounds("a", 0) == (0, 4)


def test_a_failed_step_is_made_up_for_from_the_log() -> None:
    """The first try takes the records and fails: the rest is done from the log, and nothing twice."""
    engine = engine_on(MemoryDisk())
    for number in range(3):
        engine.put(Message("a", b"x", queue_id=number, keys=f"k{number}"))
    queues, index = engine.parts.queues, engine.parts.index
    assert index is not None
    put, index.put = index.put, None  # type: ignore[assignment,method-assign]
    try:
        engine.dispatch.step()
        raise AssertionError("the index is broken")
    except TypeError:
        index.put = put  # type: ignore[method-assign]
    assert engine.dispatch.position == 0
    engine.dispatch.step()
    assert sorted(queues.next_offsets()) == [("a", 0), ("a", 1), ("a", 2)]
    assert [queues.bounds("a", number) for number in range(3)] == [(0, 1)] * 3
    assert [len(engine.fetch.query("a", f"k{number}")) for number in range(3)] == [1, 1, 1]


def test_what_is_not_at_the_position_is_not_given() -> None:
    records = RecentPuts()
    assert records.take(0, 100) == []


def table(count: int) -> pa.RecordBatch:
    keys = [f"k{number}" for number in range(count)]
    return pa.record_batch({"topic": ["a"] * count, "body": [b"x"] * count, "tags": ["T"] * count, "keys": keys,
        "properties": pa.array([[("WAIT", "true")]] * count, pa.map_(pa.string(), pa.string()))})  # fmt: skip


def test_rows_put_in_bulk_are_not_read_back() -> None:
    engine = engine_on(MemoryDisk())
    read, sizes = engine.log.read, []

    def counted(offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(offset, size)

    engine.log.read = counted  # type: ignore[method-assign]
    engine.put(Message("a", b"first"))
    engine.put_columns(table(300))  # over several files
    engine.put(Message("a", b"last"))
    engine.catch_up()
    assert engine.parts.queues.bounds("a", 0) == (0, 302)
    assert len(sizes) == 2
    assert sum(sizes) < 300  # the blanks at the ends of files


def test_more_rows_than_may_be_held_are_read_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_puts, "ROWS_HELD_MAX", 350)
    actions: list[Action] = [*[table(300)] * 3, None, table(300), None, None, None, None, table(10)]
    assert derived(actions, []) == derived(actions, [Unconcerned()])
    records = RecentPuts()
    records.takes_blocks = True
    for offset in range(5):
        records.add_block(block(offset, 100))
    assert [bool(records.take(offset, 9)) for offset in range(5)] == [True, True, True, False, False]
    records.add_block(block(5, 300))
    assert records.take(5, 9)


def block(offset: int, held_count: int) -> RecentBlock:
    return RecentBlock(offset, offset + 1, 0, 1, np.zeros(1, np.int64), 0, held_count, DispatchRows)


def test_rows_that_cannot_be_had_any_more_are_read_from_the_log() -> None:
    engine = engine_on(MemoryDisk())
    engine.put_columns(table(20))
    recent = engine.appender.recent
    take = recent.take

    def gone() -> DispatchRows:
        raise Corrupt("part", 0, "gone")

    def taken(*asked: int) -> list[RecentPut] | RecentBlock:
        found = take(*asked)
        assert isinstance(found, RecentBlock)
        return found._replace(load=gone)

    recent.take = taken  # type: ignore[method-assign]
    engine.dispatch.step()
    assert engine.parts.queues.bounds("a", 0) == (0, 20)
    assert engine.fetch.query("a", "k19")


def test_the_callers_memory_is_his_own_again_after_the_put() -> None:
    """A column may lie over memory that the caller fills anew."""
    tags, keys = bytearray(b"ABC"), bytearray(b"k1k2k3")
    columns = {name: over(data) for name, data in (("tags", tags), ("keys", keys))}
    disk = MemoryDisk()
    store = opened(disk)
    store.put_columns(pa.record_batch({"topic": ["a"] * 3, "body": [b"x"] * 3, **columns}))
    tags[:], keys[:] = b"XYZ", b"111111"
    store.step()
    assert [len(store.query("a", f"k{number}")) for number in (1, 2, 3)] == [1, 1, 1]
    assert [message.tags for message in store.get("a", 0, 0, tags="B").messages] == ["B"]


def over(data: bytearray) -> pa.Array:
    """text[3] over this memory."""
    ends = np.arange(4, dtype=np.int32) * (len(data) // 3)
    return pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(ends), pa.py_buffer(data)])
