"""The purpose of each option of `format("rmqstore")`, and its default: docs/options.md is made of it.

The names are those of the tables of parsers, held to them by a test.  A default is text that the option itself takes,
and empty where there is none.
"""

from dataclasses import dataclass

from rmqstore.snapshot.request import BATCH_BYTES, BATCH_ROWS, BODY_BYTES_MAX, SPLIT_BYTES
from rmqstore.snapshot.stream.limits import DELAY_MS
from spark_source.options.writes import QUEUES_DEFAULT


@dataclass(frozen=True, slots=True)
class OptionText:
    """One option as a page tells of it: the value that leaves everything as it is, and Markdown."""

    default: str
    meaning: str


_STORE = "the store: the directory that holds `commitlog/`; the argument of `load` and `save`"
_BY_QUEUE = """the same by queue, in JSON of the shape of `startingOffsets`"""
_PROGRESS = "as in RocketMQ's `consumerOffset.json`, for lag tools"

READ: dict[str, OptionText] = {
    "path": OptionText("", _STORE),
    "paths": OptionText("", 'several stores, as Spark makes it of `load([...])`: `["/data/a", "/data/b"]`'),
    "storePathCommitLog": OptionText(
        "",
        "where the commitlog of one store lies elsewhere, as the broker has it: `/log/a,/log/b`; of several it stands "
        'in `stores`: `{"broker-a": ["/a", "/log/a"]}`',
    ),
    "stores": OptionText(
        "",
        "instead of `path`: the directory that `rmqstore replicate` makes, `/data/rmq`, with one store per broker, "
        "named as the broker; stores that appear while a stream runs are read too. Or several stores by broker name:"
        ' `{"broker-a": "/a", "broker-b": "/b"}`',
    ),
    "table": OptionText(
        "messages",
        "`messages`, or another table: `queues`, `topics`, `groups`, `files`, `transactions`, `delayed`, `entries`",
    ),
    "subscribe": OptionText("", "topics by their full names, separated by commas: `orders,payments`"),
    "subscribePattern": OptionText(
        "", "instead of `subscribe`: a regular expression (Python's) for the whole name: `orders.*`"
    ),
    "assign": OptionText("", 'instead of both: queues, `{"orders": [0, 1]}`, `{"orders": {"broker-a": [0, 1]}}`'),
    "includeSystemTopics": OptionText(
        "false",
        "whether a pattern also finds `%RETRY%…`, `%DLQ%…`, `SCHEDULE_TOPIC_XXXX`, `rmq_sys_…` and the like; a topic"
        " that is named is always read",
    ),
    "startingOffsets": OptionText(
        "earliest",
        "where to start: `earliest`, `group:<name>` (at the offsets of that consumer group), JSON:"
        ' `{"orders": {"0": 100}}`, `{"orders": {"broker-a": {"0": 100}}}`; a queue that is not listed takes the'
        " default. A stream also takes"
        " `latest`, which is its default",
    ),
    "endingOffsets": OptionText("latest", "where to end: `latest`, or JSON; the end is not included"),
    "startingTimestamp": OptionText(
        "",
        "milliseconds, or ISO 8601 with a zone (`2026-11-21T05:20:23Z`), by `storeTimestamp`; wins over offsets. A"
        " number below 10^11 must be in seconds, and is refused",
    ),
    "endingTimestamp": OptionText("", "as `startingTimestamp`; messages stored at that time or later are left out"),
    "startingOffsetsByTimestamp": OptionText("", _BY_QUEUE),
    "endingOffsetsByTimestamp": OptionText("", _BY_QUEUE),
    "startingOffsetsByTimestampStrategy": OptionText(
        "error", "if the start is after the newest message of a queue: `error`, or `latest` for no rows of that queue"
    ),
    "tags": OptionText(
        "*",
        "messages with one of these tags: `paid || shipped`. Commas, a single `|` and quotes are refused: a tag that"
        ' has them is written in a JSON list, `["a,b"]`. `||` or a blank without a tag is refused, too',
    ),
    "keys": OptionText(
        "",
        "messages that have one of these among their keys or as their unique key: `o-1017 || o-1018`. Commas, a single"
        ' `|` and quotes are refused as in `tags`: a key that has them is written in a JSON list, `["a,b"]`.'
        " A blank (U+0020) ends a key; other white space is a part of it, as in RocketMQ",
    ),
    "columns": OptionText("", "names separated by commas, or `*` for all; by default the default columns"),
    "includeProperties": OptionText("false", "whether the default columns have `properties` as well"),
    "failOnDataLoss": OptionText(
        "true",
        "what to do when requested messages are gone: fail (`true`), or continue with the remaining messages (`false`)",
    ),
    "onCorruptRecord": OptionText(
        "fail", "`fail`; `skip` leaves damaged records out; `null` keeps their rows, with the column `corruptReason`"
    ),
    "verifyCrc": OptionText(
        "auto",
        "body checksums, CRC properties, and tags against the consume queue: `auto` checks the newest part of the log,"
        " where a crash can have torn it, as RocketMQ's own recovery does; `true` (or `always`) all; `false` (or"
        " `never`) none",
    ),
    "decompress": OptionText("true", "`false`: bodies as they are stored"),
    "bodyFormat": OptionText(
        "binary",
        "`json`: columns of `.schema` that no message has are fields of its body, an object of JSON; `body.topic` is"
        " the field `topic`. Bodies that are not as declared: `onCorruptRecord`",
    ),
    "maxBodyBytes": OptionText(
        f"{BODY_BYTES_MAX >> 20}m",
        "largest size of a compressed body once it is unpacked; a larger body counts as damaged (`onCorruptRecord`), "
        "at most `1g`",
    ),
    "scanMode": OptionText(
        "auto", "`queue` (through the consume queues) or `commitlog` (the files straight through): the same rows"
    ),
    "includeUncommitted": OptionText(
        "false", "whether messages of a DLedger log on which its group has not agreed yet are rows, too"
    ),
    "access": OptionText(
        "auto", "`mmap` maps all files, `pread` none; `auto` maps only files that no other process can truncate"
    ),
    "batchRows": OptionText(str(BATCH_ROWS), "the most rows in one Arrow batch"),
    "batchBytes": OptionText(
        str(BATCH_BYTES),
        "the most bytes of records that it holds, and of their bodies once decompressed (one larger body makes a batch "
        "of its own): memory is bounded by it; `8m`",
    ),
    "minPartitions": OptionText("0", "the least number of tasks, if there are enough messages"),
    "maxRecordsPerPartition": OptionText("", "the most messages of one task: big queues are cut into slices"),
    "maxBytesPerPartition": OptionText(f"{SPLIT_BYTES >> 20}m", "the most bytes of records of one task"),
    "mergePartitions": OptionText("true", "whether several small queues share one task"),
    "pushdown": OptionText(
        "off",
        "`true` also prunes by `where`, and needs `spark.sql.python.filterPushdown.enabled`: see [Spark](spark.md);"
        " `auto` where Spark does it right",
    ),
    "maxOffsetsPerTrigger": OptionText(
        "", "the most messages of one trigger (PySpark 4.2 and later, as the next three)"
    ),
    "maxBytesPerTrigger": OptionText("", "the most bytes of records of one trigger; `64m`"),
    "minOffsetsPerTrigger": OptionText(
        "", "the least messages of one trigger: fewer wait for more, `maxTriggerDelay` at most"
    ),
    "maxTriggerDelay": OptionText(
        f"{DELAY_MS // 60_000}m", "the longest wait for `minOffsetsPerTrigger`: `500ms`, `30s`, `1h`"
    ),
    "progressFile": OptionText("", f"a file to which a stream writes its committed offsets, {_PROGRESS}"),
    "progressGroup": OptionText("rmqstore", "the consumer group of the offsets in `progressFile`"),
}

WRITE: dict[str, OptionText] = {
    "path": OptionText("", _STORE),
    "topic": OptionText("", "the topic of all rows; by default the column `topic`"),
    "queues": OptionText(str(QUEUES_DEFAULT), "the number of queues over which rows without a `queueId` are spread"),
    "fileSizes": OptionText(
        "embedded", "sizes of a new store's files: `embedded` (64 MiB) or `broker` (a broker's 1 GiB)"
    ),
    "brokerConf": OptionText("", "instead of `fileSizes`: a broker's configuration file"),
    "storeHost": OptionText("", "the broker's address in each record: `203.0.113.9:10911`"),
    "writerId": OptionText(
        "", "with `batchId`: the name of the writer; each of its batches is added once, even if it is written again"
    ),
    "batchId": OptionText(
        "", "the number of the batch, which must rise; a batch whose number is not above the last one counts as added"
    ),
}
