"""Topics of names that no client may send to and that brokers store all the same: retry topics V2 of POP consumers,
light queues of MQTT and of lite topics, names that an older broker or a tool let in."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmqstore import StoreConfig, open_snapshot, open_store
from rmqstore.files.reading import LOCAL
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify import verify
from tests.snapshot.small_store import QUEUE_FILE_ENTRIES, SmallStore
from tests.spark_source.stream.streams import Stream

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=4096, queue_file_size=QUEUE_FILE_ENTRIES * 20, multi_dispatch=True)
NAMES = (
    "%RETRY%billing+orders",
    "%RETRY%billing+%RETRY%billing",
    "%DLQ%billing.eu",
    "orders.v2",
    "orders$lite",
    "orders,eu",
    "заказы",
    "订单",
    "all orders",
    "rock'n'roll!",
    "$x",
    "$marks",
    "$from",
    "a\\b",
    "a\nb\t",
    ".hidden",
)
LIGHT_NAMES = ("%LMQ%$orders$lite-1", "%LMQ%device.1%state", "%LMQ%устройство/1".replace("/", ":"))


def made(root: Path, topic: str) -> Path:
    """Three messages of `orders` and of the topic in turns; those of a light queue are messages of `orders`."""
    store = SmallStore()
    light = topic.startswith("%LMQ%")
    for number in range(3):
        store.add("orders", 0, body=b"o%d" % number)
        place = {"INNER_MULTI_DISPATCH": topic, "INNER_MULTI_QUEUE_OFFSET": str(number)}
        store.add("orders" if light else topic, 0, body=b"n%d" % number, properties=place if light else None)
        if light:
            store.entries.setdefault((topic, 0), []).append(store.entries["orders", 0][-1])
    return store.write(root)


def bodies(root: Path, topic: str, mode: str = "auto") -> list[bytes]:
    batches = open_snapshot(root).scan(topics=[topic], columns="body", scan_mode=mode, include_system_topics=True)
    return [body for batch in batches for body in batch.column("body").to_pylist()]


@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
@pytest.mark.parametrize("topic", [*NAMES, *LIGHT_NAMES])
def test_every_stored_name_is_listed_and_read(tmp_path: Path, topic: str, mode: str) -> None:
    root = made(tmp_path / "store", topic)
    orders = [b"o0", b"n0", b"o1", b"n1", b"o2", b"n2"] if topic.startswith("%LMQ%") else [b"o0", b"o1", b"o2"]
    assert topic in open_snapshot(root).queues().column("topic").to_pylist()
    assert bodies(root, "orders", mode) == orders
    assert bodies(root, topic, mode) == [b"n0", b"n1", b"n2"]
    findings = [found for found in verify(survey(LOCAL, str(root))) if not found.path.endswith("checkpoint")]
    assert [found for found in findings if found.severity == DAMAGE] == []


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("topic", NAMES)
def test_every_stored_name_is_followed_once(tmp_path: Path, topic: str, chosen: bool) -> None:
    root = made(tmp_path / "store", topic)
    how: dict[str, Any] = {"topics": [topic]} if chosen else {"pattern": ".*", "include_system_topics": True}
    found, offsets = [], None
    for _ in range(3):
        start = {"start": "earliest"} if offsets is None else {"after": offsets}
        following = open_snapshot(root).follow(wait_s=0, columns="body", **how, **start)
        found += [body for batch in following for body in batch.rows.column("body").to_pylist()]
        offsets = json.loads(json.dumps(following.offsets))
    assert sorted(found) == sorted([b"n0", b"n1", b"n2"] + ([] if chosen else [b"o0", b"o1", b"o2"]))


@pytest.mark.parametrize("topic", NAMES)
def test_every_stored_name_is_streamed_by_spark_s_reader(tmp_path: Path, topic: str) -> None:
    root = made(tmp_path / "store", topic)
    stream = Stream(root, subscribe="-", assign=json.dumps({topic: [0]}))
    assert [stream.step(), stream.step()] == [3, 0]
    stream.start()
    assert stream.step() == 0
    again = Stream(root, subscribe="-", assign=json.dumps({topic: [0]}), startingOffsets=stream.ends[-1])
    assert again.step() == 0


@pytest.mark.parametrize("topic", [*NAMES, *LIGHT_NAMES])
def test_a_recovery_makes_the_queues_of_every_stored_name_again(tmp_path: Path, topic: str) -> None:
    root = made(tmp_path / "store", topic)
    for file in sorted((root / "consumequeue").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (root / "abort").touch()
    if not topic.startswith("%LMQ%"):  # readers know of light queues by their files alone
        assert bodies(root, topic) == [b"n0", b"n1", b"n2"]
    with open_store(root, CONFIG) as store:
        assert store.warnings == []
        assert [message.body for message in store.get(topic, 0, 0).messages] == [b"n0", b"n1", b"n2"]
        store.offsets.commit("billing", topic, 0, 2)
    with open_store(root, CONFIG) as store:
        assert store.offsets.committed("billing", topic, 0) == 2
    assert bodies(root, topic) == [b"n0", b"n1", b"n2"]
