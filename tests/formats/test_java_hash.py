"""Java's string hash: vectors from Java, and the vector codec against the scalar one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.formats.java_hash import index_hash, string_hash, string_hashes
from rmqstore.formats.java_text import java_text

pytestmark = pytest.mark.stores


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("*", 42),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("中文", 646394),
        ("😀", 1772899),
        ("TopicTest#key1", -1655984460),
        ("TopicTest#7F00000100002A9F0000000000000001", 1471913327),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_string_hash_is_java_s(text: str, value: int) -> None:
    assert string_hash(text) == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("TopicTest#key1", 1655984460),
        ("TopicTest#7F00000100002A9F0000000000000001", 1471913327),
        ("polygenelubricants", 0),
        ("", 0),
    ],
)
def test_index_hash_is_never_negative(key: str, value: int) -> None:
    assert index_hash(key) == value


ROWS = st.lists(
    st.one_of(
        st.text("abcXYZ019_-|#", max_size=30).map(str.encode),
        st.text(max_size=12).map(str.encode),
        st.binary(max_size=12),
        st.integers(250, 600).map(lambda size: b"k" * size),
    ),
    max_size=40,
)


def hashes_of(rows: list[bytes], gap: bytes = b"#") -> list[int]:
    sizes = np.array([len(row) for row in rows], np.int64)
    starts = np.cumsum(sizes + len(gap)) - sizes
    data = np.frombuffer(b"".join(gap + row for row in rows) or b"\0", np.uint8)
    hashes = string_hashes(data, starts, sizes)
    assert hashes.dtype == np.int32
    return [int(value) for value in hashes]


@settings(deadline=None)
@given(ROWS)
def test_the_vector_codec_agrees_with_the_scalar_one(rows: list[bytes]) -> None:
    assert hashes_of(rows) == [string_hash(java_text(row)) for row in rows]


def test_a_thousand_tags_of_every_size_up_to_the_longest_property() -> None:
    rows = [bytes(65 + (row * position) % 26 for position in range(row % 300)) for row in range(1000)]
    rows += [b"z" * 32767, "é".encode() * 16000]
    assert hashes_of(rows) == [string_hash(row.decode()) for row in rows]


@pytest.mark.parametrize("gap", [b"", b"#"])
@pytest.mark.parametrize("odd", [(), (b"\xff",), ("€".encode()[:2], "€".encode()[2:]), (b"\xed\xa0\x80", b"\xf0\x9f")])
def test_thousands_of_texts_of_other_letters(odd: tuple[bytes, ...], gap: bytes) -> None:
    """Beside each other in the data the two halves of a character are no character: each text is a text of its own."""
    rows = [f"{'é😀订'[row % 3] * (row % 5)}订单{row}".encode() for row in range(3000)]
    rows[1500:1500] = odd
    assert hashes_of(rows, gap) == [string_hash(java_text(row)) for row in rows]


@pytest.mark.parametrize(("start", "size"), [(2, 3), (5, 1), (1, 300), (400, 300)])
def test_a_slice_outside_the_data_is_an_error(start: int, size: int) -> None:
    for byte in (0, 0xC3):
        with pytest.raises(IndexError):
            string_hashes(np.full(4, byte, np.uint8), np.array([start]), np.array([size]))
