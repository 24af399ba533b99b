"""`verify` finds the damage of every damaged golden store and none in the sound ones."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore.files.reading import LOCAL
from rmqstore.snapshot.finding import DAMAGE, NOTE, Finding
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify import verify
from tests.golden.cases import BROKER_CASES, FOLDERS, STORE_CASES, base_name, read_json, unpack
from tests.golden.rows import fingerprint

pytestmark = pytest.mark.stores

StoreOf = Callable[[str], Path]

# Changed by hand, but into something that healthy brokers leave as well, and that RocketMQ starts on without any loss.
HARMLESS = {
    "basic-zerolog": "commitlog files are made in advance",
    "basic-zerocq": "behind a partly filled file RocketMQ deletes it",
    "killed-noabort-5.5.1": "its queues are whole, and 5.5 leaves the checkpoint so after a clean stop as well",
    "killed-portable": "commitlog and abort alone: the documented way to hand a store over; all else is made again",
}
# Where damage must be named, and by what words: (end of the path, part of the reason).
NAMED = {
    "basic-emptylog": ("196608", "empty commitlog file"),
    "basic-midflip": ("131072", "CRC of the body"),
    "basic-newzerocq": ("NewTopic/3/00000000000000000000", "all zero"),
    "basic-nocheckpoint": ("checkpoint", "no checkpoint"),
    "basic-nocommitlog": ("commitlog", "no commitlog file"),
    "basic-nocq": ("consumequeue", "no queue entries at all"),
    "basic-noindex": ("index", "no index files"),
    "basic-nolastcq": ("/0", "have no queue entry although later ones have (22 times"),
    "basic-shortlog": ("131072", "65535 bytes long"),
    "basic-strayfile": (".tmp", "stray file"),
    "basic-zeroedcq": ("2120", "(22 times"),
    "batchcq_mixed-nocq": ("consumequeue", "no queue entries at all"),
    "batchflags-nocq": ("consumequeue", "no queue entries at all"),
    "crcprop-flip": ("65536", "CRC property"),
    "crcprop-force-flip": ("65536", "CRC property"),
    "deleted_head-nocq": ("consumequeue", "no queue entries at all"),
    "killed-bodyflip": ("98304", "torn: the CRC of the body"),
    "killed-futurecheckpoint": ("checkpoint", "later than the newest message"),
    "killed-garbage": ("98304", "torn: no message magic"),
    "killed-headerflip": ("98304", "the record says queue offset 200"),
    "killed-lagcq": ("", "have no queue entry although later ones have"),
    "killed-lagcq-noabort": ("", "without the file abort"),
    "killed-midflip": ("98304", "CRC of the body"),
    "killed-noabort": ("checkpoint", "not stopped cleanly"),
    "killed-nocheckpoint": ("checkpoint", "no checkpoint"),
    "killed-nocq-noindex": ("index", "no index files"),
    "killed-nolastcq": ("/0", "have no queue entry although later ones have"),
    "killed-preblank": ("00000000000000000000", "have no queue entry although later ones have"),
    "killed-torn": ("98304", "torn: no whole record"),
    "killed-wildindex": ("", "leads to no item of its own (60 times"),
    "killed-zerocheckpoint": ("checkpoint", "older than index files"),
    "killed-zeroindex": ("", "says that the file is empty"),
    # The same in stores of another release, with other messages.
    "basic-emptylog-5.5.1": ("147456", "empty commitlog file"),
    "basic-midflip-5.5.1": ("98304", "CRC of the body"),
    "basic-nolastcq-5.5.1": ("/0", "have no queue entry although later ones have (20 times"),
    "basic-shortlog-5.5.1": ("98304", "49151 bytes long"),
    "basic-zeroedcq-5.5.1": ("2120", "(20 times"),
    "killed-headerflip-5.5.1": ("98304", "the record says queue offset 206"),
    "lite-killed-nocq-5.5.1": ("consumequeue", "no queue entries at all"),
}


def is_damaged(case: str) -> bool:
    """Whether somebody changed the store after RocketMQ had written it."""
    return case not in BROKER_CASES and read_json(FOLDERS[case], "expected").get("damage") is not None


# RocketMQ 4.9 makes no new items for what it recovers in this mode: verify tells.
NO_ITEMS = "broker-dledger-4.9.8"
CHANGED_HARMLESSLY = [case for case in FOLDERS if {case, base_name(case)} & HARMLESS.keys()]
SOUND = [case for case in FOLDERS if case != NO_ITEMS if not is_damaged(case) or case in CHANGED_HARMLESSLY]
DAMAGED = [case for case in STORE_CASES if case not in SOUND]


def findings_of(store: Path) -> list[Finding]:
    return list(verify(survey(LOCAL, str(store))))


def damage_of(store: Path) -> list[Finding]:
    return [finding for finding in findings_of(store) if finding.severity == DAMAGE]


def test_both_kinds_of_stores_are_there() -> None:
    assert SOUND
    assert {case if case in NAMED else base_name(case) for case in DAMAGED} <= set(NAMED) or not {
        "basic",
        "killed",
    } <= set(FOLDERS)


@pytest.mark.some(3)
@pytest.mark.parametrize("case", SOUND)
def test_a_sound_store_has_no_damage(case: str, store_of: StoreOf) -> None:
    store = store_of(case)
    before = fingerprint(store)
    assert damage_of(store) == []
    assert fingerprint(store) == before


@pytest.mark.parametrize("case", [case for case in [NO_ITEMS] if case in FOLDERS])
def test_index_items_that_a_recovery_in_dledger_mode_did_not_make_are_missed(case: str, store_of: StoreOf) -> None:
    assert ["keys have no index item" in found.reason for found in damage_of(store_of(case))] == [True]


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_found(case: str, store_of: StoreOf) -> None:
    path_end, words = NAMED.get(case) or NAMED[base_name(case)]
    found = damage_of(store_of(case))
    assert [f for f in found if f.path.endswith(path_end) and words in f.reason], found


@pytest.mark.parametrize("case", CHANGED_HARMLESSLY)
def test_what_is_harmless_is_noted(case: str, store_of: StoreOf) -> None:
    assert {finding.severity for finding in findings_of(store_of(case))} == {NOTE}


@pytest.fixture
def basic(tmp_path: Path) -> Path:
    """A sound, cleanly closed store that a test may change."""
    return unpack("basic", tmp_path)


def changed(file: Path, position: int, data: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[position : position + len(data)] = data
    file.write_bytes(content)


def reasons(store: Path) -> str:
    return "\n".join(f"{f.path.removeprefix(str(store))} {f.position}: {f.reason}" for f in damage_of(store))


def test_a_lost_commitlog_file_is_found(basic: Path) -> None:
    (basic / "commitlog" / "00000000000000065536").unlink()
    assert "00000000000000000000 65536: commitlog files are missing" in reasons(basic)


def test_the_lost_newest_commitlog_file_is_found(basic: Path) -> None:
    (basic / "commitlog" / "00000000000000131072").unlink()
    assert "points past the last commitlog file" in reasons(basic)


def test_a_lost_first_queue_file_is_found(basic: Path) -> None:
    (basic / "consumequeue" / "%RETRY%ZvScxdxQmOx" / "0" / "00000000000000000000").unlink()
    assert "have no queue entry although later ones have (53 times" in reasons(basic)


def test_a_lost_middle_queue_file_is_found(basic: Path) -> None:
    (basic / "consumequeue" / "%RETRY%ZvScxdxQmOx" / "0" / "00000000000000001060").unlink()
    assert "queue files are missing before this one" in reasons(basic)


@pytest.mark.parametrize(
    ("position", "data", "reason"),
    [
        (20 * 3 + 7, b"\xff", "points at no record"),
        (20 * 3, b"\x7f", "does not rise with its neighbours"),
        (20 * 3 + 11, b"\x01", "the size in the entry"),
        (20 * 3 + 19, b"\x77", "the tags code in the entry"),
        (20 * 3, bytes(20), "have no queue entry although later ones have"),
    ],
)
def test_a_wrong_queue_entry_is_found(basic: Path, position: int, data: bytes, reason: str) -> None:
    changed(basic / "consumequeue" / "dxVGnQj" / "1" / "00000000000000000000", position, data)
    assert reason in reasons(basic)


def test_an_entry_of_another_queue_is_found(basic: Path) -> None:
    queues = basic / "consumequeue" / "dxVGnQj"
    shutil.copyfile(queues / "1" / "00000000000000000000", queues / "2" / "00000000000000000000")
    assert "points at a record that does not belong to this queue" in reasons(basic)


def test_wrong_index_items_are_found(basic: Path) -> None:
    first = min((basic / "index").iterdir())
    slot_count = 492
    item = 40 + 4 * slot_count + 20 * 5
    changed(first, item + 3, b"\x5a")  # key hash
    assert "none of the record's keys" in reasons(basic)
    assert "have no index item although later ones have" in reasons(basic)
    changed(first, item + 16, b"\x7f")  # previous item
    assert "chain does not descend" in reasons(basic)
    changed(first, 35, b"\x01")  # slots in use
    assert "the header counts 1 slots in use" in reasons(basic)


@pytest.mark.parametrize("case", ["basic", "ipv6"])
@pytest.mark.parametrize("name", ["bornHost", "storeHost"])
def test_a_port_that_no_host_has_is_found(case: str, name: str, tmp_path: Path) -> None:
    """No checksum covers a record's head; RocketMQ's clients throw at this one (InetSocketAddress)."""
    store = unpack(case, tmp_path)
    (row,) = rmqstore.open_snapshot(store).scan(columns=["physicalOffset", name]).read_all().slice(7, 1).to_pylist()
    is_v6 = row[name].startswith("[")
    log = store / "commitlog" / "00000000000000000000"
    sizes = {"bornHost": 48, "storeHost": 48 + (20 if _born_is_v6(log, row["physicalOffset"]) else 8) + 8}
    changed(log, row["physicalOffset"] + sizes[name] + (16 if is_v6 else 4), b"\x58")
    assert f"{row['physicalOffset']}: {name} has port {0x58000000 + int(row[name].rpartition(':')[2])}" in reasons(
        store
    )


def _born_is_v6(log: Path, place: int) -> bool:
    return bool(log.read_bytes()[place + 39] & 0x10)


def test_a_torn_configuration_file_is_found(tmp_path: Path) -> None:
    store = unpack("broker-clean-5.3.3", tmp_path)
    file = store / "config" / "topics.json"
    file.write_bytes(file.read_bytes()[:100])
    assert "/config/topics.json" in reasons(store)
    assert "RocketMQ reads topics.json.bak instead" in reasons(store)


def test_a_damaged_database_below_config_is_found(tmp_path: Path) -> None:
    """Each of its files is looked at, whatever table has its rows there."""
    store = unpack("rocksdb-clean-5.5.1", tmp_path)
    place = store / "config" / "metadata"
    for table in sorted(place.glob("*.sst")):
        sound = table.read_bytes()
        changed(table, 0, bytes(byte ^ 0xFF for byte in sound[:64]))
        (found,) = [finding for finding in findings_of(store) if finding.path == str(place)]
        assert (found.severity, found.position) == (DAMAGE, 0)
        assert "RocksDB cannot be read" in found.reason
        table.write_bytes(sound)
    assert [finding for finding in findings_of(store) if "config" in finding.path] == []


def test_a_database_below_config_that_nobody_can_read_here_is_a_note(
    store_of: StoreOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    store = store_of("rocksdb-clean-5.5.1")
    (found,) = [finding for finding in findings_of(store) if "RocksDB" in finding.reason and "config" in finding.path]
    assert (found.path, found.severity) == (str(store / "config" / "metadata"), NOTE)
    assert "pip install 'rmqstore[rocksdb]'" in found.reason


def test_a_host_without_room_for_links_is_no_damage(store_of: StoreOf, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of("rocksdb-clean-5.5.1")
    monkeypatch.setattr(tempfile, "tempdir", str(store / "nowhere"))
    (found,) = [finding for finding in findings_of(store) if finding.path == str(store / "config" / "metadata")]
    assert found.severity == NOTE
    assert "temporary directory" in found.reason


def test_a_deleted_topic_is_no_damage(tmp_path: Path) -> None:
    store = unpack("broker-clean-5.3.3", tmp_path)
    topics = store / "config" / "topics.json"
    text = topics.read_text(encoding="utf-8")
    topics.write_text(text.replace("G101Wide", "OtherTopic"), encoding="utf-8")
    shutil.rmtree(store / "consumequeue" / "G101Wide")
    found = findings_of(store)
    assert [finding for finding in found if finding.severity == DAMAGE] == []
    assert [finding for finding in found if "topic that was deleted" in finding.reason]


def test_progress_reaches_the_end(store_of: StoreOf) -> None:
    store = survey(LOCAL, str(store_of("basic")))
    told: list[int] = []
    list(verify(store, told.append))
    assert told == sorted(told)
    assert told[-1] == store.log_end - store.log_start
