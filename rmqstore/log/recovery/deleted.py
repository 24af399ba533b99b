"""Topics that were deleted, as a recovery plan takes them: their records belong to no queue, and what is left of their
queues goes."""

from collections.abc import Mapping
from dataclasses import replace

from rmqstore.directory.deleted_queues import HeldPlaces, held_places, honour, own_places
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.formats.deleted_topics import Deleted, DeletedBefore, DeletedTopic, DeletedTopics
from rmqstore.formats.names import QueueKey

_GOES = "its topic was deleted"


def without_deleted_topics(store: StoreView) -> StoreView:
    """The store with `deleted_before` set, and without the entries that an interrupted deletion left."""
    if not store.deleted_topics:
        return store
    views = [
        (key, view) for key, view in (*store.queues.items(), *store.batch_queues.items())
        if key in store.deleted_topics or key[0] in store.deleted_topics
    ]  # fmt: skip
    held = [(key, view, places) for key, view in views if (places := _own_places(store, view)) is not None]
    found = honour(store.deleted_topics, [(key, places) for key, _, places in held])
    for (_, view, _), goes in zip(held, found.leaving, strict=True):
        if goes:
            view.set_aside(_GOES)
    return replace(store, deleted_before=found.before)


def with_topics_made_again(store: StoreView, begun: Mapping[QueueKey, int]) -> StoreView:
    """The store with the topics of queues that begin again, at places of the log, among those that were deleted: of
    other queues of theirs, too, what stands in front of that was, as all of a topic go at once.  The same where that
    tells nothing new.
    """
    ends: dict[Deleted, int] = {}
    for (topic, _), begin in begun.items():
        ends[topic] = min(begin, ends.get(topic, begin))
    for key, view in (*store.queues.items(), *store.batch_queues.items()):
        if view.topic in ends and key not in begun:
            places = _own_places(store, view)
            ends[view.topic] = min(ends[view.topic], ends[view.topic] if places is None else places.first)
    new = {topic: end for topic, end in ends.items() if end > store.deleted_before.get(topic, store.log.start)}
    if not new:
        return store
    topics = {**store.deleted_topics, **{topic: DeletedTopic(end) for topic, end in new.items()}}
    return replace(store, deleted_topics=topics, deleted_before={**store.deleted_before, **new})


def with_queues_begun(store: StoreView, begun: Mapping[QueueKey, int]) -> StoreView:
    """The store with queues that somebody said are to begin at places of the log: what they had in front of these is in
    no queue, and entries that lead there go.  The same where that tells nothing new.
    """
    new: dict[Deleted, int] = {key: at for key, at in begun.items() if at > store.deleted_before.get(key, 0)}
    if not new:
        return store
    for view in (store.queues[key] for key in begun if key in new and key in store.queues):
        view.set_aside("its queue begins with a later record")
    topics = {**store.deleted_topics, **{key: DeletedTopic(end) for key, end in new.items()}}
    return replace(store, deleted_topics=topics, deleted_before={**store.deleted_before, **new})


def _own_places(store: StoreView, view: QueueView) -> HeldPlaces | None:
    """Where a queue's first and last message stand, if its files are its own."""
    return own_places(held_places(view, view.queue.kind, view.first, view.end), store.log, view.key)


def noted_after(noted: DeletedTopics, ends: DeletedBefore, log: tuple[int, int]) -> dict[Deleted, DeletedTopic]:
    """The note of deleted topics that is right once the log holds [start, end): records past its end will be new ones,
    those before its start are gone."""
    start, end = log
    after = {of: replace(one, log_end=min(ends[of], end)) for of, one in noted.items()}
    return {of: one for of, one in after.items() if one.log_end > start or one.is_pending}
