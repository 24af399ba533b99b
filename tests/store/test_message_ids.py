"""The two ids of a message find it: in the open store, in a snapshot, in a scan, on the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import DataLost, Message, PutResult, Rejected, Snapshot, StoredMessage
from rmqstore.cli import main
from rmqstore.config import StoreConfig
from rmqstore.engine.store import Store

SMALL_FILES = StoreConfig(log_file_size=1024 * 1024, queue_file_size=20_000, index_slot_count=100, index_item_count=400)
UNIQUE = "7F0000010ABC18B4AAC2000000000000"  # a client's: it looks like an offset id


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with rmqstore.open_store(str(tmp_path / "store"), SMALL_FILES, workers=False) as store:
        yield store


@pytest.fixture
def results(store: Store) -> list[PutResult]:
    """Of a plain message, one with a unique key, two of a batch, one of another topic, and one that waits."""
    found = [
        store.put(Message("orders", b"plain")),
        store.put(Message("orders", b"unique", properties={"UNIQ_KEY": UNIQUE}, queue_id=1)),
        store.put_batch([Message("orders", b"batch 0"), Message("orders", b"batch 1")]),
        store.put(Message("payments", b"other")),
        store.put(Message("orders", b"late", properties={"DELAY": "18"})),
    ]
    store.put(Message("orders", b"origin", keys=[found[0].msg_id]))
    store.flush()
    return found


@pytest.fixture(params=["store", "snapshot"])
def reads(request: pytest.FixtureRequest, store: Store, results: list[PutResult]) -> Store | Snapshot:
    return store if request.param == "store" else rmqstore.open_snapshot(store.path)


def test_the_id_of_a_put_finds_its_message(reads: Store | Snapshot, results: list[PutResult]) -> None:
    first = reads.query("orders", results[1].msg_id)
    assert [message.body for message in first] == [b"unique"]
    assert first == reads.query("orders", UNIQUE) == reads.query("orders", results[1].msg_id.lower())
    assert (first[0].msg_id, first[0].offset_msg_id) == (UNIQUE, results[1].msg_id)
    bodies = [message.body for one in results[2].msg_ids for message in reads.query("orders", one)]
    assert bodies == [b"batch 0", b"batch 1"]


def test_an_id_is_found_beside_those_that_have_it_as_a_key(reads: Store | Snapshot, results: list[PutResult]) -> None:
    assert [message.body for message in reads.query("orders", results[0].msg_id)] == [b"plain", b"origin"]
    assert [message.body for message in reads.query("orders", results[0].msg_id, begin_ms=2**62)] == []
    most = {"max_count": 1} if isinstance(reads, Store) else {"count_max": 1}
    assert [message.body for message in reads.query("orders", results[0].msg_id, **most)] == [b"plain"]


def test_an_id_of_another_topic_or_broker_finds_nothing(reads: Store | Snapshot, results: list[PutResult]) -> None:
    assert reads.query("orders", results[3].msg_id) == []
    assert reads.query("orders", "CB007109" + results[0].msg_id[8:]) == []
    assert reads.query("orders", results[0].msg_id[:-1] + "1") == []
    assert reads.query("orders", f"{results[0].msg_id[:16]}7FFFFFFFFFFFFFFF") == []


def test_a_message_is_looked_up_by_its_offset_id_whatever_its_topic(
    reads: Store | Snapshot, results: list[PutResult]
) -> None:
    for result, body in zip(results, (b"plain", b"unique", b"batch 0", b"other", b"late"), strict=True):
        assert reads.message_at(result.msg_ids[0]).body == body
        assert reads.message_at(result.msg_ids[0]) == reads.message_at(result.physical_offset)
    assert reads.message_at(results[4].msg_id).topic == "SCHEDULE_TOPIC_XXXX"


def test_an_id_that_is_not_there_is_lost_and_other_text_is_refused(
    reads: Store | Snapshot, results: list[PutResult]
) -> None:
    for text in ("CB007109" + results[0].msg_id[8:], results[0].msg_id[:-1] + "1", UNIQUE):
        with pytest.raises(DataLost, match=f"no message with the id {text} is there"):
            reads.message_at(text)
    with pytest.raises(
        Rejected, match="not an offset message id: write 32 or 56 hexadecimal digits; a unique key is found by"
    ):
        reads.message_at("o-17")


def test_there_is_one_type_of_messages(reads: Store | Snapshot, store: Store) -> None:
    (message,) = reads.query("orders", UNIQUE)
    assert type(message) is StoredMessage
    assert type(store.get("orders", 0, 0).messages[0]) is StoredMessage
    assert isinstance(store.consumer("g", "orders").poll()[0], StoredMessage)
    assert message == store.message_at(message.physical_offset)


@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
def test_a_scan_takes_ids_for_keys(store: Store, results: list[PutResult], mode: str) -> None:
    def bodies(*keys: str) -> list[bytes]:
        found = rmqstore.open_snapshot(store.path).scan(["orders"], keys=keys, scan_mode=mode, columns=["body"])
        return sorted(found.read_all()["body"].to_pylist())

    assert bodies(UNIQUE) == bodies(results[1].msg_id) == [b"unique"]
    assert bodies(results[1].msg_id.lower(), UNIQUE) == [b"unique"]
    assert bodies(*results[2].msg_ids) == [b"batch 0", b"batch 1"]
    assert bodies(results[0].msg_id) == [b"origin", b"plain"]
    assert bodies(results[3].msg_id) == bodies("CB007109" + results[0].msg_id[8:]) == []


def test_a_scan_that_the_index_prunes_finds_ids_as_one_that_reads_everything(store: Store) -> None:
    ids = [store.put(Message("orders", b"%d" % number, keys=f"k{number}")).msg_id for number in range(1000)]
    store.flush()
    snapshot = rmqstore.open_snapshot(store.path)
    for number in (0, 1, 500, 998, 999):
        for keys in ((ids[number],), (ids[number], f"k{number}")):
            assert snapshot.scan(["orders"], keys=keys).read_all()["body"].to_pylist() == [b"%d" % number]


@pytest.mark.parametrize("which", ["unique", "offset"])
def test_the_command_line_takes_both_ids(store: Store, results: list[PutResult], which: str) -> None:
    asked = UNIQUE if which == "unique" else results[1].msg_id
    shown = CliRunner().invoke(main, ["cat", store.path, "--topic", "orders", "--key", asked, "--json-lines"])
    assert (shown.exit_code, shown.output.count("\n")) == (0, 1)
    assert '"body": "unique"' in shown.output
    if which == "offset":
        record = CliRunner().invoke(main, ["inspect", store.path, "--record", asked])
        assert record.exit_code == 0
        assert "unique" in record.output


def test_inspect_refuses_what_is_neither_offset_nor_id(store: Store, results: list[PutResult]) -> None:
    refused = CliRunner().invoke(main, ["inspect", store.path, "--record", "o-17"])
    assert refused.exit_code == 2
    assert "an offset of the commitlog, or an offset message id" in refused.output
