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
        "in place of `path` the directory that `rmqstore replicate` makes: all stores in it, also those that come while"
        " a stream runs, each in a directory of its broker's name: `/data/rmq`; or several stores by broker name:"
        ' `{"broker-a": "/a", "broker-b": "/b"}`',
    ),
    "table": OptionText(
        "messages",
        "`messages`, or a table on the side: `queues`, `topics`, `groups`, `files`, `transactions`, "
        "`delayed`, `entries`",
    ),
    "subscribe": OptionText("", "topics, named whole, with commas between them: `orders,payments`"),
    "subscribePattern": OptionText("", "in place of it a regular expression (Python's) for the whole name: `orders.*`"),
    "assign": OptionText("", 'in place of both queues: `{"orders": [0, 1]}`, `{"orders": {"broker-a": [0, 1]}}`'),
    "includeSystemTopics": OptionText(
        "false",
        "whether a pattern also finds `%RETRY%…`, `%DLQ%…`, `SCHEDULE_TOPIC_XXXX`, `rmq_sys_…` and the like; a topic"
        " that is named is always read",
    ),
    "startingOffsets": OptionText(
        "earliest",
        'where to start: `earliest`, `group:<name>` (where that consumer group stands), JSON: `{"orders": {"0": 100}}`,'
        ' `{"orders": {"broker-a": {"0": 100}}}`; a queue that is not listed takes the default. A stream also takes'
        " `latest`, which is its default",
    ),
    "endingOffsets": OptionText("latest", "where to end: `latest`, or JSON; the end is not included"),
    "startingTimestamp": OptionText(
        "",
        "milliseconds, or ISO 8601 with a zone (`2026-11-21T05:20:23Z`), by `storeTimestamp`; wins over offsets. A"
        " number below 10^11 must be in seconds, and is refused",
    ),
    "endingTimestamp": OptionText("", "likewise; messages stored at that time or later are left out"),
    "startingOffsetsByTimestamp": OptionText("", _BY_QUEUE),
    "endingOffsetsByTimestamp": OptionText("", _BY_QUEUE),
    "startingOffsetsByTimestampStrategy": OptionText(
        "error", "what a start after the newest message of a queue is: `error`, or `latest` for no rows of that queue"
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
    "columns": OptionText("", "names with commas between them, or `*` for all; without it the default columns"),
    "includeProperties": OptionText("false", "whether the default columns have `properties` as well"),
    "failOnDataLoss": OptionText(
        "true", "what to do when wanted messages are gone: fail, or go on with what is there (`false`)"
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
    "decompress": OptionText("true", "`false` brings bodies as they are stored"),
    "bodyFormat": OptionText(
        "binary",
        "`json`: columns of `.schema` that no message has are fields of its body, an object of JSON; `body.topic` is"
        " the field `topic`. Bodies that are not as declared: `onCorruptRecord`",
    ),
    "maxBodyBytes": OptionText(
        f"{BODY_BYTES_MAX >> 20}m",
        "what a compressed body may unpack to; a larger one counts as damaged (`onCorruptRecord`), at most `1g`",
    ),
    "scanMode": OptionText(
        "auto", "`queue` (through the consume queues) or `commitlog` (the files straight through): the same rows"
    ),
    "includeUncommitted": OptionText(
        "false", "whether of a DLedger log also those messages are rows on which its group has not agreed yet"
    ),
    "access": OptionText(
        "auto", "`mmap` maps all files, `pread` none; `auto` maps only those that nobody can cut short"
    ),
    "batchRows": OptionText(str(BATCH_ROWS), "the most rows that one Arrow batch holds"),
    "batchBytes": OptionText(
        str(BATCH_BYTES),
        "the most bytes of records that it holds, and of their bodies once decompressed (one larger body makes a batch "
        "of its own): memory is bounded by it; `8m`",
    ),
    "minPartitions": OptionText("0", "at least so many tasks, if there is enough to share out"),
    "maxRecordsPerPartition": OptionText("", "the most messages of one task: big queues are cut into slices"),
    "maxBytesPerPartition": OptionText(f"{SPLIT_BYTES >> 20}m", "the most bytes of records of one task"),
    "mergePartitions": OptionText("true", "whether small queues are put together into one task"),
    "pushdown": OptionText(
        "off",
        "`true` also prunes by `where`, and needs `spark.sql.python.filterPushdown.enabled`: see [Spark](spark.md);"
        " `auto` where Spark does it right",
    ),
    "maxOffsetsPerTrigger": OptionText(
        "", "the most messages of one trigger (PySpark 4.2 and later, as the next three)"
    ),
    "maxBytesPerTrigger": OptionText("", "the most bytes of records of one trigger; `64m`"),
    "minOffsetsPerTrigger": OptionText("", "fewer messages wait for more, `maxTriggerDelay` at most"),
    "maxTriggerDelay": OptionText(f"{DELAY_MS // 60_000}m", "how long; `500ms`, `30s`, `1h`"),
    "progressFile": OptionText("", f"a file to which a stream writes its committed offsets, {_PROGRESS}"),
    "progressGroup": OptionText("rmqstore", "the consumer group in whose name it does"),
}

WRITE: dict[str, OptionText] = {
    "path": OptionText("", _STORE),
    "topic": OptionText("", "the topic of all rows; without it the column `topic` says it"),
    "queues": OptionText(str(QUEUES_DEFAULT), "over how many queues rows are spread that name none"),
    "fileSizes": OptionText(
        "embedded", "sizes of a new store's files: `embedded` (64 MiB) or `broker` (a broker's 1 GiB)"
    ),
    "brokerConf": OptionText("", "in place of it the file of a broker's configuration"),
    "storeHost": OptionText("", "the broker's address in each record: `203.0.113.9:10911`"),
    "writerId": OptionText("", "with `batchId`: the name under which a batch is added once, however often it comes"),
    "batchId": OptionText("", "its number, which rises; one that is not above the last is taken as added"),
}
