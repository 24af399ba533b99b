"""What DLedger writes, byte for byte: entries, units of the index, and the small text files."""

from rmqstore.formats.dledger import (
    COMMITTED_INDEX,
    CURRENT_TERM,
    END_INDEX,
    ENTRY_HEAD,
    INDEX_UNIT,
    VOTE_LEADER,
    Entry,
    Term,
)


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


def checkpoint_text(committed_index: int, end_index: int) -> str:
    """The text of `checkpoint`, as Java writes it."""
    return f"{COMMITTED_INDEX}={committed_index}\n{END_INDEX}={end_index}\n"


def term_text(term: Term) -> str:
    """The text of `currterm`, as Java writes it."""
    return f"{VOTE_LEADER}={term.voted_for or ''}\n{CURRENT_TERM}={term.number}\n"
