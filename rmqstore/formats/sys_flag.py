"""The bits of sysFlag, the i32 that says how a record is encoded and what part of a transaction it is.

Plain integers, so that they work on numpy vectors of flags as well.  Java: MessageSysFlag, CompressionType.
"""

import enum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

COMPRESSED = 0x1
MULTI_TAGS = 0x2

# Two bits, one value: compare `flag & TRANSACTION_MASK` with the values, since ROLLBACK contains the bit of PREPARED.
TRANSACTION_MASK = 0xC
NOT_TRANSACTIONAL = 0x0
PREPARED = 0x4
COMMIT = 0x8
ROLLBACK = 0xC

BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80

COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300


class CompressionType(enum.Enum):
    """How the body of a record with the bit COMPRESSED is compressed."""

    ZLIB = "zlib"  # RFC 1950
    LZ4 = "lz4"  # LZ4 frames
    ZSTD = "zstd"  # Zstandard frames


_COMPRESSION_TYPES = {
    0x000: CompressionType.ZLIB,  # writers before 4.9.4 set the bit COMPRESSED alone
    COMPRESSION_LZ4: CompressionType.LZ4,
    COMPRESSION_ZSTD: CompressionType.ZSTD,
    COMPRESSION_ZLIB: CompressionType.ZLIB,
}


def compression_type(sys_flag: int) -> CompressionType | None:
    """The compression that bits 8–10 name, None for the unknown values 4–7; means nothing without bit COMPRESSED."""
    return _COMPRESSION_TYPES.get(sys_flag & COMPRESSION_MASK)


Flags = TypeVar("Flags", int, npt.NDArray[np.int32])


def without_compression(flags: Flags) -> Flags:
    """The flags of a message whose body is not compressed, or not any more."""
    return flags & ~(COMPRESSED | COMPRESSION_MASK)


def is_inner_batch(sys_flag: int) -> bool:
    """True for a record whose body is a whole batch (5.x, queue type BatchCQ); `inner_batch.read_pieces` cuts it."""
    both = NEED_UNWRAP | INNER_BATCH
    return sys_flag & both == both
