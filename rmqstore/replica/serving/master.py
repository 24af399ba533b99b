"""Serving a log to slaves: one thread for all of them, one block under way for each, straight from file to socket."""

import errno
import selectors
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from rmqstore.clock import Clock
from rmqstore.config import HaConfig
from rmqstore.errors import NotNow, Rejected, StoreError
from rmqstore.formats.host import place_text
from rmqstore.replica.link.master_link import Acknowledged, LogBounds, MasterLink, SendRegion
from rmqstore.replica.link.slave_link import Drop
from rmqstore.replica.serving.copies import Copies
from rmqstore.replica.serving.peer_socket import PeerSocket, SendableLog, TakeIn

_BELL_SIZE = 64 * 1024
# So much goes to one slave before the others have their turn.
_TURN_SIZE = 1024 * 1024
# Connections that are taken in at a time, and that wait for it.
_ACCEPT_COUNT, _BACKLOG = 64, 1024
# How late house-keeping may come.
_SELECT_S = 0.5
# The system has no room for one more connection; asked at once again, it would say the same.
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
# Whoever connects has so long to say what it wants, its handshake included; RocketMQ's slaves take up to 5 s.
_FIRST_REPORT_S = 10.0


class ServedLog(SendableLog, Protocol):
    """The log as slaves get it."""

    def bounds(self) -> LogBounds:
        """The part that can be sent: what is on the own disk, so that no slave ever has what a power cut takes here."""

    def sync(self) -> None:
        """Makes more of it durable, if there is more.  Raises DurabilityLost."""


@dataclass(eq=False)
class _Slave:
    """One connection: what is known of it, and what of its present block is not sent yet."""

    peer: PeerSocket
    address: str
    link: MasterLink
    since_s: float
    header: bytes = b""
    offset: int = 0
    size: int = 0
    events: int = field(default=selectors.EVENT_READ)


class Master:
    """Listens (see `address`) and serves `log` as `config` says; its `step` is a worker's.

    At most `slaves_max` connections, each of which holds one block's header and, inside TLS alone, 64 KiB of the log.
    `take_in` makes peers of what connects.  What slaves acknowledge is told to `copies`.  Raises Rejected where it
    cannot listen.
    """

    def __init__(self, log: ServedLog, copies: Copies, clock: Clock, config: HaConfig, take_in: TakeIn) -> None:
        self._log, self._copies, self._clock, self._peer_of = log, copies, clock, take_in
        self._slaves_max, self._whole_history = config.slaves_max, config.whole_history
        self._slaves: set[_Slave] = set()
        self._selector = selectors.DefaultSelector()
        self._listening = _listening(config.place())
        self.address = place_text(*self._listening.getsockname()[:2])
        self._waking, self._woken = socket.socketpair()
        for each in (self._listening, self._waking, self._woken):
            each.setblocking(False)
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._hear)
        self._is_rung = False
        self._accepts_at_s: float | None = None  # when those who knock are taken in again, where they are not now

    @property
    def slaves(self) -> dict[str, int]:
        """By address, how far each slave has acknowledged the log."""
        return {slave.address: slave.link.acknowledged for slave in list(self._slaves)}

    def wake(self) -> None:
        """Says that the log has grown.  Cheap; any thread."""
        if not self._is_rung:
            self._is_rung = True
            with suppress(OSError):
                self._waking.send(b"\0")

    def step(self) -> float:
        """Serves whoever is ready, waiting for somebody for half a second at the most."""
        for key, events in self._selector.select(_SELECT_S):
            if isinstance(key.data, _Slave):
                self._serve(key.data, events)
            else:
                key.data()
        self._keep_house()
        return 0

    def close(self) -> None:
        """Ends all connections; `step` is not called any more.  Once more does nothing."""
        for slave in list(self._slaves):
            self._drop(slave)
        for each in (self._listening, self._waking, self._woken):
            _end(each)
        self._selector.close()

    def let_go(self) -> None:
        """Gives back what a child made by fork has inherited, which would hold the port and the slaves' connections
        after its parent was killed.  The parent keeps all of it."""
        for slave in list(self._slaves):
            slave.peer.socket.close()
        for each in (self._listening, self._waking, self._woken, self._selector):
            each.close()

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(_BELL_SIZE)
        # After the read, which may take what rings meanwhile; before the look at the log, so that what comes later than
        # that rings again.
        self._is_rung = False
        if self._slaves:
            self._sync()
        for slave in list(self._slaves):
            self._send(slave)

    def _sync(self) -> None:
        with suppress(StoreError, OSError):  # those who put are told
            self._log.sync()

    def _accept(self) -> None:
        """Takes in those who knock, some at a time: others want to be served as well."""
        for _ in range(_ACCEPT_COUNT):
            try:
                connection, peer = self._listening.accept()
            except OSError as error:  # nobody knocks, or has gone again
                if error.errno in _NO_ROOM:
                    self._selector.unregister(self._listening)
                    self._accepts_at_s = self._clock.monotonic_s() + _SELECT_S
                return
            self._take_in(connection, place_text(*peer[:2]))

    def _take_in(self, connection: socket.socket, address: str) -> None:
        if len(self._slaves) >= self._slaves_max and not self._make_room():
            connection.close()
            return
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            peer = self._peer_of(connection)
        except OSError:
            connection.close()
            return  # it has gone again
        now_s = self._clock.monotonic_s()
        link = MasterLink(now_s, whole_history=self._whole_history)
        slave = _Slave(peer, address, link, now_s)
        self._slaves.add(slave)
        self._selector.register(peer.socket, slave.events, slave)

    def _make_room(self) -> bool:
        """Lets the oldest connection go that has not said what it wants; False where all are slaves."""
        silent = [slave for slave in self._slaves if slave.link.next is None]
        if not silent:
            return False
        self._drop(min(silent, key=lambda slave: slave.since_s))
        return True

    def _serve(self, slave: _Slave, events: int) -> None:
        if slave not in self._slaves:
            return  # dropped a moment ago
        if slave.link.next is None and not self._greeted(slave):
            return
        if events & selectors.EVENT_READ and not self._received(slave):
            return
        self._send(slave)

    def _greeted(self, slave: _Slave) -> bool:
        """Goes on with the handshake; False while it is not over, and if the slave is gone by that."""
        try:
            wanted = slave.peer.greet()
        except OSError:
            self._drop(slave)
            return False
        self._wait_for(slave, wanted or selectors.EVENT_READ)
        return wanted is None

    def _received(self, slave: _Slave) -> bool:
        """Reads what came; False if the slave is gone by that."""
        try:
            data = slave.peer.receive()
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self._drop(slave)
            return False
        if slave.link.next is None:
            self._sync()
        for answer in slave.link.received(data, self._log.bounds(), self._clock.monotonic_s()):
            match answer:
                case Acknowledged(offset):
                    self._copies.attached(slave, offset)
                case Drop(_, farewell):
                    self._say(slave, farewell)
                    self._drop(slave)
                    return False
        return True

    def _say(self, slave: _Slave, last_words: bytes) -> None:
        """Sends them if the socket takes them at once."""
        with suppress(OSError):
            slave.peer.send(last_words)

    def _send(self, slave: _Slave) -> None:
        """Sends until the socket takes no more, nothing is left, or it is the others' turn."""
        if slave.link.next is None:
            return
        left = _TURN_SIZE
        try:
            while left > 0 and self._next_block(slave):
                if slave.header:
                    slave.header = slave.header[slave.peer.send(slave.header) :]
                if not slave.header and slave.size:
                    sent = slave.peer.send_log(self._log, slave.offset, slave.size)
                    if not sent:
                        raise ConnectionAbortedError("the log ends earlier than it did")
                    slave.offset, slave.size, left = slave.offset + sent, slave.size - sent, left - sent
            self._wait_for(slave, selectors.EVENT_READ | (selectors.EVENT_WRITE if left <= 0 else 0))
        except BlockingIOError:
            self._wait_for(slave, selectors.EVENT_READ | selectors.EVENT_WRITE)
        except (OSError, StoreError):
            self._drop(slave)

    def _next_block(self, slave: _Slave) -> bool:
        """Whether something is to be sent: the rest of a block, or another one."""
        if slave.header or slave.size:
            return True
        match slave.link.more(self._log.bounds(), self._clock.monotonic_s()):
            case None:
                return False
            case Drop(reason, farewell):
                self._say(slave, farewell)
                raise NotNow(reason)
            case SendRegion(header, offset, size):
                slave.header, slave.offset, slave.size = header, offset, size
            case heartbeat:
                slave.header = heartbeat.data
        return True

    def _wait_for(self, slave: _Slave, events: int) -> None:
        if events != slave.events:
            slave.events = events
            self._selector.modify(slave.peer.socket, events, slave)

    def _keep_house(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._accepts_at_s is not None and now_s >= self._accepts_at_s:
            self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
            self._accepts_at_s = None
        for slave in list(self._slaves):
            is_mute = slave.link.next is None and now_s - slave.since_s >= _FIRST_REPORT_S
            if is_mute or slave.link.tick(now_s):
                self._drop(slave)
            elif slave.events == selectors.EVENT_READ:
                self._send(slave)  # a heartbeat, or what the rate held back

    def _drop(self, slave: _Slave) -> None:
        self._copies.gone(slave)
        if slave in self._slaves:
            self._slaves.discard(slave)
            with suppress(KeyError, ValueError):
                self._selector.unregister(slave.peer.socket)
        _end(slave.peer.socket)


def _end(connection: socket.socket) -> None:
    """Closes it for all who have it, a child made by fork as well."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def require_listenable(config: HaConfig | None) -> None:
    """Raises Rejected where a master could not listen, before anything is made for it."""
    if config is not None:
        _listening(config.place()).close()


def _listening(place: tuple[str, int]) -> socket.socket:
    host, port = place
    try:
        return socket.create_server(place, family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=_BACKLOG)
    except OSError as error:
        raise Rejected(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
