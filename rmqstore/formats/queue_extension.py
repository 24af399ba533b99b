"""Consume-queue extension units: consumequeue_ext/<topic>/<queueId>/<first byte offset>, with `enableConsumeQueueExt`.

A queue entry whose tags code is an extension address points at one; the unit holds the real tags code.
Java: ConsumeQueueExt.
"""

from collections.abc import Iterable
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

# What stays free behind the last unit of a file: room for END_OF_FILE (Java: END_BLANK_DATA_LENGTH).
BLANK_SIZE = 4
UNIT_SIZE_MAX = 2**15 - 1

# The Bloom filter of the bitmaps, by RocketMQ's defaults: maxErrorRateOfBloomFilter 20, expectConsumerNumUseFilter 32.
FILTER_HASH_COUNT = 3
FILTER_BIT_COUNT = 112

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


def filter_bits(group: str, topic: str) -> tuple[int, ...]:
    """The bits that stand for a consumer group in the bitmap of a message of `topic` that its filter matches.

    Java: BloomFilter.calcBitPositions over `group#topic`, with i32 arithmetic.
    """
    value = murmur3_128(f"{group}#{topic}".encode())[0]
    low, high = value & _U32, value >> 32
    positions = []
    for step in range(1, FILTER_HASH_COUNT + 1):
        mixed = (low + step * high) & _U32
        if mixed >> 31:
            mixed ^= _U32  # the bits flipped, as i32: never negative
        positions.append(mixed % FILTER_BIT_COUNT)
    return tuple(positions)


def encode_bitmap(positions: Iterable[int]) -> bytes:
    """The bitmap with these bits set; bit p is bit p mod 8 of byte p / 8."""
    bits = bytearray(FILTER_BIT_COUNT // 8)
    for position in positions:
        bits[position // 8] |= 1 << position % 8
    return bytes(bits)


_U32, _U64 = 2**32 - 1, 2**64 - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def murmur3_128(data: bytes) -> tuple[int, int]:
    """MurmurHash3 x64 of 128 bits with seed 0: its low and its high half, unsigned."""
    low = high = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        low ^= _scrambled(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        low = (_rotated(low, 27) + high) * 5 + 0x52DCE729 & _U64
        high ^= _scrambled(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        high = (_rotated(high, 31) + low) * 5 + 0x38495AB5 & _U64
    high ^= _scrambled(int.from_bytes(data[whole + 8 :], "little"), _C2, 33, _C1)
    low ^= _scrambled(int.from_bytes(data[whole : whole + 8], "little"), _C1, 31, _C2)
    low, high = low ^ len(data), high ^ len(data)
    low = low + high & _U64
    high = high + low & _U64
    low, high = _mixed(low), _mixed(high)
    low = low + high & _U64
    return low, high + low & _U64


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & _U64


def _scrambled(block: int, first: int, count: int, second: int) -> int:
    return _rotated(block * first & _U64, count) * second & _U64


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _U64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _U64
    return value ^ value >> 33
