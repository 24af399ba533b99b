"""Entries of DLedger's log, many at once as one by one, and any bytes at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.directory.ledger.walk import entry_chain, entry_heads, named_places
from rmqstore.formats.dledger import ENTRY_HEAD, Entry, EntryBlank, NoEntry, encode_entry, read_entry
from tests.formats.dledger_vectors import FIRST_FILE, PLACES, SECOND_FILE

pytestmark = pytest.mark.stores


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
