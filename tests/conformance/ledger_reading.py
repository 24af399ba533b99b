"""A broker that goes over to DLedger, writes, is killed, comes back and stops; in turns with a store of ours over the
same files, and read at every step.

python -m tests.conformance.ledger_reading RELEASE DIRECTORY

A process of its own, for DLedger's server listens on all addresses of its machine: `test_ledger_reading.py` gives it
a machine of its own where the system can.
"""

import base64
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqstore import Message, StoreConfig
from rmqstore.core.ledger_config import LedgerConfig
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import StoreChanging
from rmqstore.snapshot import open_snapshot
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.verify import verify
from tests.conformance.broker import (
    BROKER_NAME,
    Broker,
    BrokerClient,
    Rocketmq,
    broker_alone,
    free_port,
    name_server,
    until,
)

TOPIC = "Ledger"
FILE_SIZE = 65536
COUNT = 120
_MODES = ("queue", "commitlog")
# Warnings of a store that a broker left; a checkpoint may be behind the log of a broker that was killed.
_EXPECTED = ("left as it is", "if it has, ask them")


class Reading:
    """One broker's store through its life, and the bodies of all that it acknowledged."""

    def __init__(self, release: str, work: Path) -> None:
        self.rocketmq, self.work, self.store = Rocketmq(release), work, work / "store"
        self.acked: list[bytes] = []
        self.looks = 0

    def settings(self, *, is_ledger: bool, port: int) -> dict[str, Any]:
        small = {"mappedFileSizeCommitLog": FILE_SIZE, "maxMessageSize": 16384}
        ledger = {
            "enableDLegerCommitLog": "true", "dLegerGroup": "golden-a", "dLegerSelfId": "n0",
            "dLegerPeers": f"n0-127.0.0.1:{port}",
        }  # fmt: skip
        return small | (ledger if is_ledger else {})

    def run(self) -> None:
        """The whole life.  RocketMQ 5 converts the store itself, that of RocketMQ 4 is converted by us."""
        with name_server(self.work / "namesrv", self.rocketmq) as named:
            self.live(named, is_ledger=False, how=signal.SIGTERM)
            self.compare()
            if self.rocketmq.release.startswith("4"):
                self.ours(is_ended_cleanly=False)
            self.live(named, is_ledger=True, how=signal.SIGKILL)
            self.compare()
            self.ours(is_ended_cleanly=False)
            self.live(named, is_ledger=True, how=signal.SIGTERM)
            self.compare()
            self.ours(is_ended_cleanly=True)
            self.live(named, is_ledger=True, how=signal.SIGKILL, count=0)
            self.ours(is_ended_cleanly=True)

    def ours(self, *, is_ended_cleanly: bool) -> None:
        """A store of ours goes on where the broker ended, and has all that was acknowledged."""
        config = StoreConfig.broker(
            log_file_size=FILE_SIZE, broker_name=BROKER_NAME, retention=False, flush="SYNC",
            dledger=LedgerConfig(self_id="n0", converts=True),
        )  # fmt: skip
        store = open_store(self.store, config)
        others = [told for told in store.warnings if not told.endswith(_EXPECTED)]
        assert others == [], others
        topic = store.topics.find(TOPIC)
        assert topic is not None
        for number in range(40):
            self._put(store, number, topic.write_queue_nums)
        bodies = [f"body {len(self.acked) + number}".encode() for number in range(60)]
        queues = pa.array([number % topic.write_queue_nums for number in range(60)], pa.int32())
        assert store.put_columns(pa.table({"topic": [TOPIC] * 60, "body": bodies, "queueId": queues})).is_stored
        self.acked += bodies
        store.flush()
        self.compare()
        if is_ended_cleanly:
            store.close()
        else:
            store.abandon()
        self.compare()
        findings = [found for store in look_at(str(self.store)).stores for found in verify(store)]
        assert not [found for found in findings if found.severity != "note"], findings

    def _put(self, store: Store, number: int, queue_count: int) -> None:
        body = f"body {len(self.acked)} {'y' * 50 * number}".encode()
        message = Message(TOPIC, body, queue_id=number % queue_count)
        result = store.put_batch([message]) if number % 10 == 9 else store.put(message)
        assert result.is_stored, result
        self.acked.append(body)

    def live(self, named: str, *, is_ledger: bool, how: signal.Signals, count: int = COUNT) -> None:
        """Starts the broker, sends, reads meanwhile, has all messages from it, and ends it."""
        settings = self.settings(is_ledger=is_ledger, port=free_port(0))
        with broker_alone(self.work / "broker", self.store, named, settings, self.rocketmq) as running:
            client = BrokerClient(self.work, named, running)
            try:
                until("a message that is taken", lambda: self._takes_one(running, client), [running, client])
                for first in range(0, count, 20):
                    self._send(client, [f"{len(self.acked) + number}" for number in range(20)], first)
                    self._look()
                until("all rows", lambda: len(self.rows("queue")) == len(self.acked), [running])
                self._require_served(client)
            finally:
                client.end()
            running.end(how)

    def _require_served(self, client: BrokerClient) -> None:
        """The broker delivers what it and we have put, each message once."""
        ends = open_snapshot(self.store).queues()
        served = []
        for queue_id in sorted(set(ends.filter(pc.field("topic") == TOPIC)["queueId"].to_pylist())):
            found = client.call("pull", topic=TOPIC, queueId=queue_id)
            served += [base64.b64decode(message["body"]) for message in found]
        assert sorted(served) == sorted(self.acked)

    def _takes_one(self, running: Broker, client: BrokerClient) -> bool:
        """A node of DLedger's is the leader some time after its start; the broker registers when it is."""
        try:
            running.change()
            self._send(client, [f"{len(self.acked)}"], 0)
        except AssertionError:
            return False
        return True

    def _send(self, client: BrokerClient, words: Sequence[str], first: int) -> None:
        bodies = [f"body {word} {'x' * (7 * first)}".encode() for word in words]
        answers = client.send([{"topic": TOPIC, "body": body} for body in bodies])
        for body, answer in zip(bodies, answers, strict=True):
            assert answer["status"] == "SEND_OK", answer
            self.acked.append(body)

    def rows(self, mode: str) -> list[Mapping[str, Any]]:
        snapshot = open_snapshot(self.store)
        found: list[Mapping[str, Any]] = snapshot.scan([TOPIC], scan_mode=mode, columns="*").read_all().to_pylist()
        return found

    def _look(self) -> None:
        """What is there while the broker writes: rows that it acknowledged, each once."""
        try:
            bodies = [row["body"] for row in self.rows(_MODES[self.looks % 2])]
        except StoreChanging:
            return
        self.looks += 1
        assert len(set(bodies)) == len(bodies)
        assert set(bodies) <= set(self.acked)

    def compare(self) -> None:
        """Whether both ways through the data have exactly what was acknowledged, with right places."""
        for mode in _MODES:
            rows = self.rows(mode)
            assert sorted(row["body"] for row in rows) == sorted(self.acked), mode
        ledger = open_snapshot(self.store).stores[0].ledger
        assert ledger is None or (ledger.divided_at > 0 and ledger.divided_at % FILE_SIZE == 0)


def main() -> None:
    reading = Reading(sys.argv[1], Path(sys.argv[2]))
    reading.run()
    sys.stdout.write(json.dumps({"acked": len(reading.acked), "looks": reading.looks}) + "\n")


if __name__ == "__main__":
    main()
