"""From what a user names (topics, patterns, queues, offsets, times) to ranges of queue offsets."""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rmqstore.core.arguments import moment, shown
from rmqstore.directory import config_files
from rmqstore.errors import DataLost, Rejected, UnknownTopic
from rmqstore.formats.names import is_system_topic
from rmqstore.snapshot.columns import near_names
from rmqstore.snapshot.request import GROUP_PREFIX, Place, QueueRange
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

EARLIEST, LATEST = -2, -1
_WORDS = {"earliest": EARLIEST, "latest": LATEST}

# Of a text: earliest, latest, or a start `group:<name>`.
Wanted = str | int | Mapping[str, Any]
# A number is in ms; a text is ISO 8601 with a zone, and a datetime has one.
WantedTime = int | str | datetime | Mapping[str, Any]


def selected_queues(
    stores: Sequence[StoreExtent],
    topics: Sequence[str] | None,
    pattern: str | None,
    assign: Mapping[str, Any] | None,
    include_system_topics: bool,
) -> list[tuple[StoreExtent, QueueExtent]]:
    """The queues that a request means, by store, topic and queue id.  Raises UnknownTopic, Rejected."""
    if sum(choice is not None for choice in (topics, pattern, assign)) > 1:
        raise Rejected("topics, pattern and assign: give one of them")
    if topics is not None:
        return _by_topics(stores, topic_names(topics))
    if assign is not None:
        return _by_assignment(stores, assign)
    matches = _pattern_test(pattern, include_system_topics)
    return [(store, queue) for store in stores for queue in store.queues.values() if matches(queue.files.topic)]


def topic_names(topics: Sequence[str]) -> tuple[str, ...]:
    """Names of topics, also of one text with commas between them."""
    return tuple(name.strip() for name in topics.split(",")) if isinstance(topics, str) else tuple(topics)


def _pattern_test(pattern: str | None, include_system_topics: bool) -> Callable[[str], bool]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a doubled bracket: allowed, and means what it says
            compiled = re.compile(pattern or ".*", re.DOTALL)
    except re.error as error:
        raise Rejected(f"pattern {pattern!r}: {error}; it is a Python regular expression for the whole name") from None
    return lambda topic: bool(compiled.fullmatch(topic)) and (include_system_topics or not is_system_topic(topic))


def _by_topics(stores: Sequence[StoreExtent], topics: Sequence[str]) -> list[tuple[StoreExtent, QueueExtent]]:
    held = {topic for store in stores for topic, _ in store.queues}
    known = held if held.issuperset(topics) else {topic for store in stores for topic in known_topics(store)}
    for topic in topics:
        if topic not in known:
            raise UnknownTopic(topic, ", ".join(store.path for store in stores), near_names(topic, known))
    wanted = set(topics)
    return [(store, queue) for store in stores for queue in store.queues.values() if queue.files.topic in wanted]


def known_topics(store: StoreExtent) -> set[str]:
    """Topics with a queue directory or with messages in the log, and those that the broker's configuration names."""
    return {topic for topic, _ in store.queues} | set(config_files.topics(store.disk, store.path))


def _by_assignment(stores: Sequence[StoreExtent], assign: Mapping[str, Any]) -> list[tuple[StoreExtent, QueueExtent]]:
    chosen: dict[Place, tuple[StoreExtent, QueueExtent]] = {}  # a queue that is named twice is read once
    for topic, wanted in assign.items():
        by_broker = wanted if isinstance(wanted, Mapping) else {_only(stores, topic).broker_name: wanted}
        for broker, ids in by_broker.items():
            store = _store_named(stores, broker, topic)
            if not isinstance(ids, Iterable) or isinstance(ids, str | bytes):
                raise Rejected(f'assign: {topic!r} wants a list of queue ids, such as {{"{topic}": [0, 1]}}')
            for queue_id in ids:
                queue = _queue(store, topic, queue_id)
                chosen[store.broker_name, *queue.key] = store, queue
    return sorted(chosen.values(), key=lambda pair: (pair[0].broker_name, pair[1].key))


def _only(stores: Sequence[StoreExtent], topic: str) -> StoreExtent:
    if len(stores) > 1:
        names = ", ".join(store.broker_name for store in stores)
        raise Rejected(f'{topic!r}: with several stores name the broker ({names}): {{"{topic}": {{"BROKER": …}}}}')
    return stores[0]


def _store_named(stores: Sequence[StoreExtent], broker: str, topic: str) -> StoreExtent:
    for store in stores:
        if store.broker_name == broker:
            return store
    raise Rejected(f"{topic!r}: no broker {broker!r}; there is {', '.join(store.broker_name for store in stores)}")


def _queue(store: StoreExtent, topic: str, queue_id: object) -> QueueExtent:
    number = _integer(queue_id, f"queue id of {topic!r}")
    if (topic, number) in store.queues:
        return store.queues[topic, number]
    ids = [str(other) for name, other in store.queues if name == topic]
    if not ids:
        raise UnknownTopic(topic, store.path, near_names(topic, known_topics(store)))
    raise Rejected(f"{topic!r} has no queue {number}; it has {', '.join(ids)}")


def _integer(value: object, what: str) -> int:
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, bool) or not (
        isinstance(text, int) or (isinstance(text, str) and re.fullmatch(r"-?[0-9]{1,19}", text))
    ):
        raise Rejected(f"{what}: {shown(value)} is not an integer")
    number = int(text)
    if not -2 <= number < 2**63:
        raise Rejected(f"{what}: {shown(number)} is out of range")
    return number


def group_named(start: object) -> str | None:
    """The consumer group of a start `group:<name>`; None for another start.  Raises Rejected where no name follows."""
    if not isinstance(start, str) or not start.strip().lower().startswith(GROUP_PREFIX):
        return None
    name = start.strip()[len(GROUP_PREFIX) :].strip()
    if not name:
        raise Rejected("write the consumer group after group:, such as group:billing")
    return name


def resolved_start(
    start: Wanted | None, stores: Sequence[StoreExtent], chosen: Iterable[tuple[StoreExtent, QueueExtent]]
) -> Wanted | None:
    """A start without a group: `group:<name>` as the offsets of `group_start`.  Raises Rejected."""
    group = group_named(start)
    return start if group is None else group_start(stores, chosen, group)


def group_start(
    stores: Sequence[StoreExtent], chosen: Iterable[tuple[StoreExtent, QueueExtent]], group: str
) -> dict[str, Any]:
    """Offset JSON {topic: {broker: {queue: offset}}} of `chosen` queues of `stores`: the next offset that `group`
    consumes, by the tables in config/; the earliest where it has none yet, and the end of a queue that ends before it:
    a stopped store's table is of a log that it had, or another's.

    Raises Rejected for a group that has committed nothing in any of these queues.
    """
    tables = {store.broker_name: config_files.consumer_offsets(store.disk, store.path) for store in stores}
    start: dict[str, Any] = {}
    known = 0
    for store, queue in chosen:
        topic, queue_id = queue.key
        offset = tables[store.broker_name].get((group, topic), {}).get(queue_id)
        known += offset is not None
        if offset is not None and offset > queue.max_offset and not store.is_live:
            config_files.tell_once(
                f"{store.path}: group {group} is at offset {offset} of {topic}/{queue_id}, which ends at "
                f"{queue.max_offset}: what was asked for begins there"
            )
            offset = queue.max_offset
        by_broker = start.setdefault(topic, {}).setdefault(store.broker_name, {})
        by_broker[str(queue_id)] = "earliest" if offset is None or offset < 0 else offset
    if not known:
        _require_read_tables(stores, tables, group)
        groups = {name for table in tables.values() for name, _ in table}
        near = near_names(group, groups)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(groups)[:10]) or 'none'}"
        raise Rejected(f"group {group!r} has committed no offset of these topics: {hint}")
    return start


def _require_read_tables(stores: Sequence[StoreExtent], tables: Mapping[str, Any], group: str) -> None:
    """Raises Rejected where a broker keeps its tables in RocksDB, and nothing came from there: nobody knows then what
    groups it has."""
    for store in stores:
        places = config_files.databases(store.disk, store.path)
        if places and not tables[store.broker_name]:
            raise Rejected(
                f"group {group!r}: its broker keeps offsets in RocksDB, and none could be read from {places[0]}; pip "
                "install 'rmqstore[rocksdb]', and look into the log for what else is wrong"
            )


class Bounds:
    """Offsets or times (ms) wished for by topic, broker and queue: the offset JSON, a word, or one number for all.

    Shapes: "latest"; {"t": "latest"}; {"t": {"0": 12}} (one store); {"t": {"broker-a": {"0": 12}}}.  What is not named
    is None.  Raises Rejected for other shapes, and for topics or queues that are not part of the selection.
    """

    def __init__(
        self, wanted: Wanted | WantedTime | None, what: str, places: Sequence[Place], *, are_times: bool = False
    ) -> None:
        self._what, self._are_times = what, are_times
        self._all = None if wanted is None or isinstance(wanted, Mapping) else self._value(wanted)
        self._by_place: dict[Place, int] = {}
        if isinstance(wanted, Mapping):
            for topic, inner in wanted.items():
                self._take_topic(topic, inner, places)

    def of(self, place: Place) -> int | None:
        """The wish for one queue: an offset or time, EARLIEST, LATEST, or None."""
        return self._by_place.get(place, self._all)

    def _take_topic(self, topic: str, inner: object, places: Sequence[Place]) -> None:
        own = [place for place in places if place[1] == topic]
        if not own:
            raise Rejected(f"{self._what}: {topic!r} is not among the topics that are read")
        if not isinstance(inner, Mapping):
            self._by_place.update({place: self._value(inner) for place in own})
            return
        brokers = {place[0] for place in own}
        for name, value in inner.items():
            if isinstance(value, Mapping):
                if name not in brokers:
                    raise Rejected(
                        f"{self._what}: {topic!r} has no broker {name!r}; it has {', '.join(sorted(brokers))}"
                    )
                self._take_queues(topic, name, value, own)
            elif len(brokers) > 1:
                raise Rejected(f"{self._what}: {topic!r}: with several stores name the broker")
            else:
                self._take_queues(topic, next(iter(brokers)), {name: value}, own)

    def _take_queues(self, topic: str, broker: str, queues: Mapping[str, object], own: Sequence[Place]) -> None:
        for queue, value in queues.items():
            place = (broker, topic, _integer(queue, f"{self._what}: queue id of {topic!r}"))
            if place not in own:
                ids = ", ".join(str(other[2]) for other in own if other[0] == broker)
                raise Rejected(f"{self._what}: {topic!r} has no queue {queue} that is read; it has {ids}")
            if place in self._by_place:
                raise Rejected(f"{self._what}: {topic!r} has queue {place[2]} twice")
            self._by_place[place] = self._value(value)

    def _value(self, value: object) -> int:
        if self._are_times:
            return moment(self._what, value)
        if isinstance(value, str) and value.strip().lower() in _WORDS:
            return _WORDS[value.strip().lower()]
        return _integer(value, self._what)


def in_bounds(store: StoreExtent, queue: QueueExtent, start: int, end: int, fail: bool) -> QueueRange:
    """The range, clamped forward into what the queue holds.  With `fail` raises DataLost where it had to be clamped."""
    low, high = queue.min_offset, queue.max_offset
    name = f"{queue.files.topic}/{queue.files.queue_id}"
    if fail and start < end and start < low:
        raise DataLost(name, (start, min(end, low)), (low, high), queue.files.directory, "older messages were deleted")
    if fail and max(start, end) > high:
        raise DataLost(name, (max(min(start, end), high), max(start, end)), (low, high), queue.files.directory,
                       "the queue ends before")  # fmt: skip
    start, end = min(max(start, low), high), min(max(end, low), high)
    return QueueRange(store.broker_name, queue.files.topic, queue.files.queue_id, start, max(start, end))
