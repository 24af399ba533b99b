"""What the commands print with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rmqstore.cli.output import body_fields, body_text, byte_size, fitted, padded, printable, utc, wrapped


@given(st.text())
def test_nothing_steers_the_terminal(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in shown)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Mn", "Me", "Cf"])), st.integers(1, 30))
def test_cells_keep_their_width(text: str, size: int) -> None:
    assert cell_len(fitted(text, size)) <= size
    assert cell_len(padded(fitted(text, size), size)) == size


def test_bodies() -> None:
    assert body_fields("größe".encode()) == {"body": "größe"}
    assert body_fields(b"\xff\x00") == {"bodyBase64": "/wA="}
    assert body_fields(None) == {"body": None}
    assert body_text(b"a\nb\x1b[2J", " ") == "a b\ufffd[2J"
    assert body_text(b"\xff\x00", " ") == "2 bytes: ff 00"


@pytest.mark.parametrize(("size", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes(size: int, shown: str) -> None:
    assert byte_size(size) == shown


def test_times() -> None:
    assert utc(1_700_000_000_123) == "2023-11-14 22:13:20"
    assert utc(None) == utc(2**62) == ""


def test_wrapped_lines_stand_under_each_other() -> None:
    first, second = wrapped("  name  ", "word " * 20).splitlines()
    assert first.startswith("  name  word")
    assert second.startswith("        word")
