"""Replication: a whole log fetched from a master of RocketMQ's beside a slave of RocketMQ's, and what a put costs that
waits for its second copy, beside RocketMQ's own pair.

python -m bench.bench_replica
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from bench.figures import Figure, in_turns, table
from bench.java_reader import VERSION, build_if_possible
from bench.synth import MIB, StoreShape, write_store
from rmqstore.config import HaConfig, StoreConfig
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.replica import Replica
from rmqstore.testing import Probe
from tests.oracle.oracle import Oracle

ROUNDS = 2
CATCH_UP_GOAL = 1.0
BODY_SIZE, PUTS = 1024, 2000
LOG_FILE_SIZE = 64 * MIB
PATIENCE_S = 120.0
_COPY_SIZE = MIB
_RMQSTORE = [sys.executable, "-c", "from rmqstore.cli import main; main(prog_name='rmqstore')"]


def measure(scratch: Path, store_bytes: int) -> list[Figure]:
    """All figures; none without Java, beside which they are measured."""
    missing = build_if_possible()
    if missing:
        return [Figure(line=f"replication: not measured, {missing}", value=0.0, unit="")]
    is_small = store_bytes < 1024 * MIB
    figures = []
    for body_size in (100, BODY_SIZE):
        figures += catching_up(scratch, store_bytes, body_size)
    return figures + latencies(scratch, PUTS // 10 if is_small else PUTS)


# --- catching up


def catching_up(scratch: Path, store_bytes: int, body_size: int) -> list[Figure]:
    """MiB a second of log, queues and index included, from one master of RocketMQ's.

    A slave of RocketMQ's that is new gets its master's newest file only, so the log is one file.
    """
    shape = StoreShape.of_size(store_bytes, body_size)
    size = shape.count * shape.record_size
    shape = StoreShape(count=shape.count, body_size=body_size, log_file_size=size + MIB - size % MIB)
    root = write_store(scratch / "replicated", shape)
    with java(root, shape.log_file_size, role="ASYNC_MASTER") as (_, port):
        fetch = Fetch(scratch, port, size, shape.log_file_size)
        ours, theirs, bare = in_turns([fetch.by_us, fetch.by_java, fetch.by_nobody], ROUNDS)
    shutil.rmtree(root)
    rates = [size / MIB / min(taken) for taken in (ours, theirs, bare)]
    return [
        Figure(
            line=f"replica catches up, {body_size} B bodies", value=rates[0], unit="MiB/s",
            against=f"RocketMQ's slave {rates[1]:,.0f} MiB/s", judged=rates[0] / rates[1], goal=CATCH_UP_GOAL,
        ),
        Figure(
            line=f"  and as a share of the link, {body_size} B bodies", value=rates[0], unit="MiB/s",
            against=f"bytes from socket to disk {rates[2]:,.0f} MiB/s", judged=rates[0] / rates[2],
        ),
    ]  # fmt: skip


class Fetch(NamedTuple):
    """Ways to fetch a log of `size` bytes, in one file, from the master at `port`; each answers in seconds."""

    scratch: Path
    port: int
    size: int
    file_size: int

    def by_us(self) -> float:
        """By a replica of ours: the log durable, all of it dispatched; the flush of queues and index comes later."""
        root = self.scratch / "ours"
        with Replica(root, BareMaster(f"127.0.0.1:{self.port}", self.file_size)) as replica:
            began = perf_counter()
            replica.run(lambda state: state.phase == "following" and state.log_end >= self.size)
            assert Probe(replica).engine.dispatch.wait_until(self.size, PATIENCE_S)
            taken = perf_counter() - began
        shutil.rmtree(root)
        return taken

    def by_java(self) -> float:
        """By a slave of RocketMQ's: dispatched, its flush comes when it comes.  Its first look for a master, up to 5 s
        after its start, does not count."""
        root = self.scratch / "java"
        with java(root, self.file_size, role="SLAVE") as (slave, _):
            taken = slave.call("follow", address=f"127.0.0.1:{self.port}", end=self.size)["seconds"]
        shutil.rmtree(root)
        return float(taken)

    def by_nobody(self) -> float:
        """The bytes alone, from a socket into a file that is synced: what no replica can be faster than."""
        source, target = self.scratch / "replicated" / "commitlog", self.scratch / "bare"
        (log,) = source.iterdir()
        began = perf_counter()
        with socket.create_server(("127.0.0.1", 0)) as server, log.open("rb") as read, target.open("wb") as written:
            sending = threading.Thread(target=self._send, args=(server, read.fileno()))
            sending.start()
            with socket.create_connection(server.getsockname()) as receiving:
                while data := receiving.recv(_COPY_SIZE):
                    written.write(data)
            os.fdatasync(written.fileno())
            sending.join()
        taken = perf_counter() - began
        target.unlink()
        return taken

    def _send(self, server: socket.socket, descriptor: int) -> None:
        connection, _ = server.accept()
        with connection:
            sent = 0
            while sent < self.size:
                sent += os.sendfile(connection.fileno(), descriptor, sent, self.size - sent)


@contextmanager
def java(root: Path, file_size: int, role: str, **settings: object) -> Iterator[tuple[Oracle, int]]:
    """A store of RocketMQ's in that role, and its replication port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    root.mkdir(parents=True, exist_ok=True)
    opened = Oracle(VERSION)
    try:
        config = {"mappedFileSizeCommitLog": file_size, "brokerRole": role, "haListenPort": port, **settings}
        assert opened.open(root, config)["load"], f"RocketMQ refuses {root}"
        yield opened, port
    finally:
        opened.halt()


# --- a put with two copies


def latencies(scratch: Path, count: int) -> list[Figure]:
    """Milliseconds of puts one by one, each of which waits for a second copy."""
    with ExitStack() as ended:
        root = Path(ended.enter_context(tempfile.TemporaryDirectory(dir=scratch)))
        synced, unsynced = (
            ended.enter_context(JavaPair.started(root / flush, flush)) for flush in ("SYNC_FLUSH", "ASYNC_FLUSH")
        )
        pair = ended.enter_context(our_pair(root))
        measured = in_turns(
            [lambda: our_puts(pair, count), lambda: synced.puts(count), lambda: unsynced.puts(count)], ROUNDS
        )
    ours, theirs, of_memory = (best(runs) for runs in measured)
    return [
        Figure(
            line=f"put with a second copy, {BODY_SIZE} B, {name}", value=own, unit="ms",
            against=f"RocketMQ's pair, both syncing {java_ms:.2f} ms; in memory only {memory_ms:.2f} ms",
            judged=own / java_ms, at_least=False,
        )
        for name, own, java_ms, memory_ms in zip(("p50", "p99"), ours, theirs, of_memory, strict=True)
    ]  # fmt: skip


class Percentiles(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float


def percentiles(seconds: list[float]) -> Percentiles:
    return Percentiles(*(np.percentile(seconds, (50, 99)) * 1000).tolist())


def best(runs: list[Percentiles]) -> Percentiles:
    return Percentiles(min(run.p50 for run in runs), min(run.p99 for run in runs))


class JavaPair(NamedTuple):
    """A master and a slave of RocketMQ's, which acknowledges what it has in memory, synced or not."""

    master: Oracle

    @classmethod
    @contextmanager
    def started(cls, root: Path, flush: str) -> "Iterator[JavaPair]":
        waits = {"flushDiskType": flush, "inSyncReplicas": 2, "slaveTimeout": 10_000}
        with (
            java(root / "master", LOG_FILE_SIZE, role="SYNC_MASTER", **waits) as (master, port),
            java(root / "slave", LOG_FILE_SIZE, role="SLAVE", flushDiskType=flush) as (slave, _),
        ):
            slave.call("follow", address=f"127.0.0.1:{port}", end=0)
            pair = cls(master)
            deadline = perf_counter() + PATIENCE_S
            while pair.statuses(1) != {"PUT_OK": 1}:
                assert perf_counter() < deadline, "RocketMQ's slave does not attach"
            yield pair

    def statuses(self, count: int) -> dict[str, int]:
        return dict(self.master.call("benchLatency", n=count, size=BODY_SIZE)["statuses"])

    def puts(self, count: int) -> Percentiles:
        done = self.master.call("benchLatency", n=count, size=BODY_SIZE)
        assert done["statuses"] == {"PUT_OK": count}, done["statuses"]
        return percentiles([micros / 1e6 for micros in done["micros"]])


@contextmanager
def our_pair(root: Path) -> Iterator[Store]:
    """A master of ours in this process, and its replica in another."""
    serving = HaConfig(listen="127.0.0.1:0", in_sync_replicas=2, slave_timeout_ms=10_000)
    config = StoreConfig(flush="SYNC", log_file_size=LOG_FILE_SIZE, ha=serving)
    with closing(open_store(root / "our-master", config)) as store:
        command = [*_RMQSTORE, "replicate", "--ha", str(store.ha_address), "--to", str(root / "our-slave")]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as slave:
            try:
                deadline = perf_counter() + PATIENCE_S
                while one_put(store) is not PutStatus.PUT_OK:
                    assert perf_counter() < deadline, "our slave does not attach"
                yield store
            finally:
                slave.terminate()


def one_put(store: Store) -> PutStatus:
    return store.put(Message("BenchTopic", bytes(BODY_SIZE), tags="TagA", keys=["key"])).status


def our_puts(store: Store, count: int) -> Percentiles:
    taken = []
    for _ in range(count):
        began = perf_counter()
        status = one_put(store)
        taken.append(perf_counter() - began)
        assert status is PutStatus.PUT_OK, status
    return percentiles(taken)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=os.environ.get("RMQSTORE_BENCH_DIR")) as place:
        print(table(measure(Path(place), 1024 * MIB)))
