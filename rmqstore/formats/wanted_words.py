"""What users write for tags, wherever they write it, and slips that would silently bring no row or all.

An option of Spark, an argument of `scan` or `get` and one of the command line mean the same: one rule reads them.
"""

import json
import re
from collections.abc import Iterable

from rmqstore.errors import Rejected

_QUOTES = "'\"`"
_SHOWN_MAX = 80


def tag_words(text: str) -> tuple[str, ...]:
    """Tags as a RocketMQ subscription writes them: `A || B`; `*` or nothing means any, which is the empty tuple.

    A JSON list, `["A", "B"]`, holds tags as they are.  Raises Rejected for what looks like several tags and would be
    one (commas, a single |), and for quotes around a tag.
    """
    if is_listed(text):
        return listed_tags(text)
    tags = tuple(dict.fromkeys(part.strip() for part in text.split("||")))
    if tags in (("*",), ("",)):
        return ()
    if "" in tags or "*" in tags:
        raise Rejected("write tags as A || B, or * for any")
    refuse_slips(text, tags)
    return tags


def refuse_slips(text: str, tags: Iterable[str]) -> None:
    """Raises Rejected if one of the tags that `text` was split into looks like several, or stands in quotes."""
    for tag in tags:
        is_quoted = tag[:1] in _QUOTES or tag[-1:] in _QUOTES
        if tag and (is_quoted or "," in tag or "|" in tag):
            raise Rejected(_meant(text, tag))


def is_listed(text: str) -> bool:
    """Whether tags are written as a JSON list."""
    return text.strip().startswith("[")


def listed_tags(text: str) -> tuple[str, ...]:
    """The tags of a JSON list.  Raises Rejected for another value."""
    try:
        tags = json.loads(text)
    except (ValueError, RecursionError):
        tags = None
    if not isinstance(tags, list) or not tags or not all(isinstance(tag, str) and tag for tag in tags):
        raise Rejected('write tags as A || B, or as a JSON list such as ["A", "B"]')
    return tuple(dict.fromkeys(tags))


def _meant(text: str, tag: str) -> str:
    pieces = (piece.strip().strip(_QUOTES).strip() for piece in re.split(r"\|+|,", text))
    meant = " || ".join(dict.fromkeys(piece for piece in pieces if piece)) or "A || B"
    if len(meant) > _SHOWN_MAX or len(tag) > _SHOWN_MAX:
        meant, tag = "A || B", "A"
    return f"write {meant} (no quotes, || between tags); if it is one tag, {json.dumps([tag], ensure_ascii=False)}"
