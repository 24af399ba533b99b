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


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, ""), (True, "true"), (1234567, "1,234,567"), (1234.5, "1,234.50"), ("two\n lines", "two lines")],
)
def test_a_cell_is_one_line(value, shown):
    assert printing.cell(value) == shown
