"""Where we answer other than Java, each with its reason: the one table that the golden tests consult.

Nothing outside of this table may differ.  Most of it is "better than Java": its recovery throws sound records away,
or its queues
hide records that the commitlog holds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.golden.cases import Row, base_name, java_rows, row_order

Expected = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Departure:
    """`rows`: what we return instead of the rows of Java's log, with damage left out.

    `damaged_at`: physical offset of the record that a scan refuses (on_corrupt_record="fail") or flags ("null"); None
    where
    nothing is refused.
    """

    reason: str
    rows: Callable[[Expected], list[Row]]
    damaged_at: Callable[[Expected], int] | None = None


def acked_rows(expected: Expected) -> list[Row]:
    """Rows of every message that the writer had confirmed, as Java describes them in the base case."""
    acked = {place[0] for place in expected["before"]["acked"]}
    return java_rows([record for record in expected["baseRecords"] if record["physicalOffset"] in acked])


def _without(rows: list[Row], physical_offset: int) -> list[Row]:
    return [row for row in rows if row["physicalOffset"] != physical_offset]


def _end(expected: Expected) -> int:
    """Where Java's log ends after recovery."""
    return int(expected["log"]["end"])


def _changed(expected: Expected) -> int:
    """The physical offset of the one record that differs from the base case's."""
    (record,) = expected["recordsChanged"]
    return int(record["physicalOffset"])


def _last_acked(expected: Expected) -> int:
    return int(max(place[0] for place in expected["before"]["acked"]))


_MIDDLE = Departure(
    "Java's recovery ends the log at the damaged record and throws the sound ones behind it away; we return them",
    lambda expected: _without(acked_rows(expected), _end(expected)),
    _end,
)
_CRC = (
    "the newest record's own CRC says that a kill left it damaged, so that the log ends before it; a broker without "
    "forceVerifyPropCRC does not look at it"
)
_REFUSED = "RocketMQ refuses to start on this directory although nothing is wrong with the messages; we read them all"

# Rows.  Everything else: the rows of Java's log after its recovery, to the last field.
ROWS: dict[str, Departure] = {
    "basic-midflip": _MIDDLE,
    "killed-midflip": _MIDDLE,
    "killed-headerflip": Departure(
        "Java re-dispatches by the log and believes a queueOffset "
        "that contradicts the consume queue and its neighbours",
        lambda expected: _without(java_rows(expected["records"]), _changed(expected)),
        _changed,
    ),
    "crcprop-flip": Departure(_CRC, lambda expected: _without(java_rows(expected["records"]), _changed(expected))),
    "basic-emptylog": Departure(_REFUSED, acked_rows),
    "basic-shortlog": Departure(_REFUSED, acked_rows),
    "basic-strayfile": Departure(_REFUSED, acked_rows),
}

# Cases of QUEUES that differ from Java only if dispatch was behind when the writer died, or only with damage skipped.
SOMETIMES = frozenset(("killed-noabort", "killed-lagcq"))
DAMAGED_QUEUES = frozenset(("basic-midflip", "killed-midflip", "killed-headerflip"))

# Bounds of queues and their entries: ours are those of the rows, Java's hide messages that the log holds.
QUEUES: dict[str, str] = {
    "basic-newzerocq": "an all-zero queue file makes a phantom entry in Java: max is one more than there are messages",
    "basic-zeroedcq": (
        "the zeroed file hides the queue's last messages from Java, and makes a phantom entry; the log has them"
    ),
    "basic-nolastcq": "after a clean stop Java does not dispatch again: the lost file hides messages that the log has",
    "killed-lagcq": (
        "a queue may lag to before where Java's recovery begins: it gives the later messages the queue offsets that "
        "are free, and never reads those between again; the log has them, with their own offsets"
    ),
    "killed-lagcq-noabort": "without abort Java dispatches again only behind the last entry of the longest queue",
    "killed-noabort": "without abort Java dispatches again only behind the last entry of the longest queue",
    "killed-nocq-noindex": (
        "Java dispatches again from the checkpoint on only (5.x): the older messages are in no queue"
    ),
    "lite-killed-nocq": ("Java dispatches again from the checkpoint on only (5.x): the older messages are in no queue"),
    "killed-preblank": (
        "Java's queues begin with blank entries, which it cannot read and then skips sound ones; the log has all"
    ),
    "basic-midflip": "messages behind the damage are still there",
    "killed-midflip": "messages behind the damage are still there",
    "killed-headerflip": "the queue's own entry says which offset the record has",
    "crcprop-flip": _CRC,
    "basic-emptylog": _REFUSED,
    "basic-shortlog": _REFUSED,
    "basic-strayfile": _REFUSED,
}


_BEHIND = "the messages behind the damage are still there, with their keys and times"

# Answers by key: ours are the messages of the log that have the key.  (Where Java built index files anew, its answers
# depend on the
# moment of the crash, and have doublets: such cases are recognized by the headers of the files.)
KEYS: dict[str, str] = {
    "basic-midflip": _BEHIND,
    "killed-midflip": _BEHIND,
    "killed-preblank": "Java's index files begin in the middle of the log, and it finds nothing older; we walk the log",
    "rocksindexonly": "Java's index is in RocksDB, which the answers of its files do not tell; we walk the log",
    "basic-noindex": "after a clean stop Java does not build the index again: it finds nothing; we walk the log",
    "basic-shortlog": _REFUSED,
    "basic-strayfile": _REFUSED,
    "basic-emptylog": _REFUSED,
    "crcprop-flip": _CRC,
}

_BATCHES = "Java answers with the first message of an inner batch, for any time in or behind it; we with the message"

# Offsets by time: ours are those of the messages of the log.
TIMES: dict[str, str] = {
    "basic-midflip": _BEHIND,
    "killed-midflip": _BEHIND,
    "basic-nolastcq": QUEUES["basic-nolastcq"],
    "basic-zeroedcq": QUEUES["basic-zeroedcq"],
    "killed-lagcq-noabort": QUEUES["killed-lagcq-noabort"],
    "killed-noabort": QUEUES["killed-noabort"],
    "killed-headerflip": QUEUES["killed-headerflip"],
    "killed-nocq-noindex": QUEUES["killed-nocq-noindex"],
    "lite-killed-nocq": QUEUES["lite-killed-nocq"],
    "killed-preblank": QUEUES["killed-preblank"],
    "crcprop-flip": _CRC,
    "batchcq": _BATCHES,
    "batchcq_mixed": _BATCHES,
    "batchcq_mixed-closed": _BATCHES,
    "batchcq_mixed-nocq": _BATCHES,
    "batchcq_mixed-notable": _BATCHES,
    "basic-shortlog": _REFUSED,
    "basic-strayfile": _REFUSED,
    "basic-emptylog": _REFUSED,
}


def of_rows(case: str, expected: Expected) -> Departure | None:
    """The departure of a case, None where the rows must be Java's."""
    departure = ROWS.get(base_name(case))
    if departure and departure.reason == _REFUSED and expected["open"]["load"]:
        return None  # the other release does start on it
    return departure


def has_shifted_queue(expected: Expected) -> bool:
    """Whether an entry of Java's stands at another queue offset than its record has; only of plain queues."""
    own = {record["physicalOffset"]: record["queueOffset"] for record in expected["records"]}
    queues = expected.get("queues", {}).values()
    return any(own.get(entry[1], entry[0]) != entry[0] for queue in queues for entry in queue["entries"])


def torn_behind_the_body(case: str, expected: Expected, has_entry: Callable[[Row], bool]) -> list[Row]:
    """Java's row of the last record of killed-torn where the tear took its TAGS and left its body; else none.

    Everything that Java's recovery checks is right, so that it keeps the record, without the properties behind the
    tear. We hold the tags against the code in the queue's entry, if the record was dispatched before the kill
    (`has_entry`).
    """
    if base_name(case) != "killed-torn":
        return []
    written = {row["physicalOffset"]: row for row in acked_rows(expected)}
    changed = {record["physicalOffset"] for record in expected["recordsChanged"]}
    rows = [row for row in java_rows(expected["records"]) if row["physicalOffset"] in changed]
    return [row for row in rows if row["tags"] != written[row["physicalOffset"]]["tags"] and has_entry(row)]


def rows_in_full(case: str, expected: Expected) -> list[Row]:
    """Every row that the store holds, as Java describes it, damaged ones left out."""
    departure = of_rows(case, expected)
    return departure.rows(expected) if departure else java_rows(expected["records"])


def beyond_java(case: str, expected: Expected) -> list[Row]:
    """The rows that we return and Java, after its recovery, has not."""
    held = {row_order(row) for row in java_rows(expected["records"])}
    return [row for row in rows_in_full(case, expected) if row_order(row) not in held]
