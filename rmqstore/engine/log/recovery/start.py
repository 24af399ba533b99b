"""Where a recovery begins to read the log: as far back as something may be missing, and no further."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

from rmqstore.directory.log_coverage import is_covered
from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.engine.log.recovery.batch_tracks import BatchTrack
from rmqstore.engine.log.recovery.index_choice import IndexChoice, has_keys
from rmqstore.engine.log.recovery.plan import PlannedFile, ResizedFile
from rmqstore.engine.log.recovery.queue_states import QueueTrack
from rmqstore.errors import StoreDamaged
from rmqstore.files.disk import ReadableDisk, StoredFile
from rmqstore.files.zeros import holds_nothing
from rmqstore.formats import message
from rmqstore.formats.checkpoint import MARGIN_MS, Checkpoint
from rmqstore.formats.queue_entry import is_pre_blank

_CLEAN_FILE_COUNT = 3  # Java: CommitLog.recoverNormally

# An offset of the log, where a file begins, and why reading begins there.
Start = tuple[int, str]


class SettledLog(NamedTuple):
    """The log without the files that a crash left half made, which are `removed`; `resized` files get their length
    back.
    """

    log: LogSpace
    removed: list[PlannedFile]
    resized: list[ResizedFile]
    warnings: list[str]


def settled_log(disk: ReadableDisk, log: LogSpace, must_refuse: bool, new_size: int) -> SettledLog:
    """The log as recovery takes it.

    `new_size`: a crash may have ended the making of a first file of this length (0: there was no crash).
    Raises Corrupt for lengths and places that no writer leaves.
    """
    files, size = list(log.files), log.file_size
    removed: list[PlannedFile] = []
    resized: list[ResizedFile] = []
    warnings: list[str] = []
    while files and (not files[-1].size or (files[-1].size < size and holds_nothing(disk, files[-1]))):
        removed.append(PlannedFile(files.pop().path, "it was being made when the writer ended"))
    if len(files) == 1 and files[0].size < new_size and holds_nothing(disk, files[0]):
        removed.append(PlannedFile(files.pop().path, "it was being made when the writer ended"))
    for file in files:
        if file.size > size or (file.size < size and file is not files[-1] and must_refuse):
            raise StoreDamaged(file.path, file.size, f"the file has {file.size} bytes, the others {size}")
        if file.start % size:
            raise StoreDamaged(file.path, 0, f"it starts at {file.start}, which is no multiple of {size}")
        if file.size < size:
            resized.append(ResizedFile(file.path, file.size, size))
    for file, later in pairwise(files):
        if later.start == file.start:
            raise StoreDamaged(later.path, 0, f"{file.path} holds the same part of the log")
        if later.start != file.start + size:
            warnings.append(f"no commitlog file holds {file.start + size} to {later.start}")
    return SettledLog(LogSpace(disk, files, size if files else 0), removed, resized, warnings)


def usual_start(log: LogSpace, checkpoint: Checkpoint, is_clean: bool) -> Start:
    """Where RocketMQ would begin, or earlier: the log has files."""
    used = [file for file in log.files if any(log.read(file.start, message.BLANK.size))]
    if not used:
        return log.start, "no record is in the log"
    if is_clean:
        return used[-_CLEAN_FILE_COUNT:][0].start, "the last three files, as after every clean exit"
    known_ms = checkpoint.min_timestamp_ms
    first_ms = cache(partial(_first_ms, log))  # asked of the newest files alone, as a rule
    number = len(used) - 1
    while number > 0 and not 0 < first_ms(used[number]) <= known_ms:
        number -= 1
    while number > 0 and first_ms(used[number]) < first_ms(used[number - 1]):
        number -= 1  # the clock stepped back: its times say nothing here
    if number > 0:
        return used[number].start, "the newest file that begins before the checkpoint's time"
    reason = "the checkpoint is older than the log" if known_ms else "the checkpoint is missing or holds no time"
    return log.start, reason


def lowered_ms(log: LogSpace, checkpoint: Checkpoint, dispatch_from: int | None) -> int | None:
    """The `logics_timestamp_ms` with which the next opening reads from `dispatch_from` on, or earlier, if this one is
    killed; None where it does so by the checkpoint as it is.
    """
    if dispatch_from is None or not log.files or usual_start(log, checkpoint, is_clean=False)[0] <= dispatch_from:
        return None
    file = file_before(log, dispatch_from + 1)
    first_ms = 0 if file is None else _first_ms(log, file)
    for wanted_ms in (first_ms, first_ms - 1):  # files of the same ms, or of a clock that went back, may come later
        lowered = replace(checkpoint, logics_timestamp_ms=wanted_ms + MARGIN_MS)
        if wanted_ms > 0 and usual_start(log, lowered, is_clean=False)[0] <= dispatch_from:
            return lowered.logics_timestamp_ms
    return 0


def own_start(log: LogSpace, start: Start) -> Start:
    """`start`, or an earlier file with another one's name or bytes: the log is cut there, not at a later one alone."""
    for file in log.files:
        if file.start < start[0] and log.other_place(file) is not None:
            return file.start, "this file has another one's name or bytes"
    return start


def covered_start(store: StoreView, start: Start) -> Start:
    """`start`, or the beginning of an earlier file as long as queues lack records of the file before."""
    while (file := file_before(store.log, start[0])) is not None and not is_covered(store, file):
        start = file.start, "from there on messages are missing in their queues"
    return start


def indexed_start(log: LogSpace, choice: IndexChoice, start: Start) -> Start:
    """`start`, or the beginning of an earlier file from which on keys are not in the index files that stay."""
    needed = _index_needs(log, choice, start[0])
    if needed is None or needed >= start[0]:
        return start
    return needed, "from there on keys are to be indexed again"


def _index_needs(log: LogSpace, choice: IndexChoice, start: int) -> int | None:
    if choice.needed_from is not None:
        return start_of(log, choice.needed_from)
    for file in log.files:
        if file.start >= start:
            break
        if file.start + log.file_size > choice.covered + 1:
            sampled = file.start if choice.covered < file.start else _record_end(log, choice.covered)
            if sampled is not None and has_keys(log, sampled, choice.with_tags):
                return file.start
    return None


def hole_start(store: StoreView, tracks: Sequence[QueueTrack | BatchTrack], start: Start) -> Start:
    """`start`, or the beginning of the file that holds the newest record before a hole in a queue: one that a scan
    found, or files that cannot be used.
    """
    starts = [_before_hole(store, track, start[0]) for track in tracks if track.has_hole]
    starts += [_last_file_of(store, queue) for queue in store.all_queues() if queue.is_broken]
    earlier = [place for place in starts if place < start[0]]
    if not earlier:
        return start
    return min(earlier), f"older messages are missing in {len(earlier)} {'queue' if len(earlier) == 1 else 'queues'}"


def _before_hole(store: StoreView, track: QueueTrack | BatchTrack, start: int) -> int:
    queue = store.queue_of(track.key, isinstance(track, BatchTrack))
    if queue is None:
        return store.log.start
    kept = queue.slot_at(start)
    entry = queue.read(kept - 1, kept)
    if kept <= queue.first or not len(entry) or is_pre_blank(entry)[0]:
        return store.log.start
    return start_of(store.log, int(entry["physical_offset"][0]))


def _last_file_of(store: StoreView, queue: QueueView) -> int:
    """Where the log file begins that holds the record of the last entry of a queue; the log's first one without any."""
    entry = queue.read(queue.end - 1, queue.end)
    if not len(entry) or is_pre_blank(entry)[0]:
        return store.log.start
    offset = int(entry["physical_offset"][0])
    return store.log.start if store.log.record_at(offset) is None else start_of(store.log, offset)


def file_before(log: LogSpace, offset: int) -> StoredFile | None:
    """The newest file that starts before `offset`."""
    before = [file for file in log.files if file.start < offset]
    return before[-1] if before else None


def start_of(log: LogSpace, offset: int) -> int:
    """Where the file begins that holds `offset`; the first one where none does."""
    file = file_before(log, offset + 1)
    return log.start if file is None else file.start


def _first_ms(log: LogSpace, file: StoredFile) -> int:
    """Store time of the first record of a file; 0 where no whole one stands that names its place.

    A reader takes the head alone, as RocketMQ does (`snapshot/survey/extents.py`, `_first_time`): it cuts nothing.
    Here a time that damage made up would begin the scan too late.
    """
    found = log.record_at(file.start)
    return 0 if found is None else int(found.store_ms[0])


def _record_end(log: LogSpace, offset: int) -> int | None:
    """Where the record ends that stands at `offset`; None if none does."""
    found = log.record_at(offset)
    return None if found is None else found.end
