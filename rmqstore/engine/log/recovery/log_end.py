"""The end of the log: reading it record by record, and telling a torn end from damage in the middle."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rmqstore.directory.log_space import LogSpace
from rmqstore.files.disk import StoredFile
from rmqstore.formats import dledger, message
from rmqstore.formats.message_columns import Bytes, Ints, Located, locate
from rmqstore.formats.record_chain import NO_END, WINDOW_SIZE, lacks_end, magic_positions
from rmqstore.formats.record_crc import masked_crc32, masked_crc32s
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import CrcChecks, read_batches

# What a power cut leaves unwritten is whole sectors: of nothing smaller a disk promises to write all or nothing.
SECTOR_SIZE = 512
# Torn places in front of sound records that are looked at; a disk that tore more has lost more than its newest pages.
_TEARS_MAX = 4096
_ZEROS = bytes(SECTOR_SIZE)
# A record begins with its size, which is big-endian: so many of its bytes may be zero, written or not.
_SIZE_ZEROS_MAX = 3
_FULL = "the last file is full"
_NEVER_MS = 2**63 - 1


# Whether a queue entry points at the one record given, which stands at that place of the log.
IsKnown = Callable[[Located, int], bool]


def _nobody_knows(_: Located, __: int) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where the log ends, as an offset in bytes, and why.

    `offset` is where the last sound record ends, or the file that the blank record after it fills up.  `is_broken`:
    something stands there that is no sound record.  `resume` is the offset of the first sound record after it, None
    without one; `is_tear` then says that a power cut explains it: sectors were not written, and nothing after them was
    known to be on the disk.
    """

    offset: int
    reason: str
    is_broken: bool = False
    resume: int | None = None
    is_tear: bool = False

    @property
    def is_middle_damage(self) -> bool:
        """Whether cutting here throws messages away that were stored for good."""
        return self.resume is not None and not self.is_tear


@dataclass(slots=True)
class ScanCount:
    """Figures of a scan: how many records it met, and the store times in ms of the newest of all and of those for
    queues.

    Newest is the last one, not the one with the latest time: a time may be damaged without harm, or a clock be wrong.
    `earliest_ms` is the least of all times.
    `saw_flushed`: a record has the time that the checkpoint gives for the newest one that was flushed.
    """

    flushed_ms: int = 0
    record_count: int = 0
    newest_ms: int = 0
    newest_queued_ms: int = 0
    earliest_ms: int = _NEVER_MS
    saw_flushed: bool = False

    def add(self, batch: RecordBatch) -> None:
        """Counts the records of a batch."""
        self.record_count += len(batch)
        self.newest_ms = int(batch.store_ms[-1])
        self.earliest_ms = min(self.earliest_ms, int(batch.store_ms.min()))
        queued = batch.store_ms[batch.queued]
        if len(queued):
            self.newest_queued_ms = int(queued[-1])
        self.saw_flushed = self.saw_flushed or bool((batch.store_ms == self.flushed_ms).any())


@dataclass(frozen=True, slots=True)
class ScanRules:
    """`stop` ends a scan early, at a record that was found to lie; `flushed_ms` is up to when messages are known to be
    on the disk (0: none are, or without `has_checkpoint` unknown); `may_be_torn`: the last exit was not clean.
    `is_known` tells whether a queue entry points
    at a record."""

    check_crc: bool = True
    flushed_ms: int = 0
    may_be_torn: bool = False
    has_checkpoint: bool = True
    stop: int | None = None
    stop_reason: str = ""
    is_known: IsKnown = _nobody_knows


def scan_log(
    log: LogSpace, start: int, rules: ScanRules, take: Callable[[RecordBatch], None], places: Ints | None = None
) -> tuple[LogEnd, ScanCount]:
    """Reads the log from `start`, where a file begins, hands every batch of sound records to `take`, finds the end.

    `places` are where records are said to begin, as `read_batches` has it.
    """
    count = ScanCount(rules.flushed_ms)
    last_end = start
    if not log.files:
        return LogEnd(0, "there is no commitlog file"), count
    stop = log.end if rules.stop is None else rules.stop

    def give(batch: RecordBatch | None) -> None:
        if batch is not None:
            count.add(batch)
            take(batch)

    held: RecordBatch | None = None  # given when what follows shows that its last record was written to the end
    for item in read_batches(
        log.read, start, stop, log.file_size, checks=CrcChecks(rules.check_crc, rules.check_crc), places=places,
        framing=log.framing,
    ):  # fmt: skip
        if isinstance(item, message.Torn):
            torn = item
            if held is not None and rules.may_be_torn and lacks_end(held.located):
                torn = message.Torn(log.boundary(int(held.offsets[-1])), NO_END)
                held = _without_last(held)
            give(held)
            return _end_at(log, torn, rules, count), count
        give(held)
        held = None
        if isinstance(item, RecordBatch):
            held, last_end = item, item.end
        else:
            last_end = item.position - item.position % log.file_size + log.file_size
    give(held)
    if rules.stop is not None:
        return _end_at(log, message.Torn(rules.stop, rules.stop_reason), rules, count), count
    return LogEnd(last_end, _FULL), count


def _without_last(batch: RecordBatch) -> RecordBatch | None:
    rows = np.arange(len(batch) - 1)
    if not len(rows):
        return None
    shorter = batch.take(rows)
    shorter.end = int(shorter.offsets[-1] + shorter.sizes[-1])
    return shorter


def _end_at(log: LogSpace, torn: message.Torn, rules: ScanRules, count: ScanCount) -> LogEnd:
    """The chain of records is lost at a place: is that the end, a tear, or damage?"""
    is_gap = log.file_at(torn.position) is None
    resume = next_sound(log, torn.position + 1, count.newest_ms, rules.is_known)
    if is_gap and resume is None:
        return LogEnd(torn.position, _FULL)
    if torn.reason == message.NO_DATA and resume is None:
        return LogEnd(torn.position, "nothing is written there")
    reason = "commitlog files are missing" if is_gap else torn.reason
    is_tear = rules.may_be_torn and not is_gap and resume is not None
    is_tear = is_tear and _is_tear(log, torn.position, resume or 0, rules, count)
    return LogEnd(torn.position, reason, is_broken=not is_gap, resume=resume, is_tear=is_tear)


def _is_tear(log: LogSpace, position: int, resume: int, rules: ScanRules, count: ScanCount) -> bool:
    """Whether lost sectors explain every place without a sound record from `position` on, and whether nothing after
    it was known to be flushed.

    A checkpoint that is lost, or older than the whole log, tells of no flush: then a tear ends with its file, for full
    files that follow are not all unflushed.
    """
    following: int | None = resume
    is_told = rules.has_checkpoint and (not rules.flushed_ms or count.earliest_ms <= rules.flushed_ms)
    file = log.file_at(position)
    after = ScanCount(rules.flushed_ms)
    oldest_ms, latest_ms = _NEVER_MS, count.newest_ms
    for _ in range(_TEARS_MAX):
        if following is None:
            if not is_told and log.file_at(position - 1) != file:
                return False
            return _may_be_unflushed(rules.flushed_ms, (oldest_ms, latest_ms), count, after)
        if not has_lost_sector(log, position, following):
            return False
        position = following
        for item in read_batches(
            log.read, following, log.end, log.file_size, checks=CrcChecks(bodies=True), framing=log.framing
        ):
            if isinstance(item, RecordBatch):
                after.add(item)
                oldest_ms = min(oldest_ms, int(item.store_ms.min()))
                latest_ms = max(latest_ms, int(item.store_ms.max()))
                position = item.end
            elif isinstance(item, message.Torn):
                position = item.position
        following = next_sound(log, position + 1, count.newest_ms, rules.is_known)
    return False


def _may_be_unflushed(flushed_ms: int, times_ms: tuple[int, int], before: ScanCount, after: ScanCount) -> bool:
    """Whether what stands after a tear may have been written after the flush that the checkpoint tells of.

    `times_ms` are the oldest store time after the tear and the latest of all that is left.  A time that no message has
    says nothing.  Where the clock stepped back, times do not say what came later, but the record that has the
    checkpoint's does.
    """
    oldest_ms, latest_ms = times_ms
    if flushed_ms > latest_ms:
        return True
    if oldest_ms >= flushed_ms:  # the record that was flushed last stands before it, unless only one after has its time
        return before.saw_flushed or not after.saw_flushed
    return before.saw_flushed and not after.saw_flushed


def has_lost_sector(log: LogSpace, low: int, high: int) -> bool:
    """Whether [low, high) of the log holds the zeros of a sector that was never written, to the sector's end.

    What stood in front of `low` may share the sector: it was written earlier.  So may the record that stands at `high`,
    with the zeros that its size begins with.
    """
    while low < high:
        file = log.file_at(low)
        if file is None:
            return False  # a whole file is missing: no write that got lost
        end = min(high + _SIZE_ZEROS_MAX, file.start + log.file_size)
        while low < end:
            skew = (low - file.start) % SECTOR_SIZE
            page = log.read(low, min(WINDOW_SIZE - skew, end - low))
            if not page:
                return True  # the file was never as long
            edges = range(SECTOR_SIZE - skew, len(page) + 1, SECTOR_SIZE)
            if any(page[max(edge - SECTOR_SIZE, 0) : edge] == _ZEROS[: min(edge, SECTOR_SIZE)] for edge in edges):
                return True
            low += len(page)
        following = log.next_file(file.start)
        low = following.start if following is not None else high
    return False


def next_sound(log: LogSpace, offset: int, newest_ms: int, is_known: IsKnown = _nobody_knows) -> int | None:
    """The next place from `offset` on where a sound record stands; None if nothing sound follows.

    It must name its own place and pass its CRC.  One that is older than the newest before counts only if a queue entry
    points at it: what a recovery cut off and left in the file must not come back (RocketMQ's truncation does not
    erase), while a clock that stepped back must not make messages disappear.  Readers search in `directory/walk.py`,
    where times alone decide.
    """
    for file, position in _data_positions(log, offset):  # windows, each from a byte of a file on
        source = log.opened(file)
        page = np.frombuffer(source.read(position, WINDOW_SIZE), np.uint8)
        starts = magic_positions(page, message.HEAD.offset["magic"]) - message.HEAD.offset["magic"]
        for start in starts.tolist():
            offset = file.start + position + start
            located = _sound_record(log, page, start, offset)
            if located is None:
                continue
            if int(located.store_timestamp()[0]) >= newest_ms or is_known(located, offset):
                return offset
    return None


def _data_positions(log: LogSpace, offset: int) -> Iterator[tuple[StoredFile, int]]:
    """The windows of the files from `offset` on that may hold anything; they overlap by the head of a record."""
    for file in log.files:
        if file.start + log.file_size <= offset:
            continue
        position = max(offset - file.start, 0)
        source = log.opened(file)
        while (position := source.next_data(position)) < min(file.size, log.file_size):
            yield file, position
            source = log.opened(file)
            position += WINDOW_SIZE - message.RECORD_SIZE_MIN


def _sound_record(log: LogSpace, page: Bytes, start: int, offset: int) -> Located | None:
    """The sound record at a byte of a page, `offset` of the log; None where none stands."""
    head = page[start : start + message.HEAD.size].tobytes()
    if len(head) < message.HEAD.size:
        return None
    fields = message.HEAD.read(head)
    size, file = fields["total_size"], log.file_at(offset)
    if fields["physical_offset"] != offset or file is None:
        return None
    if not message.RECORD_SIZE_MIN <= size <= file.start + log.file_size - offset:
        return None
    whole = page[start : start + size]
    if len(whole) < size:
        whole = np.frombuffer(log.read(offset, size), np.uint8)
    located = locate(whole, np.zeros(1, np.int64))
    if not located.sound[0]:
        return None
    crc = int(masked_crc32s(whole, located.body_at, located.body_size)[0])
    is_right = crc == int(located.head("body_crc")[0]) or int(located.body_size[0]) == 0
    return located if is_right and _is_in_entry(log, offset, whole) else None


def _is_in_entry(log: LogSpace, offset: int, record: Bytes) -> bool:
    """Whether the entry is sound in which a record stands, where records stand in entries."""
    begin = log.boundary(offset)
    if begin == offset:
        return True
    entry = dledger.read_entry(log.read(begin, offset - begin) + record.tobytes(), 0)
    if not isinstance(entry, dledger.Entry) or entry.offset != begin or entry.size != offset - begin + len(record):
        return False
    return entry.body_crc in (0, masked_crc32(entry.body))
