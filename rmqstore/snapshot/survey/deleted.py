"""Topics that were deleted, as a reader takes them: what the log still holds of them is in no queue."""

from collections.abc import Iterable, Mapping

from rmqstore.directory.deleted_topics import deleted_topics
from rmqstore.directory.queue_files import QueueFiles, holds_message
from rmqstore.formats.deleted_topics import honoured


def deleted_before(root: str, queues: Iterable[QueueFiles]) -> dict[str, int]:
    """By topic, before which offset of the log it has no messages."""
    noted = deleted_topics(root)
    ends: dict[str, int] = {}
    if noted:
        held = {queue: places for queue in queues if queue.topic in noted and (places := _places(queue)) is not None}
        for topic, one in noted.items():
            ends[topic], _ = honoured(one, [places for queue, places in held.items() if queue.topic == topic])
    return ends


def without_deleted(queue: QueueFiles, ends: Mapping[str, int]) -> QueueFiles:
    """The queue, without files if these are left of a deletion that goes on, or that a crash interrupted."""
    if queue.topic not in ends:
        return queue
    places = _places(queue)
    if places is None or places[1] >= ends[queue.topic]:
        return queue
    return QueueFiles(queue.root, queue.topic, queue.queue_id, queue.kind, ())


def _places(queue: QueueFiles) -> tuple[int, int] | None:
    """Where the records of a queue's first and last message stand; None where no entry is written."""
    first, end = queue.first_slot(), queue.unbroken_end()
    if first >= end:
        return None
    last = int(queue.read(end - 1, end)["physical_offset"][0])
    entry = queue.read(first, first + 1)
    return (int(entry["physical_offset"][0]) if holds_message(queue.kind, entry)[0] else last), last
