"""Bodies that a client compressed, unpacked within a limit.

The only module of the formats that touches pyarrow, whose codecs read LZ4 frames and Zstandard.
"""

import zlib

import pyarrow as pa

from rmqstore.formats.sys_flag import COMPRESSED, CompressionType, compression_type

# RocketMQ's clients unpack a body of any size: a broker limits what it stores, and 60 KiB may be 60 MiB.  A larger body
# than this one is a bomb, or one that a reader has to be ready for.
BODY_SIZE_MAX = 128 * 1024 * 1024
BODY_LIMIT_MAX = 2**31 - 2  # what a value of Arrow holds, and a byte more fits everywhere


class BodyError(ValueError):
    """A body that cannot be unpacked; the text is the reason.  The stored bytes stay at hand for the caller."""


def decompress(body: bytes | memoryview, sys_flag: int, size_max: int = BODY_SIZE_MAX) -> bytes:
    """The body as its producer sent it; a body without the bit COMPRESSED comes back as it is.

    Never makes more than `size_max` bytes (one more is tried).  As in Java's client, bytes after a zlib stream are
    ignored, LZ4 and Zstandard frames may follow each other and nothing else may.  Raises BodyError for an unknown
    compression, damage, a cut stream and a body beyond `size_max`.
    """
    if not sys_flag & COMPRESSED or not len(body):  # Java does not look at a body of no bytes
        return bytes(body)
    size_max = min(size_max, BODY_LIMIT_MAX)
    kind = compression_type(sys_flag)
    if kind is None:
        raise BodyError(f"unknown compression in sysFlag {sys_flag:#x}")
    unpacked = _inflate(body, size_max) if kind is CompressionType.ZLIB else _read_frames(body, kind, size_max)
    if len(unpacked) > size_max:
        raise BodyError(f"{kind.value} body of {len(body)} bytes unpacks to more than {size_max} bytes, the limit")
    return unpacked


def _inflate(body: bytes | memoryview, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(body, size_max + 1)
    except zlib.error as error:
        raise BodyError(f"damaged zlib body: {error}") from error
    if not stream.eof and len(unpacked) <= size_max:
        raise BodyError("zlib body is cut")
    return unpacked


def _read_frames(body: bytes | memoryview, kind: CompressionType, size_max: int) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), kind.value) as stream:
            # A buffer, not `read`: a bytes object of the limit for each small body costs 30 µs.
            return bytes(stream.read_buffer(size_max + 1).to_pybytes())
    except (OSError, pa.ArrowException) as error:
        raise BodyError(f"damaged {kind.value} body: {str(error).splitlines()[0]}") from error
