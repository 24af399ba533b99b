"""All that there is to tell of a store, as `rmqstore inspect --json` prints it."""

from collections.abc import Iterator
from typing import Any

from rmqstore.cli.output import iso, moment_of
from rmqstore.directory.config_files import consumer_offsets, topics
from rmqstore.directory.index_files import index_files
from rmqstore.snapshot.lookup.end_times import queue_span_times
from rmqstore.snapshot.survey.extents import Damage, StoreExtent

Document = dict[str, Any]


def store_document(store: StoreExtent) -> Document:
    """All that there is to tell of a store, as --json prints it."""
    return {
        "path": store.path,
        "brokerName": store.broker_name,
        "versionLine": store.version_line,
        "state": "open" if store.lock_held else "not stopped cleanly" if store.abort_present else "stopped",
        "abortPresent": store.abort_present,
        "lockHeld": store.lock_held,
        "queueLayout": store.queue_layout,
        "logStart": store.log_start,
        "logEnd": store.log_end,
        "logFiles": [{"path": file.path, "start": file.start, "size": file.size} for file in store.log_files],
        "undispatchedFrom": store.walk_from if any(queue.gap for queue in store.queues.values()) else None,
        "checkpoint": checkpoint_document(store),
        "indexFiles": index_documents(store),
        "damage": [_damage(found) for found in store.damage],
        "tail": None if store.tail is None else _damage(store.tail),
        "dledger": ledger_document(store),
        "topics": _topics(store),
        "groups": list(group_documents(store)),
    }


def _damage(found: Damage) -> Document:
    return {"path": found.path, "position": found.position, "reason": found.reason}


def ledger_document(store: StoreExtent) -> Document | None:
    ledger = store.ledger
    if ledger is None:
        return None
    return {
        "directory": ledger.node.directory,
        "selfId": ledger.node.self_id,
        "currTerm": None if ledger.term is None else ledger.term.number,
        "voteLeader": None if ledger.term is None else ledger.term.voted_for,
        "committedIndex": ledger.committed_index,
        "uncommittedFrom": ledger.uncommitted_from if ledger.uncommitted_count else None,
        "uncommittedEntries": ledger.uncommitted_count,
        "dividedCommitlogOffset": ledger.divided_at,
    }


def checkpoint_document(store: StoreExtent) -> Document | None:
    known = store.checkpoint
    if known is None:
        return None
    return {
        "physicMsgTimestamp": known.physic_timestamp_ms,
        "logicsMsgTimestamp": known.logics_timestamp_ms,
        "indexMsgTimestamp": known.index_timestamp_ms,
        "masterFlushedOffset": known.master_flushed_offset,
        "confirmPhyOffset": known.confirm_offset,
        "logicsPhysicalOffset": known.logics_physical_offset,
    }


def index_documents(store: StoreExtent) -> list[Document]:
    return [
        {
            "path": file.file.path,
            "size": file.file.size,
            "slotCount": file.slot_count or None,
            "itemCount": file.header.index_count - 1,
            "oldest": iso(moment_of(file.header.begin_timestamp_ms or None)),
            "newest": iso(moment_of(file.header.end_timestamp_ms or None)),
            "oldestMs": file.header.begin_timestamp_ms or None,
            "newestMs": file.header.end_timestamp_ms or None,
        }
        for file in index_files(store.disk, store.path, store.maps_index)
    ]


def _topics(store: StoreExtent) -> list[Document]:
    """Topics with their queues: those of the files and those that the broker's configuration names."""
    configured = topics(store.disk, store.path)
    times = queue_span_times(store)
    queues: dict[str, list[Document]] = {name: [] for name in sorted({*configured, *(key[0] for key in store.queues)})}
    for (topic, queue_id), queue in store.queues.items():
        oldest, newest = times[topic, queue_id]
        queues[topic].append(
            {
                "queueId": queue_id, "queueType": queue.files.kind,
                "minOffset": queue.min_offset, "maxOffset": queue.max_offset,
                "messages": queue.max_offset - queue.min_offset,
                "oldest": iso(moment_of(oldest)), "newest": iso(moment_of(newest)),
                "oldestMs": oldest, "newestMs": newest,
            }
        )  # fmt: skip
    return [
        {
            "topic": name,
            "readQueueNums": configured[name].read_queue_nums if name in configured else None,
            "writeQueueNums": configured[name].write_queue_nums if name in configured else None,
            "perm": configured[name].perm if name in configured else None,
            "attributes": dict(configured[name].attributes) if name in configured else {},
            "messages": sum(queue["messages"] for queue in found),
            "queues": found,
        }
        for name, found in queues.items()
    ]


def group_documents(store: StoreExtent) -> Iterator[Document]:
    """How many messages that the store holds a group has still to consume, by topic; queues that it never read are not
    counted."""
    for (group, topic), offsets in sorted(consumer_offsets(store.disk, store.path).items()):
        queues = []
        for queue_id, offset in sorted(offsets.items()):
            queue = store.queues.get((topic, queue_id))
            backlog = max(queue.max_offset - max(offset, queue.min_offset), 0) if queue else 0
            queues.append({"queueId": queue_id, "offset": offset, "backlog": backlog})
        backlog = sum(queue["backlog"] for queue in queues)
        yield {"group": group, "topic": topic, "backlog": backlog, "queues": queues}
