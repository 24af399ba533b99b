"""The engine and RocketMQ itself on the same stores: handed to and fro, replayed byte for byte.

RMQSTORE_CONFORMANCE_SEED repeats a run.  Needs the oracle (`make conformance`).
"""

import base64
import random
import shutil
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import StoreInUse
from rmqstore.formats.broker_json import TopicConfig
from rmqstore.formats.index import read_items
from rmqstore.testing import Probe
from tests.conformance.features import FEATURES
from tests.conformance.java import VERSIONS, java_put, jvm
from tests.conformance.relay import Leg, run_relay
from tests.conformance.replay import checkpoint_differences, file_differences, replay, sent_by_java
from tests.conformance.scripts import PART_COUNT, SCRIPTS
from tests.conformance.workload import JAVA_SIZES, SIZES, Json, as_request

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("nobody_delivers")]

LEGS = [
    pytest.param(version, name, marks=[pytest.mark.deep] if version == "5.5.1" else [])
    for version in ("5.3.3", "4.9.8", "5.5.1")
    for name, feature in FEATURES.items()
    if version in feature.versions
]


@pytest.fixture(scope="module")
def relays(seed: str, tmp_path_factory: pytest.TempPathFactory):
    """By release: all features' stores, handed on (one JVM for all)."""

    @cache
    def run(version: str) -> dict[str, Leg]:
        return run_relay(version, seed, tmp_path_factory.mktemp(f"relay-{version}"))

    return run


@pytest.mark.parametrize(("version", "feature"), LEGS)
def test_stores_are_handed_on(version: str, feature: str, relays, seed: str) -> None:
    """Messages, queues, keys and times are the same on either side, whoever wrote last."""
    leg = relays(version)[feature]
    lines = [f"{title}: {line}" for title, found in leg.problems.items() for line in found[:12]]
    assert not lines, "\n".join([f"RMQSTORE_CONFORMANCE_SEED={seed} repeats this", *lines])
    assert len(leg.checked) == 4, leg.checked


@pytest.fixture(scope="module")
def javas_own(seed: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[Json]]]:
    """By script: the directory of the store that Java 5.3.3 wrote and closed, and what it was asked to put."""
    root = tmp_path_factory.mktemp("javas-own")
    rng = random.Random(f"{seed}/replay")
    requests: dict[str, list[Json]] = {name: [] for name in SCRIPTS}
    with jvm("5.3.3") as oracle:
        for name, script in SCRIPTS.items():
            assert oracle.open(root / name, script.java_config, name=name)["load"]
        for _ in range(PART_COUNT):
            for name, script in SCRIPTS.items():
                oracle.call("use", name=name)
                part = script.part(rng)
                for first in range(0, len(part), 10):
                    java_put(oracle, part[first : first + 10])
                oracle.call("settle")
                requests[name] += part
        assert not oracle.call("closeAll")
    return {name: (root / name, requests[name]) for name in SCRIPTS}


@pytest.mark.parametrize("in_columns", [False, True], ids=["one by one", "in columns"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_javas_puts_give_javas_bytes(name: str, in_columns: bool, javas_own, seed: str, tmp_path: Path) -> None:
    """Commitlog, consume queues and index files are equal to the byte; replay.CANNOT_BE_EQUAL says what is not."""
    javas, requests = javas_own[name]
    sent = sent_by_java(javas, requests)
    ours = tmp_path / "store"
    replay(ours, SCRIPTS[name].store_config, sent, in_columns)
    lines = file_differences(ours, javas)
    lines += checkpoint_differences(ours, javas)
    assert not lines, "\n".join([f"RMQSTORE_CONFORMANCE_SEED={seed} repeats this", *lines[:20]])


def test_the_scripts_roll_every_kind_of_file(javas_own) -> None:
    """The comparison is about more than one file of each kind, and the index about more than one second."""
    javas, _ = javas_own["everything"]
    assert len(list((javas / "commitlog").iterdir())) >= 4
    assert max(len(list(queue.iterdir())) for queue in (javas / "consumequeue").glob("*/*")) >= 2
    assert len(list((javas / "index").iterdir())) >= 4
    files = [path.read_bytes() for path in sorted((javas_own["long-topics"][0] / "index").iterdir())]
    delays = [read_items(data, JAVA_SIZES["maxHashSlotNum"])["delay_s"].max() for data in files]
    assert max(delays) >= 1


def _units_of(store: Store) -> list[list[int]]:
    """What the batch queue of the topic "batch" holds."""
    units = Probe(store).engine.parts.queues.batches.find("batch", 0)
    assert units is not None
    names = ["base_queue_offset", "physical_offset", "size", "tags_code", "message_count"]
    return [list(unit) for unit in units.read(0, 10**6)[names].tolist()]


@pytest.mark.parametrize("is_killed", [True, False])
def test_batch_queues_go_to_java_and_back(is_killed: bool, tmp_path: Path) -> None:
    """Messages alone, in bulk and in whole batches: each side finds the other's units, and goes on behind them."""
    topics, sizes = {"batch": {"queue.type": "BatchCQ"}}, {**SIZES, "batch_queue_file_size": 460}
    javas = {**JAVA_SIZES, "mapperFileSizeBatchConsumeQueue": 460}
    store = open_store(str(tmp_path / "ours"), StoreConfig(flush="SYNC", **sizes))
    store.topics.put(TopicConfig("batch", attributes=topics["batch"]))
    for number in range(12):
        store.put(Message("batch", b"alone", tags="a", keys=f"k{number}"))
        store.put_batch([Message("batch", b"b%d" % each) for each in range(number % 4 + 1)])
        store.put_columns(pa.table({"topic": ["batch"] * 3, "body": [b"row"] * 3, "queueId": pa.array([0] * 3)}))
    store.flush()
    if not is_killed:
        store.close()
    shutil.copytree(tmp_path / "ours", tmp_path / "javas")
    ours = _units_of(store) if is_killed else None
    if is_killed:
        store.close()
    with jvm("5.3.3") as oracle:
        assert oracle.open(tmp_path / "javas", javas, topics)["load"]
        oracle.call("settle")
        found = oracle.call("entries", topic="batch", queueId=0)["entries"]
        assert len(found) == 12 * 5
        assert ours is None or found == ours
        request = as_request(Message("batch", b"javas", born_timestamp_ms=1, born_host="127.0.0.1:1"))
        java_put(oracle, [request, request])
        oracle.call("settle")
        found = oracle.call("entries", topic="batch", queueId=0)["entries"]
        oracle.call("close")
    with open_store(str(tmp_path / "javas"), StoreConfig(**sizes)) as again:
        assert again.recovery.dispatch_from is None
        assert _units_of(again) == found
        assert again.put(Message("batch", b"ours")).queue_offset == found[-1][0] + 1


@pytest.mark.parametrize("version", VERSIONS)
def test_only_one_side_has_a_store(version: str, tmp_path: Path) -> None:
    """The lock keeps Java out of our store, and us out of Java's, before anything is touched."""
    with jvm(version) as oracle:
        with open_store(str(tmp_path / "ours"), StoreConfig(**SIZES)), pytest.raises(RuntimeError, match="Lock failed"):
            oracle.open(tmp_path / "ours", JAVA_SIZES)
        assert oracle.open(tmp_path / "javas", JAVA_SIZES)["load"]
        before = _contents(tmp_path / "javas")
        with pytest.raises(StoreInUse):
            open_store(str(tmp_path / "javas"), StoreConfig(**SIZES))
        assert _contents(tmp_path / "javas") == before


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_we_deleted_goes_through_javas_hands(version: str, tmp_path: Path) -> None:
    """Java passes over our note of it; what it puts for the topic is new, and what it dispatches again is there."""
    root, killed = tmp_path / "store", tmp_path / "killed"
    with open_store(str(root), StoreConfig(**SIZES), workers=False) as store:
        for number in range(3):
            store.put(Message("gone", b"old %d" % number))
            store.put(Message("kept", b"kept %d" % number))
        store.flush()
        assert store.delete_topic("gone")
    assert (root / "config" / "deletedTopics.json").exists()
    shutil.copytree(root, killed)
    (killed / "abort").touch()
    request = {"topic": "gone", "queueId": 0, "bornHost": "192.0.2.7:1", "storeHost": "192.0.2.7:10911",
               "bornTimestamp": 1, "properties": {}, "body": base64.b64encode(b"new").decode()}  # fmt: skip
    for path, offset, bodies in ((root, 0, [b"new"]), (killed, 3, [b"old 0", b"old 1", b"old 2", b"new"])):
        with jvm(version) as oracle:
            assert oracle.open(path, JAVA_SIZES)["load"]
            oracle.call("settle")
            assert oracle.call("put", **request)["queueOffset"] == offset
            oracle.call("settle")
            oracle.call("close")
        with open_store(str(path), StoreConfig(**SIZES), workers=False) as store:
            assert [message.body for message in store.get("gone", 0, 0).messages] == bodies
            assert [message.body for message in store.get("kept", 0, 0).messages] == [b"kept 0", b"kept 1", b"kept 2"]


def _contents(directory: Path) -> dict[Path, bytes]:
    """Every file, but for the checkpoint, which RocketMQ writes every second."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != "checkpoint")
    return {path: path.read_bytes() for path in files}
