"""Which queues a stream reads, of those that there are at the moment: new ones join in, missing ones are no mistake."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rmqstore.errors import Rejected, UnknownTopic
from rmqstore.formats.names import is_system_topic
from rmqstore.snapshot.columns import near_names
from rmqstore.snapshot.plan.selection import Bounds, Wanted, WantedTime, known_topics, resolved_start, selected_queues
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.request import Place
from rmqstore.snapshot.stream.offsets import Offsets
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent


@dataclass(frozen=True)
class StreamSelection:
    """One of `topics`, `pattern` and `assign`, with the meaning that they have in `Snapshot.select`."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assign: Mapping[str, Any] | None = None
    include_system_topics: bool = False

    def start(
        self, snapshot: SnapshotReader, start: Wanted, start_time: WantedTime | None = None, **how: Any
    ) -> Offsets:
        """Where a new stream starts in each queue there is: at the latest where offset JSON does not name it, and at an
        offset that is named, or a group's, though its message is gone: the stream counts it as passed over.

        `how`: missing_time and fail_on_data_loss of `Snapshot.select`, as which it raises; so this is where a name that
        does not exist is told.
        """
        ranges = snapshot.select(
            self.topics, self.pattern, self.assign, start=start, start_time=start_time,
            include_system_topics=self.include_system_topics, **how,
        )  # fmt: skip
        starts = {(span.broker, span.topic, span.queue_id): span.start for span in ranges}
        ends = {(span.broker, span.topic, span.queue_id): span.end for span in ranges}
        chosen = [found for place, found in self.queues(snapshot).items() if place in starts]
        wanted = Bounds(resolved_start(start, snapshot.stores, chosen), "start", list(starts))
        times = Bounds(start_time, "start_time", list(starts), are_times=True)
        begins: Offsets = {}
        for place, low in starts.items():
            offset = wanted.of(place)
            is_named = offset is not None or times.of(place) is not None
            begins[place] = min(low, offset) if offset is not None and offset >= 0 else low if is_named else ends[place]
        return begins

    def not_there(self, stores: Sequence[StoreExtent]) -> list[UnknownTopic]:
        """The topics by name of which the stores know nothing yet, each as the error that a batch raises."""
        if self.topics is None:
            return []
        known = {topic for store in stores for topic in known_topics(store)}
        where = ", ".join(store.path for store in stores)
        return [UnknownTopic(topic, where, near_names(topic, known)) for topic in self.topics if topic not in known]

    def queues(self, snapshot: SnapshotReader) -> dict[Place, tuple[StoreExtent, QueueExtent]]:
        """The queues that there are, by broker, topic and queue id."""
        return {
            (store.broker_name, *queue.key): (store, queue)
            for store, queue in self._chosen(snapshot.stores)
        }  # fmt: skip

    def covers(self, place: Place) -> bool:
        """Whether the selection means that queue, be it there or not."""
        broker, topic, queue_id = place
        if self.topics is not None:
            return topic in self.topics
        if self.assign is None:
            named = self._matches.fullmatch(topic) is not None
            return named and (self.include_system_topics or not is_system_topic(topic))
        wanted = self.assign.get(topic, ())
        ids = wanted.get(broker, ()) if isinstance(wanted, Mapping) else wanted
        return str(queue_id) in {str(number).strip() for number in ids}

    @cached_property
    def _matches(self) -> re.Pattern[str]:
        return re.compile(self.pattern or ".*", re.DOTALL)

    def _chosen(self, stores: Sequence[StoreExtent]) -> list[tuple[StoreExtent, QueueExtent]]:
        if self.topics is not None:
            held = {topic for store in stores for topic, _ in store.queues}
            there = tuple(topic for topic in self.topics if topic in held)
            return selected_queues(stores, there, None, None, self.include_system_topics)
        if self.assign is None:
            return selected_queues(stores, None, self.pattern, None, self.include_system_topics)
        if len(stores) > 1 and any(not isinstance(wanted, Mapping) for wanted in self.assign.values()):
            raise Rejected('assign: with several stores name the broker: {"orders": {"broker-a": [0, 1]}}')
        return [
            (store, queue)
            for store in stores
            for queue in store.queues.values()
            if self.covers((store.broker_name, *queue.key))
        ]
