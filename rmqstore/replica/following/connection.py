"""The socket of a slave's connection: moves bytes between it and a session, and wakes for the session's time."""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from rmqstore.clock import Clock
from rmqstore.config import HaTls
from rmqstore.errors import Rejected
from rmqstore.replica.following.session import ConnectionLost, MasterBeginsLater, SlaveSession
from rmqstore.replica.remoting.client import connected_to, host_and_port
from rmqstore.replica.tls import reason_of, slave_side

_STREAM_READ_SIZE = 1024 * 1024
_CONNECT_S = 10.0
# Of a master that ends a connection without TLS at once.
MAY_WANT_TLS = " before it sent anything: an rmqstore master may require TLS (--ha-cert)"
# How late a stop, or a heartbeat, may come.
_LOOK_S = 0.5


class LinkTls(NamedTuple):
    """TLS with a master of ours: the files, and the host name that its certificate must have, where that is not the one
    by which it is connected to."""

    files: HaTls
    host_name: str = ""

    def side(self, address: str) -> tuple[ssl.SSLContext, str]:
        """How a connection to `address` is begun: the files as they are now, which may have been renewed, and the host
        name.  Raises Rejected."""
        host_name = self.host_name or host_and_port(address)[0]
        return slave_side(self.files, host_name), host_name


def connected(address: str, tls: LinkTls | None = None) -> socket.socket:
    """A connection to the replication port of a master.  Raises ConnectionLost."""
    try:
        connection = connected_to(host_and_port(address), _CONNECT_S)
    except OSError as error:
        raise ConnectionLost(f"{address}: {reason_of(error)}") from None
    except Rejected as error:  # a broker's own words, and it may be set right
        raise ConnectionLost(str(error)) from None
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            return connection
        context, host_name = tls.side(address)
        return context.wrap_socket(connection, server_hostname=host_name)
    except (OSError, Rejected) as error:
        connection.close()
        raise ConnectionLost(f"{address}: {_why_no_tls(error)}") from None
    except BaseException:
        connection.close()
        raise


def _why_no_tls(error: OSError | Rejected) -> str:
    if isinstance(error, Rejected):
        return str(error)
    said_else = isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER"
    if said_else or isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "the master closed the connection instead of starting TLS: it may not support TLS"
    return reason_of(error)


def follow(
    connection: socket.socket, session: SlaveSession, clock: Clock, is_over: Callable[[], bool], address: str
) -> None:
    """Moves bytes until `is_over`.  Raises ConnectionLost when the master closes it or falls silent, and what the
    session raises; closes the socket whatever happens.
    """
    with connection:
        try:
            connection.sendall(session.begin())
            while not is_over():
                _moved(connection, session, clock)
        except MasterBeginsLater:
            raise
        except ConnectionLost as lost:
            raise ConnectionLost(f"{address}: {lost}") from None
        except OSError as error:
            raise ConnectionLost(f"{address}: {_why_lost(connection, session, error)}") from None
        finally:
            with suppress(OSError):  # for all who have it, a child made by fork as well
                connection.shutdown(socket.SHUT_RDWR)


def _why_lost(connection: socket.socket, session: SlaveSession, error: OSError) -> str:
    """In TLS 1.3 a slave hears only after the handshake that its certificate is not taken, and perhaps not even then:
    what it has sent meets a connection that is closed."""
    if not isinstance(connection, ssl.SSLSocket) or session.link.master_end is not None or _is_alert(error):
        return reason_of(error)
    try:
        connection.settimeout(_LOOK_S)
        connection.recv(1)
    except OSError as later:
        if _is_alert(later):
            return reason_of(later)
    return f"{reason_of(error)}: it may not accept our certificate"


def _hint(connection: socket.socket, session: SlaveSession) -> str:
    if isinstance(connection, ssl.SSLSocket) or session.link.master_end is not None:
        return ""
    return MAY_WANT_TLS


def _is_alert(error: OSError) -> bool:
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)


def _moved(connection: socket.socket, session: SlaveSession, clock: Clock) -> None:
    wait_s = min(session.link.wakes_at_s - clock.monotonic_s(), _LOOK_S)
    connection.settimeout(max(wait_s, 0.001))
    try:
        answer = session.received(_read(connection, session), clock.monotonic_s())
    except TimeoutError:
        answer = session.tick(clock.monotonic_s())
    connection.setblocking(False)
    try:
        with suppress(BlockingIOError, ssl.SSLWantReadError):  # nothing more has come yet
            while session.takes_more(clock.monotonic_s()):
                answer += session.received(_read(connection, session), clock.monotonic_s())
    finally:  # what came before the connection ended may come from nobody again
        answer += session.settle(clock.monotonic_s())
    if answer:
        connection.settimeout(_CONNECT_S)
        connection.sendall(answer)


def _read(connection: socket.socket, session: SlaveSession) -> bytes:
    data = connection.recv(_STREAM_READ_SIZE)
    if not data:
        raise ConnectionLost(f"the master closed the connection{_hint(connection, session)}")
    return data
