"""The CRC property covers what the CRC of the body does not: it is looked at wherever that is."""

from dataclasses import replace
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Corrupt, Message, StoreConfig
from rmqstore.clock import ManualClock
from rmqstore.formats.message import FRONT_V4
from rmqstore.formats.names import format_start
from rmqstore.snapshot import ScanRequest, SplitBudget, read_split
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.verify import verify
from tests.snapshot.small_store import FIRST_MS

pytestmark = pytest.mark.stores

MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
COUNT = 8
FIELDS = pytest.mark.parametrize(
    "field", ["flag", "born_timestamp", "store_timestamp", "born_address", "reconsume_times"]
)
CONFIG = StoreConfig(flush="SYNC", log_file_size=8192, queue_file_size=400, append_property_crc=True)


def flipped_store(root: Path, number: int, field: str, *, crc: bool = True) -> int:
    """Eight messages, closed in good order, and one bit of a field of message `number` turned over; its place."""
    config = replace(CONFIG, append_property_crc=crc)
    with rmqstore.open_store(str(root), config, clock=ManualClock(FIRST_MS), workers=False) as store:
        puts = [store.put(Message("T", b"body %d" % each, tags="a")) for each in range(COUNT)]
    path = root / "commitlog" / format_start(0)
    data = bytearray(path.read_bytes())
    at = puts[number].physical_offset
    data[at + FRONT_V4.offset[field] + 3] ^= 1
    path.write_bytes(data)
    return at


def count_of(root: Path, mode: str, **how: str) -> int:
    return rmqstore.open_snapshot(root).scan(["T"], scan_mode=mode, **how).read_all().num_rows


@MODES
@FIELDS
@pytest.mark.parametrize("number", [3, COUNT - 1])
def test_a_flipped_bit_outside_of_the_body_is_damage(tmp_path: Path, mode: str, field: str, number: int) -> None:
    at = flipped_store(tmp_path, number, field)
    with pytest.raises(Corrupt) as caught:
        count_of(tmp_path, mode)
    assert int(Path(caught.value.path).name) + caught.value.offset == at
    assert count_of(tmp_path, mode, on_corrupt_record="skip") == COUNT - 1
    assert "CRC property" in " ".join(found.reason for found in verify(rmqstore.open_snapshot(tmp_path).stores[0]))


@FIELDS
def test_without_the_property_nobody_can_tell(tmp_path: Path, field: str) -> None:
    flipped_store(tmp_path, 3, field, crc=False)
    assert count_of(tmp_path, "queue", verify_crc="always") == COUNT


@MODES
@pytest.mark.parametrize(
    ("word", "behind", "count"), [("auto", 0, 7), ("auto", 1, 8), ("always", 1, 7), ("never", 0, 8)]
)
def test_it_is_looked_at_where_the_bodies_are(tmp_path: Path, mode: str, word: str, behind: int, count: int) -> None:
    at = flipped_store(tmp_path, 3, "flag")
    snapshot = rmqstore.open_snapshot(tmp_path)
    snapshot = SnapshotReader((replace(snapshot.stores[0], crc_from=at + behind, damage=()),), "auto")
    request = ScanRequest(scan_mode=mode, verify_crc=word, on_corrupt_record="skip")
    splits = snapshot.plan(snapshot.select(["T"]), request, SplitBudget())
    assert sum(batch.num_rows for split in splits for batch in read_split(split, request)) == count


def test_a_look_at_one_record_and_an_open_store_say_so_too(tmp_path: Path) -> None:
    at = flipped_store(tmp_path, 3, "flag")
    with pytest.raises(Corrupt, match="CRC property"):
        rmqstore.open_snapshot(tmp_path).message_at(at)
    with pytest.raises(Corrupt, match="CRC property"):
        rmqstore.open_store(str(tmp_path), CONFIG, workers=False)
    config = replace(CONFIG, check_crc_on_recovery=False)
    with rmqstore.open_store(str(tmp_path), config, workers=False) as store:
        reasons = [message.corrupt_reason for message in store.get("T", 0, 0).messages]
    assert reasons == [*[None] * 3, "the CRC property of the record is wrong", *[None] * (COUNT - 4)]


def test_after_a_kill_the_log_ends_before_a_record_that_it_contradicts(tmp_path: Path) -> None:
    flipped_store(tmp_path, COUNT - 1, "flag")
    (tmp_path / "abort").touch()
    assert count_of(tmp_path, "auto") == COUNT - 1
    with rmqstore.open_store(str(tmp_path), CONFIG, workers=False) as store:
        assert ["CRC property" in warning for warning in store.warnings] == [True]
        assert len(store.get("T", 0, 0).messages) == COUNT - 1
