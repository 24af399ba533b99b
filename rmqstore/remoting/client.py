"""A connection to one name server or broker: a question, its answer, and time-outs that hold for both together."""

import itertools
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.errors import NotNow, Rejected
from rmqstore.formats.host import parse_place
from rmqstore.remoting.command import SUCCESS, BadFrame, Command, CommandReader
from rmqstore.remoting.signing import Credentials

_READ_SIZE = 256 * 1024
# Java: ResponseCode.SYSTEM_ERROR, SYSTEM_BUSY.
_PASSING = (1, 2)
_NO_PERMISSION = 16
# How brokers of 4.9 answer those they do not know or trust: with SYSTEM_ERROR and this at the beginning of the remark.
_ACL_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
# A slave's report that says nothing.
_NO_REPORT = b"\xff" * 8
# How much of a stranger's words stands in an error.
_REMARK_SIZE_MAX = 200


class Unreachable(NotNow):
    """A peer that does not answer, or not in RocketMQ's protocol: `address` host:port, `reason`."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address, self.reason = address, reason

    def _line(self) -> str:
        return f"{self.address}: {self.reason}"


class Refused(Rejected):
    """A peer that understood a request and refused it: `address`, RocketMQ's `code`, its `remark`."""

    def __init__(self, address: str, code: int, remark: str) -> None:
        super().__init__(address, code, remark)
        self.address, self.code, self.remark = address, code, remark

    def _line(self) -> str:
        advice = ""
        if self.code == _NO_PERMISSION or self.remark.startswith(_ACL_EXCEPTION):
            advice = "; --access-key and --secret-key are those of an account that may"
        return f"{self.address} refused it with {_coded(self.code, self.remark)}{advice}"


def _coded(code: int, remark: str) -> str:
    first_line = remark.partition("\n")[0][:_REMARK_SIZE_MAX]
    return f"code {code}: {first_line or 'no reason given'}"


@dataclass(frozen=True, slots=True)
class Access:
    """How peers are spoken to: `timeout_s` for a question with its answer, connecting included; signed with
    `credentials`, inside TLS with a context."""

    timeout_s: float = 10.0
    credentials: Credentials | None = None
    tls: ssl.SSLContext | None = None


UNSIGNED = Access()


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of host:port; an IPv6 host in brackets.  Raises Rejected."""
    place = parse_place(address.strip())
    if place is None or not place[1]:
        raise Rejected(f"{address!r}: wanted is host:port, as 127.0.0.1:9876")
    return place


def connected_to(place: tuple[str, int], timeout_s: float) -> socket.socket:
    """A connection to that host and port.  Raises OSError, also for what is no host's name."""
    try:
        return socket.create_connection(place, timeout_s)
    except ValueError:  # Python encodes the name, and refuses labels that are empty or too long
        raise OSError(f"{place[0]!r} is no name of a host") from None


class RemotingClient:
    """Questions to one peer, one after the other; one thread.  Connects when the first is asked, and again after a
    failure."""

    def __init__(self, address: str, access: Access = UNSIGNED, clock: Clock = SYSTEM_CLOCK) -> None:
        self.address = address
        self._place = host_and_port(address)
        self._access = access
        self._clock = clock
        self._opaque = itertools.count(1)
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, if there is one."""
        connection, self._socket = self._socket, None
        if connection is not None:
            with suppress(OSError):
                connection.close()

    def ask_stranger(self, code: int) -> Command:
        """As `ask`, of a peer that may be a replication port.

        Masters take the last eight bytes that came there, counted from the first, for how far a slave has the log
        (Java: DefaultHAConnection.ReadSocketService): any request would be a slave that has everything, and puts that
        wait for slaves would be acknowledged.  So this one ends there with a body of -1, which means nothing to them,
        and brokers and name servers pass bodies over that they do not expect.
        """
        opaque = next(self._opaque) & 0x7FFF_FFFF
        empty = Command(code, opaque, self._signed({}, b"")).encode()
        body = bytes(-len(empty) % len(_NO_REPORT)) + _NO_REPORT
        return self._asked(Command(code, opaque, self._signed({}, body), body))

    def ask(self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
        """The answer to a request.  Raises Unreachable, also where the peer fails at it or is busy, as one that is just
        starting does; and Refused for any other answer but SUCCESS.
        """
        return self._asked(Command(code, next(self._opaque) & 0x7FFF_FFFF, self._signed(fields or {}, body), body))

    def _signed(self, fields: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        credentials = self._access.credentials
        return dict(fields) if credentials is None else credentials.signed(dict(fields), body)

    def _asked(self, request: Command) -> Command:
        try:
            answer = self._exchange(request)
        except BaseException:
            self.close()  # an answer may still come, and must not be taken for that of the next question
            raise
        if answer.code in _PASSING and not answer.remark.startswith(_ACL_EXCEPTION):
            raise Unreachable(self.address, f"it failed with {_coded(answer.code, answer.remark)}")
        if answer.code != SUCCESS:
            raise Refused(self.address, answer.code, answer.remark)
        return answer

    def _exchange(self, request: Command) -> Command:
        deadline_s = self._clock.monotonic_s() + self._access.timeout_s
        try:
            connection = self._connected(deadline_s)
            connection.settimeout(self._left(deadline_s))
            connection.sendall(request.encode())
            return self._answer(connection, request.opaque, deadline_s)
        except TimeoutError:
            raise Unreachable(self.address, f"no answer within {self._access.timeout_s:g} s") from None
        except ssl.SSLCertVerificationError as error:
            words = (
                f"its certificate is not accepted: {error.verify_message}; --tls-ca names the authority that signed it"
            )
            raise Unreachable(self.address, words) from None
        except ssl.SSLError as error:
            raise Unreachable(self.address, f"TLS: {error.reason or error}") from None
        except OSError as error:
            raise Unreachable(self.address, error.strerror or str(error)) from None
        except BadFrame as error:
            raise Unreachable(self.address, f"it does not speak RocketMQ's protocol: {error}") from None

    def _connected(self, deadline_s: float) -> socket.socket:
        if self._socket is None:
            connection = connected_to(self._place, self._left(deadline_s))
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._access.tls is not None:
                    connection = self._inside(self._access.tls, connection)
            except BaseException:
                connection.close()
                raise
            self._socket, self._reader = connection, CommandReader()
        return self._socket

    def _inside(self, tls: ssl.SSLContext, connection: socket.socket) -> socket.socket:
        try:
            return tls.wrap_socket(connection, server_hostname=self._place[0])
        except (ssl.SSLCertVerificationError, TimeoutError):
            raise
        except OSError as error:
            words = getattr(error, "reason", None) or error.strerror or error
            raise Unreachable(self.address, f"it does not take TLS: {words}; without --tls it may answer") from None

    def _answer(self, connection: socket.socket, opaque: int, deadline_s: float) -> Command:
        while True:
            connection.settimeout(self._left(deadline_s))
            data = connection.recv(_READ_SIZE)
            if not data:
                hint = "" if self._access.tls else ": one that takes TLS only does so, see --tls"
                raise Unreachable(self.address, f"it closed the connection instead of answering{hint}")
            for command in self._reader.read(data):
                if command.is_answer and command.opaque == opaque:
                    return command  # brokers send requests of their own, too, which are not for us

    def _left(self, deadline_s: float) -> float:
        left_s = deadline_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        return left_s
