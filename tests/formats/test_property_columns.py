"""The vector split of property blocks finds what `parse_properties` finds, in every dialect and in any bytes."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqstore.formats.java_text import java_text
from rmqstore.formats.properties import parse_properties
from rmqstore.formats.property_columns import AlikePieces, Pieces, split_pieces

pytestmark = pytest.mark.stores

NAMES = [b"TAGS", b"KEYS", b"a", b"aa", "ключ".encode(), b"TAGT"]
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([b"", b"v", b"v1", b"x\x01y", b"\0", b"v\0"])))
LETTERS = st.sampled_from([b"\x01", b"\x02", b"\0", b"a", b"b", b"TAGS", b"TAGS\x01x\x02"])


def joined(pairs: list[tuple[bytes, bytes]], closed: bool) -> bytes:
    """A block with the trailing 0x02 (up to 4.9.0 and since 5.2.0), or without (4.9.1 … 5.1.4)."""
    return b"\x02".join(name + b"\x01" + value for name, value in pairs) + (b"\x02" if closed and pairs else b"")


ROOM_FOR_CRC = st.sampled_from([b"", b"", bytes(20)])  # what 5.2.0 leaves behind the last 0x02
WRITTEN = st.builds(lambda pairs, closed, room: joined(pairs, closed) + room, PAIRS, st.booleans(), ROOM_FOR_CRC)
BLOCK = WRITTEN | st.lists(LETTERS, max_size=12).map(b"".join)
# Blocks of one program: the same names in the same order, some twice, now and then another of the same size.
VALUES = st.sampled_from([b"v", b"v1", b"\0", b"w" * 20])
GRID = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5).flatmap(
    lambda names: st.lists(
        st.tuples(*[st.tuples(st.sampled_from([name] * 9 + [name[:-1] + b"z"]), VALUES) for name in names]).map(
            lambda pairs: joined(list(pairs), closed=True)
        ),
        max_size=6,
    )
)


# Blocks of one program whose values have one size each, and may hold any byte.
BYTES = st.sampled_from(b"ab" * 20 + b"\0\x01\x02\x03\xff")
ALIKE = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5)), min_size=1, max_size=4).flatmap(
    lambda fields: st.lists(
        st.tuples(
            *[st.tuples(st.just(name), st.lists(BYTES, min_size=n, max_size=n).map(bytes)) for name, n in fields]
        ).map(lambda pairs: joined(list(pairs), closed=True)),
        min_size=2,
        max_size=6,
    )
)


def split(blocks: list[bytes], behind: bytes = b"") -> Pieces:
    """The pieces of blocks laid end to end; `behind` is data that belongs to none."""
    data = np.frombuffer(b"".join(blocks) + behind, np.uint8)
    return split_pieces(data, np.concatenate(([0], np.cumsum([len(block) for block in blocks]))).astype(np.int64))


def value_at(pieces: Pieces, start: int, size: int) -> str | None:
    return None if size < 0 else java_text(pieces.data[start : start + size].tobytes())


def listed(pieces: Pieces) -> list[list[tuple[str, str]]]:
    """Name and value of every piece, by block."""
    found: list[list[tuple[str, str]]] = [[] for _ in pieces.counts]
    columns = (pieces.rows(), *pieces.places)
    for row, *place in zip(*(column.tolist() for column in columns), strict=True):
        name, value = value_at(pieces, *place[:2]), value_at(pieces, *place[2:])
        assert name is not None
        assert value is not None
        found[row].append((name, value))
    return found


@given(GRID | ALIKE | st.lists(BLOCK, max_size=8), st.binary(max_size=4) | st.just(b"\x02\x01"))
@example([b""], b"")
@example([b"", b"a\x01b\x02", b"", b"a\x01b", b""], b"")
@example([b"a\x01b", b"c\x01d\x02"], b"\x02")
@example([b"a\x01b\x02a\x01c\x02a\x01\x02"] * 3, b"")
@example([b"a\x01b\x02" + bytes(20), b"a", b"\x01b\x02"], b"\x01\x02")
def test_pieces_are_the_properties(blocks: list[bytes], behind: bytes) -> None:
    pieces = split(blocks, behind)
    expected = [parse_properties(block) for block in blocks]
    assert [dict(pairs) for pairs in listed(pieces)] == expected
    for part in (pieces, pieces.with_same_names()):
        single = listed(part.without_doubles())
        assert [dict(pairs) for pairs in single] == expected
        assert [len(pairs) for pairs in single] == [len(properties) for properties in expected]
    assert int(pieces.counts.sum()) == len(pieces.places.name_start)


@given(GRID | ALIKE | st.lists(BLOCK, max_size=8), st.sampled_from(NAMES))
def test_find_answers_as_a_look_up(blocks: list[bytes], name: bytes) -> None:
    named = split(blocks).with_same_names()
    for pieces in (split(blocks), named, split(blocks, b"TAGS\x01z\x02").without_doubles(), named.without_doubles()):
        starts, sizes = pieces.find(name)
        found = [value_at(pieces, start, size) for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
        assert found == [parse_properties(block).get(name.decode()) for block in blocks]


@given(GRID)
def test_same_names_are_those_of_every_block(blocks: list[bytes]) -> None:
    pieces = split(blocks).with_same_names()
    names = [tuple(name for name, _ in pairs) for pairs in listed(pieces)]
    same = pieces.same_names
    if same is None:
        assert len(set(names)) != 1
    else:
        assert set(names) == {tuple(java_text(name) for name in same)}


@pytest.mark.parametrize("count", [2, 5000])
def test_blocks_that_differ_in_their_values_alone_are_cut_as_the_first(count: int) -> None:
    blocks = [b"TAGS\x01paid\x02KEYS\x01o-%06d\x02" % number for number in range(count)]
    pieces = split(blocks)
    assert isinstance(pieces, AlikePieces)
    assert listed(pieces) == [[("TAGS", "paid"), ("KEYS", f"o-{number:06}")] for number in range(count)]
    for place, odd in ((5, b"\x02"), (3, b"T"), (4, b"\x02"), (9, b"\x01")):
        other = bytearray(blocks[-1])
        other[place : place + 1] = odd
        one_off = split([*blocks[:-1], bytes(other)])
        assert not isinstance(one_off, AlikePieces)
        assert dict(listed(one_off)[-1]) == parse_properties(bytes(other))


def test_pieces_go_with_their_last_reference() -> None:
    """What a batch is made of must not wait for the collector: scans would hold many batches' bytes."""
    pieces = split([b"TAGS\x01paid\x02", b"TAGS\x01sent\x02"])
    assert isinstance(pieces, AlikePieces)
    assert listed(pieces) == [[("TAGS", "paid")], [("TAGS", "sent")]]
    seen = weakref.ref(pieces)
    gc.disable()
    try:
        del pieces
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("block", "pairs"),
    [
        (b"a\x01b\x02c\x01d\x02", [("a", "b"), ("c", "d")]),
        (b"a\x01b\x02c\x01d", [("a", "b"), ("c", "d")]),
        (b"a\x01b\x02" + bytes(20), [("a", "b")]),
        (b"a\x01b\x01c\x02", [("a", "b\x01c")]),
        (b"a\x01\x02\x01b\x02ab\x02\x02c\x01d", [("c", "d")]),
        (b"a\x01b\x02a\x01c\x02", [("a", "b"), ("a", "c")]),
    ],
)
def test_each_dialect_by_itself(block: bytes, pairs: list[tuple[str, str]]) -> None:
    assert listed(split([block])) == [pairs]
    assert listed(split([b"x\x01y\x02", block, b"x\x01y"])) == [[("x", "y")], pairs, [("x", "y")]]


def test_names_that_differ_in_a_zero_byte_are_not_one() -> None:
    block = b"a\0\x01first\x02a\0\0\x01second\x02a\x01third\x02a\0\x01fourth\x02"
    pieces = split([block])
    assert listed(pieces.without_doubles()) == [[("a\0\0", "second"), ("a", "third"), ("a\0", "fourth")]]
    starts, sizes = pieces.find(b"a")
    assert value_at(pieces, int(starts[0]), int(sizes[0])) == "third"


def test_no_blocks_no_pieces() -> None:
    pieces = split([])
    assert pieces.find(b"TAGS")[0].tolist() == []
    assert listed(pieces.without_doubles()) == []
