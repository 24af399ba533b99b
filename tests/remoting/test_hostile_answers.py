"""Name servers and brokers whose answers are large, deep, misleading or endless: one line, in time, in little room."""

import json
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rmqstore.errors import Rejected, StoreError
from rmqstore.replica.following.group import chosen_masters, named_broker
from rmqstore.replica.following.masters import Broker
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.remoting import cluster
from rmqstore.replica.remoting.client import (
    FRAME_SIZE_MAX,
    UNSIGNED,
    Access,
    Command,
    RemotingClient,
    Unreachable,
    host_and_port,
)
from tests.remoting.peers import Answer, peer, saying

pytestmark = pytest.mark.stores

QUICK = Access(timeout_s=1.0)
PATIENT = Access(timeout_s=60.0)
GROWN_KIB_MAX = 1024 * 1024
FILE_SIZE = 65_536


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def broker_list(count: int, address: str = "127.0.0.1:1") -> bytes:
    table = {f"b{n}": {"cluster": "C", "brokerAddrs": {"0": address}} for n in range(count)}
    return json.dumps({"brokerAddrTable": table}).encode()


# Made when a test asks: some are large.
BOMBS: dict[str, Callable[[], bytes]] = {
    "a million brokers": lambda: broker_list(1_000_000),
    "nested lists": lambda: b"[" * 10_000_000,
    "nested objects": lambda: b'{"a":' * 300_000 + b"1" + b"}" * 300_000,
    "one long text": lambda: b'{"brokerAddrTable":"' + b"x" * 10_000_000 + b'"}',
    "a text without its end": lambda: b'{"' + b"\\" * 10_000_000,
    "a number without its end": lambda: b'{"brokerAddrTable":' + b"9" * 10_000_000,
    "zeros": lambda: bytes(10_000_000),
    "no utf-8": lambda: b"\xff" * 10_000_000,
    "many colons": lambda: b":" * 10_000_000,
    "many quotes": lambda: b'"' * 10_000_001,
    "as many quotes as are read": lambda: b'"' * 6_000_000,
    "as many empty lists as are read": lambda: b'{"a":[' + b"[]," * 5_999_999 + b"x",
}


@pytest.mark.host
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_in_an_answer_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    body = BOMBS[name]()
    began_s, began_kib = time.monotonic(), peak_kib()
    with peer(saying(body)) as address, pytest.raises(Unreachable) as refusal:
        cluster.masters(address, PATIENT)
    took_s, grown_kib = time.monotonic() - began_s, peak_kib() - began_kib
    with capsys.disabled():
        sys.stdout.write(f"\n{len(body)} bytes: {took_s:.1f} s, {grown_kib} KiB more: {refusal.value}\n")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 1000
    assert took_s < 20
    assert grown_kib < GROWN_KIB_MAX


@pytest.mark.host
def test_as_many_brokers_as_are_read_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    body, began_s, began_kib = broker_list(100_000), time.monotonic(), peak_kib()
    with peer(saying(body)) as address:
        assert len(cluster.masters(address, PATIENT)) == 100_000
    with capsys.disabled():
        took_s = time.monotonic() - began_s
        sys.stdout.write(f"\n100,000 brokers: {took_s:.1f} s, {peak_kib() - began_kib} KiB more\n")


def frames_of(header: bytes, body_size: int = 0) -> Answer:
    """An answer with this header and a body of zeros."""

    def answer(connection: socket.socket, _: Command) -> None:
        connection.sendall(struct.pack(">ii", 4 + len(header) + body_size, len(header)) + header + bytes(body_size))

    return answer


def other_opaque(connection: socket.socket, command: Command) -> None:
    answer = Command(0, command.opaque + 1, {}, bytes(100_000), is_answer=True).encode()
    with suppress(OSError):
        while True:
            connection.sendall(answer)


def half_then_silence(connection: socket.socket, command: Command) -> None:
    whole = Command(0, command.opaque, {}, bytes(100_000), is_answer=True).encode()
    connection.sendall(whole[:50_000])


FRAMES: dict[str, Answer] = {
    "a frame of 2^31-1": lambda connection, _: connection.sendall(struct.pack(">ii", 2**31 - 1, 10)),
    "a frame of -2^31": lambda connection, _: connection.sendall(struct.pack(">ii", -(2**31), 10)),
    "a frame of more than is read": lambda connection, _: connection.sendall(struct.pack(">ii", FRAME_SIZE_MAX + 1, 9)),
    "a header larger than its frame": lambda connection, _: connection.sendall(struct.pack(">ii", 100, 2**24 - 1)),
    "a header of 10 MB": frames_of(b'{"remark":"' + b"x" * 10_000_000),
    "a deep header": frames_of(b"[" * 1_000_000),
    "a header without an opaque": frames_of(b'{"code":0,"flag":1}'),
    "an opaque of 10^400": frames_of(b'{"code":0,"flag":1,"opaque":1' + b"0" * 400 + b"}"),
    "a flag of 10^5000": frames_of(b'{"code":0,"opaque":1,"flag":1' + b"0" * 5000 + b"}"),
    "answers to another question": other_opaque,
    "half an answer": half_then_silence,
    "a body that does not come": frames_of(b"{}", 0),
}


@pytest.mark.some(4)
@pytest.mark.parametrize("answer", FRAMES.values(), ids=FRAMES)
def test_a_frame_that_no_peer_sends_is_one_line(answer: Answer) -> None:
    with peer(answer) as address, RemotingClient(address, QUICK) as client, pytest.raises(Unreachable) as refusal:
        client.ask(1)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 1000


def test_a_remark_of_megabytes_is_cut() -> None:
    with (
        peer(saying(code=16, remark="no\u2028\x1b[2J" * 100_000)) as address,
        RemotingClient(address, PATIENT) as client,
        pytest.raises(Rejected) as refusal,
    ):
        client.ask(1)
    assert len(str(refusal.value)) < 1000
    assert "\x1b" not in str(refusal.value)


@pytest.mark.parametrize(
    "name",
    ["../x", "..", ".", "", "/etc", "a/b", "a\0b", "a\nb", "x" * 300, "C:", "\u202e", "~"],
)
def test_a_broker_name_never_leads_out_of_the_directory(name: str) -> None:
    body = json.dumps({"brokerAddrTable": {name: {"cluster": "C", "brokerAddrs": {"0": "127.0.0.1:1"}}}}).encode()
    with peer(saying(body)) as address:
        with pytest.raises(Rejected, match="cannot be the name of a directory") as refusal:
            chosen_masters(address, None, PATIENT)
        assert "\n" not in str(refusal.value)


def test_a_broker_name_of_letters_is_a_directory_of_that_name() -> None:
    for name in ("broker-a", "-rf", "%d|x", "_"):
        body = json.dumps({"brokerAddrTable": {name: {"cluster": "C", "brokerAddrs": {"0": "127.0.0.1:1"}}}}).encode()
        with peer(saying(body)) as address:
            (found,) = chosen_masters(address, None, PATIENT)
        assert Path("/replicas", found.broker_name).resolve().parent == Path("/replicas")


HOSTS = {
    "empty": "", "no port": "host", "a label of 100": "x" * 100 + ".example:1", "an empty label": "a..b:1",
    "a character 0": "a\0b:1", "a blank": "a b:1", "port 0": "127.0.0.1:0", "port 10^9": "127.0.0.1:1000000000",
    "a surrogate": "\ud800:1", "very long": "x" * 100_000 + ":1", "brackets": "[::1:1", "a dot": ".:1",
}  # fmt: skip


def _settings_of_the_only_master(name_server: str) -> None:
    (found,) = chosen_masters(name_server, None, QUICK)
    named_broker(found, name_server, QUICK).settings()


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_an_address_that_is_none_is_one_line(host: str) -> None:
    body = json.dumps({"brokerAddrTable": {"b": {"cluster": "C", "brokerAddrs": {"0": host}}}}).encode()
    with peer(saying(body)) as address, pytest.raises(StoreError) as refusal:
        _settings_of_the_only_master(address)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 1000


def place_by(answer: Answer) -> int | None:
    with peer(answer) as address, RemotingClient(address, PATIENT) as client:
        return cluster.queue_place(client, "orders", 0, 7)


@pytest.mark.parametrize(
    "answer",
    [
        saying(b"", remark="Index 7 of 0@orders is not exist!"),
        saying(b"", code=1, remark="0@orders is not exist!"),
        saying(b'{"maxQueueIndex":9,"minQueueIndex":0,"queueData":[]}'),
    ],
    ids=["no such number", "no such queue", "none of them"],
)
def test_a_number_that_a_queue_does_not_have(answer: Answer) -> None:
    """As brokers say it (Java: AdminBrokerProcessor.queryConsumeQueue)."""
    assert place_by(answer) is None


def test_the_place_of_a_message() -> None:
    body = b'{"maxQueueIndex":9,"queueData":[{"eval":false,"physicOffset":4096,"physicSize":200,"tagsCode":0}]}'
    assert place_by(saying(body)) == 4096


@pytest.mark.parametrize(
    "data",
    [
        "[", "null", "{}", "7", '"x"', "[null]", "[[]]", '[{"physicOffset":null}]', '[{"physicOffset":-1}]',
        '[{"physicOffset":1.5}]', '[{"physicOffset":true}]', '[{"physicOffset":"4096"}]', '[{"physicoffset":4096}]',
    ],
)  # fmt: skip
def test_an_answer_that_is_no_part_of_a_queue_places_no_message(data: str) -> None:
    """None would say that the master has no such message, and the replica would go by that."""
    with pytest.raises(Unreachable, match="its answer to 321 is not a part of a queue"):
        place_by(saying(b'{"queueData":' + data.encode() + b"}"))


def broker_with(settings: str, runtime: dict[str, str] | None = None) -> Answer:
    """A broker with this configuration, and a log where this says."""
    log = {"commitLogMinOffset": "0", "commitLogMaxOffset": "0"} | (runtime or {})

    def answer(connection: socket.socket, command: Command) -> None:
        body = settings.encode() if command.code == cluster.GET_BROKER_CONFIG else b"{}"
        if command.code == cluster.GET_BROKER_RUNTIME_INFO:
            body = json.dumps({"table": log}).encode()
        saying(body)(connection, command)

    return answer


HA_PORTS = {
    "a label of 100": f"brokerIP2={'x' * 100}.example", "an empty label": "brokerIP2=a..b", "a blank": "brokerIP2=a b",
    "a character 0": "brokerIP2=a\0b", "no number": "haListenPort=x", "port 10^9": "haListenPort=1000000000",
    "port 0": "haListenPort=0", "negative": "haListenPort=-5", "very long": f"brokerIP2={'x' * 100_000}",
}  # fmt: skip


@pytest.mark.some(4)
@pytest.mark.parametrize("settings", HA_PORTS.values(), ids=HA_PORTS)
def test_a_replication_port_that_is_none_is_waited_for(settings: str, tmp_path: Path) -> None:
    """The broker may be set right, and started again: a replica that runs stays."""
    text = f"brokerName=b\nmappedFileSizeCommitLog={FILE_SIZE}\n{settings}\n"
    with (
        peer(broker_with(text)) as address,
        Replica(tmp_path / "r", Broker(address, PATIENT), settings={"index_enabled": False}) as replica,
    ):
        replica.run(lambda state: state.phase == "waiting")
        assert replica.state.error
        assert "\n" not in replica.state.error
        assert len(replica.state.error) < 1000


@pytest.mark.parametrize("size", ["0", "1", "4095", str(2**31), str(2**40), str(2**62), str(2**63 - 1)])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_file_size_that_no_log_has_is_one_line(size: str, start: str, tmp_path: Path) -> None:
    runtime = {"commitLogMinOffset": "0", "commitLogMaxOffset": "1000"}
    text = f"brokerName=b\nmappedFileSizeCommitLog={size}\nhaListenPort=1\n"
    with peer(broker_with(text, runtime)) as address, pytest.raises(StoreError) as refusal:
        Replica(tmp_path / "r", Broker(address, PATIENT), start=start).close()  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "r" / "commitlog").exists()


@pytest.mark.parametrize(
    ("low", "high"),
    [(5, 1000), (FILE_SIZE, 1000), (2**63 - 1, 2**63 - 1), (0, 2**63 - 1), (FILE_SIZE + 1, 2**40)],
)
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_bounds_that_no_log_has_leave_no_log_behind(low: int, high: int, start: str, tmp_path: Path) -> None:
    runtime = {"commitLogMinOffset": str(low), "commitLogMaxOffset": str(high)}
    text = f"brokerName=b\nmappedFileSizeCommitLog={FILE_SIZE}\nhaListenPort=1\n"
    with peer(broker_with(text, runtime)) as address:
        with pytest.raises(Rejected, match=f"the master says that its log goes from {low} to {high}"):
            Replica(tmp_path / "r", Broker(address, PATIENT), start=start)  # type: ignore[arg-type]
        assert not (tmp_path / "r" / "commitlog").exists()
    right = broker_with(text, {"commitLogMinOffset": str(FILE_SIZE), "commitLogMaxOffset": str(FILE_SIZE + 5)})
    with peer(right) as address, Replica(tmp_path / "r", Broker(address, PATIENT), start=start) as replica:  # type: ignore[arg-type]
        assert replica.state.log_start == FILE_SIZE  # nothing of what was said before stays


def test_a_name_server_that_names_itself_as_a_broker_is_asked_once_and_refused(tmp_path: Path) -> None:
    asked: list[int] = []

    def answer(connection: socket.socket, command: Command) -> None:
        asked.append(command.code)
        itself = "{}:{}".format(*connection.getsockname())
        if command.code == cluster.GET_BROKER_CLUSTER_INFO:
            saying(broker_list(1, itself))(connection, command)
        else:
            saying(code=3, remark="request type not supported")(connection, command)

    with peer(answer) as address:
        (found,) = chosen_masters(address, None, UNSIGNED)
        master = named_broker(found, address, UNSIGNED)
        with pytest.raises(Rejected, match="code 3: request type not supported"):
            Replica(tmp_path / "r", master)
    assert len(asked) == 3
    assert not (tmp_path / "r").exists()


def test_a_broker_that_another_name_is_listed_for_is_waited_for(tmp_path: Path) -> None:
    """Its log would be taken for the other one's; a name server may be set right."""

    def answer(connection: socket.socket, command: Command) -> None:
        if command.code == cluster.GET_BROKER_CLUSTER_INFO:
            saying(broker_list(1, "{}:{}".format(*connection.getsockname())))(connection, command)
        else:
            broker_with(f"brokerName=other\nmappedFileSizeCommitLog={FILE_SIZE}\nhaListenPort=1\n")(connection, command)

    with peer(answer) as address:
        (found,) = chosen_masters(address, None, UNSIGNED)
        master = named_broker(found, address, UNSIGNED)
        with pytest.raises(
            Unreachable, match=f"calls itself 'other', but the name server lists it as '{found.broker_name}'"
        ):
            Replica(tmp_path / "r", master)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ("brokerIP2=fd00::5", "[fd00::5]:10912"),
        ("brokerIP2=[fd00::5]\nhaListenPort=7", "[fd00::5]:7"),
        ("brokerIP2=203.0.113.9", "203.0.113.9:10912"),
        ("", "127.0.0.1:10912"),
    ],
)
def test_the_replication_port_of_a_broker_may_have_an_ipv6_host(settings: str, place: str) -> None:
    with peer(broker_with(f"brokerName=b\n{settings}\n")) as address:
        broker = Broker(address, PATIENT)
        assert broker.settings().ha_address == place
        broker.close()
    assert host_and_port(place)
