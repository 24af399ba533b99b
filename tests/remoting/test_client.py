"""Questions to peers that answer, refuse, are slow, fall silent, or are no peers at all."""

import socket
import ssl
import struct
import threading
from contextlib import suppress

import pytest

from rmqstore.clock import ManualClock
from rmqstore.errors import Rejected
from rmqstore.replica.remoting import cluster
from rmqstore.replica.remoting.client import Access, Command, Refused, RemotingClient, Unreachable, host_and_port
from rmqstore.replica.remoting.signing import Credentials
from tests.remoting.peers import Answer, bytes_peer, peer, saying

QUICK = Access(timeout_s=0.3)  # where no answer comes, and its end is what a test waits for
PATIENT = Access(timeout_s=60.0)
NO_ROCKETMQ = "does not speak RocketMQ's"


def test_the_answer_is_that_of_the_question_whatever_else_comes() -> None:
    def answer(connection: socket.socket, command: Command) -> None:
        for other in (
            Command(0, command.opaque + 7, {}, b"another's", is_answer=True),
            Command(40, command.opaque, {}, b"a request of the broker's"),
            Command(0, command.opaque, {}, b"mine", is_answer=True),
        ):
            connection.sendall(other.encode())

    with peer(answer) as address, RemotingClient(address, PATIENT) as client:
        assert [client.ask(1).body for _ in range(3)] == [b"mine"] * 3


def test_a_refusal_has_the_peers_words() -> None:
    with (
        peer(saying(code=16, remark="no permission\nat java.lang…")) as address,
        RemotingClient(address) as client,
        pytest.raises(Refused) as refusal,
    ):
        client.ask(21)
    advice = "give the --access-key and --secret-key of an account that may do it"
    assert str(refusal.value) == f"{address} refused it with code 16: no permission; {advice}"


def test_a_broker_of_4_that_does_not_know_who_asks_has_refused_for_good() -> None:
    """4.9.7 answers with the code of a failure (Java: NettyRemotingAbstract.processRequestCommand)."""
    words = "org.apache.rocketmq.acl.common.AclException: No acl config for nobody, org.apache.rocketmq.acl.plain"
    with (
        peer(saying(code=1, remark=words)) as address,
        RemotingClient(address) as client,
        pytest.raises(Refused, match=r"code 1: .*No acl config for nobody.*; give the --access-key and --secret-key"),
    ):
        client.ask(28)


def test_the_name_of_a_topic_makes_no_failure_a_refusal_of_access() -> None:
    with (
        peer(saying(code=1, remark="no room for topic AclException")) as address,
        RemotingClient(address) as client,
        pytest.raises(Unreachable),
    ):
        client.ask(28)


@pytest.mark.parametrize("code", [1, 2])
def test_a_peer_that_fails_or_is_busy_may_answer_later(code: int) -> None:
    with (
        peer(saying(code=code, remark="NoSuchElementException")) as address,
        RemotingClient(address) as client,
        pytest.raises(Unreachable) as failure,
    ):
        client.ask(28)
    assert str(failure.value) == f"{address}: it failed with code {code}: NoSuchElementException"


@pytest.mark.parametrize(
    ("answer", "words", "access"),
    [
        (lambda connection, _: connection.close(), "closed the connection instead of answering: .* --tls", PATIENT),
        (lambda connection, _: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), NO_ROCKETMQ, PATIENT),
        (lambda connection, _: connection.sendall(struct.pack(">ii", 2**31 - 1, 5)), NO_ROCKETMQ, PATIENT),
        (lambda _connection, _: None, "no answer within 0.3 s", QUICK),
        (lambda connection, _: connection.sendall(b"\0"), "no answer within 0.3 s", QUICK),
    ],
    ids=["closes", "http", "absurd size", "silent", "half"],
)
def test_a_peer_that_does_not_answer_is_unreachable(answer: Answer, words: str, access: Access) -> None:
    with peer(answer) as address, RemotingClient(address, access) as client, pytest.raises(Unreachable, match=words):
        client.ask(1)


def test_an_answer_that_comes_too_late_is_not_taken_for_that_of_the_next_question() -> None:
    clock, held = ManualClock(), list[tuple[socket.socket, Command]]()

    def answer(connection: socket.socket, command: Command) -> None:
        if not held:
            held.append((connection, command))
            clock.advance(60_000)
            connection.sendall(b"\0")  # has the client look at its clock
            return
        saying(b"second")(connection, command)

    with peer(answer) as address, RemotingClient(address, PATIENT, clock) as client:
        with pytest.raises(Unreachable):
            client.ask(1)
        assert client.ask(2).body == b"second"


def test_bytes_that_drip_in_are_not_waited_for_longer_than_was_said() -> None:
    class Asked(ManualClock):
        """A clock that tells of each look."""

        looks = threading.Semaphore(0)

        def monotonic_s(self) -> float:
            self.looks.release()
            return super().monotonic_s()

    clock = Asked()

    def answer(connection: socket.socket, command: Command) -> None:
        for byte in Command(0, command.opaque, {}, b"x" * 500, is_answer=True).encode():
            clock.looks.acquire()  # never more bytes than looks, so that they cannot come all at once
            clock.advance(20_000)
            connection.sendall(bytes([byte]))

    with (
        peer(answer) as address,
        RemotingClient(address, PATIENT, clock) as client,
        pytest.raises(Unreachable, match="no answer within 60 s"),
    ):
        client.ask(1)
    for _ in range(1000):
        clock.looks.release()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with RemotingClient(f"127.0.0.1:{port}", PATIENT) as client, pytest.raises(Unreachable, match="Connection refused"):
        client.ask(1)


@pytest.mark.parametrize("answer", [
    lambda connection, _: connection.close(),
    lambda connection, _: connection.shutdown(socket.SHUT_RDWR),
    lambda connection, _: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
], ids=["resets", "closes", "http"])  # fmt: skip
def test_tls_with_a_peer_that_has_none_says_so(answer: Answer) -> None:
    access = Access(timeout_s=60.0, tls=ssl.create_default_context())
    with (
        bytes_peer(answer) as address,
        RemotingClient(address, access) as client,
        pytest.raises(Unreachable, match=r"it does not support TLS: .*; try without --tls"),
    ):
        client.ask(1)


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "host:-1", "host:²", "::1:5", "[::1:5"]
)
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(Rejected, match="host:port"):
        host_and_port(address)


def test_an_address_may_be_ipv6() -> None:
    assert host_and_port("[::1]:9876") == ("::1", 9876)


def test_a_signed_request_names_its_sender_and_never_the_secret() -> None:
    seen: list[Command] = []

    def answer(connection: socket.socket, command: Command) -> None:
        seen.append(command)
        saying()(connection, command)

    credentials = Credentials("rocketmq", "12345678")
    with peer(answer) as address, RemotingClient(address, Access(credentials=credentials)) as client:
        client.ask(21, {"topic": "T"}, b"body")
    assert seen[0].fields["AccessKey"] == "rocketmq"
    assert "12345678" not in str(seen[0])
    assert "12345678" not in repr(credentials)
    assert set(seen[0].fields) == {"AccessKey", "Signature", "topic"}


BROKERS = b"""{"brokerAddrTable":{"b":{"brokerAddrs":{0:"127.0.0.1:1",1:"127.0.0.1:2"},"brokerName":"b","cluster":"C"},
"a":{"brokerAddrs":{0:"127.0.0.1:3"},"brokerName":"a","cluster":"C"},
"slave-only":{"brokerAddrs":{1:"127.0.0.1:4"},"brokerName":"s","cluster":"C"}},"clusterAddrTable":{"C":["a","b"]}}"""


def test_the_masters_of_a_cluster_are_those_with_id_0() -> None:
    with peer(saying(BROKERS)) as address:
        found = cluster.masters(f"127.0.0.1:1; {address}", PATIENT)
    assert [(one.broker_name, one.address) for one in found] == [("a", "127.0.0.1:3"), ("b", "127.0.0.1:1")]


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"brokerAddrTable":3}', b"{" * 200, b'{"brokerAddrTable":{"a":3}}'],
)
def test_a_name_server_that_lies_is_unreachable_or_lists_nobody(body: bytes) -> None:
    with peer(saying(body)) as address, suppress(Unreachable):
        assert cluster.masters(address, PATIENT) == []


@pytest.mark.parametrize("value", ["-5", "x", "", "99999999999999999999", "9" * 400, "²"])
def test_a_broker_whose_numbers_are_none_is_unreachable(value: str) -> None:
    body = b'{"table":{"commitLogMinOffset":"%s","commitLogMaxOffset":"7"}}' % value.encode()
    with (
        peer(saying(body)) as address,
        RemotingClient(address, PATIENT) as client,
        pytest.raises(Unreachable, match="commitLogMinOffset"),
    ):
        cluster.runtime(client)


def test_a_broker_without_a_log_file_has_a_log_that_begins_at_0() -> None:
    body = b'{"table":{"commitLogMinOffset":"-1","commitLogMaxOffset":"0"}}'
    with peer(saying(body)) as address, RemotingClient(address, PATIENT) as client:
        assert cluster.runtime(client)[:2] == (0, 0)


@pytest.mark.parametrize("credentials", [None, Credentials("key", "secret"), Credentials("k", "s", "token")])
def test_a_question_to_a_stranger_ends_as_no_report_of_a_slave(credentials: Credentials | None) -> None:
    """A replication port takes the last whole eight bytes for an offset: -1 means nothing there."""
    came: list[bytes] = []

    def answer(connection: socket.socket, command: Command) -> None:
        came.append(command.encode())
        assert (
            credentials is None
            or credentials.signed(
                {name: value for name, value in command.fields.items() if name == "none"}, command.body
            ).items()
            == dict(command.fields).items()
        )
        saying(b"mine")(connection, command)

    with peer(answer) as address, RemotingClient(address, Access(credentials=credentials)) as client:
        for _ in range(12):  # numbers of requests have more digits by and by
            assert client.ask_stranger(26).body == b"mine"
    assert {len(frame) % 8 for frame in came} == {0}
    assert {frame[-8:] for frame in came} == {struct.pack(">q", -1)}
