"""The CRC property of many records at once; the vector twin of record_crc.verify_property_crc."""

import numpy as np

from rmqstore.formats.message_columns import Bytes, Ints, Mask, gather_bytes
from rmqstore.formats.record_crc import CRC_MASK, PROPERTY_CRC_SIZE, crc_digits, masked_crc32s

_NAME = b"__CRC32#\x01"
_DIGIT_COUNT = len(crc_digits(0))
_WEIGHTS = 10 ** np.arange(_DIGIT_COUNT, dtype=np.int64)


def property_crcs_hold(page: Bytes, starts: Ints, sizes: Ints, properties_sizes: Ints) -> Mask:
    """bool[n]: False where a record (`sizes` bytes at `starts`) ends in a CRC property that does not fit it.

    True for records without the property.  The records must be whole.
    """
    holds = np.ones(len(starts), bool)
    rows = np.flatnonzero(properties_sizes >= PROPERTY_CRC_SIZE)
    if not len(rows):
        return holds
    at = starts[rows] + sizes[rows] - PROPERTY_CRC_SIZE
    has = gather_bytes(page, at, len(_NAME)) == _NAME
    rows, at = rows[has], at[has]
    if not len(rows):
        return holds
    digits = page[at[:, None] + len(_NAME) + np.arange(_DIGIT_COUNT)].astype(np.int64) - ord("0")
    in_range = ((digits >= 0) & (digits <= 9)).all(axis=1)
    stored = (digits * _WEIGHTS).sum(axis=1)
    found = masked_crc32s(page, starts[rows], sizes[rows] - PROPERTY_CRC_SIZE) & CRC_MASK
    holds[rows] = in_range & (stored == found) & (page[at + PROPERTY_CRC_SIZE - 1] == 2)
    return holds
