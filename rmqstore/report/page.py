"""The page: one HTML file with its script, its style and its data inside, which asks nobody for anything."""

import base64
import hashlib
import html
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

from rmqstore.report.figures import Figures, StoreFigures
from rmqstore.report.sections import sections_of
from rmqstore.report.words import byte_size, counted, utc
from rmqstore.safe_text import script_json, text_html, visible

_ASSETS = files("rmqstore.report") / "assets"
_LIBRARY, _LIBRARY_STYLE, _LIBRARY_LICENSE = "uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE.txt"


class Card(NamedTuple):
    """One figure in front of the sections: `exact` in the data, `shown` to people, `mood` good, warn or none."""

    name: str
    label: str
    exact: int
    shown: str
    mood: str = ""


def page_of(figures: Figures) -> bytes:
    """The whole file, in UTF-8.

    A policy in it lets nothing run or load but its own script and style, known by their hashes.  Data stand in an
    element that is not run; the script puts texts into the page as texts only.
    """
    style, script = _asset(_LIBRARY_STYLE) + _asset("report.css"), _script()
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    policy += "; base-uri 'none'; form-action 'none'"
    sections = sections_of(figures)
    links = "".join(f'<a href="#{each.name}">{html.escape(each.heading)}</a>' for each in sections)
    bodies = "".join(
        f'<section id="{each.name}"><h2>{html.escape(each.heading)}</h2>\n{each.body}</section>\n' for each in sections
    )
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{html.escape(visible(figures.title))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'{_header(figures)}<nav aria-label="Sections">{links}</nav>\n<main>\n{_cards_html(figures)}{bodies}</main>\n'
        f"{_footer(figures)}"
        f'<script type="application/json" id="report-data">{script_json(plot_data(figures))}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )
    return page.encode()


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _script() -> str:
    """The library with its licence in front, which goes where it goes, then ours."""
    license_text = _asset(_LIBRARY_LICENSE).strip()
    return f"/*\n{license_text}\n*/\n{_asset(_LIBRARY)}\n{_asset('report.js')}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def _header(figures: Figures) -> str:
    stores = "".join(f"<li>{_store_html(store)}</li>\n" for store in figures.stores)
    return (
        f"<header><h1>{text_html(figures.title)}</h1>\n"
        f"<p>Made on {utc(figures.made_ms)} UTC by {html.escape(figures.made_by)}. All times are UTC.</p>\n"
        f'<ul class="stores">\n{stores}</ul>\n'
        '<noscript><p class="note">Plots, search and sorting need JavaScript; the tables have all numbers.</p>'
        "</noscript></header>\n"
    )  # fmt: skip


def _store_html(store: StoreFigures) -> str:
    state = "stopped"
    if store.lock_held:
        state = "open: a broker or another program of this host holds the lock"
    elif store.abort_present:
        state = "not stopped cleanly, or running elsewhere"
    queues = "" if store.queue_layout == "file" else "; RocksDB queues, messages read from the commitlog"
    return (
        f"<b>{text_html(store.broker)}</b>, as RocketMQ {html.escape(store.version_line)} writes; {state}{queues}; "
        f'<span class="path">{text_html(store.path)}</span>'
    )


def cards_of(figures: Figures) -> Iterator[Card]:
    """The figures in front, each with its exact number."""
    messages = sum(topic.message_count for topic in figures.topics)
    yield Card("messages", "message" if messages == 1 else "messages", messages, f"{messages:,}")
    topics = len({topic.topic for topic in figures.topics})
    system = len({topic.topic for topic in figures.topics if topic.is_system})
    yield Card("topics", f"topics ({system:,} of the system)", topics, f"{topics:,}")
    size = sum(store.log_end - store.log_start for store in figures.stores)
    yield Card("log-bytes", "of commitlog", size, byte_size(size))
    backlog = sum(group.backlog for group in figures.groups)
    lagging = len({group.group for group in figures.groups if group.backlog})
    yield Card("backlog", f"waiting for {counted(lagging, 'group')}", backlog, f"{backlog:,}")
    waiting = sum(topic.message_count for topic in figures.delayed.topics)
    yield Card("delayed", "delayed", waiting, f"{waiting:,}")
    pending = sum(each.transaction_count for each in figures.transactions if each.state == "pending")
    yield Card("pending", "pending transactions", pending, f"{pending:,}")
    checked = [store.damage for store in figures.stores if store.damage is not None]
    damage = sum(found.damage_count for found in checked)
    if len(checked) == len(figures.stores):
        label = "damaged place" if damage == 1 else "damaged places"
        yield Card("damage", label, damage, f"{damage:,}", "warn" if damage else "good")
    else:
        yield Card("damage", "damage: not checked", -1, "–")


def _cards_html(figures: Figures) -> str:
    cards = "".join(
        f'<li class="card {card.mood}"><b id="figure-{card.name}" data-v="{card.exact}">{html.escape(card.shown)}</b> '
        f"{html.escape(card.label)}</li>\n"
        for card in cards_of(figures)
    )
    return f'<ul class="cards" aria-label="At a glance">\n{cards}</ul>\n'


def _footer(figures: Figures) -> str:
    return (
        f"<footer><p>{html.escape(figures.made_by)}, Apache License 2.0. Plots by uPlot, MIT License, © Leon Sorokin; "
        "its licence stands in this file. This page loads nothing and sends nothing.</p></footer>\n"
    )


def plot_data(figures: Figures) -> dict[str, Any]:
    """The data of the plots, as plain values; names as they may be shown."""
    data: dict[str, Any] = {}
    traffic = figures.traffic
    if traffic is not None:
        data["traffic"] = {
            "startMs": traffic.bins.start_ms,
            "stepMs": traffic.bins.step_ms,
            "lines": [
                {"name": visible(line.topic), "messages": line.messages.tolist(), "bytes": line.bytes.tolist()}
                for line in traffic.lines
            ],
        }
        data["sizes"] = [list(bar) for bar in traffic.size_bars]
    delayed = figures.delayed
    if delayed.bins is not None:
        data["delayed"] = {
            "startMs": delayed.bins.start_ms, "stepMs": delayed.bins.step_ms, "counts": list(delayed.counts),
        }  # fmt: skip
    data["disk"] = [
        {
            "name": visible(store.broker),
            "atMs": [level.at_ms for level in store.levels],
            "bytes": [level.bytes for level in store.levels],
        }
        for store in figures.stores
        if store.log_files
    ]
    return data
