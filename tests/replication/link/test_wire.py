"""Blocks out of a stream of bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.replica.following.probe import ControllerWire
from rmqstore.replica.link.wire import BLOCK_HEADER, Block, BlockReader, PeerError


def block(offset: int, data: bytes) -> bytes:
    return BLOCK_HEADER.pack(offset, len(data)) + data


def test_blocks_that_follow_each_other_come_as_one() -> None:
    stream = (
        block(10, b"ab") + block(12, b"c") + block(13, b"") + block(13, b"d") + block(20, b"x") + block(21, b"yz")[:-1]
    )
    reader = BlockReader()
    assert list(reader.read(stream)) == [Block(10, b"abc"), Block(13, b""), Block(13, b"d"), Block(20, b"x")]
    assert list(reader.read(b"z")) == [Block(21, b"yz")]


def test_blocks_in_front_of_what_is_none_come_first() -> None:
    found = BlockReader().read(block(10, b"ab") + block(12, b"c") + block(-1, b"d"))
    assert next(found) == Block(10, b"abc")
    with pytest.raises(PeerError, match="a block of 1 bytes at -1"):
        next(found)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=20), st.integers(1, 40))
def test_however_the_stream_is_cut_the_bytes_are_the_same(blocks: list[tuple[bool, int]], portion: int) -> None:
    """By where each byte belongs; heartbeats stand where they were sent."""
    wanted, stream, offset = list[tuple[int, int | None]](), b"", 0
    for leaps, size in blocks:
        offset += 100 * leaps
        data = bytes(range(size))
        stream += block(offset, data)
        wanted += [(offset + at, each) for at, each in enumerate(data)] or [(offset, None)]
        offset += size
    reader, found = BlockReader(), list[tuple[int, int | None]]()
    for begin in range(0, len(stream), portion):
        for each in reader.read(stream[begin : begin + portion]):
            found += [(each.offset + at, byte) for at, byte in enumerate(each.data)] or [(each.offset, None)]
    assert found == wanted


def test_a_block_of_a_master_under_a_controller_tells_how_far_the_log_is_confirmed() -> None:
    """Java: AutoSwitchHAConnection; a handshake, then blocks, the last of them a heartbeat."""
    wire = ControllerWire()
    list(wire.read(struct.pack(">iiqiiq", 1, 12, 500, 1, 1, 0)))
    assert wire.confirmed == 0
    assert list(wire.read(struct.pack(">iiqiqq", 2, 3, 100, 1, 0, 40) + b"abc")) == [Block(100, b"abc")]
    assert wire.confirmed == 40
    list(wire.read(struct.pack(">iiqiqq", 2, 0, 103, 1, 0, 103)))
    assert wire.confirmed == 103
