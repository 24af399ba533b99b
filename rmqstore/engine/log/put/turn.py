"""Turns of the put lock: in one turn records get their place, time and queue offsets, are written and noted.

Whatever is put goes this way.  Of each turn the order is the same: room in the file, the time, the queue offsets, the
stamp, one write together with the next queue offsets (`CommitLog.append`), and then the note for dispatch.  All of a
group is stamped with one time, and its frames that lie side by side are one write.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rmqstore.clock import Clock
from rmqstore.core.message import PutStatus
from rmqstore.engine.log.encode.batch_frame import BatchFrame
from rmqstore.engine.log.encode.columns import EncodedColumns
from rmqstore.engine.log.encode.dispatch_rows import RecentBlock
from rmqstore.engine.log.encode.record_frame import Frame
from rmqstore.engine.log.put.commitlog import CommitLog, NoLogFile
from rmqstore.engine.log.put.deferred_put import DeferredPut
from rmqstore.engine.log.put.recent_puts import RecentPuts
from rmqstore.errors import DurabilityLost, Rejected, StoreClosed
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import QueueKey

# Bytes of ready-made records that are appended in one turn of the put lock, so that other puts get theirs.
_TURN_BYTES = 8 * 1024 * 1024
_UNMOVED: Mapping[QueueKey, int] = {}

Answer = TypeVar("Answer")
Given = TypeVar("Given")
More = TypeVar("More")
_NO_PLACE = (NoLogFile, Rejected, StoreClosed)


class Placed(NamedTuple):
    """Where and when a frame was appended."""

    offset: int
    queue_offset: int
    store_ms: int


class PlacedRows(NamedTuple):
    """Where and when rows were appended: the physical offset of the first, the row after the last, their bytes, and by
    queue what makes a rank a queue offset (`EncodedColumns.bases`)."""

    offset: int
    last: int
    store_ms: int
    size: int
    bases: Ints


Outcome = Placed | PutStatus | DurabilityLost | StoreClosed


class WaitingFrame:
    """A frame of a group, `count` messages of its queue; `outcome` is set once it is appended, or refused."""

    __slots__ = ("count", "frame", "outcome")

    def __init__(self, frame: Frame | BatchFrame, count: int) -> None:
        self.frame = frame
        self.count = count
        self.outcome: Outcome | None = None


class Turns:
    """The turns of a store's puts.  `recent` gets what dispatch need not read from the log then; `appended` is called
    after each turn; `refusal` answers why nothing can be put any more, or raises it.
    """

    def __init__(
        self, log: CommitLog, clock: Clock, recent: RecentPuts, refusal: Callable[[], PutStatus | None],
        appended: Callable[[], None],
    ) -> None:  # fmt: skip
        self._log, self._clock, self._recent = log, clock, recent
        self._refusal = refusal
        self._appended = appended

    def frame(self, frame: Frame | BatchFrame, count: int) -> Placed | PutStatus:
        """Appends a frame of `count` messages that take numbers: where, or why not.  Raises DurabilityLost,
        StoreClosed.
        """
        try:
            placed = self._taken(self._frame, frame, count)
        except _NO_PLACE as why:
            return self.refused(why)
        self._appended()
        return placed

    def deferred(self, put: DeferredPut) -> Placed | PutStatus:
        """Appends a message whose record tells queue offsets in its properties, as `frame`."""
        try:
            placed = self._taken(self._deferred, put, put.key)
        except _NO_PLACE as why:
            return self.refused(why)
        self._appended()
        return placed

    def rows(self, rows: EncodedColumns, first: int, end: int) -> PlacedRows | PutStatus:
        """Appends rows, with room for the head of an entry where the log wants it, from `first` on, as many before
        `end` as go into the present file and one turn, as `frame`."""
        try:
            placed = self._taken(self._rows, rows, (first, end))
        except _NO_PLACE as why:
            return self.refused(why)
        self._appended()
        return placed

    def group(self, group: Sequence[WaitingFrame]) -> None:
        """Appends frames in their order, those that lie side by side in one write, and sets each `outcome`.

        Raises DurabilityLost, and whatever else ends it: each frame has its own status here, and none may stand for a
        write that did not come about.
        """
        self._taken(self._group, group, None)
        self._appended()

    def _taken(self, append: Callable[[Given, More], Answer], given: Given, more: More) -> Answer:
        """The answer of `append`, called in a turn.  Of fixed arity: by `*given` a put took 0.2 µs longer."""
        log = self._log
        with log.lock:
            log.begin_turn(self._clock.monotonic_s())
            try:
                return append(given, more)
            finally:
                log.end_turn()

    def refused(self, why: NoLogFile | Rejected | StoreClosed) -> PutStatus:
        """The status of a put that found no place when its turn came.  Raises StoreClosed as `refusal`."""
        if not isinstance(why, StoreClosed):
            return _status_of(why)
        refused = self._refusal()
        if refused is None:
            raise why
        return refused

    def _frame(self, frame: Frame | BatchFrame, count: int) -> Placed:
        log, key = self._log, (frame.topic, frame.queue_id)
        data: bytes | bytearray = frame.data
        offset = log.place(len(data) + log.gap * frame.record_count)
        store_ms = self._clock.now_ms()
        queue_offset = log.next_offsets.get(key, 0) if count else 0
        frame.stamp(queue_offset, offset, store_ms)
        if log.wrapper is not None:
            data = log.wrapper.wrap(offset, frame.records)
        log.append(offset, data, store_ms, {key: queue_offset + count} if count else _UNMOVED)
        self._recent.add(offset, queue_offset, store_ms, frame)
        return Placed(offset, queue_offset, store_ms)

    def _deferred(self, put: DeferredPut, key: QueueKey) -> Placed | PutStatus:
        log = self._log
        queue_offset = log.next_offsets.get(key, 0) if put.is_counted else 0
        refused = put.complete(queue_offset)
        if refused is not None:
            return refused
        data: bytes | bytearray = put.frame.data
        offset = log.place(len(data) + log.gap)
        store_ms = self._clock.now_ms()
        put.frame.frame.stamp(queue_offset, offset, store_ms)
        if log.wrapper is not None:
            data = log.wrapper.wrap(offset, (data,))
        log.append(offset, data, store_ms, put.moved(queue_offset))
        return Placed(offset, queue_offset, store_ms)

    def _rows(self, rows: EncodedColumns, wanted: tuple[int, int]) -> PlacedRows:
        log, (first, end) = self._log, wanted
        offset = log.place(rows.size_of(first))
        last = min(rows.rows_within(first, min(log.room(), _TURN_BYTES)), end)
        store_ms = self._clock.now_ms()
        bases = rows.bases(first, last, log.next_offsets)
        data = rows.stamp(first, last, bases, offset, store_ms)
        if log.wrapper is not None:
            log.wrapper.fill_heads(offset, rows.data, rows.starts[first : last + 1])
        log.append(offset, data, store_ms, rows.moved(first, last, log.next_offsets))
        if rows.dispatch_rows is not None:
            held_count = last - first if rows.is_held else 0
            block = RecentBlock(
                offset, offset - log.gap + len(data), first, last, bases, store_ms, held_count, rows.dispatch_rows
            )
            self._recent.add_block(block)
        return PlacedRows(offset, last, store_ms, len(data) - log.gap * (last - first), bases)

    def _group(self, group: Sequence[WaitingFrame], _: None) -> None:
        run = _Run(self._log, self._clock.now_ms())
        for waiting in group:
            run.add(waiting)
        run.write()
        for waiting in group:
            if isinstance(waiting.outcome, Placed):
                self._recent.add(*waiting.outcome, waiting.frame)


class _Run:
    """Frames that go into the log side by side, in one write; in a turn, which lasts all the time.

    A frame gets its `outcome` only when it is in the log.
    """

    def __init__(self, log: CommitLog, store_ms: int) -> None:
        self._log = log
        self._store_ms = store_ms
        self._parts: list[bytearray] = []
        self._placed: list[tuple[WaitingFrame, Placed]] = []
        self._start = self._end = self._limit = 0
        self._moved: dict[QueueKey, int] = {}

    def add(self, waiting: WaitingFrame) -> None:
        """Gives the frame its place, or why it has none.  Raises DurabilityLost."""
        frame, count = waiting.frame, waiting.count
        gap, key = self._log.gap, (frame.topic, frame.queue_id)
        size = len(frame.data) + gap * frame.record_count
        if self._end + size > self._limit:
            self.write()
            try:
                self._start = self._end = self._log.place(size) - gap
            except _NO_PLACE as why:
                waiting.outcome = why if isinstance(why, StoreClosed) else _status_of(why)
                return
            self._limit = self._end + self._log.room()
        offset, queue_offset = self._end + gap, 0
        if count:
            queue_offset = self._moved.get(key, -1)
            if queue_offset < 0:
                queue_offset = self._log.next_offsets.get(key, 0)
            self._moved[key] = queue_offset + count
        frame.stamp(queue_offset, offset, self._store_ms)
        self._parts += frame.records
        self._placed.append((waiting, Placed(offset, queue_offset, self._store_ms)))
        self._end += size

    def write(self) -> None:
        """Writes what was added since the last write.  Raises DurabilityLost."""
        if self._parts:
            wrapper, place = self._log.wrapper, self._start + self._log.gap
            if wrapper is not None:
                data: bytes | bytearray = wrapper.wrap(place, self._parts)
            else:
                data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            try:
                self._log.append(place, data, self._store_ms, self._moved)
            finally:
                if self._log.marks.appended == self._end:  # also where an interrupt came too late
                    for waiting, placed in self._placed:
                        waiting.outcome = placed
        self._parts, self._placed, self._moved, self._limit = [], [], {}, 0


def _status_of(why: NoLogFile | Rejected) -> PutStatus:
    return PutStatus.CREATE_MAPPED_FILE_FAILED if isinstance(why, NoLogFile) else PutStatus.MESSAGE_ILLEGAL
