"""The two CRCs of a record: of the body (a header field), and of the whole record (a property, since 5.2.0).

Both are CRC-32 as zlib computes it, masked to 31 bits, 0 for nothing.  Java: UtilAll.crc32.  zlib-ng computes it with
the processor's own instructions: 80 ns for 1 KiB where zlib takes 590.
"""

import numpy as np
import numpy.typing as npt
from zlib_ng import zlib_ng

from rmqstore.formats.layout import Layout
from rmqstore.formats.message_columns import gather_bytes
from rmqstore.formats.properties import CRC32, NAME_END, VALUE_END

CRC_MASK = 0x7FFFFFFF

crc32 = zlib_ng.crc32

_DIGIT_COUNT = 10
_PROPERTY_NAME = CRC32.encode() + NAME_END
# The last bytes of a record with the property: __CRC32#, 0x01, ten digits, 0x02.
PROPERTY_CRC_SIZE = len(_PROPERTY_NAME) + _DIGIT_COUNT + len(VALUE_END)
assert PROPERTY_CRC_SIZE == 20
# The bytes of the property that are the same in every record, and where they stand.
_TEMPLATE = _PROPERTY_NAME + bytes(_DIGIT_COUNT) + VALUE_END
_FIXED = [*range(len(_PROPERTY_NAME)), PROPERTY_CRC_SIZE - 1]

# Measured in ns a slice, lockstep beside single calls: 62 and 213 at 20 bytes, 129 and 223 at 100, 360 and 217 at 150.
_LOCKSTEP_SIZE_MAX = 128
# Fewer short slices than this are not worth a round of numpy calls for every four bytes.
_LOCKSTEP_COUNT_MIN = 64
# Rows in flight: their registers and the tables stay in the second-level cache.
_BLOCK_COUNT = 32768

_WORD = Layout(("word", "i4"))
_ONES = np.uint32(0xFFFFFFFF)

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]


def masked_crc32(data: bytes | memoryview) -> int:
    """CRC-32 of `data` with the sign bit cleared, as RocketMQ stores it: 0 … 2**31 - 1."""
    return int(crc32(data)) & CRC_MASK


def crc_digits(value: int) -> bytes:
    """The ten ASCII digits of the CRC property: least significant first, padded with 0 (1234 → b"4321000000")."""
    return f"{value:0{_DIGIT_COUNT}d}"[::-1].encode()


def property_crc(record_part: bytes | memoryview) -> bytes:
    """The 20 last bytes of a record whose other bytes are `record_part`."""
    return _PROPERTY_NAME + crc_digits(masked_crc32(record_part)) + VALUE_END


def verify_property_crc(record: bytes | memoryview) -> bool | None:
    """Whether the CRC property at the end of a whole record fits the bytes before it; None for a record without it.

    No CRC covers the property's own name: where one byte of it is another, and its digits are right, that is damage.
    """
    covered, tail = record[:-PROPERTY_CRC_SIZE], bytes(record[-PROPERTY_CRC_SIZE:])
    if len(tail) < PROPERTY_CRC_SIZE:
        return None
    others = sum(tail[place] != _TEMPLATE[place] for place in _FIXED)
    if others > 1:
        return None
    fits = tail[len(_PROPERTY_NAME) : -1] == property_crc(covered)[len(_PROPERTY_NAME) : -1]
    return fits if not others else (False if fits else None)


def masked_crc32s(page: Bytes, starts: Ints, sizes: Ints) -> Ints:
    """`masked_crc32` of n slices of a page: uint8[nbytes], int64[n], int64[n] → int64[n].

    Short slices go in lockstep, four bytes of all of them a step: about 130 ns for each 100 bytes where a call takes
    220 ns; long slices go to zlib-ng one by one (210 ns, and 0.02 ns a byte).  Slices need no order and may overlap.
    Raises ValueError for a slice outside the page.
    """
    if len(starts) and (starts.min() < 0 or sizes.min() < 0 or (starts > len(page) - sizes).any()):
        raise ValueError("a slice reaches outside the page")
    crcs = np.empty(len(starts), np.int64)
    short = np.flatnonzero(sizes <= _LOCKSTEP_SIZE_MAX)
    if len(short) < _LOCKSTEP_COUNT_MIN:
        short = short[:0]
    for first in range(0, len(short), _BLOCK_COUNT):
        rows = short[first : first + _BLOCK_COUNT]
        crcs[rows] = _lockstep(page, starts[rows], sizes[rows])
    single = np.ones(len(starts), bool)
    single[short] = False
    rows = np.flatnonzero(single)
    view = memoryview(np.ascontiguousarray(page))
    bounds = zip(starts[rows].tolist(), (starts[rows] + sizes[rows]).tolist(), strict=True)
    crcs[rows] = [crc32(view[start:end]) for start, end in bounds]
    return crcs & CRC_MASK


def property_crcs_hold(page: Bytes, starts: Ints, total_sizes: Ints, properties_sizes: Ints) -> npt.NDArray[np.bool_]:
    """Where n whole records of a page do not contradict their CRC property: bool[n].

    `page` is uint8[nbytes], the others are int64[n].  `verify_property_crc` for many: False where it says False, True
    for records without the property too.
    """
    holds = np.ones(len(starts), bool)
    rows = np.flatnonzero(properties_sizes >= PROPERTY_CRC_SIZE)
    tails_at = (starts + total_sizes)[rows] - PROPERTY_CRC_SIZE
    tails = gather_bytes(page, tails_at, PROPERTY_CRC_SIZE).view(np.uint8).reshape(-1, PROPERTY_CRC_SIZE)
    likely = (tails[:, 0] == _TEMPLATE[0]) | (tails[:, 1] == _TEMPLATE[1])  # one of two, as one may be another byte
    rows, tails = rows[likely], tails[likely]
    others = (tails[:, _FIXED] != np.frombuffer(_TEMPLATE, np.uint8)[_FIXED]).sum(axis=1)
    named = others <= 1
    if not named.any():
        return holds
    rows, tails, others = rows[named], tails[named], others[named]
    digits = tails[:, len(_PROPERTY_NAME) : -1].astype(np.int64) - ord("0")
    stored = digits @ 10 ** np.arange(_DIGIT_COUNT, dtype=np.int64)
    well_formed = ((digits >= 0) & (digits <= 9)).all(axis=1)
    fits = well_formed & (masked_crc32s(page, starts[rows], total_sizes[rows] - PROPERTY_CRC_SIZE) == stored)
    holds[rows] = fits == (others == 0)
    return holds


def _byte_table() -> _Words:
    """uint32[256]: what eight shifts make of each low byte (the polynomial is 0xEDB88320, bits reflected)."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


def _word_table(registers: _Words) -> _Words:
    """The registers after four more zero bytes."""
    for _ in range(_WORD.size):
        registers = _BYTE_TABLE[registers & 0xFF] ^ (registers >> np.uint32(8))
    return registers


_BYTE_TABLE = _byte_table()
# The register after a word is LOW[its low half] ^ HIGH[its high half]: a CRC is linear.
_LOW_TABLE = _word_table(np.arange(1 << 16, dtype=np.uint32))
_HIGH_TABLE = _word_table(np.arange(1 << 16, dtype=np.uint32) << np.uint32(16))


def _lockstep(page: Bytes, starts: Ints, sizes: Ints) -> Ints:
    """CRC-32 of n slices: single bytes up to a word boundary of memory, then aligned words, then single bytes."""
    skew = page.ctypes.data % _WORD.size
    heads = np.minimum(-(starts + skew) % _WORD.size, sizes)
    word_counts = (sizes - heads) // _WORD.size
    registers = np.full(len(starts), _ONES)
    _feed_bytes(registers, page, starts, heads)
    base = -skew % _WORD.size
    word_room = max(0, len(page) - base) // _WORD.size
    words = page[base : base + word_room * _WORD.size].view("<u4")
    positions = (starts + heads - base) // _WORD.size
    if len(starts) and (word_counts == word_counts[0]).all():
        registers = _feed_words(registers, words, positions, word_counts)
    else:
        by_count = np.argsort(-word_counts, kind="stable")
        registers[by_count] = _feed_words(registers[by_count], words, positions[by_count], word_counts[by_count])
    fed = heads + word_counts * _WORD.size
    _feed_bytes(registers, page, starts + fed, sizes - fed)
    return (registers ^ _ONES).astype(np.int64)


def _feed_bytes(registers: _Words, page: Bytes, positions: Ints, counts: Ints) -> None:
    """Feeds the `counts` (0 … 3) bytes at `positions` to the registers, in place."""
    for step in range(_WORD.size - 1):
        rows = np.flatnonzero(counts > step)
        fed = registers[rows]
        registers[rows] = _BYTE_TABLE[(fed ^ page[positions[rows] + step]) & 0xFF] ^ (fed >> np.uint32(8))


def _feed_words(registers: _Words, words: _Words, positions: Ints, counts: Ints) -> _Words:
    """The registers after `counts` (descending) words each from `positions` on; overwrites its arguments."""
    # rows[k]: how many rows have a word k
    rows = np.searchsorted(-counts, -np.arange(int(counts[0]) if len(counts) else 0), side="left")
    for row_count in rows.tolist():
        live = registers[:row_count]
        at = positions[:row_count]
        live ^= words.take(at)
        at += 1
        halves = live.astype("<u4", copy=False).view("<u2").reshape(-1, 2)
        np.bitwise_xor(_LOW_TABLE.take(halves[:, 0]), _HIGH_TABLE.take(halves[:, 1]), out=live)
    return registers
