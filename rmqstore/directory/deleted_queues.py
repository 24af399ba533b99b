"""Queues of topics that were deleted: what the log and old files still hold of them is in no queue."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.queue_files import QueueFiles, Slots, holds_message, leading_blanks
from rmqstore.errors import DataLost
from rmqstore.formats.deleted_topics import Deleted, DeletedBefore, DeletedTopics, honoured
from rmqstore.formats.names import QueueKey, is_light_queue


class HeldPlaces(NamedTuple):
    """Where in the log the records of a queue's first and last message stand."""

    first: int
    last: int


class Honoured(NamedTuple):
    """`before` which offset of the log topics, and queues of others, have no messages.  `leaving`: which of the queues
    that were asked about hold nothing but what the deletion leaves of them.
    """

    before: dict[Deleted, int]
    leaving: list[bool]


def held_places(slots: Slots, kind: str, first: int, end: int) -> HeldPlaces | None:
    """The places by the entries of slots [first, end), which are written; None where none is of a message."""
    first += leading_blanks(slots, first, end)
    entries = [slots.read(slot, slot + 1) for slot in (first, end - 1)] if first < end else []
    if not entries or not all(len(entry) for entry in entries):
        return None
    low, high = (int(entry["physical_offset"][0]) for entry in entries)
    return HeldPlaces(low if holds_message(kind, entries[0])[0] else high, high)


def of_before(held: Sequence[HeldPlaces], sure: int) -> list[bool]:
    """Which queues of a topic that was deleted and made again are as they were before that, if `held[sure]` is.

    All of them went at once: what has a message in front of the last one of such a queue is one.
    """
    reach = held[sure].last
    found = [False] * len(held)
    for row in sorted(range(len(held)), key=lambda row: held[row].first):
        if held[row].first <= reach:
            found[row], reach = True, max(reach, held[row].last)
    return found


def honour(noted: DeletedTopics, held: Iterable[tuple[QueueKey, HeldPlaces]]) -> Honoured:
    """The note of deleted topics applied to these queues, given by key and places."""
    queues = list(held)
    before, leaving = dict[Deleted, int](), [False] * len(queues)
    rows_of = defaultdict[Deleted, list[int]](list)
    for row, (key, _) in enumerate(queues):
        rows_of[key].append(row)
        rows_of[key[0]].append(row)
    for of, one in noted.items():
        rows = rows_of.get(of, [])
        before[of], goes = honoured(one, [queues[row][1] for row in rows])
        for row, is_leaving in zip(rows, goes, strict=True):
            leaving[row] |= is_leaving
    return Honoured(before, leaving)


def own_places(places: HeldPlaces | None, log: LogSpace, key: QueueKey) -> HeldPlaces | None:
    """The places that a queue's entries tell; None where there is none, or the record at one is another queue's: then
    its files are not its own, and tell nothing of what was deleted or brought back.
    """
    if places is None or is_light_queue(key[0]):
        return places
    for place in set(places):
        with suppress(OSError, DataLost):  # what cannot be read tells nothing
            record = log.record_at(place)
            if record is not None and (record.topics[0][0], int(record.queue_ids[0])) != key:
                return None
    return places


def deleted_before(noted: DeletedTopics, queues: Iterable[QueueFiles], log: LogSpace) -> dict[Deleted, int]:
    """Before which offset of the log topics and queues have no messages, as a reader of these queues has it."""
    if not noted:
        return {}
    held = []
    for queue in queues:
        key = queue.topic, queue.queue_id
        if (key in noted or key[0] in noted) and (places := _places(queue, log)):
            held.append((key, places))
    return honour(noted, held).before


def without_deleted(queue: QueueFiles, ends: DeletedBefore, log: LogSpace) -> QueueFiles:
    """The queue, without files if these are left of a deletion that goes on, or that a crash interrupted."""
    end = max(ends.get(queue.topic, 0), ends.get((queue.topic, queue.queue_id), 0))
    if not end:
        return queue
    places = _places(queue, log)
    if places is None or places.last >= end:
        return queue
    return replace(queue, files=())


def _places(queue: QueueFiles, log: LogSpace) -> HeldPlaces | None:
    places = held_places(queue, queue.kind, queue.first_slot(), queue.unbroken_end())
    return own_places(places, log, (queue.topic, queue.queue_id))
