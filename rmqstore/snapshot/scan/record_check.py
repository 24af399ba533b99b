"""Records that queue entries point at, each held against its entry: is it whole, in its place, of its queue,
unchanged?
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqstore.directory.extension_files import contradicted, holds_tag_hashes
from rmqstore.directory.log_files import Gathered
from rmqstore.directory.queue_files import BATCH
from rmqstore.formats import sys_flag
from rmqstore.formats.inner_batch import inner_batch_rows, record_numbers
from rmqstore.formats.message_columns import Ints, Located, Mask, equal_bytes, locate
from rmqstore.formats.names import is_light_queue
from rmqstore.records.soundness import Reason, Reasons, judge_crcs, judge_place, mark
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.split import Split

Entries = npt.NDArray[np.void]


class RecordCheck:
    """Checks the records of a split's spans.

    `crc` tells where records are held against their CRCs, and tags against their entries: "always", "never", or "auto",
    from the split's `crc_from` of the log on.
    """

    def __init__(self, split: Split, crc: str) -> None:
        self._split, spans = split, split.spans
        self._crc = crc
        self._crc_from = split.crc_from
        self._topics = list(dict.fromkeys(span.topic for span in spans))
        self._only = self._topics[0].encode() if len(self._topics) == 1 else b""
        self._topic_array = pa.array(self._topics, pa.string())
        number_of = {topic: number for number, topic in enumerate(self._topics)}
        self._topic_numbers = np.array([number_of[span.topic] for span in spans], np.int64)
        self._queue_ids = np.array([span.queue_id for span in spans], np.int32)
        self._are_batches = np.array([span.kind == BATCH for span in spans], bool)

    def rows(self, entries: Entries, numbers: Ints, gathered: Gathered) -> Rows:
        """The records of `entries` (undispatched.FOUND_ENTRY, n) with a reason each; `numbers` int64[n] are their
        spans.
        """
        offsets = entries["physical_offset"].copy()
        located = locate(gathered.page, gathered.positions, topic=self._only)
        reasons = judge_place(located, offsets)
        topics = self._topic_numbers[numbers]
        inner_counts = self._inner_counts(located, entries, numbers)
        queue_ids = self._queue_ids[numbers]
        if len(offsets) and located.sound.any():
            mark(reasons, located.total_size != entries["size"], Reason.NOT_WHOLE)
            elsewhere = located.head("queue_offset") != entries["queue_offset"]
            if inner_counts is not None:  # in a plain queue, as a replica may have it, not in its number's place
                elsewhere &= (inner_counts == 0) | self._are_batches[numbers]
            other = (queue_ids != located.head("queue_id")) | elsewhere
            self._judge_queue(located, reasons, other, topics)
            if self._crc == "always" or (self._crc == "auto" and int(offsets.max()) >= self._crc_from):
                checked = None if self._crc == "always" else offsets >= self._crc_from
                judge_crcs(located, reasons, checked, gap=gathered.gap)
                self._judge_tags(located, reasons, (entries["tags_code"], numbers), checked)
        only = len(self._topics) == 1
        return Rows(
            located, self._topics[0] if only else self._topic_array.take(pa.array(topics)), queue_ids,
            entries["queue_offset"].copy(), offsets, entries["size"].copy(), reasons, entries["tags_code"].copy(),
            inner_counts,
        )  # fmt: skip

    def _inner_counts(self, located: Located, entries: Entries, numbers: Ints) -> Ints | None:
        """How many messages the inner batches among the records have, 0 for others: as their unit counts them, or what
        they say where they are in a plain queue.  A unit of several messages makes a batch of what does not say so.
        """
        both = sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP
        flagged = located.sound & (located.flags & both == both)
        if not flagged.any():
            return None
        said, of_units = record_numbers(located), self._are_batches[numbers]
        are_inner = flagged & ((of_units & (entries["count"] > 1)) | inner_batch_rows(located, said))
        return np.where(are_inner, np.where(of_units, entries["count"], said.counts), 0)

    @cached_property
    def _hashed(self) -> Mask:
        """bool[spans], where the entries hold hashes of tags."""
        split = self._split
        return np.array([holds_tag_hashes(split.disk, split.path, span.key, span.kind) for span in split.spans], bool)

    def _judge_tags(self, located: Located, reasons: Reasons, entries: tuple[Ints, Ints], checked: Mask | None) -> None:
        """Marks records whose TAGS are not those of their entry: what a tear after the body leaves passes all else.

        `entries` are the tags codes and the spans' numbers.
        """
        codes, numbers = entries
        wanted = (reasons == Reason.SOUND) & self._hashed[numbers]
        rows = np.flatnonzero(wanted if checked is None else wanted & checked)
        if len(rows):
            reasons[rows[contradicted(located.take(rows), codes[rows])]] = Reason.TAGS

    def _judge_queue(self, located: Located, reasons: Reasons, other: Mask, topics: Ints) -> None:
        """Marks records of another topic, and those that say another place in their queue than their entry does."""
        if located.topic and located.topic == self._only and not is_light_queue(self._topics[0]):
            mark(reasons, other, Reason.WRONG_QUEUE)
            return
        sizes = np.where(located.sound, located.topic_size, -1)
        for number in range(len(self._topics)) if len(self._topics) == 1 else np.unique(topics).tolist():
            topic = self._topics[number]
            if is_light_queue(topic):
                continue  # a light queue's records are of other topics and queues
            own: Mask | slice = slice(None) if len(self._topics) == 1 else topics == number
            same = np.ones(len(topics), bool)
            same[own] = equal_bytes(located.page, located.topic_at[own], sizes[own], topic.encode())
            wrong = np.zeros(len(topics), bool)
            wrong[own] = other[own]
            mark(reasons, wrong, Reason.WRONG_QUEUE)
            mark(reasons, ~same, Reason.WRONG_TOPIC)
