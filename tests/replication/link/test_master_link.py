"""The master's side of a connection: what it sends, what it believes, and when it lets go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.replica.link.master_link import Acknowledged, LogBounds, MasterLink, Pace, SendRegion
from rmqstore.replica.link.slave_link import Append, Drop, OwnEnd, SlaveLink
from rmqstore.replica.link.wire import BLOCK_HEADER, REPORT, Send

LOG = LogBounds(start=0, end=2500, file_size=1000)


def asked(report: int, log: LogBounds = LOG, *, whole_history: bool = False) -> MasterLink:
    link = MasterLink(0.0, whole_history=whole_history)
    link.received(REPORT.pack(report), log, 0.1)
    return link


@pytest.mark.parametrize(
    ("report", "whole", "first"),
    [(0, False, 2000), (0, True, 0), (1, False, 1), (1234, False, 1234), (2500, False, 2500)],
)  # fmt: skip
def test_where_it_begins_is_what_the_first_report_asks_for(report: int, whole: bool, first: int) -> None:
    assert asked(report, whole_history=whole).next == first


def test_nothing_is_sent_before_the_slave_has_asked() -> None:
    link = MasterLink(0.0)
    assert link.more(LOG, 9.0) is None
    assert link.received(REPORT.pack(-1), LOG, 9.0) == []
    assert link.more(LOG, 9.0) is None


def test_a_block_never_crosses_the_end_of_a_file() -> None:
    link = asked(1)
    sent = []
    while isinstance(region := link.more(LOG, 0.2), SendRegion):
        assert BLOCK_HEADER.unpack(region.header) == (region.offset, region.size)
        sent.append((region.offset, region.size))
    assert sent == [(1, 999), (1000, 1000), (2000, 500)]


def test_no_more_than_the_rate_goes_out_in_a_second() -> None:
    link = MasterLink(0.0, pace=Pace(block_size=400, rate_bytes_s=700))
    link.received(REPORT.pack(1), LOG, 0.0)
    sizes = [region.size for _ in range(9) if isinstance(region := link.more(LOG, 0.5), SendRegion)]
    assert sizes == [400, 300]
    assert isinstance(link.more(LOG, 1.0), SendRegion)


def test_a_clock_that_is_set_back_does_not_stop_it() -> None:
    link = MasterLink(100.0, pace=Pace(block_size=400, rate_bytes_s=400))
    link.received(REPORT.pack(1), LOG, 100.0)
    assert isinstance(link.more(LOG, 100.0), SendRegion)
    assert isinstance(link.more(LOG, 5.0), SendRegion)


@pytest.mark.parametrize("report", [1001, 2501, 2**62, -1, -(2**63)])
def test_an_acknowledgement_of_what_was_not_sent_ends_the_connection(report: int) -> None:
    link = asked(1)
    link.more(LOG, 0.1)
    assert link.received(REPORT.pack(600), LOG, 0.2) == [Acknowledged(600)]
    (answer,) = link.received(REPORT.pack(report), LOG, 0.3)
    assert isinstance(answer, Drop)
    assert link.acknowledged == 600
    assert link.more(LOG, 0.4) is None


def test_a_slave_that_has_more_than_this_log_is_told_so() -> None:
    link = MasterLink(0.0)
    (answer,) = link.received(REPORT.pack(2501), LOG, 0.1)
    assert answer == Drop("the slave asks for offset 2501, but this log ends at 2500", BLOCK_HEADER.pack(2500, 0))


def test_what_retention_has_taken_cannot_be_sent() -> None:
    link = asked(1)
    answer = link.more(LOG._replace(start=1000), 0.2)
    assert answer == Drop("the slave needs offset 1, but this log now begins at 1000", BLOCK_HEADER.pack(1000, 0))


def test_an_idle_link_has_heartbeats_that_say_what_comes_next() -> None:
    link = asked(2500)
    assert link.more(LOG, 0.2) == Send(BLOCK_HEADER.pack(2500, 0))
    assert link.more(LOG, 5.1) is None
    assert link.more(LOG, 5.2) == Send(BLOCK_HEADER.pack(2500, 0))
    assert link.more(LOG, 5.3) is None


def test_a_slave_that_has_caught_up_hears_so_soon() -> None:
    link = asked(2000)
    assert isinstance(link.more(LOG, 1.0), SendRegion)
    assert link.more(LOG, 1.1) is None
    assert link.more(LOG, 1.25) == Send(BLOCK_HEADER.pack(2500, 0))
    assert link.more(LOG, 6.2) is None
    assert link.more(LOG, 6.25) == Send(BLOCK_HEADER.pack(2500, 0))


def test_a_silent_slave_is_let_go() -> None:
    link = asked(1)
    assert link.tick(20.0) == []
    assert link.tick(20.1) == [Drop("nothing came from the slave for 20 s")]


@given(st.lists(st.integers(1, 9), max_size=20), st.integers(0, 2500))
def test_the_two_sides_agree_however_the_bytes_are_cut(cuts: list[int], own_end: int) -> None:
    bytes_of_log = bytes(n * 7 % 251 for n in range(LOG.end))
    begin = max(own_end - 100, 0)
    slave = SlaveLink(OwnEnd(begin, bytes_of_log[begin:own_end]) if own_end else OwnEnd(0), 0.0)
    master = MasterLink(0.0, pace=Pace(block_size=128))
    to_master = b"".join(one.data for one in slave.begin() if isinstance(one, Send))
    to_slave, log = b"", b"\0" if own_end == 0 else bytes_of_log[:own_end]
    for count in [*cuts, *[4096] * 60]:
        master.received(to_master[:count], LOG, 0.1)
        to_master = to_master[count:]
        if (region := master.more(LOG, 0.1)) and isinstance(region, SendRegion):
            to_slave += region.header + bytes_of_log[region.offset : region.offset + region.size]
        for decision in slave.received(to_slave[:count], 0.1):
            assert isinstance(decision, Append)
            log = log[: decision.offset] + decision.data
        to_slave = to_slave[count:]
        to_master += b"".join(one.data for one in slave.durable(len(log), 0.1) if isinstance(one, Send))
    assert log == bytes_of_log
    assert master.acknowledged == LOG.end
