"""The options of a DataFrame that is written or streamed to a store: checked whole, every mistake in one message."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmqstore.config import StoreConfig
from rmqstore.core.arguments import I64_MAX
from rmqstore.errors import Rejected
from rmqstore.snapshot.columns import near_names
from spark_source.options import values
from spark_source.options.table import Parser, in_one_line, parsed_options

QUEUES_DEFAULT = 4
QUEUES_MAX = 65536


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
    "batchId": values.count(0, I64_MAX),
}
# Spark itself adds these to the options of a stream.
_OF_SPARK = frozenset(("checkpointlocation", "queryname"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRequest:
    """One write, parsed.  `topic`: that of all rows, else the column says it.  `config`: how a new store is made, and
    how records are.  `writer_id` and `batch_id`: the name under which the rows are added once, however often they come.
    """

    path: str
    topic: str | None
    queue_count: int
    config: StoreConfig
    writer_id: str | None
    batch_id: int


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkRequest:
    """The write that `options` ask for; names in any case.  Raises Rejected with every mistake in one line."""
    given, mistakes = parsed_options(options, PARSERS, _unknown)
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


def _unknown(key: str) -> str | None:
    """The text for the name of an option that a write does not have; None where Spark itself added the option."""
    if key.lower() in _OF_SPARK:
        return None
    near = ", ".join(near_names(key, PARSERS))
    known = f"did you mean {near}?" if near else f"a write takes {', '.join(PARSERS)}"
    return f"unknown option {key!r}: {known}"


def _contradictions(given: Mapping[str, Any], is_stream: bool) -> list[str]:
    mistakes = []
    if "path" not in given:
        mistakes.append("no store: name its directory in save('/data/rocketmq/store'), or in the option path")
    if "brokerConf" in given and "fileSizes" in given:
        mistakes.append("brokerConf and fileSizes are given, but brokerConf has the sizes: keep one of them")
    if is_stream:
        mistakes += [
            f"{name} is for df.write: a stream takes its name from the checkpoint"
            for name in ("writerId", "batchId") if name in given
        ]  # fmt: skip
    elif ("writerId" in given) != ("batchId" in given):
        mistakes.append("writerId and batchId: give both, because together they identify a batch")
    return mistakes


def _config(given: Mapping[str, Any]) -> StoreConfig:
    """Raises Rejected."""
    changes = {"store_host": given["storeHost"]} if "storeHost" in given else {}
    if "brokerConf" in given:
        return StoreConfig.from_broker_conf(given["brokerConf"], **changes)
    return (StoreConfig.broker if given.get("fileSizes") == "broker" else StoreConfig.embedded)(**changes)
