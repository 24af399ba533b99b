"""Putting messages into the commitlog: checks, encoding, the order under the put lock, waiting for the disk.

The order of operations and the statuses are RocketMQ's.

Budget of one `put` of 100 bytes on one thread, ASYNC, without workers beside it, in µs: encoding 2.1, pwrite 1.6 (the
bare call 0.9), result and message id 0.8, the caller's Message 0.6, lock, place, clocks and stamp 1.3, checks and the
rest 1.5: 8 in all.  The workers' share of the interpreter comes on top, 3 to 5.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from rmqstore.arguments import wrong_type
from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.errors import NotNow, Rejected, StoreClosed
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.message_fields import explain, with_plain_numbers
from rmqstore.formats.message_id import offset_message_id
from rmqstore.formats.names import QueueKey
from rmqstore.locks import let_go
from rmqstore.log.encode.arrow_rows import ArrowRows, as_table
from rmqstore.log.encode.batch_frame import BatchFrame, batch_of
from rmqstore.log.encode.columns import EncodedColumns, record_blocks
from rmqstore.log.encode.dispatch_rows import FreshBlock
from rmqstore.log.encode.record_frame import Frame, RecordForm, frame_of, has_plain_types
from rmqstore.log.put.commitlog import CommitLog, NoLogFile
from rmqstore.log.put.deferred_put import LatePut, LatePuts
from rmqstore.log.put.group_commit import GroupPut, Placed, Run, Waiting
from rmqstore.log.put.recent_puts import FreshRecords
from rmqstore.log.put.refusal_reasons import hook_reason, name_of, refusal_reason
from rmqstore.message import Message, PutResult, PutStatus

if TYPE_CHECKING:
    import pyarrow as pa

Answer = TypeVar("Answer")
_UNMOVED: Mapping[QueueKey, int] = {}
# Longer than this nobody holds the put lock: the clock is wrong (Java: isOSPageCacheBusy, 10,000 s).
_BUSY_MAX_S = 10_000.0
# Bytes of ready-made records that are appended in one turn of the put lock, so that other puts get theirs.
_TURN_BYTES = 8 * 1024 * 1024


class PutHook(Protocol):
    """Looks at a message before it is encoded, outside of the put lock; any thread that puts.

    One with a method `refusal_reason(message) -> str` says in words why it refused the message.
    """

    def __call__(self, message: Message) -> Message | PutStatus:
        """The message to store, which may be another, or the status of a refusal."""


class Appender:
    """The one way into a store's commitlog.  `refusal` answers why nothing may be put now, None when it may, and raises
    StoreClosed where the store is another process's; `appended` is called after every append.
    `fresh` holds what was put last, for who dispatches it.  `admit`, where set, is asked before messages come in bulk
    whether they may go to these queues, and why not.

    An exception at any line of a put (Ctrl-C, say) leaves the message stored as a whole or not at all, and the next
    puts as they were; see `CommitLog.append`.
    """

    admit: Callable[[Sequence[QueueKey]], PutStatus | None] | None = None
    # Where set, they say in words why a queue takes no messages ("": it does), and why the store takes none.
    why_not_admitted: Callable[[str, int], str] = staticmethod(lambda _topic, _queue_id: "")
    why_unavailable: Callable[[], str] = staticmethod(lambda: "")

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        clock: Clock,
        refusal: Callable[[], PutStatus | None],
        appended: Callable[[], None],
        hooks: Sequence[PutHook] = (),
    ) -> None:
        self._log = log
        self._clock = clock
        self._refusal = refusal
        self._appended = appended
        self._hooks = tuple(hooks)
        self.fresh = FreshRecords()
        self.form = record_form(config)
        self._level_count = len(config.delay_ms())
        self._group = GroupPut(self._append_all, self._synced, config.sync_flush_timeout_ms / 1000)
        self._is_sync = config.flush == "SYNC"
        self._timeout_s = config.sync_flush_timeout_ms / 1000
        self._unconfirmed = f"the sync was not confirmed within {config.sync_flush_timeout_ms} ms"
        self._busy_s = config.busy_timeout_ms / 1000
        self.use_kinds(PLAIN_ONLY)

    def use_kinds(self, kinds: QueueKinds) -> None:
        """Says which kinds of queues messages may go to; before the first put."""
        self._late = LatePuts(self._log.next_offsets, kinds, self.form)
        self._may_be_light = kinds.multi_dispatch

    def put(self, message: Message) -> PutResult:
        """Appends one message.  Raises DurabilityLost; everything else is a status."""
        refused = self._refused()
        if refused is not None:
            return self._refusal_of(refused)
        try:
            if not has_plain_types(message):
                message = with_plain_numbers(message)
            if self._hooks:
                answer = self._hooked(message)
                if isinstance(answer, PutResult):
                    return answer
                message = answer
            if (message.sys_flag & sys_flag.INNER_BATCH or properties.INNER_COUNT in message.properties) and (
                self._late.refuses(message)
            ):
                return self._refusal_of(PutStatus.MESSAGE_ILLEGAL, message)
            return self._put(message, self._is_sync and waits_for_disk(message))
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
            late = self._late.put_of(message, self._clock.now_ms())
            if late is not None:
                return self._put_late(late, message)
        frame = frame_of(message, self.form, self._clock.now_ms())
        if isinstance(frame, PutStatus):
            return self._refusal_of(frame, message)
        count = 1 if frame.is_counted else 0
        if waits and self._is_sync:
            placed, status = self._append_and_sync(frame, count)
        else:
            placed, status = self._append(frame, count), PutStatus.PUT_OK
        if isinstance(placed, PutStatus):
            return self._refusal_of(placed, message)
        offset, queue_offset, store_ms = placed
        msg_id = offset_message_id(self.form.store_host, offset)
        if status is not PutStatus.PUT_OK:
            return PutResult(status, offset, len(frame.data), msg_id, store_ms, queue_offset, 1, self._unconfirmed)
        return PutResult(status, offset, len(frame.data), msg_id, store_ms, queue_offset, 1)

    def put_batch(self, messages: Sequence[Message]) -> PutResult:
        """Appends several messages of one queue one behind the other in one file.  Raises DurabilityLost, Rejected."""
        refused = self._refused()
        if refused is not None:
            return self._refusal_of(refused)
        try:
            chosen = []
            for message in messages:
                answer = self._hooked(message if has_plain_types(message) else with_plain_numbers(message))
                if isinstance(answer, PutResult):
                    return answer
                chosen.append(answer)
            return self._put_batch(chosen)
        except BaseException as error:
            self._let_go()
            explain(error, messages)
            raise

    def _put_batch(self, chosen: Sequence[Message]) -> PutResult:
        late = self._late.batch_put_of(chosen, self._clock.now_ms())
        if late is not None:
            return self._put_late(late, *chosen)
        frame = batch_of(chosen, self.form, self._clock.now_ms())
        if isinstance(frame, PutStatus):
            return self._refusal_of(frame, *chosen)
        if self._is_sync and any(map(waits_for_disk, chosen)):
            placed, status = self._append_and_sync(frame, frame.count)
        else:
            placed, status = self._append(frame, frame.count), PutStatus.PUT_OK
        if isinstance(placed, PutStatus):
            return self._refusal_of(placed, *chosen)
        offset, queue_offset, store_ms = placed
        ids = ",".join(offset_message_id(self.form.store_host, offset + start) for start in frame.starts)
        reason = "" if status is PutStatus.PUT_OK else self._unconfirmed
        return PutResult(status, offset, len(frame.data), ids, store_ms, queue_offset, frame.count, reason)

    def put_columns(self, rows: ArrowRows, amounts: MutableMapping[str, tuple[int, int]] | None = None) -> PutResult:
        """Appends the rows of an Arrow table, or what `as_table` makes one of, in their order, as
        `columns.record_columns` takes them.

        Hooks are not asked.  The answer counts what was stored: with a status other than PUT_OK and FLUSH_DISK_TIMEOUT
        only the rows before the refusal.  `amounts`, where given, gets by topic how many those are, and their bytes.
        Raises Rejected for columns or values that make no messages (nothing is stored then), DurabilityLost.
        """
        refused = self._refused()
        if refused is not None:
            return self._refusal_of(refused)
        table = as_table(rows)
        self._late.check_columns(table)
        try:
            return self._put_columns(table, amounts)
        except BaseException:
            self._let_go()
            raise

    def _put_columns(
        self, table: "pa.Table | pa.RecordBatch", amounts: MutableMapping[str, tuple[int, int]] | None
    ) -> PutResult:
        count = size = 0
        offset, store_ms, status = -1, 0, PutStatus.PUT_OK
        block: EncodedColumns | None = None
        for block in record_blocks(table, self.form, self._clock.now_ms(), level_count=self._level_count):
            done = 0
            if self.admit is not None:
                status = self.admit(block.queues) or PutStatus.PUT_OK
            while done < block.count and status is PutStatus.PUT_OK:
                placed = self._append_rows(block, done, block.count)
                if isinstance(placed, PutStatus):
                    status = placed
                    break
                place, last, store_ms, row_bytes = placed
                if amounts is not None:
                    _add_amounts(amounts, block.amounts(done, last))
                offset = place if offset < 0 else offset
                count, size, done = count + last - done, size + row_bytes, last
            if status is not PutStatus.PUT_OK:
                break
        if count:
            is_settled = not self._is_sync or self._log.sync_to(self._log.marks.appended, self._timeout_s)
            if status is PutStatus.PUT_OK and not is_settled:
                status = PutStatus.FLUSH_DISK_TIMEOUT
        return PutResult(status, offset, size, "", store_ms, -1, count, self._columns_reason(status, block))

    def _columns_reason(self, status: PutStatus, block: EncodedColumns | None) -> str:
        """Why a table of which `block` came last was answered so."""
        if status is PutStatus.FLUSH_DISK_TIMEOUT:
            return self._unconfirmed
        if status is PutStatus.PUT_OK:
            return ""
        places = block.queues if block is not None else ()
        found = next(filter(None, (self.why_not_admitted(*place) for place in places)), "")
        return found or self._refusal_of(status).reason

    def put_records(self, records: EncodedColumns, first: int = 0, last: int | None = None) -> PutResult:
        """Appends ready-made records [first, last) past the hooks, without a wait for the disk; the answer counts those
        stored.  Raises DurabilityLost.
        """
        refused, done, end = self._refused(), first, records.count if last is None else last
        try:
            while refused is None and done < end:
                placed = self._append_rows(records, done, end)
                if isinstance(placed, PutStatus):
                    refused = placed
                else:
                    done = placed[1]
        except BaseException:
            self._let_go()
            raise
        return PutResult(refused or PutStatus.PUT_OK, message_count=done - first)

    def forget_topic(self, topic: str, note: Callable[[int], None] = lambda _: None) -> int:
        """The queues of a topic begin anew; where the log ends at that moment, which `note` is told first: nothing
        changes if it raises.
        """
        with self._log.lock:
            note(self._log.marks.appended)
            self._log.forget_topic(topic)
            self.fresh.forget()  # old and new numbers of the topic must not come in one run
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
        return self._refusal()

    def _let_go(self) -> None:
        """See CommitLog.let_go."""
        let_go((self._group.lock,))
        self._log.let_go()

    def _closed(self, closed: StoreClosed) -> PutStatus:
        """The status of a put that found the store closed when its turn came.  Raises StoreClosed as `refusal`."""
        refused = self._refusal()
        if refused is None:
            raise closed
        return refused

    def _hooked(self, message: Message) -> Message | PutResult:
        """What the hooks make of a message, one after the other, or the refusal of one of them."""
        for hook in self._hooks:
            answer = hook(message)
            if type(answer) is Message:
                message = answer
                continue
            if isinstance(answer, PutStatus):
                reason = hook_reason(hook, message)
                if not reason and answer is PutStatus.SERVICE_NOT_AVAILABLE:
                    reason = self.why_unavailable()
                return PutResult(answer, reason=reason or f"refused by the hook {name_of(hook)}")
            if not isinstance(answer, Message):
                raise wrong_type(f"the answer of the hook {name_of(hook)}", answer, "a rmqstore.Message or a PutStatus")
            message = answer
        return message

    def _refusal_of(self, status: PutStatus, *messages: Message) -> PutResult:
        """The answer to a put of which nothing is stored."""
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            return PutResult(status, reason=self.why_unavailable())
        return PutResult(status, reason=refusal_reason(status, messages, self.form, self._log.files.file_size))

    def _append_and_sync(self, frame: Frame | BatchFrame, count: int) -> tuple[Placed | PutStatus, PutStatus]:
        """Where the frame was appended, or why not, and what became of its sync.  Raises DurabilityLost."""
        try:
            placed, is_synced = self._group.put(frame, count)
        except StoreClosed as closed:
            return self._closed(closed), PutStatus.PUT_OK
        return placed, PutStatus.PUT_OK if is_synced else PutStatus.FLUSH_DISK_TIMEOUT

    def _synced(self) -> bool:
        """Whether all that is appended by now is on the disk; False at the timeout.  Raises DurabilityLost."""
        return self._log.sync_to(self._log.marks.appended, self._timeout_s)

    def _append_all(self, group: Sequence[Waiting]) -> None:
        """Appends frames in their order, those that lie side by side in one write.  Raises DurabilityLost, and whatever
        else ends it: each frame has its own status here, and none may stand for a write that did not come about.
        """
        log = self._log
        with log.lock:
            log.begin_turn(self._clock.monotonic_s())
            try:
                run = Run(log, self._clock.now_ms())
                for waiting in group:
                    run.add(waiting)
                run.write()
                for waiting in group:
                    if isinstance(waiting.outcome, Placed):
                        self.fresh.add(*waiting.outcome, waiting.frame)
            finally:
                log.end_turn()
        self._appended()

    def _turn(self, append: Callable[[], Answer]) -> Answer | PutStatus:
        """What `append` answers, under the put lock, or why there is no place.  Raises DurabilityLost."""
        log = self._log
        with log.lock:
            log.begin_turn(self._clock.monotonic_s())
            try:
                answer = append()
            except NoLogFile:
                return PutStatus.CREATE_MAPPED_FILE_FAILED
            except Rejected:
                return PutStatus.MESSAGE_ILLEGAL
            except StoreClosed as closed:
                return self._closed(closed)
            finally:
                log.end_turn()
        self._appended()
        return answer

    def _append(self, frame: Frame | BatchFrame, count: int) -> Placed | PutStatus:
        """Where the frame was appended, or why not.  Raises DurabilityLost.

        `_turn` written out: every put goes this way, and a function made and called for it costs a put 0.16 µs.
        """
        log, key, data = self._log, (frame.topic, frame.queue_id), frame.data
        with log.lock:
            log.begin_turn(self._clock.monotonic_s())
            try:
                offset = log.place(len(data))
                store_ms = self._clock.now_ms()
                queue_offset = log.next_offsets.get(key, 0) if count else 0
                frame.stamp(queue_offset, offset, store_ms)
                log.append(offset, data, store_ms, {key: queue_offset + count} if count else _UNMOVED)
                self.fresh.add(offset, queue_offset, store_ms, frame)
            except NoLogFile:
                return PutStatus.CREATE_MAPPED_FILE_FAILED
            except Rejected:
                return PutStatus.MESSAGE_ILLEGAL
            except StoreClosed as closed:
                return self._closed(closed)
            finally:
                log.end_turn()
        self._appended()
        return Placed(offset, queue_offset, store_ms)

    def _put_late(self, late: LatePut | PutStatus, *messages: Message) -> PutResult:
        """Appends a message whose record tells queue offsets in its properties.  Raises DurabilityLost."""
        placed = late if isinstance(late, PutStatus) else self._append_late(late)
        if isinstance(placed, PutStatus):
            return self._refusal_of(placed, *messages)
        assert isinstance(late, LatePut)
        offset, queue_offset, store_ms = placed
        size, status, reason = len(late.frame.data), PutStatus.PUT_OK, ""
        waits = self._is_sync and waits_for_disk(late.message)
        if waits and not self._log.sync_to(offset + size, self._timeout_s):
            status, reason = PutStatus.FLUSH_DISK_TIMEOUT, self._unconfirmed
        msg_id = offset_message_id(self.form.store_host, offset)
        return PutResult(status, offset, size, msg_id, store_ms, queue_offset, late.message_count, reason)

    def _append_late(self, late: LatePut) -> Placed | PutStatus:
        """Where the record was appended, or why not.  Raises DurabilityLost."""
        log, key = self._log, late.key

        def append() -> Placed | PutStatus:
            queue_offset = log.next_offsets.get(key, 0) if late.is_counted else 0
            refused = late.complete(queue_offset)
            if refused is not None:
                return refused
            data = late.frame.data
            offset = log.place(len(data))
            store_ms = self._clock.now_ms()
            late.frame.frame.stamp(queue_offset, offset, store_ms)
            log.append(offset, data, store_ms, late.moved(queue_offset))
            return Placed(offset, queue_offset, store_ms)

        return self._turn(append)

    def _append_rows(self, encoded: EncodedColumns, first: int, end: int) -> tuple[int, int, int, int] | PutStatus:
        """Appends rows from `first` on, as many before `end` as go into the present file and one turn: physical offset,
        the row behind the last, store time, bytes.
        """
        log = self._log

        def append() -> tuple[int, int, int, int]:
            offset = log.place(encoded.size_of(first))
            last = min(encoded.rows_within(first, min(log.room(), _TURN_BYTES)), end)
            store_ms = self._clock.now_ms()
            bases = encoded.bases(first, last, log.next_offsets)
            data = encoded.stamp(first, last, bases, offset, store_ms)
            log.append(offset, data, store_ms, encoded.moved(first, last, log.next_offsets))
            if encoded.known is not None:
                held_count, behind = last - first if encoded.is_held else 0, offset + len(data)
                block = FreshBlock(offset, behind, first, last, bases, store_ms, held_count, encoded.known)
                self.fresh.add_block(block)
            return offset, last, store_ms, len(data)

        return self._turn(append)


def _add_amounts(totals: MutableMapping[str, tuple[int, int]], more: Mapping[str, tuple[int, int]]) -> None:
    for topic, (count, size) in more.items():
        before = totals.get(topic, (0, 0))
        totals[topic] = (before[0] + count, before[1] + size)


def waits_for_disk(message: Message) -> bool:
    """Whether a put of the message waits for the disk (Java: isWaitStoreMsgOK)."""
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
