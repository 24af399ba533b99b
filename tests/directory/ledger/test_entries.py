"""Entries of DLedger's log: the specification's bytes, any bytes at all, and many at once as one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.directory.ledger.entry_columns import entry_chain, entry_heads, named_places
from rmqstore.errors import Corrupt
from rmqstore.formats.dledger import (
    COMMITTED_INDEX,
    END_INDEX,
    ENTRY_BLANK,
    ENTRY_HEAD,
    Entry,
    EntryBlank,
    NoEntry,
    Term,
    checkpoint_text,
    encode_entry,
    index_unit,
    is_entry,
    read_entry,
    read_numbers,
    read_term,
    term_text,
)

# Data files of 256 bytes, index files of 128, as RocketMQ's library wrote them: five entries of term 3.
FIRST_FILE = bytes.fromhex(
    "00000001 00000037 0000000000000000 0000000000000003 0000000000000000 00000000 00000000 00000000 00000007"
    "68656c6c6f2d30"
    "00000001 00000037 0000000000000001 0000000000000003 0000000000000037 00000000 00000000 00000000 00000007"
    "68656c6c6f2d31"
    "00000001 00000037 0000000000000002 0000000000000003 000000000000006e 00000000 00000000 00000000 00000007"
    "68656c6c6f2d32"
    "00000001 00000037 0000000000000003 0000000000000003 00000000000000a5 00000000 00000000 00000000 00000007"
    "68656c6c6f2d33"
    "ffffffff 00000024"
).ljust(256, b"\0")
SECOND_FILE = bytes.fromhex(
    "00000001 00000037 0000000000000004 0000000000000003 0000000000000100 00000000 00000000 00000000 00000007"
    "68656c6c6f2d34"
).ljust(256, b"\0")
INDEX_UNIT_2 = bytes.fromhex("00000001 000000000000006e 00000037 0000000000000002 0000000000000003")
PLACES = [0, 55, 110, 165]


def test_the_vectors_read_and_encode() -> None:
    for index, place in enumerate(PLACES):
        entry = Entry(index, 3, place, b"hello-%d" % index)
        assert read_entry(FIRST_FILE, place) == entry
        assert encode_entry(entry) == FIRST_FILE[place : place + 55]
    assert read_entry(FIRST_FILE, 220) == EntryBlank(36)
    last = Entry(4, 3, 256, b"hello-4")
    assert read_entry(SECOND_FILE, 0) == last
    assert read_entry(SECOND_FILE, 55) == NoEntry("no data", is_empty=True)
    assert index_unit(Entry(2, 3, 110, b"hello-2")) == INDEX_UNIT_2
    assert is_entry(SECOND_FILE, 256)
    assert not is_entry(SECOND_FILE, 0)


def test_many_at_once_are_those_one_by_one() -> None:
    page = np.frombuffer(FIRST_FILE, np.uint8)
    assert entry_chain(page, 0, 0).tolist() == PLACES
    assert entry_chain(page, 55, 0).tolist() == PLACES[1:]
    assert entry_chain(page, 0, 256).tolist() == []
    assert entry_chain(np.frombuffer(SECOND_FILE, np.uint8), 0, 256).tolist() == [0]
    heads = entry_heads(page, np.array(PLACES))
    assert heads["index"].tolist() == [0, 1, 2, 3]
    assert heads["term"].tolist() == [3] * 4


def test_a_body_that_looks_like_entries_is_none() -> None:
    """It names its own place, and is whole."""
    first = Entry(0, 1, 0, b"x" * 30)
    inner = encode_entry(Entry(7, 9, first.size + ENTRY_HEAD.size, b"inner"))
    entries = [first, Entry(1, 1, first.size, inner)]
    entries.append(Entry(2, 1, entries[1].offset + entries[1].size, b""))
    page = np.frombuffer(b"".join(map(encode_entry, entries)), np.uint8)
    assert len(named_places(page, 0, 0)) == 4
    assert entry_chain(page, 0, 0).tolist() == [entry.offset for entry in entries]


BODIES = st.lists(st.binary(max_size=60), max_size=12)


@given(BODIES, st.integers(0, 2**62), st.integers(0, 80))
def test_a_chain_of_any_bodies(bodies: list[bytes], base: int, cut: int) -> None:
    data, starts = b"", []
    for index, body in enumerate(bodies):
        starts.append(len(data))
        data += encode_entry(Entry(index, 1, base + len(data), body))
    page = np.frombuffer(data[: len(data) - cut] if cut else data, np.uint8)
    whole = [start for start, end in zip(starts, [*starts[1:], len(data)], strict=False) if end <= len(page)]
    assert entry_chain(page, 0, base).tolist() == whole


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_bytes_are_read_and_never_raise(data: bytes, position: int) -> None:
    position = min(position, len(data))
    found = read_entry(data, position)
    assert isinstance(found, Entry | EntryBlank | NoEntry)
    entry_chain(np.frombuffer(data, np.uint8), position, 0)


@pytest.mark.parametrize("size", [0, 7, -1])
def test_a_blank_that_is_too_small_is_none(size: int) -> None:
    assert isinstance(read_entry(ENTRY_BLANK.struct.pack(-1, size) + bytes(40), 0), NoEntry)


def test_the_small_files_are_javas() -> None:
    assert term_text(Term(3, "n0")) == "voteLeader=n0\ncurrTerm=3\n"
    assert term_text(Term(3, None)) == "voteLeader=\ncurrTerm=3\n"
    assert checkpoint_text(3, 4) == "committedIndex=3\nendIndex=4\n"
    assert read_term("voteLeader=\ncurrTerm=3\n") == Term(3, None)
    assert read_term(b"# written\n currTerm = 5 \nvoteLeader=n1\n") == Term(5, "n1")
    assert read_numbers("endIndex=4\ncommittedIndex=3\nother=x\n") == {END_INDEX: 4, COMMITTED_INDEX: 3}


@pytest.mark.parametrize("text", ["", "currTerm=\n", "currTerm=x\n", "currTerm=99999999999999999999\n", "\xff"])
def test_a_term_file_that_says_none_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt):
        read_term(text.encode("latin-1"))
