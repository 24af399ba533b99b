"""Which queue a message goes to that names none: by the hash of its keys, or in turn; in vectors.

The hash is Java's String.hashCode, and its remainder made positive: the queue is the one that a RocketMQ producer with
SelectMessageQueueByHash chooses for the same text.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.engine.log.encode.binary_columns import data_of, offsets_of
from rmqstore.engine.log.encode.column_values import property_texts, texts_of
from rmqstore.formats.java_hash import string_hashes
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.formats.properties import KEYS

_QUEUE_ID = "queueId"


class QueueChoice:
    """Chooses among `queue_count` queues, row by row of the batches that it is given, the first turn being `turn`."""

    def __init__(self, queue_count: int, turn: int = 0) -> None:
        self._queue_count = queue_count
        self._turn = turn % queue_count

    def queued(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a queueId in every row: its own, or one that is chosen.

        Columns of wrong types are left as they are: `read_columns` refuses them.
        """
        place = batch.schema.get_field_index(_QUEUE_ID)
        own = batch.column(place) if place >= 0 else None
        if own is not None and (not own.null_count or not pa.types.is_integer(own.type)):
            return batch
        chosen = self._chosen(batch)
        if own is None:
            return batch.append_column(_QUEUE_ID, pa.array(chosen, pa.int32()))
        filled = pc.coalesce(own.cast(pa.int64()), pa.array(chosen))
        return batch.set_column(place, _QUEUE_ID, filled)

    def _chosen(self, batch: pa.RecordBatch) -> Ints:
        queue_ids = (np.arange(batch.num_rows, dtype=np.int64) + self._turn) % self._queue_count
        keys = _key_texts(batch)
        if keys is None:
            self._turn = (self._turn + batch.num_rows) % self._queue_count
            return queue_ids
        offsets = offsets_of(keys).astype(np.int64)
        sizes = np.diff(offsets)
        has_key: Mask = (sizes > 0) & keys.is_valid().to_numpy(zero_copy_only=False)
        hashes = string_hashes(data_of(keys), offsets[:-1], sizes).astype(np.int64)
        # The rows without keys take turns among themselves.
        turns = self._turn + np.cumsum(~has_key) - 1
        self._turn = int(self._turn + (~has_key).sum()) % self._queue_count
        return np.where(has_key, np.abs(np.fmod(hashes, self._queue_count)), turns % self._queue_count)


def _key_texts(batch: pa.RecordBatch) -> pa.Array | None:
    """KEYS of each row as binary[n], from its properties where `keys` has none; None where no row has any."""
    own, inside = (_column(batch, name) for name in ("keys", "properties"))
    texts = None if own is None else texts_of(own)
    if inside is not None and (texts is None or texts.null_count):
        more = property_texts(inside, KEYS)
        texts = more if texts is None else texts if more is None else pc.coalesce(texts, more)
    if texts is None or texts.null_count == len(texts):
        return None
    return texts


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    place = batch.schema.get_field_index(name)
    return batch.column(place) if place >= 0 else None
