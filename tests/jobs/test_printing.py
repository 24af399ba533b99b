"""Text for a terminal of 80 columns."""

import pytest

from jobs import printing


def test_a_paragraph_is_wrapped_and_its_blanks_are_single():
    text = printing.paragraph("word   " * 40 + "\n   last")
    assert max(map(len, text.splitlines())) <= printing.WIDTH
    assert text.split() == ["word"] * 40 + ["last"]


def test_a_long_path_stays_whole():
    path = "/directory" * 10
    assert path in printing.paragraph(f"it is in {path}").splitlines()


def test_code_keeps_its_own_indentation():
    assert printing.code("\na\n  b\n") == "\n    a\n      b\n"


def test_facts_go_on_below_themselves():
    lines = printing.facts([("name", "value"), ("longer name", "word " * 30)]).splitlines()
    assert lines[0] == "  name         value"
    assert lines[1].startswith("  longer name  word word")
    assert len(lines) > 2
    assert all(line.startswith(" " * 15 + "word") and len(line) <= printing.WIDTH for line in lines[2:])


@pytest.mark.parametrize(("text", "width"), [("", 0), ("Köln", 4), ("東京", 4), ("e\u0301", 1), ("Łódź", 4)])
def test_a_terminal_shows_wide_and_combining_characters(text, width):
    assert printing.shown_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "ab..."),
        ("ab cdefg", 6, "ab..."),
        ("東京都", 5, "東..."),
        ("東京都", 4, "..."),
    ],
)
def test_what_does_not_fit_is_cut(text, width, shown):
    assert printing.cut(text, width) == shown
    assert printing.shown_width(shown) <= width


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, ""), (True, "true"), (1234567, "1,234,567"), (1234.5, "1,234.50"), ("two\n lines", "two lines")],
)
def test_a_cell_is_one_line(value, shown):
    assert printing.cell(value) == shown


def test_numbers_stand_right_and_the_last_column_gives_way():
    rows = [["city", "count", "text"], ["東京", "7", "x" * 100], ["Lisbon", "1,200", ""]]
    lines = printing.lay_out(rows, [False, True, False]).splitlines()
    assert lines[0] == "  city    count  text"
    assert lines[1] == "  ------  -----  " + "-" * 63
    assert lines[2] == "  東京        7  " + "x" * 60 + "..."
    assert lines[3] == "  Lisbon  1,200"
