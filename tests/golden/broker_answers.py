"""What real brokers answered about their stores."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from rmqstore.formats.names import is_light_queue
from tests.golden.cases import BROKER_CASES, COMPRESSION, FOLDERS, INNER_BATCH, Row, host, read_json

ANSWERED = [case for case in BROKER_CASES if (FOLDERS[case] / "expected.json.gz").exists()]
# A record that holds several messages is shown by the client without these.
NOT_SHOWN_OF_INNER = {"storeSize": 0, "bodyCrc": 0, "offsetMsgId": None, "tagsCode": None}
Answers = Mapping[str, Any]


def answers_of(case: str) -> Answers:
    """What the broker answered to a client, and what is known of the store."""
    answers: Answers = read_json(FOLDERS[case], "expected")
    return {**answers, "meta": read_json(FOLDERS[case], "meta"), "case": case}


def pulled_rows(answers: Answers) -> list[Row]:
    """The messages that a client pulled from every queue, as far as they were in the store when it was copied.

    It shows those of a light queue with the place in the topic of their record; here they have that in the light queue.
    """
    end = answers["meta"]["commitlogEnd"]
    rows = []
    for name, queue in answers["queues"].items():
        topic, _, queue_id = name.rpartition("@")
        for number, message in enumerate(queue.get("messages", ())):
            row = _pulled(message)
            if is_light_queue(topic):
                row |= {"topic": topic, "queueId": int(queue_id), "queueOffset": queue["minOffset"] + number}
            rows.append(row)
    return [row for row in rows if row["physicalOffset"] < end]


def _pulled(message: Mapping[str, Any]) -> Row:
    same = ("topic", "queueId", "queueOffset", "storeSize", "flag", "bornTimestamp", "storeTimestamp", "reconsumeTimes")
    same += ("preparedTransactionOffset", "properties", "msgId", "offsetMsgId")
    return {name: message[name] for name in same} | {
        # Of a body that it decompressed the 5.x client clears the bit that says so, not those that say how; 4.9 none.
        "sysFlag": message["sysFlag"] & ~COMPRESSION,
        "physicalOffset": message["commitLogOffset"],
        "bodyCrc": message["bodyCRC"],
        "bornHost": host(message["bornHost"]),
        "storeHost": host(message["storeHost"]),
        "tags": message["properties"].get("TAGS"),
        "keys": message["properties"].get("KEYS"),
        "body": _shown_body(message),
    }


def _shown_body(message: Mapping[str, Any]) -> str:
    """A body as `digest` gives it: of long ones only the SHA-256 was kept."""
    if "bodySha256" in message:
        return str(message["bodySha256"])
    return digest(base64.b64decode(message["body"]))


def digest(body: bytes | None) -> str:
    """The SHA-256 of a body."""
    return "null" if body is None else hashlib.sha256(body).hexdigest()


Place = tuple[str, int, int]


def place_of(row: Row) -> Place:
    """Topic, queue id and queue offset."""
    return row["topic"], row["queueId"], row["queueOffset"]


def as_a_client_shows(row: Row, taken_out: set[Place]) -> Row:
    """Our row, without what a client does not show.  Of messages that it has taken out of a batch it still says that
    they are one."""
    shown = row | {"body": digest(row["body"])}
    del shown["tagsCode"]
    if place_of(row) in taken_out:
        shown["sysFlag"] |= INNER_BATCH
        shown |= {name: absent for name, absent in NOT_SHOWN_OF_INNER.items() if name in shown}
    return shown


def as_a_client_shows_all(rows: list[Row], answers: Answers) -> list[Row]:
    """`as_a_client_shows` for the rows of a store that a client was asked about."""
    taken_out = {place_of(row) for row in pulled_rows(answers) if row["sysFlag"] & INNER_BATCH}
    return [as_a_client_shows(row, taken_out) for row in rows]


def is_asked_for(row: Row, answers: Answers) -> bool:
    """Whether a client would have got a message of ours.

    It gets none of queues that the broker keeps from it, for lack of permission or as internal, and did not ask for
    what the broker put after the questions.
    """
    name = f"{row['topic']}@{row['queueId']}"
    if name not in answers["queues"]:
        return True
    queue = answers["queues"][name]
    is_short = miscounts(name, answers) or begins_in_rocksdb(name, answers)
    is_hidden = not queue.get("messages") or (is_short and row["queueOffset"] < queue["minOffset"])
    return not is_hidden and row["storeTimestamp"] <= answers["takenMs"]


def begins_in_rocksdb(queue: str, answers: Answers) -> bool:
    """Whether a light queue begins where RocksDB alone says: messages in front of that are in the log, and are rows."""
    return answers["case"].startswith("double-") and is_light_queue(queue)


def miscounts(queue: str, answers: Answers) -> bool:
    """Whether a broker answers wrongly about a queue: 5.5.1 takes inner batches in RocksDB for one message each, and
    gives out those from the last batch's begin on.
    """
    found = answers["queues"][queue]
    is_inner = any(message["sysFlag"] & INNER_BATCH for message in found.get("messages", ()))
    return is_inner and found["minOffset"] > 0
