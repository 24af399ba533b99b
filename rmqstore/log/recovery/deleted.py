"""Topics that were deleted, as a recovery plan takes them: their records belong to no queue, and what is left of their
queues goes."""

from collections.abc import Mapping
from dataclasses import replace

from rmqstore.directory.deleted_queues import held_places, honour
from rmqstore.directory.store_view import StoreView
from rmqstore.formats.deleted_topics import DeletedTopic, DeletedTopics

_GOES = "its topic was deleted"


def without_deleted_topics(store: StoreView) -> StoreView:
    """The store with `deleted_before` set, and without the entries that an interrupted deletion left."""
    if not store.deleted_topics:
        return store
    views = [
        view for view in (*store.queues.values(), *store.batch_queues.values()) if view.topic in store.deleted_topics
    ]
    held = [(view, places) for view in views
            if (places := held_places(view, view.queue.kind, view.first, view.end)) is not None]  # fmt: skip
    found = honour(store.deleted_topics, [(view.topic, places) for view, places in held])
    for (view, _), goes in zip(held, found.leaving, strict=True):
        if goes:
            view.set_aside(_GOES)
    return replace(store, deleted_before=found.before)


def noted_after(noted: DeletedTopics, ends: Mapping[str, int], log: tuple[int, int]) -> dict[str, DeletedTopic]:
    """The note of deleted topics that is right once the log holds [start, end): records past its end will be new ones,
    those before its start are gone."""
    start, end = log
    after = {topic: replace(one, log_end=min(ends[topic], end)) for topic, one in noted.items()}
    return {topic: one for topic, one in after.items() if one.log_end > start or one.is_pending}
