"""The page: one HTML file with its script, its style and its data inside, which asks nobody for anything."""

import base64
import hashlib
import html
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from rmqstore.clock import local_time
from rmqstore.core.safe_text import SENTENCE_MAX, SHOWN_MAX, script_json, text_html, visible
from rmqstore.report.expiry import GROWTH_DAYS, FileOutlook
from rmqstore.report.figures import Figures, Part, StoreFigures
from rmqstore.report.words import access_words, byte_size, counted, span_of, utc

# --- The sections of the page: each a table or two, the place of a plot, and what has to be said to them.

# --- Tables as HTML: they are whole without a script, which only sorts, searches and folds them.

# Text; a word or two; a sentence; a number of things; bytes; ms since the epoch; a length of time in ms; a number with
# a bar of its share.
Kind = Literal["text", "words", "sentence", "count", "bytes", "time", "span", "bar"]
_TEXTS = ("text", "words", "sentence")
ROWS_MAX = 2000


class Column(NamedTuple):
    """A head, what stands below it, and an explanation that the head shows when it is pointed at."""

    head: str
    kind: Kind = "text"
    hint: str = ""


def table_html(name: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> str:
    """A table with the id `table-NAME`; the first column heads its rows.

    Numbers stand exactly in `data-v`, by which rows are sorted.  Of more than ROWS_MAX rows the first ones are there,
    and a line says so.
    """
    largest = [
        max((row[number] or 0 for row in rows), default=0) if column.kind == "bar" else 0
        for number, column in enumerate(columns)
    ]
    heads = "".join(_head_html(column) for column in columns)
    lines = []
    for row in rows[:ROWS_MAX]:
        cells = zip(row, columns, largest, strict=True)
        shown = [_cell_html(value, column, most, place == 0) for place, (value, column, most) in enumerate(cells)]
        lines.append(f"<tr>{''.join(shown)}</tr>\n")
    more = f'<p class="note">{len(rows) - ROWS_MAX:,} more rows are not shown.</p>' if len(rows) > ROWS_MAX else ""
    return (
        f'<div class="scroll" role="region" aria-labelledby="caption-{name}" tabindex="0">'
        f'<table class="data" id="table-{name}"><caption id="caption-{name}">{html.escape(caption)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody></table></div>{more}\n"
    )


def _head_html(column: Column) -> str:
    numeric = "" if column.kind in _TEXTS else ' class="n"'
    hint = f' title="{html.escape(column.hint)}"' if column.hint else ""
    return f'<th scope="col" data-kind="{column.kind}"{numeric}{hint}>{text_html(column.head)}</th>'


def _cell_html(value: Any, column: Column, largest: int, is_first: bool) -> str:
    if column.kind in _TEXTS:
        most = SENTENCE_MAX if column.kind == "sentence" else SHOWN_MAX
        shown = "" if value is None else text_html(str(value), most)
        return f'<th scope="row">{shown}</th>' if is_first else f'<td class="{column.kind}">{shown}</td>'
    if value is None:
        return '<td class="n" data-v="">–</td>'
    return f'<td class="n" data-v="{int(value)}">{_number_html(int(value), column.kind, largest)}</td>'


def _number_html(value: int, kind: Kind, largest: int) -> str:
    if kind == "bytes":
        return f'<span title="{value:,} bytes">{byte_size(value)}</span>'
    if kind == "time":
        return html.escape(utc(value) or f"{value} ms")
    if kind == "span":
        return html.escape(span_of(value))
    if kind == "bar" and value:
        share = round(100 * value / largest, 1)
        return (
            f'{value:,}<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect width="{share}" height="6"/></svg>'
        )
    return f"{value:,}"


# ---


class Section(NamedTuple):
    """One section: the name of its anchor, its heading, and what stands below it as HTML."""

    name: str
    heading: str
    body: str


def sections_of(figures: Figures) -> list[Section]:
    """All sections, in their order."""
    return [
        Section("traffic", "Traffic over time", _traffic(figures)),
        Section("topics", "Topics and sizes", _topics(figures)),
        Section("groups", "Consumer groups", _groups(figures)),
        Section("delayed", "Delayed messages", _delayed(figures)),
        Section("transactions", "Transactions", _transactions(figures)),
        Section("disk", "Disk and expiry", _disk(figures)),
        Section("damage", "Damage", _damage(figures)),
    ]


def plot_html(name: str, label: str) -> str:
    """The place of a plot, which a script fills from the data of the page."""
    return f'<div class="plot" id="plot-{name}" role="img" aria-label="{label}"></div>\n'


def _note(text: str) -> str:
    return f'<p class="note">{text}</p>\n'


def _missing(figures: Figures, part: Part) -> str:
    """A line for each store of which a part could not be read, with the reason."""
    return "".join(
        f'<p class="warn">Not read of {text_html(each.broker)}: {text_html(each.reason, SENTENCE_MAX)}</p>\n'
        for each in figures.missing
        if each.part == part
    )


def _table(
    figures: Figures, name: str, caption: str, columns: Sequence[Column], rows: Sequence[Sequence[object]]
) -> str:
    """A table of rows that end with their broker, which is only shown where there are several."""
    if len(figures.stores) > 1:
        return table_html(name, caption, [*columns, Column("Broker")], rows)
    return table_html(name, caption, columns, [row[:-1] for row in rows])


def _traffic(figures: Figures) -> str:
    traffic, missing = figures.traffic, _missing(figures, "traffic")
    if traffic is None:
        return missing + _note("The store has no messages." if figures.is_read else "Not read, as requested.")
    step = span_of(traffic.bins.step_ms)
    notes = (
        f"{counted(traffic.counted, 'message')} read, by the time at which the broker stored them; one step is {step}."
    )
    if traffic.outside:
        notes += f" {traffic.outside:,} more have a store time that no message can have, and are not plotted."
    if any(not line.topic for line in traffic.lines):
        notes += f" The {len(traffic.lines) - 1} topics with most messages have their own lines."
    names = [line.topic or "others" for line in traffic.lines]
    columns = [Column("From (UTC)", "time"), *(Column(name, "count") for name in names)]
    rows = [
        (traffic.bins.start_ms + number * traffic.bins.step_ms, *(line.messages[number] for line in traffic.lines))
        for number in range(traffic.bins.count)
        if any(line.messages[number] for line in traffic.lines)
    ]
    listed = table_html("traffic", f"Messages every {step}", columns, rows)
    return (
        missing + plot_html("traffic", "Messages and bytes over time, a line for each topic") + _note(notes)
        + f"<details><summary>The same as a table</summary>\n{listed}</details>\n"
    )  # fmt: skip


def _topics(figures: Figures) -> str:
    columns = [
        Column("Topic"), Column("Messages", "bar", "last queue offset minus first, of all queues"),
        Column("Bytes", "bytes", "records in the log, with properties"),
        Column("Median", "bytes", "half of the messages take at most this many bytes in the log, accurate to one "
            "sixteenth"),
        Column("99 %", "bytes", "99 of 100 messages take at most this many bytes in the log, accurate to one "
            "sixteenth"),
        Column("Largest", "bytes"), Column("Oldest (UTC)", "time"), Column("Newest (UTC)", "time"),
        Column("Queues", "count"), Column("Access", "words"),
    ]  # fmt: skip
    rows = []
    for each in sorted(figures.topics, key=lambda topic: (-topic.message_count, topic.topic, topic.broker)):
        sizes = each.sizes
        access = "" if each.perm is None else access_words(each.perm)
        rows.append(
            (
                each.topic, each.message_count, sizes and sizes.total, sizes and sizes.median, sizes and sizes.high,
                sizes and sizes.largest, each.oldest_ms, each.newest_ms, each.queue_count, access, each.broker,
            )
        )  # fmt: skip
    if not rows:
        return _note("The store has no topics.")
    plot = ""
    if figures.traffic is not None and figures.traffic.size_bars:
        plot = plot_html("sizes", "Number of messages by size")
    return _table(figures, "topics", counted(len(rows), "topic"), columns, rows) + plot


def _groups(figures: Figures) -> str:
    columns = [
        Column("Group"), Column("Topic"),
        Column("Waiting", "bar", "messages that the store holds and the group has not consumed"),
        Column("Behind", "span", "from the next message that the group consumes to the newest of its queue"),
        Column("Queues", "count", "queues for which the group has committed an offset"),
    ]  # fmt: skip
    rows = [
        (each.group, each.topic, each.backlog, each.lag_ms, each.queue_count, each.broker)
        for each in sorted(figures.groups, key=lambda group: (-group.backlog, group.group, group.topic))
    ]
    missing = _missing(figures, "groups")
    if not rows:
        return missing + _note("No consumer group has a committed offset.")
    return missing + _table(figures, "groups", "Messages still to consume", columns, rows)


def _delayed(figures: Figures) -> str:
    delayed, missing = figures.delayed, _missing(figures, "delayed")
    if not delayed.topics:
        return missing + _note("No delayed message is waiting.")
    columns = [
        Column("Goes to"), Column("Kind", "words"), Column("Waiting", "bar"), Column("Due already", "count"),
        Column("First due (UTC)", "time"), Column("Last due (UTC)", "time"),
    ]  # fmt: skip
    rows = [
        (each.topic, each.kind, each.message_count, each.due_count, each.first_ms, each.last_ms, each.broker)
        for each in delayed.topics
    ]
    soonest = [(each.message_id, each.topic, each.stored_ms, each.deliver_ms, each.broker) for each in delayed.soonest]
    listed = _table(
        figures, "soonest", "The next to be delivered",
        [Column("Message id"), Column("Goes to"), Column("Stored (UTC)", "time"), Column("Due (UTC)", "time")], soonest,
    )  # fmt: skip
    plot = (
        plot_html("delayed", "Number of messages by the time when they become due") if delayed.bins is not None else ""
    )
    return missing + _table(figures, "delayed", "Messages that wait", columns, rows) + plot + listed


def _transactions(figures: Figures) -> str:
    missing = _missing(figures, "transactions")
    if not figures.transactions:
        return missing + _note("The store has no half messages of transactions.")
    columns = [
        Column("Topic"), Column("State", "words"), Column("Transactions", "bar"),
        Column("First prepared (UTC)", "time"), Column("Last prepared (UTC)", "time"),
    ]  # fmt: skip
    rows = [
        (each.topic, each.state, each.transaction_count, each.oldest_ms, each.newest_ms, each.broker)
        for each in figures.transactions
    ]
    body = missing + _table(figures, "transactions", "Transactions by state", columns, rows)
    if not figures.pending:
        return body + _note("No transaction is pending.")
    columns = [
        Column("Transaction id"), Column("Topic"), Column("Producer group"), Column("Prepared (UTC)", "time"),
        Column("Checks", "count"),
    ]  # fmt: skip
    pending = [
        (each.transaction_id, each.topic, each.producer_group, each.prepared_ms, each.check_count, each.broker)
        for each in figures.pending
    ]
    return body + _table(figures, "pending", "Pending transactions, the oldest first", columns, pending)


def _disk(figures: Figures) -> str:
    body = _missing(figures, "files") + _note(_assumptions(figures))
    body += "".join(_note(_disk_words(store)) for store in figures.stores)
    if any(store.log_files for store in figures.stores):
        body += plot_html("disk", "Forecast of the bytes that commitlog files take")
    columns = [
        Column("Commitlog file"), Column("State", "words"), Column("Size", "bytes"), Column("Used", "bytes"),
        Column("Deleted (UTC)", "time", "the first deletion time after the file is old enough"),
        Column("Old enough (UTC)", "time"), Column("Changed (UTC)", "time", "a broker computes the age from this time"),
        Column("First message (UTC)", "time"), Column("Last message (UTC)", "time"),
    ]  # fmt: skip
    rows = [_file_row(each, store) for store in figures.stores for each in store.log_files]
    if rows:
        body += _table(figures, "commitlog", "Commitlog files and when they are deleted", columns, rows)
    kinds = [(each.kind, each.file_count, each.size, each.used, each.broker) for each in figures.file_kinds]
    columns = [Column("Files"), Column("Count", "count"), Column("Size", "bytes"), Column("Used", "bytes")]
    return body + (_table(figures, "files", "All files by kind", columns, kinds) if kinds else "")


def _file_row(each: FileOutlook, store: StoreFigures) -> tuple[object, ...]:
    facts = each.facts
    path = facts.path.removeprefix(store.path + "/")
    return (
        path, each.state, facts.size, facts.used, each.goes_ms, each.ripe_ms, facts.modified_ms, facts.first_ms,
        facts.last_ms, store.broker,
    )  # fmt: skip


def _assumptions(figures: Figures) -> str:
    hours, zone = figures.policy.reserved_ms / 3_600_000, f"{local_time(figures.made_ms):%z}"
    at = ", ".join(f"{int(hour):02d}" for hour in figures.policy.delete_when.split(";") if hour.strip())
    when = (
        f"in the hours that begin at {at}, local time of the machine that made this page (UTC{zone})" if at else "never"
    )
    return (
        f"The forecast assumes fileReservedTime={hours:g} h and deleteWhen={text_html(figures.policy.delete_when)}: a "
        f"broker deletes a full commitlog file {when}, once it was not changed for so long, the oldest first and never "
        "the newest. The time of a change is the file system's: a copy that did not keep it makes files look younger. "
        "A disk that is too full, or somebody's request, deletes earlier. Files that are not full yet are expected "
        f"to fill at the pace of the last {GROWTH_DAYS} days that the log tells of."
    )


def _disk_words(store: StoreFigures) -> str:
    said = f"{text_html(store.broker)}: {byte_size(store.log_end - store.log_start)} of log"
    growth = store.growth
    if growth is None:
        said += "; it spans less than an hour, too little to estimate its growth"
    else:
        said += f", growing by {byte_size(int(growth.day_bytes))} a day (over the last {span_of(growth.span_ms)})"
    if store.disk.used_ratio >= 0:
        said += f". Its disk here is {store.disk.used_ratio:.0%} full, {byte_size(store.disk.free_bytes)} are free"
        if growth is not None:
            days = store.disk.free_bytes / growth.day_bytes
            said += f", enough for {days:,.0f} days at that pace if nothing were deleted"
    if store.levels:
        peak = max(level.bytes for level in store.levels)
        said += f". Commitlog files will take at most {byte_size(peak)} until {utc(store.levels[-1].at_ms)}"
    return said + "."


def _damage(figures: Figures) -> str:
    missing = _missing(figures, "damage")
    checked = [store for store in figures.stores if store.damage is not None]
    if not figures.is_checked:
        return _note("Not checked, as requested: `rmqstore verify` checks the store.")
    body = missing
    rows: list[tuple[object, ...]] = []
    for store in checked:
        found = store.damage
        if found is None:
            continue
        size = byte_size(store.log_end - store.log_start)
        words = counted(found.damage_count, "damaged place") if found.damage_count else "no damage"
        kind = "warn" if found.damage_count else "good"
        body += (
            f'<p class="{kind}">{text_html(store.broker)}: {words}, {counted(found.note_count, "note")}; '
            f"{size} of commitlog checked.</p>\n"
        )
        if found.damage_count + found.note_count > len(found.findings):
            body += _note(f"The first {len(found.findings):,} are listed; `rmqstore verify` lists all.")
        rows += [
            (each.path.removeprefix(store.path + "/"), each.severity, each.position, each.reason, store.broker)
            for each in found.findings
        ]
    if rows:
        columns = [
            Column("File"),
            Column("Kind", "words"),
            Column("Byte", "count"),
            Column("What is wrong", "sentence"),
        ]
        body += _table(figures, "findings", "Damage, and notes on what a healthy broker leaves", columns, rows)
    return body


# ---

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
