"""The options of a DataFrame that is written or streamed to a store: checked whole, every mistake in one message."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rmqstore import StoreConfig
from rmqstore.errors import Rejected
from rmqstore.snapshot.arrow_schema import near_names
from spark_source import option_values as values

QUEUES_DEFAULT = 4
QUEUES_MAX = 65536
_TEXT_SHOWN_MAX = 80

Parser = Callable[[str], Any]


def _name(text: str) -> str:
    name = text.strip()
    if not name:
        raise Rejected("write a name")
    return name


PARSERS: dict[str, Parser] = {
    "path": values.local_path,
    "topic": _name,
    "queues": values.count(1, QUEUES_MAX),
    "fileSizes": values.one_of("embedded", "broker"),
    "brokerConf": values.local_path,
    "storeHost": _name,
    "writerId": _name,
    "batchId": values.count(0, values.INT64_MAX),
}
# What Spark itself adds to the options of a stream.
_OF_SPARK = frozenset(("checkpointlocation", "queryname"))
_NAMES = {name.lower(): name for name in PARSERS}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRequest:
    """One write, understood.

    `topic`: of all rows, else the column says it.  `config`: how a new store is made, and how records are.  `writer_id`
    and `batch_id`: the name under which the rows are added once, however often they come.
    """

    path: str
    topic: str | None
    queue_count: int
    config: StoreConfig
    writer_id: str | None
    batch_id: int


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkRequest:
    """The write that `options` ask for; names in any case.  Raises Rejected with every mistake in one line."""
    given: dict[str, Any] = {}
    mistakes: list[str] = []
    for key, text in options.items():
        name = _NAMES.get(key.lower())
        if name is None:
            if key.lower() not in _OF_SPARK:
                mistakes.append(_unknown(key))
            continue
        given[name] = None
        try:
            given[name] = PARSERS[name](text)
        except Rejected as mistake:
            shown = text if len(text) <= _TEXT_SHOWN_MAX else text[:_TEXT_SHOWN_MAX] + "…"
            mistakes.append(f"{name}={shown!r}: {mistake}")
    mistakes += _contradictions(given, is_stream)
    config = StoreConfig()
    if not mistakes:
        try:
            config = _config(given)
        except Rejected as mistake:
            mistakes.append(str(mistake))
    if mistakes:
        raise Rejected(in_one_line(mistakes))
    return SinkRequest(
        path=given["path"],
        topic=given.get("topic"),
        queue_count=given.get("queues", QUEUES_DEFAULT),
        config=config,
        writer_id=given.get("writerId"),
        batch_id=given.get("batchId", 0),
    )


def in_one_line(mistakes: list[str]) -> str:
    """All mistakes in one line, because the last line of a traceback is the one that people read."""
    lines = list(dict.fromkeys(" ".join(mistake.split()) for mistake in mistakes))
    if len(lines) == 1:
        return lines[0]
    return f"{len(lines)} mistakes: " + "; ".join(f"({number}) {line}" for number, line in enumerate(lines, start=1))


def _unknown(key: str) -> str:
    near = ", ".join(near_names(key, PARSERS))
    known = f"did you mean {near}?" if near else f"a write takes {', '.join(PARSERS)}"
    return f"unknown option {key!r}: {known}"


def _contradictions(given: Mapping[str, Any], is_stream: bool) -> list[str]:
    mistakes = []
    if "path" not in given:
        mistakes.append("no store: name its directory in save('/data/rocketmq/store'), or in the option path")
    if "brokerConf" in given and "fileSizes" in given:
        mistakes.append("brokerConf and fileSizes are given: the broker's file says the sizes, keep one of them")
    if is_stream:
        mistakes += [
            f"{name} is for df.write: a stream is known by its checkpoint"
            for name in ("writerId", "batchId") if name in given
        ]  # fmt: skip
    elif ("writerId" in given) != ("batchId" in given):
        mistakes.append("writerId and batchId go together: a batch is known by both, and its number rises")
    return mistakes


def _config(given: Mapping[str, Any]) -> StoreConfig:
    """Raises Rejected."""
    changes = {"store_host": given["storeHost"]} if "storeHost" in given else {}
    if "brokerConf" in given:
        return StoreConfig.from_broker_conf(given["brokerConf"], **changes)
    return (StoreConfig.broker if given.get("fileSizes") == "broker" else StoreConfig.embedded)(**changes)
