"""Messages of the topics in which a broker keeps its own books, as one Arrow table."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.core.arguments import I32_MAX
from rmqstore.files.disk import tells_of_failure
from rmqstore.formats.java_text import parse_ints
from rmqstore.records.gather import bytes_of
from rmqstore.snapshot.columns import schema_of
from rmqstore.snapshot.plan.range_pruning import RowConditions, prune_ranges
from rmqstore.snapshot.plan.splitting import plan_splits
from rmqstore.snapshot.request import Access, QueueRange, ScanRequest, SplitBudget
from rmqstore.snapshot.scan.damage_policy import DamagePolicy
from rmqstore.snapshot.scan.split_reader import read_split
from rmqstore.snapshot.survey.extents import StoreExtent

Ints = npt.NDArray[np.int64]


class _TablePolicy(DamagePolicy):
    """As the request says; only what a disk that fails holds back is not left out."""

    def tells_loss(self, reason: str) -> bool:
        return super().tells_loss(reason) or tells_of_failure(reason)


def messages_of_topics(
    store: StoreExtent, topics: Sequence[str], columns: Sequence[str], access: Access,
    conditions: RowConditions | None = None,
) -> pa.Table:  # fmt: skip
    """The sound messages of some topics, of those ranges that may fulfil the conditions; no row without the topics.

    Messages that are gone or damaged are left out: a table of what there is does not stop at them, only at a disk that
    fails (DataLost).  Bodies come as they
    are stored: a broker compresses none of its own, and unpacks none (Java: TransactionalMessageBridge.decodeMsgList).
    """
    request = ScanRequest(
        columns=tuple(columns), access=access, on_corrupt_record="skip", fail_on_data_loss=False, decompress=False
    )
    wanted = set(topics)
    ranges: Sequence[QueueRange] = [
        QueueRange(store.broker_name, *queue.key, queue.min_offset, queue.max_offset)
        for queue in store.queues.values()
        if queue.files.topic in wanted
    ]
    if conditions is not None:
        ranges = prune_ranges([store], ranges, conditions)
    splits = plan_splits(store, ranges, request, SplitBudget())
    batches = [batch for split in splits for batch in read_split(split, request, _TablePolicy)]
    return pa.Table.from_batches(batches, schema_of(columns)).combine_chunks()


def property_of(messages: pa.Table, name: str) -> pa.ChunkedArray:
    """string[n]: one property of the column `properties`; null where a message has none."""
    return pc.map_lookup(messages["properties"], pa.scalar(name), "first").cast(pa.string())


def whole_numbers(texts: pa.ChunkedArray, highest: int = I32_MAX) -> pa.Array:
    """int64[n] of decimal texts, as Java's Integer.parseInt takes them, or Long.parseLong for a `highest` of 64 bits;
    null for anything else.
    """
    data, offsets = bytes_of(pc.fill_null(texts, "").combine_chunks())
    numbers, is_number = parse_ints(data, offsets[:-1], np.diff(offsets), highest)
    return pa.array(numbers, mask=~is_number)


def int64s(values: pa.ChunkedArray | pa.Array, absent: int) -> Ints:
    """Whole numbers or instants (in us) as a vector."""
    return np.asarray(pc.fill_null(values.cast(pa.int64()), absent), np.int64)
