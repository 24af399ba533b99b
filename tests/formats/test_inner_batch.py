"""Bodies of batches."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import Corrupt
from rmqstore.formats.inner_batch import Piece, encode_pieces, read_pieces

PIECES = [Piece(0, b"hello", b"TAGS\x01A\x02"), Piece(-1, b"", b""), Piece(7, b"x" * 300, b"k\x01v")]


def test_a_piece_stands_as_java_writes_it() -> None:
    data = struct.pack(">iiiii5sh3s", 30, 0, 0, 9, 5, b"hello", 3, b"a\x01b")
    assert read_pieces(data) == [Piece(9, b"hello", b"a\x01b")]


@given(
    st.lists(
        st.builds(Piece, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50), st.binary(max_size=50)), max_size=6
    )
)
def test_pieces_read_back(pieces: list[Piece]) -> None:
    assert read_pieces(encode_pieces(pieces)) == pieces


@pytest.mark.parametrize("cut", range(1, len(encode_pieces(PIECES))))
def test_a_cut_batch_is_corrupt_except_between_two_messages(cut: int) -> None:
    whole = [encode_pieces(PIECES[:count]) for count in range(1, 4)]
    body = encode_pieces(PIECES)[:cut]
    if body in whole:
        assert len(read_pieces(body)) == whole.index(body) + 1
    else:
        with pytest.raises(Corrupt):
            read_pieces(body)


@pytest.mark.parametrize(
    ("total_size", "body_size", "properties_size"),
    [
        (29, 5, 3),
        (31, 5, 3),
        (0, 5, 3),
        (-1, 5, 3),
        (2**31 - 1, 5, 3),
        (30, -1, 3),
        (30, 2**31 - 1, 3),
        (30, 6, 3),
        (30, 5, -1),
    ],
)
def test_sizes_that_lie_are_corrupt(total_size: int, body_size: int, properties_size: int) -> None:
    data = struct.pack(">iiiii5sh3s", total_size, 0, 0, 9, body_size, b"hello", properties_size, b"a\x01b")
    with pytest.raises(Corrupt) as caught:
        read_pieces(encode_pieces(PIECES[:1]) + data + encode_pieces(PIECES))
    assert caught.value.offset == len(encode_pieces(PIECES[:1]))


@given(st.binary(max_size=80))
def test_any_bytes_are_pieces_or_corrupt(body: bytes) -> None:
    try:
        pieces = read_pieces(body)
    except Corrupt:
        return
    assert encode_pieces(pieces).count(b"") == len(body) + 1
