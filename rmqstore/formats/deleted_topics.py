"""config/deletedTopics.json: which topics this engine deleted, and up to where in the log their messages are.

A file of this engine's own, which brokers pass over: RocketMQ notes nowhere that a topic was deleted, so that what it
dispatches again after a crash comes back.  The messages stay in the log until they expire; they are in no queue.  A
replica also notes single queues that began again, as its master cleaned them (`cleanedQueues`, under topic/queue id).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqstore.errors import Corrupt
from rmqstore.formats import broker_json
from rmqstore.formats.broker_json import Sifted
from rmqstore.formats.names import QueueKey, parse_queue_id

DELETED_TOPICS_FILE = "deletedTopics.json"
_TABLE, _QUEUES = "deletedTopics", "cleanedQueues"
_LOG_END, _IS_PENDING = "logEnd", "isPending"


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """Records of a topic, or of a queue, that stand before `log_end` in the log are in none of its queues.

    `is_pending`: the deletion was decided and is not finished, so queues, table and offsets may still have it.
    """

    log_end: int
    is_pending: bool = False


# A topic, or one of its queues.
Deleted = str | QueueKey
DeletedTopics = Mapping[Deleted, DeletedTopic]
# Before which offset of the log it has no messages.
DeletedBefore = Mapping[Deleted, int]


def deleted_topics_in(document: Any) -> dict[Deleted, DeletedTopic]:
    """The noted topics and queues of a parsed file.  Raises Corrupt."""
    tables = [document.get(name) for name in (_TABLE, _QUEUES)] if isinstance(document, dict) else []
    topics, queues = (table or {} for table in tables) if any(table is not None for table in tables) else (None, None)
    if not isinstance(topics, dict) or not isinstance(queues, dict):
        raise Corrupt("", 0, f"no table {_TABLE}")
    found: dict[Deleted, DeletedTopic] = {name: _read(name, entry) for name, entry in topics.items()}
    return found | {_queue_of(name): _read(name, entry) for name, entry in queues.items()}


def read_deleted_topics(data: str | bytes) -> Sifted[dict[Deleted, DeletedTopic]]:
    """The noted topics and queues, and the entries that were passed over.  Raises Corrupt."""
    return broker_json.sifted(broker_json.parse(data), deleted_topics_in)


def _read(name: str, entry: Any) -> DeletedTopic:
    log_end = entry.get(_LOG_END) if isinstance(entry, dict) else None
    if not isinstance(log_end, int) or isinstance(log_end, bool) or not 0 <= log_end < 2**63:
        raise Corrupt("", 0, f"{name!r} has no offset of the log")
    return DeletedTopic(log_end, entry.get(_IS_PENDING) is True)


def _queue_of(name: str) -> QueueKey:
    topic, _, text = name.rpartition("/")
    queue_id = parse_queue_id(text)
    if queue_id is None:
        raise Corrupt("", 0, f"{name!r} is not a topic with a queue id")
    return topic, queue_id


def name_of(deleted: Deleted) -> str:
    """The topic, or topic/queue id."""
    return deleted if isinstance(deleted, str) else f"{deleted[0]}/{deleted[1]}"


def deleted_topics_text(topics: DeletedTopics) -> str:
    """The file's text."""
    entries = {of: {_LOG_END: noted.log_end} | ({_IS_PENDING: True} if noted.is_pending else {})
               for of, noted in topics.items()}  # fmt: skip
    tables = {
        _TABLE: {of: entry for of, entry in entries.items() if isinstance(of, str)},
        _QUEUES: {name_of(of): entry for of, entry in entries.items() if not isinstance(of, str)},
    }
    shown = {name: table for name, table in tables.items() if table or name == _TABLE}
    return json.dumps(shown, indent=1, sort_keys=True)


def honoured(noted: DeletedTopic, queues: Sequence[tuple[int, int]]) -> tuple[int, list[bool]]:
    """Returns the offset of the log before which a topic, or a queue, has no messages, and of each of its
    queues whether the deletion left it over.

    `queues` are the offsets of the first and the last message of each.  A broker that recovers the store dispatches
    again what it finds: messages that it brought back into the queues are there.
    """
    leaving = [noted.is_pending and last < noted.log_end for _, last in queues]
    firsts = [first for (first, _), goes in zip(queues, leaving, strict=True) if not goes]
    return min([noted.log_end, *firsts]), leaving
