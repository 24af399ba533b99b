"""Putting messages into the commitlog: checks, encoding, the order under the put lock, waiting for the disk.

The order of operations and the statuses are RocketMQ's (store-format: put path, statuses).

Budget of one `put` of 100 bytes on one thread, ASYNC, without workers beside it, in µs: encoding 2.1, pwrite 1.6 (the
bare call 0.9), result and message id 0.8, the caller's Message 0.6, lock, place, clocks and stamp 1.3, checks and the
rest 1.5: 8 in all.  The workers' share of the interpreter comes on top, 3 to 5.
"""

from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Protocol

from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.errors import Rejected
from rmqstore.formats import properties
from rmqstore.formats.batch_frames import BatchFrame, batch_of
from rmqstore.formats.message_id import offset_message_id
from rmqstore.formats.record_frame import Frame, RecordForm, frame_of
from rmqstore.log.columns import EncodedColumns, record_blocks
from rmqstore.log.commitlog import CommitLog, NoLogFile
from rmqstore.message import Message, PutResult, PutStatus

if TYPE_CHECKING:
    import pyarrow as pa

QueueKey = tuple[str, int]
# Longer than this nobody holds the put lock: the clock is wrong (Java: isOSPageCacheBusy, 10,000 s).
_BUSY_MAX_S = 10_000.0
_FREE = -1.0
# Bytes of ready-made records that are appended in one turn of the put lock, so that other puts get theirs.
_TURN_BYTES = 8 * 1024 * 1024


class PutHook(Protocol):
    """Looks at a message before it is encoded, outside of the put lock; any thread that puts."""

    def __call__(self, message: Message) -> Message | PutStatus:
        """The message to store, which may be another, or the status of a refusal."""


class Appender:
    """The one way into a store's commitlog.  `next_offsets` (queue → queue offset of the next message) is its own from
    here on; `refusal` answers why nothing may be put now, None when it may; `appended` is called after every append.
    """

    def __init__(
        self,
        log: CommitLog,
        next_offsets: MutableMapping[QueueKey, int],
        config: StoreConfig,
        clock: Clock,
        refusal: Callable[[], PutStatus | None],
        appended: Callable[[], None],
        hooks: Sequence[PutHook] = (),
    ) -> None:
        self._log = log
        self._next_offsets = next_offsets
        self._clock = clock
        self._refusal = refusal
        self._appended = appended
        self._hooks = tuple(hooks)
        self.form = record_form(config)
        self._is_sync = config.flush == "SYNC"
        self._timeout_s = config.sync_flush_timeout_ms / 1000
        self._busy_s = config.busy_timeout_ms / 1000
        self._held_since_s = _FREE  # when the put lock was taken

    def put(self, message: Message) -> PutResult:
        """Appends one message.  Raises DurabilityLost; everything else is a status."""
        refused = self._refused()
        if refused is not None:
            return PutResult(refused)
        if self._hooks:
            answer = self._hooked(message)
            if isinstance(answer, PutStatus):
                return PutResult(answer)
            message = answer
        frame = frame_of(message, self.form, self._clock.now_ms())
        if isinstance(frame, PutStatus):
            return PutResult(frame)
        placed = self._append(frame, 1 if frame.is_counted else 0)
        if isinstance(placed, PutStatus):
            return PutResult(placed)
        offset, queue_offset, store_ms = placed
        size = len(frame.data)
        status = self._settled(offset + size, waits_for_disk(message))
        msg_id = offset_message_id(self.form.store_host, offset)
        return PutResult(status, offset, size, msg_id, store_ms, queue_offset, 1)

    def put_batch(self, messages: Sequence[Message]) -> PutResult:
        """Appends several messages of one queue one behind the other in one file.  Raises DurabilityLost, Rejected."""
        refused = self._refused()
        if refused is not None:
            return PutResult(refused)
        chosen = []
        for message in messages:
            answer = self._hooked(message)
            if isinstance(answer, PutStatus):
                return PutResult(answer)
            chosen.append(answer)
        frame = batch_of(chosen, self.form, self._clock.now_ms())
        if isinstance(frame, PutStatus):
            return PutResult(frame)
        placed = self._append(frame, frame.count)
        if isinstance(placed, PutStatus):
            return PutResult(placed)
        offset, queue_offset, store_ms = placed
        size = len(frame.data)
        status = self._settled(offset + size, any(map(waits_for_disk, chosen)))
        ids = ",".join(offset_message_id(self.form.store_host, offset + start) for start in frame.starts)
        return PutResult(status, offset, size, ids, store_ms, queue_offset, frame.count)

    def put_columns(self, table: "pa.Table | pa.RecordBatch") -> PutResult:
        """Appends the rows of an Arrow table in their order, as `columns.record_columns` takes them.

        Hooks are not asked.  The answer counts what was stored: with a status other than PUT_OK and FLUSH_DISK_TIMEOUT
        only the rows before the refusal.  Raises Rejected for columns or values that make no messages (nothing is
        stored then), DurabilityLost.
        """
        refused = self._refused()
        if refused is not None:
            return PutResult(refused)
        count = size = 0
        offset, store_ms, status = -1, 0, PutStatus.PUT_OK
        for block in record_blocks(table, self.form, self._clock.now_ms()):
            done = 0
            while done < block.count and status is PutStatus.PUT_OK:
                placed = self._append_rows(block, done)
                if isinstance(placed, PutStatus):
                    status = placed
                    break
                place, last, store_ms, row_bytes = placed
                offset = place if offset < 0 else offset
                count, size, done = count + last - done, size + row_bytes, last
        if count:
            settled = self._settled(self._log.marks.appended, True)
            status = settled if status is PutStatus.PUT_OK else status
        return PutResult(status, offset, size, "", store_ms, -1, count)

    def next_offset(self, key: QueueKey) -> int:
        """The queue offset that the next message of a queue gets."""
        return self._next_offsets.get(key, 0)

    def _refused(self) -> PutStatus | None:
        """Why nothing can be put at the moment.  Raises DurabilityLost."""
        failure = self._log.marks.failure
        if failure is not None:
            raise failure
        held_since_s = self._held_since_s
        if held_since_s >= 0 and self._busy_s < self._clock.monotonic_s() - held_since_s < _BUSY_MAX_S:
            return PutStatus.OS_PAGE_CACHE_BUSY
        return self._refusal()

    def _hooked(self, message: Message) -> Message | PutStatus:
        """What the hooks make of a message, one after the other."""
        for hook in self._hooks:
            answer = hook(message)
            if isinstance(answer, PutStatus):
                return answer
            message = answer
        return message

    def _append(self, frame: Frame | BatchFrame, count: int) -> tuple[int, int, int] | PutStatus:
        """Physical offset, queue offset and store time under which the frame was appended."""
        log, key, data = self._log, (frame.topic, frame.queue_id), frame.data
        with log.lock:
            self._held_since_s = self._clock.monotonic_s()
            try:
                offset = log.place(len(data))
                store_ms = self._clock.now_ms()
                queue_offset = self._next_offsets.get(key, 0) if count else 0
                frame.stamp(queue_offset, offset, store_ms)
                log.write(offset, data)
                if count:
                    self._next_offsets[key] = queue_offset + count
                log.newest_ms = store_ms
            except NoLogFile:
                return PutStatus.CREATE_MAPPED_FILE_FAILED
            except Rejected:
                return PutStatus.MESSAGE_ILLEGAL
            finally:
                self._held_since_s = _FREE
        self._appended()
        return offset, queue_offset, store_ms

    def _append_rows(self, encoded: EncodedColumns, first: int) -> tuple[int, int, int, int] | PutStatus:
        """Appends rows from `first` on, as many as go into the present file and one turn: physical offset, the row
        behind the last, store time, bytes.
        """
        log = self._log
        with log.lock:
            self._held_since_s = self._clock.monotonic_s()
            try:
                offset = log.place(encoded.size_of(first))
                last = encoded.rows_within(first, min(log.room(), _TURN_BYTES))
                store_ms = self._clock.now_ms()
                data = encoded.stamp(first, last, self._next_offsets, offset, store_ms)
                log.write(offset, data)
                encoded.advance(first, last, self._next_offsets)
                log.newest_ms = store_ms
            except NoLogFile:
                return PutStatus.CREATE_MAPPED_FILE_FAILED
            except Rejected:
                return PutStatus.MESSAGE_ILLEGAL
            finally:
                self._held_since_s = _FREE
        self._appended()
        return offset, last, store_ms, len(data)

    def _settled(self, end: int, waits: bool) -> PutStatus:
        """Waits until bytes before `end` are on the disk, where the store is SYNC and the message wants it."""
        if self._is_sync and waits and not self._log.sync_to(end, self._timeout_s):
            return PutStatus.FLUSH_DISK_TIMEOUT
        return PutStatus.PUT_OK


def waits_for_disk(message: Message) -> bool:
    """Whether a put of the message waits for the disk (store-format: waitStoreMsgOK)."""
    if not message.wait_store_ok:
        return False
    wanted = message.properties.get(properties.WAIT)
    return wanted is None or wanted.lower() == "true"


def record_form(config: StoreConfig) -> RecordForm:
    """What all records of a store have in common, by its configuration."""
    cluster = {properties.CLUSTER: config.cluster_name} if config.cluster_name else {}
    return RecordForm(
        config.host_bytes(),
        message_size_max=config.message_size_max,
        long_topics_as_v2=config.long_topics_as_v2,
        property_crc=config.append_property_crc,
        more_properties=properties.encode_properties(cluster),
    )
