"""Damage that no scan of the queues would come across."""

from collections.abc import Sequence

from rmqstore.errors import Corrupt
from rmqstore.snapshot.request import QueueRange
from rmqstore.snapshot.survey.extents import StoreExtent


def refuse_unreachable_damage(store: StoreExtent, ranges: Sequence[QueueRange]) -> None:
    """Raises Corrupt for damaged records that were not dispatched and may be of these ranges."""
    topics = {span.topic for span in ranges if _may_meet_the_end(store, span)}
    known = {topic for topic, _ in store.queues}
    for damage in store.damage if topics else ():
        is_unreached = damage.offset >= store.walk_from or not damage.is_reached
        # A topic that no queue has is what the damage made of a name.
        if is_unreached and (damage.topic not in known or damage.topic in topics):
            raise Corrupt(damage.path, damage.position, damage.reason)


def _may_meet_the_end(store: StoreExtent, span: QueueRange) -> bool:
    """Whether what is damaged past the entries may be of a range: it reads something, or all that the queue has."""
    return span.start < span.end or span.end >= store.queues[span.topic, span.queue_id].max_offset
