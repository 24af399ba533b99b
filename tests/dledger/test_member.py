"""Stores on a DLedger log: what is opened, what is refused with nothing changed, and what goes over to one."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import LedgerConfig, Message, StoreConfig, open_snapshot, open_store
from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from rmqstore.errors import NotAStore, Rejected, StoreDamaged, StoreInUse, UnsupportedLayout
from rmqstore.formats.dledger import MAGIC_BLANK
from rmqstore.sink import Batch, append_once, require_free
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.verify import verify
from rmqstore.testing import Probe
from tests.dledger.ledgers import CONVERTS, LEDGER, PLAIN, image, put

pytestmark = pytest.mark.stores


def rows(root: Path, mode: str = "queue") -> list[tuple[int, int, bytes]]:
    table = open_snapshot(root).scan(["t"], scan_mode=mode).read_all()  # type: ignore[arg-type]
    return sorted(zip(*(table[name].to_pylist() for name in ("queueId", "queueOffset", "body")), strict=True))


def require_sound(root: Path) -> None:
    findings = [found for store in look_at(str(root)).stores for found in verify(store)]
    assert not [found for found in findings if found.severity != "note"], findings


def test_all_ways_to_put_go_into_entries(tmp_path: Path) -> None:
    with open_store(tmp_path, LEDGER) as store:
        put(store, 100)
        results = [store.put_batch([Message("t", b"batch %d" % number, queue_id=1) for number in range(5)])]
        columns = {"topic": ["t"] * 500, "body": [b"column %d" % number for number in range(500)]}
        results.append(store.put_columns(pa.table(columns)))
        results.append(store.put(Message("late", b"later", properties={"DELAY": "1"})))
        assert all(result.is_stored for result in results)
        store.flush()
        ids = results[0].msg_id.split(",")
        assert [found.body for one in ids for found in store.query("t", one)] == [b"batch %d" % n for n in range(5)]
    assert [len(rows(tmp_path, mode)) for mode in ("queue", "commitlog")] == [605, 605]
    entries = open_snapshot(tmp_path).table("entries", ["index", "size"])
    assert entries["index"].to_pylist() == list(range(606))
    require_sound(tmp_path)
    again = open_store(tmp_path, LEDGER)
    assert again.warnings == []
    assert [again.bounds("t", queue_id)[1] for queue_id in range(3)] == [534, 38, 33]
    again.close()


def test_threads_that_wait_for_the_disk_share_writes(tmp_path: Path) -> None:
    with open_store(tmp_path, replace(LEDGER, flush="SYNC")) as store, ThreadPoolExecutor(8) as pool:
        results = list(
            pool.map(lambda number: store.put(Message("t", b"%d" % number, queue_id=number % 3)), range(400))
        )
        assert all(result.is_stored for result in results)
    assert sorted(int(body) for _, _, body in rows(tmp_path)) == list(range(400))
    require_sound(tmp_path)


@pytest.mark.parametrize("count", [0, 1, 100])
@pytest.mark.parametrize("is_ended_cleanly", [True, False])
def test_a_store_goes_over_to_a_dledger_log(tmp_path: Path, count: int, is_ended_cleanly: bool) -> None:
    """The ordinary log stays as it is, its last file closed by its blank; entries begin behind it."""
    store = open_store(tmp_path, replace(PLAIN, preallocate=False))
    put(store, count, "plain")
    if is_ended_cleanly:
        store.close()
    else:
        store.abandon()
    before = image(tmp_path / "commitlog") if count else {}
    with open_store(tmp_path, CONVERTS) as store:
        put(store, 50, "entry")
    with open_store(tmp_path, LEDGER) as store:  # nothing is converted any more
        put(store, 50, "more")
        assert store.warnings == []
    assert len(rows(tmp_path)) == len(rows(tmp_path, "commitlog")) == count + 100
    require_sound(tmp_path)
    if not count:
        return
    after = image(tmp_path / "commitlog")
    last = max(before)
    assert {name: data for name, data in after.items() if name != last} == {
        name: data for name, data in before.items() if name != last
    }
    end = len(before[last].rstrip(b"\0"))
    assert after[last][:end] == before[last][:end]
    assert after[last][end:].lstrip(b"\0")[:1]
    first = min((tmp_path / "dledger-n0" / "data").iterdir())
    assert int(first.name) == int(last) + 4096


@pytest.mark.parametrize("is_ended_cleanly", [True, False])
def test_a_store_whose_log_holds_nothing_yet_goes_over(tmp_path: Path, is_ended_cleanly: bool) -> None:
    """A broker makes the first file at its start."""
    open_store(tmp_path, replace(PLAIN, preallocate=False)).close()
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(4096))
    for count in (0, 5, 5):
        store = open_store(tmp_path, CONVERTS)
        put(store, count)
        if is_ended_cleanly:
            store.close()
        else:
            store.abandon()
    assert len(rows(tmp_path)) == len(rows(tmp_path, "commitlog")) == 10
    require_sound(tmp_path)


REFUSALS: dict[str, tuple[Callable[[Path], object], StoreConfig, type[Exception], str]] = {}


def refusal(config: StoreConfig, error: type[Exception], words: str):  # type: ignore[no-untyped-def]
    def noted(make: Callable[[Path], object]) -> Callable[[Path], object]:
        REFUSALS[make.__name__] = (make, config, error, words)
        return make

    return noted


def _plain(root: Path) -> None:
    with open_store(root, PLAIN) as store:
        put(store, 40)


def _ledger(root: Path, self_id: str = "n0") -> None:
    with open_store(root, replace(PLAIN, dledger=LedgerConfig(self_id=self_id, index_file_size=640))) as store:
        put(store, 40)


@refusal(LEDGER, NotAStore, r"has an ordinary commitlog.*converts=True")
def an_ordinary_store(root: Path) -> None:
    _plain(root)


@refusal(PLAIN, UnsupportedLayout, "LedgerConfig")
def a_ledger_without_its_configuration(root: Path) -> None:
    _ledger(root)


@refusal(LEDGER, NotAStore, "has member n1 of a DLedger group, and self_id='n0'")
def another_member(root: Path) -> None:
    _ledger(root, "n1")


@refusal(LEDGER, NotAStore, "has member n1 of a DLedger group, and self_id='n0'")
def two_members(root: Path) -> None:
    _ledger(root)
    shutil.copytree(root / "dledger-n0", root / "dledger-n1")


@refusal(replace(LEDGER, on_middle_damage="cut"), NotAStore, "entries that are not messages")
def another_programs_group(root: Path) -> None:
    _ledger(root)
    shutil.rmtree(root / "dledger-n0")
    with EntryStore(root / "dledger-n0", EntryStoreConfig(data_file_size=4096, index_file_size=640)) as log:
        log.append([b"not a message, but of another program " * 3] * 50, 1)


@refusal(LEDGER, StoreDamaged, "no new term can start")
def a_term_after_which_none_comes(root: Path) -> None:
    _ledger(root)
    (root / "dledger-n0" / "currterm").write_text(f"voteLeader=n0\ncurrTerm={2**63 - 1}\n")


@refusal(LEDGER, Rejected, "voted for 'n2' in term 7")
def a_member_of_a_group_of_several(root: Path) -> None:
    _ledger(root)
    (root / "dledger-n0" / "currterm").write_text("voteLeader=n2\ncurrTerm=7\n")


@refusal(LEDGER, StoreDamaged, "names no term")
def a_torn_term(root: Path) -> None:
    _ledger(root)
    (root / "dledger-n0" / "currterm").write_text("voteLeader=n0\ncurrT")


@refusal(LEDGER, StoreDamaged, "agreed on entry 45, but the data end with entry 39")
def a_log_that_lacks_what_was_agreed_on(root: Path) -> None:
    _ledger(root)
    (root / "dledger-n0" / "checkpoint").write_text("committedIndex=45\nendIndex=45\n")


@refusal(LEDGER, StoreDamaged, "index")
def an_index_file_that_was_cut(root: Path) -> None:
    _ledger(root)
    path = min((root / "dledger-n0" / "index").iterdir())
    path.write_bytes(path.read_bytes()[:300])


@refusal(LEDGER, StoreDamaged, "the CRC of the entry around the record is wrong|follows entry")
def damage_in_front_of_sound_entries(root: Path) -> None:
    _ledger(root)
    path = min((root / "dledger-n0" / "data").iterdir())
    data = bytearray(path.read_bytes())
    data[18] ^= 1  # in the first entry's term
    data[48 + 40] ^= 1
    path.write_bytes(bytes(data))


@refusal(
    replace(PLAIN, dledger=LedgerConfig(data_paths=("{root}/commitlog",))),
    NotAStore,
    "holds files that are not DLedger",
)
def the_ordinary_log_as_data(root: Path) -> None:
    _plain(root)


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    make, config, error, words = REFUSALS[name]
    make(tmp_path)
    if config.dledger is not None and config.dledger.data_paths:
        settings = replace(config.dledger, data_paths=(str(tmp_path / "commitlog"),))
        config = replace(config, dledger=settings)
    before = image(tmp_path)
    with pytest.raises(error, match=words):
        open_store(tmp_path, config)
    assert image(tmp_path) == before


@pytest.mark.parametrize(
    "below", ["dledger-n0", "dledger-n0/data", "dledger-n0/index", "consumequeue", "consumequeue/t"]
)
@pytest.mark.parametrize("config", [PLAIN, LEDGER], ids=["plain", "ledger"])
def test_a_part_of_a_store_is_no_root(tmp_path: Path, below: str, config: StoreConfig) -> None:
    _ledger(tmp_path)
    before = image(tmp_path)
    with pytest.raises((NotAStore, UnsupportedLayout)):
        open_store(tmp_path / below, config)
    assert image(tmp_path) == before


def test_a_member_of_several_goes_on_alone_when_told_to(tmp_path: Path) -> None:
    a_member_of_a_group_of_several(tmp_path)
    alone = replace(PLAIN, dledger=LedgerConfig(index_file_size=640, takes_over=True))
    with open_store(tmp_path, alone) as store:
        put(store, 5, "alone")
    assert (tmp_path / "dledger-n0" / "currterm").read_text() == "voteLeader=n0\ncurrTerm=8\n"
    assert len(rows(tmp_path)) == 45


def _without(path: Path) -> None:
    path.unlink()


VOTES: dict[str, Callable[[Path], object]] = {
    "no file": _without,
    "no vote": lambda path: path.write_text("currTerm=1\n"),
    "an empty vote": lambda path: path.write_text("voteLeader=\ncurrTerm=1\n"),
    "another's vote": lambda path: path.write_text("voteLeader=n1\ncurrTerm=1\n"),
    "only a spare of another's": lambda path: (path.rename(f"{path}.bak"), Path(f"{path}.bak").write_text(
        "voteLeader=n1\ncurrTerm=1\n")),
}  # fmt: skip


@pytest.mark.parametrize("what", VOTES)
def test_entries_without_a_vote_for_oneself_are_no_group_of_one(tmp_path: Path, what: str) -> None:
    """What nobody agreed on would become messages: a follower that never voted has a `currterm` without a vote."""
    _ledger(tmp_path)
    VOTES[what](tmp_path / "dledger-n0" / "currterm")
    before = image(tmp_path)
    with pytest.raises(Rejected, match="takes_over=True"):
        open_store(tmp_path, LEDGER)
    assert image(tmp_path) == before
    with open_store(tmp_path, replace(PLAIN, dledger=LedgerConfig(takes_over=True))) as store:
        assert sum(high - low for low, high in (store.bounds(*queue) for queue in store.queues())) > 0


@pytest.mark.parametrize("torn", [b"", b"voteLeader=n0\ncurr"])
@pytest.mark.parametrize("spare", [".bak", ".tmp"])
def test_a_torn_term_does_not_give_way_to_an_older_one(tmp_path: Path, torn: bytes, spare: str) -> None:
    _ledger(tmp_path)
    path = tmp_path / "dledger-n0" / "currterm"
    path.rename(f"{path}{spare}")
    path.write_bytes(torn)
    before = image(tmp_path)
    for opening in (lambda: open_store(tmp_path, LEDGER), lambda: EntryStore(tmp_path / "dledger-n0")):
        with pytest.raises(StoreDamaged, match="names no term"):
            opening()
    assert image(tmp_path) == before


def test_two_writers_exclude_each_other(tmp_path: Path) -> None:
    with open_store(tmp_path, LEDGER), pytest.raises(StoreInUse):
        open_store(tmp_path, LEDGER)


def test_files_that_another_process_has_mapped_are_refused(tmp_path: Path) -> None:
    """A DLedger node without a broker takes no lock."""
    _ledger(tmp_path)
    data = min((tmp_path / "dledger-n0" / "data").iterdir())
    program = (
        "import mmap,sys; f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        before = image(tmp_path)
        for opening in (lambda: open_store(tmp_path, LEDGER), lambda: EntryStore(tmp_path / "dledger-n0")):
            with pytest.raises(StoreInUse, match=f"process {child.pid} has its files mapped"):
                opening()
        assert image(tmp_path) == before
        child.communicate()
    open_store(tmp_path, LEDGER).close()


def test_a_reader_that_has_files_mapped_is_no_obstacle(tmp_path: Path) -> None:
    """A stream goes on while its store is stopped and started again; what it maps it cannot write to."""
    _ledger(tmp_path)
    data = min((tmp_path / "dledger-n0" / "data").iterdir())
    program = (
        "import mmap,sys; f=open(sys.argv[1],'rb'); m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ); "
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with open_store(tmp_path, LEDGER) as store:
            put(store, 5, "more")
        EntryStore(tmp_path / "dledger-n0").close()
        child.communicate()
    assert len(rows(tmp_path)) == 45


def test_where_it_cannot_be_told_who_has_files_mapped_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another user's programs have mapped, only that user sees, and root."""
    _ledger(tmp_path)
    before, owner = image(tmp_path), (tmp_path / "dledger-n0").stat().st_uid
    with monkeypatch.context() as as_another:
        as_another.setattr("os.geteuid", lambda: owner + 1)
        for opening in (lambda: open_store(tmp_path, LEDGER), lambda: EntryStore(tmp_path / "dledger-n0")):
            with pytest.raises(StoreInUse, match=f"user {owner} owns it, and only that user and root can see"):
                opening()
        assert len(rows(tmp_path)) == 40
    assert image(tmp_path) == before
    open_store(tmp_path, LEDGER).close()


def test_retention_deletes_the_old_log_first_and_then_entries(tmp_path: Path) -> None:
    _plain(tmp_path)
    with open_store(tmp_path, replace(CONVERTS, preallocate=False)) as store:
        put(store, 200, "entry")
        while store.clean(any_age=True).file_count:
            pass
        Probe(store).step("ledger")
    assert not list((tmp_path / "commitlog").iterdir())
    assert len(list((tmp_path / "dledger-n0" / "data").iterdir())) == 1
    first = int(min(path.name for path in (tmp_path / "dledger-n0" / "index").iterdir()))
    kept = rows(tmp_path)
    assert 0 < len(kept) < 40
    assert first > 0
    require_sound(tmp_path)
    with open_store(tmp_path, LEDGER) as store:
        put(store, 3, "after")
    assert len(rows(tmp_path)) == len(kept) + 3


def test_a_broker_conf_names_the_member(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    lines = ["enableDLegerCommitLog=true", "dLegerSelfId=n3", "dLegerPeers=n3-127.0.0.1:40911"]
    conf.write_text("\n".join(lines))
    config = StoreConfig.from_broker_conf(conf)
    assert config.dledger == LedgerConfig(self_id="n3")
    conf.write_text("\n".join([*lines, "storePathDLedgerCommitLog=/a,/b"]))
    assert StoreConfig.from_broker_conf(conf).dledger == LedgerConfig(self_id="n3", data_paths=("/a", "/b"))
    conf.write_text("dLegerPeers=n0-a:1;n1-b:1\nenableDLegerCommitLog=true")
    with pytest.raises(Rejected, match="names 2 members"):
        StoreConfig.from_broker_conf(conf)
    conf.write_text("enableDLegerCommitLog=false")
    assert StoreConfig.from_broker_conf(conf).dledger is None


@pytest.mark.parametrize("self_id", ["", "n", "0", "n-1", "../x", "n0/..", "nn1", "n\u0663"])
def test_a_name_that_is_none_is_refused(self_id: str) -> None:
    with pytest.raises(Rejected, match="a letter and a number"):
        LedgerConfig(self_id=self_id)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(Rejected, match="a multiple of 32"):
        LedgerConfig(index_file_size=100)
    with pytest.raises(Rejected, match="below 2 GiB"):
        LedgerConfig(index_file_size=2**40)
    for paths in (("/a", "/a"), ("",)):
        with pytest.raises(Rejected, match="name each directory once"):
            LedgerConfig(data_paths=paths)
    with pytest.raises(Rejected, match="ha and dledger"):
        replace(LEDGER, ha=rmqstore.config.HaConfig())


def test_the_sink_refuses_such_stores(tmp_path: Path) -> None:
    _ledger(tmp_path)
    with pytest.raises(UnsupportedLayout):
        require_free(str(tmp_path))
    for call in (
        lambda: require_free(str(tmp_path), LEDGER),
        lambda: append_once(str(tmp_path), Batch("w", 0, ()), LEDGER),
    ):
        with pytest.raises(Rejected, match="the sink adds no batches"):
            call()


def test_plain_stores_import_nothing_of_it(tmp_path: Path) -> None:
    program = (
        "import sys, rmqstore; store = rmqstore.open_store(sys.argv[1]); store.put(rmqstore.Message('t', b'x'))\n"
        "store.close(); rmqstore.open_snapshot(sys.argv[1]).scan().read_all()\n"
        "print([name for name in sys.modules if 'rmqstore.dledger' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_blank_of_an_entry_file_is_dledgers(tmp_path: Path) -> None:
    _ledger(tmp_path)
    first = min((tmp_path / "dledger-n0" / "data").iterdir()).read_bytes()
    at = first.rindex(MAGIC_BLANK.to_bytes(4, signed=True))
    assert int.from_bytes(first[at + 4 : at + 8]) == len(first) - at


@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_readers_ask_the_entrys_own_crc(tmp_path: Path, ends: str) -> None:
    """A plain record's keys, times and hosts have no checksum."""
    store = open_store(tmp_path, LEDGER, workers=False)
    put(store, 9)
    getattr(store, {"closed": "close", "killed": "abandon"}[ends])()
    file = tmp_path / "dledger-n0" / "data" / f"{0:020d}"
    file.write_bytes(file.read_bytes().replace(b"k4", b"K4"))
    for mode in ("queue", "commitlog"):
        rows = open_snapshot(tmp_path).scan(
            ["t"], columns=["keys", "corruptReason"], scan_mode=mode, verify_crc="always", on_corrupt_record="null"
        )
        flagged = [row for row in rows.read_all().to_pylist() if row["corruptReason"]]
        assert [row["corruptReason"] for row in flagged] == ["the CRC of the entry around the record is wrong"], mode
    found = [finding.reason for finding in verify(look_at(tmp_path).stores[0]) if finding.severity == "damage"]
    assert any("the CRC of the entry around the record is wrong" in reason for reason in found), found
    entries = open_snapshot(tmp_path).table("entries")
    assert entries["corruptReason"].to_pylist() == [None] * 4 + ["the CRC of the entry's body is wrong"] + [None] * 4


def test_bytes_between_entries_are_a_row_of_the_table(tmp_path: Path) -> None:
    with open_store(tmp_path, LEDGER, workers=False) as store:
        put(store, 9)
    before = open_snapshot(tmp_path).table("entries").to_pylist()
    gone = before[5]
    file = tmp_path / "dledger-n0" / "data" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[gone["position"] : gone["position"] + gone["size"]] = bytes(gone["size"])
    file.write_bytes(data)
    row = {**dict.fromkeys(gone), "brokerName": gone["brokerName"], "position": gone["position"], "size": gone["size"]}
    after = open_snapshot(tmp_path).table("entries").to_pylist()
    assert after[5]["corruptReason"]
    assert after[6].pop("corruptReason") == "the entry does not follow the one before"
    assert {**after[5], "corruptReason": None} == row
    assert after[:5] == before[:5]
    assert after[7:] == before[7:]
