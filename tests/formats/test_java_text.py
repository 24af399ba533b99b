"""Bytes to text as Java does it; the expected texts are what `new String(bytes, UTF_8)` of Java 17 gave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.core.arguments import I64_MAX
from rmqstore.formats.java_text import java_properties, java_text, parse_int, parse_ints


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("中文 é 😀".encode(), "中文 é 😀"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xe2\x82A", "\ufffdA"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xa0\x80\xed\xb0\x80", "\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf5\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
    ],
)
def test_malformed_sequences_count_as_in_java(data: bytes, text: str) -> None:
    assert java_text(data) == text


@given(st.text())
def test_well_formed_text_reads_back(text: str) -> None:
    assert java_text(text.encode()) == text


@given(st.binary(max_size=40))
def test_any_bytes_are_a_text_that_utf_8_can_hold(data: bytes) -> None:
    assert java_text(java_text(data).encode()) == java_text(data)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9223372036854775807", 2**63 - 1), ("9223372036854775808", None), ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", None), ("1234567890123456789", 1234567890123456789),
        ("0" * 5000, 0), ("9" * 5000, None),
        ("\u0661" * 19, 1111111111111111111), ("12345678901234567\u0668", 123456789012345678), ("--1", None),
    ],
)  # fmt: skip
def test_long_numbers_are_those_of_java(text: str, number: int | None) -> None:
    assert parse_int(text, I64_MAX) == number
    data = np.frombuffer(text.encode(), np.uint8)
    numbers, is_number = parse_ints(data, np.zeros(1, np.int64), np.array([len(data)]), I64_MAX)
    assert (numbers.tolist(), is_number.tolist()) == ([number or 0], [number is not None])


def test_settings_are_those_of_java() -> None:
    """Names and values are what `java.util.Properties` of Java 17 made of these bytes."""
    data = (
        b"# a comment\n"
        b"! another = one\n"
        b"a=1\n"
        b"  b : 2  \n"
        b"c 3\n"
        b"d\t=\t4\n"
        b"e==5\n"
        b"f:=6\n"
        b"g\n"
        b"h =\n"
        b"i\\=k = v\n"
        b"j = one \\\n"
        b"    two \\\n"
        b"\tthree\n"
        b"k = ends in a backslash \\\\\n"
        b"l = \\u002Dx\\u00e9\\t\\q\\z\n"
        b"m\\ n = spaced name\n"
        b"n = \xc3\xa9\n"
        b"=nameless\n"
        b"o = a\n"
        b"o = b\n"
        b"p = x\\\n"
        b"\n"
        b"q = after a blank continuation \\\n"
        b"# not a comment\n"
        b"r \\\n"
        b"  = split name\n"
        b"s = tail\\\n"
        b"t=cr\rlines\r\n"
        b"u=1\x0c2\n"
        b"v = x\\\r\n"
        b"   y\n"
        b"w=1\n"
        b"x=\\ud83d\\ude00\n"
        b"z = tail\\"
    )
    assert java_properties(data.decode("iso-8859-1")) == {
        "": "nameless",
        "a": "1",
        "b": "2  ",
        "c": "3",
        "d": "4",
        "e": "=5",
        "f": "=6",
        "g": "",
        "h": "",
        "i=k": "v",
        "j": "one two three",
        "k": "ends in a backslash \\",
        "l": "-xé\tqz",
        "lines": "",
        "m n": "spaced name",
        "n": "Ã©",
        "o": "b",
        "p": "x",
        "q": "after a blank continuation # not a comment",
        "r": "split name",
        "s": "tailt=cr",
        "u": "1\x0c2",
        "v": "xy",
        "w": "1",
        "x": "😀",
        "z": "tail",
    }
