"""Logs that real DLedger nodes and brokers in DLedger mode left, opened for writing and gone on with."""

import base64
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore import LedgerConfig, Message, StoreConfig, open_snapshot, open_store
from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from rmqstore.errors import Rejected
from rmqstore.formats.dledger import Term
from rmqstore.snapshot import ledger_entries
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.verify import verify
from tests.golden.cases import BROKER_CASES, read_json
from tests.golden.nodes import CASES, unpacked

pytestmark = pytest.mark.stores

LEDGER_CASES = [name for name in BROKER_CASES if "dledger" in name]
ROW = ["topic", "queueId", "queueOffset", "physicalOffset", "body"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_nodes_log_is_gone_on_with(case: Path, tmp_path: Path) -> None:
    node, expected = unpacked(case, tmp_path), read_json(case, "expected")
    wanted = [(one["index"], one["term"], one["pos"], base64.b64decode(one["body"])) for one in expected["entries"]]
    sizes = EntryStoreConfig(data_file_size=16384, index_file_size=1280)
    for count in (0, 3):
        with EntryStore(node, sizes) as store:
            assert store.warnings == []
            assert store.begin_index == expected["ledgerBeginIndex"]
            found = [store.get(index) for index in range(max(store.begin_index, 0), store.end_index + 1)]
            assert [(each.index, each.term, each.offset, each.body) for each in found] == wanted
            store.save_term(Term(store.term.number + 1, None))
            made = store.append([b"one", b"", b"x" * 9000][:count], store.term.number)
            wanted += [(each.index, each.term, each.offset, each.body) for each in made]
    rows = ledger_entries(node, ["index", "term", "position", "body"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == wanted


@pytest.mark.parametrize("case", LEDGER_CASES)
def test_a_brokers_store_is_gone_on_with(case: str, store_of: Callable[[str], Path], tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(store_of(case), root)  # the original is for all tests of this folder

    def rows() -> list[tuple[object, ...]]:
        table = open_snapshot(root).scan(columns=ROW, include_system_topics=True).read_all()
        return sorted(zip(*(table[name].to_pylist() for name in ROW), strict=True))

    def damage() -> set[str]:
        found = [each for store in look_at(str(root)).stores for each in verify(store)]
        return {each.reason for each in found if each.severity == DAMAGE}

    before, known = rows(), damage()
    config = StoreConfig.broker(dledger=LedgerConfig(), retention=False)
    with open_store(root, config) as store:
        bounds = {(topic, queue): store.bounds(topic, queue) for topic, queue, *_ in before}
        assert store.put(Message("AfterRocketMQ", b"ours")).is_stored
        store.flush()
    after = rows()
    assert set(before) <= set(after)
    assert next(row for row in after if row[0] == "AfterRocketMQ")[4] == b"ours"
    for topic, queue, offset, *_ in before:
        assert bounds[topic, queue][0] <= offset < bounds[topic, queue][1]
    assert damage() <= known  # RocketMQ 4.9 makes no index items of what it recovers in this mode


def test_another_programs_node_is_not_taken_for_a_store(tmp_path: Path) -> None:
    refused = 0
    for case in CASES:
        node = unpacked(case, tmp_path / case.name)
        self_id = node.name.removeprefix("dledger-")
        files = {path: path.read_bytes() for path in node.rglob("*") if path.is_file()}
        with pytest.raises(Rejected, match=r"takes_over=True|entries that are not messages"):
            open_store(node.parent, StoreConfig(dledger=LedgerConfig(self_id=self_id)))
        assert {path: path.read_bytes() for path in node.rglob("*") if path.is_file()} == files
        refused += 1
    assert refused == len(CASES)
