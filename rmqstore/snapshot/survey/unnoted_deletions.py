"""Topics that were deleted, which nobody noted: RocketMQ never does.

The log still has the deleted messages, until they expire.  A survey that walks it meets them as records without an
entry.  Entries are written in the order of the log: what has none in front of one was deleted, or the entry is lost.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from rmqstore.directory.config_files import load_newest
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import FIRST_MAX, is_backed
from rmqstore.directory.queue_files import BATCH, SIMPLE, holds_message, queues_of
from rmqstore.errors import TooLarge
from rmqstore.files.disk import ReadableDisk
from rmqstore.formats import broker_json
from rmqstore.formats.deleted_topics import Deleted, DeletedTopic, DeletedTopics
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.formats.queue_entry import is_pre_blank
from rmqstore.snapshot.survey.census import Census, FirstFound
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.survey.queue_entries import QueueEntries


class RemadeQueues(NamedTuple):
    """Queues that begin again at a place of the log.

    `by_files`: a record without an entry stands in front of their very first message, by their files and its record.
    `by_log`: they have no entries, and records of theirs say 0 and 1 after older ones.
    """

    by_files: dict[QueueKey, int]
    by_log: dict[QueueKey, int]

    @property
    def queues(self) -> dict[QueueKey, int]:
        """All of them; where both know a place, that of the files."""
        return self.by_log | self.by_files

    @property
    def topics(self) -> dict[Deleted, DeletedTopic]:
        """The topics of those whose files tell: of their other queues, too, what stands in front of that and has no
        entry was deleted, as all of a topic go at once.

        Not for a store that was killed: there messages have lost their entries, the topic's new ones as well.  Nor does
        the log alone tell: in front of the place there a new topic's other queues may have messages.
        """
        found: dict[Deleted, DeletedTopic] = {}
        for (topic, _), begin in self.by_files.items():
            known = found.get(topic)
            found[topic] = DeletedTopic(begin if known is None else min(known.log_end, begin))
        return found


def restarted_queues(census: Census, entries: QueueEntries, view: LogView) -> RemadeQueues:
    """The queues that begin again, as census and entries have it.  Raises DataLost.

    A record that another queue's entry points at is damaged, and proves nothing.
    """
    begins = {key: _first_message(entries, key, first, view) for key, first in census.first_found.items()}
    older = {census.first_found[key].place: (key, begin) for key, begin in begins.items() if begin >= 0}
    proven = dict(older[place] for place in older.keys() - entries.pointing_at(older))
    return RemadeQueues(proven, dict(census.restarts))


def topics_gone(store: StoreExtent, census: Census, known_end: int, *, with_light: bool) -> dict[Deleted, DeletedTopic]:
    """The topics of records without an entry that stand in front of `known_end`, up to which all were dispatched, if
    there are no files of their queues and the broker's configuration does not have them.

    Light queues are among them only `with_light`.  A queue whose files are lost has its topic there.  Not for a store
    that was killed: there RocketMQ dispatches such messages again, and files and configuration of a topic that is new
    may be lost together.
    """
    passed = {key[0] for key, gap in census.gaps.items() if gap.first_offset < known_end}
    passed = passed if with_light else {topic for topic in passed if not is_light_queue(topic)}
    # Looked for now: a topic that came since the queues were listed has its files before others have later entries.
    disk, root = store.queue_disk, store.path
    gone = {topic for topic in passed if not any(queues_of(disk, root, topic, kind) for kind in (SIMPLE, BATCH))}
    known = _known_topics(store.disk, store.path) if gone else None
    return {topic: DeletedTopic(known_end) for topic in gone if known and topic not in known}


def noted_with(unnoted: DeletedTopics, noted: DeletedTopics) -> DeletedTopics:
    """All of them.  A broker may have deleted a topic once more after this engine did; not where that still goes on."""
    later = {
        topic: one
        for topic, one in unnoted.items()
        if topic not in noted or (not noted[topic].is_pending and one.log_end > noted[topic].log_end)
    }
    return {**noted, **later}


def _known_topics(disk: ReadableDisk, root: str) -> Collection[str] | None:
    """The topics in the broker's configuration; None where it cannot be read, or may be older than a topic."""
    try:
        found = load_newest(disk, root, "topics.json", broker_json.topic_configs, past_directories=True)
    except TooLarge:
        return None
    return None if found is None or found.is_backup else found.value


def _first_message(entries_of: QueueEntries, key: QueueKey, older: FirstFound, view: LogView) -> int:
    """The place of the first message of a queue that begins again, if it stands behind `older` in the log and its
    record says so; else -1.

    Its number is 0, or one that an older record has as well: RocketMQ counts on, to 1 as a rule, where a topic is
    deleted while its last message is put.
    """
    queue = entries_of.queues.get(key)
    if queue is None or not queue.files or queue.first_slot():
        return -1
    entries = queue.read(0, min(max(older.highest, 0) + 1, FIRST_MAX))
    held = np.flatnonzero(holds_message(queue.kind, entries))
    if not len(held) or (held[0] and not is_pre_blank(entries[: held[0]]).all()):
        return -1
    number, entry = int(held[0]), entries[held[0]]
    place, size = int(entry["physical_offset"]), int(entry["size"])
    if place <= older.place or not is_backed(queue, number, entry, view):
        return -1
    record = view.whole_record(place, size)
    return place if record is not None and record.queue_offset == number else -1
