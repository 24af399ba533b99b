"""Bodies of batches."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import Corrupt
from rmqstore.formats.inner_batch import (
    Piece,
    encode_pieces,
    inner_batch_rows,
    is_misused,
    read_pieces,
    record_numbers,
)
from rmqstore.formats.message_columns import locate
from tests.formats.records import encoded

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


# Of a message: the bit INNER_BATCH, INNER_NUM, and whether its topic has batch queues; what RocketMQ 5.3.3 answered.
JAVAS_ANSWERS = {
    (False, False, False): "PUT_OK", (False, False, True): "PUT_OK",
    (False, True, False): "MESSAGE_ILLEGAL", (False, True, True): "MESSAGE_ILLEGAL",
    (True, False, False): "MESSAGE_ILLEGAL", (True, True, False): "MESSAGE_ILLEGAL",
    (True, False, True): "PUT_OK", (True, True, True): "PUT_OK",
}  # fmt: skip


def test_what_may_be_said_of_batches_is_what_rocketmq_lets_pass() -> None:
    said = list(JAVAS_ANSWERS)
    refused = [answer == "MESSAGE_ILLEGAL" for answer in JAVAS_ANSWERS.values()]
    assert [is_misused(*one) for one in said] == refused
    assert is_misused(*(np.array(column) for column in zip(*said, strict=True))).tolist() == refused


@pytest.mark.parametrize(("flag", "said", "numbers", "is_inner"), [
    (0xC0, "INNER_NUM=3 INNER_BASE=7", (7, 3), True),
    (0xC8, "INNER_BASE=7 INNER_NUM=3 UNIQ_KEY=U", (7, 3), True),
    (0xC0, "INNER_NUM=3 INNER_BASE=9", (9, 3), False),  # in no place of its own: damaged
    (0x80, "INNER_NUM=3 INNER_BASE=7", (7, 3), False),
    (0x40, "INNER_NUM=3 INNER_BASE=7", (7, 1), False),
    (0x00, "INNER_NUM=3 INNER_BASE=7", (7, 1), False),
    (0xC0, "INNER_NUM=3", (7, 1), False),  # as 4.9 stores it
    (0xC0, "INNER_BASE=7", (7, 1), False),
    (0xC0, "INNER_NUM=0 INNER_BASE=7", (7, 1), False),
    (0xC0, "INNER_NUM=32768 INNER_BASE=7", (7, 1), False),
    (0xC0, "INNER_NUM=-1 INNER_BASE=7", (7, 1), False),
    (0xC0, "INNER_NUM=3 INNER_BASE=9999999999999999999", (7, 1), False),
    (0xC0, "", (7, 1), False),
])  # fmt: skip
def test_the_numbers_of_a_record_in_a_batch_queue(
    flag: int, said: str, numbers: tuple[int, int], is_inner: bool
) -> None:
    """Alone and among others: its own where it names them, else its place and one message."""
    block = "".join(f"{pair.replace('=', chr(1))}\2" for pair in said.split()).encode()
    records = [
        encoded(queue_offset=6),
        encoded(sys_flag=flag, queue_offset=7, properties=block),
        encoded(sys_flag=0xC0),
    ]
    for chosen, row in ((records, 1), (records[1:2], 0)):
        starts = np.cumsum([0, *map(len, chosen[:-1])])
        located = locate(np.frombuffer(b"".join(chosen), np.uint8), starts)
        found = record_numbers(located)
        assert (int(found.bases[row]), int(found.counts[row])) == numbers
        assert bool(inner_batch_rows(located, found)[row]) is is_inner


ONE, TWO, SOME = (encode_pieces(pieces) for pieces in (PIECES[:1], PIECES[:2], [Piece(0, b"", b"")]))


@pytest.mark.parametrize(("flag", "body", "said", "numbers", "is_inner"), [
    (0xC0, ONE, "INNER_NUL=1 INNER_BASE=7", (7, 1), True),
    (0xC0, ONE, "INNER_NUM=0 INNER_BASE=7", (7, 1), True),
    (0xC0, ONE, "INNER_NUM=3 INNER_BASE=7", (7, 3), True),  # its pieces are counted when it is taken apart
    (0xC0, ONE, "INNER_NUM=1 INNER_BASF=7", (7, 1), True),
    (0xC0, SOME, "INNER_NUM=1 INNER_BASE=6", (7, 1), True),
    (0xC1, zlib.compress(ONE), "INNER_BASE=7", (7, 1), True),
    (0xC0, ONE, "", (7, 1), False),  # nothing says so but flags that any client may set
    (0xC0, ONE, "INNER_BASE=6", (7, 1), False),
    (0x80, ONE, "INNER_BASE=7", (7, 1), False),
    (0xC0, ONE + b"x", "INNER_BASE=7", (7, 1), False),
    (0xC0, TWO, "INNER_NUM=1", (7, 1), False),
    (0xC0, TWO, "INNER_BASE=7", (7, 1), False),  # RocketMQ gives it one number
    (0xC1, ONE, "INNER_BASE=7", (7, 1), False),
])  # fmt: skip
def test_a_body_that_is_a_batch_of_one_stands_for_a_property_that_damage_took(
    flag: int, body: bytes, said: str, numbers: tuple[int, int], is_inner: bool
) -> None:
    block = "".join(f"{pair.replace('=', chr(1))}\2" for pair in said.split()).encode()
    record = encoded(sys_flag=flag, queue_offset=7, properties=block, body=body)
    located = locate(np.frombuffer(record, np.uint8), np.zeros(1, np.int64))
    found = record_numbers(located, batch_topics={b"T"})
    assert (found.bases[0], found.counts[0], inner_batch_rows(located, found)[0]) == (*numbers, is_inner)
    if numbers == (7, 1):  # in a plain queue RocketMQ stores whatever a client says of itself
        assert not inner_batch_rows(located, record_numbers(located)).any()
