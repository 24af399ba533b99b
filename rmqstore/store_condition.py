"""How an open store is: whether it takes messages, what its gauges show, and itself in one line."""

from collections.abc import Sequence
from dataclasses import dataclass

from rmqstore.broker.features import Features
from rmqstore.files.filesystem import FileSystem
from rmqstore.files.ownership import Ownership
from rmqstore.log.derived.dispatch_loop import DispatchLoop
from rmqstore.log.put.commitlog import CommitLog
from rmqstore.log.recovery.apply import StoreParts
from rmqstore.log.retention.rounds import Retention
from rmqstore.stats import Health, StoreGauges


@dataclass(frozen=True, slots=True)
class StoreCondition:
    """The parts of a store that tell how it is.  `reasons` and `warnings` are the store's own lists, which grow."""

    path: str
    fs: FileSystem
    ownership: Ownership
    parts: StoreParts
    log: CommitLog
    dispatch: DispatchLoop
    retention: Retention
    features: Features
    reasons: Sequence[str]
    warnings: Sequence[str]

    def health(self) -> Health:
        """Whether the store takes messages, and why not."""
        if self.ownership.is_inherited:
            return Health(False, (str(self.ownership.refusal),), 0, ())
        reasons = list(self.reasons)
        if self.log.marks.failure is not None:
            reasons.append(str(self.log.marks.failure))
        if self.dispatch.stuck is not None:
            reasons.append(self.stuck_reason())
        if self.retention.full_reason is not None:
            reasons.append(self.retention.full_reason)
        if self.ownership.refusal is not None:
            reasons.append("closed")
        elif not self.ownership.is_in_place():
            reasons.append(self.ownership.displaced_reason)
        warnings = [*self.warnings, *self.features.failures()]
        warnings += [f"a message is not in its light queue: {reason}" for reason in self.parts.queues.faults.values()]
        if self.retention.failure is not None:
            warnings.append(f"old files could not be deleted: {self.retention.failure}")
        return Health(not reasons, tuple(reasons), self.dispatch.behind, tuple(warnings))

    def why_unavailable(self) -> str:
        """Why puts are refused, in words."""
        return "; ".join(self.health().reasons) or "it is being closed"

    def stuck_reason(self) -> str:
        """Where dispatch stands, and why it does not go on, if so."""
        stuck = self.dispatch.stuck
        return f"dispatch waits at {self.dispatch.position}" + (f": {stuck.reason}" if stuck is not None else "")

    def gauges(self) -> StoreGauges:
        """The figures of the present moment that the statistics show."""
        log, marks = self.log, self.log.marks
        return StoreGauges(
            log_min_offset=log.start,
            log_max_offset=marks.appended,
            dispatch_behind_bytes=self.dispatch.behind,
            unsynced_bytes=marks.appended - marks.flushed,
            log_disks={path: self.fs.used_ratio(path) for path in self.parts.log.directories},
            queue_disk=self.fs.used_ratio(self.path),
            delay=self.features.delay_progress(),
        )

    def line(self, kind: str, flush: str) -> str:
        """The store in one line; takes no lock, so that it can be asked at any moment, also after a fork."""
        state = "" if self.ownership.refusal is None else ", closed"
        size, queue_count = self.log.marks.appended - self.log.start, len(self.log.next_offsets)
        return f"<{kind} {self.path!r}, {flush}, {queue_count} queues, {size} bytes of log{state}>"
