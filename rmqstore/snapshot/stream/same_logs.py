"""Whether stores are still those that a stream has read: a mark of one message of each topic goes with its offsets.

Offsets alone would be taken for those of another store in the same place, of one that lost its newest messages and
got others, or of a topic that was deleted and made again, if that has more messages by then.  The mark of a queue is
that of the last message before where the stream stands.  One a topic is enough, of the queue whose last message lies
furthest in the log.  A log loses its end, so that this message is lost with any other that was read; and the other
queues of a topic that was made again end before, or came to more messages after its marked one was told.  Retention
deletes the oldest messages of a log: the marked one of a topic goes after all others that were read of it.
"""

from collections.abc import Collection, Iterable, Mapping
from logging import Logger
from typing import NamedTuple
from zlib import crc32

from rmqstore.directory.listing import file_with
from rmqstore.directory.queue_files import SIMPLE, QueueFiles, open_queue
from rmqstore.errors import DataLost, OtherLog, StoreChanging
from rmqstore.files.disk import read_part
from rmqstore.formats import message
from rmqstore.snapshot.request import Place
from rmqstore.snapshot.stream.batches import ADVICE, Queues
from rmqstore.snapshot.stream.offsets import Offsets
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

# --- A mark of one message that was read: whoever comes again can tell whether the store is still the same one.

# A record's head with its addresses and times, and what comes after that; no record changes once it is written.
_MARKED_SIZE = 256
# Bytes of the log that are walked at the most for a message that no queue's file leads to yet.
_WALKED_SIZE = 1024 * 1024


class ReadMark(NamedTuple):
    """Where in the log a message's record begins, and the checksum of its first bytes."""

    position: int
    checksum: int


def position_of(store: StoreExtent, queue: QueueExtent, queue_offset: int) -> int:
    """Where in the log a message's record begins, as its queue's files say; the log's end for one that is in no file
    yet, -1 where nobody can tell."""
    if queue.files.kind != SIMPLE or not queue.min_offset <= queue_offset < queue.max_offset:
        return -1
    if queue_offset >= queue.entry_end:
        return store.log_end
    try:
        return int(queue.files.read(queue_offset, queue_offset + 1)["physical_offset"][0])
    except (DataLost, OSError, IndexError):  # its owner deleted it
        return -1


def mark_of(store: StoreExtent, queue: QueueExtent, queue_offset: int) -> ReadMark | None:
    """The mark of that message; None where the queue's files do not lead to it: it is not dispatched yet, deleted, or
    of an inner batch.
    """
    topic, queue_id = queue.key
    if queue.files.kind != SIMPLE or not queue.min_offset <= queue_offset < queue.max_offset:
        return None
    try:
        entry = open_queue(store.disk, store.path, topic, queue_id, SIMPLE).read(queue_offset, queue_offset + 1)[0]
    except (DataLost, OSError):  # its owner deleted it
        return None
    return _mark_at(store, queue, queue_offset, int(entry["physical_offset"]), int(entry["size"]))


def mark_in_log(store: StoreExtent, queue: QueueExtent, queue_offset: int) -> ReadMark | None:
    """As `mark_of`, of a message that the log alone tells of, which is walked for it; None where that would be long."""
    if queue.files.kind != SIMPLE or queue.gap_bytes > _WALKED_SIZE or queue_offset < queue.entry_end:
        return None
    from rmqstore.snapshot.scan.entry_runs import EntryReader  # noqa: PLC0415  where the queue has no entry

    try:
        with store.view("auto") as view:
            for run in EntryReader(store.split([queue.span(queue_offset, queue_offset + 1)]), view).runs(
                queue.span(queue_offset, queue_offset + 1)
            ):
                if len(run.entries):
                    offset, size = (int(run.entries[name][0]) for name in ("physical_offset", "size"))
                    return _mark_at(store, queue, queue_offset, offset, size)
    except (DataLost, StoreChanging, OSError):
        return None
    return None


def _mark_at(store: StoreExtent, queue: QueueExtent, queue_offset: int, offset: int, size: int) -> ReadMark | None:
    """The mark of a record, if it is that message's: an entry may be left from before the queue was cut."""
    try:
        file = file_with(store.log_files, offset)
        if file is None or size < message.RECORD_SIZE_MIN or offset + size > store.log_end:
            return None
        head = read_part(store.disk, file.path, offset - file.start, min(size, _MARKED_SIZE))
    except (DataLost, OSError):
        return None
    if len(head) < message.HEAD.size:
        return None
    fields = message.HEAD.read(head)
    is_its_own = (fields["total_size"], fields["queue_id"], fields["queue_offset"]) == (
        size, queue.key[1], queue_offset,
    )  # fmt: skip
    return ReadMark(offset, crc32(head)) if is_its_own else None


# ---

_REASON = (
    "another message stands there than the stream has read: the store was cut or made again, or is another one, or its "
    "topic was deleted and made again"
)
_OLDER_REASON = (
    "the newest message that the stream has read of the topic is gone, and older ones are there: the store was made "
    "again, or is another one, or its topic was deleted and made again"
)
# Queues a batch whose files do not lead to the newest message yet, so that it is looked for in the log.
_WALKED_MAX = 32


def marks_after(moved: Collection[Place], queues: Queues, ends: Offsets, known: Offsets) -> Offsets:
    """One mark for each topic and broker: where a stream stands at `ends`, after the queues that `moved`.  `known` are
    the marks of before.  A mark changes only where its own queue moved.
    """
    marks = {place: mark for place, mark in known.items() if place in ends and place not in moved}
    of_topics: dict[tuple[str, str], list[Place]] = {}
    for place in sorted(place for place in moved if place in queues):
        of_topics.setdefault(place[:2], []).append(place)
    walks_left = _WALKED_MAX
    for topic, places in of_topics.items():
        held = [place for place in marks if place[:2] == topic and place in queues]
        found, walked = _newest([*places, *held], queues, ends, {place: marks[place] for place in held}, walks_left)
        walks_left -= walked
        if found is not None:
            place, mark = found
            marks = {other: sum_ for other, sum_ in marks.items() if other[:2] != topic} | {place: mark.checksum}
    return marks


def _newest(
    places: Iterable[Place], queues: Queues, ends: Offsets, held: Offsets, walks_left: int
) -> tuple[tuple[Place, ReadMark] | None, int]:
    """The queue whose last message lies furthest in the log, with its mark, and how many messages were walked for.

    A mark that is `held` is not read again: it would be the mark of a store that came in between.
    """
    by_position = sorted(((position_of(*queues[place], ends[place] - 1), place) for place in places), reverse=True)
    newest: tuple[Place, ReadMark] | None = None
    walked = 0
    for position, place in by_position:
        if newest is not None and position <= newest[1].position:
            break
        store, queue = queues[place]
        mark = None
        if position < store.log_end:
            mark = mark_of(store, queue, ends[place] - 1)
        elif walked < walks_left:
            walked += 1
            mark = mark_in_log(store, queue, ends[place] - 1)
        if mark is not None and place in held:
            mark = ReadMark(mark.position, held[place])
        if mark is not None and (newest is None or mark.position > newest[1].position):
            newest = place, mark
    return newest, walked


class SameLogs:
    """Looks at marks, and at none again while its queue only grew."""

    def __init__(self) -> None:
        self._seen: dict[Place, tuple[QueueFiles, int, int]] = {}

    def others(self, queues: Queues, standing: Offsets, marks: Offsets) -> dict[Place, str]:
        """The marked queues of topics that are not those that were read, with the reason.  A queue that ends before
        where the stream stands is told elsewhere."""
        found = dict[Place, str]()
        unmarked = []
        for place, known in marks.items():
            offset = standing.get(place, 0)
            if offset < 1:
                continue
            if place not in queues or offset <= queues[place][1].min_offset:
                unmarked.append(place)
            elif not self._is_same(place, queues, offset, known):
                found[place] = _REASON
        if unmarked:
            held = _topics_held(queues, standing)
            found |= {place: _OLDER_REASON for place in unmarked if place[:2] in held}
        return found

    def _is_same(self, place: Place, queues: Queues, offset: int, known: int) -> bool:
        store, queue = queues[place]
        seen = self._seen.get(place)
        if seen is not None and seen[0] is queue.files and seen[1:] == (offset, known):
            return True
        found = mark_of(store, queue, offset - 1) or mark_in_log(store, queue, offset - 1)
        if found is not None and found.checksum == known:
            self._seen[place] = queue.files, offset, known
        return found is None or found.checksum == known


def refuse_other_logs(others: Mapping[Place, str], queues: Queues, standing: Offsets) -> None:
    """Raises OtherLog for the first of the queues that `SameLogs.others` found."""
    for place, reason in others.items():
        held, path = None, f"broker {place[0]}"
        if place in queues:
            queue = queues[place][1]
            held, path = (queue.min_offset, queue.max_offset), queue.files.directory
        offset = standing[place]
        raise OtherLog(f"{place[1]}/{place[2]}", (offset - 1, offset), held, path, f"{reason}; {ADVICE}")


def tell_other_logs(log: Logger, others: Mapping[Place, str], standing: Offsets) -> None:
    """Logs a line for each of the queues that `SameLogs.others` found, where the stream goes on all the same."""
    for place, reason in others.items():
        broker, topic, queue_id = place
        log.warning(
            "%s of %s is another log than was read up to offset %d of queue %d (%s); its messages before the offsets "
            "where the stream stands are passed over, and not counted; a read from the beginning "
            "(a new checkpointLocation) has all",
            topic, broker, standing[place], queue_id, reason,
        )  # fmt: skip


def _topics_held(queues: Queues, standing: Offsets) -> set[tuple[str, str]]:
    """Brokers with topics of which messages are there that the stream has read, or stands after."""
    return {
        place[:2]
        for place, (_, queue) in queues.items()
        if queue.files.kind == SIMPLE and queue.min_offset < min(standing.get(place, 0), queue.max_offset)
    }
