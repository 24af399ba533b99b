"""Requests and answers as bytes: what a broker sends, however it is cut, and what nobody sends."""

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.replica.remoting.client import BadFrame, Command, CommandReader

# What a RocketMQ 5.3.3 broker answered to request 99999, byte for byte.
REFUSAL = bytes.fromhex("000000a7000000a3") + (
    b'{"code":3,"flag":1,"language":"JAVA","opaque":6,"remark":" request type 99999 not supported",'
    b'"serializeTypeCurrentRPC":"JSON","version":479,"extFields":{"a":"b"}}  '
)
TEXTS = st.text(max_size=20)


def frame(header: object, body: bytes = b"") -> bytes:
    coded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(coded) + len(body), len(coded)) + coded + body


def test_an_answer_of_a_broker_is_read() -> None:
    (answer,) = CommandReader().read(REFUSAL)
    assert answer.is_answer
    assert (answer.code, answer.opaque, answer.remark) == (3, 6, " request type 99999 not supported")
    assert answer.fields == {"a": "b"}


@given(
    st.lists(
        st.builds(
            Command, st.integers(0, 10**6), st.integers(0, 2**31 - 1), st.dictionaries(TEXTS, TEXTS, max_size=3),
            st.binary(max_size=50), TEXTS, st.booleans(),
        ), max_size=4,
    ), st.lists(st.integers(1, 60)),
)  # fmt: skip
def test_commands_are_the_same_however_their_bytes_are_cut(commands: list[Command], cuts: list[int]) -> None:
    data, reader, found = b"".join(command.encode() for command in commands), CommandReader(), list[Command]()
    for size in [*cuts, len(data)]:
        found += reader.read(data[:size])
        data = data[size:]
    assert found == commands


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">ii", -1, 4),
        struct.pack(">ii", 2**31 - 1, 4),
        struct.pack(">ii", 3, 0),
        struct.pack(">ii", 10, 20),
        struct.pack(">iI", 100, 1 << 24 | 50),
        frame(b"{nothing"),
        frame([1]),
        frame({"code": 0, "opaque": 1}),
        frame({"code": "0", "opaque": 1, "flag": 1}),
        frame({"code": True, "opaque": 1, "flag": 1}),
        frame({"code": 0, "opaque": 1, "flag": 1, "extFields": [1]}),
        frame(b"[" * 2000),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 64,
    ],
    ids=range(14),
)
def test_what_no_peer_sends_is_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        CommandReader().read(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_commands_or_refused(data: bytes) -> None:
    reader = CommandReader(frame_size_max=1000)
    with suppress(BadFrame):
        assert all(len(command.body) <= 1000 for command in reader.read(data))


def test_more_than_is_read_is_refused_before_it_comes() -> None:
    with pytest.raises(BadFrame, match="1001"):
        CommandReader(frame_size_max=1000).read(struct.pack(">ii", 1001, 10))
