"""The options of `spark.read.format("rmqstore")`: one table, checked whole, every mistake in one message."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rmqstore.errors import Rejected
from rmqstore.snapshot.arrow_schema import COLUMNS, DEFAULT_COLUMNS, near_names, resolve_columns
from rmqstore.snapshot.request import ScanRequest, SplitBudget
from spark_source import option_values as values

Parser = Callable[[str], Any]

# Spark holds a column of one batch in a 2 GiB vector, so that a batch has to stay well below.
BATCH_BYTES_MAX = 1 << 30
BATCH_ROWS_MAX = 1 << 20
PARTITIONS_MAX = 1_000_000
TEXT_SHOWN_MAX = 80

PARSERS: dict[str, Parser] = {
    "path": values.local_path,
    "paths": values.path_list,
    "stores": values.store_paths,
    "subscribe": values.comma_list,
    "subscribePattern": values.pattern,
    "assign": values.assignment,
    "startingOffsets": values.offsets("latest"),
    "endingOffsets": values.offsets("earliest"),
    "startingTimestamp": values.instant,
    "endingTimestamp": values.instant,
    "startingOffsetsByTimestamp": values.instants,
    "endingOffsetsByTimestamp": values.instants,
    "startingOffsetsByTimestampStrategy": values.one_of("error", "latest"),
    "includeSystemTopics": values.flag,
    "tags": values.tag_list,
    "keys": values.key_list,
    "columns": lambda text: resolve_columns(text.strip()),
    "includeProperties": values.flag,
    "failOnDataLoss": values.flag,
    "onCorruptRecord": values.one_of("fail", "skip", "null"),
    "verifyCrc": values.one_of("auto", "true", "false"),
    "decompress": values.flag,
    "scanMode": values.one_of("auto", "queue", "commitlog"),
    "access": values.one_of("auto", "mmap", "pread"),
    "batchRows": values.count(1, BATCH_ROWS_MAX),
    "batchBytes": values.byte_size(BATCH_BYTES_MAX),
    "minPartitions": values.count(0, PARTITIONS_MAX),
    "maxRecordsPerPartition": values.count(1, values.INT64_MAX),
    "maxBytesPerPartition": values.byte_size(values.INT64_MAX),
    "mergePartitions": values.flag,
}

_NAMES = {name.lower(): name for name in PARSERS}

# Names of the Kafka source that only a stream can honour.
STREAM_ONLY = {
    name.lower(): name
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
}

# What the same thing is called by Kafka's source, by rocketmq-spark and by RocketMQ's clients.
_CALLED_HERE = {
    "topic": "subscribe",
    "topics": "subscribe",
    "topicpattern": "subscribePattern",
    "subexpression": "tags",
    "tag": "tags",
    "key": "keys",
    "includeheaders": "includeProperties",
    "startingtime": "startingTimestamp",
    "endingtime": "endingTimestamp",
    "nameserver": "path",
    "kafka.bootstrap.servers": "path",
}

# What Spark itself adds to a CREATE TABLE ... USING rmqstore, whose OPTIONS it then drops.
_CATALOG_PROPERTIES = ("owner", "provider")

_STORE_OPTIONS = ("path", "paths", "stores")
_TOPIC_OPTIONS = ("subscribe", "subscribePattern", "assign")
_CRC_WORDS = {"auto": "auto", "true": "always", "false": "never"}

_SELECT_ARGUMENTS = {
    "subscribe": "topics",
    "subscribePattern": "pattern",
    "assign": "assign",
    "startingOffsets": "start",
    "endingOffsets": "end",
    "includeSystemTopics": "include_system_topics",
    "failOnDataLoss": "fail_on_data_loss",
    "startingOffsetsByTimestampStrategy": "missing_time",
}
_REQUEST_FIELDS = {
    "tags": "tags",
    "keys": "keys",
    "scanMode": "scan_mode",
    "access": "access",
    "onCorruptRecord": "on_corrupt_record",
    "failOnDataLoss": "fail_on_data_loss",
    "decompress": "decompress",
    "batchRows": "batch_rows",
    "batchBytes": "batch_bytes",
}
_BUDGET_FIELDS = {
    "minPartitions": "min_partitions",
    "maxRecordsPerPartition": "max_records",
    "maxBytesPerPartition": "max_bytes",
    "mergePartitions": "merge",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRead:
    """One `load()`, understood: which stores, which rows (arguments of `Snapshot.select`), how made, how cut."""

    stores: tuple[str, ...] | dict[str, str]
    selection: dict[str, Any]
    request: ScanRequest
    budget: SplitBudget

    def with_columns(self, columns: tuple[str, ...]) -> "BatchRead":
        """The same read of other columns."""
        return replace(self, request=replace(self.request, columns=columns))


def parse_options(options: Mapping[str, str]) -> BatchRead:
    """The read that `options` ask for; names in any case.

    Raises Rejected with every mistake in one line: unknown names, values that do not parse, options that exclude
    each other.
    """
    given: dict[str, Any] = {}
    mistakes: list[str] = []
    for key, text in options.items():
        name = _NAMES.get(key.lower())
        if name is None:
            mistakes.append(_unknown(key))
            continue
        given[name] = None
        try:
            given[name] = PARSERS[name](text)
        except Rejected as mistake:
            shown = text if len(text) <= TEXT_SHOWN_MAX else text[:TEXT_SHOWN_MAX] + "…"
            mistakes.append(f"{name}={shown!r}: {mistake}")
    mistakes += _contradictions(given)
    if mistakes:
        raise Rejected(_in_one_line(mistakes))
    return _batch_read(given)


def _unknown(key: str) -> str:
    """What to say about an option that a batch read does not have."""
    folded = key.lower()
    if folded in STREAM_ONLY:
        return (
            f"{STREAM_ONLY[folded]} is for streams and this is a batch read: leave it out, or bound it by endingOffsets"
        )
    if folded in _CATALOG_PROPERTIES:
        return "Spark's CREATE TABLE loses OPTIONS: use CREATE TEMPORARY VIEW v USING rmqstore OPTIONS (...)"
    near = _CALLED_HERE.get(folded) or ", ".join(near_names(key, PARSERS))
    return f"unknown option {key!r}: " + (
        f"did you mean {near}?" if near else "leave it out; the README lists all options"
    )


def _contradictions(given: Mapping[str, Any]) -> list[str]:
    """The mistakes that no single option shows.  An option whose value did not parse counts as given."""
    mistakes = []
    where = [name for name in _STORE_OPTIONS if name in given]
    if not where:
        mistakes.append("no store: name its directory in load('/data/rocketmq/store'), or several in the option stores")
    elif len(where) > 1:
        mistakes.append(f"{' and '.join(where)} are given: keep one of them")
    what = [name for name in _TOPIC_OPTIONS if name in given]
    if not what:
        mistakes.append("no topic: give one of subscribe ('orders,payments'), subscribePattern ('orders.*') or assign")
    elif len(what) > 1:
        mistakes.append(f"{' and '.join(what)} are given: keep one of them")
    start_ms, end_ms = given.get("startingTimestamp"), given.get("endingTimestamp")
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        mistakes.append("startingTimestamp is after endingTimestamp: swap them")
    return mistakes


def _in_one_line(mistakes: list[str]) -> str:
    """All mistakes in one line, because the last line of a traceback is the one that people read."""
    lines = list(dict.fromkeys(" ".join(mistake.split()) for mistake in mistakes))
    if len(lines) == 1:
        return lines[0]
    return f"{len(lines)} mistakes: " + "; ".join(f"({number}) {line}" for number, line in enumerate(lines, start=1))


def _batch_read(given: Mapping[str, Any]) -> BatchRead:
    stores = given.get("stores") or given.get("paths") or (given["path"],)
    selection = _renamed(given, _SELECT_ARGUMENTS)
    # As in Kafka's source: one time for all queues wins over times by queue, and times win over offsets.
    for argument, one, by_queue in (
        ("start_time", "startingTimestamp", "startingOffsetsByTimestamp"),
        ("end_time", "endingTimestamp", "endingOffsetsByTimestamp"),
    ):
        time = given.get(one, given.get(by_queue))
        if time is not None:
            selection[argument] = time
    request = ScanRequest(
        columns=_columns(given),
        verify_crc=_CRC_WORDS[given.get("verifyCrc", "auto")],
        **_renamed(given, _REQUEST_FIELDS),
    )
    return BatchRead(
        stores=stores, selection=selection, request=request, budget=SplitBudget(**_renamed(given, _BUDGET_FIELDS))
    )


def _columns(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns without a user's schema: the default set grows by what other options make worth seeing.

    onCorruptRecord=null keeps damaged rows, which only corruptReason tells from sound ones.
    """
    asked: tuple[str, ...] | None = given.get("columns")
    extra = {"properties"} if given.get("includeProperties") else set()
    if asked is not None:
        return asked + tuple(extra.difference(asked))
    if given.get("onCorruptRecord") == "null":
        extra.add("corruptReason")
    return tuple(name for name in COLUMNS if name in DEFAULT_COLUMNS or name in extra)


def _renamed(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {field: given[option] for option, field in names.items() if option in given}
