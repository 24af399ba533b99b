"""A log that holds bytes and not one sound record: a store whose very first record was torn, or something else."""

from rmqstore.directory.log_space import LogSpace
from rmqstore.engine.log.recovery.log_end import SECTOR_SIZE, LogEnd, ScanCount, has_lost_sector
from rmqstore.files.zeros import is_zero, nonzero
from rmqstore.formats import message
from rmqstore.formats.framing import BARE

NOT_ONE = "not one sound record is in the log, which may be no commitlog at all"


def bytes_without_record(log: LogSpace, end: LogEnd, count: ScanCount) -> int | None:
    """The first byte of the log that is not zero, where a scan of all of it met no sound record; None where one is, or
    nothing at all.
    """
    if count.record_count or end.resume is not None or _is_blank(log):
        return None
    for file in log.files:
        found = nonzero(log.opened(file), 0, file.size, first_only=True)
        if found is not None:
            return file.start + found[0]
    return None


def _is_blank(log: LogSpace) -> bool:
    """Whether the first file is filled up by its blank and nothing else: a log that went over to DLedger's before it
    held any record."""
    first = log.files[0]
    head = log.read(first.start, message.BLANK.size)
    if head != BARE.blank(log.file_size):
        return False
    return is_zero(log.opened(first), len(head), first.size)


def is_torn_beginning(log: LogSpace, flushed_ms: int) -> bool:
    """Whether a power cut or a full disk explains why no record is sound: the first one was being written, and nothing
    was known to be on the disk (`flushed_ms` 0), or what was is deleted by now.

    The write ended inside the head; or the head is there, and the record's end was never written; or the sectors with
    the head were not, and the file was not written to its end.  Any other bytes may be somebody's.
    """
    first = log.files[0]
    if flushed_ms and not log.start:
        return False
    framing = log.framing(first.start)
    gap = framing.gap
    front = log.read(first.start, gap + SECTOR_SIZE)
    if not any(front):
        # No record reaches into the last bytes, which are a blank's.
        return is_zero(log.opened(first), max(first.size - message.BLANK.size, 0), first.size)
    if framing.may_begin(front, first.start, log.file_size) and is_zero(log.opened(first), len(front), first.size):
        return True
    head = front[gap:]
    if len(head) < message.HEAD.size:
        return False
    fields = message.HEAD.read(head)
    size, is_ours = fields["total_size"], fields["magic"] in message.MESSAGE_MAGICS
    place = first.start + gap
    is_ours = is_ours and fields["physical_offset"] == place
    if not is_ours or not message.RECORD_SIZE_MIN <= size <= log.file_size:
        return False
    end = place + size
    return has_lost_sector(log, first.start, end) or not any(log.read(end - 1, 1))
