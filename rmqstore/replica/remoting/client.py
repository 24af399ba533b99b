"""A connection to one name server or broker: a question, its answer, and time-outs that hold for both together."""

import itertools
import json
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.errors import Corrupt, NotNow, Rejected
from rmqstore.formats import broker_json
from rmqstore.formats.host import parse_place
from rmqstore.replica.remoting.signing import Credentials

# --- One request or answer as bytes (Java: RemotingCommand); integers are big-endian.
#
# i32 size of what follows | u8 how the header is coded, u24 its size | header | body

_SIZES = struct.Struct(">iI")
_JSON = 0
_HEADER_BITS = 24
_HEADER_SIZE_MAX = (1 << _HEADER_BITS) - 1
# Netty's limit in RocketMQ (com.rocketmq.remoting.frameMaxLength) is 16 MiB; a cluster may have set it higher.
FRAME_SIZE_MAX = 64 * 1024 * 1024
SUCCESS = 0

_IS_ANSWER = 1  # bit of `flag`
_LANGUAGE = "PYTHON"
_VERSION = 461  # MQVersion.V5_1_3: what a client of our time says of itself


class BadFrame(Exception):
    """The bytes are no command of RocketMQ's."""


@dataclass(frozen=True, slots=True)
class Command:
    """A request, or the answer that has its `opaque`.  `code` of an answer is SUCCESS or says what is wrong, and
    `remark` says it in words."""

    code: int
    opaque: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str = ""
    is_answer: bool = False

    def encode(self) -> bytes:
        """The whole frame, its header in JSON."""
        header: dict[str, Any] = {
            "code": self.code,
            "language": _LANGUAGE,
            "version": _VERSION,
            "opaque": self.opaque,
            "flag": _IS_ANSWER if self.is_answer else 0,
            "serializeTypeCurrentRPC": "JSON",
            "extFields": dict(self.fields),
        }
        if self.remark:
            header["remark"] = self.remark
        coded = json.dumps(header).encode()
        return _SIZES.pack(4 + len(coded) + len(self.body), (_JSON << _HEADER_BITS) | len(coded)) + coded + self.body


class CommandReader:
    """Commands out of a stream of bytes, however it is cut.  Holds at most one that is not whole."""

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._held = bytearray()
        self._frame_size_max = frame_size_max

    def read(self, data: bytes) -> list[Command]:
        """The commands that are whole once `data` has come.  Raises BadFrame for what cannot be one."""
        held = self._held
        held += data
        found, position = [], 0
        while len(held) - position >= _SIZES.size:
            size, coded = _SIZES.unpack_from(held, position)
            header_size = coded & _HEADER_SIZE_MAX
            if not 4 + header_size <= size <= self._frame_size_max:
                raise BadFrame(f"a frame of {size} bytes with a header of {header_size}")
            if coded >> _HEADER_BITS != _JSON:
                raise BadFrame(f"a header in encoding {coded >> _HEADER_BITS} instead of JSON")
            end = position + 4 + size
            if len(held) < end:
                break
            begin = position + _SIZES.size
            found.append(_command(bytes(held[begin : begin + header_size]), bytes(held[begin + header_size : end])))
            position = end
        del held[:position]
        return found


def _command(coded: bytes, body: bytes) -> Command:
    try:
        header = broker_json.parse(coded)
    except Corrupt as error:
        raise BadFrame(f"a header that is {error.reason}") from None
    if not isinstance(header, dict):
        raise BadFrame("a header that is not a JSON object")
    code, opaque, flag = (_number(header, name) for name in ("code", "opaque", "flag"))
    fields = header.get("extFields") or {}
    if not isinstance(fields, dict):
        raise BadFrame("extFields that are not a JSON object")
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    return Command(code, opaque, texts, body, str(header.get("remark") or ""), bool(flag & _IS_ANSWER))


def _number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadFrame(f"a header whose {name} is not a number")
    return value


# ---

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
            advice = "; give the --access-key and --secret-key of an account that may do it"
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
        raise Rejected(f"{address!r}: expected host:port, such as 127.0.0.1:9876")
    return place


def connected_to(place: tuple[str, int], timeout_s: float) -> socket.socket:
    """A connection to that host and port.  Raises OSError, also for what is no host's name."""
    try:
        return socket.create_connection(place, timeout_s)
    except ValueError:  # Python encodes the name, and refuses labels that are empty or too long
        raise OSError(f"{place[0]!r} is not a host name") from None


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
            raise Unreachable(self.address, f"it does not support TLS: {words}; try without --tls") from None

    def _answer(self, connection: socket.socket, opaque: int, deadline_s: float) -> Command:
        while True:
            connection.settimeout(self._left(deadline_s))
            data = connection.recv(_READ_SIZE)
            if not data:
                hint = "" if self._access.tls else ": it may require TLS, see --tls"
                raise Unreachable(self.address, f"it closed the connection instead of answering{hint}")
            for command in self._reader.read(data):
                if command.is_answer and command.opaque == opaque:
                    return command  # brokers send requests of their own, too, which are not for us

    def _left(self, deadline_s: float) -> float:
        left_s = deadline_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError
        return left_s
