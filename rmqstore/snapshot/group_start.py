"""Where a consumer group stands, as the start of a read: the offsets that it committed with the broker."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmqstore.directory import config_files
from rmqstore.errors import Rejected
from rmqstore.snapshot.columns import near_names
from rmqstore.snapshot.plan.selection import selected_queues

if TYPE_CHECKING:
    from rmqstore.snapshot.reader import SnapshotReader


def group_start(snapshot: "SnapshotReader", group: str, selection: Mapping[str, Any]) -> dict[str, Any]:
    """Offset JSON {topic: {broker: {queue: offset}}} of the queues of `selection` (arguments of `Snapshot.select`):
    the next offset that `group` consumes, by the tables in config/; the earliest where it has none yet.

    Raises Rejected for a group that has committed nothing in any of these queues, UnknownTopic as `select`.
    """
    chosen = selected_queues(
        snapshot.stores, selection.get("topics"), selection.get("pattern"), selection.get("assign"),
        bool(selection.get("include_system_topics", False)),
    )  # fmt: skip
    tables = {store.broker_name: config_files.consumer_offsets(store.disk, store.path) for store in snapshot.stores}
    start: dict[str, Any] = {}
    known = 0
    for store, queue in chosen:
        topic, queue_id = queue.key
        offset = tables[store.broker_name].get((group, topic), {}).get(queue_id)
        known += offset is not None
        by_broker = start.setdefault(topic, {}).setdefault(store.broker_name, {})
        by_broker[str(queue_id)] = "earliest" if offset is None or offset < 0 else offset
    if not known:
        groups = {name for table in tables.values() for name, _ in table}
        near = near_names(group, groups)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(groups)[:10]) or 'none'}"
        raise Rejected(f"group {group!r} has committed no offset of these topics: {hint}")
    return start
