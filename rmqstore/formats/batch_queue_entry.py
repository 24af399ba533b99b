"""Units of a batch consume queue: 46 bytes a batch in batchconsumequeue/<topic>/<queueId>/<first byte offset>.

Only 5.x writes them, for topics with the attribute queue.type=BatchCQ.
"""

import numpy as np
import numpy.typing as npt

from rmqstore.formats.layout import Layout

BATCH_QUEUE_ENTRY = Layout(
    ("physical_offset", "i8"),  # of the record in the commitlog
    ("size", "i4"),  # bytes of the whole record
    ("tags_code", "i8"),
    ("store_timestamp", "i8"),  # ms since the epoch
    ("base_queue_offset", "i8"),  # queue offset of the batch's first message (INNER_BASE)
    ("message_count", "i2"),  # INNER_NUM
    ("compacted_offset", "i4"),  # always -1 here
    ("reserved", "i4"),
)
assert BATCH_QUEUE_ENTRY.size == 46


def read_batch_entries(data: bytes | memoryview) -> npt.NDArray[np.void]:
    """The units of a byte run: array of BATCH_QUEUE_ENTRY.dtype, a view of `data`; a cut last unit is left out."""
    return np.frombuffer(data, BATCH_QUEUE_ENTRY.dtype, count=len(data) // BATCH_QUEUE_ENTRY.size)


def is_valid(entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Where a unit is written (Java: BatchConsumeQueue.recover): bool[n]; the first invalid one ends the data."""
    valid: npt.NDArray[np.bool_] = (
        (entries["physical_offset"] >= 0)
        & (entries["size"] > 0)
        & (entries["base_queue_offset"] >= 0)
        & (entries["message_count"] > 0)
    )
    return valid
