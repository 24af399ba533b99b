"""Text that a store holds, made harmless: for HTML, for JSON inside of HTML, and for the eyes of whoever reads it.

Names of topics, groups, hosts, keys and files are whatever a client or the disk says.  None of them may become markup,
change the direction of what stands around it, or look like another name by characters that cannot be seen.
"""

import html
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

# Characters of a name, and of a sentence, that are shown, escapes counted as they are written out.
SHOWN_MAX, SENTENCE_MAX = 160, 2000
# What JSON leaves as it is and a parser of HTML, or an older one of JavaScript, takes for something else.
_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_IN_SCRIPT_FOUND = re.compile("[<>&\u2028\u2029]")


class VisiblePart(NamedTuple):
    """A part of a text: as it is, or the escapes of characters that cannot be seen."""

    text: str
    is_escape: bool


def pieces(text: str, shown_max: int = SHOWN_MAX) -> Iterator[VisiblePart]:
    """The text in parts of which all can be seen: control characters, those that turn the direction of writing, other
    invisible ones, half characters and unusual spaces become `\\u202E`.

    At most `shown_max` characters; of a longer one the rest is counted.
    """
    room, taken, run, is_escape = shown_max, 0, list[str](), False
    for character in text:
        seen = character.isprintable() and (character == " " or not character.isspace())
        shown = character if seen else _escape(character)
        if len(shown) > room:
            break
        if run and is_escape == seen:
            yield VisiblePart("".join(run), is_escape)
            run.clear()
        is_escape = not seen
        run.append(shown)
        room, taken = room - len(shown), taken + 1
    if run:
        yield VisiblePart("".join(run), is_escape)
    if taken < len(text):
        yield VisiblePart(f"… ({len(text) - taken:,} more characters)", True)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04X}" if number < 0x10000 else f"\\U{number:08X}"


def visible(text: str) -> str:
    """The text as `pieces` has it, in one."""
    return "".join(piece.text for piece in pieces(text))


def text_html(text: str, shown_max: int = SHOWN_MAX) -> str:
    """The text as HTML: no markup of its own, cut off from the direction of what stands around it."""
    if text.isascii() and text.isprintable() and len(text) <= shown_max:
        return html.escape(text)
    parts = (
        f'<span class="esc">{html.escape(piece.text)}</span>' if piece.is_escape else html.escape(piece.text)
        for piece in pieces(text, shown_max)
    )
    return f"<bdi>{''.join(parts)}</bdi>"


def script_json(document: Any) -> str:
    """JSON that may stand in a script element: nothing in it ends the element, or begins a comment."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return _IN_SCRIPT_FOUND.sub(lambda found: _IN_SCRIPT[found[0]], text)
