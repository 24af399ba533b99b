"""A tear behind the body: CRC and structure are right, only the entry in the queue knows what the tags were."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import Corrupt
from rmqstore.formats.names import SCHEDULE_TOPIC
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.snapshot import QueueRange, ScanRequest, SplitBudget, read_split
from rmqstore.snapshot.reader import SnapshotReader
from tests.snapshot.small_store import SmallStore

MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
COUNT = 20
TORN = 13
TAGGED = {"KEYS": "k" * 40, "TAGS": "paid"}


def torn_store(root: Path) -> tuple[Path, int]:
    """Twenty messages in two queues; one has zeros from before its TAGS on.  Returns the store and where it stands."""
    store = SmallStore()
    for number in range(COUNT):
        store.add("T", number % 2, body=b"body %d" % number, properties=TAGGED)
    end = store.offsets[TORN + 1]
    tags = bytes(store.data[store.offsets[TORN] // store.file_size * store.file_size]).index(
        b"TAGS", store.offsets[TORN] % store.file_size
    )
    tear = store.offsets[TORN] // store.file_size * store.file_size + tags - 1
    store.change(tear, bytes(end - tear))
    return store.write(root), store.offsets[TORN]


def bodies(table: pa.Table) -> list[bytes | None]:
    return sorted(table["body"].to_pylist(), key=lambda body: (body is not None, body))


def sound_bodies() -> list[bytes]:
    return sorted(b"body %d" % number for number in range(COUNT) if number != TORN)


@MODES
def test_fail_names_file_and_place(tmp_path: Path, mode: str) -> None:
    root, torn_at = torn_store(tmp_path)
    with pytest.raises(Corrupt, match="T/1 offset 6: the record's TAGS contradict the tags code") as caught:
        rmqstore.open_snapshot(root).scan(["T"], scan_mode=mode).read_all()
    assert int(Path(caught.value.path).name) + caught.value.offset == torn_at


@MODES
def test_skip_leaves_it_out(tmp_path: Path, mode: str) -> None:
    root, _ = torn_store(tmp_path)
    rows = rmqstore.open_snapshot(root).scan(["T"], scan_mode=mode, on_corrupt_record="skip").read_all()
    assert bodies(rows) == sound_bodies()


@MODES
def test_null_flags_the_row(tmp_path: Path, mode: str) -> None:
    root, torn_at = torn_store(tmp_path)
    columns = ["physicalOffset", "body", "tags", "corruptReason"]
    rows = rmqstore.open_snapshot(root).scan(["T"], columns=columns, scan_mode=mode, on_corrupt_record="null")
    table = rows.read_all()
    assert bodies(table) == [None, *sound_bodies()]
    (flagged,) = [row for row in table.to_pylist() if row["corruptReason"] is not None]
    assert (flagged["physicalOffset"], flagged["tags"]) == (torn_at, None)
    assert "TAGS" in flagged["corruptReason"]


@MODES
def test_without_checks_it_is_a_row(tmp_path: Path, mode: str) -> None:
    root, _ = torn_store(tmp_path)
    rows = rmqstore.open_snapshot(root).scan(["T"], scan_mode=mode, verify_crc="never").read_all()
    assert rows.num_rows == COUNT
    assert rows["tags"].null_count == 1


@MODES
@pytest.mark.parametrize(("word", "behind", "count"), [("auto", 1, COUNT), ("auto", 0, COUNT - 1), ("always", 1, 19)])
def test_it_is_looked_at_where_crcs_are(tmp_path: Path, mode: str, word: str, behind: int, count: int) -> None:
    root, torn_at = torn_store(tmp_path)
    snapshot = rmqstore.open_snapshot(root)
    snapshot = SnapshotReader((replace(snapshot.stores[0], crc_from=torn_at + behind),), "auto")
    request = ScanRequest(scan_mode=mode, verify_crc=word, on_corrupt_record="skip")
    splits = snapshot.plan(snapshot.select(["T"]), request, SplitBudget())
    assert sum(batch.num_rows for split in splits for batch in read_split(split, request)) == count


def with_codes(store: SmallStore, queue: tuple[str, int], code: int) -> None:
    """Puts one tags code into all entries of a queue."""
    for number, entry in enumerate(store.entries[queue]):
        offset, size, _ = QUEUE_ENTRY.struct.unpack(entry)
        store.entries[queue][number] = QUEUE_ENTRY.struct.pack(offset, size, code)


def rows_of(root: Path, topic: str, mode: str) -> int:
    snapshot = rmqstore.open_snapshot(root)
    return snapshot.scan([topic], scan_mode=mode, on_corrupt_record="skip").read_all().num_rows


@MODES
@pytest.mark.parametrize(
    ("topic", "code", "count"),
    [
        ("T", 1, 0),
        ("T", -(2**31), 0),
        ("T", 2**31, 3),  # no hash
        ("T", -(2**63), 3),  # an extension address that leads nowhere
        (SCHEDULE_TOPIC, 1, 3),  # a delivery time
    ],
)
def test_only_hashes_of_tags_are_held_against_tags(
    tmp_path: Path, mode: str, topic: str, code: int, count: int
) -> None:
    store = SmallStore()
    for number in range(3):
        store.add(topic, body=b"body %d" % number, properties=TAGGED)
    with_codes(store, (topic, 0), code)
    assert rows_of(store.write(tmp_path), topic, mode) == count


@MODES
@pytest.mark.parametrize(("properties", "count"), [({}, 3), ({"KEYS": "a"}, 3), ({"TAGS": "Zürich 😀"}, 3)])
def test_what_the_writer_hashed_is_sound(tmp_path: Path, mode: str, properties: dict[str, str], count: int) -> None:
    store = SmallStore()
    for number in range(3):
        store.add("T", body=b"body %d" % number, properties=properties)
    assert rows_of(store.write(tmp_path), "T", mode) == count


@MODES
def test_queues_with_extension_files_are_left_alone(tmp_path: Path, mode: str) -> None:
    store = SmallStore()
    for number in range(3):
        store.add("T", body=b"body %d" % number, properties=TAGGED)
    with_codes(store, ("T", 0), 1)
    root = store.write(tmp_path)
    (root / "consumequeue_ext" / "T" / "0").mkdir(parents=True)
    assert rows_of(root, "T", mode) == 3


def test_light_queues_are_left_alone(tmp_path: Path) -> None:
    store = SmallStore()
    store.add("T", body=b"body", properties=TAGGED)
    store.entries["%LMQ%a", 0] = [QUEUE_ENTRY.struct.pack(0, QUEUE_ENTRY.struct.unpack(store.entries["T", 0][0])[1], 1)]
    snapshot = rmqstore.open_snapshot(store.write(tmp_path))
    request = ScanRequest(on_corrupt_record="skip")
    splits = snapshot.plan([QueueRange("default", "%LMQ%a", 0, 0, 1)], request, SplitBudget())
    assert sum(batch.num_rows for split in splits for batch in read_split(split, request)) == 1
