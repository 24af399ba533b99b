"""Messages that wait for their time: those of delay levels, and timer messages of 5.x."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.core.arguments import I64_MAX
from rmqstore.directory import config_files
from rmqstore.files.disk import join, read_small
from rmqstore.formats import broker_json, names, properties
from rmqstore.formats.delay_levels import LevelTables, waits_at
from rmqstore.formats.layout import Layout
from rmqstore.snapshot.plan.range_pruning import Interval, RowConditions
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.tables.rocksdb_state import WaitingTimers, waiting_timers
from rmqstore.snapshot.tables.system_scan import Ints, int64s, messages_of_topics, property_of, whole_numbers

_Mask = npt.NDArray[np.bool_]
_COLUMNS = ("queueId", "queueOffset", "msgId", "storeTimestamp", "properties", "tagsCode", "physicalOffset")
_TIMER_DELETE = "TIMER_DEL_UNIQKEY"
_BY_COPIES = "config/timercheck does not tell which timers were delivered; those count whose message is in their topic"
_BY_LEVELS = (
    "the queues are in RocksDB, and with them when each delayed message is due: it is told here by RocketMQ's own "
    "delay levels, and the broker may have others (messageDelayLevel)"
)
_BEYOND = (
    "config/delayOffset.json says that level {level} was delivered up to offset {offset:,}, and its newest message has "
    "{newest:,}: as in RocketMQ none of them waits; look at that file"
)
# Java: TimerCheckpoint, the fields that are used here.
_TIMER_CHECK = Layout(("read_time_ms", "i8"), ("log_flush_position", "i8"), ("queue_offset", "i8"))


def delayed_rows(store: StoreExtent, access: Access, now_ms: int) -> dict[str, Any]:
    """The columns of the table `delayed`: by level those past its progress, of timers those not known as
    delivered; `isDue` compares with `now_ms`.
    """
    levels, level_ms = _of_levels(store, access)
    timers, timer_ms = _of_timers(store, access)
    messages = pa.concat_tables([levels, timers])
    deliver_ms = np.concatenate((level_ms, timer_ms))
    count, timer_count = len(levels), len(timers)
    return {
        "kind": ["level"] * count + ["timer"] * timer_count,
        "level": pc.add(levels["queueId"], 1).to_pylist() + [None] * timer_count,
        "topic": property_of(messages, properties.REAL_TOPIC),
        "queueId": whole_numbers(property_of(messages, properties.REAL_QUEUE_ID)),
        "msgId": messages["msgId"],
        "storeTimestamp": messages["storeTimestamp"],
        "deliverAt": pa.array(deliver_ms, pa.timestamp("ms", tz="UTC")),
        "isDue": pa.array(deliver_ms <= now_ms),
        "physicalOffset": messages["physicalOffset"],
    }


def _of_levels(store: StoreExtent, access: Access) -> tuple[pa.Table, Ints]:
    """Messages of the schedule topic that are not delivered yet, and when they will be, in ms."""
    progress: dict[int, int] = config_files.load(
        store.disk, store.path, "delayOffset.json", broker_json.delay_offsets, {}
    )
    messages = messages_of_topics(store, [names.SCHEDULE_TOPIC], _COLUMNS, access)
    levels = int64s(messages["queueId"], 0) + 1
    reached = np.zeros(len(levels), np.int64)
    offsets = int64s(messages["queueOffset"], 0)
    for level, offset in progress.items():
        reached[levels == level] = offset
        newest = int(offsets[levels == level].max(initial=-1))
        if offset > newest + 1 > 0:
            config_files.tell_once(f"{store.path}: {_BEYOND.format(level=level, offset=offset, newest=newest)}")
    messages = messages.filter(pa.array(offsets >= reached))
    if len(messages) and not store.has_entries:
        config_files.tell_once(f"{store.path}: {_BY_LEVELS}")
    return messages, _delivery_times(messages, config_files.readers_levels(store.disk, store.path))


def _delivery_times(messages: pa.Table, tables: LevelTables) -> Ints:
    """When messages of the schedule topic go out, in ms: as their entries say, never before they were stored.

    Entries that the recovery of RocketMQ 4.9 wrote hold the hash of TAGS instead, as it does not know the delay levels
    yet: there the level that the record names tells, by `tables`; a record that names none goes out at once.
    """
    entry_ms = int64s(messages["tagsCode"], 0)
    stored_ms = int64s(messages["storeTimestamp"], 0) // 1000
    levels = int64s(whole_numbers(property_of(messages, properties.DELAY)), 0)
    waits_ms = np.maximum(waits_at(levels, int64s(messages["physicalOffset"], 0), tables), 0)
    return np.where(entry_ms >= stored_ms, entry_ms, stored_ms + waits_ms)


def _of_timers(store: StoreExtent, access: Access) -> tuple[pa.Table, Ints]:
    """Timer messages that are not known as delivered or taken back, the newest copy of each, and their times in ms."""
    messages = messages_of_topics(store, [names.TIMER_TOPIC], _COLUMNS, access).sort_by("queueOffset")
    out_ms = int64s(whole_numbers(property_of(messages, properties.TIMER_OUT_MS), I64_MAX), -1)
    reached_ms, reached = _timer_progress(store)
    offsets = int64s(messages["queueOffset"], 0)
    waits = (out_ms >= 0) & ((out_ms >= reached_ms) | (offsets >= reached))
    in_rocksdb = waits & (offsets >= (reached if reached < I64_MAX else 0))
    if in_rocksdb.any():
        known = waiting_timers(store)
        in_rocksdb &= offsets < known.reached
        waits[in_rocksdb] = _wait_in_rocksdb(known, messages["msgId"].filter(pa.array(in_rocksdb)), out_ms[in_rocksdb])
    deleted = property_of(messages, _TIMER_DELETE)
    waits &= np.asarray(pc.is_null(deleted), bool)
    gone = pc.unique(deleted.filter(pc.is_valid(deleted)))
    waits &= ~np.asarray(pc.is_in(messages["msgId"], gone), bool)
    rows = np.flatnonzero(waits)
    ids = messages["msgId"].combine_chunks().take(pa.array(rows)).dictionary_encode()
    codes = np.asarray(ids.indices, np.int64)[::-1]
    _, newest = np.unique(codes, return_index=True)
    rows = np.sort(rows[::-1][newest])
    messages, out_ms = messages.take(pa.array(rows)), out_ms[rows]
    delivered = _without_word(store, access, messages, (offsets[rows] >= reached) | (reached == I64_MAX))
    if delivered.any() or (len(rows) and reached in (0, I64_MAX) and not in_rocksdb[rows].all()):
        config_files.tell_once(f"{store.path}: {_BY_COPIES}")
    return messages.filter(pa.array(~delivered)), out_ms[~delivered]


def _wait_in_rocksdb(known: WaitingTimers, ids: pa.ChunkedArray, out_ms: Ints) -> _Mask:
    """Which timers that RocksDB has taken in wait there: neither delivered nor taken back."""
    pairs = zip(out_ms.tolist(), ids.to_pylist(), strict=True)
    waits = (ms >= known.delivered_ms and (ms, key) in known.keys for ms, key in pairs)
    return np.fromiter(waits, bool, len(out_ms))


def _without_word(store: StoreExtent, access: Access, timers: pa.Table, unread: _Mask) -> _Mask:
    """Which of the timer messages were delivered, by their copies, though timercheck does not say so.

    `unread` are those that the timers of files did not look at.  RocksDB goes on from there, and timercheck stays: if
    one of these was delivered, none counts by timercheck.
    """
    delivered = np.zeros(len(timers), bool)
    if not unread.any():
        return delivered
    delivered[unread] = _are_delivered(store, access, timers.filter(pa.array(unread)))
    if delivered.any() and not unread.all():
        delivered = _are_delivered(store, access, timers)
    return delivered


def _are_delivered(store: StoreExtent, access: Access, timers: pa.Table) -> _Mask:
    """Whether the topic of each timer message has a copy of it: later in the log, with the same unique key and time."""
    topics = property_of(timers, properties.REAL_TOPIC)
    later = RowConditions(physical_offset=Interval(low=int(int64s(timers["physicalOffset"], 0).min())))
    wanted = [topic for topic in pc.unique(topics).to_pylist() if topic and topic != names.TIMER_TOPIC]
    copies = messages_of_topics(store, wanted, ("topic", "msgId", "properties"), access, later)
    delivered = pc.unique(_identity(copies, copies["topic"]))
    return np.asarray(pc.is_in(_identity(timers, topics), delivered, skip_nulls=True), bool)


def _identity(messages: pa.Table, topics: pa.ChunkedArray) -> pa.ChunkedArray:
    """The words that a timer message and its copy share; null for a message that is none."""
    due = property_of(messages, properties.TIMER_OUT_MS)
    return pc.binary_join_element_wise(topics, messages["msgId"], due, "\x01")


def _timer_progress(store: StoreExtent) -> tuple[int, int]:
    """Up to which time timer messages were delivered, in ms, and which queue offset is the first that was not looked
    at; (0, highest) where the broker left no word.  Where RocksDB has its timers (since 5.4) they stay as they were at
    first, 0, or as the timers of files left them.
    """
    data = read_small(store.disk, join(store.path, "config", "timercheck"), 4096, past_directories=True) or b""
    if len(data) < _TIMER_CHECK.size:
        return 0, I64_MAX
    fields = _TIMER_CHECK.read(data)
    return fields["read_time_ms"], fields["queue_offset"]
