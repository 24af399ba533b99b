"""Consume-queue extension units: consumequeue_ext/<topic>/<queueId>/<first byte offset>, with `enableConsumeQueueExt`.

A queue entry whose tags code is an extension address points at one; the unit holds the real tags code.
Java: ConsumeQueueExt.
"""

from dataclasses import dataclass

from rmqstore.formats.layout import Layout

EXTENSION_HEAD = Layout(
    ("unit_size", "i2"),  # this head and the bitmap
    ("tags_code", "i8"),
    ("store_timestamp", "i8"),  # ms since the epoch
    ("bitmap_size", "i2"),  # bytes; the bitmap follows
)
assert EXTENSION_HEAD.size == 20

# A unit size of -1 says that the rest of the file is empty; 0 is unwritten space.
END_OF_FILE = -1

# Bytes that stay free after the last unit of a file: room for END_OF_FILE (Java: END_BLANK_DATA_LENGTH).
BLANK_SIZE = 4
UNIT_SIZE_MAX = 2**15 - 1

# Tag hashes reach down to -2**31 and delivery times are positive: everything below is an address.
ADDRESS_MAX = -(2**31) - 1
_ADDRESS_BASE = -(2**63)


@dataclass(frozen=True, slots=True)
class ExtensionUnit:
    """One unit; `size` is where the next begins after this one, `bitmap` the Bloom bits of matching filters."""

    size: int
    tags_code: int
    store_timestamp: int
    bitmap: bytes


def is_extension_address(tags_code: int) -> bool:
    """True if the third field of a queue entry is an address here instead of a tags code."""
    return tags_code <= ADDRESS_MAX


def address_to_offset(address: int) -> int:
    """The byte offset in the extension files that an extension address means (undefined for other values)."""
    return address - _ADDRESS_BASE


def offset_to_address(offset: int) -> int:
    """The extension address of byte `offset`.  Raises ValueError where no address can express it."""
    address = offset + _ADDRESS_BASE
    if offset < 0 or not is_extension_address(address):
        raise ValueError(f"no extension address for byte {offset}")
    return address


def read_unit(buffer: bytes | memoryview, position: int) -> ExtensionUnit | None:
    """The unit at `position`, None where no whole unit stands (unwritten, end of file, cut, sizes that contradict)."""
    if not 0 <= position <= len(buffer) - EXTENSION_HEAD.size:
        return None
    unit_size, tags_code, store_timestamp, bitmap_size = EXTENSION_HEAD.struct.unpack_from(buffer, position)
    end = position + unit_size
    if bitmap_size < 0 or unit_size != EXTENSION_HEAD.size + bitmap_size or end > len(buffer):
        return None
    return ExtensionUnit(unit_size, tags_code, store_timestamp, bytes(buffer[position + EXTENSION_HEAD.size : end]))


def encode_unit(tags_code: int, store_timestamp: int, bitmap: bytes = b"") -> bytes:
    """The bytes of a unit.  Raises ValueError for a bitmap that makes it larger than UNIT_SIZE_MAX."""
    size = EXTENSION_HEAD.size + len(bitmap)
    if size > UNIT_SIZE_MAX:
        raise ValueError(f"a bitmap of {len(bitmap)} bytes")
    return EXTENSION_HEAD.struct.pack(size, tags_code, store_timestamp, len(bitmap)) + bitmap
