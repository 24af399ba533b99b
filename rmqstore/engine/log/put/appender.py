"""Putting messages into the commitlog: checks, encoding, a turn of the put lock, waiting for the disk.

The order of operations and the statuses are RocketMQ's (DefaultMessageStore.putMessage, putMessages).

Six ways lead in.  Which of them asks what, and what each leaves for dispatch in memory (`recent`):

| way | hooks | `admit` | records completed under the lock | `recent` | waits |
|---|---|---|---|---|---|
| `put` | yes | - | inner batches, light queues | yes, if not completed there | as the message says |
| `put_past_hooks` | - | - | inner batches, light queues | yes, if not completed there | as the message says |
| `put_batch` | yes | - | one, for a batch topic | - | if one of its messages does |
| `put_many` | yes | where hooks are not | inner batches, light queues | yes, as block or as `put` | once, if one does |
| `put_columns` | - | each block | refused (light queues) | yes, as a block | once, at its end |
| `put_records` | - | - (its callers ask) | - | yes, as a block | - |

Every way asks `Gate.refusal` first.  "waits": where the store does (flush SYNC).

Budget of one `put` of 100 bytes on one thread, ASYNC, without workers beside it, in µs: encoding 2.1, pwrite 1.6 (the
bare call 0.9), result and message id 0.8, the caller's Message 0.6, lock, place, clocks and stamp 1.3, checks and the
rest 1.5: 8 in all.  The workers' share of the interpreter comes on top, 3 to 5.
"""

from collections.abc import Callable, Collection, MutableMapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.core.locks import let_go
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.engine.log.encode.arrow_rows import ArrowRows, as_table
from rmqstore.engine.log.encode.batch_frame import BatchFrame, batch_of
from rmqstore.engine.log.encode.columns import EncodedColumns, record_blocks
from rmqstore.engine.log.encode.record_frame import Frame, RecordForm, frame_of, has_plain_types
from rmqstore.engine.log.put.commitlog import CommitLog
from rmqstore.engine.log.put.confirmation import Confirmation, ConfirmsCopies, waits_for_disk
from rmqstore.engine.log.put.deferred_put import DeferredPut, DeferredPuts
from rmqstore.engine.log.put.gate import Gate
from rmqstore.engine.log.put.group_commit import GroupPut
from rmqstore.engine.log.put.many_puts import ManyPuts, PutParts, add_amounts
from rmqstore.engine.log.put.recent_puts import RecentPuts
from rmqstore.engine.log.put.refusal_reasons import refusal_reason
from rmqstore.engine.log.put.turn import Placed, Turns
from rmqstore.errors import NotNow, StoreClosed
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.framing import WRAPPED
from rmqstore.formats.message_fields import explain, with_plain_numbers
from rmqstore.formats.message_id import offset_message_id
from rmqstore.formats.names import QueueKey

if TYPE_CHECKING:
    import pyarrow as pa

# Longer than this nobody holds the put lock: the clock is wrong (Java: isOSPageCacheBusy, 10,000 s).
_BUSY_MAX_S = 10_000.0


class AfterPut(NamedTuple):
    """Whoever is told after each turn of puts, and the slaves that a put waits for, if it does."""

    appended: Callable[[], None]
    copies: ConfirmsCopies | None = None


class Appender:
    """The one way into a store's commitlog, past its `gate`; `appended` is called after every append.

    `recent` holds what was put last, for dispatch.  An exception at any line of a put (Ctrl-C, say) leaves the message
    stored as a whole or not at all, and the next puts as they were; see `CommitLog.append`.
    """

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        clock: Clock,
        gate: Gate,
        after: AfterPut,
        kinds: QueueKinds = PLAIN_ONLY,
    ) -> None:
        self._log = log
        self._clock = clock
        self.gate = gate
        self.recent = RecentPuts(log.gap)
        self.form = record_form(config)
        self._level_count = len(config.delay_ms())
        self._turns = Turns(log, clock, self.recent, gate.refusal, after.appended)
        self._confirmation = Confirmation(
            log, is_sync=config.flush == "SYNC", timeout_ms=config.sync_flush_timeout_ms, copies=after.copies
        )
        self._is_sync, self._waits = self._confirmation.is_sync, self._confirmation.waits
        self._group = GroupPut(self._turns.group, self._confirmation.confirm_all, self._confirmation.timeout_s)
        self._busy_s = config.busy_timeout_ms / 1000
        self._deferred = DeferredPuts(log.next_offsets, kinds, self.form)
        self._may_be_light = kinds.multi_dispatch
        self._parts = PutParts(log, clock, gate, self.form, self._turns, self._confirmation, self._deferred)

    def put(self, message: Message) -> PutResult:
        """Appends one message.  Raises DurabilityLost; everything else is a status."""
        refused = self._refused()
        if refused is not None:
            return self._refusal_of(refused)
        try:
            if not has_plain_types(message):
                message = with_plain_numbers(message)
            if self.gate.hooks:
                answer = self.gate.hooked(message)
                if isinstance(answer, PutResult):
                    return answer
                message = answer
            if (message.sys_flag & sys_flag.INNER_BATCH or properties.INNER_COUNT in message.properties) and (
                self._deferred.refuses(message)
            ):
                return self._refusal_of(PutStatus.MESSAGE_ILLEGAL, message)
            return self._put(message, self._waits and waits_for_disk(message))
        except BaseException as error:
            self._let_go()
            explain(error, [message])
            raise

    def put_past_hooks(self, message: Message, *, waits: bool | None = None) -> PutResult:
        """`put` for the store's own messages: no hook is asked.  `waits`, where given, says whether it waits for the
        disk.  Raises DurabilityLost.
        """
        refused = self._refused()
        if refused is not None:
            return self._refusal_of(refused)
        try:
            return self._put(message, waits_for_disk(message) if waits is None else waits)
        except BaseException as error:
            self._let_go()
            explain(error, [message])
            raise

    def _put(self, message: Message, waits: bool) -> PutResult:
        if self._may_be_light or message.sys_flag & sys_flag.INNER_BATCH:
            deferred = self._deferred.put_of(message, self._clock.now_ms())
            if deferred is not None:
                return self._put_deferred(deferred, message)
        frame = frame_of(message, self.form, self._clock.now_ms())
        if isinstance(frame, PutStatus):
            return self._refusal_of(frame, message)
        count = 1 if frame.is_counted else 0
        if waits and self._is_sync:
            placed, status = self._append_and_confirm(frame, count)
        else:
            placed, status = self._turns.frame(frame, count), PutStatus.PUT_OK
        if isinstance(placed, PutStatus):
            return self._refusal_of(placed, message)
        offset, queue_offset, store_ms = placed
        if waits:
            status = self._confirmation.replicate(status, offset + len(frame.data))
        msg_id = offset_message_id(self.form.store_host, offset)
        if status is not PutStatus.PUT_OK:
            reason = self._confirmation.reason(status)
            return PutResult(status, offset, len(frame.data), msg_id, store_ms, queue_offset, 1, reason)
        return PutResult(status, offset, len(frame.data), msg_id, store_ms, queue_offset, 1)

    def put_batch(self, messages: Sequence[Message]) -> PutResult:
        """Appends several messages of one queue next to each other in one file.  Raises DurabilityLost, Rejected."""
        refused = self._refused()
        if refused is not None:
            return self._refusal_of(refused)
        try:
            chosen = []
            for message in messages:
                answer = self.gate.hooked(message if has_plain_types(message) else with_plain_numbers(message))
                if isinstance(answer, PutResult):
                    return answer
                chosen.append(answer)
            return self._put_batch(chosen)
        except BaseException as error:
            self._let_go()
            explain(error, messages)
            raise

    def _put_batch(self, chosen: Sequence[Message]) -> PutResult:
        deferred = self._deferred.batch_put_of(chosen, self._clock.now_ms())
        if deferred is not None:
            return self._put_deferred(deferred, *chosen)
        frame = batch_of(chosen, self.form, self._clock.now_ms())
        if isinstance(frame, PutStatus):
            return self._refusal_of(frame, *chosen)
        waits = self._waits and any(map(waits_for_disk, chosen))
        if waits and self._is_sync:
            placed, status = self._append_and_confirm(frame, frame.count)
        else:
            placed, status = self._turns.frame(frame, frame.count), PutStatus.PUT_OK
        if isinstance(placed, PutStatus):
            return self._refusal_of(placed, *chosen)
        offset, queue_offset, store_ms = placed
        if waits:
            status = self._confirmation.replicate(status, offset + len(frame.data))
        ids = ",".join(offset_message_id(self.form.store_host, place) for place in frame.places(offset))
        reason = self._confirmation.reason(status)
        return PutResult(status, offset, len(frame.data), ids, store_ms, queue_offset, frame.count, reason)

    def put_many(self, messages: Sequence[Message], *, keeps_errors: bool = False) -> ManyPuts:
        """Appends messages of any queues in their order, one answer each, as `put`; those that wait do so once.

        `keeps_errors` as in `ManyPuts`.  Raises WrongType and what a hook raises, with nothing stored, DurabilityLost.
        """
        many = ManyPuts(self._parts, messages, keeps_errors=keeps_errors)
        refused = self._refused()
        if refused is not None:
            many.refuse(self._refusal_of(refused))
            return many
        try:
            many.put()
        except BaseException:
            self._let_go()
            raise
        return many

    def put_columns(self, rows: ArrowRows, amounts: MutableMapping[str, tuple[int, int]] | None = None) -> PutResult:
        """Appends the rows of an Arrow table, or what `as_table` makes one of, in their order, as
        `columns.record_blocks` takes them.

        Hooks are not asked.  The answer counts what was stored: with a status other than PUT_OK and FLUSH_DISK_TIMEOUT
        only the rows before the refusal.  `amounts`, where given, gets by topic how many those are, and their bytes.
        Raises Rejected for columns or values that make no messages (nothing is stored then), DurabilityLost.
        """
        refused = self._refused()
        if refused is not None:
            return self._refusal_of(refused)
        table = as_table(rows)
        self._deferred.check_columns(table)
        try:
            return self._put_columns(table, amounts)
        except BaseException:
            self._let_go()
            raise

    def _put_columns(
        self, table: "pa.Table | pa.RecordBatch", amounts: MutableMapping[str, tuple[int, int]] | None
    ) -> PutResult:
        count = size = 0
        offset, queue_offset, store_ms, status = -1, -1, 0, PutStatus.PUT_OK
        block: EncodedColumns | None = None
        for block in record_blocks(table, self.form, self._clock.now_ms(), level_count=self._level_count):
            done = 0
            status = self.gate.admit(block.queues) or PutStatus.PUT_OK
            while done < block.count and status is PutStatus.PUT_OK:
                placed = self._turns.rows(block, done, block.count)
                if isinstance(placed, PutStatus):
                    status = placed
                    break
                if amounts is not None:
                    add_amounts(amounts, block.amounts(done, placed.last))
                if offset < 0:
                    offset, queue_offset = placed.offset, int(block.queue_offsets(0, 1, placed.bases)[0])
                count, size, store_ms = count + placed.last - done, size + placed.size, placed.store_ms
                done = placed.last
            if status is not PutStatus.PUT_OK:
                break
        if count and self._waits:
            end = self._log.marks.appended
            confirmed = self._confirmation.confirm(end) if self._is_sync else PutStatus.PUT_OK
            confirmed = self._confirmation.replicate(confirmed, end)
            status = confirmed if status is PutStatus.PUT_OK else status
        return PutResult(status, offset, size, "", store_ms, queue_offset, count, self._columns_reason(status, block))

    def _columns_reason(self, status: PutStatus, block: EncodedColumns | None) -> str:
        """Why a table of which `block` came last was answered so."""
        unconfirmed = self._confirmation.reason(status)
        if unconfirmed or status is PutStatus.PUT_OK:
            return unconfirmed
        places = block.queues if block is not None else ()
        found = next(filter(None, (self.gate.why_not_admitted(*place) for place in places)), "")
        return found or self._refusal_of(status).reason

    def put_records(self, records: EncodedColumns, first: int = 0, last: int | None = None) -> PutResult:
        """Appends ready-made records [first, last) past the hooks, without a wait for the disk; the answer counts those
        stored.  Raises DurabilityLost.
        """
        refused, done, end = self._refused(), first, records.count if last is None else last
        records = records.with_lead(self._log.gap)
        try:
            while refused is None and done < end:
                placed = self._turns.rows(records, done, end)
                if isinstance(placed, PutStatus):
                    refused = placed
                else:
                    done = placed.last
        except BaseException:
            self._let_go()
            raise
        return PutResult(refused or PutStatus.PUT_OK, message_count=done - first)

    @property
    def log_end(self) -> int:
        """Where the log ends; any thread."""
        return self._log.marks.appended

    def forget_topic(
        self, topic: str, note: Callable[[int], None] = lambda _: None, stay: Collection[int] = ()
    ) -> int:  # fmt: skip
        """The queues of a topic but those that `stay` begin again at 0; where the log ends at that moment, which `note`
        is told first: nothing changes if it raises.
        """
        with self._log.lock:
            note(self._log.marks.appended)
            self._log.forget_topic(topic, stay)
            self.recent.forget()  # old and new numbers of the topic must not come in one run
            return self._log.marks.appended

    def knows_topic(self, topic: str) -> bool:
        """Whether a queue of the topic has had a message, since it was forgotten."""
        with self._log.lock:
            return any(key[0] == topic for key in self._log.next_offsets)

    def next_offset(self, key: QueueKey) -> int:
        """The queue offset that the next message of a queue gets."""
        return self._log.next_offsets.get(key, 0)

    def _refused(self) -> PutStatus | None:
        """Why nothing can be put at the moment.  Raises DurabilityLost."""
        failure = self._log.marks.failure
        if failure is not None:
            raise failure
        held_since_s = self._log.held_since_s
        if held_since_s >= 0:
            if self._log.is_in_own_turn():
                raise NotNow("a signal handler cannot put in the middle of another put of its thread: put afterwards")
            if self._busy_s < self._clock.monotonic_s() - held_since_s < _BUSY_MAX_S:
                return PutStatus.OS_PAGE_CACHE_BUSY
        return self.gate.refusal()

    def _let_go(self) -> None:
        """See CommitLog.let_go."""
        let_go((self._group.lock,))
        self._log.let_go()

    def _refusal_of(self, status: PutStatus, *messages: Message) -> PutResult:
        """The answer to a put of which nothing is stored."""
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            return PutResult(status, reason=self.gate.why_unavailable())
        return PutResult(status, reason=refusal_reason(status, messages, self.form, self._log.files.file_size))

    def _append_and_confirm(self, frame: Frame | BatchFrame, count: int) -> tuple[Placed | PutStatus, PutStatus]:
        """Where the frame was appended, or why not, and whether that is confirmed.  Raises DurabilityLost."""
        try:
            return self._group.put(frame, count)
        except StoreClosed as closed:
            return self._turns.refused(closed), PutStatus.PUT_OK

    def _put_deferred(self, put: DeferredPut | PutStatus, *messages: Message) -> PutResult:
        """Appends a message whose record tells queue offsets in its properties.  Raises DurabilityLost."""
        if isinstance(put, PutStatus):
            return self._refusal_of(put, *messages)
        placed = self._turns.deferred(put)
        if isinstance(placed, PutStatus):
            return self._refusal_of(placed, *messages)
        offset, queue_offset, store_ms = placed
        size, status = len(put.frame.data), PutStatus.PUT_OK
        if self._waits and waits_for_disk(put.message):
            status = self._confirmation.confirm(offset + size) if self._is_sync else status
            status = self._confirmation.replicate(status, offset + size)
        msg_id, reason = offset_message_id(self.form.store_host, offset), self._confirmation.reason(status)
        return PutResult(status, offset, size, msg_id, store_ms, queue_offset, put.message_count, reason)


def record_form(config: StoreConfig) -> RecordForm:
    """The form that all records of a store have, by its configuration."""
    gap = 0 if config.dledger is None else WRAPPED.gap
    cluster = {properties.CLUSTER: config.cluster_name} if config.cluster_name else {}
    return RecordForm(
        config.host_bytes(),
        message_size_max=config.message_size_max,
        long_topics_as_v2=config.long_topics_as_v2,
        property_crc=config.append_property_crc,
        more_properties=properties.encode_properties(cluster),
        gap=gap,
    )
