"""Bytes to text as Java does it; the expected texts are what `new String(bytes, UTF_8)` of Java 17 gave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.java_text import java_text


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
