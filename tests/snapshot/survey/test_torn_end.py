"""What stands behind the last sound record: a write that was never finished, or a stored record that is damaged now."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Corrupt, Message, StoreConfig
from rmqstore.clock import ManualClock
from rmqstore.files.reading import LOCAL
from rmqstore.formats.checkpoint import Checkpoint, encode_checkpoint, read_checkpoint
from rmqstore.formats.message import FRONT_V4
from rmqstore.formats.names import format_start
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.survey.footprint import Footprint
from rmqstore.snapshot.survey.log_search import NO_FILE
from rmqstore.snapshot.verify import verify
from tests.snapshot.small_store import FIRST_MS, SmallStore

pytestmark = pytest.mark.stores

MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
FIELDS = pytest.mark.parametrize(
    "field", ["total_size", "magic", "body_size", "physical_offset", "body_crc", "sys_flag"]
)
COUNT = 10
CONFIG = StoreConfig(flush="SYNC", log_file_size=8192, queue_file_size=400, index_slot_count=7, index_item_count=30)


def closed_store(root: Path, step_ms: int = 7) -> int:
    """Ten messages in topic T and one before them in topic U, put `step_ms` apart, and the store closed in good order;
    where the last one stands.
    """
    clock = ManualClock(FIRST_MS)
    with rmqstore.open_store(str(root), CONFIG, clock=clock, workers=False) as store:
        store.put(Message("U", b"another topic"))
        for number in range(COUNT):
            clock.advance(step_ms)
            last = store.put(Message("T", b"body %d" % number, tags="a", queue_id=number % 2))
    return last.physical_offset


def flip(root: Path, offset: int, field: str) -> None:
    """Turns one bit of a field over, of the record at `offset` in the log's only file."""
    path = root / "commitlog" / format_start(0)
    data = bytearray(path.read_bytes())
    bit = 0x10 if field == "sys_flag" else 1  # of the flags that which says how long the sender's host is
    last_byte = {"i4": 3, "i8": 7}[dict(FRONT_V4.fields)[field]]
    data[offset + FRONT_V4.offset[field] + last_byte] ^= bit
    path.write_bytes(data)


def rows(root: Path, topic: str = "T", **how: Any) -> list[dict[str, Any]]:
    columns = ["queueId", "queueOffset", "physicalOffset", "body", "corruptReason"]
    return rmqstore.open_snapshot(root).scan([topic], columns=columns, **how).read_all().to_pylist()


def bodies(found: list[dict[str, Any]]) -> set[bytes | None]:
    return {row["body"] for row in found}


def sound_bodies(count: int) -> set[bytes | None]:
    return {b"body %d" % number for number in range(count)}


def place_of(error: Corrupt) -> int:
    return int(Path(error.path).name) + error.offset


@MODES
@FIELDS
def test_a_flipped_bit_in_the_newest_record_of_a_closed_store_is_damage(tmp_path: Path, mode: str, field: str) -> None:
    at = closed_store(tmp_path)
    flip(tmp_path, at, field)
    with pytest.raises(Corrupt) as caught:
        rows(tmp_path, scan_mode=mode)
    assert place_of(caught.value) == at
    assert bodies(rows(tmp_path, scan_mode=mode, on_corrupt_record="skip")) == sound_bodies(COUNT - 1)
    found = rows(tmp_path, scan_mode=mode, on_corrupt_record="null")
    (flagged,) = [row for row in found if row["corruptReason"]]
    assert (flagged["queueId"], flagged["queueOffset"]) == ((COUNT - 1) % 2, (COUNT - 1) // 2)
    assert (flagged["physicalOffset"], flagged["body"]) == (at, None)
    assert len(found) == COUNT


@FIELDS
def test_so_it_is_where_all_messages_came_in_one_millisecond(tmp_path: Path, field: str) -> None:
    at = closed_store(tmp_path, step_ms=0)
    flip(tmp_path, at, field)
    with pytest.raises(Corrupt) as caught:
        rows(tmp_path)
    assert place_of(caught.value) == at


@FIELDS
def test_readers_of_another_topic_are_not_concerned(tmp_path: Path, field: str) -> None:
    flip(tmp_path, closed_store(tmp_path), field)
    assert bodies(rows(tmp_path, "U", scan_mode="queue")) == {b"another topic"}


@FIELDS
def test_the_queue_still_counts_the_damaged_message_and_verify_names_it_once(tmp_path: Path, field: str) -> None:
    at = closed_store(tmp_path)
    flip(tmp_path, at, field)
    snapshot = rmqstore.open_snapshot(tmp_path)
    ends = {queue.key: queue.max_offset for queue in snapshot.stores[0].queues.values() if queue.key[0] == "T"}
    assert ends == {("T", 0): 5, ("T", 1): 5}
    log = [found for found in verify(snapshot.stores[0]) if "commitlog" in found.path and found.severity == DAMAGE]
    assert [(found.position, found.reason.split(":")[0]) for found in log] == [(at, "the log ends torn")]


@FIELDS
def test_a_message_that_is_alone_does_not_disappear_either(tmp_path: Path, field: str) -> None:
    with rmqstore.open_store(str(tmp_path), CONFIG, workers=False) as store:
        at = store.put(Message("T", b"alone")).physical_offset
    flip(tmp_path, at, field)
    with pytest.raises(Corrupt):
        rows(tmp_path)


def test_the_first_record_of_a_new_file_does_not_disappear_either(tmp_path: Path) -> None:
    clock = ManualClock(FIRST_MS)
    with rmqstore.open_store(str(tmp_path), CONFIG, clock=clock, workers=False) as store:
        for number in range(3):
            at = store.put(Message("T", b"%d" % number * 3000)).physical_offset
    assert at == CONFIG.log_file_size
    path = tmp_path / "commitlog" / format_start(at)
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    with pytest.raises(Corrupt) as caught:
        rows(tmp_path)
    assert place_of(caught.value) == at
    assert len(rows(tmp_path, on_corrupt_record="skip")) == 2


def test_zeros_where_a_closed_store_had_its_newest_message_are_damage(tmp_path: Path) -> None:
    at = closed_store(tmp_path)
    path = tmp_path / "commitlog" / format_start(0)
    path.write_bytes(path.read_bytes()[:at].ljust(CONFIG.log_file_size, b"\0"))
    with pytest.raises(Corrupt) as caught:
        rows(tmp_path)
    assert place_of(caught.value) == at
    assert bodies(rows(tmp_path, on_corrupt_record="skip")) == sound_bodies(COUNT - 1)


def torn_store(root: Path, known_ms: int, *, dispatched: bool = True, killed: bool = False) -> int:
    """Ten messages a second apart, of the last one the end is not written; `known_ms` after the first one is
    the checkpoint's time.
    """
    store = SmallStore()
    for number in range(COUNT):
        store.add("T", 0, body=b"body %d" % number, dispatched=dispatched or number < COUNT - 1)
    store.change(store.end - 20, bytes(20))
    store.write(root)
    checkpoint = Checkpoint(FIRST_MS + known_ms, FIRST_MS + known_ms)
    (root / "checkpoint").write_bytes(encode_checkpoint(checkpoint))
    if killed:
        (root / "abort").touch()
    return store.offsets[-1]


@MODES
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("dispatched", [False, True])
def test_a_write_that_was_never_finished_is_the_end_of_the_data(
    tmp_path: Path, mode: str, dispatched: bool, killed: bool
) -> None:
    """Also after RocketMQ's recovery, which erases neither the torn record nor its entry, and a stop in good order."""
    torn_store(tmp_path, 8000, dispatched=dispatched, killed=killed)
    assert bodies(rows(tmp_path, scan_mode=mode)) == sound_bodies(COUNT - 1)


@MODES
def test_after_a_kill_a_record_that_was_flushed_and_dispatched_is_damage(tmp_path: Path, mode: str) -> None:
    at = torn_store(tmp_path, 9500, killed=True)
    with pytest.raises(Corrupt) as caught:
        rows(tmp_path, scan_mode=mode)
    assert place_of(caught.value) == at


@MODES
@pytest.mark.parametrize("known_ms", [9000, 9500])
def test_a_message_that_no_queue_knows_does_not_disappear_from_a_closed_store(
    tmp_path: Path, mode: str, known_ms: int
) -> None:
    at = torn_store(tmp_path, known_ms, dispatched=False)
    with pytest.raises(Corrupt) as caught:
        rows(tmp_path, scan_mode=mode)
    assert place_of(caught.value) == at
    assert bodies(rows(tmp_path, scan_mode=mode, on_corrupt_record="skip")) == sound_bodies(COUNT - 1)


@MODES
def test_old_bytes_behind_the_end_are_no_message(tmp_path: Path, mode: str) -> None:
    store = SmallStore()
    for number in range(COUNT):
        store.add("T", 0, body=b"body %d" % number)
    store.append(b"what was left of an older record")
    store.write(tmp_path)
    last_ms = FIRST_MS + 1000 * (COUNT - 1)
    (tmp_path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(last_ms, last_ms)))
    assert bodies(rows(tmp_path, scan_mode=mode)) == sound_bodies(COUNT)


def test_what_a_live_writer_has_begun_is_no_damage(tmp_path: Path) -> None:
    store = rmqstore.open_store(str(tmp_path), CONFIG, clock=ManualClock(FIRST_MS), workers=False)
    with store:
        for number in range(COUNT):
            last = store.put(Message("T", b"body %d" % number))
        store.flush()
        path = tmp_path / "commitlog" / format_start(0)
        end = last.physical_offset + last.size
        data = path.read_bytes()
        begun = data[last.physical_offset : end - 10].ljust(100, b"\0")
        with path.open("r+b") as file:
            file.seek(end)
            file.write(begun)
        assert bodies(rows(tmp_path)) == sound_bodies(COUNT)
        with path.open("r+b") as file:
            file.seek(end)
            file.write(bytes(len(begun)))


@MODES
@pytest.mark.parametrize("how", ["gone", "empty", "zeros after it"])
@pytest.mark.parametrize("end", ["closed", "flushed"])
def test_a_newest_log_file_that_is_missing_is_told(tmp_path: Path, mode: str, how: str, end: str) -> None:
    root = _filled(tmp_path, end)
    last = _without_newest_file(root)
    if how == "empty":
        last.touch()
    elif how == "zeros after it":
        (root / "commitlog" / format_start(int(last.name) + CONFIG.log_file_size)).write_bytes(bytes(8192))
    with pytest.raises(Corrupt, match="is missing or empty, and messages were in it"):
        rows(root, scan_mode=mode)
    assert 0 < len(rows(root, scan_mode=mode, on_corrupt_record="skip")) < 100
    assert any(found.severity == DAMAGE for found in verify(rmqstore.open_snapshot(root).stores[0]))


@MODES
def test_a_newest_log_file_that_the_checkpoint_knows_nothing_of_is_what_a_crash_took(tmp_path: Path, mode: str) -> None:
    root = _filled(tmp_path, "killed")
    _without_newest_file(root)
    assert 0 < len(rows(root, scan_mode=mode)) < 100


def test_a_file_that_was_made_during_a_look_is_looked_at(tmp_path: Path) -> None:
    root = _filled(tmp_path, "flushed")
    aside = tmp_path / "aside"
    shutil.copytree(root / "commitlog", aside)
    last = _without_newest_file(root)
    before, found = Footprint.of(LOCAL, str(root), ()), rmqstore.open_snapshot(root).stores[0]
    assert [damage.reason for damage in found.damage] == [NO_FILE]
    assert before.changed(found, Footprint.of(LOCAL, str(root), ())) is None
    shutil.copy(aside / last.name, last)
    assert before.changed(found, Footprint.of(LOCAL, str(root), ())) == "the next file of its log was made"
    assert len(rows(root)) == 100


@MODES
@pytest.mark.parametrize("field", ["confirm_offset", "logics_physical_offset"])
def test_a_log_that_ends_with_a_blank_has_lost_no_file(tmp_path: Path, mode: str, field: str) -> None:
    """The next file could not be made, or was taken back: the checkpoint counts up to the end of the last one."""
    root = _filled(tmp_path, "closed")
    _without_newest_file(root)
    with rmqstore.open_store(str(root), replace(CONFIG, on_middle_damage="cut"), workers=False) as store:
        count = sum(high for _, high in (store.bounds("T", number) for number in (0, 1)))
    path = root / "checkpoint"
    known = read_checkpoint(path.read_bytes())
    (last,) = (file for file in (root / "commitlog").iterdir() if any(file.read_bytes()))
    end = int(last.name) + CONFIG.log_file_size
    path.write_bytes(encode_checkpoint(replace(known, **{field: end - (field == "logics_physical_offset")})))
    found = rmqstore.open_snapshot(root)
    assert found.stores[0].log_end < end
    assert len(rows(root, scan_mode=mode)) == count > 0
    path.write_bytes(encode_checkpoint(replace(known, **{field: end + 100})))
    with pytest.raises(Corrupt, match="is missing or empty, and messages were in it"):
        rows(root, scan_mode=mode)


def _without_newest_file(root: Path) -> Path:
    """Removes the newest log file that holds a message, and what was made in advance; where it was."""
    files = sorted((root / "commitlog").iterdir())
    last = max(number for number, path in enumerate(files) if any(path.read_bytes()))
    assert last > 0
    for path in files[last:]:
        path.unlink()
    return files[last]


def _filled(root: Path, end: str) -> Path:
    """A store of 100 messages in several log files, or a copy of it as a kill leaves it, `flushed` or not."""
    copy = root / "copy"
    clock = ManualClock(FIRST_MS)
    with rmqstore.open_store(str(root / "store"), CONFIG, clock=clock, workers=False) as store:
        for number in range(100):
            clock.advance(1)
            store.put(Message("T", b"body %d" % number, queue_id=number % 2))
            store.step()
        if end == "flushed":
            store.flush()
        shutil.copytree(root / "store", copy)
    return root / "store" if end == "closed" else copy


@MODES
@pytest.mark.parametrize("lost", [1, 3, 13])
def test_a_last_record_of_a_killed_store_that_lacks_its_end_is_no_message(tmp_path: Path, mode: str, lost: int) -> None:
    """Its body and sizes are right, so that no checksum tells; its keys would be invented.  A copy under way has
    such a record, where its file has the whole length already.  Recovery drops it, too."""
    clock = ManualClock(FIRST_MS)
    with rmqstore.open_store(str(tmp_path), CONFIG, clock=clock, workers=False) as store:
        for number in range(COUNT):
            clock.advance(7)
            last = store.put(Message("T", b"body %d" % number, keys=["some-key"], queue_id=number % 2))
        store.abandon()
    path = tmp_path / "commitlog" / format_start(0)
    end = last.physical_offset + last.size
    whole = path.read_bytes()
    path.write_bytes(whole[: end - lost].ljust(len(whole), b"\0"))
    assert bodies(rows(tmp_path, scan_mode=mode)) == sound_bodies(COUNT - 1)
    snapshot = rmqstore.open_snapshot(tmp_path)
    assert [found.reason for found in verify(snapshot.stores[0]) if found.severity == DAMAGE] == [
        "the log ends torn: its last bytes were not written"
    ]
    before = list(snapshot.follow(start="earliest", wait_s=0))
    assert set().union(*(bodies(batch.rows.to_pylist()) for batch in before)) == sound_bodies(COUNT - 1)
    path.write_bytes(whole)
    (later,) = snapshot.follow(after=before[-1].offsets, wait_s=0)
    assert bodies(later.rows.to_pylist()) == {b"body %d" % (COUNT - 1)}
    path.write_bytes(whole[: end - lost].ljust(len(whole), b"\0"))
    with rmqstore.open_store(str(tmp_path), CONFIG, clock=clock, workers=False) as store:
        assert sum(high - low for low, high in (store.bounds("T", queue) for queue in (0, 1))) == COUNT - 1
    assert bodies(rows(tmp_path, scan_mode=mode)) == sound_bodies(COUNT - 1)


@MODES
@pytest.mark.parametrize("has_abort", [False, True])
def test_a_copy_that_has_not_come_to_the_end_of_a_record_shows_no_row_with_other_properties(
    tmp_path: Path, mode: str, has_abort: bool
) -> None:
    """Of a closed store, or without `abort`: all other files are there, and the log has come to a byte of any record.
    Queue entries lead past it, and the row of the record had keys and properties that nobody sent."""
    clock = ManualClock(FIRST_MS)
    given = {"city": "São Paulo", "WAIT": "true"}
    with rmqstore.open_store(str(tmp_path), CONFIG, clock=clock, workers=False) as store:
        for number in range(COUNT):
            clock.advance(7)
            last = store.put(
                Message("T", b"body %d" % number, keys=["some-key"], properties=given, queue_id=number % 2)
            )
    if has_abort:
        (tmp_path / "abort").touch()
    columns = ["queueId", "queueOffset", "body", "keys", "properties", "corruptReason"]
    true = {(row["queueId"], row["queueOffset"]): row for row in _shown(tmp_path, columns, mode)}
    path = tmp_path / "commitlog" / format_start(0)
    whole = path.read_bytes()
    size = last.size
    for record in (COUNT - 1, COUNT - 3):
        end = last.physical_offset + size - (COUNT - 1 - record) * size
        for reached in range(end - size, end):
            path.write_bytes(whole[:reached].ljust(len(whole), b"\0"))
            for row in _shown(tmp_path, columns, mode):
                is_true = row == true[row["queueId"], row["queueOffset"]]
                assert is_true or row["corruptReason"], (record, end - reached, row)
            found = rmqstore.open_snapshot(tmp_path).query("T", "some-key")
            assert {message.body for message in found} <= sound_bodies(record), (record, end - reached)
            assert all(message.properties.items() >= given.items() for message in found)
    path.write_bytes(whole[: last.physical_offset + size - 3].ljust(len(whole), b"\0"))
    told = [one.reason for one in verify(rmqstore.open_snapshot(tmp_path).stores[0]) if one.severity == DAMAGE]
    assert "the log ends torn: its last bytes were not written" in told
    path.write_bytes(whole)
    assert {(row["queueId"], row["queueOffset"]): row for row in _shown(tmp_path, columns, mode)} == true


def _shown(root: Path, columns: list[str], mode: str) -> list[dict[str, Any]]:
    scan = rmqstore.open_snapshot(root).scan(["T"], columns=columns, scan_mode=mode, on_corrupt_record="null")
    return scan.read_all().to_pylist()
