"""Peers on loopback that speak RocketMQ's remoting protocol as a test wants it."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmqstore.replica.remoting.client import BadFrame, Command, CommandReader

Answer = Callable[[socket.socket, Command], None]


@contextmanager
def peer(answer: Answer, port: int = 0) -> Iterator[str]:
    """A peer on loopback that handles each request by `answer`; its address.  `port` 0: any that is free."""

    def serve(connection: socket.socket) -> None:
        reader = CommandReader()
        while data := connection.recv(4096):
            for command in reader.read(data):
                answer(connection, command)

    with _server(serve, port) as address:
        yield address


@contextmanager
def bytes_peer(answer: Answer) -> Iterator[str]:
    """A peer that answers the first bytes, whatever they are."""

    def serve(connection: socket.socket) -> None:
        connection.recv(1)
        answer(connection, Command(0, 0))

    with _server(serve) as address:
        yield address


@contextmanager
def _server(each: Callable[[socket.socket], None], port: int = 0) -> Iterator[str]:
    """Has `each` serve a connection in a thread; its address."""
    listening = socket.create_server(("127.0.0.1", port))
    open_ones: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        try:
            each(connection)
        except (OSError, BadFrame):
            connection.close()

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            open_ones.append(connection)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield "{}:{}".format(*listening.getsockname())
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for connection in open_ones:
            connection.close()
        thread.join()


def saying(body: bytes = b"", code: int = 0, remark: str = "") -> Answer:
    def answer(connection: socket.socket, command: Command) -> None:
        connection.sendall(Command(code, command.opaque, {}, body, remark, is_answer=True).encode())

    return answer
