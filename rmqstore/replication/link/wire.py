"""The bytes on RocketMQ's replication link (Java: DefaultHAClient, DefaultHAConnection); integers are big-endian.

The slave sends reports, 8 bytes each: how far its log goes.  The first one asks where to begin, the later ones
acknowledge.  The master sends blocks: 12 bytes of header, then bytes of its log as they are, cut anywhere but never
across the end of a file.  A block without bytes is a heartbeat.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

REPORT = struct.Struct(">q")
BLOCK_HEADER = struct.Struct(">qi")
# Java's slave takes a block, header included, into a buffer of 4 MiB; masters send 32 KiB by default.
BLOCK_SIZE_MAX = 4 * 1024 * 1024 - BLOCK_HEADER.size


class PeerError(Exception):
    """The peer sent what no peer sends; the connection is of no use any more."""


class Block(NamedTuple):
    """Bytes of the master's log, which begin at `offset` there; none in a heartbeat."""

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset after the last of them."""
        return self.offset + len(self.data)


class Send(NamedTuple):
    """Bytes for the peer."""

    data: bytes


class Wire(Protocol):
    """How a slave and its master put things: RocketMQ has one way for most, and one for brokers under a controller."""

    def first(self, offset: int) -> bytes:
        """The slave's first bytes; it wants the log from `offset` on."""

    def report(self, offset: int) -> bytes:
        """That the slave has everything before `offset`."""

    def read(self, data: bytes) -> Iterator[Block | Send]:
        """Blocks out of the master's bytes, however they are cut, and what is to be answered; to be used up before the
        next call.  Holds at most one block that is not whole.  Raises PeerError."""


class UsualWire:
    """Java: DefaultHAClient."""

    def __init__(self) -> None:
        self._reader = BlockReader()

    def first(self, offset: int) -> bytes:
        """A report: the master begins there."""
        return REPORT.pack(offset)

    def report(self, offset: int) -> bytes:
        """8 bytes."""
        return REPORT.pack(offset)

    def read(self, data: bytes) -> Iterator[Block | Send]:
        """As Wire."""
        return self._reader.read(data)


class Place(NamedTuple):
    """Where a block's bytes belong in the log, and how many they are."""

    offset: int
    size: int


class _Whole(NamedTuple):
    """A block that is whole in a buffer: its bytes [begin, end) there belong at `offset` in the log."""

    offset: int
    begin: int
    end: int

    @property
    def log_end(self) -> int:
        return self.offset + self.end - self.begin


def whole_blocks(held: bytearray, header: struct.Struct, place_of: Callable[..., Place]) -> Iterator[Block]:
    """Takes the blocks that are whole out of the front of `held`, those with bytes that follow each other as one;
    `place_of` gets the values of each one's header.  Raises PeerError, after what came before."""
    position, run = 0, list[_Whole]()
    try:
        while len(held) - position >= header.size:
            offset, size = _checked(place_of(*header.unpack_from(held, position)))
            begin = position + header.size
            if len(held) - begin < size:
                break
            position = begin + size
            if run and (not size or offset != run[-1].log_end):
                yield _joined(held, run)
                run.clear()
            if size:
                run.append(_Whole(offset, begin, position))
            else:
                yield Block(offset, b"")
        if run:
            yield _joined(held, run)
    except PeerError:
        if run:
            yield _joined(held, run)
        raise
    finally:
        del held[:position]


def _checked(place: Place) -> Place:
    if place.offset < 0 or not 0 <= place.size <= BLOCK_SIZE_MAX:
        raise PeerError(f"a block of {place.size} bytes at {place.offset}: 0 to {BLOCK_SIZE_MAX}, at 0 or later")
    return place


def _joined(held: bytearray, run: list[_Whole]) -> Block:
    view = memoryview(held)
    return Block(run[0].offset, b"".join([view[each.begin : each.end] for each in run]))


class BlockReader:
    """Blocks out of a stream of bytes, however it is cut.  Holds at most one block that is not whole."""

    def __init__(self) -> None:
        self._held = bytearray()

    def read(self, data: bytes) -> Iterator[Block]:
        """The blocks that are whole once `data` has come; to be used up before the next call.  Raises PeerError at a
        header that cannot be one."""
        self._held += data
        return whole_blocks(self._held, BLOCK_HEADER, Place)


class ReportReader:
    """The newest report out of a stream of bytes, however it is cut: those before it do not matter any more."""

    def __init__(self) -> None:
        self._held = b""

    def read(self, data: bytes) -> list[int]:
        """All reports that are whole once `data` has come, oldest first."""
        held = self._held + data
        whole = len(held) - len(held) % REPORT.size
        self._held = held[whole:]
        return [offset for (offset,) in REPORT.iter_unpack(memoryview(held)[:whole])]
