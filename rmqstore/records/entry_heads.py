"""The heads of DLedger's entries around the records of a log, held against them and against each other."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore.formats import dledger, message
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.formats.message_columns import Mask, gather_rows
from rmqstore.records.batch import EntryHeads, RecordBatch


@dataclass(frozen=True, slots=True)
class LastHead:
    """The index and the term of the last entry of a walk, -1 before the first."""

    index: int = -1
    term: int = -1

    def judged(self, batch: RecordBatch, data: bytes, offset: int) -> "tuple[RecordBatch | message.Torn, LastHead]":
        """The records of `batch` as far as their entries are sound, with their `heads`, and the last of these; or what
        is wrong with the first one.

        `data` begins at `offset` of the log, and the batch was found in it.  A record at its very beginning, behind
        the head of its entry, is believed.
        """
        page = np.frombuffer(data, np.uint8)
        starts = batch.offsets - offset - ENTRY_HEAD.size
        first = int(starts[0] < 0)
        heads = gather_rows(page, starts[first:], ENTRY_HEAD.dtype)
        if not len(heads):
            return batch, LastHead()
        wrong = self._wrong(batch, first, heads)
        count = int(np.argmax(wrong)) if wrong.any() else len(heads)
        if count + first == 0:
            return message.Torn(offset, self._reason(batch, heads)), self
        last = LastHead(int(heads["index"][count - 1]), int(heads["term"][count - 1])) if count else self
        if count < len(heads):
            kept = batch.take(np.arange(count + first))
            batch = RecordBatch(kept.offsets, kept.located, int(kept.offsets[-1] + kept.sizes[-1]))
        batch.heads = heads[:count]
        return batch, last

    def _wrong(self, batch: RecordBatch, first: int, heads: EntryHeads) -> Mask:
        index, term = heads["index"].astype(np.int64), heads["term"].astype(np.int64)
        sizes = batch.sizes[first:]
        wrong: Mask = heads["magic"] != dledger.MAGIC_MESSAGE
        wrong |= (heads["body_size"] != sizes) | (heads["size"] != sizes + ENTRY_HEAD.size)
        wrong |= heads["offset"] != batch.offsets[first:] - ENTRY_HEAD.size
        before = np.concatenate(([self.index], index[:-1]))
        wrong |= ((index != before + 1) & (before >= 0)) | (index < 0)
        wrong |= term < np.concatenate(([self.term], term[:-1]))
        return wrong

    def _reason(self, batch: RecordBatch, heads: EntryHeads) -> str:
        """The reason why the first entry is wrong."""
        head: npt.NDArray[np.void] = heads[0]
        size = int(batch.sizes[0])
        if head["magic"] != dledger.MAGIC_MESSAGE:
            return f"an entry of kind {int(head['magic'])}, which is no message's"
        if head["size"] != size + ENTRY_HEAD.size or head["body_size"] != size:
            return f"the entry says that it has {int(head['size'])} bytes, {int(head['body_size'])} of them its body"
        if head["offset"] != batch.offsets[0] - ENTRY_HEAD.size:
            return f"the entry says that it stands at {int(head['offset'])}"
        said = f"entry {int(head['index'])} of term {int(head['term'])}"
        return f"{said} follows entry {self.index} of term {self.term}"
