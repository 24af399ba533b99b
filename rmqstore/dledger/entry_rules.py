"""The rules by which a log of entries takes something, asked before anything is changed."""

import re

from rmqstore.core.arguments import shown
from rmqstore.errors import Rejected, WrongType
from rmqstore.formats import dledger
from rmqstore.formats.dledger import ENTRY_BLANK, ENTRY_HEAD, Entry, Term
from rmqstore.formats.record_crc import masked_crc32

_WORD_MAX = 2**31 - 1
TERM_MAX = 2**62  # nothing that is counted comes near 2**63
_MEMBER = re.compile(r"[A-Za-z0-9_.]{1,127}", re.ASCII)


def require_number(name: str, value: object, low: int = 0, high: int = TERM_MAX) -> int:
    """Raises WrongType, Rejected."""
    if type(value) is not int:
        raise WrongType(name, shown(value), "a whole number")
    if not low <= value <= high:
        raise Rejected(f"{name}={value}: from {low} to {high}")
    return value


def require_body(body: object, file_size: int) -> bytes:
    """A body that a file of `file_size` bytes can hold.  Raises WrongType, Rejected."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise WrongType("body", shown(body), "bytes")
    plain = bytes(body)
    if len(plain) + ENTRY_HEAD.size + ENTRY_BLANK.size > file_size:
        raise Rejected(f"a body of {len(plain)} bytes does not fit into data files of {file_size} bytes")
    return plain


def require_entry(entry: object, file_size: int) -> Entry:
    """An entry whose fields are such that it can be read again.  Raises WrongType, Rejected."""
    if not isinstance(entry, Entry):
        raise WrongType("entry", shown(entry), "an Entry")
    for name in ("index", "term", "offset"):
        require_number(name, getattr(entry, name))
    for name in ("channel", "chain_crc", "body_crc"):
        require_number(name, getattr(entry, name), -_WORD_MAX - 1, _WORD_MAX)
    body = require_body(entry.body, file_size)
    if require_number("magic", entry.magic, -_WORD_MAX, _WORD_MAX) != dledger.MAGIC_MESSAGE:
        raise Rejected(f"entry {entry.index}: magic {entry.magic} is not that of an entry of this format")
    if entry.body_crc not in (0, masked_crc32(body)):
        raise Rejected(f"entry {entry.index}: wrong CRC of its body")
    return entry


def require_fit(entry: Entry, file_size: int) -> None:
    """Raises Rejected unless a file can hold the entry at its place, where a log is to begin with it."""
    room = file_size - entry.offset % file_size
    if entry.size + ENTRY_BLANK.size > room:
        raise Rejected(
            f"entry {entry.index} of byte {entry.offset}: its {entry.size} bytes and a blank entry do not fit into "
            f"the {room} bytes that the file has left"
        )


def require_term(term: object, present: Term) -> Term:
    """A term and a vote that may come after the present ones.  Raises WrongType, Rejected."""
    if not isinstance(term, Term):
        raise WrongType("term", shown(term), "a Term")
    require_number("term", term.number)
    if term.voted_for is not None and not _MEMBER.fullmatch(str(term.voted_for)):
        raise Rejected(f"voted_for={term.voted_for!r}: a member's name")
    if term.number < present.number:
        raise Rejected(f"term {term.number}: the node is in term {present.number}")
    if term.number == present.number and present.voted_for not in (None, term.voted_for):
        raise Rejected(f"term {term.number}: the node voted for {present.voted_for!r} in it")
    return term
