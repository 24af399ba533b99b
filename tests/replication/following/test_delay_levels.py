"""Delay levels of a master: its replica tells the delivery times of waiting messages by them, and so does whoever opens
the replica as a store of its own, or reads it."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.cli.recover import dry_plan
from rmqstore.clock import ManualClock
from rmqstore.config import HaConfig
from rmqstore.errors import Corrupt, Rejected
from rmqstore.formats.delay_levels import parse_levels
from rmqstore.replica.following.donor import Donor
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.remoting.cluster import BrokerSettings
from rmqstore.testing import ManualStore, Probe

pytestmark = pytest.mark.stores

FILE_SIZE = 16_384
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
HOUR_MS = 3_600_000
LEVELS = {
    "one": "1h",
    "fewer and longer": "2h 30m 5h",
    "more than usual": " ".join(f"{hours}h" for hours in range(30, 6, -1)),
    "days": "1d 2d 3d",
    "two that are alike": "90m 5400s 1d",
}
ASKED = (1, 2, 3, 18, 19, 30)


@contextmanager
def master_at(root: Path, levels: str) -> Iterator[rmqstore.Store]:
    """A store; nothing of it is due while a test runs."""
    ha = HaConfig(listen="127.0.0.1:0")
    config = StoreConfig(log_file_size=FILE_SIZE, queue_file_size=2000, ha=ha, delay_levels=levels)
    with rmqstore.open_store(root, config) as store:
        yield store


def put(store: rmqstore.Store, mark: str = "a") -> None:
    for level in ASKED:
        message = Message("reminders", f"{mark}{level}".encode(), properties={"DELAY": str(level)})
        assert store.put(message).is_stored
    store.put(Message("orders", b"now"))
    store.flush()


def replica_of(store: rmqstore.Store, root: Path, levels: str | None) -> Replica:
    assert store.ha_address is not None
    return Replica(root, BareMaster(store.ha_address, FILE_SIZE, delay_levels=levels))


def catch_up(replica: Replica, store: rmqstore.Store) -> None:
    end = store.statistics().gauges.log_max_offset
    replica.run(lambda state: state.phase == "following" and state.log_end >= end)


def entries(root: Path, scan_mode: str = "queue") -> list[dict[str, int]]:
    """Each entry of the schedule topic: its delivery time is its tags code."""
    columns = ["queueId", "queueOffset", "tagsCode", "physicalOffset"]
    scan = open_snapshot(root).scan(topics=[SCHEDULE], columns=columns, scan_mode=scan_mode)
    return sorted(scan.read_all().to_pylist(), key=lambda row: row["physicalOffset"])


def waited_ms(root: Path) -> list[int]:
    """How long each message of the schedule topic waits by its entry, in the order of the log."""
    scan = open_snapshot(root).scan(topics=[SCHEDULE], columns=["tagsCode", "storeTimestamp", "physicalOffset"])
    rows = sorted(scan.read_all().to_pylist(), key=lambda row: row["physicalOffset"])
    return [row["tagsCode"] - round(row["storeTimestamp"].timestamp() * 1000) for row in rows]


class RestartedMaster(BareMaster):
    """A master that was started again, `now` with other levels and at another port."""

    def __init__(self, now: BareMaster) -> None:
        super().__init__(now.address, FILE_SIZE)
        self.now = now

    def settings(self) -> BrokerSettings:
        return self.now.settings()


def waits_ms(root: Path) -> set[int]:
    """How long the messages wait by the table `delayed`."""
    rows = open_snapshot(root).table("delayed").to_pylist()
    return {round((row["deliverAt"] - row["storeTimestamp"]).total_seconds() * 1000) for row in rows}


@pytest.mark.parametrize("name", LEVELS)
def test_the_entries_of_the_master(name: str, tmp_path: Path) -> None:
    """Those of a replica that ended well, of its readers in every way, and of queues that are made again."""
    levels = LEVELS[name]
    with master_at(tmp_path / "m", levels) as master, replica_of(master, tmp_path / "r", levels) as replica:
        put(master)
        catch_up(replica, master)
        replica.finish()
    wanted = entries(tmp_path / "m")
    assert len(wanted) == len(ASKED)
    assert entries(tmp_path / "r") == wanted
    shutil.rmtree(tmp_path / "r" / "consumequeue")
    (tmp_path / "r" / "checkpoint").unlink()
    assert entries(tmp_path / "r", "commitlog") == wanted
    assert waits_ms(tmp_path / "r") == {parse_levels(levels)[min(level, len(levels.split())) - 1] for level in ASKED}
    assert not dry_plan(str(tmp_path / "r"), StoreConfig()).warnings
    with closing(Donor(tmp_path / "r", HaConfig(listen="127.0.0.1:0"))):
        assert entries(tmp_path / "r") == wanted


@pytest.mark.parametrize("name", LEVELS)
def test_opened_as_a_store_of_its_own_it_delivers_nothing_early(name: str, tmp_path: Path) -> None:
    levels = LEVELS[name]
    with master_at(tmp_path / "m", levels) as master, replica_of(master, tmp_path / "r", levels) as replica:
        put(master)
        catch_up(replica, master)
        replica.finish()
    due_ms = sorted(row["tagsCode"] for row in entries(tmp_path / "m"))
    clock = ManualClock(due_ms[0] - 60_000)
    with ManualStore(str(tmp_path / "r"), clock, StoreConfig()) as store:
        for at_ms in due_ms:
            store.deliver(max(at_ms - 1 - clock.now_ms(), 0))
            assert delivered(store) == sum(each <= clock.now_ms() for each in due_ms)
        store.deliver(1000)
        assert delivered(store) == len(ASKED)


def delivered(store: rmqstore.Store) -> int:
    first, end = store.bounds("reminders", 0)
    return end - first


def test_levels_that_the_configuration_names_are_those(tmp_path: Path) -> None:
    with master_at(tmp_path / "m", "1h") as master, replica_of(master, tmp_path / "r", "1h") as replica:
        put(master)
        catch_up(replica, master)
        replica.finish()
    own = StoreConfig(delay_levels="1s 2s")
    with ManualStore(str(tmp_path / "r"), ManualClock(), own) as store:
        store.put(Message("reminders", b"b", properties={"DELAY": "2"}))
    assert waited_ms(tmp_path / "r")[-1] == 2000


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_master_with_other_levels_since_its_restart(tmp_path: Path, is_killed: bool) -> None:
    """Waiting messages keep their times, and those that come have the new ones: within one life of the replica, and
    where it was killed meanwhile.
    """
    held: list[dict[str, int]] = []
    replica: Replica | None = None
    for levels in ("1h 2h", "3h 4h 5h", "1d"):
        with master_at(tmp_path / "m", levels) as store:
            put(store, levels)
            assert store.ha_address is not None
            now = BareMaster(store.ha_address, FILE_SIZE, delay_levels=levels)
            if replica is None:
                master = RestartedMaster(now)
                replica = Replica(tmp_path / "r", master)
            master.now = now
            catch_up(replica, store)
            if is_killed:
                Probe(replica).crash()
                replica = None
        found = entries(tmp_path / "m")
        assert found[: len(held)] == held
        held = found
    if replica is not None:
        replica.close()
    with ManualStore(str(tmp_path / "r"), ManualClock(), StoreConfig()) as own:
        assert entries(tmp_path / "r") == held
        own.put(Message("reminders", b"b", properties={"DELAY": "1"}))
    assert waited_ms(tmp_path / "r")[-1] == 24 * HOUR_MS


def test_a_replica_of_an_older_release_learns_them(tmp_path: Path) -> None:
    with master_at(tmp_path / "m", "1h") as master:
        with replica_of(master, tmp_path / "r", None) as replica:
            catch_up(replica, master)
        note = json.loads((tmp_path / "r" / "config" / "replica.json").read_bytes())
        assert "delayLevels" not in note
        put(master)
        with replica_of(master, tmp_path / "r", "1h") as replica:
            catch_up(replica, master)
            replica.finish()
    assert entries(tmp_path / "r") == entries(tmp_path / "m")
    assert waits_ms(tmp_path / "r") == {HOUR_MS}


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_came_before_the_levels_were_named_keeps_its_times(tmp_path: Path, is_killed: bool) -> None:
    """It is delivered when readers were told, also where its queues are made again."""
    usual = [1000, 5000, 10_000, 10_000, 10_000, 10_000]  # the master has three
    with master_at(tmp_path / "m", "7h 8h 9h") as master:
        put(master)
        with replica_of(master, tmp_path / "r", None) as replica:
            catch_up(replica, master)
            Probe(replica).crash() if is_killed else replica.finish()
        held = entries(tmp_path / "r")
        assert waited_ms(tmp_path / "r") == usual
        with replica_of(master, tmp_path / "r", "7h 8h 9h") as replica:
            catch_up(replica, master)
            assert entries(tmp_path / "r") == held
            put(master, "b")
            catch_up(replica, master)
            Probe(replica).crash() if is_killed else replica.finish()
    shutil.rmtree(tmp_path / "r" / "consumequeue")
    with ManualStore(str(tmp_path / "r"), ManualClock(), StoreConfig()):
        pass
    assert entries(tmp_path / "r")[: len(held)] == held
    assert waited_ms(tmp_path / "r")[len(held) :] == [each * HOUR_MS for each in (7, 8, 9, 9, 9, 9)]


@pytest.mark.parametrize(("told", "named", "is_told"), [(None, None, True), (None, "1h", False), ("1h", None, False)])
def test_whoever_opens_a_replica_that_does_not_know_them_is_told(
    told: str | None, named: str | None, is_told: bool, tmp_path: Path
) -> None:
    with master_at(tmp_path / "m", "1h") as master, replica_of(master, tmp_path / "r", told) as replica:
        put(master)
        catch_up(replica, master)
        replica.finish()
    config = StoreConfig(delay_levels=named)
    plan = dry_plan(str(tmp_path / "r"), config)
    with ManualStore(str(tmp_path / "r"), ManualClock(), config) as store:
        assert list(plan.warnings) == list(store.recovery.warnings)
        said = [each for each in store.warnings if "by which delay levels the master goes" in each]
    assert len(said) == is_told


def test_a_replica_without_waiting_messages_needs_none(tmp_path: Path) -> None:
    with master_at(tmp_path / "m", "1h") as master, replica_of(master, tmp_path / "r", None) as replica:
        master.put(Message("orders", b"now"))
        master.flush()
        catch_up(replica, master)
    assert dry_plan(str(tmp_path / "r"), StoreConfig()).warnings == ()


def test_a_master_that_does_not_say_them_keeps_the_known_ones(tmp_path: Path) -> None:
    with master_at(tmp_path / "m", "1h") as master:
        for levels, mark in (("1h", "a"), (None, "b")):
            put(master, mark)
            with replica_of(master, tmp_path / "r", levels) as replica:
                catch_up(replica, master)
                replica.finish()
    assert entries(tmp_path / "r") == entries(tmp_path / "m")


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"delayLevels": "1h"}', b'{"delayLevels": [[0, "1 hour"]]}'])
def test_a_note_that_cannot_be_read(note: bytes, tmp_path: Path) -> None:
    """Nobody opens the replica by a guess; readers go on with the usual levels."""
    with master_at(tmp_path / "m", "1h") as master, replica_of(master, tmp_path / "r", "1h") as replica:
        put(master)
        catch_up(replica, master)
        replica.finish()
    (tmp_path / "r" / "config" / "replica.json").write_bytes(note)
    with pytest.raises(Corrupt, match=r"replica\.json"):
        ManualStore(str(tmp_path / "r"), ManualClock(), StoreConfig())
    with pytest.raises(Corrupt, match=r"replica\.json"):
        dry_plan(str(tmp_path / "r"), StoreConfig())
    assert not (tmp_path / "r" / "abort").exists()
    assert entries(tmp_path / "r", "commitlog") == entries(tmp_path / "m")


def test_words_that_are_no_levels() -> None:
    with pytest.raises(Rejected, match="delay_levels: '1x' is not a number with s, m, h or d"):
        BareMaster("127.0.0.1:1", FILE_SIZE, delay_levels="1s 1x")
