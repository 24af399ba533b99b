"""The slave's side of a connection: what it takes, what it acknowledges, and when it lets go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import sys_flag
from rmqstore.formats.message import FOOT, FRONT_SIZE_MAX, HEAD, STORE_TIME, encode_record, host_sizes, magic_of
from rmqstore.replica.link.slave_link import Append, BeginsLater, Diverged, Drop, OwnEnd, Phase, SlaveLink
from rmqstore.replica.link.wire import BLOCK_HEADER, BLOCK_SIZE_MAX, REPORT, Send
from tests.formats.records import make_record

LOG = bytes(range(256)) * 8
EMPTY = OwnEnd(0)


def block(offset: int, data: bytes) -> bytes:
    return BLOCK_HEADER.pack(offset, len(data)) + data


def begun(own: OwnEnd) -> tuple[SlaveLink, int]:
    """A link that has asked, and what it asked for."""
    link = SlaveLink(own, now_s=0.0)
    (first,) = link.begin()
    assert isinstance(first, Send)
    return link, REPORT.unpack(first.data)[0]


def received(link: SlaveLink, data: bytes, now_s: float = 0.1) -> list[object]:
    return list(link.received(data, now_s))


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        (EMPTY, 1),
        (OwnEnd(4096), 4096),
        (OwnEnd(None), 0),
        (OwnEnd(0, LOG[:100]), 1),
        (OwnEnd(500, LOG[500:600]), 500),
    ],
    ids=["the whole log", "from where the master's begins", "the newest file", "all compared", "the end compared"],
)
def test_the_first_report_asks_for_what_is_to_be_sent(own: OwnEnd, asked: int) -> None:
    assert begun(own)[1] == asked


def test_the_first_byte_of_a_whole_log_is_not_sent_and_is_zero() -> None:
    link, _ = begun(EMPTY)
    assert received(link, block(1, LOG[1:FRONT_SIZE_MAX])) == [Append(0, LOG[:FRONT_SIZE_MAX])]
    assert received(link, block(FRONT_SIZE_MAX, b"d")) == [Append(FRONT_SIZE_MAX, b"d")]


@pytest.mark.parametrize("portion", [1, 50, 200])
@pytest.mark.parametrize("body_size", [10, 2**24 - 95, 2**24 - 89, 2**24 - 80, 2**24, 2**25 + 3])
@pytest.mark.parametrize("topic", [b"t", b"t" * 127, b"t" * 200])
@pytest.mark.parametrize("host", [8, 20])
def test_the_first_byte_of_a_large_record_follows_from_its_lengths(
    portion: int, body_size: int, topic: bytes, host: int
) -> None:
    flag = sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6 if host == 20 else 0
    fields = {"sys_flag": flag, "born_host": bytes(host), "store_host": bytes(host), "magic": magic_of(len(topic))}
    record = bytearray(encode_record(make_record(topic=topic, body=bytes(300), **fields)))
    size_at = HEAD.size + STORE_TIME.size + 2 * host + FOOT.offset["body_size"]
    for at, size in ((0, len(record) - 300 + body_size), (size_at, body_size)):  # as if the body were larger
        record[at : at + 4] = size.to_bytes(4)
    link, _ = begun(EMPTY)
    got = list[object]()
    for begin in range(1, 301, portion):
        got += received(link, block(begin, record[begin : min(begin + portion, 301)]))
    assert b"".join(one.data for one in got if isinstance(one, Append)) == record[:301]
    assert isinstance(got[0], Append)
    assert got[0].offset == 0


@pytest.mark.parametrize("portion", [1, 7, 1000])
@pytest.mark.parametrize("flag", [0, sys_flag.BORN_HOST_V6, sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6])
@pytest.mark.parametrize("body_size", [0, 1, 20, 24, 25, 40])
def test_a_log_that_ends_with_its_first_record_comes_whole(body_size: int, flag: int, portion: int) -> None:
    """However small that is: nothing more may come for a long time."""
    born, store = (bytes(size) for size in host_sizes(flag))
    fields = {"sys_flag": flag, "born_host": born, "store_host": store, "properties": b""}
    record = encode_record(make_record(topic=b"t", body=bytes(body_size), **fields))
    link, _ = begun(EMPTY)
    got = list[object]()
    for begin in range(1, len(record), portion):
        got += received(link, block(begin, record[begin : begin + portion]))
    assert b"".join(one.data for one in got if isinstance(one, Append)) == record


def test_a_master_that_has_nothing_has_no_byte_that_a_new_slave_lacks() -> None:
    link, _ = begun(OwnEnd(0))
    assert received(link, block(1, b"")) == []
    assert (link.master_end, link.is_level) == (0, True)


def test_what_is_no_record_has_a_first_byte_too() -> None:
    """Whoever appends it sees that it is none; a size beyond 2 GiB is none that a record has."""
    record = encode_record(make_record(body=bytes(10)))
    body_size_at = FRONT_SIZE_MAX - 24 - 4
    assert int.from_bytes(record[body_size_at : body_size_at + 4]) == 10
    for body_size in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
        hostile = (record[:body_size_at] + body_size + record[body_size_at + 4 :]).ljust(300, b"\0")
        link, _ = begun(EMPTY)
        (first,) = received(link, block(1, hostile[1:]))
        assert first in (Append(0, hostile), Append(0, b"\x7f" + hostile[1:]))


def test_the_newest_file_begins_wherever_the_master_says() -> None:
    link, _ = begun(OwnEnd(None))
    assert received(link, block(8192, b"ab")) == [Append(8192, b"ab")]
    assert received(link, block(8194, b"c")) == [Append(8194, b"c")]


@given(
    st.integers(0, 300), st.integers(0, 300), st.lists(st.integers(0, 90), max_size=12), st.lists(st.integers(1, 40))
)
def test_however_it_is_cut_what_is_appended_is_the_rest_of_the_masters_log(
    compared_from: int, own_size: int, blocks: list[int], reads: list[int]
) -> None:
    own_end = compared_from + own_size
    link, asked = begun(OwnEnd(compared_from, LOG[compared_from:own_end]))
    stream, offset = b"", asked
    for size in blocks:
        stream += block(offset, LOG[offset : offset + size]) if size else b""
        offset += size
    got, position, appended = list[object](), 0, b""
    for size in [*reads, len(stream)]:
        got += received(link, stream[position : position + size])
        position += size
    begin = own_end
    for one in got:
        assert isinstance(one, Append)
        assert one.offset == begin + len(appended)
        appended += one.data
    is_known = own_end > 0 or offset >= FRONT_SIZE_MAX  # what byte 0 is
    assert appended == (LOG[own_end : max(offset, own_end)] if offset > asked and is_known else b"")


@pytest.mark.parametrize("place", [600, 633, 699])
def test_other_bytes_at_the_own_end_are_found_before_anything_is_appended(place: int) -> None:
    link, _ = begun(OwnEnd(600, LOG[600:700]))
    theirs = bytearray(LOG[600:800])
    theirs[place - 600] ^= 1
    (found,) = received(link, block(600, bytes(theirs)))
    assert isinstance(found, Diverged)
    assert found.offset == place
    assert link.phase is Phase.OVER
    assert received(link, block(800, b"x")) == []


def test_a_master_whose_log_ends_before_ours_is_told_by_its_heartbeat() -> None:
    link, _ = begun(OwnEnd(600, LOG[600:700]))
    assert received(link, block(600, LOG[600:650])) == []
    (found,) = received(link, block(650, b""))
    assert found == Diverged(650, "the master's log ends there, and ours ends at 700")


@pytest.mark.parametrize("own", [EMPTY, OwnEnd(500, LOG[500:600]), OwnEnd(0, LOG[:100])])
def test_a_master_whose_log_begins_later_says_so(own: OwnEnd) -> None:
    link, asked = begun(own)
    assert received(link, block(asked + 1, b"")) == [BeginsLater(asked + 1)]
    assert link.phase is Phase.OVER
    assert received(link, block(asked + 1, b"abc")) == []


def test_a_master_whose_log_ends_before_what_is_compared_says_so() -> None:
    link, _ = begun(OwnEnd(500, LOG[500:600]))
    assert received(link, block(499, b"")) == [Diverged(499, "the master's log ends there")]


def test_it_is_level_once_a_heartbeat_says_so_and_until_more_comes() -> None:
    link, _ = begun(OwnEnd(100))
    seen = [link.is_level]
    for data in (b"abc", b"", b"", b"d"):
        received(link, block(100 if data == b"abc" else 103, data))
        seen.append(link.is_level)
    assert seen == [False, False, True, True, False]


@pytest.mark.parametrize("offset", [0, 99, 101, 2**62])
def test_a_block_that_does_not_follow_is_not_taken(offset: int) -> None:
    link, _ = begun(OwnEnd(100))
    (found,) = received(link, block(offset, b"abc") + block(100, b"abc"))
    assert found == Drop(f"the master sent offset {offset}, and 100 comes next")


@pytest.mark.parametrize(
    "header",
    [(-1, 0), (100, -1), (100, -12), (100, BLOCK_SIZE_MAX + 1), (100, 2**31 - 1), (-(2**63), 5)],
    ids=str,
)
def test_a_header_that_no_master_sends_ends_the_connection(header: tuple[int, int]) -> None:
    link, _ = begun(OwnEnd(100))
    (found,) = received(link, BLOCK_HEADER.pack(*header) + b"x" * 64)
    assert isinstance(found, Drop)
    assert str(header[1]) in found.reason


def test_only_what_is_durable_is_acknowledged_and_once() -> None:
    link, _ = begun(OwnEnd(100))
    assert link.durable(100, 0.2) == []
    received(link, block(100, b"abcdef"))
    assert link.durable(103, 0.3) == [Send(REPORT.pack(103))]
    assert link.durable(103, 0.4) == []
    assert link.tick(5.2) == []
    assert link.tick(5.3) == [Send(REPORT.pack(103))]


def test_while_the_ends_are_compared_nothing_is_acknowledged() -> None:
    link, _ = begun(OwnEnd(600, LOG[600:700]))
    received(link, block(600, LOG[600:650]))
    assert link.durable(700, 0.3) == []
    received(link, block(650, LOG[650:700]))
    assert link.durable(700, 0.3) == [Send(REPORT.pack(700))]


def test_a_master_that_falls_silent_is_left() -> None:
    link, _ = begun(OwnEnd(100))
    received(link, block(100, b"abc"), 1.0)
    assert [type(one) for one in link.tick(20.9)] == [Send]
    assert link.tick(21.0) == [Drop("the master sent no valid block for 20 s")]
    assert link.tick(60.0) == []


def test_a_master_that_never_says_anything_is_left_with_what_may_be_wrong() -> None:
    link, _ = begun(OwnEnd(600, LOG[600:700]))
    (found,) = link.tick(20.0)
    assert isinstance(found, Drop)
    assert "its log ends before offset 600, or begins after it" in found.reason


def test_it_wakes_for_its_heartbeat_and_for_silence() -> None:
    link, _ = begun(OwnEnd(100))
    assert link.wakes_at_s == 5.0
    for now_s in (5.0, 10.0, 15.0):
        link.tick(now_s)
    assert link.wakes_at_s == 20.0


def test_single_bytes_that_drip_in_are_silence_and_a_large_block_that_comes_slowly_is_not() -> None:
    link, _ = begun(OwnEnd(100))
    data = block(100, bytes(1_000_100))
    for second in range(200):
        received(link, data[5000 * second : 5000 * (second + 1)], float(second))
        assert not any(isinstance(one, Drop) for one in link.tick(float(second)))
    for second in range(200, 219):
        received(link, b"\0", float(second))
        assert not any(isinstance(one, Drop) for one in link.tick(float(second)))
    received(link, b"\0", 219.5)
    assert isinstance(link.tick(220.0)[0], Drop)
