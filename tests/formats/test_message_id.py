"""Offset message ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.host import encode_host
from rmqstore.formats.message_id import offset_message_id, parse_offset_message_id


@pytest.mark.parametrize(
    ("host", "offset", "text"),
    [
        ("127.0.0.1:10911", 0, "7F00000100002A9F0000000000000000"),
        ("220.83.192.16:10911", 492, "DC53C01000002A9F00000000000001EC"),
        ("[2001:db8::1]:10911", 2**63 - 1, "20010DB800000000000000000000000100002A9F7FFFFFFFFFFFFFFF"),
    ],
)
def test_ids_are_host_and_offset_in_upper_case_digits(host: str, offset: int, text: str) -> None:
    assert offset_message_id(encode_host(host), offset) == text
    assert parse_offset_message_id(text) == (encode_host(host), offset)
    assert parse_offset_message_id(text.lower()) == (encode_host(host), offset)


@given(
    st.sampled_from([8, 20]).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    st.integers(-(2**63), 2**63 - 1),
)
def test_any_id_reads_back(host: bytes, offset: int) -> None:
    text = offset_message_id(host, offset)
    assert len(text) in (32, 56)
    assert parse_offset_message_id(text) == (host, offset)


@pytest.mark.parametrize("text", ["", "7F", "G" * 32, "0" * 31, "0" * 33, "0" * 34, "0" * 55, "0 " * 16, "٠" * 32])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an offset message id"):
        parse_offset_message_id(text)


def test_other_hosts_are_refused() -> None:
    with pytest.raises(ValueError, match="store host of 4 bytes"):
        offset_message_id(b"1234", 0)
