"""Units of a batch queue held against the records that they point at.

An entry of a plain queue has its queue offset by its place.  A unit says itself which queue offsets its batch has, and
so does the record: where units do not follow each other, and at their end, the records decide.
"""

import numpy as np
import numpy.typing as npt

from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import BATCH, QueueFiles, holds_message
from rmqstore.formats.inner_batch import numbers_said
from rmqstore.formats.message_columns import Ints, Mask

Units = npt.NDArray[np.void]
_MARGIN = 64  # units beside those that were found by halving


def settled(queue: QueueFiles, units: Units, view: LogView) -> tuple[Ints, Units]:
    """Those of consecutive units (BATCH_QUEUE_ENTRY, n) that stand for a batch: their rows int64[m], and copies of them
    with the queue offsets that their records say.

    Records are read where units do not follow each other, and the last one's.  A unit without a record of this queue
    is left out, unless it follows the one before it: its reader is told what is wrong then.
    Raises DataLost if a log file vanishes meanwhile.
    """
    rows = np.flatnonzero(holds_message(BATCH, units))
    found = units[rows]
    kept = np.ones(len(rows), bool)
    for row in np.flatnonzero(_is_in_doubt(found)).tolist():
        said = _numbers_said(queue, found[row], view)
        if said is None:
            kept[row] = row > 0 and kept[row - 1] and unit_end(found[row - 1]) == int(found[row]["base_queue_offset"])
        else:
            found[row]["base_queue_offset"], found[row]["message_count"] = said
    return rows[kept], found[kept]


def slots_around(queue: QueueFiles, start: int, end: int) -> tuple[int, int]:
    """The slots [first, last) in which the units with the queue offsets [start, end) stand, by halving, and some at
    both sides; where units are damaged they may stand elsewhere.
    """
    first, last = queue.first_slot(), queue.written_end()
    low = _first_at(queue, first, last, start)
    high = _first_at(queue, low, last, end)
    return max(low - _MARGIN, first), min(high + _MARGIN, last)


def _first_at(queue: QueueFiles, low: int, high: int, queue_offset: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if int(queue.read(middle, middle + 1)["base_queue_offset"][0]) < queue_offset:
            low = middle + 1
        else:
            high = middle
    return low


def unit_end(unit: np.void) -> int:
    """The queue offset after a unit's batch."""
    return int(unit["base_queue_offset"]) + int(unit["message_count"])


def _follows(units: Units) -> Mask:
    """Which units begin where the one before them ends, bool[n]; the first one does."""
    bases = units["base_queue_offset"].astype(np.int64)
    ends = bases + units["message_count"]
    result = np.ones(len(units), bool)
    result[1:] = (bases[1:] == ends[:-1]) & (units["physical_offset"][1:] > units["physical_offset"][:-1])
    return result


def _is_in_doubt(units: Units) -> Mask:
    """Units beside which another does not follow, and the last one."""
    breaks = ~_follows(units)
    doubt = breaks.copy()
    doubt[:-1] |= breaks[1:]
    doubt[-1:] = True
    return doubt


def _numbers_said(queue: QueueFiles, unit: np.void, view: LogView) -> tuple[int, int] | None:
    """Queue offset and number of messages of the batch that a unit points at, as its record has them; None where no
    whole record of this queue stands, or where it contradicts itself.  A unit that is older than the log is believed.
    Raises DataLost.
    """
    base, count = int(unit["base_queue_offset"]), int(unit["message_count"])
    if int(unit["physical_offset"]) < view.start:
        return base, count
    record = view.whole_record(int(unit["physical_offset"]), int(unit["size"]))
    if record is None or (record.topic, record.queue_id) != (queue.topic.encode(), queue.queue_id):
        return None
    return numbers_said(record, base, count)
