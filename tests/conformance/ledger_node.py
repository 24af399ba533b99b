"""A real DLedger node and a log of entries of ours take turns over the same files; each has what the other wrote.

python -m tests.conformance.ledger_node RELEASE SEED DIRECTORY

A process of its own, as `ledger_reading`.
"""

import base64
import json
import random
import signal
import sys
from pathlib import Path
from typing import Any

from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from rmqstore.formats.dledger import Term
from rmqstore.snapshot.entries import ledger_entries
from tests.conformance.broker import Asked, Rocketmq, free_port, until

CONFIG = EntryStoreConfig(data_file_size=16384, index_file_size=1280)
ROUNDS = 4


class Turns:
    """The files of one node, and all that was acknowledged."""

    def __init__(self, rocketmq: Rocketmq, seed: int, work: Path) -> None:
        self.rocketmq, self.chance, self.work = rocketmq, random.Random(seed), work
        self.node = work / "store" / "dledger-n0"
        self.acked: list[bytes] = []

    def run(self) -> None:
        """Turns of each, ended cleanly or not."""
        for number in range(ROUNDS):
            self.ours(is_ended_cleanly=number % 2 == 0)
            self.javas(number, is_ended_cleanly=self.chance.random() < 0.5)
        self.ours(is_ended_cleanly=True)

    def bodies(self, count: int) -> list[bytes]:
        sizes = (self.chance.choice((0, 1, 40, 700, 5000)) for _ in range(count))
        return [self.chance.randbytes(size) if size % 3 else b"x" * size for size in sizes]

    def ours(self, *, is_ended_cleanly: bool) -> None:
        """A turn of ours."""
        store = EntryStore(self.node, CONFIG)
        found = [store.get(index) for index in range(store.end_index + 1)]
        assert [entry.body for entry in found] == self.acked
        assert store.begin_index == (0 if found else -1)
        store.save_term(Term(max(store.term.number, store.end_term) + 1, "n0"))
        made = self.bodies(self.chance.randrange(20, 80))
        store.append(made, store.term.number)
        store.update_committed(store.term.number, store.end_index)
        store.flush()
        self.acked += made
        if is_ended_cleanly:
            store.close()
        else:
            store.abandon()
        self.read()

    def javas(self, number: int, *, is_ended_cleanly: bool) -> None:
        """A turn of the real node."""
        places = ("g", "n0", f"127.0.0.1:{free_port(0)}", str(self.node.parent))
        sizes = (str(CONFIG.data_file_size), str(CONFIG.index_file_size))
        program = self.rocketmq.told("-Xmx128m")
        node = Asked(self.work, f"node-{number}", program, "LedgerNode", *places, *sizes, talks=True)
        try:
            before = [entry.body for entry in self.entries(node)]
            assert before == self.acked
            until("a leader", lambda: node.call("state")["role"] == "LEADER", [node])
            made = self.bodies(self.chance.randrange(20, 80))
            codes = node.call("append", bodies=[base64.b64encode(body).decode() for body in made])
            assert set(codes) == {200}
            self.acked += made
            told = self.entries(node)
            if is_ended_cleanly:
                node.call("quit")
        finally:
            node.end(signal.SIGKILL)
        assert [entry.body for entry in told] == self.acked
        with EntryStore(self.node, CONFIG) as store:
            ours = [store.get(index) for index in range(store.end_index + 1)]
        assert [(each.index, each.term, each.offset, each.size, each.body) for each in ours] == [
            (each.index, each.term, each.offset, each.size, each.body) for each in told
        ]

    def entries(self, node: Asked) -> "list[_Told]":
        return [_Told(told) for told in node.call("entries")]

    def read(self) -> None:
        """What readers see."""
        table = ledger_entries(str(self.node), ["body"])
        assert table["body"].to_pylist() == self.acked


class _Told:
    """An entry as Java has it."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.index, self.term, self.offset, self.size = (told[name] for name in ("index", "term", "offset", "size"))
        self.body = base64.b64decode(told["body"])


def main() -> None:
    release, seed, work = sys.argv[1:]
    turns = Turns(Rocketmq(release), int(seed), Path(work))
    turns.run()
    sys.stdout.write(json.dumps({"entries": len(turns.acked)}) + "\n")


if __name__ == "__main__":
    main()
