"""Some topics of a store looked at without the queues of all others, where that loses nothing.

A look at a whole store asks every queue, for two reasons: the entries of all together tell which records no queue
knows, and the furthest of them where the log has to reach.  A reader that wants a few topics of many can have both
answers from the log itself, by a walk of all of it, where it is small beside the number of topics.  The topics' own
queues are read as ever.  Of the store has to be known:

* nothing in the log is damaged, be it of other topics: a record that cannot be read may be of a wanted topic;
* queues and log are of one store: the log's first record has its entry in its own queue;
* no record waits for its entry.  These are always the last ones of the log, as entries are written in its order: the
  last record has its entry in its own queue.  One that waits may be a wanted topic's, with a damaged name;
* after the last record nothing but zeros stands, to the end of all files: a hole left by a power cut may have more
  records after it, and what was torn off may be told by the entries of any queue;
* of a store that was closed, the checkpoint knows of nothing later than the last record: else its end is lost, and
  entries of any queue say how far it went;
* every wanted topic has queue files, of plain queues, and no entry of theirs leads to the log's end or past it;
* every record of a wanted topic has its entry, or follows its queue's entries without a jump, and is not the only one
  of its queue: a single one may be another queue's, with a damaged name, as only that queue's entries can tell.

That holds for a store that was closed and for one that is open, whose entries that come meanwhile count.  Where
anything of it is otherwise, all queues are looked at; so they are in any store that was killed, whose queues reached
the disk in no order.  Of a store that lost queue files of these topics the walk finds all messages that these had.

Damage to other topics alone may pass unseen here that a look at all queues tells of: records gone from the end of a
closed log, of the same millisecond as the last one there, and a record that contradicts its queue.  No entry of the
wanted topics leads to these.

The walk costs by the byte, all queues cost by the queue: see `_QUEUE_BYTES`.
"""

from collections.abc import Collection

import numpy as np

from rmqstore.directory.deleted_topics import deleted_topics
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import is_backed, sound_end
from rmqstore.directory.queue_files import BATCH, SIMPLE, QueueFiles, open_queue, queues_of, topic_directories
from rmqstore.directory.walk import Break, WalkLimits, marking_torn_end, walk
from rmqstore.files.disk import ReadableDisk
from rmqstore.formats import message
from rmqstore.formats.names import is_directory_name, is_light_queue
from rmqstore.records.gather import binary_array
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.survey.census import Census
from rmqstore.snapshot.survey.log_search import Found, WalkEnd
from rmqstore.snapshot.survey.queue_entries import QueueEntries
from rmqstore.snapshot.survey.truncated_tail import WriterTraces
from rmqstore.snapshot.survey.unnoted_deletions import restarted_queues

# For each queue that is not looked at so many bytes of the log may be walked: small records cost 2.5 ns a byte, large
# ones less, and a small queue 30 µs.
_QUEUE_BYTES = 12 * 1024
# So many topics are asked how many queues they have; the others are taken to have as many.
_SAMPLED_TOPICS = 15
# Read at once where nothing but zeros should stand.
_CHUNK_SIZE = 4 * 1024 * 1024


def queues_of_topics(disk: ReadableDisk, root: str, topics: Collection[str]) -> list[QueueFiles] | None:
    """The queues of the topics; None where all queues have to be asked: there are no others, a topic has none, a topic
    is one of batches, or something was deleted that the log still has.
    """
    if topic_directories(disk, root) <= set(topics):
        return None
    if deleted_topics(disk, root) or any(queues_of(disk, root, topic, BATCH) for topic in topics):
        return None
    found = [queue for topic in sorted(topics) for queue in queues_of(disk, root, topic, SIMPLE)]
    return found if {queue.topic for queue in found} == set(topics) else None


def search_topics(root: str, view: LogView, entries: QueueEntries, words: WriterTraces) -> Found | None:
    """The result of a `log_search` of the whole log as far as it concerns the topics whose queues are those of
    `entries`; None where all queues have to be asked.  Raises DataLost.
    """
    if not view.files or not all(file.size for file in view.files):
        return None
    topics = {topic for topic, _ in entries.queues}
    if any(map(is_light_queue, topics)) or {topic for topic, _ in entries.plain_ends} != topics:
        return None
    budget = _queue_count(view.disk, root, topic_directories(view.disk, root) - topics) * _QUEUE_BYTES
    is_large = len(view.files) > 1 and view.files[-2].start - view.start > budget
    walked = _walk(view, entries, budget) if not is_large and _has_entry(root, view, view.start) else None
    if walked is None:
        return None
    found, last = walked
    return found if _is_end(view, found, words) and _has_entry(root, view, last) else None


def _queue_count(disk: ReadableDisk, root: str, topics: Collection[str]) -> int:
    """About how many queues the topics have: by the one in the middle of some of them, whom a few large ones do not
    mislead.
    """
    some = sorted(topics)[:: len(topics) // _SAMPLED_TOPICS + 1]
    counts = sorted(len(queues_of(disk, root, topic, SIMPLE)) for topic in some)
    return len(topics) * counts[len(counts) // 2] if counts else 0


def _has_entry(root: str, view: LogView, offset: int) -> bool:
    """Whether a whole record stands at an offset of the log, and an entry of its own plain queue leads to it."""
    page, position = view.window(offset, message.BLANK.size)
    if len(page) - position < message.BLANK.size:
        return False
    record = view.whole_record(offset, message.BLANK.struct.unpack_from(page, position)[0])
    topic = "" if record is None else record.topic.decode(errors="replace")
    if record is None or not is_directory_name(topic) or is_light_queue(topic):
        return False
    queue, slot = open_queue(view.disk, root, topic, record.queue_id, SIMPLE), record.queue_offset
    if not queue.first_slot() <= slot < sound_end(queue, view):
        return False
    entry = queue.read(slot, slot + 1)[0]
    return int(entry["physical_offset"]) == offset and is_backed(queue, slot, entry, view)


def _walk(view: LogView, entries: QueueEntries, budget: int) -> tuple[Found, int] | None:
    """A walk over sound records to the end, with where the last one begins; None where it meets anything else, or goes
    further than `budget` bytes.
    """
    start = view.start
    known_end = max((int(block.offsets.max()) for block in entries.pointing_from(start)), default=0)
    names = {topic.encode() for topic, _ in entries.queues}
    last, log_end, newest_ms, census = start, start, 0, Census()
    items = walk(view, WalkLimits(start, view.end, crc_from=start, known_end=known_end))
    for item in marking_torn_end(items):
        if isinstance(item, Break):
            if item.resume is not None or item.reason != message.NO_DATA or not _is_blank_from(view, item.offset):
                return None
            continue
        last, log_end = int(item.offsets[-1]), item.end
        if (item.reasons != Reason.SOUND).any() or log_end - start > budget:
            return None
        newest_ms = int(item.located.store_timestamp()[-1])
        part = _of_topics(item, names)
        if len(part.offsets):
            census.add(part, entries.queues, entries.plain_ends, gap_ok=False)
    if census.misplaced or census.lone_records(log_end) or known_end >= log_end:
        return None
    if any(gap.kind != SIMPLE for gap in census.gaps.values()):
        return None
    if any(low > entries.ends.get(key, 0) for key, (low, *_) in census.first_found.items()):
        return None  # of these something is missing
    if restarted_queues(census, entries, view).queues:
        return None
    walk_from = min((gap.first_offset for gap in census.gaps.values()), default=log_end)
    return Found(walk_from, known_end, WalkEnd(log_end, newest_ms, None, None, (), census)), last


def _of_topics(stretch: Stretch, names: Collection[bytes]) -> Stretch:
    located = stretch.located
    topics = binary_array(located.page, located.topic_at, located.topic_size).dictionary_encode()
    are_wanted = np.array([name in names for name in topics.dictionary.to_pylist()], bool)
    return stretch.take(are_wanted[np.from_dlpack(topics.indices)])


def _is_blank_from(view: LogView, offset: int) -> bool:
    """Whether nothing but zeros stands in the log from `offset` on; holes are passed over."""
    for number, file in enumerate(view.files):
        position, end = max(offset - file.start, 0), view.readable_end(number) - file.start
        while position < end:
            source = view.opened(file)
            data_at = source.next_data(position)
            if data_at >= end:
                break
            data = source.read(data_at, min(_CHUNK_SIZE, end - data_at))
            if not data or np.frombuffer(data, np.uint8).any():
                return False
            position = data_at + len(data)
    return True


def _is_end(view: LogView, found: Found, words: WriterTraces) -> bool:
    """Whether the log ends where the walk did: a checkpoint of a closed store says nothing else."""
    end = found.end
    if end.log_end <= view.start:
        return False
    known = words.checkpoint
    if not words.is_clean or known is None:
        return True
    return max(known.physic_timestamp_ms, known.logics_timestamp_ms) <= end.newest_ms
