"""Hosts as 8 or 20 bytes and as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.host import decode_host, encode_host


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("7F00000100002A9F", "127.0.0.1:10911"),
        ("CB00710900002A9F", "203.0.113.9:10911"),
        ("0000000000000000", "0.0.0.0:0"),
        ("00000000FFFFFFFF", "0.0.0.0:-1"),
        ("20010DB800000000000000000000000100002A9F", "[2001:db8::1]:10911"),
        ("00000000000000000000000000000000000000FF", "[::]:255"),
        ("00000000000000000000FFFF0102030400000001", "[::ffff:1.2.3.4]:1"),
    ],
)
def test_hosts_read_and_write(data: str, text: str) -> None:
    host = bytes.fromhex(data)
    assert decode_host(b"xy" + host + b"z", 2, len(host)) == text
    assert encode_host(text) == host


@given(st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20)))
def test_any_host_reads_back(host: bytes) -> None:
    assert encode_host(decode_host(memoryview(host), 0, len(host))) == host


@pytest.mark.parametrize(("size", "position"), [(4, 0), (16, 0), (20, 1), (8, 13), (0, 0)])
def test_other_sizes_and_cut_buffers_are_errors(size: int, position: int) -> None:
    with pytest.raises(ValueError, match="a host of"):
        decode_host(bytes(20), position, size)


@pytest.mark.parametrize(
    "text",
    ["", "localhost:1", "1.2.3.4", "1.2.3:4", "1.2.3.256:4", "2001:db8::1:5", "[1.2.3.4]:5", "[::1]", "[::g]:1",
     "1.2.3.4:99999999999", "1.2.3.4:2147483648", " 1.2.3.4:5", "1.2.3.4:5\n"],
)  # fmt: skip
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the address part is judged by ipaddress, in its own words
        encode_host(text)


@given(st.text("0123456789.:[]abf-", max_size=24))
def test_any_text_is_a_host_or_a_value_error(text: str) -> None:
    try:
        host = encode_host(text)
    except ValueError:
        return
    assert encode_host(decode_host(host, 0, len(host))) == host
