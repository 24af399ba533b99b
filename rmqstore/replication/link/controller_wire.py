"""The same link between brokers under a controller (Java: AutoSwitchHAClient, AutoSwitchHAConnection); big-endian.

Both sides begin with a handshake, in which the master tells its epochs: since which offset which master has written the
log.  A slave that says it is a learner gets the log and counts for nothing: the controller never takes it into the set
of replicas that acknowledge, nor makes a master of it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from rmqstore.replication.link.wire import Block, BlockCutter, PeerError, Place, Send

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
