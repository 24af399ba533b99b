"""Whether stores are still those that a stream has read: a mark of one message of each broker goes with its offsets.

Offsets alone would be taken for those of another store in the same place, if that has more messages by then.  The mark
of a queue is that of the last message before where the stream stands.
"""

from rmqstore.errors import DataLost
from rmqstore.snapshot.stream.read_marks import mark_of
from spark_source.stream.batches import ADVICE, NextBatch, Queues
from spark_source.stream.offsets import Offsets

_REASON = "another message stands there than the stream has read: the store was cut or made again, or is another one"


def marks_after(batch: NextBatch, known: Offsets) -> Offsets:
    """One mark a broker for the offset in which a batch ends; it changes with the queue that it is about alone."""
    marks = {place: mark for place, mark in known.items() if place in batch.ends and place not in batch.lows}
    marked = {place[0] for place in marks}
    for place in sorted(batch.lows, key=lambda place: (place not in known, place)):
        mark = None if place[0] in marked else mark_of(*batch.queues[place], batch.ends[place] - 1)
        if mark is not None:
            marks[place] = mark
            marked.add(place[0])
    return marks


def refuse_other_logs(queues: Queues, standing: Offsets, marks: Offsets) -> None:
    """Raises DataLost where the last message that was read of a queue is another one now.  What is deleted, or past the
    end of its queue, is told elsewhere."""
    for place, known in marks.items():
        offset = standing.get(place, 0)
        if place not in queues or offset < 1:
            continue
        store, queue = queues[place]
        found = mark_of(store, queue, offset - 1)
        if found is not None and found != known:
            held = (queue.min_offset, queue.max_offset)
            name = f"{place[1]}/{place[2]}"
            raise DataLost(name, (offset - 1, offset), held, queue.files.directory, f"{_REASON}; {ADVICE}")
