"""DLedger's log (generation A): entries one after the other in data files, a unit of the index for each, and two small
text files.  Java: DLedgerEntryCoder, DLedgerMmapFileStore, MemberState.

This is the scalar codec; `entry_columns` has many at once.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from rmqstore.errors import Corrupt
from rmqstore.formats.layout import Layout

ENTRY_HEAD = Layout(
    ("magic", "i4"),  # 1 a message, 2 nothing, 3 a change of the configuration
    ("size", "i4"),  # of the whole entry
    ("index", "i8"),
    ("term", "i8"),
    ("offset", "i8"),  # of the entry's first byte in the log
    ("channel", "i4"),
    ("chain_crc", "i4"),
    ("body_crc", "i4"),
    ("body_size", "i4"),
)
assert ENTRY_HEAD.size == 48
# Fills a data file up: the other way round than the blank of a commitlog.
ENTRY_BLANK = Layout(("magic", "i4"), ("size", "i4"))
# Unit n of the index stands at byte n * 32 of the index files.
INDEX_UNIT = Layout(("magic", "i4"), ("offset", "i8"), ("size", "i4"), ("index", "i8"), ("term", "i8"))
assert INDEX_UNIT.size == 32

MAGIC_MESSAGE, MAGIC_BLANK = 1, -1
ENTRY_MAGICS = (1, 2, 3)
COMMITTED_INDEX, END_INDEX = "committedIndex", "endIndex"
CURRENT_TERM, VOTE_LEADER = "currTerm", "voteLeader"
_NONE = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: `index` counts from 0, `offset` is its first byte in the log, `body` as it is stored."""

    index: int
    term: int
    offset: int
    body: bytes
    magic: int = MAGIC_MESSAGE
    channel: int = 0
    chain_crc: int = 0
    body_crc: int = 0

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
        return ENTRY_HEAD.size + len(self.body)


@dataclass(frozen=True, slots=True)
class EntryBlank:
    """The filler at the end of a data file, `size` bytes from its first one on."""

    size: int


@dataclass(frozen=True, slots=True)
class NoEntry:
    """Neither an entry nor a blank stands there; `reason` says why.  `is_empty`: nothing was written."""

    reason: str
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """A node's `currterm`: the term that it is in, and whom it voted for in it (None: for nobody yet)."""

    number: int
    voted_for: str | None


def read_entry(buffer: bytes | memoryview, position: int) -> Entry | EntryBlank | NoEntry:
    """The standing at `position` of `buffer`, which ends where readable data ends.  Never raises for any bytes."""
    room = len(buffer) - position
    if room < ENTRY_BLANK.size:
        return NoEntry(f"{room} bytes left, too few for an entry", is_empty=not any(buffer[position:]))
    magic, size = ENTRY_BLANK.struct.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return EntryBlank(size) if size >= ENTRY_BLANK.size else NoEntry(f"a blank of {size} bytes")
    if magic == size == 0:
        return NoEntry("no data", is_empty=True)
    if magic not in ENTRY_MAGICS:
        return NoEntry(f"no entry magic ({magic & 0xFFFFFFFF:08X})")
    if not ENTRY_HEAD.size <= size <= room:
        return NoEntry(f"entry size {size} with {room} bytes left")
    head = ENTRY_HEAD.read(buffer, position)
    if head["body_size"] != size - ENTRY_HEAD.size:
        return NoEntry(f"body size {head['body_size']} in an entry of {size}")
    body = bytes(buffer[position + ENTRY_HEAD.size : position + size])
    return Entry(head["index"], head["term"], head["offset"], body, magic, head["channel"], head["chain_crc"],
                 head["body_crc"])  # fmt: skip


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry.  Raises struct.error where a field does not fit."""
    head = ENTRY_HEAD.struct.pack(
        entry.magic, entry.size, entry.index, entry.term, entry.offset, entry.channel, entry.chain_crc, entry.body_crc,
        len(entry.body),
    )  # fmt: skip
    return head + entry.body


def index_unit(entry: Entry) -> bytes:
    """The unit that the index has for an entry."""
    return INDEX_UNIT.struct.pack(entry.magic, entry.offset, entry.size, entry.index, entry.term)


def is_entry(data: bytes | memoryview, start: int) -> bool:
    """Whether a file that starts at byte `start` of a log begins as DLedger's do.

    No commitlog does: there a record of 1, 2 or 3 bytes would begin.
    """
    try:
        fields = ENTRY_HEAD.read(data)
    except struct.error:
        return False
    return (
        fields["magic"] in ENTRY_MAGICS
        and fields["offset"] == start
        and fields["size"] == ENTRY_HEAD.size + fields["body_size"]
        and fields["body_size"] >= 0
    )


# --- the text files: Java's properties, a line each


def read_numbers(data: str | bytes) -> dict[str, int]:
    """The values of a node's `checkpoint` that are numbers.  Raises Corrupt if one of them is none."""
    found = {}
    for name, value in _pairs(data).items():
        if name in (COMMITTED_INDEX, END_INDEX) and value:
            found[name] = _number(name, value)
    return found


def checkpoint_text(committed_index: int, end_index: int) -> str:
    """The text of `checkpoint`, as Java writes it."""
    return f"{COMMITTED_INDEX}={committed_index}\n{END_INDEX}={end_index}\n"


def term_text(term: Term) -> str:
    """The text of `currterm`, as Java writes it."""
    return f"{VOTE_LEADER}={term.voted_for or ''}\n{CURRENT_TERM}={term.number}\n"


def read_term(data: str | bytes) -> Term:
    """A node's `currterm`.  Raises Corrupt if it says no term."""
    pairs = _pairs(data)
    if not pairs.get(CURRENT_TERM):
        raise Corrupt("", 0, f"says no {CURRENT_TERM}")
    return Term(_number(CURRENT_TERM, pairs[CURRENT_TERM]), pairs.get(VOTE_LEADER) or None)


def _number(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = _NONE - 1
    if not _NONE <= number < 2**63:
        raise Corrupt("", 0, f"{name} is {value[:40]!r}")
    return number


def _pairs(data: str | bytes) -> Mapping[str, str]:
    """Lines of `key=value`; blanks around either and lines of comment are tolerated, as Java does."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    lines = (line.strip() for line in text.splitlines())
    parts = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {name.strip(): value.strip() for name, _, value in parts}
