"""The properties block in all its dialects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import properties
from rmqstore.formats.properties import encode_properties, parse_properties, split_keys


@pytest.mark.parametrize(
    ("block", "parsed"),
    [
        (b"", {}),
        (b"TAGS\x01A\x02KEYS\x01k\x02", {"TAGS": "A", "KEYS": "k"}),  # up to 4.9.0 and since 5.2.0
        (b"TAGS\x01A\x02KEYS\x01k", {"TAGS": "A", "KEYS": "k"}),  # 4.9.1 … 5.1.4
        (b"a\x01b", {"a": "b"}),
        (b"a\x01\x02b\x01c\x02", {"b": "c"}),  # empty values vanish
        (b"\x01a\x02", {}),
        (b"ab\x02cd", {}),
        (b"a\x01\x02", {}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),  # the first 0x01 separates
        (b"a\x011\x02b\x012\x02a\x013\x02", {"a": "3", "b": "2"}),  # the last of a name wins
        (b"a\x011\x02a\x01\x02", {"a": "1"}),  # and an unusable piece is none
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        ("ключ\x01значение\x02".encode(), {"ключ": "значение"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
        (b"a\x01b\x02" + b"\0" * 20, {"a": "b"}),  # 5.2.0 left room for a CRC that it did not write
    ],
)
def test_blocks_parse_as_in_java(block: bytes, parsed: dict[str, str]) -> None:
    assert parse_properties(block) == parsed


TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXT.filter(len), TEXT), st.booleans())
def test_what_is_encoded_reads_back_without_the_empty_values(mapping: dict[str, str], closed: bool) -> None:
    block = encode_properties(mapping)
    assert parse_properties(block if closed else block.removesuffix(b"\x02")) == {k: v for k, v in mapping.items() if v}


@given(st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"\xff", "é".encode()]), max_size=30).map(b"".join))
def test_any_block_parses(block: bytes) -> None:
    assert all(name and value for name, value in parse_properties(block).items())


def test_encoding_ends_in_a_separator() -> None:
    assert encode_properties({properties.TAGS: "A"}) == bytes.fromhex("54414753014102")


def test_a_lone_surrogate_is_written_as_java_writes_it() -> None:
    assert encode_properties({"a": "\ud800"}) == b"a\x01?\x02"


@pytest.mark.parametrize("mapping", [{"": "a"}, {"a\x01": "b"}, {"a": "b\x02"}, {"a": "\x01"}])
def test_separators_inside_are_refused(mapping: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="separator"):
        encode_properties(mapping)


def test_keys_are_cut_at_single_spaces() -> None:
    assert split_keys(" a  b c\t ") == ["a", "b", "c\t"]
