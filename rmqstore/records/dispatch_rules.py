"""The values that dispatch derives from a record, for recovery and readers alike."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rmqstore.formats import java_hash, names, properties, sys_flag
from rmqstore.formats.delay_levels import DEFAULT_DELAY_MS, asked_levels, clamped, waits_ms
from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.formats.property_columns import Pieces, split_pieces
from rmqstore.records.gather import binary_array, bytes_of

_DELAY = properties.DELAY.encode()


def is_dispatched(flags: npt.NDArray[np.int32]) -> Mask:
    """Where a record belongs to a consume queue by its transaction type: none and commit, not prepared or rollback."""
    kind = flags & sys_flag.TRANSACTION_MASK
    return np.asarray((kind == sys_flag.NOT_TRANSACTIONAL) | (kind == sys_flag.COMMIT))


def tags_codes(located: Located, topic: str) -> Ints:
    """The codes that dispatch would put into the entries: the hash of TAGS, or in the schedule topic the delivery time.

    The delivery time uses RocketMQ's default delay levels: a broker's own table is in its configuration, not in the
    store.
    """
    pieces = split_pieces(*bytes_of(binary_array(located.page, located.properties_at, located.properties_size)))
    starts, sizes = pieces.find(b"TAGS")
    codes = java_hash.string_hashes(pieces.data, starts, np.maximum(sizes, 0)).astype(np.int64)
    if topic == names.SCHEDULE_TOPIC:
        set_delivery_times(codes, pieces, located.store_timestamp(), DEFAULT_DELAY_MS)
    return codes


def set_delivery_times(
    codes: Ints, pieces: Pieces, store_ms: Ints, delay_ms: Sequence[int], among: Mask | None = None
) -> None:
    """Puts the delivery times of records of SCHEDULE_TOPIC_XXXX, those of `among`, in the place of their tags codes.

    A record without a level above 0 keeps its code, and so do all where the table `delay_ms` is empty (Java:
    CommitLog.checkMessageAndReturnSize).
    """
    starts, sizes = pieces.find(_DELAY)
    rows = np.flatnonzero(sizes > 0 if among is None else among & (sizes > 0))
    levels = asked_levels(pieces.data, starts[rows], sizes[rows])
    is_delayed = clamped(levels, len(delay_ms)) > 0
    rows = rows[is_delayed]
    codes[rows] = store_ms[rows] + waits_ms(levels[is_delayed], delay_ms)
