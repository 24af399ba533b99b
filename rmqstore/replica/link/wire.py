"""The bytes on RocketMQ's replication link (Java: DefaultHAClient, DefaultHAConnection); integers are big-endian.

The slave sends reports, 8 bytes each: how far its log goes.  The first one asks where to begin, the later ones
acknowledge.  The master sends blocks: 12 bytes of header, then bytes of its log as they are, cut anywhere but never
across the end of a file.  A block without bytes is a heartbeat.
"""

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Buffer

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
    """How a slave and its master put things: RocketMQ has one way for most, and one for brokers under a controller.

    `confirmed`: how far the master's log was agreed on when its last block left, and its queues go no further; None
    where they follow the whole log.
    """

    confirmed: int | None

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
        self.confirmed: int | None = None
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


class BlockCutter:
    """Blocks with headers of a kind out of a stream of bytes, however it is cut; `place_of` gets the values of each
    header.  Holds at most one block that is not whole, and copies none but that one more than once."""

    def __init__(self, header: struct.Struct, place_of: Callable[..., Place]) -> None:
        self._header, self._place_of = header, place_of
        self._held = bytearray()  # the beginning of a block

    def read(self, data: "Buffer") -> Iterator[Block]:
        """The blocks that are whole once `data` has come, those with bytes that follow each other in it as one; to be
        used up before the next call.  Raises PeerError at a header that cannot be one, after what came before."""
        view = memoryview(data)
        at = 0
        while self._held and at < len(view):
            taken = view[at : at + self._missing()]
            self._held += taken
            at += len(taken)
            if not self._missing():
                whole, self._held = self._held, bytearray()
                yield from self._blocks(memoryview(whole))
        if at < len(view):
            yield from self._blocks(view[at:])

    def _missing(self) -> int:
        """So many bytes of what is held are still to come: of its header, or else of its block."""
        lacking = self._header.size - len(self._held)
        if lacking > 0:
            return lacking
        return self._header.size + self._place(self._held, 0).size - len(self._held)

    def _place(self, data: "Buffer", position: int) -> Place:
        return _checked(self._place_of(*self._header.unpack_from(data, position)))

    def _blocks(self, view: memoryview) -> Iterator[Block]:
        """Those that are whole in a buffer, at whose front one begins; the beginning of one more is held."""
        position, run = 0, list[_Whole]()
        try:
            while len(view) - position >= self._header.size:
                offset, size = self._place(view, position)
                begin = position + self._header.size
                if len(view) - begin < size:
                    break
                position = begin + size
                if run and (not size or offset != run[-1].log_end):
                    yield _joined(view, run)
                    run.clear()
                if size:
                    run.append(_Whole(offset, begin, position))
                else:
                    yield Block(offset, b"")
        except PeerError:
            if run:
                yield _joined(view, run)
            raise
        self._held += view[position:]
        if run:
            yield _joined(view, run)


def _checked(place: Place) -> Place:
    if place.offset < 0 or not 0 <= place.size <= BLOCK_SIZE_MAX:
        raise PeerError(f"a block of {place.size} bytes at {place.offset}: 0 to {BLOCK_SIZE_MAX}, at 0 or later")
    return place


def _joined(view: memoryview, run: list[_Whole]) -> Block:
    return Block(run[0].offset, b"".join([view[each.begin : each.end] for each in run]))


class BlockReader(BlockCutter):
    """Blocks of the usual wire."""

    def __init__(self) -> None:
        super().__init__(BLOCK_HEADER, Place)


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
