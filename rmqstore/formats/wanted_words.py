"""The tags and keys that users ask for, wherever they write them, and slips that would silently bring no row or all.

An option of Spark, an argument of `scan` or `get` and one of the command line mean the same: one rule reads them.
"""

import json
import re
from collections.abc import Iterable

from rmqstore.errors import Rejected
from rmqstore.formats.java_text import java_trim

_QUOTES = "'\"`"
_SHOWN_MAX = 80
# Between words of a text they may be meant as ends of keys, and may be letters of one.
_LINE_ENDS = "\t\n\v\f\r"


def tag_words(text: str) -> tuple[str, ...]:
    """Tags as a RocketMQ subscription writes them: `A || B`; `*` or the empty text means any, which is the empty tuple.
    What its clients take for white space around a tag is none of it: `java_trim`.

    A JSON list, `["A", "B"]`, holds tags as they are.  Raises Rejected where `||` or blanks stand without a tag, for
    what looks like several tags and would be one (commas, a single |), and for quotes around a tag.
    """
    if is_listed(text):
        return listed(text)
    if not text or java_trim(text) == "*":
        return ()
    tags = tuple(dict.fromkeys(java_trim(part) for part in text.split("||")))
    if "" in tags or "*" in tags:
        raise Rejected("write tags as A || B, or * for any")
    refuse_slips(text, tags)
    return tags


def key_words(text: str) -> tuple[str, ...]:
    """Keys of messages between `||` or blanks, U+0020: these end a key in RocketMQ too, and no other white space does.
    Control characters at the ends of a key are none of it, as in tags; a tab or the end of a line in one is refused.

    A JSON list, `["A", "B"]`, holds keys as they are.  Raises Rejected as `tag_words`, for no key at all, and for a
    listed key that no message can have.
    """
    if is_listed(text):
        return possible_keys(listed(text, "key"))
    keys = tuple(dict.fromkeys(key for part in re.split(r"\|\|| ", text) if (key := java_trim(part))))
    if not keys:
        raise Rejected("write message keys as k1 || k2")
    refuse_slips(text, keys, "key")
    return keys


def possible_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys themselves.  Raises Rejected for an empty one and for one with a blank in it."""
    for key in keys:
        if not key or " " in key:
            shown = repr(key[:_SHOWN_MAX])
            raise Rejected(f"no message has the key {shown}: blanks separate keys, so write each key by itself")
    return keys


def refuse_slips(text: str, words: Iterable[str], noun: str = "tag") -> None:
    """Raises Rejected if one of the words that `text` was split into looks like several, or stands in quotes."""
    for word in words:
        is_quoted = word[:1] in _QUOTES or word[-1:] in _QUOTES
        is_several = any(mark in word for mark in (",|" if noun == "tag" else f",|{_LINE_ENDS}"))
        if word and (is_quoted or is_several):
            raise Rejected(_meant(text, word, noun))


def is_listed(text: str) -> bool:
    """Whether tags or keys are written as a JSON list."""
    return java_trim(text).startswith("[")


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
    pieces = (java_trim(java_trim(piece).strip(_QUOTES)) for piece in re.split(rf"\|+|[,{_LINE_ENDS}]", text))
    meant = " || ".join(dict.fromkeys(piece for piece in pieces if piece)) or "A || B"
    if len(meant) > _SHOWN_MAX or len(word) > _SHOWN_MAX:
        meant, word = "A || B", "A"
    one = json.dumps([word], ensure_ascii=not word.isprintable())
    return f"write {meant} (no quotes, || between {noun}s); if it is one {noun}, {one}"
