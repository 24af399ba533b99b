"""A master that does with each connection as it is told, by either wire, and an honest one to put in its place."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rmqstore.replica.following.connection import LinkTls
from rmqstore.replica.link.wire import REPORT
from rmqstore.replica.remoting.cluster import BrokerSettings

FILE_SIZE = 1 << 18
_HANDSHAKE, _TRANSFER = 1, 2
_SLAVE_HANDSHAKE_SIZE, _SLAVE_REPORT_SIZE = 16, 12


class Usual:
    """RocketMQ's wire for most."""

    is_controlled = False

    def asked(self, connection: socket.socket) -> int:
        """Where the slave wants the log to begin."""
        (offset,) = REPORT.unpack(whole(connection, REPORT.size))
        return int(offset)

    def header(self, offset: int, size: int) -> bytes:
        """The bytes before a block."""
        return struct.pack(">qi", offset, size)


class Controlled:
    """The wire of brokers under a controller."""

    is_controlled = True

    def asked(self, connection: socket.socket) -> int:
        """As Usual; with the handshake before."""
        whole(connection, _SLAVE_HANDSHAKE_SIZE)
        connection.sendall(struct.pack(">iiqi", _HANDSHAKE, 12, 0, 1) + struct.pack(">iq", 1, 0))
        return int(struct.unpack(">iq", whole(connection, _SLAVE_REPORT_SIZE))[1])

    def header(self, offset: int, size: int) -> bytes:
        """As Usual."""
        return struct.pack(">iiqiqq", _TRANSFER, size, offset, 1, 0, 0)


WireOfMaster = Usual | Controlled
Answer = Callable[[socket.socket], None]


def whole(connection: socket.socket, size: int) -> bytes:
    """So many bytes.  Raises ConnectionError where the slave leaves before."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("it has left")
        data += more
    return data


def stay(connection: socket.socket) -> None:
    """Says nothing more, until the slave leaves."""
    while connection.recv(1 << 16):
        pass


def honest(wire: WireOfMaster, log: bytes, size: int = 32_768) -> Answer:
    """What a master with this log answers, in blocks of so many bytes."""

    def answer(connection: socket.socket) -> None:
        offset = wire.asked(connection)
        while offset < len(log):
            end = min(offset + size, len(log), offset - offset % FILE_SIZE + FILE_SIZE)
            connection.sendall(wire.header(offset, end - offset) + log[offset:end])
            offset = end
        stay(connection)

    return answer


class Known:
    """The master at an address, of which nothing else can be asked."""

    link_tls: LinkTls | None = None

    def __init__(self, address: str, *, is_controlled: bool, file_size: int = FILE_SIZE) -> None:
        self.address = address
        self._settings = BrokerSettings("default", "", address, file_size, is_controlled, {})

    def settings(self) -> BrokerSettings:
        """As KnownMaster."""
        return self._settings

    def present(self) -> None:
        """As KnownMaster."""

    def log_start(self) -> int:
        return 0

    def place_of(self, topic: str, queue_id: int, number: int) -> None:
        """As KnownMaster."""

    def topics(self) -> None:
        """As KnownMaster."""

    def tables(self) -> dict[int, dict[str, object]]:
        """As KnownMaster."""
        return {}

    def close(self) -> None:
        """As KnownMaster."""


class Port:
    """Where a master listens; `answers` with each connection, and may be put in another's place at any time."""

    def __init__(self, answers: Answer) -> None:
        self.answers = answers
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listening.getsockname())
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self.answers(connection)

    def close(self) -> None:
        """Ends all connections and threads."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


@contextmanager
def port_of(answers: Answer) -> Iterator[Port]:
    """A port that answers like this."""
    port = Port(answers)
    try:
        yield port
    finally:
        port.close()
