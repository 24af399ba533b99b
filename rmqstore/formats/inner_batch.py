"""The body of a batch: its messages one behind the other.  An inner batch (5.x) is stored like that as one record.

Java: MessageDecoder.encodeMessage and decodeMessage.
"""

from dataclasses import dataclass

from rmqstore.errors import Corrupt, StoreError
from rmqstore.formats import message, sys_flag
from rmqstore.formats.compression import BodyError, decompress
from rmqstore.formats.layout import Layout
from rmqstore.formats.properties import INNER_BASE, INNER_COUNT, parse_properties

PIECE_HEAD = Layout(
    ("total_size", "i4"),
    ("magic", "i4"),  # 0, not looked at
    ("body_crc", "i4"),  # 0, not looked at
    ("flag", "i4"),
    ("body_size", "i4"),  # the body follows
)
assert PIECE_HEAD.size == 20
PROPERTIES_SIZE = Layout(("properties_size", "i2"))  # the properties follow

COUNT_MAX = 2**15 - 1  # messages of a batch that a unit can say
PIECE_SIZE_MIN = PIECE_HEAD.size + PROPERTIES_SIZE.size  # of a message without body and properties


@dataclass(frozen=True, slots=True)
class Piece:
    """One message of a batch: what it has of its own.  `properties` is a block as in a record."""

    flag: int
    body: bytes
    properties: bytes


def read_pieces(body: bytes) -> list[Piece]:
    """The messages of a whole, unpacked batch body, in order; an empty body holds none.

    Raises Corrupt(path="", offset=position in the body) at the first piece whose sizes contradict each other or the
    end: Java's decoder does not compare the total size, but no writer gets it wrong.
    """
    pieces = []
    position = 0
    while position < len(body):
        if len(body) - position < PIECE_SIZE_MIN:
            raise Corrupt("", position, f"{len(body) - position} bytes are left in a batch, too few for a message")
        total_size, _, _, flag, body_size = PIECE_HEAD.struct.unpack_from(body, position)
        end = position + total_size
        if not PIECE_SIZE_MIN <= total_size <= len(body) - position:
            raise Corrupt("", position, f"message of {total_size} bytes in a batch with {len(body) - position} left")
        if not 0 <= body_size <= total_size - PIECE_SIZE_MIN:
            raise Corrupt("", position, f"body of {body_size} bytes in a batched message of {total_size}")
        body_at = position + PIECE_HEAD.size
        (properties_size,) = PROPERTIES_SIZE.struct.unpack_from(body, body_at + body_size)
        properties_at = body_at + body_size + PROPERTIES_SIZE.size
        if properties_at + properties_size != end:
            raise Corrupt("", position, f"sizes {body_size}, {properties_size} in a batched message of {total_size}")
        pieces.append(Piece(flag, body[body_at : body_at + body_size], body[properties_at:end]))
        position = end
    return pieces


def numbers_said(record: message.Record, base: int, count: int) -> tuple[int, int] | None:
    """The queue offset and the number of messages of the batch in a record, each as two of three voices have it: the
    unit's (`base`, `count`), the record's property, and its queueOffset field or the pieces of its body.  None where no
    two agree, or for no inner batch.
    """
    said = parse_properties(record.properties)
    base_said = _said_twice([record.queue_offset, base, _number(said.get(INNER_BASE))])
    count_said = _said_twice([_piece_count(record), count, _number(said.get(INNER_COUNT))])
    if base_said is None or count_said is None or not record.sys_flag & sys_flag.INNER_BATCH:
        return None
    return (base_said, count_said) if 0 < count_said <= COUNT_MAX else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


def _piece_count(record: message.Record) -> int | None:
    try:
        return len(read_pieces(decompress(record.body, record.sys_flag)))
    except (StoreError, BodyError):
        return None


def _said_twice(numbers: list[int | None]) -> int | None:
    """What at least two of three say."""
    return next((number for number in numbers if number is not None and numbers.count(number) > 1), None)


def encode_pieces(pieces: list[Piece]) -> bytes:
    """The batch body of `pieces`; sizes must fit their fields (struct.error)."""
    batch = bytearray()
    for piece in pieces:
        total_size = PIECE_SIZE_MIN + len(piece.body) + len(piece.properties)
        batch += PIECE_HEAD.struct.pack(total_size, 0, 0, piece.flag, len(piece.body)) + piece.body
        batch += PROPERTIES_SIZE.struct.pack(len(piece.properties)) + piece.properties
    return bytes(batch)
