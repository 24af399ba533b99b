"""DLedger's entries one by one: the specification's bytes, and what DLedger tests of its own coder.

Java: DLedgerEntryCoderTest.
"""

import struct
from dataclasses import replace

import pytest

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
from tests.formats.dledger_vectors import FIRST_FILE, INDEX_UNIT_2, PLACES, SECOND_FILE


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


FULL = Entry(1234, 12, 4_567_890, b"a body", magic=1, channel=77, chain_crc=-88, body_crc=2**31 - 1)


@pytest.mark.parametrize(
    "entry",
    [
        FULL,
        replace(FULL, body=b""),
        replace(FULL, magic=2),
        replace(FULL, magic=3),
        replace(FULL, index=2**63 - 1, term=2**63 - 1, offset=2**63 - 1),
        replace(FULL, channel=-(2**31), chain_crc=0, body_crc=-1),
    ],
    ids=["all fields", "no body", "NOOP", "CONFIG_CHANGE", "largest", "signs"],
)
def test_each_field_is_had_again(entry: Entry) -> None:
    data = encode_entry(entry)
    assert read_entry(b"before" + data + b"after", 6) == entry
    assert ENTRY_HEAD.read(data)["offset"] == entry.offset
    assert struct.unpack_from(">q", data, 24) == (entry.offset,)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("magic", 666, "no entry magic"),  # Java's coder takes it, its store does not
        ("magic", 0, "no entry magic"),
        ("size", 47, "entry size 47"),
        ("size", 2**31 - 1, "entry size 2147483647"),
        ("size", -1, "entry size -1"),
        ("body_size", 2**31 - 1, "body size 2147483647"),  # Java: an entry without a body
        ("body_size", -1, "body size -1"),
        ("body_size", 5, "body size 5"),
    ],
)
def test_a_field_that_no_entry_has_is_told(field: str, value: int, reason: str) -> None:
    data = bytearray(encode_entry(FULL))
    struct.pack_into(">i", data, ENTRY_HEAD.offset[field], value)
    found = read_entry(bytes(data), 0)
    assert isinstance(found, NoEntry)
    assert not found.is_empty
    assert reason in found.reason


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
