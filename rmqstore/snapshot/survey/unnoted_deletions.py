"""Topics that were deleted, which nobody noted: RocketMQ never does.

The log still has the deleted messages, until they expire.  A survey that walks it meets them as records without an
entry.  Entries are written in the order of the log: what has none in front of one was deleted, or the entry is lost.
"""

from collections.abc import Collection, Mapping

from rmqstore.directory.config_files import load_newest
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import is_backed
from rmqstore.directory.queue_files import BATCH, SIMPLE, holds_message, queues_of
from rmqstore.errors import TooLarge
from rmqstore.files.disk import ReadableDisk
from rmqstore.formats import broker_json
from rmqstore.formats.deleted_topics import DeletedTopic
from rmqstore.formats.names import QueueKey
from rmqstore.snapshot.survey.census import Census
from rmqstore.snapshot.survey.queue_entries import QueueEntries


def queues_begun_again(census: Census, entries: QueueEntries, view: LogView) -> dict[QueueKey, int]:
    """The queues of which a record without an entry stands in front of their very first message, with that one's place;
    and those without entries that begin again in the log.  Raises DataLost.

    A record that another queue's entry points at is damaged, and proves nothing.
    """
    begins = {key: _first_message(entries, key, first.place, view) for key, first in census.first_found.items()}
    older = {census.first_found[key].place: (key, begin) for key, begin in begins.items() if begin >= 0}
    proven = dict(older[place] for place in older.keys() - entries.pointing_at(older))
    topics = {topic for topic, _ in proven}  # of these it is known where they begin, in all their queues
    return proven | {key: place for key, place in census.begun_again.items() if key[0] not in topics}


def topics_made_again(begun: Mapping[QueueKey, int]) -> dict[str, DeletedTopic]:
    """The topics of the queues that begin again: of their other queues, too, what stands in front of that was deleted,
    as all of a topic go at once."""
    found: dict[str, DeletedTopic] = {}
    for (topic, _), begin in begun.items():
        known = found.get(topic)
        found[topic] = DeletedTopic(begin if known is None else min(known.log_end, begin))
    return found


def topics_gone(disk: ReadableDisk, root: str, census: Census, known_end: int) -> dict[str, DeletedTopic]:
    """The topics of records without an entry that stand in front of `known_end`, up to which all were dispatched, if
    there are no files of their queues and the broker's configuration does not have them.

    A queue whose files are lost has its topic there.  Not for a store that was killed: there RocketMQ dispatches such
    messages again, and files and configuration of a topic that is new may be lost together.
    """
    passed = {key[0] for key, gap in census.gaps.items() if gap.first_offset < known_end}
    # Looked for now: a topic that came since the queues were listed has its files before others have later entries.
    gone = {topic for topic in passed if not any(queues_of(disk, root, topic, kind) for kind in (SIMPLE, BATCH))}
    known = _known_topics(disk, root) if gone else None
    return {topic: DeletedTopic(known_end) for topic in gone if known and topic not in known}


def _known_topics(disk: ReadableDisk, root: str) -> Collection[str] | None:
    """The topics in the broker's configuration; None where it cannot be read, or may be older than a topic."""
    try:
        found = load_newest(disk, root, "topics.json", broker_json.topic_configs, past_directories=True)
    except TooLarge:
        return None
    return None if found is None or found.is_backup else found.value


def _first_message(entries_of: QueueEntries, key: QueueKey, after: int, view: LogView) -> int:
    """The place of a queue's message 0, if it stands behind `after` in the log and its record says so; else -1."""
    queue = entries_of.queues.get(key)
    if queue is None or not queue.files or queue.first_slot():
        return -1
    entries = queue.read(0, 1)
    if not len(entries) or not holds_message(queue.kind, entries)[0]:
        return -1
    place, size = int(entries[0]["physical_offset"]), int(entries[0]["size"])
    if place <= after or not is_backed(queue, 0, entries[0], view):
        return -1
    record = view.whole_record(place, size)
    return place if record is not None and record.queue_offset == 0 else -1
