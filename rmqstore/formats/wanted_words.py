"""The tags and keys that users ask for, wherever they write them, and slips that would silently bring no row or all.

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
        return listed(text)
    tags = tuple(dict.fromkeys(part.strip() for part in text.split("||")))
    if tags in (("*",), ("",)):
        return ()
    if "" in tags or "*" in tags:
        raise Rejected("write tags as A || B, or * for any")
    refuse_slips(text, tags)
    return tags


def key_words(text: str) -> tuple[str, ...]:
    """Keys of messages between `||` or blanks: a blank ends a key in RocketMQ too.

    A JSON list, `["A", "B"]`, holds keys as they are.  Raises Rejected as `tag_words`, for no key at all, and for a
    listed key that no message can have.
    """
    if is_listed(text):
        return possible_keys(listed(text, "key"))
    keys = tuple(dict.fromkeys(part for part in re.split(r"\|\||\s+", text) if part))
    if not keys:
        raise Rejected("write message keys as k1 || k2")
    refuse_slips(text, keys, "key")
    return keys


def possible_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys themselves.  Raises Rejected for an empty one and for one with a blank in it."""
    for key in keys:
        if not key or " " in key:
            shown = repr(key[:_SHOWN_MAX])
            raise Rejected(f"no message has the key {shown}: blanks stand between keys, so write each by itself")
    return keys


def refuse_slips(text: str, words: Iterable[str], noun: str = "tag") -> None:
    """Raises Rejected if one of the words that `text` was split into looks like several, or stands in quotes."""
    for word in words:
        is_quoted = word[:1] in _QUOTES or word[-1:] in _QUOTES
        if word and (is_quoted or "," in word or "|" in word):
            raise Rejected(_meant(text, word, noun))


def is_listed(text: str) -> bool:
    """Whether tags or keys are written as a JSON list."""
    return text.strip().startswith("[")


def listed(text: str, noun: str = "tag") -> tuple[str, ...]:
    """The tags or keys of a JSON list.  Raises Rejected for another value."""
    try:
        tags = json.loads(text)
    except (ValueError, RecursionError):
        tags = None
    if not isinstance(tags, list) or not tags or not all(isinstance(tag, str) and tag for tag in tags):
        raise Rejected(f'write {noun}s as A || B, or as a JSON list such as ["A", "B"]')
    return tuple(dict.fromkeys(tags))


def _meant(text: str, word: str, noun: str) -> str:
    pieces = (piece.strip().strip(_QUOTES).strip() for piece in re.split(r"\|+|,", text))
    meant = " || ".join(dict.fromkeys(piece for piece in pieces if piece)) or "A || B"
    if len(meant) > _SHOWN_MAX or len(word) > _SHOWN_MAX:
        meant, word = "A || B", "A"
    one = json.dumps([word], ensure_ascii=False)
    return f"write {meant} (no quotes, || between {noun}s); if it is one {noun}, {one}"
