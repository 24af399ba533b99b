"""The socket of one slave, plain or inside TLS, in one shape; it never waits, and holds a bounded part of the log."""

import selectors
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from rmqstore.config import HaTls
from rmqstore.replica.tls import master_side

_READ_SIZE = 64 * 1024
# What is read of the log at a time to be sent inside TLS: a slave that reads nothing has the master hold so much.
_PORTION_SIZE = 64 * 1024


class SendableLog(Protocol):
    """The log as bytes that go out."""

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size) of one file, fewer where it ends.  Raises OSError."""

    def send(self, connection: socket.socket, offset: int, size: int) -> int:
        """Sends bytes of one file as far as the socket takes them; how many.  Raises BlockingIOError, OSError."""


class PeerSocket(Protocol):
    """A connection that was taken in.  Raises BlockingIOError where the other side has to do something first, and
    OSError where the connection is of no use any more."""

    @property
    def socket(self) -> socket.socket:
        """The socket to wait for and, in the end, to close."""

    def greet(self) -> int | None:
        """Goes on with the handshake; what it waits for (selectors.EVENT_…), None once it is over."""

    def receive(self) -> bytes:
        """The bytes that came; none where the slave closed it."""

    def send(self, data: bytes) -> int:
        """Sends the beginning of `data`; how much.  After a BlockingIOError the same bytes are to be sent next."""

    def send_log(self, log: SendableLog, offset: int, size: int) -> int:
        """Sends bytes of the log from `offset` on; how many, 0 where it ends.  The next call goes on after them."""


class PlainSocket:
    """Without TLS: the log goes straight from file to socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def greet(self) -> None:
        """As PeerSocket: there is no handshake."""

    def receive(self) -> bytes:
        """As PeerSocket."""
        return self.socket.recv(_READ_SIZE)

    def send(self, data: bytes) -> int:
        """As PeerSocket."""
        return self.socket.send(data)

    def send_log(self, log: SendableLog, offset: int, size: int) -> int:
        """As PeerSocket."""
        return log.send(self.socket, offset, size)


class TlsSocket:
    """Inside TLS.  Raises OSError where the connection is over already."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self.socket = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self._is_greeted = False
        self._held = memoryview(b"")  # of the log, read and not sent: OpenSSL wants the very bytes that it asked for

    def greet(self) -> int | None:
        """As PeerSocket."""
        if self._is_greeted:
            return None
        try:
            self.socket.do_handshake()
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        self._is_greeted = True
        return None

    def receive(self) -> bytes:
        """As PeerSocket.  A slave that has OpenSSL answer (a new key) and does not take the answer is an error: there
        is nothing that could be waited for meanwhile."""
        try:
            data = self.socket.recv(_READ_SIZE)
            while data and (left := self.socket.pending()):  # no selector tells of bytes that are decrypted already
                data += self.socket.recv(left)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        return data

    def send(self, data: bytes | memoryview) -> int:
        """As PeerSocket."""
        try:
            return self.socket.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    def send_log(self, log: SendableLog, offset: int, size: int) -> int:
        """As PeerSocket."""
        if not self._held:
            self._held = memoryview(log.read(offset, min(size, _PORTION_SIZE)))
        if not self._held:
            return 0
        sent = self.send(self._held)
        self._held = self._held[sent:]
        return sent


TakeIn = Callable[[socket.socket], PeerSocket]


def taker_in(tls: HaTls | None) -> TakeIn:
    """Makes peers of connections that do not block, as a master is to have them.  Raises Rejected where a file of
    `tls` cannot be used."""
    if tls is None:
        return PlainSocket
    context = master_side(tls)
    return lambda connection: TlsSocket(connection, context)
