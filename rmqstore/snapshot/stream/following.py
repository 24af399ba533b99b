"""Stores that are followed: batches of messages as they come, each with the offsets to go on from."""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import pyarrow as pa

from rmqstore.core import arguments
from rmqstore.core.locks import Bell
from rmqstore.errors import NotAStore, Rejected
from rmqstore.files.disk import ReadableDisk
from rmqstore.snapshot.columns import schema_of
from rmqstore.snapshot.plan.selection import Wanted, WantedTime
from rmqstore.snapshot.request import Place, ScanRequest, SplitBudget
from rmqstore.snapshot.scan.split_reader import read_split
from rmqstore.snapshot.store_paths import Paths
from rmqstore.snapshot.stream.batches import Queues, Refusals, Skipped
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.snapshot.stream.lag import LostRange
from rmqstore.snapshot.stream.limits import TriggerLimits
from rmqstore.snapshot.stream.offsets import (
    BEHIND,
    FROM,
    MARKS,
    SINCE,
    Offsets,
    begins_of,
    note_in,
    offset_json,
    offsets_in,
)
from rmqstore.snapshot.stream.planner import StreamPlanner
from rmqstore.snapshot.stream.same_logs import marks_after
from rmqstore.snapshot.stream.subscription import StreamSelection

# Bytes of records that are planned at a time: enough that planning costs little, and few enough that a store which is
# cleaned meanwhile is looked at again soon.
_ROUND_BYTES = 256 * 1024 * 1024
_PLACE = ("brokerName", "topic", "queueId")
_NEEDED = (*_PLACE, "queueOffset")

log = logging.getLogger("rmqstore.follow")


class FollowedBatch(NamedTuple):
    """Messages that came, and the offsets to go on from after them: JSON, for `after` of `Snapshot.follow`.

    A batch without rows has new offsets as well: no message came that was asked for, or a queue was found shorter.
    """

    rows: pa.RecordBatch
    offsets: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for messages: `wait_s` seconds without any end it (None: never, 0: what is there now is all);
    `poll_s` seconds between two looks.  `until_ms`, which goes with 0: of each queue no more than what comes before its
    first message that was stored at that time or later."""

    wait_s: float | None = None
    poll_s: float = 0.1
    until_ms: int | None = None

    def __post_init__(self) -> None:
        if self.wait_s is not None:
            arguments.seconds("wait_s", self.wait_s)
        arguments.seconds("poll_s", self.poll_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where to begin: `after` offsets that an earlier batch came with, else as `Snapshot.select` takes start and
    start_time.

    `requires_same_logs`: with `fail_on_data_loss` off it goes on after messages that were deleted, and not in another
    log than was read, or than it began in.
    """

    start: Wanted = "latest"
    start_time: WantedTime | None = None
    after: Mapping[str, Any] | None = None
    requires_same_logs: bool = False


class Following:
    """Batches of messages from stores that may be written meanwhile: an iterator, and an asynchronous one.

    Rows of one queue come in their order, each once.  Whoever keeps the `offsets` of the last batch that it has dealt
    with goes on from there with `after`, in another process, too.  An error leaves it where it was: the next step tries
    again.  One thread, or one task, at a time; `stop` may be called by any.

    Raises, beside what opening the stores raises: DataLost where messages are gone before they were read, and OtherLog
    where a store or topic was made again, unless the request goes on; Corrupt, Rejected, UnknownTopic.
    """

    def __init__(
        self, paths: Paths, selection: StreamSelection, beginning: Beginning, request: ScanRequest,
        patience: Patience, disk: ReadableDisk,
    ) -> None:  # fmt: skip
        """Looks at the stores at once, and so raises for what does not exist."""
        self._request, self._patience = request, patience
        self._schema = schema_of(request.columns)
        self._reads = replace(request, columns=tuple(dict.fromkeys((*request.columns, *_NEEDED))))
        fails = request.fail_on_data_loss
        self._planner = StreamPlanner(
            StreamEnds(paths, request.access, disk), selection, TriggerLimits(bytes_max=_ROUND_BYTES),
            refuses=Refusals(deleted=fails, other_logs=fails or beginning.requires_same_logs),
        )  # fmt: skip
        self._bell, self._filling = Bell(), threading.Lock()
        self._ready: deque[tuple[FollowedBatch, int]] = deque()  # how many messages were gone up to its end
        self._round: Iterator[tuple[FollowedBatch, int]] | None = None
        self._skipped, self._gone_count = Skipped(), 0
        self._is_over = False
        self._gone_since_ms: int | None = None
        self._came_s = time.monotonic()
        self._offsets = self._begun(selection, beginning) if beginning.after is None else _taken_up(beginning.after)
        if patience.wait_s == 0:
            self._planner.freeze_ends(patience.until_ms)

    def _begun(self, selection: StreamSelection, beginning: Beginning) -> dict[str, Any]:
        """The offsets of a new one, with marks where they are wanted before anything is read."""
        look = self._planner.ends.look()
        options = {"fail_on_data_loss": self._request.fail_on_data_loss, "missing_time": "latest"}
        offsets = selection.start(look, beginning.start, beginning.start_time, **options)
        if not beginning.requires_same_logs:
            return offset_json(offsets)
        return offset_json(offsets, {MARKS: marks_after(offsets, self._planner.queues(look), offsets, {})})

    @property
    def schema(self) -> pa.Schema:
        """That of each batch."""
        return self._schema

    @property
    def offsets(self) -> dict[str, Any]:
        """Where it stands: after the last batch that was handed out, or where it began."""
        return self._offsets

    @property
    def skipped_count(self) -> int:
        """How many messages were gone before they were read, where that is no error: up to `offsets`."""
        return self._gone_count

    @property
    def waiting_count(self) -> int:
        """How many messages there are between where it stands and the end of what was there when it began, at the
        most; 0 where it waits for more."""
        return self._planner.frozen_after(offsets_in(self._offsets))

    def stop(self) -> None:
        """Ends the iteration soon; any thread, also a signal's handler."""
        self._is_over = True
        self._bell.ring()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FollowedBatch:
        """The next batch; waits for it."""
        while not self._is_over:
            self._fill()
            if self._ready:
                return self._handed_out()
            if self._is_end():
                break
            self._bell.wait(self._patience.poll_s)
        raise StopIteration

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FollowedBatch:
        """The next batch; the store is read in a thread of the loop's, and waited for in the loop.  A task that is
        cancelled here loses nothing: what was read meanwhile is the next answer."""
        while not self._is_over:
            await asyncio.to_thread(self._fill)
            if self._ready:
                return self._handed_out()
            if self._is_end():
                break
            await asyncio.sleep(self._patience.poll_s)
        raise StopAsyncIteration

    def _handed_out(self) -> FollowedBatch:
        batch, gone = self._ready[0]
        if self._offsets is not batch.offsets:  # else an interrupt came before it was taken away
            self._gone_count += gone
        self._offsets = batch.offsets
        self._ready.popleft()  # last: an interrupt before it loses nothing
        return batch

    def _is_end(self) -> bool:
        wait_s = self._patience.wait_s
        return wait_s is not None and time.monotonic() - self._came_s >= wait_s

    def _fill(self) -> None:
        """Has a batch ready, if there is one now."""
        with self._filling:
            if self._ready:
                return
            batch = None
            try:
                while batch is None:
                    if self._round is None:
                        self._round = self._next_round()
                    if self._round is None:
                        return
                    batch = next(self._round, None)
                    if batch is None:
                        self._round = None  # it is over; there may be another one at once
            except BaseException:
                self._round = None  # the next one begins after the last batch
                raise
            self._came_s = time.monotonic()
            self._ready.append(batch)

    def _next_round(self) -> Iterator[tuple[FollowedBatch, int]] | None:
        """All that there is, up to a limit, each batch with how many messages were gone before it; None for nothing."""
        start = self._ready[-1][0].offsets if self._ready else self._offsets
        try:
            step = self._planner.step(start, is_limited=True, gone_since_ms=self._gone_since_ms)
        except NotAStore:
            if self._gone_since_ms is None:
                self._gone_since_ms = int(time.time() * 1000)
            raise
        self._gone_since_ms = None
        if not step.is_any:
            return None
        step.tell(log)
        end = self._planner.end_of(step)
        begun, ends = (self._planner.covered(part) for part in (begins_of(start, end, is_first=False), step.batch.ends))
        splits, lost = self._planner.splits(start, begun, ends, self._reads, SplitBudget())
        self._skipped.note(lost, log, standing=offsets_in(start), begun=begun)
        batches = (batch for split in splits for batch in read_split(split, self._reads))
        end.pop(FROM, None)  # the round is read as it is planned
        lows = {place: begun.get(place, low) for place, low in step.batch.lows.items()}
        reached = _Reached(start, begun, step.batch.queues, step.marks, _Gone(self._request, lows, ends, lost))
        return self._with_offsets(batches, reached, end)

    def _with_offsets(
        self, batches: Iterator[pa.RecordBatch], reached: "_Reached", end: dict[str, Any]
    ) -> Iterator[tuple[FollowedBatch, int]]:
        """Each batch with where its rows end, and how many messages were gone up to there since the one before; the
        last one, with or without rows, with the end of the round."""
        last: pa.RecordBatch | None = None
        for batch in batches:
            if last is not None:
                offsets, gone = reached.after(last)
                yield FollowedBatch(last.select(self._request.columns), offsets), gone
            last = batch
        gone = (0 if last is None else reached.after(last)[1]) + reached.gone.at_end()
        rows = pa.RecordBatch.from_pylist([], self._schema) if last is None else last.select(self._request.columns)
        yield FollowedBatch(rows, end), gone


def _taken_up(after: Mapping[str, Any]) -> dict[str, Any]:
    try:
        offsets_in(after)
        for name in (MARKS, SINCE, BEHIND):
            note_in(after, name)
    except Rejected:
        raise Rejected(
            f"after={arguments.shown(after)}: these are no offsets that came with a batch; they read "
            '{"topic": {"broker": {"0": 12}}}'
        ) from None
    return dict(after)


class _Gone:
    """Counts the messages of a round that were gone before they were read, as far as its batches go.

    `lows` and `ends`: from where to where each queue is read; `lost`: what was gone when that was planned.  Where only
    some messages are asked for, nobody can tell of others.
    """

    def __init__(
        self, request: ScanRequest, lows: Offsets, ends: Offsets, lost: Sequence[tuple[Place, LostRange]]
    ) -> None:
        self._passes_over = not request.fail_on_data_loss
        self._has_all = not (request.tags or request.keys or request.on_corrupt_record == "skip")
        self._at, self._ends = dict(lows), ends
        self._lost: dict[Place, list[LostRange]] = {}
        for place, found in lost:
            self._lost.setdefault(place, []).append(found)

    def up_to(self, place: Place, end: int, row_count: int) -> int:
        """How many of a queue were gone up to `end`, where `row_count` came since it was asked for last."""
        low = self._at.get(place)
        if low is None or not self._passes_over or end <= low:
            return 0
        self._at[place] = end
        known = sum(max(min(each.high, end) - max(each.low, low), 0) for each in self._lost.get(place, ()))
        gone = end - low - row_count if self._has_all else known
        if gone > known:
            log.warning(
                "%s/%d of %s: %d messages were deleted while they were read", *place[1:], place[0], gone - known
            )
        return max(gone, 0)

    def at_end(self) -> int:
        """How many were gone after the last row of each queue."""
        return sum(self.up_to(place, end, 0) for place, end in self._ends.items())


class _Reached:
    """Offsets in the middle of a round: after the rows that came, and where the round began for all other queues, whose
    marks are there.  `begun` has the new ones, too."""

    def __init__(self, start: Mapping[str, Any], begun: Offsets, queues: Queues, marks: Offsets, gone: _Gone) -> None:
        self.gone = gone
        self._start, self._queues = start, queues
        self._offsets = dict(begun) | offsets_in(start)
        self._marks = marks
        self._moved: set[Place] = set()

    def after(self, rows: pa.RecordBatch) -> tuple[dict[str, Any], int]:
        """The offsets after these rows, too, and how many messages were gone before them."""
        columns = [rows.column(name) for name in _NEEDED]
        newest = (
            pa.table(columns, _NEEDED).group_by(list(_PLACE)).aggregate([("queueOffset", "max"), ([], "count_all")])
        )
        moved, gone = set[Place](), 0
        for row in newest.to_pylist():
            place = row["brokerName"], row["topic"], row["queueId"]
            if None not in place and row["queueOffset_max"] is not None:
                self._offsets[place] = row["queueOffset_max"] + 1  # may be less than before, in a queue made again
                moved.add(place)
                gone += self.gone.up_to(place, self._offsets[place], row["count_all"])
        self._moved |= moved
        self._marks = marks_after(moved, self._queues, self._offsets, self._marks)
        notes = {
            name: {place: value for place, value in note_in(self._start, name).items() if place not in self._moved}
            for name in (SINCE, BEHIND)
        }
        return offset_json(self._offsets, notes | {MARKS: self._marks}), gone
