"""Deleting what is old of a store that is open: log files first, then the queue and index files that led to them.

Every deletion is durable before the next one, oldest first, and nothing of a log file goes before queues are on the
disk that tell the next queue offset.  So a crash at any point leaves a log without a gap, and queues and index that may
know more than the log holds, which readers pass over; the next round completes it.  A reader that has such a file open
keeps it: its room is free when the last reader lets go.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rmqstore.clock import Clock
from rmqstore.engine.log.derived.batch_queue import BatchQueue
from rmqstore.engine.log.derived.consume_queue import ConsumeQueue
from rmqstore.engine.log.derived.index_log import IndexLog
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.engine.log.retention.plan import (
    DiskUse,
    ExpiredFile,
    ExpiredQueue,
    LogFile,
    Request,
    RetentionPlan,
    RetentionPolicy,
    RetentionView,
    disk_is_full,
    full_log_paths,
    plan_retention,
)
from rmqstore.errors import NotNow
from rmqstore.files.file_sequence import FileSequence
from rmqstore.files.filesystem import FileSystem, directory_of, join
from rmqstore.formats import index as index_format
from rmqstore.formats.names import INDEX_ROOM, PLAIN_ROOM

_FIRST_S = 60.0  # RocketMQ cleans for the first time a minute after the start
_TURN_S = 0.02  # one step does not work longer than this, so that a store can be closed meanwhile
_QUEUES_AT_ONCE = 64
_UNCONSUMED = "messages in it are not consumed yet"
_UNDISPATCHED = "its messages are not in their queues yet"


@dataclass(frozen=True, slots=True)
class RetainedParts:
    """The parts of an open store that retention looks at and deletes from.

    `log_end`: the log is on the disk up to there; `dispatched`: queues and index know it up to there.  `flush` makes
    the log, and then what was dispatched before the call, durable; False if that takes too long.
    """

    fs: FileSystem
    root: str
    log: FileSequence
    queues: QueueTable
    index: IndexLog | None
    log_end: Callable[[], int]
    dispatched: Callable[[], int]
    flush: Callable[[], bool]


def look(parts: RetainedParts, disk: DiskUse, *, cleaned_to: int = 0, kept_from: int | None = None,
         request: Request | None = None) -> RetentionView:  # fmt: skip
    """The view that a plan for these parts is made from.  `kept_from`: from there on the log was not consumed.

    Raises OSError.
    """
    dispatched, why = parts.dispatched(), _UNDISPATCHED
    if kept_from is None or dispatched < kept_from:
        kept_from = dispatched
    else:
        why = _UNCONSUMED
    times, size = parts.log.modified_ms(), parts.log.file_size
    files = []
    for start in parts.log.starts:
        if start not in times:
            break  # somebody is deleting, or making it, right now
        files.append(LogFile(parts.log.path_of(start), start, size, times[start]))
    return RetentionView(
        parts.root, tuple(files), parts.log_end(), disk,
        lambda low: _expired_queues(parts.queues, low), lambda low: _expired_index(parts, low),
        kept_from, why, cleaned_to, request,
    )  # fmt: skip


def apply_retention(plan: RetentionPlan, parts: RetainedParts) -> None:
    """Does what `plan` says, all of it at once.  Doing it again does nothing.  Raises OSError, NotNow."""
    for _ in retention_steps(plan, parts):
        pass


def retention_steps(plan: RetentionPlan, parts: RetainedParts, pause_s: float = 0.0) -> Iterator[float]:
    """Does what `plan` says piece by piece; each item is how long to wait before the next piece.

    Files that are gone by now, or needed again, are passed over.  Raises OSError, and NotNow when the disk does not
    confirm what has to be durable first.
    """
    if plan.log_files and not parts.flush():
        raise NotNow("the disk does not confirm what has to be durable before anything is deleted")
    for file in plan.log_files:
        starts = parts.log.starts
        if len(starts) > 1 and starts[0] == file.start:
            parts.log.remove_first(1)
            yield pause_s
    if not plan.must_follow:
        return
    for expired in plan.queues:
        for queue in _found(parts.queues, expired):
            queue.remove_expired(plan.min_offset, len(expired.paths))
            yield 0.0
    for number, queue in enumerate(_all_queues(parts.queues), start=1):
        queue.correct_min(plan.min_offset)
        if number % _QUEUES_AT_ONCE == 0:
            yield 0.0
    if parts.index is not None and plan.index_files:
        directory = join(parts.root, INDEX_ROOM, "")
        parts.index.delete({file.path.removeprefix(directory) for file in plan.index_files})


class Retention:
    """Retention of one open store, as the step of a worker.

    `used_ratio` answers how full the disk of a path is (FileSystem.used_ratio).  `protect`, if given, answers from
    which offset on the log must stay whatever the disk says, e.g. because it is not consumed yet; None for none.
    `full_reason` says why no message may be taken, None when they may; `full_log_paths` should get no new file.  They
    are set by `step`, before anything is deleted, so never where no worker does steps.  `failure` is what ended the
    last round, `last_plan` the last round that deleted something or could not.
    """

    def __init__(
        self, parts: RetainedParts, policy: RetentionPolicy, clock: Clock, used_ratio: Callable[[str], float],
        protect: Callable[[], int | None] | None = None,
    ) -> None:  # fmt: skip
        self.full_reason: str | None = None
        self.full_log_paths: tuple[str, ...] = ()
        self.last_plan: RetentionPlan | None = None
        self.failure: Exception | None = None
        self.removed_files = 0
        self.removed_bytes = 0
        self._parts = parts
        self._policy = policy
        self._clock = clock
        self._used_ratio = used_ratio
        self._protect = protect
        self._due_s = clock.monotonic_s()
        self._first_s = self._due_s + _FIRST_S
        self._cleaned_to = 0
        self._request: Request | None = None
        self._round: tuple[RetentionPlan, Iterator[float]] | None = None
        self._lock = threading.Lock()  # one round at a time; guards the five above

    def step(self) -> float:
        """Looks at the disk, and deletes what is due, a piece at a time; returns after how many seconds to go on.

        What the disk refuses ends the round: `failure` tells, and the next round tries again.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            if now_s < self._due_s:
                return self._due_s - now_s
            pause_s = self._policy.interval_ms / 1000
            if self._round is None:
                disk = self._look_at_disk()
                if now_s >= self._first_s or self._request is not None:
                    try:
                        self._begin(disk)
                    except OSError as failure:
                        self.failure = failure
            if self._round is not None:
                pause_s = self._go_on(now_s, pause_s)
            self._due_s = now_s + pause_s
            return pause_s

    def clean_now(self, *, any_age: bool = False) -> RetentionPlan:
        """Does one round now, whatever the hour: of files that are old enough, or of `any_age`; returns its plan.

        When more is left than one round takes, the next ones go on.  Raises OSError, NotNow; then no later round does
        what was asked for.
        """
        with self._lock:
            self._run_out()
            self._request = Request(self._parts.log_end(), any_age)
            try:
                plan = self._begin(self._disk_use())
                if self._round is None:
                    self._finish(plan)
                self._run_out()
            except BaseException:
                self._request = None
                raise
            return plan

    def _run_out(self) -> None:
        """Does the rest of a round that is under way, at once.  One that fails is over."""
        if self._round is not None:
            (plan, steps), self._round = self._round, None
            for _ in steps:
                pass
            self._finish(plan)

    def plan(self, *, any_age: bool = False) -> RetentionPlan:
        """The plan that `clean_now` would carry out.  Raises OSError."""
        return self._planned(self._disk_use(), Request(self._parts.log_end(), any_age))

    def _begin(self, disk: DiskUse) -> RetentionPlan:
        """Plans a round; there is one under way then if there is anything to do."""
        plan = self._planned(disk, self._request)
        if plan.must_follow or plan.log_files:
            self._round = plan, retention_steps(plan, self._parts, self._policy.pause_ms / 1000)
        elif not plan.has_more:
            self._request = None
        if plan.held_back or not plan.changes_nothing:
            self.last_plan = plan
        return plan

    def _go_on(self, now_s: float, interval_s: float) -> float:
        """Some pieces of the round that is under way; the pause after them."""
        assert self._round is not None
        plan, steps = self._round
        try:
            for pause_s in steps:
                if pause_s or self._clock.monotonic_s() - now_s >= _TURN_S:
                    return pause_s
        except (OSError, NotNow) as failure:
            self._round, self.failure = None, failure
            return interval_s
        self._finish(plan)
        return interval_s

    def _finish(self, plan: RetentionPlan) -> None:
        self._round, self.failure = None, None
        self._cleaned_to = plan.min_offset
        self.removed_files += plan.file_count
        self.removed_bytes += plan.freed_bytes
        if not plan.has_more:
            self._request = None
        if self.full_reason is not None:  # perhaps there is room now
            self._look_at_disk()

    def _planned(self, disk: DiskUse, request: Request | None) -> RetentionPlan:
        kept_from = None if self._protect is None else self._protect()
        view = look(self._parts, disk, cleaned_to=self._cleaned_to, kept_from=kept_from, request=request)
        return plan_retention(view, self._policy, self._clock.now_ms())

    def _disk_use(self) -> DiskUse:
        parts = self._parts
        logs = tuple((path, self._used_ratio(path)) for path in parts.log.directories)
        return DiskUse(logs, self._used_ratio(join(parts.root, PLAIN_ROOM)))

    def _look_at_disk(self) -> DiskUse:
        disk = self._disk_use()
        is_full = disk_is_full(disk, self._policy)
        self.full_reason = f"the disk is {disk.fullest:.0%} full" if is_full else None
        self.full_log_paths = full_log_paths(disk, self._policy)
        return disk


def unconsumed_from(queues: QueueTable, committed: Mapping[tuple[str, str], Mapping[int, int]]) -> int | None:
    """The lowest offset of the log that some group has not consumed, for `protect`; None if all is consumed.

    `committed` holds the next queue offset of each queue by (group, topic).
    """
    lowest: int | None = None
    for (_, topic), offsets in committed.items():
        for queue_id, offset in offsets.items():
            queue = queues.find(topic, queue_id)
            place = None if queue is None else _place_of(queue, offset)
            if place is not None and (lowest is None or place < lowest):
                lowest = place
    return lowest


def _place_of(queue: ConsumeQueue, queue_offset: int) -> int | None:
    """Where the record of a queue offset stands in the log, or the first one after it that is there."""
    first = max(queue_offset, queue.min_offset)
    entries = queue.read(first, first + 1)
    return int(entries["physical_offset"][0]) if len(entries) else None


def _all_queues(queues: QueueTable) -> list[ConsumeQueue | BatchQueue]:
    """The plain queues and those of whole batches."""
    return [*queues.queues(), *queues.batches.queues()]


def _found(queues: QueueTable, expired: ExpiredQueue) -> list[ConsumeQueue | BatchQueue]:
    """The queue whose files these are, if it is there."""
    key = expired.topic, expired.queue_id
    directory = directory_of(expired.paths[0])
    both = (queues.find(*key), queues.batches.find(*key))
    return [queue for queue in both if queue is not None and queue.files.directories[0] == directory]


def _expired_queues(queues: QueueTable, min_physical: int) -> Iterator[ExpiredQueue]:
    for queue in _all_queues(queues):
        starts = queue.expired(min_physical) if len(queue.files.starts) > 1 else []
        if starts:
            paths = tuple(queue.files.path_for(start) for start in starts)
            yield ExpiredQueue(queue.topic, queue.queue_id, paths, len(paths) * queue.files.file_size)


def _expired_index(parts: RetainedParts, min_physical: int) -> Iterator[ExpiredFile]:
    if parts.index is None:
        return
    sizes = {file.name: index_format.file_size(file.slot_count, file.item_count) for file in parts.index.files}
    for name in parts.index.expired(min_physical):
        yield ExpiredFile(join(parts.root, INDEX_ROOM, name), sizes[name])
