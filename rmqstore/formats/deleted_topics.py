"""config/deletedTopics.json: which topics this engine deleted, and up to where in the log their messages are.

A file of this engine's own, which brokers pass over: RocketMQ notes nowhere that a topic was deleted, so that what it
dispatches again after a crash comes back.  The messages stay in the log until they expire; they are in no queue.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqstore.errors import Corrupt
from rmqstore.formats import broker_json
from rmqstore.formats.broker_json import Sifted
from rmqstore.formats.names import QueueKey

DELETED_TOPICS_FILE = "deletedTopics.json"
_TABLE = "deletedTopics"
_LOG_END, _IS_PENDING = "logEnd", "isPending"


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """Records of a topic that stand before `log_end` in the log are in none of its queues.

    `is_pending`: the deletion was decided and is not finished, so queues, table and offsets may still have it.
    """

    log_end: int
    is_pending: bool = False


DeletedTopics = Mapping[str, DeletedTopic]
# By topic, or by queue where others of its topic are older: before which offset of the log it has no messages.
DeletedBefore = Mapping[str | QueueKey, int]


def deleted_topics_in(document: Any) -> dict[str, DeletedTopic]:
    """The topics by name.  Raises Corrupt."""
    table = document.get(_TABLE) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise Corrupt("", 0, f"no table {_TABLE}")
    return {name: _read(name, entry) for name, entry in table.items()}


def read_deleted_topics(data: str | bytes) -> Sifted[dict[str, DeletedTopic]]:
    """The topics by name, and the entries that were passed over.  Raises Corrupt."""
    return broker_json.sifted(broker_json.parse(data), deleted_topics_in)


def _read(name: str, entry: Any) -> DeletedTopic:
    log_end = entry.get(_LOG_END) if isinstance(entry, dict) else None
    if not isinstance(log_end, int) or isinstance(log_end, bool) or not 0 <= log_end < 2**63:
        raise Corrupt("", 0, f"{name!r} has no offset of the log")
    return DeletedTopic(log_end, entry.get(_IS_PENDING) is True)


def deleted_topics_text(topics: DeletedTopics) -> str:
    """The file's text."""
    table = {name: {_LOG_END: topic.log_end} | ({_IS_PENDING: True} if topic.is_pending else {})
             for name, topic in sorted(topics.items())}  # fmt: skip
    return json.dumps({_TABLE: table}, indent=1)


def honoured(noted: DeletedTopic, queues: Sequence[tuple[int, int]]) -> tuple[int, list[bool]]:
    """Returns the offset of the log before which a topic has no messages, and of each of its queues whether the
    deletion left it over.

    `queues` are the offsets of the first and the last message of each.  A broker that recovers the store dispatches
    again what it finds: messages that it brought back into the queues are there.
    """
    leaving = [noted.is_pending and last < noted.log_end for _, last in queues]
    firsts = [first for (first, _), goes in zip(queues, leaving, strict=True) if not goes]
    return min([noted.log_end, *firsts]), leaving
