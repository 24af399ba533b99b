"""Single reads of a master's log over its replication port, and what stands in the way of a replica."""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.formats.message import size_without_first_byte
from rmqstore.replica.following.connection import MAY_WANT_TLS, LinkTls, connected
from rmqstore.replica.following.session import ConnectionLost
from rmqstore.replica.link.master_link import FIRST_BYTE
from rmqstore.replica.link.wire import Block, BlockCutter, PeerError, Place, Send, UsualWire, Wire
from rmqstore.replica.remoting.cluster import BrokerSettings
from rmqstore.replica.tls import reason_of

# --- The same link between brokers under a controller (Java: AutoSwitchHAClient, AutoSwitchHAConnection); big-endian.
#
# Both sides begin with a handshake, in which the master tells its epochs: since which offset which master has written
# the log. A slave that says it is a learner gets the log and counts for nothing: the controller never takes it into
# the set of replicas that acknowledge, nor makes a master of it.

_HANDSHAKE, _TRANSFER = 1, 2
_SLAVE_HANDSHAKE = struct.Struct(">ihhq")  # state, only the newest file, is a learner, broker id
_SLAVE_REPORT = struct.Struct(">iq")  # state, end of its log
_MASTER_HANDSHAKE = struct.Struct(">iiqi")  # state, size of the epochs, end of its log, newest epoch
_EPOCH = struct.Struct(">iq")  # epoch, offset where it began
_BLOCK_HEADER = struct.Struct(">iiqiqq")  # state, size, offset, its epoch, where that began, confirmed offset
# A master for each of so many epochs: one every day for a century.
_EPOCHS_MAX = 65_536
# No broker has it: controllers count from 1.
_LEARNERS_ID = 2**31


class Epoch(NamedTuple):
    """A master's time: everything from `offset` on, up to the next epoch's, is its."""

    number: int
    offset: int


class ControllerWire:
    """The slave's side, as a learner."""

    def __init__(self) -> None:
        self.epochs: list[Epoch] | None = None  # the master's, oldest first, once it has told them
        self.confirmed: int | None = 0
        self._held = bytearray()  # the beginning of the handshake
        self._cutter = BlockCutter(_BLOCK_HEADER, self._place)
        self._wanted = 0
        self._newest_only = False

    def first(self, offset: int) -> bytes:
        """The handshake.  RocketMQ counts from 0 here: byte 1 is not needed to have the whole log, and 0 is not the
        newest file, for which there is a word of its own."""
        self._wanted, self._newest_only = offset, offset == 0
        return _SLAVE_HANDSHAKE.pack(_HANDSHAKE, self._newest_only, 1, _LEARNERS_ID)

    def report(self, offset: int) -> bytes:
        """12 bytes."""
        return _SLAVE_REPORT.pack(_TRANSFER, offset)

    def read(self, data: bytes) -> Iterator[Block | Send]:
        """As Wire; answers the master's handshake with what is wanted."""
        if self.epochs is None:
            self._held += data
            if not self._read_handshake():
                return
            yield Send(self.report(self._wanted))
            data, self._held = bytes(self._held), bytearray()
        yield from self._cutter.read(data)

    def _read_handshake(self) -> bool:
        """Whether it has come whole."""
        held = self._held
        if len(held) < _MASTER_HANDSHAKE.size:
            return False
        state, size, _, _ = _MASTER_HANDSHAKE.unpack_from(held)
        if state != _HANDSHAKE or size % _EPOCH.size or not 0 <= size <= _EPOCHS_MAX * _EPOCH.size:
            raise PeerError(f"a handshake of state {state} with {size} bytes of epochs")
        end = _MASTER_HANDSHAKE.size + size
        if len(held) < end:
            return False
        self.epochs = [Epoch(*pair) for pair in _EPOCH.iter_unpack(held[_MASTER_HANDSHAKE.size : end])]
        del held[:end]
        return True

    def _place(self, state: int, size: int, offset: int, _epoch: int, _epoch_offset: int, confirmed: int) -> Place:
        if state != _TRANSFER:
            raise PeerError(f"a block of state {state}")
        self.confirmed = confirmed
        return Place(offset, size)


# ---

_PROBE_READ_SIZE = 256 * 1024
_READ_S = 10.0


def wire_of(broker: BrokerSettings) -> Wire:
    """How a master is spoken to."""
    return ControllerWire() if broker.is_controlled else UsualWire()


class MasterLog:
    """The log of a master, read by a connection each time: for looks at a few places."""

    def __init__(self, broker: BrokerSettings, tls: LinkTls | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._broker, self._tls, self._clock = broker, tls, clock

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size), which the master must have.  Raises ConnectionLost."""
        first = max(offset, FIRST_BYTE)
        address, wanted = self._broker.ha_address, size - (first - offset)
        found = bytearray()
        with connected(address, self._tls) as connection:
            try:
                self._fetch(connection, first, wanted, found)
            except OSError as error:
                raise ConnectionLost(f"{address}: {reason_of(error)}") from None
            except PeerError as error:
                raise ConnectionLost(f"{address} does not speak RocketMQ's replication protocol: {error}") from None
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        if first == offset:
            return bytes(found[:wanted])
        return ((size_without_first_byte(bytes(found)) or 0) >> 24).to_bytes() + bytes(found[:wanted])

    def start(self) -> int:
        """Where the log begins: a master of ours says so to whoever asks for what it has not any more.  0 where it
        begins with that, or does not answer in time, as an empty one of RocketMQ's.  Raises ConnectionLost."""
        return self.told_start() or 0

    def told_start(self) -> int | None:
        """The same; None where nothing comes in time."""
        with connected(self._broker.ha_address, self._tls) as connection:
            try:
                return self._first_offset(connection)
            except TimeoutError:
                return None
            except OSError as error:
                raise ConnectionLost(f"{self._broker.ha_address}: {reason_of(error)}") from None
            except PeerError as error:
                raise ConnectionLost(
                    f"{self._broker.ha_address} does not speak RocketMQ's replication protocol: {error}"
                ) from None
            finally:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def end(self, begin: int, most: int) -> int:
        """Where the log ends, as far as `most`: a master of ours says so to whoever asks for more than that, or
        has all of it from `begin` on.  Raises ConnectionLost."""
        address = self._broker.ha_address
        with connected(address, self._tls) as connection:
            try:
                for one in self._blocks(connection, max(begin, FIRST_BYTE)):
                    if not one.data or one.end >= most:
                        return min(one.end, most)
            except OSError as error:
                raise ConnectionLost(f"{address}: {reason_of(error)}") from None
            except PeerError as error:
                raise ConnectionLost(f"{address} does not speak RocketMQ's replication protocol: {error}") from None
            finally:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        raise AssertionError

    def _first_offset(self, connection: socket.socket) -> int:
        for one in self._blocks(connection, FIRST_BYTE):
            return 0 if one.offset == FIRST_BYTE else one.offset
        raise AssertionError

    def _fetch(self, connection: socket.socket, offset: int, size: int, found: bytearray) -> None:
        for one in self._blocks(connection, offset):
            if one.data:
                if one.offset != offset + len(found):
                    raise PeerError(f"the master sent offset {one.offset} instead of {offset + len(found)}")
                found += one.data
            if len(found) >= size:
                return

    def _blocks(self, connection: socket.socket, offset: int) -> Iterator[Block]:
        """The blocks that the master sends to whoever asks for its log from `offset` on, as long as they come in
        time.  Raises OSError, PeerError."""
        wire, deadline_s = wire_of(self._broker), self._clock.monotonic_s() + _READ_S
        connection.sendall(wire.first(offset))
        is_heard = False
        while True:
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise TimeoutError(f"offset {offset} of its log did not come within {_READ_S:g} s")
            connection.settimeout(left_s)
            data = connection.recv(_PROBE_READ_SIZE)
            if not data:
                raise ConnectionError(
                    f"the master closed the connection{'' if is_heard or self._tls else MAY_WANT_TLS}"
                )
            is_heard = True
            for one in wire.read(data):
                if isinstance(one, Send):
                    connection.sendall(one.data)
                else:
                    yield one
