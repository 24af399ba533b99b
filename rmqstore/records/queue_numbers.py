"""The distinct queues of many rows, as numbers."""

import numpy as np

from rmqstore.formats.message_columns import Ints

# More cells than this for each row are not worth a table.
_CELLS_PER_ROW, _CELLS_MIN = 16, 1024


def distinct_queues(topic_numbers: Ints, queue_ids: Ints) -> tuple[list[tuple[int, int]], Ints]:
    """The pairs of topic number and queue id that occur in n ≥ 1 rows, ascending, and which of them each row has:
    int64[n].  Topic numbers are at least 0; queue ids fit 32 bits, and may come from a hostile record.
    """
    span = int(queue_ids.max()) + 1
    cells = span * (int(topic_numbers.max()) + 1)
    if int(queue_ids.min()) < 0 or cells > _CELLS_PER_ROW * len(queue_ids) + _CELLS_MIN:
        pairs, numbers = np.unique(topic_numbers << 32 | (queue_ids + 2**31), return_inverse=True)
        return [(pair >> 32, (pair & 0xFFFFFFFF) - 2**31) for pair in pairs.tolist()], numbers.astype(np.int64)
    keys = topic_numbers * span + queue_ids
    present = np.flatnonzero(np.bincount(keys, minlength=cells))
    places = np.zeros(cells, np.int64)
    places[present] = np.arange(len(present))
    return [divmod(key, span) for key in present.tolist()], places[keys]
