"""Whether the queues of a store and its commitlog are of one store: a path may name another store's log.

An entry or two are looked at where all is well.  Only where no entry leads to a record of its own, and the log itself
is sound at its beginning, with a record that no queue knows, are they of two stores: damage leaves some of that as it
was.  A recovery of such a store would make all queues from the wrong log, and a reader would mix the two.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.queue_ends import is_backed
from rmqstore.directory.queue_files import BATCH, QueueFiles, first_behind, holds_message
from rmqstore.errors import NotAStore
from rmqstore.files.disk import directory_of
from rmqstore.formats import message
from rmqstore.formats.names import QueueKey

_QUEUES_MAX = 8
_HEAD_SIZE = message.BLANK.size
_LEAST = 2  # entries that lead astray: a single one may be damaged


class _Astray(NamedTuple):
    """Entry `slot` of a queue leads to byte `offset` of the log, where no such message stands."""

    queue: QueueFiles
    slot: int
    offset: int


def require_own_log(
    root: str, log: LogSpace, queues: Mapping[QueueKey, QueueFiles], advice: str, *, was_killed: bool = False
) -> None:
    """Raises NotAStore for the store at `root` if its entries and records contradict each other throughout; `advice`
    ends what it says.  Of a store that `was_killed` entries that lead to where nothing stands contradict nothing.
    Raises as the queues and the log do when they are read.
    """
    astray = _all_astray(log, queues, was_killed)
    if len(astray) < _LEAST or not _begins_unknown(log, queues):
        return
    queue, slot, offset = astray[0]
    raise NotAStore(
        root,
        f"its queues and the commitlog in {directory_of(log.files[0].path)} are of two stores: entry {slot} of "
        f"{queue.topic}/{queue.queue_id} leads to byte {offset}, where no such message stands, and so do all others "
        f"that were looked at; {advice}",
    )


def _all_astray(log: LogSpace, queues: Mapping[QueueKey, QueueFiles], was_killed: bool) -> list[_Astray]:
    """The entries looked at that lead to no record of their own; none as soon as a single entry does."""
    found = []
    for queue, slot in _some_entries(log, queues):
        entry = queue.read(slot, slot + 1)
        offset = int(entry["physical_offset"][0])
        if not holds_message(queue.kind, entry)[0] or offset < log.start:
            continue
        if is_backed(queue, slot, entry[0], log):
            return []
        if was_killed and not any(log.read(offset, _HEAD_SIZE)):
            continue  # a power cut takes records whose entries are on the disk already
        found.append(_Astray(queue, slot, offset))
    return found


def _some_entries(log: LogSpace, queues: Mapping[QueueKey, QueueFiles]) -> Iterator[tuple[QueueFiles, int]]:
    """The last entries of some queues, then the first and the middle ones, of what the log has not let expire."""
    written = [queue for queue in queues.values() if queue.files]
    chosen = written[:: max(len(written) // _QUEUES_MAX, 1)][:_QUEUES_MAX]
    ends = []
    for queue in chosen:  # the first entry that leads to its own record ends it: so one file is opened as a rule
        first, end = queue.first_slot(), queue.unbroken_end()
        ends.append((queue, first, end))
        if end > first:
            yield queue, end - 1
    for queue, first, end in ends:
        kept = first_behind(queue, first, end, log.start)
        yield from ((queue, slot) for slot in sorted({kept, (kept + end) // 2}) if slot < end - 1)


def _begins_unknown(log: LogSpace, queues: Mapping[QueueKey, QueueFiles]) -> bool:
    """Whether a sound record begins the log that its queue has no entry for."""
    begin = log.start + log.framing(log.start).gap
    record = log.record_at(begin)
    if record is None:
        return False
    queue = queues.get((record.topics[0][0], int(record.queue_ids[0])))
    if queue is None or queue.kind == BATCH:
        return queue is None
    slot = int(record.queue_offsets[0])
    entry = queue.read(slot, slot + 1)
    is_its = int(entry["physical_offset"][0]) == begin and is_backed(queue, slot, entry[0], log)
    return not (holds_message(queue.kind, entry)[0] and is_its)
