"""The values that dispatch derives from a record, for recovery and readers alike."""

import numpy as np
import numpy.typing as npt

from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.delay_levels import LevelTables, asked_levels, waits_at
from rmqstore.formats.index_table import text_hashes
from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.formats.property_columns import Pieces, split_pieces
from rmqstore.records.gather import binary_array, bytes_of

_DELAY = properties.DELAY.encode()


def is_dispatched(flags: npt.NDArray[np.int32]) -> Mask:
    """Where a record belongs to a consume queue by its transaction type: none and commit, not prepared or rollback."""
    kind = flags & sys_flag.TRANSACTION_MASK
    return np.asarray((kind == sys_flag.NOT_TRANSACTIONAL) | (kind == sys_flag.COMMIT))


def tags_codes(located: Located, topic: str, levels: LevelTables) -> Ints:
    """The codes that dispatch would put into the entries: the hash of TAGS, or in the schedule topic the delivery time
    by the delay levels.
    """
    pieces = split_pieces(*bytes_of(binary_array(located.page, located.properties_at, located.properties_size)))
    starts, sizes = pieces.find(b"TAGS")
    codes = text_hashes(pieces.data, starts, np.maximum(sizes, 0)).astype(np.int64)
    if topic == names.SCHEDULE_TOPIC:
        offsets = located.head("physical_offset").astype(np.int64)
        set_delivery_times(codes, pieces, (offsets, located.store_timestamp()), levels)
    return codes


def set_delivery_times(
    codes: Ints, pieces: Pieces, records: tuple[Ints, Ints], levels: LevelTables, among: Mask | None = None
) -> None:
    """Puts the delivery times of records of SCHEDULE_TOPIC_XXXX, those of `among`, in the place of their tags codes;
    `records` are their offsets in the log and their store times in ms, int64[n] each.

    A record without a level above 0 keeps its code, and so do all where there are no levels (Java:
    CommitLog.checkMessageAndReturnSize).
    """
    offsets, store_ms = records
    starts, sizes = pieces.find(_DELAY)
    rows = np.flatnonzero(sizes > 0 if among is None else among & (sizes > 0))
    waits = waits_at(asked_levels(pieces.data, starts[rows], sizes[rows]), offsets[rows], levels)
    is_delayed = waits >= 0
    rows = rows[is_delayed]
    codes[rows] = store_ms[rows] + waits[is_delayed]
