"""Where the logs of a replica and its master part, and what is cut off the replica's, whatever interrupts it."""

import random
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore import Message, StoreConfig, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.config import HaConfig
from rmqstore.engine.engine import Attached, Engine
from rmqstore.errors import NotAStore, Rejected
from rmqstore.files.filesystem import FileSystem
from rmqstore.replica.following.follower import Follower
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.note import Origin, read_origin, write_origin
from rmqstore.replica.following.preparation import Preparation
from rmqstore.replica.following.realign import Parting, cut_log, parting
from rmqstore.replica.following.replica import realign
from rmqstore.replica.remoting.cluster import BrokerSettings
from tests.crash.disks import CrashAt, MemoryDisk, Operation, PowerCut
from tests.crash.workload import Ledger, Moments

pytestmark = pytest.mark.stores

FILE_SIZE = 8192
CONFIG = StoreConfig(log_file_size=FILE_SIZE, queue_file_size=400, preallocate=False, statistics=False)
BROKER = BrokerSettings("broker-a", "here", "127.0.0.1:1", FILE_SIZE, False, {})
ORIGIN = Origin("here", "broker-a", 0)


class Parted(NamedTuple):
    """A replica's disk and its master's engine: the same up to `common`, after which the replica has `lost` records."""

    replica: MemoryDisk
    master: Engine
    master_disk: MemoryDisk
    common: int
    lost: int


def opened(disk: FileSystem, follows: str = "") -> Engine:
    return Engine("/s", CONFIG, ManualClock(), disk, Attached(follows=follows), threads=False)


def put(engine: Engine, count: int, chance: random.Random, mark: bytes) -> None:
    for _ in range(count):
        body = mark * chance.randint(1, 300)
        assert engine.put(Message("t", body, queue_id=chance.randrange(3), keys=["k"])).is_stored
    engine.flush(0)


def parted(seed: int, counts: tuple[int, int, int]) -> Parted:
    """Stores of so many common messages, so many of the replica's, and so many of the master's."""
    both, lost, other = counts
    disk, chance = MemoryDisk(), random.Random(seed)
    engine = opened(disk)
    put(engine, both, chance, b"b")
    common = engine.log.marks.appended
    engine.close()
    replica, master_disk = disk.crash("kept"), disk.crash("kept")
    master = opened(master_disk)
    engine = opened(replica)
    put(engine, lost, chance, b"l")
    engine.close()
    write_origin(replica, "/s", ORIGIN)
    put(master, other, chance, b"o")
    return Parted(replica, master, master_disk, common, lost)


def parting_of(pair: Parted, bounds: tuple[int, int] | None = None) -> Parting:
    with closing(opened(pair.replica, follows="the master")) as engine:
        own, theirs = engine.log, pair.master.log
        bounds = bounds or (theirs.start, theirs.marks.appended)
        return parting(own, own.marks.appended, theirs.read, bounds, FILE_SIZE)


def log_of(disk: MemoryDisk) -> bytes:
    return b"".join(data for path, data in sorted(disk.image().items()) if path.startswith("/s/commitlog/"))


def rows_of(disk: MemoryDisk) -> list[tuple[int, int, bytes]]:
    table = open_snapshot("/s", disk=disk).scan(topics=["t"]).read_all()
    columns = [table[name].to_pylist() for name in ("queueId", "queueOffset", "body")]
    return sorted(zip(*columns, strict=True))


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), counts=st.tuples(st.integers(1, 90), st.integers(0, 60), st.integers(0, 60)))
def test_the_logs_part_where_the_first_record_differs(seed: int, counts: tuple[int, int, int]) -> None:
    pair = parted(seed, counts)
    found = parting_of(pair)
    log, offset = log_of(pair.replica), found.offset
    assert found.record_count == pair.lost
    assert offset >= pair.common  # both may have the blank that ends a file
    assert log[:offset] == pair.master.log.read(0, offset)
    assert log[offset : offset + 90] != pair.master.log.read(offset, 90) or offset == found.own_end


def follow_again(disk: FileSystem, pair: Parted, cut: int) -> None:
    """The replica, cut, has what both have, takes what its master has after that, and has the master's rows then."""
    attached = Attached(follows="the master", prepare=Preparation(BROKER, None, "earliest"))
    engine = Engine("/s", CONFIG, ManualClock(), disk, attached, threads=False)
    assert engine.log.marks.appended == cut
    log, follower = pair.master.log, Follower(engine, lambda: None)
    follower.take(log.read(cut, log.marks.appended - cut))
    follower.append()
    assert follower.sync() == log.marks.appended
    engine.catch_up()
    engine.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_replica_follows_its_master_again(seed: int) -> None:
    pair = parted(seed, (60, 60, 20))
    cut = parting_of(pair).offset
    cut_log(pair.replica, "/s", cut, FILE_SIZE)
    follow_again(pair.replica, pair, cut)
    assert rows_of(pair.replica) == rows_of(pair.master_disk)
    assert read_origin(pair.replica, "/s") == ORIGIN


def test_a_cut_where_a_file_ends_is_no_missing_file() -> None:
    """Its last file is whole, entries lead to messages after it, and all of them had been flushed.  Nor is it one after
    a power cut that takes all that the cut did not sync."""
    disk, clock = MemoryDisk(), ManualClock()
    engine = Engine("/s", CONFIG, clock, disk, Attached(), threads=False)
    for _ in range(9):
        clock.ms += 1000
        put(engine, 10, random.Random(1), b"b")
    engine.close()
    write_origin(disk, "/s", ORIGIN)
    cut_log(disk, "/s", 2 * FILE_SIZE, FILE_SIZE)
    for left in (disk.crash("lost"), disk):
        with closing(opened(left, follows="the master")) as engine:
            assert engine.log.marks.appended == 2 * FILE_SIZE
        assert 0 < len(rows_of(left)) < 90


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_replicas_own", [True, False])
def test_a_deletion_that_is_cut_hides_none_of_the_masters_messages(seed: int, *, is_replicas_own: bool) -> None:
    """It was of another master's topic, or made where the replica was a master for a while."""
    pair = parted_by_a_deletion(seed, is_replicas_own=is_replicas_own)
    cut = parting_of(pair).offset
    cut_log(pair.replica, "/s", cut, FILE_SIZE)
    follow_again(pair.replica, pair, cut)
    assert rows_of(pair.replica) == rows_of(pair.master_disk)


def parted_by_a_deletion(seed: int, *, is_replicas_own: bool) -> Parted:
    pair, chance = parted(seed, (60, 0, 20)), random.Random(seed)
    if is_replicas_own:
        with closing(opened(pair.replica)) as engine:
            assert engine.features.deletion.delete("t")
            put(engine, 30, chance, b"l")
        return pair
    other_disk = pair.replica.crash("kept")
    with closing(opened(other_disk)) as other:
        assert other.features.deletion.delete("t")
        put(other, 30, chance, b"l")
        with closing(opened(pair.replica, follows="the master")) as engine:
            end = engine.log.marks.appended
            follower = Follower(engine, lambda: None)
            follower.take(other.log.read(end, other.log.marks.appended - end))
            follower.append()
            follower.sync()
            engine.catch_up()
    return pair


@pytest.mark.some(8)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("deletes", [False, True])
def test_a_cut_that_is_interrupted_anywhere_is_gone_on_with(seed: int, *, deletes: bool) -> None:
    pair = parted_by_a_deletion(seed, is_replicas_own=True) if deletes else parted(seed, (30, 60, 20))
    found = parting_of(pair)
    counter = CrashAt(pair.replica.crash("kept"))
    cut_log(counter, "/s", found.offset, FILE_SIZE)
    resumed = 0
    for at in range(1, counter.operations + 1):
        disk = pair.replica.crash("kept")
        with pytest.raises(PowerCut):
            cut_log(CrashAt(disk, at), "/s", found.offset, FILE_SIZE)
        after = disk.crash(random.Random(f"{seed} {at}"))
        if read_origin(after, "/s") == ORIGIN:  # it had not begun, or was over
            assert parting_of(pair._replace(replica=after)).own_end in (found.offset, found.own_end)
            continue
        follow_again(after, pair, found.offset)
        assert rows_of(after) == rows_of(pair.master_disk)
        resumed += 1
    assert resumed > 10


@pytest.mark.parametrize("deletes", [False, True])
def test_each_step_of_a_cut_is_on_the_disk_before_the_next(*, deletes: bool) -> None:
    """In every run: a power cut that takes all that was not synced, before each operation, and when all is done."""
    pair = parted_by_a_deletion(0, is_replicas_own=True) if deletes else parted(0, (30, 60, 20))
    cut = parting_of(pair).offset
    moments = Moments(pair.replica.crash("kept"), ["lost"], Ledger)
    cut_log(moments, "/s", cut, FILE_SIZE)
    moments.before(Operation(moments.operations + 1, "cut", "/s"))
    begun = [disk for _, _, disk, _ in moments.taken if read_origin(disk, "/s") != ORIGIN]
    for disk in (*begun, moments.taken[-1][2]):
        follow_again(disk, pair, cut)
        assert rows_of(disk) == rows_of(pair.master_disk)
    assert len(begun) > 5


def test_what_is_no_replica_is_not_cut() -> None:
    disk = MemoryDisk()
    opened(disk).close()
    before = disk.image()
    with pytest.raises(Rejected, match="/s is not a replica"):
        cut_log(disk, "/s", 0, FILE_SIZE)
    assert disk.image() == before


def test_logs_without_a_common_part_are_told() -> None:
    pair, other = parted(1, (5, 5, 5)), parted(2, (5, 5, 5))
    with pytest.raises(Rejected, match="differ from the first offset"):
        parting_of(pair._replace(master=other.master))
    with pytest.raises(Rejected, match="no part in common"):
        parting_of(pair, (1 << 30, 1 << 31))


def test_a_wrong_path_is_not_made_a_replica_to_be_realigned(tmp_path: Path) -> None:
    with open_store(
        tmp_path / "master", StoreConfig(log_file_size=FILE_SIZE, ha=HaConfig(listen="127.0.0.1:0"))
    ) as store:
        assert store.ha_address is not None
        with pytest.raises(NotAStore, match="does not exist here"):
            realign(tmp_path / "typo", BareMaster(store.ha_address, FILE_SIZE), may_cut=True)
    assert not (tmp_path / "typo").exists()
