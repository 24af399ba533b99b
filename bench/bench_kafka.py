"""Spark's Kafka source and this one on the same messages, in one Spark session, by turns.

python -m bench.bench_kafka [--only batch|stream|sink] [--count N] [--stream-count N] [--rounds N] [--json FILE]

Kafka is one node on the loopback (bench/kafka); node, producer, connector and consumer have their defaults.  Both
sides have the same messages in 4 queues or partitions, in the same order, which is checked first, and both write to
Spark's `noop` sink or collect one number.  The sinks write the same rows, into a new topic or store each time, and are
checked afterwards: ours is on the disk then, with queues and index, what Kafka took is in its node.  Prints every
figure with its goal.
"""

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from pyspark import __version__ as spark_version
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.readwriter import DataStreamReader

from bench.bench_sink import message_rows
from bench.bench_spark import show_this_project
from bench.cpu import tree_seconds
from bench.figures import OUTPUT, Cost, Figure, Step, best_costs, table, write_json
from bench.kafka import messages, node
from bench.kafka.messages import WANTED_TAG
from bench.quiet import only_ours
from rmqstore.snapshot.columns import DEFAULT_COLUMNS

COUNT, SINK_COUNT, ROUNDS = 2_500_000, 2_000_000, 3
TOPIC, STREAM_TOPIC = "BenchTopic", "BenchStream"
V1_LIST = "spark.sql.sources.useV1SourceList"
# As Spark has it, without kafka.
V2_SOURCES = "avro,csv,json,orc,parquet,text"
ALL_COLUMNS = ",".join((*DEFAULT_COLUMNS, "properties"))
# The fastest of the ways to say it: exists, array_contains of a struct, map_from_entries, filter.
HAS_TAG = f"exists(headers, header -> header.key = 'TAGS' and header.value = cast('{WANTED_TAG}' as binary))"
# At the end of a log a fetch waits for more, half a second by default, and the next read of a cached consumer for it.
WAIT_MS, SHORT_WAIT_MS = 500, 20
QUEUES_GOAL_S = 1.0
# One number for all that a message is; the same for the same messages at the same places, in any order.
KAFKA_DIGEST = (
    "bit_xor(xxhash64(partition, offset, value, cast(key as string), "
    "transform(headers, header -> struct(header.key, cast(header.value as string)))))"
)
OUR_DIGEST = (
    "bit_xor(xxhash64(queueId, queueOffset, body, keys, "
    "transform(array('TAGS', 'KEYS', 'UNIQ_KEY'), name -> struct(name, properties[name]))))"
)

Action = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to do with the messages: by Kafka's default path, by its V2 path where that is another one, by ours;
    `goal` is how many times as fast ours has to be as the default; None: told, not judged."""

    name: str
    kafka: Action
    kafka_v2: Action | None
    ours: Action
    goal: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """The costs of a case, the best of all rounds; CPU seconds are those of Spark and its Python, not of the node."""

    case: Case
    kafka: Cost
    kafka_v2: Cost | None
    ours: Cost


class Sides:
    """The same messages on two sides, as frames of one session."""

    def __init__(self, spark: SparkSession, address: str, stores: dict[str, Path], scratch: Path) -> None:
        self._spark, self._address, self._stores, self._scratch = spark, address, stores, scratch
        self._written = itertools.count()
        self._last_topic, self._last_store = "", Path()

    def kafka(self, topic: str, *, is_v2: bool = False, headers: bool = False, wait_ms: int = WAIT_MS) -> DataFrame:
        """Kafka's batch source; Spark looks at the list when the frame is made."""
        if is_v2:
            self._spark.conf.set(V1_LIST, V2_SOURCES)
        try:
            reader = self._spark.read.format("kafka").option("kafka.bootstrap.servers", self._address)
            reader = reader.option("subscribe", topic).option("includeHeaders", headers)
            return reader.option("kafka.fetch.max.wait.ms", wait_ms).load()
        finally:
            self._spark.conf.unset(V1_LIST)

    def ours(self, topic: str, columns: str, **options: str) -> DataFrame:
        """A batch read of the store that has `topic`."""
        reader = self._spark.read.format("rmqstore").option("subscribe", topic).option("columns", columns)
        return reader.options(**options).load(str(self._stores[topic]))

    def kafka_stream(self, *columns: str) -> DataFrame:
        """A stream of Kafka's source from the beginning."""
        reader = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._address)
        reader = reader.option("subscribe", STREAM_TOPIC).option("includeHeaders", len(columns) == 0)
        return _from_beginning(reader).load().select(*columns or ["*"])

    def our_stream(self, columns: str) -> DataFrame:
        """A stream of ours from the beginning."""
        reader = self._spark.readStream.format("rmqstore").option("subscribe", STREAM_TOPIC).option("columns", columns)
        return _from_beginning(reader).load(str(self._stores[STREAM_TOPIC]))

    def available_now(self, frame: DataFrame, count: int) -> None:
        """Runs a stream over what is there, with a checkpoint of its own.  Raises RuntimeError unless it is `count`
        rows."""
        checkpoint = Path(tempfile.mkdtemp(dir=self._scratch))
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        rows = sum(progress.numInputRows for progress in query.recentProgress)
        shutil.rmtree(checkpoint)
        if rows != count:
            raise RuntimeError(f"the stream brought {rows} of {count} rows")

    def write_kafka(self, rows: DataFrame) -> None:
        """Kafka's sink: keys, values and a header, into a new topic."""
        self._last_topic = f"Sink{next(self._written)}"
        header = "array(named_struct('key', 'TAGS', 'value', cast(tags AS binary))) AS headers"
        writer = rows.selectExpr("keys AS key", "body AS value", header).write.format("kafka")
        writer.option("kafka.bootstrap.servers", self._address).option("topic", self._last_topic).save()

    def write_store(self, rows: DataFrame) -> None:
        """Our sink, into a new store."""
        self._last_store = self._scratch / f"sink-{next(self._written)}"
        writer = rows.write.format("rmqstore").option("topic", "Sink").option("queues", 4)
        writer.mode("append").save(str(self._last_store))

    def check_sinks(self, count: int) -> None:
        """Raises RuntimeError unless both sinks have written all rows."""
        theirs = self.kafka(self._last_topic).selectExpr("count(*)", "sum(cast(cast(key AS string) AS bigint))").first()
        ours = self._spark.read.format("rmqstore").option("subscribe", "Sink").option("columns", "keys")
        seen = ours.load(str(self._last_store)).selectExpr("count(*)", "sum(cast(keys AS bigint))").first()
        wanted = (count, count * (count - 1) // 2)
        if theirs is None or seen is None or tuple(theirs) != wanted or tuple(seen) != wanted:
            raise RuntimeError(f"of {wanted} Kafka's sink wrote {theirs}, ours {seen}")

    def messages_per_topic(self, topic: str) -> object:
        """What `select topic, sum(messages) … group by topic` says of the table `queues`."""
        queues = self._spark.read.format("rmqstore").option("table", "queues").load(str(self._stores[topic]))
        return queues.groupBy("topic").agg(functions.sum("messages")).collect()

    def check_same(self, topic: str, count: int) -> None:
        """Raises RuntimeError unless both sides have the same `count` messages at the same places."""
        theirs = self.kafka(topic, headers=True).selectExpr("count(*)", KAFKA_DIGEST).first()
        ours = self.ours(topic, "queueId,queueOffset,body,keys,properties").selectExpr("count(*)", OUR_DIGEST).first()
        if theirs is None or ours is None or tuple(theirs) != tuple(ours) or ours[0] != count:
            raise RuntimeError(f"{topic}: Kafka has {theirs}, the store has {ours}, {count} messages were put")


def batch_cases(sides: Sides) -> list[Case]:
    """The batch reads."""

    def value(*, is_v2: bool = False) -> Action:
        return _into_noop(sides.kafka(TOPIC, is_v2=is_v2).select("value"))

    def everything(*, is_v2: bool = False) -> Action:
        return _into_noop(sides.kafka(TOPIC, is_v2=is_v2, headers=True))

    def counted(*, is_v2: bool = False) -> Action:
        return _counted(sides.kafka(TOPIC, is_v2=is_v2), "offset")

    def tagged(*, is_v2: bool = False) -> Action:
        return _into_noop(sides.kafka(TOPIC, is_v2=is_v2, headers=True).where(HAS_TAG).select("value"))

    ours = {
        "value": _into_noop(sides.ours(TOPIC, "body")),
        "everything": _into_noop(sides.ours(TOPIC, ALL_COLUMNS)),
        "counted": _counted(sides.ours(TOPIC, "queueOffset"), "queueOffset"),
        "tagged": _into_noop(sides.ours(TOPIC, "body", tags=WANTED_TAG)),
    }
    return [
        Case("value only", value(), value(is_v2=True), ours["value"], 2),
        Case(
            f"value only, Kafka's fetch.max.wait.ms {SHORT_WAIT_MS}",
            _into_noop(sides.kafka(TOPIC, wait_ms=SHORT_WAIT_MS).select("value")),
            _into_noop(sides.kafka(TOPIC, is_v2=True, wait_ms=SHORT_WAIT_MS).select("value")),
            ours["value"],
            None,
        ),
        Case("all columns with headers", everything(), everything(is_v2=True), ours["everything"], 1.5),
        Case("one column counted", counted(), counted(is_v2=True), ours["counted"], 3),
        Case("tag filter that keeps a tenth", tagged(), tagged(is_v2=True), ours["tagged"], 10),
    ]


def stream_cases(sides: Sides, count: int) -> list[Case]:
    """The streams; Kafka's are V2 by default, so that there is one path."""

    def theirs(*columns: str) -> Action:
        return lambda: sides.available_now(sides.kafka_stream(*columns), count)

    def ours(columns: str) -> Action:
        return lambda: sides.available_now(sides.our_stream(columns), count)

    return [
        Case("AvailableNow, value only", theirs("value"), None, ours("body"), 2),
        Case("AvailableNow, all columns", theirs(), None, ours(ALL_COLUMNS), 2),
    ]


def sink_cases(sides: Sides, rows: DataFrame) -> list[Case]:
    """Writing; Kafka's sink has one path."""
    return [Case("the sink", lambda: sides.write_kafka(rows), None, lambda: sides.write_store(rows), 1)]


def measure(
    scratch: Path, count: int, stream_count: int, rounds: int, kinds: Sequence[str]
) -> tuple[list[Result], float]:
    """All cases, by turns; and the seconds of messages per topic.  Raises RuntimeError where the sides differ."""
    counts = {TOPIC: count} | ({STREAM_TOPIC: stream_count} if "stream" in kinds else {})
    stores = {topic: scratch / f"store-{topic}" for topic in counts}
    with node.KafkaNode(scratch) as kafka:
        for topic in counts:
            _say(f"loading {counts[topic]:,} messages into {topic} …")
            messages.load(kafka, stores[topic], topic, counts[topic], scratch)
        spark = _session()
        try:
            sides = Sides(spark, kafka.address, stores, scratch)
            for topic in counts:
                sides.check_same(topic, counts[topic])
            cases = batch_cases(sides) if "batch" in kinds else []
            cases += stream_cases(sides, stream_count) if "stream" in kinds else []
            cases += sink_cases(sides, message_rows(spark, scratch, SINK_COUNT)) if "sink" in kinds else []
            _say(f"{len(cases)} cases, {rounds} rounds and one to warm up …")
            per_topic = partial(sides.messages_per_topic, max(counts, key=counts.__getitem__))
            timed = _timed(cases, per_topic, rounds, partial(tree_seconds, kafka.processes))
            if "sink" in kinds:
                sides.check_sinks(SINK_COUNT)
            return timed
        finally:
            spark.stop()


def _timed(
    cases: Sequence[Case], per_topic: Action, rounds: int, cpu: Callable[[], float]
) -> tuple[list[Result], float]:
    actions = [action for case in cases for action in (case.kafka, case.kafka_v2, case.ours) if action is not None]
    # What one side has left to be written, as Kafka leaves nearly all, is not to be written in the other's time.
    *taken, queues = best_costs([*actions, per_topic], rounds, os.sync, cpu)
    left = iter(taken)
    return [
        Result(case, next(left), next(left) if case.kafka_v2 is not None else None, next(left)) for case in cases
    ], queues.wall_s


def figures(results: Sequence[Result], queues_s: float) -> list[Figure]:
    """A figure for each path of Kafka's that ours is held against, and one for messages per topic."""
    rows = []
    for result in results:
        name, ours = result.case.name, result.ours
        paths = [
            ("default", result.kafka, result.case.goal),
            ("V2", result.kafka_v2, 1.0 if result.case.goal else None),
        ]
        rows += [
            Figure(
                line=f"{name}, Kafka {path} / ours",
                value=ours.wall_s,
                unit=f"s ({ours.cpu_s:.2f} of CPU)",
                against=f"Kafka {path} {theirs.wall_s:.2f} s ({theirs.cpu_s:.2f} of CPU)",
                judged=theirs.wall_s / ours.wall_s,
                goal=goal,
            )
            for path, theirs, goal in paths
            if theirs is not None
        ]
    return [
        *rows,
        Figure(
            line="messages per topic from the table queues",
            value=queues_s,
            unit="s",
            judged=queues_s,
            goal=QUEUES_GOAL_S,
            at_least=False,
        ),
    ]


def circumstances(count: int, stream_count: int, rounds: int) -> str:
    """How the figures were made."""
    return (
        f"make bench-kafka: {count:,} messages ({stream_count:,} in the streams, {SINK_COUNT:,} in the "
        f"sinks) with {messages.BODY_SIZE} B bodies, "
        f"key, tag and unique key, in {messages.QUEUE_COUNT} queues or partitions, the same in both, which is checked; "
        f"Spark {spark_version} local[2] with the connector {node.CONNECTOR}, one session, by turns, warmed up, "
        f"the best of {rounds} rounds, into the noop sink; one Kafka {node.kafka_version()} node on the loopback, "
        f"all in the page cache"
    )


def _session() -> SparkSession:
    show_this_project()
    session: SparkSession = (
        SparkSession.builder.master("local[2]")
        .appName("rmqstore bench-kafka")
        .config("spark.jars", ",".join(node.connector_jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _into_noop(frame: DataFrame) -> Action:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _counted(frame: DataFrame, column: str) -> Action:
    """A new frame for each time, because Spark keeps the stages of one that it has run."""
    return lambda: frame.agg(functions.count(column)).collect()


def _from_beginning(reader: DataStreamReader) -> DataStreamReader:
    return reader.option("startingOffsets", "earliest")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status: 1 when it failed, 2 when Kafka cannot be had.  A missed goal is
    marked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=COUNT, help=f"messages of the batch reads; {COUNT:,} by default")
    parser.add_argument("--stream-count", type=int, help="messages of the streams; twice as many by default")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"{ROUNDS} by default")
    parser.add_argument("--only", choices=("batch", "stream", "sink"), help="leaves the other kinds out")
    parser.add_argument("--json", type=Path, default=OUTPUT / "bench-kafka.json", help="where the figures go as well")
    chosen = parser.parse_args(arguments)
    if missing := node.build():
        _say(f"bench-kafka: {missing}")
        return 2
    stream_count = chosen.stream_count or 2 * chosen.count
    kinds = (chosen.only,) if chosen.only else ("batch", "stream", "sink")
    log, scratch_room = OUTPUT / "bench-kafka.log", os.environ.get("RMQSTORE_BENCH_DIR")
    spent_s, began_s = tree_seconds(), monotonic()
    with only_ours(log) as shown, tempfile.TemporaryDirectory(prefix="rmqstore-bench-", dir=scratch_room) as scratch:
        try:
            results, queues_s = measure(Path(scratch), chosen.count, stream_count, chosen.rounds, kinds)
        except Exception:  # noqa: BLE001  whatever it is, it is said where people look
            traceback.print_exc(file=shown)
            _say(f"bench-kafka failed; what Spark and others said is in {log}")
            return 1
    rows = figures(results, queues_s)
    step = Step(name="all of it", wall_s=monotonic() - began_s, cpu_s=tree_seconds() - spent_s)
    print(table(rows))
    write_json(chosen.json, circumstances(chosen.count, stream_count, chosen.rounds), rows, [step])
    missed, goals = (sum(row.verdict == "MISSED" for row in rows), sum(row.verdict != "-" for row in rows))
    print(f"\n{missed} of {goals} goals missed; {chosen.json} has the figures, {log} what Spark and others said")
    return 0


if __name__ == "__main__":
    raise SystemExit(run())
