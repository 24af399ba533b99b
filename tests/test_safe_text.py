"""Text of a store, made harmless."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.core.safe_text import SHOWN_MAX, script_json, text_html, visible
from tests.report.stores import HARMS, LIES


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("Größe 数量", "Größe 数量"),
        ("\u202egnp.exe", "\\u202Egnp.exe"),
        ("a\x00b\x1b", "a\\u0000b\\u001B"),
        ("a\u00a0b c", "a\\u00A0b c"),
        ("\ud800", "\\uD800"),
        ("\U000e0041", "\\U000E0041"),
        ("", ""),
    ],
)
def test_all_of_a_text_can_be_seen(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(alphabet=st.characters(), max_size=300))
def test_nothing_invisible_is_left(text: str) -> None:
    for character in visible(text):
        assert character == " " or unicodedata.category(character)[0] not in "CZ"
    assert len(visible(text)) <= SHOWN_MAX + 40


def test_a_long_text_is_cut_and_the_rest_counted() -> None:
    assert visible("x" * 100_000) == "x" * SHOWN_MAX + "… (99,840 more characters)"


@pytest.mark.parametrize("text", [*HARMS, *LIES])
def test_no_markup_of_its_own(text: str) -> None:
    made = text_html(text)
    for known in ("<bdi>", "</bdi>", '<span class="esc">', "</span>"):
        made = made.replace(known, "")
    assert not set("<>\"'") & set(made)


@given(st.recursive(st.text() | st.integers(), lambda part: st.lists(part) | st.dictionaries(st.text(), part)))
def test_json_in_a_script_is_the_same_and_ends_nothing(document: object) -> None:
    made = script_json(document)
    assert made.isascii()
    assert not set("<>&") & set(made)
    assert json.loads(made) == document
