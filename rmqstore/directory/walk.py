"""Walking the commitlog record by record, a window at a time: sound stretches, and the places where the chain
breaks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from rmqstore.directory.log_files import LogView
from rmqstore.errors import DataLost
from rmqstore.formats import message
from rmqstore.formats.message_columns import Bytes, gather, locate
from rmqstore.formats.record_chain import WINDOW_SIZE, claimed_size, lacks_end, magic_positions
from rmqstore.records.soundness import Reason, judge_crcs, judge_place
from rmqstore.records.stretch import Stretch

# After a break, unwritten zeros of this length end the search for more records, unless the queues know of more.
_ZEROS_SIZE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Break:
    """The chain is lost at `offset`; it goes on at `resume`, or nothing sound follows (`resume` None: the end).

    `is_missing`: no file holds the bytes in between; `path` is the file that did, where one was listed.
    """

    offset: int
    reason: str
    resume: int | None
    is_missing: bool = False
    path: str = ""


@dataclass(frozen=True, slots=True)
class WalkLimits:
    """Where a walk looks: records that start in [start, stop); CRCs are checked from `crc_from` on; `known_end` is how
    far the consume queues reach, so that zeros before it are not taken for the end of the log.  `past_gone`: a file
    that is deleted or cut meanwhile is a Break that is missing, and the walk goes on with the next file."""

    start: int
    stop: int
    crc_from: int
    known_end: int = 0
    past_gone: bool = False


def walk(log: LogView, limits: WalkLimits) -> Iterator[Stretch | Break]:
    """Everything from `limits.start` on, in order.  `limits.start` must be where a record, the entry of DLedger's that
    holds one, a blank or a file begins.

    A place with something sound after it is read once more before it counts as unsound: logs grow at their end only,
    so that a writer that the walk had overtaken has written it by then.
    Raises DataLost if a file is deleted or cut meanwhile, unless the limits say to go past it.
    """
    offset: int | None = limits.start
    newest_ms = 0
    while offset is not None and offset < limits.stop:
        number = log.file_number(offset)
        found = _missing(log, offset) if number is None else _standing(log, offset, limits)
        if isinstance(found, Stretch):
            if not len(found.offsets):
                return  # the head of an entry begins before the end of what is asked for, its record after it
            found, is_end = _read_again(log, found, limits)
            if is_end:
                yield found
                if limits.stop > found.end and log.file_number(found.end) is not None:
                    yield Break(found.end, message.NO_DATA, None)
                    return  # what is there by now came after the last look: so may have the rest of the record
                offset = found.end
                continue
        if isinstance(found, Break):
            yield found
            offset = found.resume
        elif isinstance(found, Stretch):
            sound = np.flatnonzero(found.reasons == Reason.SOUND)
            if len(sound):
                newest_ms = int(found.located.store_timestamp()[sound[-1]])
            yield found
            offset = found.end
        elif isinstance(found, message.Torn):
            resume = _resume(log, offset, newest_ms, limits)
            if resume is not None and not isinstance(_standing(log, offset, limits), message.Torn):
                continue  # it was written meanwhile
            yield Break(offset, found.reason, resume)
            offset = resume
        else:
            assert number is not None
            offset = log.files[number].end


def marking_torn_end(items: Iterable[Stretch | Break]) -> Iterator[Stretch | Break]:
    """The items of a walk; the last record before the end of the data is not whole there if it lacks its end.

    A log that is written, copied or was not closed ends so: no CRC covers the topic and the properties of a record.
    """
    held: Stretch | None = None
    for item in items:
        if held is not None:
            is_end = isinstance(item, Break) and item.resume is None
            yield _with_torn_last(held) if is_end else held
            held = None
        if isinstance(item, Stretch) and len(item.offsets) and lacks_end(item.located):
            held = item
        else:
            yield item
    if held is not None:
        yield held


def _with_torn_last(stretch: Stretch) -> Stretch:
    reasons = stretch.reasons.copy()
    reasons[-1] = Reason.NO_END
    return replace(stretch, reasons=reasons)


def _read_again(log: LogView, found: Stretch, limits: WalkLimits) -> tuple[Stretch, bool]:
    """The stretch as it is; where some of its unsound records have become sound meanwhile, up to the first of these,
    or what stands there now.  And whether it ends in unsound ones and nothing followed, when it was looked at.
    """
    bad = np.flatnonzero(found.reasons != Reason.SOUND)
    if not len(bad):
        return found, False
    if bad[0] > found.last_sound and not _goes_on(log, found.end, limits):
        return found, True
    again = _standing(log, int(found.offsets[bad[0]]), limits)
    if not isinstance(again, Stretch):
        return found, False
    healed = bad[np.isin(found.offsets[bad], again.offsets[again.reasons == Reason.SOUND])]
    if not len(healed):
        return found, False
    if healed[0]:
        return found.take(np.arange(len(found.offsets)) < healed[0]), False
    return _read_again(log, again, limits)


def _goes_on(log: LogView, offset: int, limits: WalkLimits) -> bool:
    """Whether something sound, or the end of a file, stands at or after `offset`."""
    if offset >= limits.stop or log.file_number(offset) is None:
        return False
    found = _standing(log, offset, limits)
    if isinstance(found, message.Torn):
        return _resume(log, offset, 0, limits) is not None
    return not isinstance(found, Stretch) or not len(found.offsets) or found.last_sound >= 0


def _missing(log: LogView, offset: int) -> Break:
    return Break(offset, "commitlog files are missing", log.next_start(offset), is_missing=True)


def _standing(log: LogView, offset: int, limits: WalkLimits) -> Stretch | message.Blank | message.Torn | Break:
    """The content of one window from `offset` on; a Break if the file is gone and the walk is to go past it."""
    try:
        return _window(log, offset, limits)
    except DataLost as lost:
        if not limits.past_gone:
            raise
        return Break(offset, lost.reason, log.next_start(offset), is_missing=True, path=lost.path)


def _window(log: LogView, offset: int, limits: WalkLimits) -> Stretch | message.Blank | message.Torn:
    """The whole records from `offset` on that one window holds, at least one; or what stands there instead."""
    number = log.file_number(offset)
    assert number is not None
    framing = log.framing(offset)
    lead = min(framing.gap, offset - log.files[number].start)  # of the entry around a record, for its CRC
    page, position = log.window(offset - lead, WINDOW_SIZE)
    position += lead
    standing = framing.standing(memoryview(page), position)
    if isinstance(standing, message.Torn):
        begin = framing.record_position(page, position)
        size = claimed_size(page, begin)
        if size is None or size > log.readable_end(number) - offset - (begin - position):
            return standing
        if size > len(page) - begin:  # only the window cut it
            page, position = log.window(offset - lead, lead + begin - position + size)
            position += lead
            standing = framing.standing(memoryview(page), position)
            if isinstance(standing, message.Torn):
                return standing
    if isinstance(standing, message.Blank):
        return standing
    starts = framing.chain(page, position)
    base = offset - position
    starts = starts[starts < limits.stop - base]
    offsets = starts + base
    located = locate(page, starts)
    reasons = judge_place(located, offsets)
    if located.sound.any():
        crc_rows = offsets >= limits.crc_from
        if crc_rows.any():
            judge_crcs(located, reasons, crc_rows, gap=framing.gap)
    located.total_size = np.where(located.sound, located.total_size, gather(page, starts, "i4"))
    return Stretch(offsets, located, reasons, log.deleted_before, log.own_bases, log.light_from)


def _resume(log: LogView, offset: int, newest_ms: int, limits: WalkLimits) -> int | None:
    """As `_next_sound`; a file that is gone, and that the walk is to go past, is a place to go on as well."""
    try:
        return _next_sound(log, offset, newest_ms, limits)
    except DataLost as lost:
        if not limits.past_gone:
            raise
        return lost.wanted[0]


def _next_sound(log: LogView, offset: int, newest_ms: int, limits: WalkLimits) -> int | None:
    """The next place after a break where a sound record stands, or None when nothing sound follows.

    A record there must name its own place, pass its CRC, and not be older than the newest before the break: what a
    recovery cut off and left in the file must not come back, as RocketMQ's truncation does not erase.  A recovery
    (`log_end.next_sound`) also takes an older one that a queue entry points at, and passes over no zeros: it decides
    what is thrown away, while a reader loses nothing for good.
    """
    offset += 1
    while offset < limits.stop:
        if log.file_number(offset) is None:
            following = log.next_start(offset)
            if following is None:
                return offset  # the log went on when the limits were set: its files are missing since
            offset = following
        page, position = log.window(offset, WINDOW_SIZE)
        if len(page) - position < message.BLANK.size:
            following = log.next_start(offset)
            if following is None:
                return None
            offset = following
            continue
        hit = _first_sound(page, position, offset - position, newest_ms)
        if hit is not None:
            return hit
        seen = len(page) - position
        if offset > limits.known_end and not page[position : position + min(seen, _ZEROS_SIZE)].any():
            following = log.next_start(offset)
            if following is None or not _has_record(log, following):
                return None
        # A record may begin in this window and end in the next: look at the last stretch of it again.
        number = log.file_number(offset)
        assert number is not None
        at_end = offset + seen >= log.readable_end(number)
        offset = log.readable_end(number) if at_end else offset + max(seen - WINDOW_SIZE // 2, 1)
    return None


def _has_record(log: LogView, offset: int) -> bool:
    page, position = log.window(offset, WINDOW_SIZE)
    return isinstance(log.framing(offset).standing(memoryview(page), position), message.Record)


def _first_sound(page: Bytes, position: int, base: int, newest_ms: int) -> int | None:
    starts = magic_positions(page, position + 4) - message.HEAD.offset["magic"]
    starts = starts[starts >= position]
    if not len(starts):
        return None
    located = locate(page, starts)
    reasons = judge_place(located, starts + base)
    judge_crcs(located, reasons, properties_too=False)  # one that is damaged itself is met as such
    fit = reasons == Reason.SOUND
    fit[fit] = located.take(fit).store_timestamp() >= newest_ms
    hits = np.flatnonzero(fit)
    return int(starts[hits[0]] + base) if len(hits) else None
