"""The note of deleted topics, config/deletedTopics.json, and what of the log it takes out of the queues."""

from typing import TYPE_CHECKING

import numpy as np

from rmqstore.directory.config_files import tell_once
from rmqstore.errors import Corrupt
from rmqstore.files.disk import ReadableDisk, read_small
from rmqstore.files.filesystem import join
from rmqstore.formats.broker_json import TEXT_SIZE_MAX
from rmqstore.formats.deleted_topics import (
    DELETED_TOPICS_FILE,
    Deleted,
    DeletedBefore,
    DeletedTopic,
    DeletedTopics,
    read_deleted_topics,
)
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import CONFIG_ROOM

MAY_COME_BACK = "topics that were deleted may come back"

if TYPE_CHECKING:
    from rmqstore.records.vectors import Records


def note_path(root: str) -> str:
    """The file."""
    return join(root, CONFIG_ROOM, DELETED_TOPICS_FILE)


def load_deleted_topics(disk: ReadableDisk, root: str) -> tuple[dict[Deleted, DeletedTopic], list[str]]:
    """The topics that are noted, and warnings: of what cannot be read nothing is known.  Raises OSError."""
    path = note_path(root)
    data = read_small(disk, path, TEXT_SIZE_MAX + 1)
    if data is None:
        return {}, []
    try:
        found = read_deleted_topics(data)
    except Corrupt as damage:
        return {}, [f"{path} cannot be read ({damage.reason}): {MAY_COME_BACK}"]
    return found.value, [f"{path}: {reason}: {MAY_COME_BACK}" for reason in found.reasons]


def deleted_topics(disk: ReadableDisk, root: str) -> DeletedTopics:
    """The topics that this engine deleted, for readers; none where the note cannot be read, and the log says so."""
    if disk.is_directory(note_path(root)):
        return {}
    noted, warnings = load_deleted_topics(disk, root)
    for warning in warnings:
        tell_once(warning)
    return noted


def without_deleted(batch: "Records", rows: Ints, ends: DeletedBefore) -> Ints:
    """`rows` of a batch but those of records that a topic had when it was deleted, or a queue when it was cleaned;
    `ends` as `honoured` says."""
    if not ends or int(batch.offsets[0]) >= max(ends.values()):
        return rows
    topics, numbers = batch.topics
    bounds = np.array([ends.get(topic, 0) for topic in topics], np.int64)[numbers[rows]]
    for of, end in ends.items():
        if not isinstance(of, str) and of[0] in topics:
            of_queue = (numbers[rows] == topics.index(of[0])) & (batch.queue_ids[rows] == of[1])
            bounds[of_queue] = np.maximum(bounds[of_queue], end)
    return rows[batch.offsets[rows] >= bounds]
