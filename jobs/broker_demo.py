"""The demo's part about a broker's features: a delay, two transactions and a dead letter, each found again by Spark."""

import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

import rmqstore

from .engine_demo import remove
from .printing import code, heading, paragraph, table

STORE = "broker-store"
TOPIC, GROUP = "orders", "billing"
REMINDER, PAID, CANCELLED, POISON = "reminder", "paid", "cancelled", "poison"
WAITING, HALF = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
MEANING = {
    WAITING: "waits for its time",
    HALF: "prepared: nobody gets it yet",
    TOPIC: "where consumers get it",
    RETRY: f"{GROUP} gets it once more",
    DEAD: "a dead letter: given up",
}
# Through which topics each message goes.
JOURNEYS = {
    REMINDER: (WAITING, TOPIC),
    PAID: (HALF, TOPIC),
    CANCELLED: (HALF,),
    POISON: (TOPIC, WAITING, RETRY, DEAD),
}
DEADLINE_S = 10.0
SHOWN_CODE = f"""
store.put(Message("{TOPIC}", b"{REMINDER}", properties={{"DELAY": "1"}}))
half = store.transactions.prepare(Message("{TOPIC}", b"{PAID}"), "shop")
store.transactions.commit(store.transactions.prepared(half))
# likewise "{CANCELLED}", but with .rollback; then "{POISON}", without all that
consumer = store.consumer("{GROUP}", "{TOPIC}")
for message in consumer.poll():
    if not can_be_dealt_with(message):
        consumer.send_back(message)   # comes again, but not for ever
consumer.commit()
"""
READ = f"""
spark.read.format("rmqstore")
    .option("subscribe", "{TOPIC},{HALF},...")"""


def journeys(messages: DataFrame) -> DataFrame:
    """Where each message was and when, one after the other as they were sent: message, seconds, topic, meaning.

    `messages` has topic, body, physicalOffset, bornTimestamp and storeTimestamp; messages are told apart by their
    bodies, and seconds count from the sending.
    """
    text = f.col("body").cast("string")
    seconds = f.col("storeTimestamp").cast("double") - f.col("bornTimestamp").cast("double")
    meaning: Column = f.create_map(*(f.lit(each) for pair in MEANING.items() for each in pair))[f.col("topic")]
    numbered = messages.withColumn("first", f.min("physicalOffset").over(Window.partitionBy("body")))
    return numbered.orderBy("first", "physicalOffset").select(
        text.alias("message"), f.round(seconds, 2).alias("seconds"), "topic", meaning.alias("meaning")
    )


def write(store: rmqstore.Store) -> list[str]:
    """Has four messages make their journeys; returns what the consumer got, in its order."""
    store.groups.put(rmqstore.SubscriptionGroup(GROUP, retry_max_times=1))
    store.put(rmqstore.Message(TOPIC, REMINDER.encode(), properties={"DELAY": "1"}))
    transactions = store.transactions
    paid = transactions.prepare(rmqstore.Message(TOPIC, PAID.encode()), "shop")
    transactions.commit(transactions.prepared(paid))
    cancelled = transactions.prepare(rmqstore.Message(TOPIC, CANCELLED.encode()), "shop")
    transactions.rollback(transactions.prepared(cancelled))
    store.put(rmqstore.Message(TOPIC, POISON.encode()))
    got: list[str] = []
    with store.consumer(GROUP, TOPIC) as consumer:

        def poll() -> bool:
            for message in consumer.poll():
                body = (message.body or b"").decode()
                got.append(body)
                if body == POISON:
                    consumer.send_back(message)
            return len(got) >= len(JOURNEYS) and bool(consumer.dead_letters())

        wait_for(poll)
    return got


def wait_for(happens: Callable[[], bool]) -> None:
    """Asks until it has happened, or for too long."""
    end_s = time.monotonic() + DEADLINE_S
    while not happens() and time.monotonic() < end_s:
        time.sleep(0.02)


def show_broker(spark: SparkSession, output: Path) -> None:
    """Part 7: messages that wait, that are not sent after all, and that nobody can deal with."""
    path = output / STORE
    remove(path)
    print(heading("7. Later, perhaps, or never: what else a broker does"))
    print(
        paragraph(
            """A message may ask to be delivered later; it may be prepared, and sent only when its sender commits; and
            one that a consumer cannot deal with comes again, and is put aside after too many times.  All that works in
            a store of one's own, too:"""
        )
    )
    print(code(SHOWN_CODE))
    # RocketMQ's first retry waits for level 3, which is 10 s; here all levels are 1 s.
    config = rmqstore.StoreConfig.embedded(delay_levels="1s 1s 1s 1s")
    with rmqstore.open_store(str(path), config) as store:
        got = write(store)
    print(paragraph(f"The consumer got, in this order: {', '.join(got)}.  What became of each, found by Spark:"))
    show_journeys(spark, path)


def show_journeys(spark: SparkSession, path: Path) -> None:
    """Reads all topics that messages went through, those of the broker's own among them."""
    topics = ",".join(MEANING)
    print(code(f'{READ}\n    .load("{path}")'))
    read = spark.read.format("rmqstore").option("subscribe", topics)
    found = journeys(read.load(str(path))).cache()
    print(table(found))
    print()
    went: dict[str, tuple[str, ...]] = {}
    for row in found.collect():
        went[row.message] = (*went.get(row.message, ()), row.topic)
    print(paragraph(verdict(went)))
    print(paragraph("(`seconds`: since it was sent, which every copy of a message says.)"))


def verdict(went: dict[str, tuple[str, ...]]) -> str:
    """One sentence about whether all messages went where they should."""
    if went == JOURNEYS:
        return f"The {REMINDER} came late, {PAID} was sent, {CANCELLED} never was, and {POISON} was given up."
    wrong = sorted(name for name in {*JOURNEYS, *went} if went.get(name) != JOURNEYS.get(name))
    return f"UNEXPECTED: {', '.join(wrong)}."
