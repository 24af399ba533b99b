"""Tags and times as users write them: what is meant, and slips that must not bring no row in silence."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore import Message, Rejected, StoreConfig, UnknownTopic, open_snapshot, open_store
from rmqstore.core.arguments import require_ms
from rmqstore.formats.wanted_words import key_words, tag_words
from tests.snapshot.small_store import FIRST_MS, SmallStore


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("", ()),
        (" * ", ()),
        ("paid", ("paid",)),
        (" paid||shipped || paid ", ("paid", "shipped")),
        ("O'Neil", ("O'Neil",)),
        ('["paid,shipped"]', ("paid,shipped",)),
        (""" ["'paid'", "a|b", "a|b"] """, ("'paid'", "a|b")),
        ("\t東京\u3000|| a\u00a0b\r\n", ("東京\u3000", "a\u00a0b")),
        ("\u3000", ("\u3000",)),
        ("\u2028||\x85x", ("\u2028", "\x85x")),
    ],
)
def test_tags(text: str, tags: tuple[str, ...]) -> None:
    assert tag_words(text) == tags


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("paid,shipped", 'write paid || shipped (no quotes, || between tags); if it is one tag, ["paid,shipped"]'),
        ("paid | shipped", "write paid || shipped (no quotes"),
        ("paid|shipped,'sent'", "write paid || shipped || sent (no quotes"),
        ("'paid'", "write paid (no quotes"),
        ('"paid" || "shipped"', "write paid || shipped (no quotes"),
        ("paid, ", "write paid (no quotes"),
        ("paid ||| shipped", "write paid || shipped (no quotes"),
        ("'", "write A || B (no quotes"),
        ("paid || *", "write tags as A || B, or * for any"),
        ("||", "write tags as A || B, or * for any"),
        (" ", "write tags as A || B, or * for any"),
        ("\n || \t", "write tags as A || B, or * for any"),
        ("*||*", "write tags as A || B, or * for any"),
        ("\x85a,b", 'if it is one tag, ["\\u0085a,b"]'),
        ("a\x7f,b", 'if it is one tag, ["a\\u007f,b"]'),
        ("paid ||", "write tags as A || B, or * for any"),
        ("[paid]", "or as a JSON list such as"),
        ("[]", "or as a JSON list such as"),
        ('[""]', "or as a JSON list such as"),
        ("[" * 100_000, "or as a JSON list such as"),
        ("x," * 100_000, "write A || B (no quotes"),
    ],
)
def test_what_looks_like_several_tags_and_would_be_one_is_refused(text: str, advice: str) -> None:
    with pytest.raises(Rejected, match=re.escape(advice)) as caught:
        tag_words(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("k1 || k2", ("k1", "k2")),
        ("\tk1 k2\n||k1\r\n", ("k1", "k2")),
        ("株式\u3000会社 a\u00a0b", ("株式\u3000会社", "a\u00a0b")),
        ("\u2028", ("\u2028",)),
        ('["\\tk", "x\\ty"]', ("\tk", "x\ty")),
    ],
)
def test_keys(text: str, keys: tuple[str, ...]) -> None:
    assert key_words(text) == keys


@pytest.mark.parametrize("text", ["", " ", "||", " || \t"])
def test_no_key_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match=re.escape("write message keys as k1 || k2")):
        key_words(text)


@pytest.mark.parametrize(("text", "meant"), [("x\ty", "x || y"), ("k1\nk2\r\n k3", "k1 || k2 || k3")])
def test_keys_in_lines_are_refused(text: str, meant: str) -> None:
    with pytest.raises(Rejected, match=re.escape(f"write {meant} (no quotes, || between keys); if it is one key, [")):
        key_words(text)


# White space to Python, letters to RocketMQ.
SPACES = ("\u3000", "\u00a0", "\x85", "\u2028", "\u2003")


def test_white_space_that_rocketmq_takes_for_letters_is_a_part_of_tags_and_keys(tmp_path: Path) -> None:
    """Its clients trim tags by `String.trim`, and a broker splits keys at U+0020 alone."""
    words = [text for space in SPACES for text in (f"東{space}京", f"{space}東", f"東{space}")]
    with open_store(tmp_path) as store:
        for word in words:
            store.put(Message("t", word.encode(), tags=word, keys=[word]))
    with open_store(tmp_path) as store:
        for number, word in enumerate(words):
            assert [found.body.decode() for found in store.get("t", 0, 0, tags=f"\t{word} ").messages] == [word]
            assert [found.queue_offset for found in store.query("t", word)] == [number]
    snapshot = open_snapshot(tmp_path)
    for number, word in enumerate(words):
        for wanted in ({"tags": word}, {"tags": f" {word} || none"}, {"keys": word}, {"keys": f"none {word}"}):
            assert snapshot.scan(["t"], **wanted).read_all().column("queueOffset").to_pylist() == [number], wanted


@given(st.text())
def test_any_text_is_tags_or_refused(text: str) -> None:
    try:
        tags = tag_words(text)
    except Rejected:
        return
    assert all(tag and "," not in tag for tag in tags) or text.strip().startswith("[")


@pytest.mark.parametrize(
    "wanted", [None, 0, 10**11, FIRST_MS, {"orders": {"0": FIRST_MS, "1": 0}}, "latest", True, 1.5]
)
def test_milliseconds_pass(wanted: Any) -> None:
    assert require_ms(wanted) is None


@pytest.mark.parametrize(
    "wanted", [1, 1_795_000_000, 10**11 - 1, "1795000000", {"orders": {"a": {"0": 1_795_000_000}}}]
)
def test_seconds_are_refused(wanted: Any) -> None:
    with pytest.raises(Rejected, match=r"times are in milliseconds, and \d+ looks like seconds: write \d+000$"):
        require_ms(wanted)


@pytest.mark.parametrize("name", ["start_time", "end_time"])
def test_a_scan_from_or_to_seconds_is_refused(tmp_path: Path, name: str) -> None:
    store = SmallStore(1024)
    store.add("orders", 0)
    store.write(tmp_path)
    with pytest.raises(Rejected, match="looks like seconds"):
        open_snapshot(tmp_path).scan(["orders"], **{name: FIRST_MS // 1000})


@pytest.mark.parametrize("topic", ["*", "orders*", "order?", "[o]rders"])
def test_a_pattern_in_place_of_a_topic_is_told_where_it_goes(tmp_path: Path, topic: str) -> None:
    store = SmallStore(1024)
    store.add("orders", 0)
    store.write(tmp_path)
    with pytest.raises(UnknownTopic, match=re.escape("pattern= takes a regular expression, .* for all")):
        open_snapshot(tmp_path).scan([topic])


@pytest.mark.parametrize("tags", ["paid,sent", "paid | sent", "'paid'"])
def test_a_get_by_what_is_no_subscription_is_refused(tmp_path: Path, tags: str) -> None:
    with open_store(tmp_path / "store", StoreConfig(preallocate=False), workers=False) as store:
        store.put(Message("orders", b"body", queue_id=0, tags="paid"))
        store.put(Message("orders", b"body", queue_id=0, tags=tags))
        with pytest.raises(Rejected, match=r"no quotes, \|\| between tags"):
            store.get("orders", 0, 0, tags=tags)
