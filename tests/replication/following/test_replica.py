"""Replicas of a master of ours over loopback: what they end with, what they go on with, and what they refuse."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.clock import SYSTEM_CLOCK, ManualClock
from rmqstore.config import HaConfig
from rmqstore.core.message import PutStatus
from rmqstore.engine.log.retention.plan import RetentionPolicy
from rmqstore.errors import NotAStore, Rejected, StoreInUse
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.replica import Replica, replica_config
from rmqstore.replica.following.session import LogsDiverged
from rmqstore.replica.following.state import ReplicaState
from rmqstore.replica.remoting.cluster import Runtime
from rmqstore.testing import Probe

pytestmark = pytest.mark.stores

FILE_SIZE = 16_384


def opened(root: Path, **ha: object) -> rmqstore.Store:
    serving = HaConfig(listen="127.0.0.1:0", **ha)  # type: ignore[arg-type]
    return rmqstore.open_store(root, StoreConfig(log_file_size=FILE_SIZE, queue_file_size=2000, ha=serving))


def put(store: rmqstore.Store, count: int, mark: str = "a") -> None:
    for number in range(count):
        assert store.put(Message("orders", f"{mark}{number}".encode() * 20, queue_id=number % 3, tags=mark)).is_stored
    store.flush()


def replica_of(store: rmqstore.Store, root: Path, name: str = "default", file_size: int = FILE_SIZE) -> Replica:
    assert store.ha_address is not None
    return Replica(root, BareMaster(store.ha_address, file_size, name))


def catch_up(replica: Replica, store: rmqstore.Store) -> None:
    end = store.statistics().gauges.log_max_offset
    replica.run(lambda state: state.phase == "following" and state.log_end >= end)
    replica.finish()


def log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def bodies(root: Path) -> list[bytes]:
    return sorted(open_snapshot(root).scan().read_all()["body"].to_pylist())


@contextmanager
def following(replica: Replica) -> Iterator[None]:
    """It follows in a thread meanwhile."""
    thread = threading.Thread(target=replica.run)
    thread.start()
    try:
        yield
    finally:
        replica.stop()
        thread.join()


def test_it_has_the_masters_log_and_goes_on_with_it(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master:
        for count, mark in ((200, "a"), (1, "b"), (300, "c")):
            put(master, count, mark)
            with replica_of(master, tmp_path / "r") as replica:
                catch_up(replica, master)
                assert replica.state.behind_bytes == 0
            end = master.statistics().gauges.log_max_offset
            assert end > FILE_SIZE
            assert log_of(tmp_path / "r")[:end] == log_of(tmp_path / "m")[:end]
            assert bodies(tmp_path / "r") == bodies(tmp_path / "m")
            assert not (tmp_path / "r" / "abort").exists()


def test_a_replica_that_ended_without_warning_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master:
        put(master, 200)
        replica = replica_of(master, tmp_path / "r")
        catch_up(replica, master)
        Probe(replica).crash()
        put(master, 100, "b")
        with replica_of(master, tmp_path / "r") as again:
            catch_up(again, master)
        assert bodies(tmp_path / "r") == bodies(tmp_path / "m")


def test_a_reader_sees_what_the_master_stored_a_moment_ago(tmp_path: Path) -> None:
    with opened(tmp_path / "m", in_sync_replicas=2) as master, replica_of(master, tmp_path / "r") as replica:
        assert master.put(Message("orders", b"early")).status is PutStatus.SLAVE_NOT_AVAILABLE
        count = 1
        with following(replica):
            while master.put(Message("orders", b"is it there?")).status is not PutStatus.PUT_OK:
                count += 1
            for number in range(50):
                assert master.put(Message("orders", b"%d" % number)).status is PutStatus.PUT_OK
            assert Probe(replica).flushed == master.statistics().gauges.log_max_offset
        assert len(bodies(tmp_path / "r")) == count + 1 + 50


def test_nothing_can_be_put_to_it(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master, replica_of(master, tmp_path / "r") as replica:
        answer = Probe(replica).engine.put(Message("orders", b"x"))
        assert answer.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "put the message there" in answer.reason


def test_old_files_go_at_any_hour_and_when_it_has_caught_up(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as store:
        put(store, 1500)
        assert store.ha_address is not None
        master = BareMaster(store.ha_address, FILE_SIZE)
        for kept, is_old in ((True, False), (False, True)):
            # Not by force: on a disk that is nearly full files of any age would go.
            settings = {"retention": True, "file_reserved_hours": 5, "clean_forcibly": False}
            with Replica(tmp_path / "r", master, settings=settings) as replica:
                files = sorted((tmp_path / "r" / "commitlog").iterdir())
                for file in files if is_old else []:
                    os.utime(file, (0, 0))
                catch_up(replica, store)
                assert (replica.state.log_start == 0) == kept
    assert len(files) > 12  # a round takes ten
    assert len(list((tmp_path / "r" / "commitlog").iterdir())) == 1
    assert bodies(tmp_path / "r")


@pytest.mark.parametrize(("level", "waits"), [("1", False), ("18", True)], ids=["delivered", "waits"])
def test_old_files_go_though_a_delayed_message_is_there_that_was_delivered(
    tmp_path: Path, level: str, waits: bool
) -> None:
    """Its progress is the master's, and does not come with the log.  One that waits keeps all from it on."""
    hour_ago = ManualClock(SYSTEM_CLOCK.now_ms() - 3_600_000)
    config = StoreConfig(log_file_size=FILE_SIZE, queue_file_size=2000, ha=HaConfig(listen="127.0.0.1:0"))
    with rmqstore.open_store(tmp_path / "m", config, clock=hour_ago) as store:
        assert store.put(Message("orders", b"later", properties={"DELAY": level})).is_stored
        put(store, 300)
        assert store.ha_address is not None
        settings = {"retention": True, "file_reserved_hours": 5, "clean_forcibly": False}
        for is_old in (False, True):
            with Replica(tmp_path / "r", BareMaster(store.ha_address, FILE_SIZE), settings=settings) as replica:
                files = sorted((tmp_path / "r" / "commitlog").iterdir())
                for file in files if is_old else []:
                    os.utime(file, (0, 0))
                catch_up(replica, store)
                assert (replica.state.log_start == 0) == (not is_old or waits)


def test_its_retention_acts_at_every_hour() -> None:
    policy = RetentionPolicy.of(replica_config(BareMaster("127.0.0.1:1", FILE_SIZE).settings(), {}))
    assert all(policy.is_hour(hour * 3_600_000) for hour in range(24))


def test_a_second_replica_into_one_directory_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master, replica_of(master, tmp_path / "r"), pytest.raises(StoreInUse):
        replica_of(master, tmp_path / "r")


def test_another_brokers_replica_is_refused_with_both_names(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master:
        replica_of(master, tmp_path / "r", "broker-a").close()
        with pytest.raises(Rejected, match=r"a replica of 'broker-a' .* this master is 'broker-b'"):
            replica_of(master, tmp_path / "r", "broker-b")


def test_a_store_that_is_no_replica_is_left_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        put(store, 10)
    before = {path: path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file()}
    with opened(tmp_path / "m") as master, pytest.raises(Rejected, match="--from backup"):
        replica_of(master, tmp_path / "s")
    after = {path: path.read_bytes() for path in (tmp_path / "s").rglob("*") if path.is_file()}
    assert after == before


def test_a_directory_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    with opened(tmp_path / "m") as master, pytest.raises(NotAStore):
        replica_of(master, tmp_path / "photos")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_a_replica_with_files_of_another_size_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master:
        put(master, 10)
        with replica_of(master, tmp_path / "r") as replica:
            catch_up(replica, master)
        with pytest.raises(Rejected, match=f"files of {FILE_SIZE} bytes, and --log-file-size says {2 * FILE_SIZE}"):
            replica_of(master, tmp_path / "r", file_size=2 * FILE_SIZE)


@pytest.mark.some(3)
@pytest.mark.parametrize(("count", "mark"), [(100, "other"), (5, "other"), (50, "a")])
def test_a_master_that_was_set_up_again_is_told_by_its_bytes(tmp_path: Path, count: int, mark: str) -> None:
    with opened(tmp_path / "m") as master:
        put(master, 50)
        with replica_of(master, tmp_path / "r") as replica:
            catch_up(replica, master)
    before = log_of(tmp_path / "r")
    with opened(tmp_path / "new") as master:
        put(master, count, mark)
        with replica_of(master, tmp_path / "r") as replica, pytest.raises(LogsDiverged):
            replica.run()
    assert log_of(tmp_path / "r") == before


def test_a_master_that_is_not_there_is_waited_for_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master:
        address = master.ha_address
    assert address is not None
    with Replica(tmp_path / "r", BareMaster(address, FILE_SIZE)) as replica:
        seen: list[ReplicaState] = []

        def until(state: ReplicaState) -> bool:
            seen.append(state)
            return state.phase == "waiting"

        replica.run(until)
        assert "Connection refused" in replica.state.error


def test_its_state_tells_files_messages_traffic_and_the_last_error(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master:
        put(master, 200)
        with replica_of(master, tmp_path / "r") as replica:
            assert replica.state.behind_s is None
            catch_up(replica, master)
            state = replica.state
            end = master.statistics().gauges.log_max_offset
            assert state.log_files == -(-end // FILE_SIZE) > 1
            assert state.traffic.attempts == 1
            assert state.traffic.failures == 0
            assert end <= state.traffic.received_size < end + 10_000
            assert state.behind_messages == 0
            assert state.newest_ms is not None
            put(master, 1, "b")
            more = master.statistics().gauges.log_max_offset
            replica.run(lambda state: state.phase == "following" and state.log_end >= more)
            assert replica.state.traffic.attempts == 2
    address = master.ha_address
    assert address is not None
    with Replica(tmp_path / "r", BareMaster(address, FILE_SIZE)) as replica:
        replica.run(lambda state: state.phase == "waiting")
        state = replica.state
        assert state.newest_ms is not None  # known again, though nothing came
        assert (state.phase, state.traffic.failures) == ("stopped", 1)
        assert "Connection refused" in state.last_error
        assert state.last_error_ms is not None


class Ahead(BareMaster):
    """A master that says of itself that it has more than it sends."""

    def __init__(self, ha_address: str, log_end: int) -> None:
        super().__init__(ha_address, FILE_SIZE)
        self.log_end = log_end

    def present(self) -> Runtime:  # type: ignore[override]
        return Runtime(0, self.log_end, "V5_3_3")


def test_messages_that_are_missing_are_estimated_by_the_records_that_came(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master:
        put(master, 300)
        end = master.statistics().gauges.log_max_offset
        assert master.ha_address is not None
        known = Ahead(master.ha_address, end + end // 30)
        with Replica(tmp_path / "r", known) as replica:
            assert replica.state.behind_messages is None
            replica.run(lambda state: state.phase == "following" and state.log_end >= end)
            assert replica.state.behind_messages in range(9, 12)
            assert replica.state.behind_bytes == end // 30


def test_one_that_fails_for_good_says_so(tmp_path: Path) -> None:
    for name in ("m", "other"):
        with opened(tmp_path / name) as master:
            put(master, 50, name)
            with replica_of(master, tmp_path / "r") as replica:
                if name == "m":
                    catch_up(replica, master)
                    continue
                with pytest.raises(LogsDiverged):
                    replica.run()
                assert replica.state.phase == "failed"
                assert "log and the master's differ" in replica.state.last_error
                assert replica.state.traffic.failures == 1
