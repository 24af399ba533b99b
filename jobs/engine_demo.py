"""The demo's part about the store engine: a program that writes is killed, its store is recovered and read by Spark."""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from .printing import code, heading, paragraph, table

STORE = "engine-store"
ANSWERS = 400
ACKNOWLEDGED = "topic string, messages long, offset long"
SHOWN_CODE = """
with rmqstore.open_store(path, StoreConfig.embedded(flush="SYNC")) as store:
    store.put(Message("orders", body, tags="new", keys=["e-17"]))
    store.put_batch(payments)         # a list of messages
    store.put_columns(audit)          # an Arrow table: topic, body, tags
"""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An answer of the store: so many messages of a topic are stored, the first at `offset` of the commitlog."""

    topic: str
    offset: int
    size: int
    messages: int


def arrivals(messages: DataFrame, acknowledged: DataFrame) -> DataFrame:
    """Whether everything that was acknowledged is there: topic, acknowledged, found, unanswered.

    `messages` with topic and physicalOffset; `acknowledged` with topic, messages and offset, one row an answer.  The
    writer had one answer before it asked again: `found` counts the messages up to the last one that was answered,
    `unanswered` those after them, which were stored, but the writer died before it could hear of it.
    """
    newest = acknowledged.agg(f.max("offset").alias("newest"))
    place = messages.crossJoin(newest).groupBy("topic")
    is_answered = f.col("physicalOffset") <= f.col("newest")
    found = place.agg(f.count_if(is_answered).alias("found"), f.count_if(~is_answered).alias("unanswered"))
    answered = acknowledged.groupBy("topic").agg(f.sum("messages").alias("acknowledged"))
    joined = answered.join(found, "topic", "full").na.fill(0)
    return joined.select("topic", "acknowledged", "found", "unanswered").orderBy("topic")


def read_answers(lines: Iterable[str]) -> list[Acknowledgement]:
    """The answers that a writer printed; a line without its end does not count."""
    answers = []
    for line in lines:
        if line.endswith("\n"):
            topic, *numbers = line.split()
            answers.append(Acknowledgement(topic, *map(int, numbers)))
    return answers


def write_and_kill(store: Path, example: Path, answer_count: int) -> list[Acknowledgement]:
    """Has a process write to `store`, and kills it with SIGKILL after so many answers; returns all that it had.

    Raises ChildProcessError when it ends by itself before.
    """
    command = [sys.executable, "-m", f"{__package__}.engine_writer", str(store), str(example)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as writer:  # noqa: S603  our own
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(answer_count)]
        writer.kill()
        lines += writer.stdout.readlines()
    if not all(lines):
        raise ChildProcessError(f"the writer of {store} ended by itself")
    return read_answers(lines)


def recover(store: Path, *options: str) -> str:
    """The output of `rmqstore recover STORE`.  Raises ChildProcessError with its last line when it fails."""
    command = [sys.executable, "-c", "from rmqstore.cli import main; main()", "recover", str(store), *options]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)  # noqa: S603  our own
    if done.returncode != 0:
        raise ChildProcessError((done.stderr.strip().splitlines() or ["rmqstore recover failed"])[-1])
    return done.stdout


def remove(directory: Path) -> None:
    """Removes what an earlier run left."""
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
    if directory.exists():
        directory.rmdir()


def show_engine(spark: SparkSession, example: Path, output: Path) -> None:
    """Part 6: a process writes and is killed; its store is recovered and counted."""
    store = output / STORE
    remove(store)
    print(heading("6. A store of your own, and a kill in the middle of writing"))
    print(
        paragraph(
            """A program can have such a store to itself, without a broker.  Here another process opens an empty one and
            puts messages in three ways, without end:"""
        )
    )
    print(code(SHOWN_CODE))
    answers = write_and_kill(store, example, ANSWERS)
    total = sum(answer.messages for answer in answers)
    print(
        paragraph(
            f"""After {len(answers)} answers for {total:,} messages it was killed (SIGKILL), with no chance to tidy up.
            What opening the store again would do about that:"""
        )
    )
    show_command(f"rmqstore recover {store} --dry-run", recover(store, "--dry-run"))
    print(paragraph("That was only the plan.  Now it is done, as the next open_store would do by itself:"))
    show_command(f"rmqstore recover {store}", recover(store).splitlines()[-1])
    show_arrivals(spark, store, answers)


def show_arrivals(spark: SparkSession, store: Path, answers: Sequence[Acknowledgement]) -> None:
    """Counts with Spark what is in the store, beside the answers."""
    print(
        paragraph(
            """Is every message there that the store had acknowledged?  Spark has counted them.  (`unanswered` are those
            that were written, but the kill came before the answer.)"""
        )
    )
    print()
    rows = [(answer.topic, answer.messages, answer.offset + answer.size - 1) for answer in answers]
    read = spark.read.format("rmqstore").option("subscribePattern", ".*").option("columns", "topic,physicalOffset")
    counted = arrivals(read.load(str(store)), spark.createDataFrame(rows, ACKNOWLEDGED)).cache()
    print(table(counted))
    print()
    lost = sum(row.acknowledged - row.found for row in counted.collect())
    print(paragraph("Acknowledged and found are the same." if lost == 0 else f"LOST: {lost} messages."))
    print(paragraph("The store stays where it is; a RocketMQ broker could open it, too:"))
    print(code(f"{store}/"))


def show_command(command: str, printed: str) -> None:
    """A command and what it printed, both as they are."""
    print(code(f"$ {command}"))
    print(printed.rstrip("\n"))
    print()
