"""Which files of a store are old enough, or must make room: a plan worked out from what is there, shown or carried out.

Java: CleanCommitLogService, CleanConsumeQueueService, MappedFileQueue.deleteExpiredFileByTime.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

from rmqstore.clock import local_time
from rmqstore.config import ApacheNames, StoreConfig, broker_pairs, read_values, wrong_hours, wrong_percents
from rmqstore.engine.log.plan_text import SHOWN_MAX, folded, plain
from rmqstore.errors import Rejected

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long log files stay, and what a full disk changes about that; defaults are RocketMQ's.

    Files are deleted in the local hours `delete_when` ("04;16") once they were not changed for `reserved_ms`, and at
    any hour while the disk is fuller than `max_used_percent`.  Above `clean_percent` age does not count, unless
    `cleans_forcibly` is off; above `warning_percent` no message is taken.  At most `batch_max` log files go in one
    round, `pause_ms` after each other; rounds are `interval_ms` apart.  Raises Rejected.
    """

    delete_when: str = "04"
    reserved_ms: int = 72 * _HOUR_MS
    max_used_percent: int = 75
    clean_percent: int = 85
    warning_percent: int = 90
    cleans_forcibly: bool = True
    batch_max: int = 10
    interval_ms: int = 10_000
    pause_ms: int = 100

    def __post_init__(self) -> None:
        mistakes = wrong_hours("delete_when", self.delete_when) + wrong_percents(self, _PERCENTS)
        mistakes += [f"{name}={getattr(self, name)}: at least {least}" for name, least in _LEAST.items()
                     if getattr(self, name) < least]  # fmt: skip
        if mistakes:
            raise Rejected("; ".join(mistakes))

    @classmethod
    def of(cls, config: StoreConfig, broker_conf: str = "") -> Self:
        """The policy that a store's configuration says; what it does not say, as the text of a broker's does.

        Raises Rejected.
        """
        return cls(
            delete_when=config.delete_when,
            reserved_ms=config.file_reserved_hours * _HOUR_MS,
            max_used_percent=config.disk_max_used_percent,
            clean_percent=config.disk_clean_percent,
            warning_percent=config.disk_warning_percent,
            cleans_forcibly=config.clean_forcibly,
            **read_values(broker_pairs(broker_conf), _APACHE),
        )

    def is_hour(self, now_ms: int) -> bool:
        """Whether it is one of the hours for deleting, by the local time."""
        return local_time(now_ms).hour in {int(hour) for hour in self.delete_when.split(";") if hour.strip()}


_LEAST = {"reserved_ms": 0, "batch_max": 1, "interval_ms": 1, "pause_ms": 0}
_PERCENTS = ("max_used_percent", "clean_percent", "warning_percent")


# Of a broker's configuration, what a store's does not have.
_APACHE: ApacheNames = {
    "deleteFileBatchMax": ("batch_max", int),
    "cleanResourceInterval": ("interval_ms", int),
    "deleteCommitLogFilesInterval": ("pause_ms", int),
}


@dataclass(frozen=True, slots=True)
class DiskUse:
    """How full the disks are, 0 to 1, -1 where that is not known: of each log directory, and of the queues."""

    logs: tuple[tuple[str, float], ...]
    queues: float

    @property
    def log(self) -> float:
        """Of several log directories the emptiest counts: new files still find room there."""
        return min((ratio for _, ratio in self.logs), default=-1.0)

    @property
    def fullest(self) -> float:
        """The ratio that decides: that of the log's disk or that of the queues'."""
        return max(self.log, self.queues)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log file as it was found."""

    path: str
    start: int
    size: int
    modified_ms: int

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody asked for a cleaning, of the log files before `end`: of those that are old enough, or of `any_age`."""

    end: int
    any_age: bool = False


@dataclass(frozen=True, slots=True)
class ExpiredLogFile:
    """A log file that goes.

    `reason`: "age" (it is old enough), "manual" (the same, somebody asked), "disk" (of any age: the disk is too full),
    "forced" (of any age: somebody asked).
    """

    path: str
    start: int
    size: int
    reason: str


@dataclass(frozen=True, slots=True)
class ExpiredQueue:
    """The files of one queue that go: they lead only to records that are gone."""

    topic: str
    queue_id: int
    paths: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class ExpiredFile:
    """An index file that goes."""

    path: str
    size: int


@dataclass(frozen=True, slots=True)
class RetentionView:
    """The facts that a plan is made from.

    `log_files` in their order; what is before `log_end` is written for good.  From `kept_from` on (None: no such
    place) nothing may go, for the reason `kept_why`.  Queues and index were cleaned for a log that begins at
    `cleaned_to`.  The two callables answer what goes of queues and index when the log begins at an offset.
    """

    root: str
    log_files: tuple[LogFile, ...]
    log_end: int
    disk: DiskUse
    expired_queues: Callable[[int], Iterable[ExpiredQueue]]
    expired_index: Callable[[int], Iterable[ExpiredFile]]
    kept_from: int | None = None
    kept_why: str = ""
    cleaned_to: int = 0
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The files that one round deletes.  The log then begins at `min_offset`.

    `trigger` says why there is a round: "hour", "disk", "manual", "forced"; empty for none.  `held_back`: why a file
    stays though its turn had come; `has_more`: the next round goes on.  `is_disk_full`: no message is to be taken.
    `full_log_paths` are directories that should get no new log file.
    """

    root: str
    trigger: str
    log_start: int
    min_offset: int
    log_files: tuple[ExpiredLogFile, ...]
    queues: tuple[ExpiredQueue, ...]
    index_files: tuple[ExpiredFile, ...]
    disk: DiskUse
    is_disk_full: bool
    full_log_paths: tuple[str, ...]
    held_back: str = ""
    has_more: bool = False
    must_follow: bool = False  # queues and index still lead to records before the log's beginning

    @property
    def changes_nothing(self) -> bool:
        """Whether no file goes."""
        return not (self.log_files or self.queues or self.index_files)

    @property
    def file_count(self) -> int:
        """How many files go."""
        return len(self.log_files) + sum(len(queue.paths) for queue in self.queues) + len(self.index_files)

    @property
    def freed_bytes(self) -> int:
        """How many bytes of files go."""
        sizes = [file.size for file in self.log_files] + [queue.size for queue in self.queues]
        return sum(sizes) + sum(file.size for file in self.index_files)

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values for JSON, names in camel case."""
        document: dict[str, Any] = plain(asdict(self))
        more = {"changesNothing": self.changes_nothing, "fileCount": self.file_count, "freedBytes": self.freed_bytes}
        return document | more

    def lines(self) -> list[str]:
        """The plan for people, no line longer than 80 columns unless a path is."""
        return [line for fact in self._facts() for line in folded(*fact)]

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "store", self.root
        yield "commitlog", f"begins at {self.log_start}, then at {self.min_offset}"
        if self.disk.fullest >= 0:
            yield "disk", f"{self.disk.log:.0%} used by the log's, {self.disk.queues:.0%} by the queues'"
        if self.is_disk_full:
            yield "disk", "too full: no message is taken until there is room"
        yield from self._removals([(file.path, f"{file.size} bytes, {_WHY[file.reason]}") for file in self.log_files])
        yield from self._removals(
            [(path, "all its messages are gone") for queue in self.queues for path in queue.paths]
        )
        yield from self._removals([(file.path, "all its messages are gone") for file in self.index_files])
        if self.held_back:
            yield "keep", self.held_back
        if self.has_more:
            yield "more", "log files are left for the next round"
        if self.changes_nothing:
            yield "result", "nothing to do"
        else:
            yield "result", f"{self.file_count} files of {self.freed_bytes} bytes go"

    def _removals(self, files: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        for path, why in files[:SHOWN_MAX]:
            yield "remove", f"{path.removeprefix(self.root).lstrip('/')}: {why}"
        if len(files) > SHOWN_MAX:
            yield "remove", f"{len(files) - SHOWN_MAX} more files there (--json lists them)"


_WHY = {
    "age": "it is old enough",
    "manual": "it is old enough",
    "disk": "the disk is too full",
    "forced": "of any age, as asked",
}


def plan_retention(view: RetentionView, policy: RetentionPolicy, now_ms: int) -> RetentionPlan:
    """The plan of a round at `now_ms`: the oldest log files, and what only leads to them.  Changes nothing.

    Never the log file that is being written, nor any after it; the first file that is not to go ends the round.
    """
    disk = view.disk
    trigger = _trigger(view, policy, now_ms)
    expired, held_back, has_more = _expired_log(view, policy, now_ms, trigger)
    log_start = view.log_files[0].start if view.log_files else 0
    min_offset = view.log_files[len(expired)].start if expired else log_start
    must_follow = min_offset > view.cleaned_to
    return RetentionPlan(
        view.root, trigger, log_start, min_offset, tuple(expired),
        tuple(view.expired_queues(min_offset)) if must_follow else (),
        tuple(view.expired_index(min_offset)) if must_follow else (),
        disk, disk_is_full(disk, policy), full_log_paths(disk, policy), held_back, has_more, must_follow,
    )  # fmt: skip


def disk_is_full(disk: DiskUse, policy: RetentionPolicy) -> bool:
    """Whether no message may be taken (Java: isSpaceFull and isSpaceToDelete set the flag DISK_FULL)."""
    return disk.fullest > policy.warning_percent / 100


def full_log_paths(disk: DiskUse, policy: RetentionPolicy) -> tuple[str, ...]:
    """The log directories that get no new file while others have room."""
    return tuple(path for path, ratio in disk.logs if ratio > policy.clean_percent / 100)


def _trigger(view: RetentionView, policy: RetentionPolicy, now_ms: int) -> str:
    """Why there is a round; the strongest reason counts."""
    disk = view.disk
    if view.request is not None:
        return "forced" if view.request.any_age else "manual"
    is_unknown = disk.log < 0 or disk.queues < 0  # Java: cleaned, by age
    if is_unknown or disk.fullest > policy.max_used_percent / 100:
        return "disk"
    return "hour" if policy.is_hour(now_ms) else ""


class _ExpiredLog(NamedTuple):
    """The log files that go; `held_back` why the next one stays though its turn had come, `has_more` whether only the
    size of a batch ended them.
    """

    files: list[ExpiredLogFile]
    held_back: str = ""
    has_more: bool = False


def _expired_log(view: RetentionView, policy: RetentionPolicy, now_ms: int, trigger: str) -> _ExpiredLog:
    found: list[ExpiredLogFile] = []
    if not trigger:
        return _ExpiredLog(found)
    for file in view.log_files[:-1]:
        if file.end > view.log_end:
            break
        reason = _reason(file, view, policy, now_ms)
        if not reason:
            break
        if view.kept_from is not None and file.end > view.kept_from:
            return _ExpiredLog(found, held_back=f"{file.path}: {view.kept_why}")
        if len(found) == policy.batch_max:
            return _ExpiredLog(found, has_more=True)
        found.append(ExpiredLogFile(file.path, file.start, file.size, reason))
    return _ExpiredLog(found)


def _reason(file: LogFile, view: RetentionView, policy: RetentionPolicy, now_ms: int) -> str:
    """Why a log file goes; empty if it stays."""
    request = view.request if view.request is not None and file.end <= view.request.end else None
    if request is not None and request.any_age:
        return "forced"
    clean_ratio = max(policy.clean_percent, 0) / 100
    if policy.cleans_forcibly and view.disk.fullest > clean_ratio:
        return "disk"
    if now_ms < file.modified_ms + policy.reserved_ms:
        return ""
    return "age" if request is None else "manual"
