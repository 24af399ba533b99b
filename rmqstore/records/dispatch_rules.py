"""What dispatch derives from a record, for recovery and readers alike."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rmqstore.formats import java_hash, names, properties, sys_flag
from rmqstore.formats.delay_levels import DEFAULT_DELAY_MS, level_of
from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.formats.property_columns import Pieces, split_pieces
from rmqstore.records.gather import binary_array, bytes_of

_DELAY = properties.DELAY.encode()


def is_dispatched(flags: npt.NDArray[np.int32]) -> Mask:
    """Where a record belongs to a consume queue by its transaction type: none and commit, not prepared or rollback."""
    kind = flags & sys_flag.TRANSACTION_MASK
    return np.asarray((kind == sys_flag.NOT_TRANSACTIONAL) | (kind == sys_flag.COMMIT))


def tags_codes(located: Located, topic: str) -> Ints:
    """What dispatch would put into the entries: the hash of TAGS, or in the schedule topic the delivery time.

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

    A record without a level above 0 keeps its code.  Levels beyond the table are the last one; an empty table waits a
    second (Java: CommitLog.checkMessageAndReturnSize, DelayLevel.computeDeliverTimestamp).
    """
    starts, sizes = pieces.find(_DELAY)
    delayed = sizes > 0 if among is None else among & (sizes > 0)
    for row in np.flatnonzero(delayed).tolist():
        level = level_of(pieces.data[starts[row] : starts[row] + sizes[row]].tobytes())
        if level > 0:
            codes[row] = store_ms[row] + (delay_ms[min(level, len(delay_ms)) - 1] if delay_ms else 1000)
