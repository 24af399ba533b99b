"""The body of a batch: its messages one after the other.  An inner batch (5.x) is stored so, as one record.

Whether a record goes into a batch queue or a plain one, its topic decides (broker_json.TopicConfig.has_batch_queues).
Here: the numbers that a record has in a batch queue, and which records may say that they are batches.  Java:
MessageDecoder.encodeMessage and decodeMessage, CommitLog.setBatchSizeIfNeeded, HookUtils.checkInnerBatch.
"""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from rmqstore.errors import Corrupt, StoreError
from rmqstore.formats import message, sys_flag
from rmqstore.formats.compression import BodyError, decompress
from rmqstore.formats.layout import Layout
from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.formats.properties import INNER_BASE, INNER_COUNT, parse_properties
from rmqstore.formats.property_columns import split_pieces

PIECE_HEAD = Layout(
    ("total_size", "i4"),
    ("magic", "i4"),  # 0, not looked at
    ("body_crc", "i4"),  # 0, not looked at
    ("flag", "i4"),
    ("body_size", "i4"),  # the body follows
)
assert PIECE_HEAD.size == 20

COUNT_MAX = 2**15 - 1  # messages of a batch that a unit can say
PIECE_SIZE_MIN = PIECE_HEAD.size + message.PROPERTIES_SIZE.size  # of a message without body and properties
_NAMES = (INNER_COUNT.encode(), INNER_BASE.encode())
_BOTH = sys_flag.NEED_UNWRAP | sys_flag.INNER_BATCH
_NUMBER = re.compile(rb"[0-9]{1,18}")

Truth = TypeVar("Truth", bool, Mask)


class _Every:
    def __contains__(self, topic: object) -> bool:
        return True


# Topics whose batches say where they begin by the record's queue offset alone.
OwnBases = Container[bytes]
EVERY_TOPIC: OwnBases = _Every()  # queues in RocksDB
NO_TOPIC: OwnBases = frozenset()


def is_misused(is_batch: Truth, says_count: Truth, takes_batches: Truth) -> Truth:
    """Where a message may not say what it says of batches (Java: HookUtils.checkInnerBatch): it has INNER_NUM without
    the bit INNER_BATCH, or that bit where no batch may come.  Truth values, or vectors of them.
    """
    return (says_count > is_batch) | (is_batch > takes_batches)


class RecordNumbers(NamedTuple):
    """Which numbers of a batch queue n records have: the queue offset of the first message and the number of messages,
    int64[n] twice.  `are_said` bool[n]: the record names them itself, any other is one message in its own place.
    """

    bases: Ints
    counts: Ints
    are_said: Mask


def record_numbers(
    located: Located, *, in_entries: bool = False, own_bases: OwnBases = NO_TOPIC,
    batch_topics: Container[bytes] = NO_TOPIC,
) -> RecordNumbers:  # fmt: skip
    """The numbers that records have if their topic's queues are batch queues.  Only those with the bit INNER_BATCH cost
    anything each.

    Java takes the numbers of any record that has both properties; no release writes them without the bit.  `in_entries`
    of DLedger's it writes no INNER_BASE, and units that count one message (5.3.3): there the record's number and count
    hold, or the next one would get a number that is in the batch.  With queues in RocksDB it writes no INNER_BASE
    either (5.5.1).  A batch without one, of a topic in `own_bases`, begins at the record's own queue offset.

    No CRC covers properties.  Where one of the two is not there, or is another, and the body is a batch of one message,
    the record of a topic in `batch_topics` is that batch, in its own place.
    """
    bases = located.head("queue_offset").astype(np.int64, copy=False)  # a copy already
    numbers = RecordNumbers(bases, np.ones(len(bases), np.int64), np.zeros(len(bases), bool))
    rows = np.flatnonzero(located.sound & (located.flags & sys_flag.INNER_BATCH != 0))
    if not len(rows):
        return numbers
    begins = located.properties_at[rows].tolist()
    sizes = np.maximum(located.properties_size[rows], 0)
    block = b"".join([located.page[at : at + size].tobytes() for at, size in zip(begins, sizes.tolist(), strict=True)])
    pieces = split_pieces(np.frombuffer(block, np.uint8), np.concatenate(([0], np.cumsum(sizes))))
    values = pieces.find_all(_NAMES)
    for place, row in enumerate(rows.tolist()):
        count, base = (
            _number(pieces.data[starts[place] : starts[place] + max(int(sizes[place]), 0)].tobytes())
            for starts, sizes in (values[name] for name in _NAMES)
        )
        if count is not None and not 0 < count <= COUNT_MAX:
            count = None
        own, is_batch = int(numbers.bases[row]), int(located.flags[row]) & _BOTH == _BOTH
        is_hurt = is_batch and (base != own if count == 1 else count is None and base == own)
        if is_hurt and located.topic_of(row) in batch_topics and _holds_one(located, row):
            numbers.are_said[row] = True
        elif count is not None and base is not None:
            numbers.bases[row], numbers.counts[row], numbers.are_said[row] = base, count, True
        elif count is not None and is_batch:
            is_own = located.topic_of(row) in own_bases
            if in_entries or is_own:
                numbers.counts[row], numbers.are_said[row] = count, is_own
    return numbers


def _holds_one(located: Located, row: int) -> bool:
    """Whether the body of a record is a batch of one message."""
    start = int(located.body_at[row])
    body = located.page[start : start + max(int(located.body_size[row]), 0)].tobytes()
    return _piece_count(body, int(located.flags[row])) == 1


def inner_batch_rows(located: Located, numbers: RecordNumbers) -> Mask:
    """Which records say that they are inner batches in every way in which they can, whatever their queue: bool[n].

    INNER_BASE is written only where a batch queue gives the numbers.  4.9 and putMessages store the bits without it in
    plain queues: there they mean nothing.
    """
    is_placed = numbers.are_said & (numbers.bases == located.head("queue_offset"))
    return np.asarray(is_placed & (located.flags & _BOTH == _BOTH))


def without_batch_flags(flags: sys_flag.Flags) -> sys_flag.Flags:
    """The sysFlag of a message that was taken out of a batch: it is none, and its body is not compressed by itself."""
    return sys_flag.without_compression(flags) & ~(sys_flag.NEED_UNWRAP | sys_flag.INNER_BATCH)


@dataclass(frozen=True, slots=True)
class Piece:
    """One message of a batch: the parts of it that are its own.  `properties` is a block as in a record."""

    flag: int
    body: bytes
    properties: bytes


def read_pieces(body: bytes) -> list[Piece]:
    """The messages of a whole, unpacked batch body, in order; an empty body holds none.

    Raises Corrupt(path="", offset=position in the body) at the first piece whose sizes contradict each other or the
    end: Java's decoder does not compare the total size, but no writer gets it wrong.  And for more messages than a unit
    can say: a body of 16 MiB would hold 760,000 empty ones.
    """
    pieces: list[Piece] = []
    position = 0
    while position < len(body):
        if len(pieces) == COUNT_MAX:
            raise Corrupt("", position, f"more than {COUNT_MAX} messages in a batch")
        if len(body) - position < PIECE_SIZE_MIN:
            raise Corrupt("", position, f"{len(body) - position} bytes are left in a batch, too few for a message")
        total_size, _, _, flag, body_size = PIECE_HEAD.struct.unpack_from(body, position)
        end = position + total_size
        if not PIECE_SIZE_MIN <= total_size <= len(body) - position:
            raise Corrupt("", position, f"message of {total_size} bytes in a batch with {len(body) - position} left")
        if not 0 <= body_size <= total_size - PIECE_SIZE_MIN:
            raise Corrupt("", position, f"body of {body_size} bytes in a batched message of {total_size}")
        body_at = position + PIECE_HEAD.size
        (properties_size,) = message.PROPERTIES_SIZE.struct.unpack_from(body, body_at + body_size)
        properties_at = body_at + body_size + message.PROPERTIES_SIZE.size
        if properties_at + properties_size != end:
            raise Corrupt("", position, f"sizes {body_size}, {properties_size} in a batched message of {total_size}")
        pieces.append(Piece(flag, body[body_at : body_at + body_size], body[properties_at:end]))
        position = end
    return pieces


def counted_pieces(body: bytes, count: int) -> list[Piece] | None:
    """The `count` messages of a whole batch body; None where it cannot be taken apart, or holds more or fewer."""
    try:
        pieces = read_pieces(body)
    except Corrupt:
        return None
    return pieces if len(pieces) == count else None


def numbers_said(record: message.Record, base: int, count: int) -> tuple[int, int] | None:
    """The queue offset and the number of messages of a record in a batch queue, each where two of three sources agree:
    the unit (`base`, `count`), the record's property, and its queueOffset field or the pieces of its body.  A record
    that says nothing of messages inside counts as one.  None where no two agree.
    """
    said = parse_properties(record.properties)
    base_said = _said_twice([record.queue_offset, base, _number(said.get(INNER_BASE, "").encode())])
    count_said: int | None = 1
    if record.sys_flag & sys_flag.INNER_BATCH:
        count_said = _said_twice(
            [_piece_count(record.body, record.sys_flag), count, _number(said.get(INNER_COUNT, "").encode())]
        )
        if count_said is None and INNER_COUNT not in said:
            count_said = 1
    if base_said is None or count_said is None:
        return None
    return (base_said, count_said) if 0 < count_said <= COUNT_MAX else None


def _number(text: bytes) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _piece_count(body: bytes, flags: int) -> int | None:
    try:
        return len(read_pieces(decompress(body, flags)))
    except (StoreError, BodyError):
        return None


def _said_twice(numbers: list[int | None]) -> int | None:
    """The number that at least two of three say; None where no two agree."""
    return next((number for number in numbers if number is not None and numbers.count(number) > 1), None)


def encode_pieces(pieces: list[Piece]) -> bytes:
    """The batch body of `pieces`; sizes must fit their fields (struct.error)."""
    batch = bytearray()
    for piece in pieces:
        total_size = PIECE_SIZE_MIN + len(piece.body) + len(piece.properties)
        batch += PIECE_HEAD.struct.pack(total_size, 0, 0, piece.flag, len(piece.body)) + piece.body
        batch += message.PROPERTIES_SIZE.struct.pack(len(piece.properties)) + piece.properties
    return bytes(batch)
