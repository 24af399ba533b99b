"""The next batch of a stream, from where it stands: the same for Spark, `Snapshot.follow` and the command line."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from logging import Logger, getLogger
from typing import Any, NamedTuple, TypeVar

from rmqstore.errors import DataLost, StoreChanging
from rmqstore.snapshot.lookup.by_time import offset_at
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.request import Place, ScanRequest, SplitBudget
from rmqstore.snapshot.split import Split
from rmqstore.snapshot.stream.batches import (
    NextBatch,
    Queues,
    Refusals,
    ranges_to_read,
    refuse_other_brokers,
    refuse_restarted,
)
from rmqstore.snapshot.stream.ends import StreamEnds, without_missing_files
from rmqstore.snapshot.stream.lag import LostRange
from rmqstore.snapshot.stream.limits import TriggerLimits
from rmqstore.snapshot.stream.offsets import BEHIND, FROM, MARKS, SINCE, Offsets, note_in, offset_json, offsets_in
from rmqstore.snapshot.stream.same_logs import SameLogs, marks_after, refuse_other_logs, tell_other_logs
from rmqstore.snapshot.stream.subscription import StreamSelection
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent
from rmqstore.snapshot.survey.survey import LooksLeft

log = getLogger("rmqstore.stream")
_NOT_WHOLE = (
    "%s: byte %d of its log is not whole, and more stands after it: the store is copied or written, or damaged. What "
    "is in no queue yet is left to the next run, which reads it, or says that it is damage"
)

# --- Queues that end before where a stream stands: the store was cut, made again, or is a copy that lags.
#
# Kafka's source goes on at the new end then, and reads once more what a lagging copy catches up with. Here the store
# times tell: what was stored after the queue was found shorter cannot have been read before, and what was stored
# until then may have been.
#
# A query may be started again at any time, so all that is known of these queues stands in the offset: a note that
# comes with the offset which first saw the queue shorter, rows or none, and goes with the one that next brings rows
# of it. While it stands nothing of the queue was read that was stored after its time; so it is as true of a copy that
# has caught up meanwhile, or of a store that was made yet again.


@dataclass(frozen=True, slots=True)
class TurnedBack:
    """A stream's knowledge of such queues: messages stored at or after `since_ms` are new, but for those before the
    queue offset `behind`, where there is one.  Nothing in it is changed.
    """

    since_ms: Mapping[Place, int] = field(default_factory=dict)
    behind: Offsets = field(default_factory=dict)

    @classmethod
    def noted(cls, shaped: Mapping[str, Any]) -> "TurnedBack":
        """The part of offset JSON that is about them.  Raises Rejected for another shape."""
        return cls(note_in(shaped, SINCE), note_in(shaped, BEHIND))

    @property
    def notes(self) -> dict[str, Mapping[Place, int]]:
        """The knowledge as notes of offset JSON."""
        return {SINCE: self.since_ms, BEHIND: self.behind}

    def among(self, places: Collection[Place]) -> "TurnedBack":
        """The part of it that is about these queues."""
        return TurnedBack(
            {place: ms for place, ms in self.since_ms.items() if place in places},
            {place: offset for place, offset in self.behind.items() if place in places},
        )

    def seen(self, queues: Queues, brokers: Collection[str], before: Offsets, looked_ms: int) -> "TurnedBack":
        """The knowledge, with what the queues of these brokers show now, those that are gone included.

        `before` is where the stream stands, `looked_ms` the time before it looked: what is stored meanwhile is new.
        A store that is not read this time is not one that was cut.
        """
        since_ms, behind = dict(self.since_ms), dict(self.behind)
        for place, offset in before.items():
            if place[0] not in brokers:
                continue
            end = _end(queues, place)
            if place not in since_ms:
                if end < offset:
                    since_ms[place] = looked_ms
            elif looked_ms < since_ms[place]:
                # The clock was set back: what is there has these times as well, and may have been read.
                since_ms[place], behind[place] = looked_ms, end
            elif end < behind.get(place, 0):
                del behind[place]  # made yet again: the offset is one of a store that is gone
        return TurnedBack(since_ms, behind)

    def begins(self, queues: Queues, before: Offsets, searches: "Searches") -> Offsets:
        """Where to read on in the queues that hold new messages before the place where the stream stands.

        Raises DataLost if a file vanishes meanwhile.
        """
        found: Offsets = {}
        for place, since_ms in self.since_ms.items():
            if place not in queues:
                continue
            low = max(searches.first_since(since_ms, place, *queues[place]), self.behind.get(place, 0))
            if low < min(before[place], queues[place][1].max_offset):
                found[place] = low
        return found

    def tell(self, log: Logger, known: "TurnedBack", queues: Queues, before: Offsets, begun: Offsets) -> None:
        """Logs what was not `known` before, and where reading of the queues goes on."""
        for place in self.since_ms.keys() - known.since_ms.keys():
            log.warning(
                "%s ends at offset %d, before %d where the stream stands: the store was cut or made again; the stream "
                "goes on with what is stored there from now on, or from %d where that comes; a read from the "
                "beginning (a new checkpointLocation) has all",
                _name(place), _end(queues, place), before[place], before[place],
            )  # fmt: skip
        for place in self.behind.keys() - known.behind.keys():
            log.warning("the clock was set back: %s goes on from offset %d", _name(place), self.behind[place])
        for place in self.since_ms.keys() & begun.keys():
            log.warning("%s goes on at offset %d", _name(place), begun[place])


class Searches:
    """Looks for new messages in queues, and not again while nothing was added to them: a queue may be quiet for
    long."""

    def __init__(self) -> None:
        self._found: dict[Place, tuple[QueueExtent, int, int]] = {}

    def first_since(self, since_ms: int, place: Place, store: StoreExtent, queue: QueueExtent) -> int:
        """The first queue offset that was stored at or after a time, the queue's end if there is none.

        Raises DataLost as `offset_at`.
        """
        found = self._found.get(place)
        if found is None or found[0] is not queue or found[1] != since_ms:
            found = self._found[place] = queue, since_ms, offset_at(store, queue, since_ms, "lower")
        return found[2]


def _end(queues: Queues, place: Place) -> int:
    return queues[place][1].max_offset if place in queues else 0


def _name(place: Place) -> str:
    return f"{place[1]}/{place[2]} of {place[0]}"


# ---

Answer = TypeVar("Answer")


class StreamStep(NamedTuple):
    """The next batch from `start`, offset JSON, and what is `known` there and `seen` now of queues that were found
    shorter.

    `others` are queues that are of another log than was read, in which the stream goes on, with the reason; `marks`
    those of `start`, and of these logs.
    """

    start: Mapping[str, Any]
    batch: NextBatch
    known: TurnedBack
    seen: TurnedBack
    others: Mapping[Place, str]
    marks: Offsets

    @property
    def is_any(self) -> bool:
        """Whether there is anything to read, or to be written down."""
        return self.batch.is_any or self.seen != self.known or bool(self.others)

    def tell(self, log: Logger) -> None:
        """Logs what is new of queues that are not as they were read, and where reading of them goes on."""
        before = offsets_in(self.start)
        tell_other_logs(log, self.others, before)
        self.seen.tell(log, self.known, self.batch.queues, before, self.batch.begun)


class SplitsOfBatch(NamedTuple):
    """The work of a batch, and what of it is not there any more."""

    splits: list[Split]
    lost: list[tuple[Place, LostRange]]


class StreamPlanner:
    """The batches of one stream; not for several threads at once.  Nothing is asked of the stores before the first
    question.

    Messages that are gone, and logs that are others than those that were read, are errors if it `refuses` them.
    """

    def __init__(
        self, ends: StreamEnds, selection: StreamSelection, limits: TriggerLimits, *,
        refuses: Refusals, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.ends, self.refuses = ends, refuses
        self._selection, self._limits, self._clock = selection, limits, clock
        self._target: Offsets | None = None
        self._turn = 0
        self._taken_s: float | None = None
        self._searches = Searches()
        self._restarts: Offsets = {}
        self._same_logs = SameLogs()
        self._compared: tuple[SnapshotReader, Mapping[str, Any], Mapping[Place, str]] | None = None

    def queues(self, snapshot: SnapshotReader) -> Queues:
        """Those of a look that the stream reads."""
        return self._selection.queues(snapshot)

    def covered(self, offsets: Offsets) -> Offsets:
        """The part of offsets that is of queues which the stream reads, be they there or not."""
        return {place: offset for place, offset in offsets.items() if self._selection.covers(place)}

    def freeze_ends(self, until_ms: int | None = None) -> None:
        """From now on nothing after the present ends is read, nor queues that come later, nor what comes after the
        first message of a queue that was stored at `until_ms` or later.

        Raises DataLost if a file vanishes meanwhile.
        """
        queues = self.queues(self.ends.look())
        for broker, place in self.ends.unsettled.items():
            log.warning(_NOT_WHOLE, broker, place)
        self._target = {
            place: queue.max_offset if until_ms is None else offset_at(store, queue, until_ms, "lower")
            for place, (store, queue) in queues.items()
        }

    def frozen_after(self, offsets: Offsets) -> int:
        """How many messages lie between offsets and the frozen ends; those of new queues count from their beginning."""
        return sum(max(end - offsets.get(place, 0), 0) for place, end in (self._target or {}).items())

    def looked(self, ask: Callable[[SnapshotReader], Answer]) -> Answer:
        """The answer to what is asked of the stores as they are now; a loss, and a store that keeps changing, count
        when they are seen again and again.
        """
        looks = LooksLeft()
        while True:
            try:
                return ask(self.ends.look(looks))
            except (DataLost, StoreChanging) as gone:
                looks.again(gone)
                self.ends.forget()

    def step(self, start: Mapping[str, Any], *, is_limited: bool, gone_since_ms: int | None = None) -> StreamStep:
        """The batch that follows `start`, offset JSON.  `gone_since_ms`: since when no store was there, in vain looked
        for, so that what is stored since then is new.

        Raises DataLost for messages that are gone, and OtherLog, unless the stream goes on, and Rejected where no store
        is of a broker that the stream knows.
        """
        now_ms = int(time.time() * 1000) if gone_since_ms is None else gone_since_ms

        def planned(snapshot: SnapshotReader) -> StreamStep:
            return self._batch_after(snapshot, start, now_ms, is_limited)

        return self.looked(planned)

    def end_of(self, step: StreamStep, initial: Offsets | None = None) -> dict[str, Any]:
        """The offset JSON in which a batch ends; `initial` is where the stream began if that is where the batch does,
        and then goes into it."""
        if step.batch.is_any:
            self._turn += 1
            self._taken_s = self._clock()
        before, batch = offsets_in(step.start), step.batch
        marks = marks_after(batch.lows, batch.queues, batch.ends, step.marks)
        notes = {FROM: (initial or {}) | batch.begun, MARKS: marks}
        shorter = step.seen.among(before.keys() - batch.lows.keys())
        return offset_json(batch.ends, notes | shorter.notes)

    def next_batch(
        self, snapshot: SnapshotReader, before: Offsets, *, is_limited: bool, turned: Offsets | None = None
    ) -> NextBatch:
        """The part that there is from `before` on, within the limits.  Raises as `step`."""
        known = self.covered(before)
        refuse_other_brokers(snapshot.stores, known)
        batch = NextBatch.of(self.queues(snapshot), known, self._target, refuses=self.refuses, turned=turned)
        if not is_limited:
            return batch
        waited_ms = None if self._taken_s is None else (self._clock() - self._taken_s) * 1000
        # An end that is frozen is waited for in vain.
        is_due = self._target is not None or waited_ms is None or waited_ms >= self._limits.delay_ms
        return batch.limited(self._limits, self._turn, is_due=is_due)

    def splits(
        self, start: Mapping[str, Any], begun: Offsets, ends: Offsets, request: ScanRequest, budget: SplitBudget
    ) -> SplitsOfBatch:
        """The work between two offsets, the same rows whenever it is asked; `begun` and `ends` are of queues that the
        stream reads.

        Raises DataLost for messages that are gone, unless the stream goes on, Rejected as `step`, and Corrupt as
        `Snapshot.plan`.
        """

        def planned(snapshot: SnapshotReader) -> SplitsOfBatch:
            for known in (self.covered(offsets_in(start)), ends):
                refuse_other_brokers(snapshot.stores, known)
            self._other_logs(snapshot, start)
            ranges, lost = ranges_to_read(self.queues(snapshot), begun, ends, refuses=self.refuses)
            whole = snapshot if self.refuses.deleted else without_missing_files(snapshot, self.ends.access)
            return SplitsOfBatch(whole.plan(ranges, request, budget), lost)

        return self.looked(planned)

    def _batch_after(
        self, snapshot: SnapshotReader, start: Mapping[str, Any], looked_ms: int, is_limited: bool
    ) -> StreamStep:
        before = offsets_in(start)
        queues, standing = self.queues(snapshot), self.covered(before)
        others, marks = self._other_logs(snapshot, start), note_in(start, MARKS)
        known = TurnedBack.noted(start).among(standing)
        if self.refuses.other_logs:
            self._refuse_restarted(snapshot, standing)
            batch = self.next_batch(snapshot, before, is_limited=is_limited)
            return StreamStep(start, batch, known, known, others, marks)
        seen = known.seen(queues, {store.broker_name for store in snapshot.stores}, standing, looked_ms)
        turned = seen.begins(queues, standing, self._searches)
        batch = self.next_batch(snapshot, before, is_limited=is_limited, turned=turned)
        topics = {place[:2] for place in others}
        marks = marks_after([place for place in before if place[:2] in topics], queues, before, marks)
        return StreamStep(start, batch, known, seen, others, marks)

    def _refuse_restarted(self, snapshot: SnapshotReader, before: Offsets) -> None:
        """Raises DataLost where a queue that was read began again at 0: the stream would go on in the middle of the new
        messages."""
        again = self.ends.restarts
        new = {place for place, count in again.items() if count > self._restarts.get(place, 0)}
        refuse_restarted(self.queues(snapshot), {place: before[place] for place in new if before.get(place)})
        self._restarts = again

    def _other_logs(self, snapshot: SnapshotReader, start: Mapping[str, Any]) -> Mapping[Place, str]:
        """The queues that are not of the logs that were read up to `start`, with the reason.  Raises OtherLog for them,
        unless the stream goes on."""
        if self._compared is None or self._compared[:2] != (snapshot, start):
            queues, standing = self.queues(snapshot), offsets_in(start)
            # A mark of a queue that is no longer selected tells nothing of the others.
            others = self._same_logs.others(queues, standing, self.covered(note_in(start, MARKS)))
            if self.refuses.other_logs:
                refuse_other_logs(others, queues, standing)
            self._compared = snapshot, start, others
        return self._compared[2]
