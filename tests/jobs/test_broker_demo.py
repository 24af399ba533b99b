"""The demo's part about a broker's features: its journeys, and a store in which they happen without any waiting."""

import datetime

import pytest
from chispa import assert_df_equality

import rmqstore
from jobs import broker_demo
from jobs.broker_demo import DEAD, HALF, JOURNEYS, RETRY, TOPIC, WAITING, journeys, verdict

pytest_plugins = ["rmqstore.testing"]

MESSAGES = "topic string, body binary, physicalOffset long, bornTimestamp timestamp, storeTimestamp timestamp"
COLUMNS = "message string, seconds double, topic string, meaning string"


@pytest.mark.spark
def test_journeys_are_in_the_order_of_sending_and_then_of_the_log(spark):
    start = datetime.datetime(2026, 11, 19, 8, tzinfo=datetime.UTC)

    def row(topic: str, body: bytes, offset: int, sent_s: float, stored_s: float):
        born, stored = (start + datetime.timedelta(seconds=seconds) for seconds in (sent_s, stored_s))
        return topic, body, offset, born, stored

    rows = [
        row(TOPIC, b"late", 900, 1.0, 2.25),
        row(TOPIC, b"now", 400, 1.5, 1.5),
        row(WAITING, b"late", 100, 1.0, 1.001),
        row("others", b"first", 0, 0.0, 0.0),
    ]
    expected = [
        ("first", 0.0, "others", None),
        ("late", 0.0, WAITING, "waits for its time"),
        ("late", 1.25, TOPIC, "where consumers get it"),
        ("now", 0.0, TOPIC, "where consumers get it"),
    ]
    found = journeys(spark.createDataFrame(rows, MESSAGES))
    assert_df_equality(found, spark.createDataFrame(expected, COLUMNS), ignore_nullable=True)


def test_every_message_goes_where_the_demo_says(rmq_store_factory, monkeypatch):
    store = rmq_store_factory(delay_levels="1s 1s 1s 1s")

    def wait_for(happens) -> None:
        for _ in range(10):
            store.deliver(500)
            if happens():
                return

    monkeypatch.setattr(broker_demo, "wait_for", wait_for)
    assert broker_demo.write(store) == ["paid", "poison", "reminder", "poison"]
    store.flush()
    snapshot = rmqstore.open_snapshot(store.path)
    scan = snapshot.scan(topics=list(broker_demo.MEANING), columns=["topic", "body", "physicalOffset"])
    rows = sorted(scan.read_all().to_pylist(), key=lambda row: row["physicalOffset"])
    went: dict[str, tuple[str, ...]] = {}
    for row in rows:
        name = row["body"].decode()
        went[name] = (*went.get(name, ()), row["topic"])
    assert went == JOURNEYS


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "The reminder came late, paid was sent, cancelled never was, and poison was given up."),
        ({"cancelled": (HALF, TOPIC)}, "UNEXPECTED: cancelled."),
        ({"poison": (TOPIC, WAITING, RETRY)}, "UNEXPECTED: poison."),
        ({"poison": (TOPIC, WAITING, RETRY, DEAD, DEAD), "other": ()}, "UNEXPECTED: other, poison."),
    ],
)
def test_what_went_wrong_is_said(changed, expected):
    assert verdict(JOURNEYS | changed) == expected


def test_waiting_ends(monkeypatch):
    times = iter(range(100))
    monkeypatch.setattr(broker_demo.time, "monotonic", lambda: next(times))
    monkeypatch.setattr(broker_demo.time, "sleep", lambda _: None)
    asked = []
    broker_demo.wait_for(lambda: asked.append(0))
    assert 5 < len(asked) < 15
