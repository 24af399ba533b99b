"""The socket of a slave's connection: moves bytes between it and a session, and wakes for the session's time."""

import socket
from collections.abc import Callable
from contextlib import suppress

from rmqstore.clock import Clock
from rmqstore.remoting.client import host_and_port
from rmqstore.replication.following.session import ConnectionLost, SlaveSession

_STREAM_READ_SIZE = 1024 * 1024
_CONNECT_S = 10.0
# How late a stop, or a heartbeat, may come.
_LOOK_S = 0.5


def connected(address: str) -> socket.socket:
    """A connection to the replication port of a master.  Raises ConnectionLost."""
    try:
        connection = socket.create_connection(host_and_port(address), _CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConnectionLost(f"{address}: {error.strerror or error}") from None
    return connection


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
        except ConnectionLost as lost:
            raise ConnectionLost(f"{address}: {lost}") from None
        except OSError as error:
            raise ConnectionLost(f"{address}: {error.strerror or error}") from None


def _moved(connection: socket.socket, session: SlaveSession, clock: Clock) -> None:
    wait_s = min(session.link.wakes_at_s - clock.monotonic_s(), _LOOK_S)
    connection.settimeout(max(wait_s, 0.001))
    try:
        answer = session.received(_read(connection), clock.monotonic_s())
    except TimeoutError:
        answer = session.tick(clock.monotonic_s())
    connection.setblocking(False)
    try:
        with suppress(BlockingIOError):  # nothing more has come yet
            while session.takes_more(clock.monotonic_s()):
                answer += session.received(_read(connection), clock.monotonic_s())
    finally:  # what came before the connection ended may come from nobody again
        answer += session.settle(clock.monotonic_s())
    if answer:
        connection.settimeout(_CONNECT_S)
        connection.sendall(answer)


def _read(connection: socket.socket) -> bytes:
    data = connection.recv(_STREAM_READ_SIZE)
    if not data:
        raise ConnectionLost("the master closed the connection")
    return data
