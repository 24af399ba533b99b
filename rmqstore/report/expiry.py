"""When each commitlog file goes: by its age, as a broker's nightly rounds see it.

A file that is not full yet is expected to fill at the pace at which the log grew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rmqstore.clock import local_time
from rmqstore.engine.log.retention.plan import RetentionPolicy

# --- When log files become deletable by their age: the nightly rounds of a broker, looked at ahead.

_FULL_HOUR_MS = 3_600_000
# Every hour of the day comes by within a day; where clocks are changed one may be missing for one day more.
_HOURS_ASKED = 49


def next_round_ms(policy: RetentionPolicy, from_ms: int) -> int | None:
    """The first moment from `from_ms` on, in ms since the epoch, at which a round deletes by age; None if no hour of
    the day is one for deleting.
    """
    moment = from_ms
    for _ in range(_HOURS_ASKED):
        if policy.is_hour(moment):
            return moment
        local = local_time(moment)
        moment += _FULL_HOUR_MS - (local.minute * 60 + local.second) * 1000 - moment % 1000
    return None


# ---

DAY_MS = 86_400_000
# The pace is that of the last days; a log that spans less than an hour tells nothing about a day.
GROWTH_DAYS = 7
_SPAN_LEAST_MS = 3_600_000
# The outlook goes so much beyond the time that files are kept, in steps of at most so many.
_OUTLOOK_MORE_MS = 4 * DAY_MS
_OUTLOOK_STEPS = 240
_FILES_AHEAD_MAX = 500

FileState = Literal["complete", "being written", "made ahead"]


class LogFileFacts(NamedTuple):
    """One commitlog file as it stands: offsets and bytes, and times in ms, None where a file tells none."""

    path: str
    start: int
    size: int
    used: int
    modified_ms: int
    first_ms: int | None
    last_ms: int | None


class LogGrowth(NamedTuple):
    """The log grew by `day_bytes` a day over `span_ms` up to its newest message."""

    day_bytes: float
    span_ms: int


@dataclass(frozen=True, slots=True)
class FileOutlook:
    """A commitlog file with its state; from `ripe_ms` on it is old enough, and the first round from then on that
    deletes by age is at `goes_ms`.  None: not as long as the log does not grow on, or no hour is one for deleting.
    """

    facts: LogFileFacts
    state: FileState
    ripe_ms: int | None
    goes_ms: int | None


class Level(NamedTuple):
    """How many bytes commitlog files take at a moment."""

    at_ms: int
    bytes: int


def growth_of(files: Sequence[LogFileFacts], log_end: int) -> LogGrowth | None:
    """The pace of the last GROWTH_DAYS days that the log tells of; None where it spans less than an hour."""
    points = [(file.first_ms, file.start) for file in files if file.first_ms is not None]
    newest_ms = max((file.last_ms for file in files if file.last_ms is not None), default=None)
    if newest_ms is None:
        return None
    recent = [point for point in points if newest_ms - GROWTH_DAYS * DAY_MS <= point[0]] or points[-1:]
    if not recent:
        return None
    first_ms, start = min(recent)
    span_ms = newest_ms - first_ms
    if span_ms < _SPAN_LEAST_MS or log_end <= start:
        return None
    return LogGrowth((log_end - start) * DAY_MS / span_ms, span_ms)


def outlook_of(
    files: Sequence[LogFileFacts], log_end: int, growth: LogGrowth | None, policy: RetentionPolicy, now_ms: int
) -> list[FileOutlook]:
    """When each file goes, in their order: never before one that is older, and the newest only after another came."""
    found: list[FileOutlook] = []
    earliest_ms: int | None = now_ms
    for number, file in enumerate(files):
        end = file.start + file.size
        is_complete, is_last = end <= log_end, number == len(files) - 1
        full_ms = file.modified_ms if is_complete else _full_ms(end - log_end, growth, now_ms)
        ripe_ms = None if full_ms is None else full_ms + policy.reserved_ms
        if ripe_ms is None or earliest_ms is None or (is_last and growth is None):
            earliest_ms = None
        else:
            earliest_ms = next_round_ms(policy, max(ripe_ms, earliest_ms))
        state: FileState = "complete" if is_complete else "being written" if file.start <= log_end else "made ahead"
        found.append(FileOutlook(file, state, ripe_ms, earliest_ms))
    return found


def _full_ms(missing: int, growth: LogGrowth | None, now_ms: int) -> int | None:
    return None if growth is None else now_ms + int(missing * DAY_MS / growth.day_bytes)


def levels_of(
    outlook: Sequence[FileOutlook], log_end: int, growth: LogGrowth | None, policy: RetentionPolicy, now_ms: int
) -> list[Level]:
    """How many bytes the commitlog files take from now on, if it grows on as it did and nothing but age deletes.

    Files are made whole, so each counts with all of its size from its first byte on.
    """
    end_ms = now_ms + policy.reserved_ms + _OUTLOOK_MORE_MS
    changes = [Level(now_ms, each.facts.size) for each in outlook]
    changes += [Level(each.goes_ms, -each.facts.size) for each in outlook if each.goes_ms is not None]
    if growth is not None and outlook:
        changes += _files_ahead(outlook[-1].facts, log_end, growth, policy, (now_ms, end_ms))
    step = max((end_ms - now_ms) // _OUTLOOK_STEPS, 1)
    changes.sort()
    levels, held, place = list[Level](), 0, 0
    for moment in range(now_ms, end_ms + 1, step):
        while place < len(changes) and changes[place].at_ms <= moment:
            held += changes[place].bytes
            place += 1
        levels.append(Level(moment, held))
    return levels


def _files_ahead(
    last: LogFileFacts, log_end: int, growth: LogGrowth, policy: RetentionPolicy, span: tuple[int, int]
) -> Iterator[Level]:
    """The changes by files that are not there yet; of very many several count as one."""
    now_ms, end_ms = span
    whole = (end_ms - now_ms) * growth.day_bytes / DAY_MS
    size = last.size * max(int(whole / (last.size * _FILES_AHEAD_MAX)), 1)
    start = last.start + last.size
    while True:
        made_ms = _full_ms(max(start - log_end, 0), growth, now_ms)
        full_ms = _full_ms(start + size - log_end, growth, now_ms)
        if made_ms is None or full_ms is None or made_ms > end_ms:
            return
        yield Level(made_ms, size)
        goes_ms = next_round_ms(policy, full_ms + policy.reserved_ms)
        if goes_ms is not None:
            yield Level(goes_ms, -size)
        start += size
