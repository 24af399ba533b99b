"""A replica whose disk is full, whose network is away for long, whose clock jumps, whose master deletes what it has not
fetched yet, and that is killed at any moment.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.clock import SYSTEM_CLOCK
from rmqstore.config import HaConfig
from rmqstore.errors import DurabilityLost
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.replica.following import backoff
from rmqstore.replica.following.follower import HistoryGone
from rmqstore.replica.following.masters import BareMaster, KnownMaster
from rmqstore.replica.following.replica import Replica, realign
from rmqstore.replica.following.session import LogsDiverged
from rmqstore.replica.following.state import ReplicaState
from rmqstore.replica.remoting.cluster import Runtime
from tests.crash.disks import BreakingDisk, MemoryDisk
from tests.crash.strides import ROUNDS

pytestmark = pytest.mark.stores

FILE_SIZE = 16_384
PROJECT = Path(__file__).parents[3]


def opened(root: Path, listen: str = "127.0.0.1:0") -> rmqstore.Store:
    config = StoreConfig(log_file_size=FILE_SIZE, queue_file_size=2000, ha=HaConfig(listen=listen))
    return rmqstore.open_store(root, config)


def put(store: rmqstore.Store, count: int) -> int:
    """Puts so many messages; where the log ends."""
    for number in range(count):
        assert store.put(Message("orders", b"%d" % number * 30, queue_id=number % 3)).is_stored
    store.flush()
    return store.statistics().gauges.log_max_offset


def master_of(store: rmqstore.Store) -> BareMaster:
    assert store.ha_address is not None
    return BareMaster(store.ha_address, FILE_SIZE)


def log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def has(end: int) -> Callable[[ReplicaState], bool]:
    return lambda state: state.phase == "following" and state.log_end >= end


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits a moment only between two tries."""
    monkeypatch.setattr(backoff, "_FIRST_S", 0.002)
    monkeypatch.setattr(backoff, "_LONGEST_S", 0.002)


@pytest.mark.usefixtures("quickly")
def test_a_full_disk_is_told_and_nothing_is_missing_once_there_is_room(tmp_path: Path) -> None:
    disk = MemoryDisk(free=3 * FILE_SIZE)
    with opened(tmp_path / "m") as store:
        end = put(store, 400)
        with Replica("/r", master_of(store), settings={"preallocate": False}, fs=disk) as replica:
            disk.free = 0
            replica.run(lambda state: state.phase == "waiting")
            assert "No space left on device" in replica.state.error
            held = replica.state.log_end
            assert held < end
            disk.free = 1 << 30
            replica.run(has(end))
            replica.finish()
        table = open_snapshot("/r", disk=disk).scan().read_all()
        assert table.num_rows == 400
        log = b"".join(data for path, data in sorted(disk.image().items()) if "/commitlog/" in path)
        assert log[:end] == log_of(tmp_path / "m")[:end]


@pytest.mark.usefixtures("quickly")
def test_a_long_time_without_network_costs_nothing_and_is_gone_on_from(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as store:
        end, master = put(store, 100), master_of(store)
    with Replica(tmp_path / "r", master) as replica:
        tries = 0

        def tried_often(state: ReplicaState) -> bool:
            nonlocal tries
            tries += state.phase == "waiting"
            return tries >= 300

        replica.run(lambda state: state.phase == "waiting")
        before = len(os.listdir("/proc/self/fd"))
        replica.run(tried_often)
        assert len(os.listdir("/proc/self/fd")) <= before
        with opened(tmp_path / "m", master.address) as store:
            end = put(store, 100)
            replica.run(has(end))
    assert log_of(tmp_path / "r")[:end] == log_of(tmp_path / "m")[:end]


class JumpingClock:
    """A wall clock that is set to any time at any moment; the monotonic one goes on."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def now_ms(self) -> int:
        return self._chance.choice((0, 1_700_000_000_000, SYSTEM_CLOCK.now_ms(), 4_000_000_000_000))

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s()


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, seed: int) -> None:
    with opened(tmp_path / "m") as store:
        end = put(store, 200)
        with Replica(tmp_path / "r", master_of(store), clock=JumpingClock(seed)) as replica:
            replica.run(has(end))
            replica.finish()
        ours, theirs = (open_snapshot(tmp_path / name).scan().read_all() for name in ("r", "m"))
        assert ours.equals(theirs)
        assert log_of(tmp_path / "r")[:end] == log_of(tmp_path / "m")[:end]


class KnownPlace(BareMaster):
    """A master that can be asked where its log begins, as a broker can."""

    def __init__(self, store: rmqstore.Store) -> None:
        super().__init__(master_of(store).address, FILE_SIZE)
        self.store = store

    def present(self) -> Any:
        gauges = self.store.statistics().gauges
        return Runtime(gauges.log_min_offset, gauges.log_max_offset, "")


@pytest.mark.some(6)
@pytest.mark.parametrize("master_of", [KnownPlace, master_of], ids=["asked", "says so"])
@pytest.mark.parametrize("deleted", [1, 2, 3])
@pytest.mark.usefixtures("quickly")
def test_a_master_that_deleted_what_comes_next_is_told_at_once(
    tmp_path: Path, deleted: int, master_of: Callable[[rmqstore.Store], KnownMaster]
) -> None:
    """The replica ends in the second file.  As long as both have a part of that, it goes on; else it would have to
    believe a name."""
    with opened(tmp_path / "m") as store:
        end = put(store, 130)
        with Replica(tmp_path / "r", master_of(store)) as replica:
            replica.run(has(end))
            held = replica.state.log_end
        assert FILE_SIZE < held < 2 * FILE_SIZE
        end = put(store, 400)
    for file in sorted((tmp_path / "m" / "commitlog").iterdir())[:deleted]:
        file.unlink()
    before = log_of(tmp_path / "r")
    with opened(tmp_path / "m") as store, Replica(tmp_path / "r", master_of(store)) as replica:
        if deleted == 1:
            replica.run(has(end))
            return
        with pytest.raises(
            HistoryGone, match=f"now begins at offset {deleted * FILE_SIZE}, and this replica's log ends at {held}"
        ):
            replica.run()
    assert log_of(tmp_path / "r") == before


@pytest.mark.parametrize("deleted", [1, 3])
def test_a_replica_that_is_new_begins_where_its_masters_log_does(tmp_path: Path, deleted: int) -> None:
    """Of a master that cannot be asked, too."""
    with opened(tmp_path / "m") as store:
        end = put(store, 500)
    for file in sorted((tmp_path / "m" / "commitlog").iterdir())[:deleted]:
        file.unlink()
    with opened(tmp_path / "m") as store:
        with Replica(tmp_path / "r", master_of(store)) as replica:
            assert replica.state.log_start == deleted * FILE_SIZE
            replica.run(has(end))
            replica.finish()
        ours, theirs = (open_snapshot(tmp_path / name).scan().read_all() for name in ("r", "m"))
        assert ours.equals(theirs)
        size = end - deleted * FILE_SIZE
        assert log_of(tmp_path / "r")[:size] == log_of(tmp_path / "m")[:size]


def test_a_master_that_was_set_up_again_with_less_is_told(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as store:
        end = put(store, 900)
        with Replica(tmp_path / "r", master_of(store)) as replica:
            replica.run(has(end))
    with opened(tmp_path / "new") as store:
        told = f"differ after offset {put(store, 30)} .the master's log ends there"
        with Replica(tmp_path / "r", master_of(store)) as replica, pytest.raises(LogsDiverged, match=told):
            replica.run()


@pytest.mark.some(5)
@pytest.mark.parametrize(("lost", "new"), [(30, 0), (30, 4), (400, 0), (400, 3), (30, 200)])
def test_a_replica_of_a_master_that_cannot_be_asked_is_realigned(tmp_path: Path, lost: int, new: int) -> None:
    """That lost its newest messages, has others by now, fewer or more."""
    with opened(tmp_path / "m") as store:
        common = put(store, 300)
    shutil.copytree(tmp_path / "m", tmp_path / "older")
    with opened(tmp_path / "m") as store:
        end = put(store, lost)
        with Replica(tmp_path / "r", master_of(store)) as replica:
            replica.run(has(end))
    with opened(tmp_path / "older") as store:
        end = put(store, new)
        found = realign(tmp_path / "r", master_of(store), may_cut=True)
        assert found.record_count == lost
        assert found.offset >= common
        with Replica(tmp_path / "r", master_of(store)) as replica:
            replica.run(has(end))
            replica.finish()
        ours, theirs = (open_snapshot(tmp_path / name).scan().read_all() for name in ("r", "older"))
        assert ours.equals(theirs)


@pytest.mark.usefixtures("quickly")
def test_a_replica_that_was_made_while_its_master_was_away_begins_where_that_begins(tmp_path: Path) -> None:
    """At its next start: it cannot know before that what is gone there."""
    with opened(tmp_path / "m") as store:
        end, address = put(store, 500), master_of(store).address
    min((tmp_path / "m" / "commitlog").iterdir()).unlink()
    with Replica(tmp_path / "r", BareMaster(address, FILE_SIZE)) as replica:
        replica.run(lambda state: state.phase == "waiting")
        with (
            opened(tmp_path / "m", address) as store,
            pytest.raises(HistoryGone, match=f"now begins at offset {FILE_SIZE}"),
        ):
            replica.run()
    with opened(tmp_path / "m", address) as store, Replica(tmp_path / "r", master_of(store)) as replica:
        assert replica.state.log_start == FILE_SIZE
        replica.run(has(end))
    size = end - FILE_SIZE
    assert log_of(tmp_path / "r")[:size] == log_of(tmp_path / "m")[:size]


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("master_of", [KnownPlace, master_of], ids=["asked", "says so"])
@pytest.mark.parametrize("is_made", [True, False], ids=["first file made", "no file"])
def test_a_replica_that_was_killed_before_its_first_byte_begins_as_a_new_one(
    tmp_path: Path, is_made: bool, master_of: Callable[[rmqstore.Store], KnownMaster]
) -> None:
    """The master may have deleted what it would have begun with."""
    log = tmp_path / "r" / "commitlog"
    with opened(tmp_path / "m") as store:
        address = master_of(store).address
        with Replica(tmp_path / "r", master_of(store)) as replica:
            replica.run(lambda state: state.phase == "following")
        if is_made:
            log.mkdir(exist_ok=True)
            (log / f"{0:020d}").write_bytes(bytes(FILE_SIZE))
        end = put(store, 500)
    for file in sorted((tmp_path / "m" / "commitlog").iterdir())[:2]:
        file.unlink()
    with opened(tmp_path / "m", address) as store, Replica(tmp_path / "r", master_of(store)) as replica:
        assert replica.state.log_start == 2 * FILE_SIZE
        replica.run(has(end))
    size = end - 2 * FILE_SIZE
    assert log_of(tmp_path / "r")[:size] == log_of(tmp_path / "m")[:size]


@pytest.mark.usefixtures("quickly")
def test_a_replica_that_was_killed_before_its_first_byte_begins_where_it_was_to(tmp_path: Path) -> None:
    """Its master has files after that by now, or is away: nothing in between is passed over."""
    with opened(tmp_path / "m") as store:
        put(store, 130)
        address = master_of(store).address
        with Replica(tmp_path / "r", KnownPlace(store), start="latest") as replica:
            assert replica.state.log_start == FILE_SIZE
        end = put(store, 300)
    with Replica(tmp_path / "r", BareMaster(address, FILE_SIZE)) as replica:
        assert replica.state.log_start == FILE_SIZE
    with opened(tmp_path / "m") as store, Replica(tmp_path / "r", KnownPlace(store), start="latest") as replica:
        assert replica.state.log_start == FILE_SIZE
        replica.run(has(end))
    size = end - FILE_SIZE
    assert log_of(tmp_path / "r")[:size] == log_of(tmp_path / "m")[FILE_SIZE : FILE_SIZE + size]


@pytest.mark.usefixtures("quickly")
def test_a_log_of_zeros_that_queues_know_is_no_new_replicas(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as store:
        end = put(store, 20)
        with Replica(tmp_path / "r", master_of(store)) as replica:
            replica.run(has(end))
    (file,) = (tmp_path / "r" / "commitlog").iterdir()
    file.write_bytes(bytes(FILE_SIZE))
    with opened(tmp_path / "m") as store, pytest.raises(rmqstore.StoreError):
        Replica(tmp_path / "r", master_of(store))
    assert [file] == [*(tmp_path / "r" / "commitlog").iterdir()]


@pytest.mark.deep
def test_a_replica_that_is_killed_at_any_moment_has_the_masters_log(tmp_path: Path) -> None:
    chance, rounds = random.Random(11), 6 * ROUNDS
    with opened(tmp_path / "m") as store:
        address = master_of(store).address
        program = "from rmqstore.cli import main; main(prog_name='rmqstore')"
        command = [sys.executable, "-c", program, "replicate", "--ha", address, "--log-file-size", str(FILE_SIZE)]
        for _ in range(rounds):
            with subprocess.Popen(
                [*command, "--to", str(tmp_path / "r")], cwd=PROJECT, stderr=subprocess.DEVNULL
            ) as child:
                deadline_s, enough = time.monotonic() + 60, chance.randint(0, 400_000)
                while not any(end >= enough for end in store.slaves().values()) and time.monotonic() < deadline_s:
                    end = put(store, 20)
                assert child.poll() is None
                child.send_signal(signal.SIGKILL)
        with Replica(tmp_path / "r", master_of(store)) as replica:
            replica.run(has(end))
            replica.finish()
        ours, theirs = (open_snapshot(tmp_path / name).scan().read_all() for name in ("r", "m"))
        assert ours.equals(theirs)
        assert log_of(tmp_path / "r")[:end] == log_of(tmp_path / "m")[:end]


def test_a_replica_whose_queues_are_not_written_any_more_says_so(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as store:
        end = put(store, 10)
        disk = BreakingDisk(RealFileSystem())
        replica = Replica(tmp_path / "r", master_of(store), fs=disk)
        replica.run(has(end))
        disk.broken = "/consumequeue/"
        put(store, 10)
        with pytest.raises(DurabilityLost, match="'dispatch' ended"):
            replica.run()
        assert replica.state.phase == "failed"
        with pytest.raises(DurabilityLost, match="'dispatch' ended"):
            replica.close()
