"""The body of a batch: its messages one behind the other.  An inner batch (5.x) is stored like that as one record.

Java: MessageDecoder.encodeMessage and decodeMessage.
"""

from dataclasses import dataclass

from rmqstore.errors import Corrupt
from rmqstore.formats.layout import Layout

PIECE_HEAD = Layout(
    ("total_size", "i4"),
    ("magic", "i4"),  # 0, not looked at
    ("body_crc", "i4"),  # 0, not looked at
    ("flag", "i4"),
    ("body_size", "i4"),  # the body follows
)
assert PIECE_HEAD.size == 20
PROPERTIES_SIZE = Layout(("properties_size", "i2"))  # the properties follow

_PIECE_SIZE_MIN = PIECE_HEAD.size + PROPERTIES_SIZE.size


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
        if len(body) - position < _PIECE_SIZE_MIN:
            raise Corrupt("", position, f"{len(body) - position} bytes are left in a batch, too few for a message")
        total_size, _, _, flag, body_size = PIECE_HEAD.struct.unpack_from(body, position)
        end = position + total_size
        if not _PIECE_SIZE_MIN <= total_size <= len(body) - position:
            raise Corrupt("", position, f"message of {total_size} bytes in a batch with {len(body) - position} left")
        if not 0 <= body_size <= total_size - _PIECE_SIZE_MIN:
            raise Corrupt("", position, f"body of {body_size} bytes in a batched message of {total_size}")
        body_at = position + PIECE_HEAD.size
        (properties_size,) = PROPERTIES_SIZE.struct.unpack_from(body, body_at + body_size)
        properties_at = body_at + body_size + PROPERTIES_SIZE.size
        if properties_at + properties_size != end:
            raise Corrupt("", position, f"sizes {body_size}, {properties_size} in a batched message of {total_size}")
        pieces.append(Piece(flag, body[body_at : body_at + body_size], body[properties_at:end]))
        position = end
    return pieces


def encode_pieces(pieces: list[Piece]) -> bytes:
    """The batch body of `pieces`; sizes must fit their fields (struct.error)."""
    batch = bytearray()
    for piece in pieces:
        total_size = _PIECE_SIZE_MIN + len(piece.body) + len(piece.properties)
        batch += PIECE_HEAD.struct.pack(total_size, 0, 0, piece.flag, len(piece.body)) + piece.body
        batch += PROPERTIES_SIZE.struct.pack(len(piece.properties)) + piece.properties
    return bytes(batch)
