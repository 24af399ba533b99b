"""Options by a table of their parsers: looked up in any case, every mistake kept, all of them told in one line."""

from collections.abc import Callable, Mapping
from typing import Any

from rmqstore.errors import Rejected

Parser = Callable[[str], Any]

_TEXT_SHOWN_MAX = 80


def parsed_options(
    options: Mapping[str, str], parsers: Mapping[str, Parser], unknown: Callable[[str], str | None]
) -> tuple[dict[str, Any], list[str]]:
    """The values of `options` by the names of `parsers`, None for those that do not parse, and the mistakes.

    `unknown` says what is wrong with another name; None: nothing is.
    """
    names = {name.lower(): name for name in parsers}
    given: dict[str, Any] = {}
    mistakes: list[str] = []
    for key, text in options.items():
        name = names.get(key.lower())
        if name is None:
            mistakes += filter(None, [unknown(key)])
            continue
        given[name] = None
        try:
            given[name] = parsers[name](text)
        except Rejected as mistake:
            shown = text if len(text) <= _TEXT_SHOWN_MAX else text[:_TEXT_SHOWN_MAX] + "…"
            mistakes.append(f"{name}={shown!r}: {mistake}")
    return given, mistakes


def in_one_line(mistakes: list[str]) -> str:
    """All mistakes in one line, because the last line of a traceback is the one that people read."""
    lines = list(dict.fromkeys(" ".join(mistake.split()) for mistake in mistakes))
    if len(lines) == 1:
        return lines[0]
    return f"{len(lines)} mistakes: " + "; ".join(f"({number}) {line}" for number, line in enumerate(lines, start=1))
