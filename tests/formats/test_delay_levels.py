"""What a value of DELAY asks for; the expected levels are what RocketMQ 5.3.3 and 4.9.8 dispatched such records by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.delay_levels import (
    LevelsSince,
    asked_level,
    asked_levels,
    clamped,
    noted_levels,
    parse_levels,
    tables_of,
    waits_at,
    waits_ms,
)
from rmqstore.formats.java_text import java_text

ASKED = {
    "3": 3, "+3": 3, "-3": -3, "0": 0, "-0": 0, "99": 99, "2147483647": 2**31 - 1, "2147483648": None,
    "-2147483648": -(2**31), "9999999999": None, "0000000000003": 3, "0" * 40 + "3": 3, "\u0663": 3, "+\uff13": 3,
    "\U0001d7db": None, "+": None, "": 0, " 3": None, "3 ": None, "x": None, "\ufffd": None,
}  # fmt: skip


@pytest.mark.parametrize(("text", "level"), ASKED.items())
def test_a_value_asks_for_what_java_reads(text: str, level: int | None) -> None:
    assert asked_level(text) == level


def test_no_value_asks_for_no_level() -> None:
    assert asked_level(None) == 0


VALUES = st.sampled_from([text.encode() for text in ASKED]) | st.text("+-0123456789 \u0663", max_size=25).map(
    str.encode
)


@given(st.lists(st.none() | VALUES | st.binary(max_size=3), max_size=9))
def test_many_values_ask_for_what_each_does(values: list[bytes | None]) -> None:
    data = np.frombuffer(b"1" + b"".join(value or b"" for value in values) + b"1", np.uint8)
    sizes = np.array([-1 if value is None else len(value) for value in values], np.int64)
    starts = 1 + np.cumsum(np.maximum(sizes, 0)) - np.maximum(sizes, 0)
    one_by_one = [asked_level(None if value is None else java_text(value)) or 0 for value in values]
    assert asked_levels(data, starts, sizes).tolist() == one_by_one


@pytest.mark.parametrize(
    ("level", "level_count", "used"),
    [(1, 3, 1), (3, 3, 3), (4, 3, 3), (2**31 - 1, 3, 3), (0, 3, 0), (-1, 3, -1), (2, 0, 0)],
)
def test_a_level_above_the_highest_is_the_highest(level: int, level_count: int, used: int) -> None:
    assert clamped(level, level_count) == used
    assert clamped(np.array([level, 1]), level_count).tolist() == [used, min(1, level_count)]


def test_what_a_level_waits() -> None:
    levels = np.array([-(2**31), -1, 0, 1, 2, 3, 2**31 - 1])
    assert waits_ms(levels, (5000, 7000)).tolist() == [0, 0, 0, 5000, 7000, 7000, 7000]
    assert waits_ms(levels, ()).tolist() == [0] * 7


def test_a_table_names_what_it_does_not_take() -> None:
    assert parse_levels("1s 2m 3h 4d") == (1000, 120_000, 10_800_000, 345_600_000)
    with pytest.raises(ValueError, match=r"'5x' is not a number with s, m, h or d"):
        parse_levels("1s 5x")


@pytest.mark.parametrize("piece", ["106751991168d", "9223372036854776s", "9" * 5000 + "s"])
def test_a_level_is_no_longer_than_64_bits_of_milliseconds(piece: str) -> None:
    with pytest.raises(ValueError, match=r"is too long: 64 bits do not hold its milliseconds"):
        parse_levels(f"1s {piece}")
    assert parse_levels("106751991167d 9223372036854775s")


def test_waits_by_the_levels_of_their_place() -> None:
    """What stands before the first table goes by it, too; a level above the highest of a place is the highest."""
    tables = (LevelsSince(100, (1, 2)), LevelsSince(200, ()), LevelsSince(300, (7,)), LevelsSince(300, (9, 0)))
    asked = [(1, 0), (5, 150), (1, 199), (1, 200), (0, 300), (-1, 10), (1, 300), (2, 400)]
    levels, offsets = (np.array(column) for column in zip(*asked, strict=True))
    assert waits_at(levels, offsets, tables).tolist() == [1, 2, 1, -1, -1, -1, 9, 0]


def test_a_note_of_levels() -> None:
    assert noted_levels([]) == ()
    assert tables_of(noted_levels([[0, "1s 2s"], [70, ""], [70, "1m"]])) == (
        LevelsSince(0, (1000, 2000)), LevelsSince(70, ()), LevelsSince(70, (60_000,))
    )  # fmt: skip


@pytest.mark.parametrize(
    "note", [None, "1s", {}, [[0]], [["0", "1s"]], [[0, "1x"]], [[9, "1s"], [8, "1s"]], [[-1, ""]]]
)
def test_what_is_no_note_of_levels(note: object) -> None:
    with pytest.raises(ValueError, match="no"):
        noted_levels(note)
