"""What the broker wrote under config/: topics and the offsets of consumer groups.  A torn file gives way to its
.bak.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from rmqstore.errors import Corrupt, TooLarge
from rmqstore.files import reading
from rmqstore.formats import broker_json
from rmqstore.formats.deleted_topics import DELETED_TOPICS_FILE, DeletedTopics, read_deleted_topics

_SIZE_MAX = broker_json.TEXT_SIZE_MAX + 1
Shape = TypeVar("Shape")


def load(root: str, name: str, shape: Callable[[Any], Shape], empty: Shape) -> Shape:
    """config/<name> in the given shape; its .bak where it is missing, empty or torn; `empty` where neither can be
    read.  Raises TooLarge, as what may be sound is neither passed over nor replaced.
    """
    for candidate in (name, f"{name}.bak"):
        path = reading.join(root, "config", candidate)
        data = reading.read_small_file(path, _SIZE_MAX)
        if not data or not data.strip():
            continue
        try:
            return shape(broker_json.parse(data))
        except TooLarge as large:
            raise TooLarge(path, 0, large.reason) from None
        except Corrupt:
            continue
    return empty


def topics(root: str) -> dict[str, broker_json.TopicConfig]:
    """Topic configurations by name."""
    return load(root, "topics.json", broker_json.topic_configs, {})


def deleted_topics(root: str) -> DeletedTopics:
    """The topics that this engine deleted; none where the note cannot be read."""
    data = reading.read_small_file(reading.join(root, "config", DELETED_TOPICS_FILE), _SIZE_MAX)
    try:
        return {} if data is None else read_deleted_topics(data)
    except Corrupt:
        return {}


def consumer_offsets(root: str) -> dict[tuple[str, str], dict[int, int]]:
    """Next offset to consume by (group, topic) and queue id."""
    return load(root, "consumerOffset.json", broker_json.consumer_offsets, {})
