"""Masters that send garbage, lies, too much, too little or nothing, by both wires: the replica stays small, its store
stays as it is, it says why in one line, and it goes on as soon as an honest master answers at that address.
"""

import random
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_snapshot
from rmqstore.clock import ManualClock
from rmqstore.errors import StoreError
from rmqstore.replica.following.backoff import Backoff
from rmqstore.replica.following.follower import ForeignRecord
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.following.state import ReplicaState
from rmqstore.snapshot.verify import verify
from tests.replication.following.masters_at_will import (
    FILE_SIZE,
    Answer,
    Controlled,
    Known,
    Port,
    Usual,
    WireOfMaster,
    honest,
    port_of,
    stay,
    whole,
)

pytestmark = pytest.mark.stores

MIB = 1 << 20
GROWN_KIB_MAX = 256 * 1024
WIRES: tuple[WireOfMaster, ...] = (Usual(), Controlled())
Attack = Callable[[WireOfMaster, bytes, "Scene"], Answer]


class Scene:
    """What an attack needs: the clock of the replica, the end of its log, and another store's log."""

    def __init__(self, clock: ManualClock, end: int, other: bytes) -> None:
        self.clock, self.end, self.other = clock, end, other


def log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def made_log(root: Path, mark: str) -> bytes:
    """A log of some files, up to its end."""
    with rmqstore.open_store(root, StoreConfig(log_file_size=FILE_SIZE, preallocate=False)) as store:
        for number in range(900):
            store.put(Message("orders", f"{mark}{number} ".encode() * 80, queue_id=number % 3, keys=str(number)))
        end = store.statistics().gauges.log_max_offset
    return log_of(root)[:end]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """The honest master's, and another store's."""
    root = tmp_path_factory.mktemp("logs")
    return made_log(root / "own", "a"), made_log(root / "other", "b")


# --- what a hostile master does with a connection ---------------------------------------------------------------------


def says(make: Callable[[WireOfMaster, int, Scene], bytes]) -> Attack:
    """It sends these bytes once it was asked for offset n, and stays."""

    def attack(wire: WireOfMaster, log: bytes, scene: Scene) -> Answer:
        def answer(connection: socket.socket) -> None:
            connection.sendall(make(wire, wire.asked(connection), scene))
            stay(connection)

        return answer

    return attack


def after_own_end(make: Callable[[WireOfMaster, bytes, Scene], bytes]) -> Attack:
    """It sends what the replica has already, so that it is followed, then these bytes, and stays."""

    def attack(wire: WireOfMaster, log: bytes, scene: Scene) -> Answer:
        def answer(connection: socket.socket) -> None:
            asked = wire.asked(connection)
            connection.sendall(wire.header(asked, scene.end - asked) + log[asked : scene.end])
            connection.sendall(make(wire, log, scene))
            stay(connection)

        return answer

    return attack


def block_at_end(make: Callable[[bytes, int], bytes]) -> Attack:
    """It sends, as the log from the replica's end on, what `make` makes of the log and that end."""

    def data(wire: WireOfMaster, log: bytes, scene: Scene) -> bytes:
        made, sent = make(log, scene.end), b""
        for begin in range(0, len(made), 32_768):
            piece = made[begin : begin + 32_768]
            sent += wire.header(scene.end + begin, len(piece)) + piece
        return sent

    return after_own_end(data)


def changed(position: int, value: bytes) -> Attack:
    """The first new record has other bytes at this position of it."""

    def make(log: bytes, end: int) -> bytes:
        return log[end : end + position] + value + log[end + position + len(value) : end + 20_000]

    return block_at_end(make)


def garbage_first(wire: WireOfMaster, log: bytes, scene: Scene) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.sendall(random.Random(5).randbytes(100_000))
        stay(connection)

    return answer


def silence(wire: WireOfMaster, log: bytes, scene: Scene) -> Answer:
    def answer(connection: socket.socket) -> None:
        wire.asked(connection)
        scene.clock.advance(20_000)
        stay(connection)

    return answer


def drips(begin: Callable[[WireOfMaster, int, bytes], bytes]) -> Attack:
    """It sends a byte a second."""

    def attack(wire: WireOfMaster, log: bytes, scene: Scene) -> Answer:
        def answer(connection: socket.socket) -> None:
            asked = wire.asked(connection)
            for byte in begin(wire, asked, log):
                connection.sendall(bytes([byte]))
                scene.clock.advance(1000)
            stay(connection)

        return answer

    return attack


def heartbeats(step: int) -> Attack:
    """Many heartbeats, of which each names another end of the log."""

    def make(wire: WireOfMaster, log: bytes, scene: Scene) -> bytes:
        return b"".join(wire.header(max(scene.end + step * number, 0), 0) for number in range(10_000))

    return after_own_end(make)


ATTACKS: dict[str, Attack] = {
    "garbage": garbage_first,
    "http": says(lambda *_: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" * 3),
    "silence": silence,
    "a byte a second": drips(lambda wire, asked, log: wire.header(asked, 4_000_000) + log[asked : asked + 100]),
    "half a header": drips(lambda wire, asked, _: wire.header(asked, 100)[:7] + bytes(30)),
    "a size of 2^31-1": says(lambda wire, asked, _: wire.header(asked, 2**31 - 1) + bytes(MIB)),
    "a size of 64 MiB": says(lambda wire, asked, _: wire.header(asked, 64 * MIB) + bytes(64 * MIB)),
    "a size of -1": says(lambda wire, asked, _: wire.header(asked, -1)),
    "a size of -2^31": says(lambda wire, asked, _: wire.header(asked, -(2**31))),
    "an offset of -1": says(lambda wire, _, __: wire.header(-1, 10) + bytes(10)),
    "an offset of -2^63": says(lambda wire, _, __: wire.header(-(2**63), 0)),
    "an offset of 2^63-1": says(lambda wire, _, __: wire.header(2**63 - 1, 100) + bytes(100)),
    "a block one byte early": says(lambda wire, asked, _: wire.header(asked - 1, 100) + bytes(100)),
    "a block one byte late": says(lambda wire, asked, _: wire.header(asked + 1, 100) + bytes(100)),
    "a block at our end at once": says(lambda wire, _, scene: wire.header(scene.end, 100) + bytes(100)),
    "a gap after our end": after_own_end(lambda wire, log, scene: wire.header(scene.end + 500, 100) + bytes(100)),
    "our end twice": after_own_end(lambda wire, log, scene: wire.header(scene.end - 100, 100) + bytes(100)),
    "another store's log": says(
        lambda wire, asked, scene: wire.header(asked, 32_768) + scene.other[asked : asked + 32_768]
    ),
    "another store's records": after_own_end(
        lambda wire, log, scene: wire.header(scene.end, 50_000) + scene.other[:50_000]
    ),
    "zeros": block_at_end(lambda *_: bytes(200_000)),
    "noise": block_at_end(lambda *_: random.Random(7).randbytes(200_000)),
    "the log from its beginning": block_at_end(lambda log, _: log[:100_000]),
    "a record of 0 bytes": changed(0, struct.pack(">i", 0)),
    "a record of -1 bytes": changed(0, struct.pack(">i", -1)),
    "a record of 10 bytes": changed(0, struct.pack(">i", 10)),
    "a record larger than the file": changed(0, struct.pack(">i", FILE_SIZE + 1)),
    "a record larger than any file": changed(0, struct.pack(">i", 2**31 - 1)),
    "a wrong magic": changed(4, b"\xde\xad\xbe\xef"),
    "a wrong crc": changed(8, b"\xde\xad\xbe\xef"),
    "a wrong place": changed(28, struct.pack(">q", 2**62)),
    "a body that is longer than its record": changed(84, struct.pack(">i", 2**30)),
    "a blank that does not end its file": changed(0, struct.pack(">ii", 100, -875286124)),
    "heartbeats that grow": heartbeats(1),
    "heartbeats that leap": heartbeats(2**40),
    "heartbeats that shrink": heartbeats(-1),
}


def damage_of(root: Path) -> list[object]:
    (store,) = open_snapshot(root).stores
    return [found for found in verify(store) if found.severity == "damage"]


class Ends:
    """How an attack went: what the replica said, whether for good, and how much memory it took."""

    def __init__(self) -> None:
        self.error = ""
        self.is_final = False


def rows_of(root: Path) -> list[tuple[object, ...]]:
    table = open_snapshot(root).scan().read_all()
    columns = ("queueId", "queueOffset", "body", "msgId")
    return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True))


def followed(port: Port, wire: WireOfMaster, root: Path, clock: ManualClock, end: int) -> None:
    """The replica follows what is honest at that port until it has so much, and is readable."""
    with Replica(root, Known(port.address, is_controlled=wire.is_controlled), clock=clock) as replica:
        replica.run(lambda state: state.log_end >= end)
        replica.finish()


def attacked(port: Port, wire: WireOfMaster, root: Path, clock: ManualClock, good: Answer) -> Ends:
    """One run of the replica from a hostile answer on; where it only waits after that, until it goes on."""
    ends, before = Ends(), 0

    def until(state: ReplicaState) -> bool:
        if state.phase == "waiting" and not ends.error:
            ends.error = state.error
            port.answers = good
        return bool(ends.error) and state.phase == "following" and state.log_end > before

    with Replica(root, Known(port.address, is_controlled=wire.is_controlled), clock=clock) as replica:
        before = replica.state.log_end
        try:
            replica.run(until)
        except StoreError as error:
            ends.error, ends.is_final = str(error), True
        else:
            assert replica.state.log_end > before
    return ends


@pytest.mark.host
@pytest.mark.parametrize("wire", WIRES, ids=["usual", "controller"])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_master_changes_nothing_and_is_outlived(
    name: str, wire: WireOfMaster, logs: tuple[bytes, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, other = logs
    root, clock = tmp_path / "r", ManualClock()
    with port_of(honest(wire, log[: len(log) // 2])) as port:
        with Replica(root, Known(port.address, is_controlled=wire.is_controlled), clock=clock) as replica:
            replica.run(lambda state: state.log_end > len(log) // 2 - 4000)
            replica.finish()
            end = replica.state.log_end
        kept, rows = log_of(root)[:end], rows_of(root)
        assert kept == log[:end]
        assert rows

        port.answers = ATTACKS[name](wire, log, Scene(clock, end, other))
        began_s, began_kib = time.monotonic(), peak_kib()
        ends = attacked(port, wire, root, clock, honest(wire, log))
        took_s, grown_kib = time.monotonic() - began_s, peak_kib() - began_kib
        with capsys.disabled():
            how = "ends" if ends.is_final else "waits"
            sys.stdout.write(f"\n{name}: {how} after {took_s:.1f} s, {grown_kib} KiB more: {ends.error}\n")
        assert ends.error
        assert "\n" not in ends.error
        assert grown_kib < GROWN_KIB_MAX
        if ends.is_final:
            assert log_of(root)[:end] == kept
            assert not any(log_of(root)[end:])
            assert rows_of(root) == rows
        assert damage_of(root) == []

        port.answers = honest(wire, log)
        followed(port, wire, root, clock, len(log))
    assert log_of(root)[: len(log)] == log
    assert len(rows_of(root)) == 900
    assert damage_of(root) == []


HANDSHAKES = {
    "another state": struct.pack(">iiqi", 7, 0, 0, 0),
    "a transfer": struct.pack(">iiqi", 2, 0, 0, 0),
    "epochs of -12 bytes": struct.pack(">iiqi", 1, -12, 0, 0),
    "epochs of 2^31-8 bytes": struct.pack(">iiqi", 1, 2**31 - 8, 0, 0),
    "epochs of 13 bytes": struct.pack(">iiqi", 1, 13, 0, 0) + bytes(13),
    "half": struct.pack(">iiqi", 1, 12, 0, 0)[:9],
}


@pytest.mark.some(3)
@pytest.mark.parametrize("handshake", HANDSHAKES.values(), ids=HANDSHAKES)
def test_a_handshake_that_no_controlled_master_sends_is_waited_out(
    handshake: bytes, logs: tuple[bytes, bytes], tmp_path: Path
) -> None:
    wire, clock, log = Controlled(), ManualClock(), logs[0]

    def answer(connection: socket.socket) -> None:
        whole(connection, 16)  # the slave's: its time has begun
        connection.sendall(handshake)
        clock.advance(20_000)
        stay(connection)

    with port_of(answer) as port:
        ends = attacked(port, wire, tmp_path / "r", clock, honest(wire, log))
        assert not ends.is_final
        assert "handshake of state" in ends.error or "sent no block for 20 s" in ends.error
        followed(port, wire, tmp_path / "r", clock, len(log))
    assert log_of(tmp_path / "r")[: len(log)] == log


def test_epochs_of_any_numbers_change_nothing(logs: tuple[bytes, bytes], tmp_path: Path) -> None:
    """What is appended goes by the bytes alone."""
    log = logs[0]

    def answer(connection: socket.socket) -> None:
        connection.sendall(struct.pack(">iiqi", 1, 65_536 * 12, -1, -1) + struct.pack(">iq", -1, -(2**63)) * 65_536)
        honest(Told(), log)(connection)

    with port_of(answer) as port:
        followed(port, Controlled(), tmp_path / "r", ManualClock(), len(log))
    assert log_of(tmp_path / "r")[: len(log)] == log


@pytest.mark.host
@pytest.mark.parametrize("wire", WIRES, ids=["usual", "controller"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_very_many_tiny_blocks_are_a_log_all_the_same(
    size: int, wire: WireOfMaster, logs: tuple[bytes, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, began_s, began_kib = logs[0][: 100_000 * size], time.monotonic(), peak_kib()
    with port_of(honest(wire, log, size)) as port:
        followed(port, wire, tmp_path / "r", ManualClock(), len(log) - 2000)
    took_s, grown_kib = time.monotonic() - began_s, peak_kib() - began_kib
    with capsys.disabled():
        sys.stdout.write(f"\nblocks of {size}: {len(log)} bytes in {took_s:.1f} s, {grown_kib} KiB more\n")
    assert grown_kib < GROWN_KIB_MAX
    assert damage_of(tmp_path / "r") == []
    kept = log_of(tmp_path / "r")[: len(log) - 2000]
    assert kept == log[: len(kept)]


@pytest.mark.parametrize("wire", WIRES, ids=["usual", "controller"])
def test_a_master_that_closes_again_and_again_is_followed_by_many_connections(
    wire: WireOfMaster, logs: tuple[bytes, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs[0][:330_000]

    def answer(connection: socket.socket) -> None:
        begin = wire.asked(connection)
        stop = begin + 100_000  # after one block, or two where a file ends between
        for end in sorted({min(begin - begin % FILE_SIZE + FILE_SIZE, stop, len(log)), min(stop, len(log))}):
            connection.sendall(wire.header(begin, end - begin) + log[begin:end])
            begin = end

    waits: list[float] = []

    def no_wait(backoff: Backoff) -> float:
        waits.append(wait_s(backoff))
        return 0

    wait_s = Backoff.wait_s
    monkeypatch.setattr(Backoff, "wait_s", no_wait)
    with port_of(answer) as port:
        followed(port, wire, tmp_path / "r", ManualClock(), 320_000)
    assert log_of(tmp_path / "r")[:320_000] == log[:320_000]
    assert 3 <= len(waits) < 10
    assert max(waits) <= 0.5  # each connection has brought something


@pytest.mark.parametrize("wire", WIRES, ids=["usual", "controller"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_bit_that_turns_on_the_way_is_asked_for_once_more(
    times: int, wire: WireOfMaster, logs: tuple[bytes, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, at = logs[0][:100_000], 70_000
    asked: list[int] = []

    def answer(connection: socket.socket) -> None:
        begin = wire.asked(connection)
        asked.append(begin)
        data = bytearray(log)
        data[at] ^= 16 if len(asked) <= times else 0
        for end in [*range(begin + 10_000, len(log), 10_000), len(log)]:
            connection.sendall(wire.header(begin, end - begin) + data[begin:end])
            begin = end
        stay(connection)

    monkeypatch.setattr(Backoff, "wait_s", lambda _: 0.0)
    with port_of(answer) as port:
        if times == 1:
            followed(port, wire, tmp_path / "r", ManualClock(), 99_000)
        else:
            with Replica(tmp_path / "r", Known(port.address, is_controlled=wire.is_controlled)) as replica:
                with pytest.raises(ForeignRecord, match="the CRC of the body is wrong") as refusal:
                    replica.run()
                assert 60_000 < refusal.value.offset < at
    assert len(asked) == 2
    end = 99_000 if times == 1 else refusal.value.offset
    assert log_of(tmp_path / "r")[:end] == log[:end]
    assert damage_of(tmp_path / "r") == []


@pytest.mark.host
@pytest.mark.parametrize("wire", WIRES, ids=["usual", "controller"])
def test_a_flood_of_heartbeats_keeps_no_stop_waiting(
    wire: WireOfMaster, logs: tuple[bytes, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(connection: socket.socket) -> None:
        flood = wire.header(wire.asked(connection), 0) * 10_000
        while True:
            connection.sendall(flood)

    with port_of(answer) as port:
        with Replica(tmp_path / "r", Known(port.address, is_controlled=wire.is_controlled)) as replica:
            began_kib, seen = peak_kib(), 0

            def until(state: ReplicaState) -> bool:
                nonlocal seen
                seen += state.is_level
                return seen > 20

            replica.run(until)
        grown_kib = peak_kib() - began_kib
        with capsys.disabled():
            sys.stdout.write(f"\na flood of heartbeats: {grown_kib} KiB more\n")
        assert grown_kib < GROWN_KIB_MAX


@pytest.mark.host
@pytest.mark.parametrize("wire", WIRES, ids=["usual", "controller"])
def test_a_record_that_goes_on_for_ever_is_refused_in_time(
    wire: WireOfMaster, logs: tuple[bytes, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It fits into its file, so that its size alone is not wrong."""
    file_size = 128 * MIB
    data = struct.pack(">i", file_size - 4096) + logs[0][4:32_768]

    def answer(connection: socket.socket) -> None:
        offset = wire.asked(connection)
        connection.sendall(wire.header(offset, len(data) - offset) + data[offset:])
        for begin in range(len(data), file_size, len(data)):
            connection.sendall(wire.header(begin, len(data)) + data)
        stay(connection)

    with port_of(answer) as port:
        master = Known(port.address, is_controlled=wire.is_controlled, file_size=file_size)
        with Replica(tmp_path / "r", master) as replica:
            began_s, began_kib = time.monotonic(), peak_kib()
            with pytest.raises(ForeignRecord, match="offset 0"):
                replica.run()
        took_s, grown_kib = time.monotonic() - began_s, peak_kib() - began_kib
    with capsys.disabled():
        sys.stdout.write(f"\nan endless record: refused after {took_s:.1f} s, {grown_kib} KiB more\n")
    assert grown_kib < GROWN_KIB_MAX
    assert rows_of(tmp_path / "r") == []


class Told(Controlled):
    """A controlled master whose handshake has been sent."""

    def asked(self, connection: socket.socket) -> int:
        """As Controlled."""
        return int(struct.unpack(">16xiq", whole(connection, 28))[1])


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
