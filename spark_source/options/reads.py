"""The options of `format("rmqstore")`, batch and stream: a table each, checked whole, every mistake in one message."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rmqstore.core.arguments import I64_MAX, instant
from rmqstore.errors import Rejected
from rmqstore.formats.wanted_words import key_words, tag_words
from rmqstore.snapshot import StoresIn
from rmqstore.snapshot.columns import COLUMNS, DEFAULT_COLUMNS, near_names, resolve_columns
from rmqstore.snapshot.request import GROUP_PREFIX, ScanRequest, SplitBudget, VerifyCrc
from rmqstore.snapshot.stream.limits import TriggerLimits
from spark_source.options import values
from spark_source.options.table import Parser, in_one_line, parsed_options

# Spark holds a column of one batch in a 2 GiB vector, so that a batch has to stay well below.
BATCH_BYTES_MAX = 1 << 30
BATCH_ROWS_MAX = 1 << 20
PARTITIONS_MAX = 1_000_000
# In whose name progress is exported: lag tools list it as a consumer group.
PROGRESS_GROUP = "rmqstore"

PARSERS: dict[str, Parser] = {
    "path": values.local_path,
    "paths": values.path_list,
    "stores": values.store_paths,
    "storePathCommitLog": values.log_paths,
    "subscribe": values.comma_list,
    "subscribePattern": values.pattern,
    "assign": values.assignment,
    "startingOffsets": values.batch_start,
    "endingOffsets": values.offsets("earliest"),
    "startingTimestamp": instant,
    "endingTimestamp": instant,
    "startingOffsetsByTimestamp": values.instants,
    "endingOffsetsByTimestamp": values.instants,
    "startingOffsetsByTimestampStrategy": values.one_of("error", "latest"),
    "includeSystemTopics": values.flag,
    "tags": tag_words,
    "keys": key_words,
    "columns": lambda text: resolve_columns(text.strip()),
    "includeProperties": values.flag,
    "failOnDataLoss": values.flag,
    "onCorruptRecord": values.one_of("fail", "skip", "null"),
    "verifyCrc": values.one_of("auto", "true", "false", "always", "never"),
    "decompress": values.flag,
    "bodyFormat": values.one_of("binary", "json"),
    "maxBodyBytes": values.byte_size(BATCH_BYTES_MAX),
    "scanMode": values.one_of("auto", "queue", "commitlog"),
    "includeUncommitted": values.flag,
    "access": values.one_of("auto", "mmap", "pread"),
    "batchRows": values.count(1, BATCH_ROWS_MAX),
    "batchBytes": values.byte_size(BATCH_BYTES_MAX),
    "minPartitions": values.count(0, PARTITIONS_MAX),
    "maxRecordsPerPartition": values.count(1, I64_MAX),
    "maxBytesPerPartition": values.byte_size(I64_MAX),
    "mergePartitions": values.flag,
    "pushdown": values.one_of("off", "true", "auto"),
    "table": values.one_of("messages"),  # the others are spark_source.tables
}

# Options that only a stream can honour; those of the Kafka source have its names.
STREAM_PARSERS: dict[str, Parser] = {
    "maxOffsetsPerTrigger": values.count(1, I64_MAX),
    "minOffsetsPerTrigger": values.count(1, I64_MAX),
    "maxTriggerDelay": values.duration,
    "maxBytesPerTrigger": values.byte_size(I64_MAX),
    "progressFile": values.local_path,
    "progressGroup": values.group_name,
}
STREAM_ONLY = {name.lower(): name for name in STREAM_PARSERS}

# Options that only a batch read can honour, and what a stream has instead.
BATCH_ONLY = {
    name.lower(): (name, instead)
    for name, instead in {
        "endingOffsets": "a stream has no end; use Trigger.AvailableNow to stop at the present end",
        "endingTimestamp": "a stream has no end; use Trigger.AvailableNow to stop at the present end",
        "endingOffsetsByTimestamp": "a stream has no end; use Trigger.AvailableNow to stop at the present end",
        "pushdown": "filters are not pushed down to a stream; prune by tags, keys or assign",
        "includeUncommitted": "a stream cannot take rows back that the group revokes later",
        "table": "a stream reads messages only; read tables with spark.read",
    }.items()
}
_OF_STREAMS: dict[str, Parser] = {
    name: parser
    for name, parser in (PARSERS | STREAM_PARSERS | {"startingOffsets": values.stream_start}).items()
    if name.lower() not in BATCH_ONLY
}

# Names of the same things in Kafka's source, in rocketmq-spark and in RocketMQ's clients.
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

# Spark itself adds these to a CREATE TABLE ... USING rmqstore, whose OPTIONS it then drops.
_CATALOG_PROPERTIES = frozenset(("owner", "provider", "location"))
_OF_A_TABLE = "Spark's CREATE TABLE loses OPTIONS: use CREATE TEMPORARY VIEW v USING rmqstore OPTIONS (path '...', ...)"

_TOPIC_OPTIONS = ("subscribe", "subscribePattern", "assign")
_CRC_WORDS: dict[str, VerifyCrc] = {
    "auto": "auto", "true": "always", "always": "always", "false": "never", "never": "never",
}  # fmt: skip

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
    "maxBodyBytes": "body_bytes_max",
    "batchRows": "batch_rows",
    "batchBytes": "batch_bytes",
}
_BUDGET_FIELDS = {
    "minPartitions": "min_partitions",
    "maxRecordsPerPartition": "max_records",
    "maxBytesPerPartition": "max_bytes",
    "mergePartitions": "merge",
}


_LIMIT_FIELDS = {
    "maxOffsetsPerTrigger": "rows_max",
    "minOffsetsPerTrigger": "rows_min",
    "maxBytesPerTrigger": "bytes_max",
    "maxTriggerDelay": "delay_ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRead:
    """One `load()`, parsed: which stores, which rows (arguments of `Snapshot.select`), how rows are made and cut."""

    stores: values.Stores
    selection: dict[str, Any]
    request: ScanRequest
    budget: SplitBudget
    pushdown: str = "off"
    include_uncommitted: bool = False
    is_json: bool = False

    def with_columns(self, columns: tuple[str, ...]) -> "BatchRead":
        """The same read of other columns."""
        return replace(self, request=replace(self.request, columns=columns))

    def with_group_resolved(self) -> "BatchRead":
        """The same read with the present offsets of a consumer group where it starts at `group:<name>`.

        Raises as `open_snapshot` and `group_start` do.
        """
        start = self.selection.get("start")
        if not isinstance(start, str) or not start.startswith(GROUP_PREFIX):
            return self
        from rmqstore.snapshot import open_snapshot  # noqa: PLC0415  for this kind of start alone
        from rmqstore.snapshot.plan.selection import group_start, selected_queues  # noqa: PLC0415  the same

        stores = open_snapshot(self.stores, access=self.request.access).stores
        topics, pattern, assign = (self.selection.get(name) for name in ("topics", "pattern", "assign"))
        chosen = selected_queues(stores, topics, pattern, assign, self.selection.get("include_system_topics", False))
        offsets = group_start(stores, chosen, start.removeprefix(GROUP_PREFIX))
        return replace(self, selection=self.selection | {"start": offsets})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRead:
    """One stream, parsed: the batch read of the same rows, how much a trigger takes, and where progress is exported and
    for which group; `progress_file` None: nowhere.
    """

    rows: BatchRead
    limits: TriggerLimits
    progress_file: str | None
    progress_group: str

    def with_columns(self, columns: tuple[str, ...]) -> "StreamRead":
        """The same stream of other columns."""
        return replace(self, rows=self.rows.with_columns(columns))


def parse_options(options: Mapping[str, str]) -> BatchRead:
    """The batch read that `options` ask for; names in any case.

    Raises Rejected with every mistake in one line: unknown names, values that do not parse, options that exclude
    each other.
    """
    return _batch_read(_values(options, PARSERS, _unknown))


def parse_stream_options(options: Mapping[str, str]) -> StreamRead:
    """The stream that `options` ask for; without startingOffsets it starts at the latest.

    Raises as `parse_options`.
    """
    given = _values(options, _OF_STREAMS, _unknown_here)
    return StreamRead(
        rows=_batch_read({"startingOffsets": "latest"} | given),
        limits=TriggerLimits(**_renamed(given, _LIMIT_FIELDS)),
        progress_file=given.get("progressFile"),
        progress_group=given.get("progressGroup", PROGRESS_GROUP),
    )


def parse_for_schema(options: Mapping[str, str]) -> BatchRead:
    """The options that decide the schema, while it is not known yet whether a batch read or a stream is meant.

    Raises Rejected for options that neither of them takes.
    """
    is_stream = not STREAM_ONLY.keys().isdisjoint(name.lower() for name in options)
    try:
        return parse_stream_options(options).rows if is_stream else parse_options(options)
    except Rejected as mistake:
        try:
            return parse_options(options) if is_stream else parse_stream_options(options).rows
        except Rejected:
            raise mistake from None


def _values(options: Mapping[str, str], parsers: Mapping[str, Parser], unknown: Callable[[str], str]) -> dict[str, Any]:
    """The values of `options` by the names of `parsers`; `unknown` says what to say about other names."""
    if not _CATALOG_PROPERTIES.isdisjoint(name.lower() for name in options):
        raise Rejected(_OF_A_TABLE)
    given, mistakes = parsed_options(options, parsers, unknown)
    mistakes += _contradictions(given)
    if not options:
        mistakes.append(f"a table has none of them, for {_OF_A_TABLE}")
    if mistakes:
        raise Rejected(in_one_line(mistakes))
    return given


def _unknown(key: str) -> str:
    """The text for the name of an option that a batch read does not have."""
    folded = key.lower()
    if folded in STREAM_ONLY:
        return (
            f"{STREAM_ONLY[folded]} is for streams and this is a batch read: leave it out, or bound it by endingOffsets"
        )
    return _unknown_name(key, PARSERS)


def _unknown_here(key: str) -> str:
    """The text for the name of an option that a stream does not have."""
    if key.lower() in BATCH_ONLY:
        name, instead = BATCH_ONLY[key.lower()]
        return f"{name} is for batch reads and this is a stream: {instead}"
    return _unknown_name(key, _OF_STREAMS)


def _unknown_name(key: str, known: Mapping[str, Parser]) -> str:
    folded = key.lower()
    near = _CALLED_HERE.get(folded) or ", ".join(near_names(key, known))
    # Of a wheel there is no page to look at.
    advice = f"did you mean {near}?" if near else f"leave it out, the options are {', '.join(known)}"
    return f"unknown option {key!r}: {advice}"


def _contradictions(given: Mapping[str, Any]) -> list[str]:
    """The mistakes that no single option shows.  An option whose value did not parse counts as given."""
    mistakes = values.contradicting_stores(given)
    what = [name for name in _TOPIC_OPTIONS if name in given]
    if not what:
        mistakes.append("no topic: give one of subscribe ('orders,payments'), subscribePattern ('orders.*') or assign")
    elif len(what) > 1:
        mistakes.append(f"{' and '.join(what)} are given: keep one of them")
    if isinstance(given.get("stores"), StoresIn) and not all(
        isinstance(queues, dict) for queues in (given.get("assign") or {}).values()
    ):
        mistakes.append('assign: name the broker in a directory of stores, {"orders": {"broker-a": [0, 1]}}')
    if given.get("scanMode") == "commitlog":
        for name, is_asked in (
            ("maxRecordsPerPartition", "maxRecordsPerPartition" in given),
            ("mergePartitions=false", given.get("mergePartitions") is False),
        ):
            if is_asked:
                mistakes.append(
                    f"{name} does not go with scanMode=commitlog, which cuts the log by bytes, for all queues: "
                    "use maxBytesPerPartition or minPartitions"
                )
    if given.get("bodyFormat") == "json" and given.get("decompress") is False:
        mistakes.append("bodyFormat=json does not go with decompress=false: leave one of them out")
    start_ms, end_ms = given.get("startingTimestamp"), given.get("endingTimestamp")
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        mistakes.append("startingTimestamp is after endingTimestamp: swap them")
    least, most = given.get("minOffsetsPerTrigger"), given.get("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        mistakes.append("minOffsetsPerTrigger is above maxOffsetsPerTrigger: swap them")
    if "maxTriggerDelay" in given and "minOffsetsPerTrigger" not in given:
        mistakes.append("maxTriggerDelay bounds the wait for minOffsetsPerTrigger: give that too, or leave it out")
    return mistakes


def _batch_read(given: Mapping[str, Any]) -> BatchRead:
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
        stores=values.stores_of(given),
        selection=selection,
        request=request,
        budget=SplitBudget(**_renamed(given, _BUDGET_FIELDS)),
        pushdown=given.get("pushdown", "off"),
        include_uncommitted=given.get("includeUncommitted", False),
        is_json=given.get("bodyFormat") == "json",
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
