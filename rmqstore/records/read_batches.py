"""The walk that finds batches of records in a log: from one to the next, as far as they are sound."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.formats import dledger, message
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.formats.framing import Framing, bare
from rmqstore.formats.message_columns import Ints, Located, Mask, gather_rows, locate
from rmqstore.formats.record_chain import WINDOW_SIZE, claimed_size
from rmqstore.records.batch import EntryHeads, RecordBatch
from rmqstore.records.soundness import TEXT, Reason, judge_crcs, judge_place

# --- The heads of DLedger's entries around the records of a log, held against them and against each other.


@dataclass(frozen=True, slots=True)
class LastHead:
    """The index and the term of the last entry of a walk, -1 before the first."""

    index: int = -1
    term: int = -1

    def judged(self, batch: RecordBatch, data: bytes, offset: int) -> "tuple[RecordBatch | message.Torn, LastHead]":
        """The records of `batch` as far as their entries are sound, with their `heads`, and the last of these; or what
        is wrong with the first one.

        `data` begins at `offset` of the log, and the batch was found in it.  A record at its very beginning, behind
        the head of its entry, is believed.
        """
        page = np.frombuffer(data, np.uint8)
        starts = batch.offsets - offset - ENTRY_HEAD.size
        first = int(starts[0] < 0)
        heads = gather_rows(page, starts[first:], ENTRY_HEAD.dtype)
        if not len(heads):
            return batch, LastHead()
        wrong = self._wrong(batch, first, heads)
        count = int(np.argmax(wrong)) if wrong.any() else len(heads)
        if count + first == 0:
            return message.Torn(offset, self._reason(batch, heads)), self
        last = LastHead(int(heads["index"][count - 1]), int(heads["term"][count - 1])) if count else self
        if count < len(heads):
            kept = batch.take(np.arange(count + first))
            batch = RecordBatch(kept.offsets, kept.located, int(kept.offsets[-1] + kept.sizes[-1]))
        batch.heads = heads[:count]
        return batch, last

    def _wrong(self, batch: RecordBatch, first: int, heads: EntryHeads) -> Mask:
        index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
        sizes = batch.sizes[first:]
        wrong: Mask = heads["magic"] != dledger.MAGIC_MESSAGE
        wrong |= (heads["body_size"] != sizes) | (heads["size"] != sizes + ENTRY_HEAD.size)
        wrong |= heads["offset"] != batch.offsets[first:] - ENTRY_HEAD.size
        before = np.concatenate(([self.index], index[:-1]))
        wrong |= ((index != before + 1) & (before >= 0)) | (index < 0)
        wrong |= term < np.concatenate(([self.term], term[:-1]))
        return wrong

    def _reason(self, batch: RecordBatch, heads: EntryHeads) -> str:
        """The reason why the first entry is wrong."""
        head: npt.NDArray[np.void] = heads[0]
        size = int(batch.sizes[0])
        if head["magic"] != dledger.MAGIC_MESSAGE:
            return f"an entry of kind {int(head['magic'])}, which is no message's"
        if head["size"] != size + ENTRY_HEAD.size or head["body_size"] != size:
            return f"the entry says that it has {int(head['size'])} bytes, {int(head['body_size'])} of them its body"
        if head["offset"] != batch.offsets[0] - ENTRY_HEAD.size:
            return f"the entry says that its offset is {int(head['offset'])}"
        said = f"entry {int(head['index'])} of term {int(head['term'])}"
        return f"{said} follows entry {self.index} of term {self.term}"


# ---

Read = Callable[[int, int], bytes]


class CrcChecks(NamedTuple):
    """Which CRCs are held against what they cover."""

    bodies: bool = False
    properties: bool = False


NO_CHECKS = CrcChecks()


def read_batches(
    read: Read,
    start: int,
    stop: int,
    file_size: int,
    *,
    checks: CrcChecks = NO_CHECKS,
    window_size: int = WINDOW_SIZE,
    places: Ints | None = None,
    framing: Callable[[int], Framing] = bare,
) -> Iterator[RecordBatch | message.Blank | message.Torn]:
    """Everything that stands in the log in [start, stop), in order: records, and where a file ends in a blank.

    `read(offset, size)` gives bytes of the log, fewer where it ends.  `start` is where a record, a blank or a file
    begins.  Ends at `stop`, or with the first place where no sound record stands: lengths that do not add up, a
    physicalOffset field that names another place, or a wrong CRC of those that `checks` names.  `position` of a Blank
    and a Torn is its offset in the log.  A batch is what one window of `window_size` bytes holds.  `places`, ascending,
    are where records are said to begin in the log: as far as that is so, they are found faster.  `framing` says how
    records stand in the file of an offset; entries whose numbers do not follow each other end the walk as well.
    """
    offset, topic, heads = start, b"", LastHead()
    while offset < stop:
        file_end = offset - offset % file_size + file_size
        room = min(file_end, stop) - offset
        data = read(offset, min(room, window_size))
        framed = framing(offset)
        begin = framed.record_position(data, 0)
        size = claimed_size(data, begin)
        if size is not None and len(data) - begin < size <= room - begin:  # only the window cut it
            data = read(offset, begin + size)
        standing = _standing(data, offset, topic, checks, _within(places, offset, len(data)), framed)
        if framed.gap and isinstance(standing, RecordBatch):
            standing, heads = heads.judged(standing, data, offset)
        yield standing
        if isinstance(standing, message.Torn):
            return
        if isinstance(standing, message.Blank):
            offset = file_end
        else:
            offset = standing.end
            topic = standing.located.topic or standing.topic_bytes(-1)


def _within(places: Ints | None, offset: int, size: int) -> Ints | None:
    """Those of the places that lie in `size` bytes from `offset` on, as positions there."""
    if places is None:
        return None
    low, high = np.searchsorted(places, (offset, offset + size)).tolist()
    return places[low:high] - offset


def _standing(
    data: bytes, offset: int, topic: bytes, checks: CrcChecks, places: Ints | None, framing: Framing
) -> RecordBatch | message.Blank | message.Torn:
    """The first thing in `data`, which begins at `offset`; `topic` is that of the record before, `places` where records
    may be.
    """
    if framing.gap:
        whole = framing.standing(data, 0)
        if not isinstance(whole, message.Record):
            return replace(whole, position=offset)
    elif len(data) >= message.BLANK.size:
        size, magic = message.BLANK.struct.unpack_from(data)
        if magic == message.MAGIC_BLANK:
            return message.Blank(offset, size)
    page = np.frombuffer(data, np.uint8)
    starts = framing.chain(page, 0, places)
    if not len(starts):
        return _torn(data, offset, "")
    located = locate(page, starts, topic=topic)
    offsets = starts + offset
    sound, reason = _judged(located, offsets, checks, framing.gap)
    if not sound.all():
        count = int(np.argmin(sound))
        if not count:
            return _torn(data, offset, reason)
        located, offsets = located.take(np.arange(count)), offsets[:count]
    return RecordBatch(offsets, located, int(offsets[-1] + located.total_size[-1]))


def _judged(located: Located, offsets: Ints, checks: CrcChecks, gap: int) -> tuple[Mask, str]:
    """Which records are sound, and what is wrong with the first one if it is not ("": its lengths)."""
    reasons = judge_place(located, offsets)
    if any(checks):
        judge_crcs(located, reasons, bodies_too=checks.bodies, properties_too=checks.properties, gap=gap)
    first = Reason(int(reasons[0]))
    text = TEXT[first]
    if first is Reason.NOT_WHOLE:
        text = ""
    elif first is Reason.WRONG_PLACE:
        text = f"the record's physicalOffset field says {int(located.head('physical_offset')[0])}"
    return reasons == Reason.SOUND, text


def _torn(data: bytes, offset: int, reason: str) -> message.Torn:
    if not reason:
        standing = message.read_record(data, 0)
        reason = standing.reason if isinstance(standing, message.Torn) else "no whole record stands here"
    return message.Torn(offset, reason)
