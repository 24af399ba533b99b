"""A store of each feature handed on: written here, read and gone on with by Java, read and gone on with here, read by
Java again.
"""

import os
import random
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.engine.store import open_store
from tests.conformance import our_answers
from tests.conformance.features import FEATURES, Feature
from tests.conformance.java import Oracle, answers, ask_all, differences, java_put, jvm
from tests.conformance.our_answers import ROOMY, checkpoint_of, comparable, lost_keys
from tests.conformance.workload import (
    JAVA_SIZES,
    KEYS,
    SIZES,
    STORE_HOST,
    Book,
    Json,
    as_batch_request,
    as_request,
    differing,
    message,
)

# What differs where RocketMQ has indexed the newest records once more: its own answers then have them twice.  That each
# key is found is asked here, after its turn.
_INDEXED_AGAIN = re.compile(r"/state/indexFiles[/:]|/keyQueries/\d+/")


@dataclass
class Leg:
    """The way of one feature's store; `problems` are all places where somebody answered otherwise, by leg."""

    feature: Feature
    path: Path
    rng: random.Random
    problems: dict[str, list[str]] = field(default_factory=dict)
    checked: dict[str, int] = field(default_factory=dict)
    key_questions: list[Json] = field(default_factory=list)
    time_questions: list[Json] = field(default_factory=list)
    ours: Json = field(default_factory=dict)
    javas: Json = field(default_factory=dict)

    def note(self, leg: str, lines: list[str]) -> None:
        """Notes what differs."""
        if lines:
            self.problems.setdefault(leg, []).extend(lines)

    def lost_keys(self, found: Json) -> list[str]:
        """See `lost_keys`."""
        return lost_keys(found, is_indexed_again=self.feature.is_indexed_again)

    @property
    def java_config(self) -> Json:
        """Settings for RocketMQ."""
        return JAVA_SIZES | self.feature.java

    def store_config(self) -> StoreConfig:
        """Settings for us."""
        more = dict(self.feature.config)
        if "log_paths" in more:
            more["log_paths"] = tuple(path.format(store=self.path) for path in more["log_paths"])
        return StoreConfig(**({"store_host": STORE_HOST} | SIZES | more))


def run_relay(version: str, seed: str, directory: Path) -> dict[str, Leg]:
    """All features with one release."""
    legs = {
        name: Leg(feature, directory / name, random.Random(f"{seed}/{version}/{name}"))
        for name, feature in FEATURES.items()
        if version in feature.versions
    }

    def each(title: str, step: Callable[[Leg], None]) -> None:
        for leg in legs.values():
            if leg.problems.get("failed"):
                continue
            try:
                step(leg)
            except Exception:  # noqa: BLE001  the other features are still worth knowing
                leg.note("failed", [f"{title}: {traceback.format_exc()}"])

    each("written here", lambda leg: _write(leg, "written here", None))
    with jvm(version) as oracle:
        each("read by Java", lambda leg: _read_by_java(leg, version, oracle, "read by Java"))
        each("gone on by Java", lambda leg: _go_on_by_java(leg, version, oracle))
        failures = oracle.call("closeAll")
        assert not failures, failures
        each("gone on here", lambda leg: _write(leg, "gone on here", version))
        each("read by Java again", lambda leg: _read_by_java(leg, version, oracle, "read by Java again"))
    return legs


def _write(leg: Leg, title: str, after_version: str | None) -> None:
    """Opens the store here, compares what it holds with Java's answers, puts a turn, asks itself, closes it clean."""
    config = leg.store_config()
    # Store times of the first turn are an hour old, those of the second behind Java's.
    clock = ManualClock(time.time_ns() // 1_000_000 - (0 if after_version else 3_600_000))
    with open_store(str(leg.path), config, clock=clock) as store:
        book = Book(store, clock, leg.rng, config.store_host)
        if after_version:
            found = our_answers.answers(store, leg.key_questions, leg.time_questions)
            javas = comparable(leg.javas, after_version)
            leg.note("read here", differences(javas, _only(found, javas)))
            leg.note("read here", leg.lost_keys(found) if config.index_enabled else [])
            book.go_on(leg.javas["records"], leg.javas["log"]["end"])
        leg.feature.write(book, leg.rng)
        store.flush(10)
        leg.note(title, book.problems)
        _ask_about(leg, book)
        leg.ours = our_answers.answers(store, leg.key_questions, leg.time_questions)
    leg.note(title, differing(book.records, leg.ours["records"][-len(book.records) :] if book.records else []))
    leg.checked[title] = len(book.records)
    if config.index_enabled:
        leg.note(title, leg.lost_keys(leg.ours))
    _date_queue_files(leg)
    _check_closed(leg, title)


def _only(found: Json, javas: Json) -> Json:
    """Our answers where Java has one."""
    times = [
        ours | {"offset": theirs["offset"], "lower": theirs["lower"], "upper": theirs["upper"], "skipped": True}
        if theirs.get("skipped")
        else ours
        for ours, theirs in zip(found["timeQueries"], javas["timeQueries"], strict=True)
    ]
    return found | {"timeQueries": times}


def _check_closed(leg: Leg, title: str) -> None:
    """What a clean end leaves: no abort, a checkpoint that knows everything."""
    if (leg.path / "abort").exists():
        leg.note(title, ["abort is still there after a clean close"])
    newest = max((record["storeTimestamp"] for record in leg.ours["records"]), default=0)
    queued = max((r["storeTimestamp"] for r in leg.ours["records"] if r["sysFlag"] & 0xC in (0, 8)), default=0)
    found = checkpoint_of(leg.path)
    # Without a put it stays what it was, and RocketMQ 5.5.1 leaves a time of the queues that lags.
    flushed, queued = (newest, queued) if leg.checked[title] else (found["physic_timestamp_ms"], 0)
    if not found["physic_timestamp_ms"] == flushed <= newest or not queued <= found["logics_timestamp_ms"] <= newest:
        leg.note(title, [f"checkpoint {found} after the last message at {newest}"])


def _date_queue_files(leg: Leg) -> None:
    """Gives queue files the time of their newest message, as a store has that wrote them at that time: 4.9 looks."""
    times = {record["physicalOffset"]: record["storeTimestamp"] for record in leg.ours["records"]}
    per_file = SIZES["queue_file_size"] // 20
    for name, queue in leg.ours["queues"].items():
        newest: dict[int, int] = {}
        for number, offset, _, _ in queue["entries"]:
            newest[number // per_file * SIZES["queue_file_size"]] = times[offset]
        for start, ms in newest.items():
            os.utime(leg.path / "consumequeue" / name / f"{start:020d}", ns=(ms * 1_000_000, ms * 1_000_000))


def _read_by_java(leg: Leg, version: str, oracle: Oracle, title: str) -> None:
    asked = (leg.key_questions, _times_for(version, leg))
    leg.javas = ask_all(oracle, version, leg.path, leg.java_config, None, *asked, name=f"{leg.feature.name} {title}")
    if not leg.javas["open"]["load"]:
        leg.note("failed", [f"{title}: the load is refused: {leg.javas['open']}"])
        return
    javas = comparable(leg.javas, version)
    ours = leg.ours
    if version.startswith("4."):
        kept = {(q["topic"], q["queueId"], q["timestamp"]) for q in javas["timeQueries"]}
        same = [q for q in ours["timeQueries"] if (q["topic"], q["queueId"], q["timestamp"]) in kept]
        ours = ours | {"timeQueries": [q | {"upper": q["lower"]} for q in same]}
    lines = differences(javas, _only(ours, javas))
    leg.note(title, [line for line in lines if not (leg.feature.is_indexed_again and _INDEXED_AGAIN.match(line))])
    leg.checked[title] = len(javas["records"]) + len(javas["keyQueries"]) + len(javas["timeQueries"])


def _times_for(version: str, leg: Leg) -> list[Json]:
    """4.9 answers with the nearest message, so it is asked only for times at which exactly one was stored."""
    if not version.startswith("4."):
        return leg.time_questions
    stored: dict[tuple[str, int], list[int]] = {}
    for record in leg.ours["records"]:
        if record["sysFlag"] & 0xC in (0, 8):
            stored.setdefault((record["topic"], record["queueId"]), []).append(record["storeTimestamp"])
    return [q for q in leg.time_questions if stored[q["topic"], q["queueId"]].count(q["timestamp"]) == 1]


def _go_on_by_java(leg: Leg, version: str, oracle: Oracle) -> None:
    assert oracle.call("use", name=f"{leg.feature.name} read by Java")
    rng, places = leg.rng, sorted(leg.ours["queues"]) or ["fresh/0"]
    requests: list[Json] = []
    for number in range(70):
        topic, _, queue_id = rng.choice([*places, "javas-own/1"]).rpartition("/")
        if topic.startswith("SCHEDULE"):
            continue
        size = rng.choice((20, 300, 1500))
        if number % 9 == 0:
            pieces = [message(rng, topic, int(queue_id)) for _ in range(4)]
            requests.append(as_batch_request(pieces, {"батч": "да"}))
        else:
            requests.append(as_request(message(rng, topic, int(queue_id), body=rng.randbytes(size))))
    java_put(oracle, requests)
    oracle.call("settle")
    time_questions = [] if version.startswith("4.") else leg.time_questions
    leg.time_questions = time_questions
    leg.javas = answers(oracle, version, leg.path, oracle.call("state"), leg.key_questions, time_questions)


def _ask_about(leg: Leg, book: Book) -> None:
    """New questions about what is in the store now."""
    rng, records = leg.rng, book.records
    if not records:
        leg.key_questions = [{"topic": "none", "key": "none", "begin": 0, "end": ROOMY, "max": 32}]
        leg.time_questions = []
        return
    times = sorted(record["storeTimestamp"] for record in records)
    topics = sorted({record["topic"] for record in records})
    unique = [r for r in records if "UNIQ_KEY" in r["properties"]]
    asked = [(topic, key) for topic in topics for key in rng.sample(KEYS, 4)]
    asked += [(r["topic"], r["properties"]["UNIQ_KEY"]) for r in rng.sample(unique, min(6, len(unique)))]
    leg.key_questions = [{"topic": topics[0], "key": "no-such-key", "begin": 0, "end": ROOMY, "max": 32}]
    for topic, key in asked:
        low, high = sorted(rng.choices(times, k=2))
        span = (0, ROOMY) if rng.random() < 0.6 else (low, high)
        count = rng.choice((1, 3, 32, 100))
        leg.key_questions.append({"topic": topic, "key": key, "begin": span[0], "end": span[1], "max": count})
    leg.time_questions = []
    queues = sorted({(r["topic"], r["queueId"]) for r in records if r["sysFlag"] & 0xC in (0, 8)})
    for topic, queue_id in rng.sample(queues, min(4, len(queues))):
        own = [r["storeTimestamp"] for r in records if (r["topic"], r["queueId"]) == (topic, queue_id)
               and r["sysFlag"] & 0xC in (0, 8)]  # fmt: skip
        some = rng.choices(own, k=3)
        edges = (0, own[0] - 1, own[0], own[-1], own[-1] + 1, own[-1] + 60_000)
        for ms in sorted({*edges, *some, *(one + 1 for one in some), *(one - 1 for one in some)}):
            leg.time_questions.append({"topic": topic, "queueId": queue_id, "timestamp": ms})
