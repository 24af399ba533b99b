"""A minimal HTTP server for metrics; it stops with its command."""

import errno
import io
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from rmqstore.config import LOOPBACK, listening_place
from rmqstore.errors import Rejected
from rmqstore.formats.host import place_text

# Seconds for a request and its answer together, and bytes of a request head.
_EXCHANGE_S = 5.0
_HEAD_SIZE_MAX = 8192
_READ_SIZE = 1024
# Above the first number a new connection closes the oldest.  Above the second, which counts the threads of closed
# connections too, it waits so many seconds for a thread to end, and is closed if none does.
_CONNECTIONS_MAX, _THREADS_MAX, _THREADS_S = 8, 16, 2.0
_OVERDUE_LOOK_S = 0.5
# Pause when the process has no descriptors left.
_NO_DESCRIPTORS_S = 0.1
METRICS_PATH = "/metrics"
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def metrics_place(given: str, *, is_open_to_network: bool, option: str = "--metrics") -> tuple[str, int]:
    """Host and port of [host:]port; a port alone means loopback.

    Raises Rejected, which names the `option`, for another address unless `is_open_to_network`.
    """
    host, port = listening_place(option, given if ":" in given else f"{LOOPBACK[0]}:{given}")
    if not is_open_to_network and host not in LOOPBACK:
        raise Rejected(
            f"{option} {given} would let anybody on the network read it; add --open-to-network, or give the port alone"
        )
    return host, port


class Scrapes:
    """Answers GET /metrics at `place` with the result of `text` until the `with` block ends.

    Raises Rejected, which names the `option`, if it cannot listen.
    """

    def __init__(
        self, place: tuple[str, int], content_type: str, text: Callable[[], str], option: str = "--metrics"
    ) -> None:
        host, port = place
        try:
            self._server = _Server(place, content_type, text)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise Rejected(f"{option}: cannot listen on {host}:{port}: {why or error}") from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_OVERDUE_LOOK_S,), name="rmqstore-metrics"
        )
        self._thread.daemon = True

    @property
    def address(self) -> str:
        """host:port where it listens."""
        host, port = self._server.server_address[:2]
        return place_text(str(host), port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.let_go(0.0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, place: tuple[str, int], content_type: str, text: Callable[[], str]) -> None:
        self.content_type, self.text = content_type, text
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self._open: dict[socket.socket, float] = {}  # by connection, since when; until its thread is done with it
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(_THREADS_MAX)
        super().__init__(place, _Answer)

    def server_bind(self) -> None:
        """Binds without a look-up of the host's full name, which a name server may delay."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def get_request(self) -> Any:
        """The next connection.  Raises OSError."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (
                errno.EMFILE,
                errno.ENFILE,
            ):  # the socket stays ready: without a pause this loops at full speed
                time.sleep(_NO_DESCRIPTORS_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread; closes the oldest connection above the limit."""
        with self._lock:
            open_ones = list(self._open)
        for oldest in open_ones[: len(open_ones) + 1 - _CONNECTIONS_MAX]:
            _end(oldest)
        if not self._slots.acquire(timeout=_THREADS_S):
            super().shutdown_request(request)
            return
        with self._lock:
            self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Called when a connection ends."""
        with self._lock:
            is_counted = self._open.pop(request, None) is not None
        if is_counted:
            self._slots.release()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Closes connections that take too long."""
        self.let_go(_EXCHANGE_S)

    def let_go(self, age_s: float) -> None:
        """Closes the connections that are at least `age_s` old, which ends their threads."""
        now_s = time.monotonic()
        with self._lock:
            old = [request for request, since_s in self._open.items() if now_s - since_s >= age_s]
        for request in old:
            _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Does nothing: a scraper that disconnects is not worth a message."""


def _end(connection: socket.socket) -> None:
    """Shuts the socket down; the thread that uses it then closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Answer(BaseHTTPRequestHandler):
    """One request, one answer."""

    server: _Server
    server_version, sys_version = "rmqstore", ""
    timeout = _EXCHANGE_S

    def handle_one_request(self) -> None:
        """Reads a request head of limited size, and answers it."""
        self.close_connection = True
        head = b""
        try:
            while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) < _HEAD_SIZE_MAX:
                came = self.connection.recv(_READ_SIZE)
                if not came:
                    return
                head += came
            self.rfile = io.BufferedReader(io.BytesIO(head))
            super().handle_one_request()
        except OSError:  # gone, or too slow
            return

    def do_GET(self) -> None:
        """Sends the metrics, or for another path where they are."""
        if self.path.partition("?")[0] != METRICS_PATH:
            self.send_error(404, f"metrics are at {METRICS_PATH}")
            return
        body = self.server.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", self.server.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        """Sends the head of `do_GET` alone."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Does nothing: a log line every few seconds would be noise."""
