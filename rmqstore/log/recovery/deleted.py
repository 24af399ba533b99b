"""Topics that were deleted, as a recovery plan takes them: their records belong to no queue, and what is left of their
queues goes."""

from collections.abc import Mapping
from dataclasses import replace

from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.formats.deleted_topics import DeletedTopic, DeletedTopics, honoured
from rmqstore.log.recovery.queue_tracks import leading_blanks

_GOES = "its topic was deleted"


def without_deleted_topics(store: StoreView) -> StoreView:
    """The store with `deleted_before` set, and without the entries that an interrupted deletion left."""
    if not store.deleted_topics:
        return store
    ends: dict[str, int] = {}
    for topic, noted in store.deleted_topics.items():
        queues = [queue for queue in (*store.queues.values(), *store.batch_queues.values()) if queue.topic == topic]
        held = [(queue, places) for queue in queues if (places := _places(queue)) is not None]
        ends[topic], leaving = honoured(noted, [places for _, places in held])
        for (queue, _), goes in zip(held, leaving, strict=True):
            if goes:
                queue.set_aside(_GOES)
    return replace(store, deleted_before=ends)


def _places(queue: QueueView) -> tuple[int, int] | None:
    """Where the records of a queue's first and last entry stand; None where nothing is written."""
    first = queue.first if queue.is_batch else queue.first + leading_blanks(queue)
    entries = [queue.read(slot, slot + 1) for slot in (first, queue.end - 1)]
    if first >= queue.end or not all(len(entry) for entry in entries):
        return None
    low, high = (int(entry["physical_offset"][0]) for entry in entries)
    return low, high


def noted_after(noted: DeletedTopics, ends: Mapping[str, int], log: tuple[int, int]) -> dict[str, DeletedTopic]:
    """What is to be noted of deleted topics once the log holds [start, end): what comes behind its end is new, and what
    was before its start is gone."""
    start, end = log
    after = {topic: replace(one, log_end=min(ends[topic], end)) for topic, one in noted.items()}
    return {topic: one for topic, one in after.items() if one.log_end > start or one.is_pending}
