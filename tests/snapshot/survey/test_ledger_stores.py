"""Stores whose log is a DLedger node's: what is read of them, and what is left out or refused."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Corrupt, DataLost, NotAStore, UnsupportedLayout, open_snapshot
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import LOCAL
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.formats.names import format_start
from rmqstore.snapshot import require_stores
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify import verify
from tests.snapshot.small_ledger import SmallLedger, small_ledger
from tests.snapshot.small_store import SmallStore, small_store

pytestmark = pytest.mark.stores

MODES = ["auto", "queue", "commitlog"]
COUNT = 60
ELSEWHERE = ["physicalOffset", "offsetMsgId", "msgId"]  # where a record stands differs from log to log


def bodies(paths: object, mode: str = "auto", **options: str) -> list[bytes]:
    return sorted(open_snapshot(paths).scan(scan_mode=mode, **options).read_all()["body"].to_pylist())


def wanted(count: int) -> list[bytes]:
    return sorted(b"body %d" % number for number in range(count))


def damage_of(root: Path) -> list[str]:
    return [found.reason for found in verify(survey(LOCAL, str(root))) if found.severity == DAMAGE]


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_those_of_a_plain_store_with_the_same_messages(tmp_path: Path, mode: str) -> None:
    order = [("queueId", "ascending"), ("queueOffset", "ascending")]
    plain, ledger = (
        open_snapshot(store.write(tmp_path / name)).scan(scan_mode=mode, columns="*").read_all()
        for name, store in (("plain", small_store(COUNT)), ("ledger", small_ledger(COUNT)))
    )
    assert plain.num_rows == COUNT
    rows = [table.drop_columns(ELSEWHERE).sort_by(order).to_pylist() for table in (plain, ledger)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("mode", MODES)
def test_what_the_group_may_still_revoke_is_no_row(tmp_path: Path, mode: str) -> None:
    store = small_ledger(COUNT)
    for number in range(7):
        store.add("T", 0, body=b"revoked %d" % number, dispatched=False)
    root = store.write(tmp_path, committed=COUNT - 1)
    assert bodies(root, mode) == wanted(COUNT)
    ledger = open_snapshot(root).stores[0].ledger
    assert ledger is not None
    assert (ledger.uncommitted_from, ledger.uncommitted_count) == (COUNT, 7)


@pytest.mark.parametrize("mode", MODES)
def test_whoever_asks_for_it_sees_that_too(tmp_path: Path, mode: str) -> None:
    store = small_ledger(COUNT)
    for number in range(COUNT, COUNT + 7):
        store.add("T", number % 2, body=b"body %d" % number, dispatched=False)
    root = store.write(tmp_path, committed=3)
    snapshot = open_snapshot(root, include_uncommitted=True)
    assert sorted(snapshot.scan(scan_mode=mode).read_all()["body"].to_pylist()) == wanted(COUNT + 7)
    assert snapshot.table("entries")["isCommitted"].to_pylist() == [True] * COUNT + [False] * 7


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("checkpoint", ["old", "none", "torn", "no number"])
def test_queues_tell_further_than_the_checkpoint(tmp_path: Path, mode: str, checkpoint: str) -> None:
    """It is written every 3 s; a broker dispatches nothing that the group has not agreed on."""
    store = small_ledger(COUNT)
    store.add("T", 0, body=b"revoked", dispatched=False)
    root = store.write(tmp_path, committed=9)
    file = root / "dledger-n0" / "checkpoint"
    if checkpoint == "none":
        file.unlink()
    elif checkpoint != "old":
        file.write_text({"torn": "committ", "no number": "committedIndex=many\n"}[checkpoint])
    assert bodies(root, mode) == wanted(COUNT)


@pytest.mark.parametrize("mode", MODES)
def test_the_checkpoint_tells_further_than_the_queues(tmp_path: Path, mode: str) -> None:
    store = small_ledger(COUNT)
    for number in range(COUNT, COUNT + 7):
        store.add("T", number % 2, body=b"body %d" % number, dispatched=False)
    store.add("T", 0, body=b"revoked", dispatched=False)
    assert bodies(store.write(tmp_path, committed=COUNT + 6), mode) == wanted(COUNT + 7)


@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_that_was_torn_has_its_backup(tmp_path: Path, mode: str) -> None:
    store = small_ledger(COUNT)
    store.add("T", 0, body=b"body %d" % COUNT, dispatched=False)
    root = store.write(tmp_path)
    (root / "dledger-n0" / "checkpoint").rename(root / "dledger-n0" / "checkpoint.bak")
    assert bodies(root, mode) == wanted(COUNT + 1)


def mixed(tmp_path: Path) -> Path:
    """A broker that went over to DLedger when its own log had two files."""
    before = small_store(40)
    before.roll()
    after = SmallLedger(end=before.end, entries=before.entries, next_offsets=before.next_offsets)
    for number in range(40, COUNT):
        after.add("T", number % 2, body=b"body %d" % number)
    before.entries = {}
    before.write(tmp_path)
    return after.write(tmp_path)


@pytest.mark.parametrize("mode", MODES)
def test_a_broker_that_went_over_to_dledger_has_both_logs(tmp_path: Path, mode: str) -> None:
    root = mixed(tmp_path)
    assert bodies(root, mode) == wanted(COUNT)
    store = open_snapshot(root).stores[0]
    assert store.ledger is not None
    assert store.ledger.divided_at == 2 * 4096
    assert not [reason for reason in damage_of(root) if "entr" in reason]


@pytest.mark.parametrize("mode", MODES)
def test_two_logs_with_the_same_offsets_are_nobodys_to_choose_from(tmp_path: Path, mode: str) -> None:
    """As where a broker went over to DLedger anew, or back."""
    root = small_ledger(COUNT).write(tmp_path)
    other = SmallStore()
    other.add("U", 0, body=b"of another log")
    other.write(root)
    for look in (open_snapshot, require_stores):
        with pytest.raises(UnsupportedLayout, match="a commitlog and the DLedger log of n0 for the same offsets; name"):
            look(root)
    for log, topic, count in (("dledger-n0/data", "T", COUNT), ("commitlog", "U", 1)):
        rows = open_snapshot([[root, root / log]]).scan([topic], scan_mode=mode, columns=["topic"]).read_all()
        assert rows["topic"].to_pylist() == [topic] * count


def test_several_nodes_and_nobody_chose(tmp_path: Path) -> None:
    root = small_ledger(COUNT).write(tmp_path)
    shutil.copytree(root / "dledger-n0", root / "dledger-n1")
    for look in (open_snapshot, require_stores):
        with pytest.raises(
            UnsupportedLayout, match=r"holds the nodes n0, n1; name the one to read: storePathCommitLog"
        ):
            look(root)
    for node in ("n0", "n1"):
        data = root / f"dledger-{node}" / "data"
        snapshot = open_snapshot([[root, data]])
        assert snapshot.stores[0].ledger is not None
        assert snapshot.stores[0].ledger.node.self_id == node
        assert bodies([[root, data]]) == wanted(COUNT)


def test_data_files_elsewhere(tmp_path: Path) -> None:
    """storePathDLedgerCommitLog, with several directories too."""
    root = small_ledger(COUNT).write(tmp_path / "store")
    data = root / "dledger-n0" / "data"
    places = [tmp_path / "disk1", tmp_path / "disk2"]
    for number, file in enumerate(sorted(data.iterdir())):
        places[number % 2].mkdir(exist_ok=True)
        file.rename(places[number % 2] / file.name)
    data.rmdir()
    with pytest.raises(UnsupportedLayout, match="storePathDLedgerCommitLog"):
        open_snapshot(root)
    for mode in MODES:
        assert bodies([[root, *places]], mode) == wanted(COUNT)
    assert open_snapshot([[root, *places]]).stores[0].ledger is not None


@pytest.mark.parametrize("path", ["dledger-n0", "dledger-n0/data", "dledger-n0/index"])
def test_a_directory_of_the_node_is_told_apart(tmp_path: Path, path: str) -> None:
    root = small_ledger(COUNT).write(tmp_path)
    for look in (open_snapshot, require_stores):
        with pytest.raises(UnsupportedLayout, match="give the broker's directory above it"):
            look(root / path)


def test_data_files_in_the_place_of_a_commitlog_are_refused(tmp_path: Path) -> None:
    root = small_ledger(COUNT).write(tmp_path)
    (root / "dledger-n0" / "data").rename(root / "commitlog")
    shutil.rmtree(root / "dledger-n0")
    with pytest.raises(UnsupportedLayout, match=r"entries of DLedger's outside of a node's directory"):
        open_snapshot(root)


def test_a_group_without_a_broker_has_entries_alone(tmp_path: Path) -> None:
    """Nothing says that they are messages."""
    root = small_ledger(COUNT).write(tmp_path)
    shutil.rmtree(root / "consumequeue")
    with pytest.raises(UnsupportedLayout, match="table=entries"):
        open_snapshot(root)


def test_a_log_of_another_store_is_refused(tmp_path: Path) -> None:
    root = small_store(COUNT).write(tmp_path / "store")
    shutil.rmtree(root / "commitlog")
    store = SmallLedger()
    for number in range(COUNT):
        store.add("other", 0, body=b"%d" % number * 20)
    store.write(tmp_path / "node")
    with pytest.raises(NotAStore, match="are of two stores"):
        open_snapshot([[root, tmp_path / "node" / "dledger-n0" / "data"]])


def test_a_node_that_is_about_to_begin(tmp_path: Path) -> None:
    """No file, or files with nothing yet: no message, and no error."""
    root = small_store(0).write(tmp_path)
    (root / "dledger-n0" / "data").mkdir(parents=True)
    (root / "consumequeue").mkdir()
    assert bodies(root) == []
    (root / "dledger-n0" / "data" / format_start(0)).write_bytes(bytes(4096))
    assert bodies(root) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("field", ["magic", "size", "index", "term", "offset", "body_size"])
def test_a_damaged_head_of_an_entry_costs_no_message(tmp_path: Path, mode: str, field: str) -> None:
    """Its record tells by itself that it is sound; verify names the place."""
    store = small_ledger(COUNT)
    place = store.offsets[20] - ENTRY_HEAD.size
    store.change(place + ENTRY_HEAD.offset[field], b"\x5a")
    root = store.write(tmp_path)
    assert bodies(root, mode, on_corrupt_record="skip") == wanted(COUNT)
    assert any("entr" in reason for reason in damage_of(root))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("lost", ["file", "file and index"])
def test_an_empty_file_of_data_with_another_after_it_is_damage(
    tmp_path: Path, number: int, lost: str, mode: str
) -> None:
    """Its messages were left out without a word, where it was the first: files without bytes were not listed."""
    root = small_ledger(COUNT).write(tmp_path)
    file = sorted((root / "dledger-n0" / "data").iterdir())[number]
    file.write_bytes(b"")
    if lost == "file and index":
        shutil.rmtree(root / "dledger-n0" / "index")
    with pytest.raises((Corrupt, DataLost), match="commitlog file"):
        bodies(root, mode)
    kept = bodies(root, mode, on_corrupt_record="skip", fail_on_data_loss=False)
    assert 0 < len(kept) < COUNT
    assert set(kept) < set(wanted(COUNT))
    assert any("data files are missing" in reason for reason in damage_of(root))


@pytest.mark.deep
def test_no_changed_byte_gives_a_wrong_row_and_both_modes_agree(tmp_path: Path) -> None:
    store = small_ledger(12)
    root = store.write(tmp_path)
    (file,) = (root / "dledger-n0" / "data").iterdir()
    good = file.read_bytes()
    sound = set(wanted(12))
    for at in range(store.offsets[4] - ENTRY_HEAD.size, store.offsets[6]):
        data = bytearray(good)
        data[at] ^= 0x41
        file.write_bytes(data)
        seen = []
        for mode in ("queue", "commitlog"):
            try:
                seen.append(bodies(root, mode, on_corrupt_record="skip"))
            except Corrupt:
                seen.append([])
        assert set(seen[0]) <= sound
        assert len(seen[0]) >= 11
        assert set(seen[1]) <= sound
        assert len(seen[1]) >= 11, at


def test_entries_are_a_table(tmp_path: Path) -> None:
    store = small_ledger(COUNT)
    store.add("T", 0, body=b"revoked", dispatched=False)
    root = store.write(tmp_path, committed=3)
    table = open_snapshot(root).table("entries", "*")
    assert table["index"].to_pylist() == list(range(COUNT + 1))
    assert table["position"].to_pylist() == [offset - ENTRY_HEAD.size for offset in store.offsets]
    assert table["isCommitted"].to_pylist() == [True] * COUNT + [False]
    assert b"body 7" in table["body"][7].as_py()
    assert open_snapshot(small_store(3).write(tmp_path / "plain")).table("entries").num_rows == 0
    assert look_at(root / "dledger-n0").stores[0].is_bare_node


def _no_units(root: Path) -> None:
    shutil.rmtree(root / "dledger-n0" / "index")


def _without_checkpoint(root: Path) -> None:
    (root / "dledger-n0" / "checkpoint").unlink()


@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("by_stream", [False, True])
def test_a_log_of_which_nothing_tells_how_far_it_counts_is_no_empty_store(
    tmp_path: Path, by_stream: bool, was_killed: bool
) -> None:
    """A member that is running may have nothing yet that its group agreed on."""
    root = small_ledger(COUNT).write(tmp_path)
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").mkdir()
    _without_checkpoint(root)
    if was_killed:
        (root / "abort").touch()
    with pytest.raises(Corrupt, match=r"neither it nor a queue tells how far the group has agreed.*includeUncommitted"):
        StreamEnds([root]).look() if by_stream else open_snapshot(root)
    assert any("no entry would be read" in reason for reason in damage_of(root))
    assert open_snapshot(root, include_uncommitted=True).scan().read_all().num_rows == COUNT
    (root / "abort").touch()
    lock = RealFileSystem().lock(str(root / "lock"))
    assert bodies(root) == []
    assert not any("no entry would be read" in reason for reason in damage_of(root))
    lock.release()


def _lagging(queues: int, committed: int, root: Path) -> SmallLedger:
    """A log of `committed` entries that its group agreed on, and five more; the first `queues` are in queues."""
    store = small_ledger(queues)
    for number in range(queues, committed + 5):
        store.add("T", number % 2, body=b"body %d" % number, dispatched=False)
    store.write(root, committed=committed - 1)
    (root / "consumequeue").mkdir(exist_ok=True)
    return store


@pytest.mark.parametrize("queues", [0, 10], ids=["no queues", "queues that lag"])
@pytest.mark.parametrize("lost", ["all", "the last", "the directory"])
@pytest.mark.parametrize("was_killed", [False, True])
def test_where_the_index_of_entries_is_lost_the_data_tell_how_far_the_group_agreed(
    tmp_path: Path, queues: int, lost: str, was_killed: bool
) -> None:
    """The queues of a killed broker lag; and what the group may still revoke is no row."""
    _lagging(queues, COUNT, tmp_path)
    index = tmp_path / "dledger-n0" / "index"
    for file in sorted(index.iterdir())[-1 if lost == "the last" else 0 :]:
        file.unlink()
    if lost == "the directory":
        index.rmdir()
    if was_killed:
        (tmp_path / "abort").touch()
    for mode in MODES:
        assert bodies(tmp_path, mode) == wanted(COUNT)
    assert sum(StreamEnds([tmp_path]).look().queues()["maxOffset"].to_pylist()) == COUNT
    assert any("no unit in the index" in reason for reason in damage_of(tmp_path)) != was_killed


def test_a_head_that_says_too_high_an_index_ends_no_log_without_the_index(tmp_path: Path) -> None:
    store = _lagging(10, COUNT, tmp_path)
    place = store.offsets[COUNT - 2] - ENTRY_HEAD.size + ENTRY_HEAD.offset["index"]
    store.change(place, (1 << 40 | COUNT - 2).to_bytes(8, "big"))
    store.write(tmp_path / "damaged", committed=COUNT - 1)
    shutil.rmtree(tmp_path / "damaged" / "dledger-n0" / "index")
    assert bodies(tmp_path / "damaged", on_corrupt_record="skip") == wanted(COUNT)


@pytest.mark.parametrize("damaged", [COUNT - 1, COUNT - 2, COUNT + 4])
def test_a_damaged_entry_among_those_that_are_agreed_on_is_told_without_the_index(tmp_path: Path, damaged: int) -> None:
    store = _lagging(10, COUNT, tmp_path)
    shutil.rmtree(tmp_path / "dledger-n0" / "index")
    store.change(store.offsets[damaged] - ENTRY_HEAD.size, bytes(ENTRY_HEAD.size + 20))
    store.write(tmp_path / "damaged", committed=COUNT - 1)
    shutil.rmtree(tmp_path / "damaged" / "dledger-n0" / "index")
    (tmp_path / "damaged" / "abort").touch()
    if damaged >= COUNT:
        assert bodies(tmp_path / "damaged") == wanted(COUNT)
        return
    with pytest.raises(Corrupt):
        bodies(tmp_path / "damaged")
    assert len(bodies(tmp_path / "damaged", on_corrupt_record="skip")) == COUNT - 1


def test_units_that_a_kill_left_unwritten_are_no_damage(tmp_path: Path) -> None:
    root = small_ledger(COUNT).write(tmp_path)
    for file in (root / "dledger-n0" / "index").iterdir():
        units = max(50 * 32 - int(file.name), 0)
        file.write_bytes(file.read_bytes()[:units].ljust(file.stat().st_size, b"\0"))
    assert any("no unit in the index" in reason for reason in damage_of(root))
    (root / "abort").touch()
    assert not any("no unit in the index" in reason for reason in damage_of(root))
    found = verify(survey(LOCAL, str(root)))
    assert [one.severity for one in found if "no unit in the index" in one.reason] == ["note"]
    _wrong_unit(root)
    assert any("no unit in the index" in reason for reason in damage_of(root))


def _wrong_unit(root: Path) -> None:
    file = root / "dledger-n0" / "index" / format_start(0)
    data = bytearray(file.read_bytes())
    data[5 * 32 + 15] ^= 1
    file.write_bytes(data)


def _checkpoint_ahead(root: Path) -> None:
    (root / "dledger-n0" / "checkpoint").write_text("committedIndex=5000\n")


def _old_term(root: Path) -> None:
    (root / "dledger-n0" / "currterm").write_text("currTerm=0\nvoteLeader=\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_no_units, "no unit in the index"),
        (_wrong_unit, "no unit in the index"),
        (_checkpoint_ahead, "entry 5000 is agreed on; the last one is 59"),
        (_old_term, "says term 0; the last entry has 1"),
    ],
)
def test_verify_finds_what_contradicts_the_entries(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    root = small_ledger(COUNT).write(tmp_path)
    before = damage_of(root)
    damage(root)
    assert [reason for reason in damage_of(root) if words in reason and reason not in before]
    for mode in MODES:
        assert bodies(root, mode) == wanted(COUNT)


def test_a_stream_shows_no_more_than_the_group_agreed_on(tmp_path: Path) -> None:
    store = small_ledger(COUNT)
    root = store.write(tmp_path, committed=COUNT - 1)
    ends = StreamEnds([root])
    assert sum(ends.look().queues()["maxOffset"].to_pylist()) == COUNT
    for number in range(3):
        store.add("T", 0, body=b"new %d" % number, dispatched=False)
    shutil.rmtree(root)
    store.write(root, committed=COUNT - 1)
    assert sum(ends.look().queues()["maxOffset"].to_pylist()) == COUNT
    shutil.rmtree(root)
    store.write(root, committed=COUNT + 1)
    assert sum(ends.look().queues()["maxOffset"].to_pylist()) == COUNT + 2


def test_whoever_writes_refuses_it_and_touches_nothing(tmp_path: Path) -> None:
    root = small_ledger(COUNT).write(tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(UnsupportedLayout, match="DLedger"):
        rmqstore.open_store(root, workers=False)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
@pytest.mark.parametrize(("lost", "is_cut"), [(200, False), (200, True), (1200, True), (1200, False), (3000, True)])
def test_the_end_of_a_closed_log_that_is_gone_hides_nothing(tmp_path: Path, mode: str, lost: int, is_cut: bool) -> None:
    """Queues list messages, and their group has agreed on them, of which the data have nothing any more."""
    config = rmqstore.StoreConfig(log_file_size=65536, dledger=rmqstore.LedgerConfig(index_file_size=3200))
    with rmqstore.open_store(tmp_path, config) as store:
        for number in range(100):
            assert store.put(rmqstore.Message("T", b"%d" % number * 200)).is_stored
    path = max((tmp_path / "dledger-n0" / "data").iterdir())
    data = path.read_bytes()
    end = len(data.rstrip(b"\0")) - lost
    path.write_bytes(data[:end] if is_cut else data[:end].ljust(len(data), b"\0"))
    with pytest.raises((rmqstore.Corrupt, rmqstore.DataLost)):
        rmqstore.open_snapshot(tmp_path).scan(["T"], scan_mode=mode, columns=["body"]).read_all()  # type: ignore[arg-type]
