"""Stores whose writer is killed, and what both sides recover from them."""

import base64
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from rmqstore.config import StoreConfig
from rmqstore.engine.store import open_store
from tests.conformance import our_answers
from tests.conformance.java import Oracle, ask_all, differences
from tests.conformance.killed_writer import QUEUES, TOPIC, body_of
from tests.conformance.our_answers import ROOMY, comparable, lost_keys
from tests.conformance.workload import JAVA_SIZES, SIZES, Json, as_request, message

PROJECT = Path(__file__).parents[2]
# Physical offset of every acknowledged message -> its body.
Acked = dict[int, bytes]


def killed_java(version: str, how: str, rng: random.Random, directory: Path) -> Acked:
    """Has a JVM put messages into a new store and die: right after the last one ("puts") or among others ("race")."""
    oracle = Oracle(version)
    try:
        assert oracle.open(directory, JAVA_SIZES)["load"]
        if how == "race":
            count = rng.randint(300, 900)
            replies = oracle.call("race", topic=TOPIC, queues=QUEUES, threads=4, size=700, n=count)
            return {offset: f"{number}:".encode() + b"x" * (1 + number % 700) for number, offset, _ in replies}
        sent = [message(rng, rng.choice((TOPIC, "b")), rng.randint(0, QUEUES - 1)) for _ in range(300)]
        replies = oracle.call("puts", requests=[as_request(one) for one in sent], halt=True)
        return {reply["physicalOffset"]: one.body for one, reply in zip(sent, replies, strict=True)}
    finally:
        oracle.end()


def killed_here(directory: Path, first: int, count: int) -> Acked:
    """Has a child process put messages, numbered from `first` on, and kills it after `count` acknowledgements."""
    command = [sys.executable, "-m", "tests.conformance.killed_writer", str(directory), str(first)]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [line for _, line in zip(range(count), child.stdout, strict=False)]
        assert len(lines) == count, "the writer ended by itself"
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
    acked = {}
    for line in lines:
        number, offset, _ = line.split()
        acked[int(offset)] = body_of(int(number))
    assert len(acked) == len(lines), "two messages were acknowledged at one place"
    return acked


def compare_recoveries(oracle: Oracle, version: str, work: Path, acked: Acked) -> list[str]:
    """Recovers work/ours here and work/javas by Java, from the same files, then has Java open ours: where they differ.

    Java is held to every message, queue and entry; with keys we may know more (it removes index files
    that are newer than its checkpoint, and builds them again from the log file on that it begins with).
    """
    _remove_unmade_files(work / "javas")
    javas = ask_all(oracle, version, work / "javas", JAVA_SIZES, name=f"{work} javas")
    if not javas["open"]["load"]:
        return [f"{version}: Java refuses the store: {javas['open']}, {_odd_files(work / 'ours')}"]
    questions = _questions(javas["records"])
    with open_store(str(work / "ours"), StoreConfig(**SIZES)) as store:
        ours = our_answers.answers(store, questions, [])
        warnings = store.warnings
    lines = [f"{version}: acknowledged, and not found here: {line}" for line in _missing(acked, ours["records"])]
    lines += [f"{version}: not found by Java: {line}" for line in _missing(acked, javas["records"])]
    recovered, wanted = comparable(javas, version), {name: ours[name] for name in ("log", "records", "queues")}
    recovered = _past_the_blank(recovered, ours)
    for name, have in wanted.items():
        lines += [f"{version}: recovered here and by Java: {line}" for line in differences(recovered[name], have, name)]
    lines += [f"{version}: {line}" for line in lost_keys(ours)]
    # Of 5.5 the one that starts from the checkpoint's logicsPhysicalOffset alone, and on none that says nothing there.
    settings = JAVA_SIZES | ({"enableAcceleratedRecovery": True} if version.startswith("5.5") else {})
    again = ask_all(oracle, version, work / "ours", settings, None, questions, name=f"{work} ours")
    if not again["open"]["load"]:
        return [*lines, f"{version}: Java refuses what we recovered: {again['open']}"]
    seen = comparable(again, version)
    lines += [f"{version}: Java after us: {line}" for line in differences(_past_the_blank(seen, ours), ours)]
    return [*lines, *(f"({warning})" for warning in warnings if lines)]


def plant_unmade_file(directory: Path) -> None:
    """The log file that would come next, as a kill between its creation and its sizing leaves it: empty."""
    log = directory / "commitlog"
    following = max(int(path.name) for path in log.iterdir()) + SIZES["log_file_size"]
    (log / f"{following:020d}").touch(exist_ok=True)


def remove_newest_log_file(directory: Path, acked: Acked) -> Acked:
    """A kill between the blank at a log file's end and the making of the next one; what is left of `acked`.

    The checkpoint's time of the log goes back to 0: nobody has noted as flushed what had not been made.
    """
    log = directory / "commitlog"
    with (directory / "checkpoint").open("r+b") as checkpoint:
        checkpoint.write(bytes(8))
    for _ in range(2):  # the broker makes one in advance
        newest = max(log.iterdir())
        newest.unlink()
    return {offset: body for offset, body in acked.items() if offset < int(newest.name)}


def _remove_unmade_files(directory: Path) -> None:
    """Does what an operator does: RocketMQ before 5.1.3 refuses its own store for such a file (its issue 6904)."""
    for folder in ("commitlog", "consumequeue"):
        for path in (directory / folder).rglob("*"):
            if path.is_file() and not path.stat().st_size:
                path.unlink()


def _odd_files(directory: Path) -> list[str]:
    """Files of log and queues that are not as long as they should be: what RocketMQ refuses a store for."""
    sizes = {"commitlog": SIZES["log_file_size"], "consumequeue": SIZES["queue_file_size"]}
    found = [(path, sizes[folder]) for folder in sizes for path in (directory / folder).rglob("*") if path.is_file()]
    odd = [(path.relative_to(directory), path.stat().st_size) for path, size in found if path.stat().st_size != size]
    return [f"{path}: {size} bytes" for path, size in odd]


def _past_the_blank(seen: Json, ours: Json) -> Json:
    """Java's answers in our words where the writer died after a blank record and before the next file had a message.

    Such a file is not kept by us; without it RocketMQ takes the blank's beginning for the end of the log, and writes
    over it.  No message is concerned.
    """
    blanks = ours["log"]["blanks"]
    if not blanks or seen["log"]["end"] != blanks[-1] or seen["log"]["blanks"] != blanks[:-1]:
        return seen
    end = ours["log"]["end"]
    log = seen["log"] | {"blanks": blanks, "end": end}
    return seen | {"log": log, "state": seen["state"] | {"maxPhyOffset": end}}


def _questions(records: list[Json]) -> list[Json]:
    """Every key of some records."""
    picked = records[:: max(1, len(records) // 40)]
    pairs = sorted({(r["topic"], key) for r in picked for key in (r["keys"] or "").split(" ") if key})
    return [{"topic": topic, "key": key, "begin": 0, "end": ROOMY, "max": 64} for topic, key in pairs]


def _missing(acked: Acked, records: list[Json]) -> list[str]:
    found = {record["physicalOffset"]: base64.b64decode(record["body"]) for record in records}
    return [f"message at {offset}" for offset, body in sorted(acked.items()) if found.get(offset) != body]
