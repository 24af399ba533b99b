"""The reader of one or several store directories that somebody else may be writing.

What answers a question of its own is imported when that is asked: a process of Spark's that plans has no use for it.
"""
# ruff: noqa: PLC0415

import time
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from rmqstore.core import arguments
from rmqstore.core.annotations import checked
from rmqstore.directory import config_files
from rmqstore.directory.log_place import corrupt_at
from rmqstore.errors import NO_RECORD_BEGINS, Corrupt, DataLost, NoRecord, Rejected, UnknownTopic
from rmqstore.files.disk import tells_of_failure
from rmqstore.formats.message_columns import locate
from rmqstore.formats.message_id import offset_of_id, parse_offset_message_id
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.records.soundness import TEXT, Reason, judge_place, mark
from rmqstore.snapshot.columns import near_names, resolve_columns, schema_of
from rmqstore.snapshot.lookup import by_time
from rmqstore.snapshot.plan.selection import (
    EARLIEST,
    LATEST,
    Bounds,
    Wanted,
    WantedTime,
    in_bounds,
    resolved_start,
    selected_queues,
)
from rmqstore.snapshot.plan.splitting import plan_splits
from rmqstore.snapshot.request import (
    BATCH_BYTES,
    BATCH_ROWS,
    BODY_BYTES_MAX,
    Access,
    AnyOf,
    OnCorruptRecord,
    QueueRange,
    ScanMode,
    ScanRequest,
    SplitBudget,
    TableName,
    VerifyCrc,
    wanted_keys,
    wanted_tags,
)
from rmqstore.snapshot.split import Split
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

# --- Damage that no scan of the queues would come across.


def refuse_unreachable_damage(store: StoreExtent, ranges: Sequence[QueueRange]) -> None:
    """Raises Corrupt for damaged records that were not dispatched and may be of these ranges."""
    topics = {span.topic for span in ranges if _may_meet_the_end(store, span)}
    known = {topic for topic, _ in store.queues}
    for damage in store.damage if topics else ():
        is_unreached = damage.offset >= store.walk_from or not damage.is_reached
        # A topic that no queue has is what the damage made of a name.
        if is_unreached and (damage.topic not in known or damage.topic in topics):
            raise Corrupt(damage.path, damage.position, damage.reason)


def _may_meet_the_end(store: StoreExtent, span: QueueRange) -> bool:
    """Whether what is damaged past the entries may be of a range: it reads something, or all that the queue has."""
    return span.start < span.end or span.end >= store.queues[span.topic, span.queue_id].max_offset


# ---

MissingTime = Literal["error", "latest"]

# Bodies of one answer by key, decompressed: what RocketMQ lets one pull bring (MAX_PULL_MSG_SIZE).
QUERY_BYTES_MAX = 128 * 1024 * 1024


class SnapshotReader:
    """Messages, queues and offsets of stores as they were in one look.

    Holds no files open between calls.  Any thread.
    """

    def __init__(self, stores: tuple[StoreExtent, ...], access: Access) -> None:
        self.stores = stores
        self._access = access

    def __repr__(self) -> str:
        """One line: paths, and how many queues and messages."""
        queues = [queue for store in self.stores for queue in store.queues.values()]
        count = sum(queue.max_offset - queue.min_offset for queue in queues)
        paths = ", ".join(repr(store.path) for store in self.stores)
        return f"<{type(self).__name__} {paths}, {len(queues)} queues, {count} messages>"

    def overview(self) -> pa.Table:
        """One row a topic and broker, the largest first: queues, messages, oldestTimestamp and newestTimestamp."""
        from rmqstore.snapshot.tables import tables

        return tables.by_topic(self.table("queues"))

    def queues(self) -> pa.Table:
        """One row a queue: topic, brokerName, queueId int32, minOffset int64, maxOffset int64, queueType."""
        rows = [(store.broker_name, queue) for store in self.stores for queue in store.queues.values()]
        return pa.table(
            {
                "topic": pa.array([queue.files.topic for _, queue in rows], pa.string()),
                "brokerName": pa.array([name for name, _ in rows], pa.string()),
                "queueId": pa.array([queue.files.queue_id for _, queue in rows], pa.int32()),
                "minOffset": pa.array([queue.min_offset for _, queue in rows], pa.int64()),
                "maxOffset": pa.array([queue.max_offset for _, queue in rows], pa.int64()),
                "queueType": pa.array([queue.files.kind for _, queue in rows], pa.string()),
            }
        )

    def table(self, name: TableName, columns: Sequence[str] | str | None = None, now_ms: int | None = None) -> pa.Table:
        """A table beside the messages: queues, topics, groups, files, transactions or delayed; see tables.SCHEMAS.

        `now_ms` says when a delayed message is due, by default the clock.  Raises Rejected, UnknownColumn, and
        StoreChanging where files went since the snapshot was opened.
        """
        from rmqstore.snapshot.tables import tables

        due_ms = int(time.time() * 1000) if now_ms is None else arguments.milliseconds("now_ms", now_ms)
        return tables.make_table(self.stores, name, columns, self._access, due_ms)

    def topics(self) -> pa.Table:
        """One row a topic and broker, from config/topics.json: queue numbers, perm, attributes."""
        rows = [
            (s.broker_name, name, config)
            for s in self.stores
            for name, config in config_files.topics(s.disk, s.path).items()
        ]
        return pa.table(
            {
                "topic": pa.array([name for _, name, _ in rows], pa.string()),
                "brokerName": pa.array([broker for broker, _, _ in rows], pa.string()),
                "readQueueNums": pa.array([config.read_queue_nums for _, _, config in rows], pa.int32()),
                "writeQueueNums": pa.array([config.write_queue_nums for _, _, config in rows], pa.int32()),
                "perm": pa.array([config.perm for _, _, config in rows], pa.int32()),
                "order": pa.array([config.order for _, _, config in rows], pa.bool_()),
                "attributes": pa.array(
                    [list(config.attributes.items()) for _, _, config in rows], pa.map_(pa.string(), pa.string())
                ),
            }
        )

    def consumer_offsets(self) -> pa.Table:
        """One row a group, topic and queue, from config/: the next offset that the group consumes."""
        rows = [
            (group, topic, store.broker_name, queue_id, offset)
            for store in self.stores
            for (group, topic), offsets in config_files.consumer_offsets(store.disk, store.path).items()
            for queue_id, offset in offsets.items()
        ]
        kinds = {"group": pa.string(), "topic": pa.string(), "brokerName": pa.string()}
        kinds |= {"queueId": pa.int32(), "offset": pa.int64()}
        return pa.table(
            {name: pa.array([row[n] for row in rows], kind) for n, (name, kind) in enumerate(kinds.items())}
        )

    @checked
    def select(
        self,
        topics: Sequence[str] | None = None,
        pattern: str | None = None,
        assign: Mapping[str, Any] | None = None,
        *,
        start: Wanted | None = "earliest",
        end: Wanted | None = "latest",
        start_time: WantedTime | None = None,
        end_time: WantedTime | None = None,
        include_system_topics: bool = False,
        fail_on_data_loss: bool = True,
        missing_time: MissingTime = "error",
    ) -> tuple[QueueRange, ...]:
        """The ranges of queue offsets that a user means; half-open, one a queue, in order of store, topic and queue id.

        `start` and `end` take the shapes of selection.Bounds, `start` also "group:NAME".  `start_time` and `end_time`
        win where they name a queue: from the first message stored at or after the one, up to before the first stored at
        or after the other. `missing_time` says what a start after the newest message is: an "error", or "latest".
        Raises UnknownTopic, Rejected (for times that must be seconds, too), DataLost.
        """
        arguments.require_ms([start_time, end_time])
        chosen = selected_queues(self.stores, topics, pattern, assign, include_system_topics)
        places = [(store.broker_name, *queue.key) for store, queue in chosen]
        start = resolved_start(start, self.stores, chosen)
        starts, ends = Bounds(start, "start", places), Bounds(end, "end", places)
        start_times = Bounds(start_time, "start_time", places, are_times=True)
        end_times = Bounds(end_time, "end_time", places, are_times=True)
        ranges = []
        for (store, queue), place in zip(chosen, places, strict=True):
            since_ms = start_times.of(place)
            low = _resolve(store, queue, starts.of(place), since_ms, EARLIEST)
            high = _resolve(store, queue, ends.of(place), end_times.of(place), LATEST)
            if low == queue.max_offset and since_ms is not None and missing_time == "error":
                _require_later(queue, since_ms)
            ranges.append(in_bounds(store, queue, low, high, fail_on_data_loss))
        return tuple(ranges)

    def plan(self, ranges: Sequence[QueueRange], request: ScanRequest, budget: SplitBudget) -> list[Split]:
        """Units of work for the ranges.  Raises Corrupt for damage that no queue entry leads to, unless the request
        skips it.
        """
        splits: list[Split] = []
        for store in self.stores:
            own = [span for span in ranges if span.broker == store.broker_name]
            if request.on_corrupt_record == "fail":
                refuse_unreachable_damage(store, own)
            splits += plan_splits(store, _pruned(store, own, request), request, budget)
        return splits

    @checked
    def scan(
        self,
        topics: Sequence[str] | None = None,
        *,
        columns: Sequence[str] | str | None = None,
        pattern: str | None = None,
        assign: Mapping[str, Any] | None = None,
        start: Wanted | None = "earliest",
        end: Wanted | None = "latest",
        start_time: WantedTime | None = None,
        end_time: WantedTime | None = None,
        include_system_topics: bool = False,
        tags: AnyOf = (),
        keys: AnyOf = (),
        scan_mode: ScanMode = "auto",
        on_corrupt_record: OnCorruptRecord = "fail",
        fail_on_data_loss: bool = True,
        verify_crc: VerifyCrc = "auto",
        missing_time: MissingTime = "error",
        decompress: bool = True,
        body_bytes_max: int = BODY_BYTES_MAX,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        access: Access | None = None,
    ) -> pa.RecordBatchReader:
        """The messages as an Arrow stream, made as it is read.

        `topics` to `include_system_topics` as in `select`, `tags` to `batch_bytes` as in ScanRequest; `access` None is
        that of the snapshot.  Raises at once as `select` and `plan`; as `read_split` while the stream is read.
        """
        request = ScanRequest(
            columns=resolve_columns(columns), tags=wanted_tags(tags), keys=wanted_keys(keys), scan_mode=scan_mode,
            on_corrupt_record=on_corrupt_record, fail_on_data_loss=fail_on_data_loss, verify_crc=verify_crc,
            decompress=decompress, body_bytes_max=body_bytes_max, batch_rows=batch_rows, batch_bytes=batch_bytes,
            access=self._access if access is None else access,
        )  # fmt: skip
        ranges = self.select(
            topics, pattern, assign, start=start, end=end, start_time=start_time, end_time=end_time,
            include_system_topics=include_system_topics, fail_on_data_loss=request.fail_on_data_loss,
            missing_time=missing_time,
        )  # fmt: skip
        from rmqstore.snapshot.scan.split_reader import read_split

        splits = self.plan(ranges, request, SplitBudget())
        batches = (batch for split in splits for batch in read_split(split, request))
        return pa.RecordBatchReader.from_batches(schema_of(request.columns), batches)

    @checked
    def message_at(self, place: int | str, broker: str | None = None) -> StoredMessage:
        """The message whose record begins at an offset of the commitlog, or that has an offset message id; an inner
        batch comes as it is stored.  An id is looked for in all stores where no broker is named.

        Raises DataLost where no record begins, or one of another id; Corrupt; Rejected for text that is no such id.
        """
        if isinstance(place, str):
            return self._message_with_id(place, broker)
        store = self._store(broker)
        message = self._record_at(store, arguments.integer("physical_offset", place))
        return _sound(store, message)

    def _message_with_id(self, text: str, broker: str | None) -> StoredMessage:
        try:
            offset = parse_offset_message_id(text)[1]
        except ValueError as error:
            raise Rejected(f"{error}; a unique key is found by `query`") from None
        stores = self.stores if broker is None else (self._store(broker),)
        for store in stores:
            message = self._record_with_id(store, offset, text)
            if message is not None:
                return _sound(store, message)
        held, path = (stores[0].log_start, stores[0].log_end), ", ".join(store.path for store in stores)
        raise DataLost("commitlog", (offset, offset + 1), held, path, f"no message with the id {text} is there")

    def _record_with_id(self, store: StoreExtent, offset: int, text: str) -> StoredMessage | None:
        """The record of an id, its body sound or not; None where there is none."""
        message = self._readable_at(store, offset)
        return message if message is not None and message.has_id(text) else None

    def _readable_at(self, store: StoreExtent, offset: int) -> StoredMessage | None:
        """The record at an offset; None where none begins.  Raises DataLost where the disk fails."""
        try:
            return self._record_at(store, offset)
        except Corrupt:
            return None
        except DataLost as lost:
            if tells_of_failure(lost.reason):
                raise
            return None

    @checked
    def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: by_time.Boundary = "lower",
        broker: str | None = None,
    ) -> int:  # fmt: skip
        """The queue offset for a store time; see by_time.offset_at."""
        timestamp_ms, store = arguments.milliseconds("timestamp_ms", timestamp_ms), self._store(broker)
        return by_time.offset_at(store, _queue_of(store, topic, queue_id), timestamp_ms, boundary)

    @checked
    def index_offsets(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = 2**63 - 1, count_max: int = 64,
        broker: str | None = None,
    ) -> list[int]:  # fmt: skip
        """Physical offsets by the hash of a key, newest first; see by_key.index_offsets."""
        from rmqstore.snapshot.lookup import by_key

        begin_ms, end_ms = arguments.milliseconds("begin_ms", begin_ms), arguments.milliseconds("end_ms", end_ms)
        return by_key.index_offsets(self._store(broker), topic, key, begin_ms, end_ms, count_max)

    @checked
    def query(
        self, topic: str, key: str, *, begin_ms: int = 0, end_ms: int = 2**63 - 1, count_max: int = 32,
        broker: str | None = None,
    ) -> list[StoredMessage]:  # fmt: skip
        """As `Snapshot.query` of one topic."""
        from rmqstore.snapshot.lookup import by_key

        store = self._store(broker)
        begin_ms, end_ms = arguments.milliseconds("begin_ms", begin_ms), arguments.milliseconds("end_ms", end_ms)
        count_max = arguments.integer("count_max", count_max, 0)
        named, place = None, offset_of_id(key)
        if place is not None and count_max:
            named = self._record_with_id(store, place, key)
            if named is not None and not (named.topic == topic and begin_ms <= named.store_timestamp_ms <= end_ms):
                named = None
        own = [] if named is None or not named.is_sound else [named]
        found, size = list[StoredMessage](), 0  # a message as often as it has the key, as RocketMQ answers
        places = by_key.query_offsets(
            store, topic, key, (begin_ms, end_ms), count_max - len(own),
            lambda offset: _has_another_key(self._readable_at(store, offset), topic, key),
        )  # fmt: skip
        for offset in places:
            if (message := self._readable_at(store, offset)) is not None and message.is_sound:
                found.append(message)
                size += len(message.body or b"")
            if size > QUERY_BYTES_MAX:
                raise Rejected(
                    f"{topic!r}, key {key!r}: more than {QUERY_BYTES_MAX} bytes of bodies; "
                    "ask for fewer with count_max, or scan with keys=, which brings them in batches"
                )
        return sorted(found + [one for one in own if one not in found], key=attrgetter("physical_offset"))

    def _store(self, broker: str | None) -> StoreExtent:
        if broker is None and len(self.stores) == 1:
            return self.stores[0]
        for store in self.stores:
            if store.broker_name == broker:
                return store
        raise Rejected(f"broker={broker!r}: name one of {', '.join(store.broker_name for store in self.stores)}")

    def _record_at(self, store: StoreExtent, offset: int) -> StoredMessage:
        """The record that begins at an offset, its body sound or not.  Raises DataLost, Corrupt."""
        with store.view(self._access) as view:
            if not store.log_start <= offset < store.log_end or view.file_number(offset) is None:
                held = (store.log_start, store.log_end)
                raise DataLost("commitlog", (offset, offset + 1), held, store.path, NO_RECORD_BEGINS)
            page, position = view.window(offset, 2**31 - 1)
            located = locate(page, np.array([position], np.int64))
            reasons = judge_place(located, np.array([offset], np.int64))
            mark(reasons, np.array([offset == store.torn_at]), Reason.NO_END)
            if reasons[0] != Reason.SOUND:
                failed = corrupt_at(view.files, offset, TEXT[Reason(int(reasons[0]))])
                raise NoRecord(*failed.args) if reasons[0] == Reason.NOT_WHOLE else failed
            size = int(located.total_size[0])
            return StoredMessage(page[position : position + size].tobytes(), 0, size, offset, store.broker_name)


def _has_another_key(message: StoredMessage | None, topic: str, key: str) -> bool:
    """Whether a record that an index leads to is another key's, with the same hash."""
    return message is not None and message.is_sound and not (message.topic == topic and message.has_key(key))


def _pruned(store: StoreExtent, ranges: Sequence[QueueRange], request: ScanRequest) -> Sequence[QueueRange]:
    if not request.keys:
        return ranges
    from rmqstore.snapshot.plan.key_pruning import prune_by_keys

    return prune_by_keys(store, ranges, request)


def _sound(store: StoreExtent, message: StoredMessage) -> StoredMessage:
    """The message itself; its body may be one that cannot be unpacked.  Raises Corrupt."""
    if not message.is_sound:
        raise corrupt_at(store.log_files, message.physical_offset, message.corrupt_reason or "")
    return message


def _queue_of(store: StoreExtent, topic: str, queue_id: int) -> QueueExtent:
    if (topic, queue_id) in store.queues:
        return store.queues[topic, queue_id]
    names = [f"{name}/{number}" for name, number in store.queues]
    raise UnknownTopic(f"{topic}/{queue_id}", store.path, near_names(f"{topic}/{queue_id}", names))


def _resolve(store: StoreExtent, queue: QueueExtent, offset: int | None, time_ms: int | None, default: int) -> int:
    if time_ms is not None:
        return by_time.offset_at(store, queue, time_ms, "lower")
    offset = default if offset is None else offset
    return {EARLIEST: queue.min_offset, LATEST: queue.max_offset}.get(offset, offset)


def _require_later(queue: QueueExtent, time_ms: int) -> None:
    if queue.max_offset > queue.min_offset:
        name, time = f"{queue.files.topic}/{queue.files.queue_id}", arguments.time_text(time_ms)
        raise Rejected(
            f"{name}: its newest message was stored before {time}; "
            "choose an earlier time, or missing_time='latest' for an empty result"
        )
