"""The page as text: what a parser finds in it."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rmqstore.report import cards_of, page_of
from rmqstore.report.page import ROWS_MAX, Column, table_html
from tests.report.conftest import figures_of, hostile_figures
from tests.report.stores import HARMS, LIES

pytestmark = pytest.mark.stores

OURS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "ul", "li", "b", "span",
    "noscript", "nav", "a", "main", "section", "div", "details", "summary", "table", "caption", "thead", "tbody",
    "tr", "th", "td", "bdi", "svg", "rect", "footer", "script",
}  # fmt: skip


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the text in each kind of element."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_names_become_no_elements_and_no_attributes(tmp_path: Path) -> None:
    page = Elements(page_of(hostile_figures(tmp_path)))
    assert {tag for tag, _ in page.found} <= OURS
    assert sum(tag == "script" for tag, _ in page.found) == 2
    names = {name for _, attributes in page.found for name in attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not {"src", "srcset", "style", "action", "formaction"} & names
    assert {str(given["href"])[:1] for tag, given in page.found if tag == "a"} == {"#"}
    assert all(given.get("id") != "harm" for _, given in page.found)


def test_every_name_is_there_to_be_read(tmp_path: Path) -> None:
    page = page_of(hostile_figures(tmp_path)).decode()
    for name in HARMS:
        if name.isprintable():
            assert name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;").replace(
                "'", "&#x27;") in page  # fmt: skip
    for shown in ("\\u202E", "\\u200B", "\\u0000", "\\u001B", "\\uFEFF", "\\u2066", "\\u00A0"):
        assert f'<span class="esc">{shown}</span>' in page


def test_nothing_that_misleads_is_left(tmp_path: Path) -> None:
    page = page_of(hostile_figures(tmp_path)).decode()
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", page
    )
    assert any("\u202e" in lie for lie in LIES)


def test_the_policy_names_what_may_run(tmp_path: Path) -> None:
    page = page_of(hostile_figures(tmp_path)).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert {"script-src", "style-src", "default-src", "base-uri", "form-action"} == rules.keys()
    for kind in ("script-src", "style-src"):
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", rules[kind])
    assert "http:" not in policy + page.split("<script>")[0]


def test_the_licence_of_the_plots_goes_with_them(tmp_path: Path) -> None:
    page = page_of(hostile_figures(tmp_path)).decode()
    assert "Permission is hereby granted, free of charge" in page
    assert "uPlot (v1.6.32)" in page


def test_data_of_plots_are_those_of_the_figures(tmp_path: Path, store_of) -> None:
    figures = figures_of(store_of("broker-clean-5.3.3"))
    page = page_of(figures).decode()
    (text,) = re.findall(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.DOTALL)
    data = json.loads(text)
    assert figures.traffic is not None
    assert sum(sum(line["messages"]) for line in data["traffic"]["lines"]) == figures.traffic.counted
    assert sum(bar[2] for bar in data["sizes"]) == figures.traffic.counted
    delayed = {card.name: card.exact for card in cards_of(figures)}["delayed"]
    assert sum(data.get("delayed", {}).get("counts", [delayed])) == delayed


def test_the_same_figures_give_the_same_page(store_of) -> None:
    figures = figures_of(store_of("basic"), now_ms=1_800_000_000_000)
    assert page_of(figures) == page_of(figures)


def test_a_store_that_is_not_checked_says_so(store_of) -> None:
    page = page_of(figures_of(store_of("basic-midflip"), verifies=False, reads_traffic=False)).decode()
    assert "Not checked, as requested" in page
    assert 'id="figure-damage" data-v="-1">–' in page
    assert "Not read, as requested" in page
    assert "damaged place" in page_of(figures_of(store_of("basic-midflip"))).decode()


def test_very_long_tables_are_cut_and_say_so() -> None:
    rows = [(f"t{number}", number) for number in range(ROWS_MAX + 5)]
    made = table_html("x", "Rows", [Column("Name"), Column("Count", "count")], rows)
    assert made.count("<tr>") == ROWS_MAX + 1
    assert "5 more rows are not shown" in made


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("count", 1234567, "1,234,567"),
        ("bytes", 2048, '<span title="2,048 bytes">2.0 KiB</span>'),
        ("time", 1_700_000_000_000, "2023-11-14 22:13:20"),
        ("time", 2**62, f"{2**62} ms"),
        ("span", 90_061_000, "1 d 1 h"),
        ("span", 0, "0 s"),
        ("span", 12, "12 ms"),
    ],
)
def test_numbers_are_exact_in_the_data_and_readable(kind: str, value: int, shown: str) -> None:
    made = table_html("x", "Rows", [Column("Name"), Column("It", kind)], [("n", value), ("none", None)])
    assert f'<td class="n" data-v="{value}">{shown}</td>' in made
    assert '<td class="n" data-v="">–</td>' in made
