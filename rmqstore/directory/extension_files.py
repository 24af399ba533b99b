"""The tags codes of a queue's entries: the hash of TAGS, or an address in extension files
(consumequeue_ext).
"""

import numpy as np
import numpy.typing as npt

from rmqstore.directory.listing import stored_files
from rmqstore.directory.queue_files import SIMPLE
from rmqstore.files.disk import ReadableDisk, join, read_part
from rmqstore.formats import names, sys_flag
from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.formats.names import EXTENSION_ROOM, QueueKey, is_light_queue
from rmqstore.formats.queue_extension import (
    EXTENSION_HEAD,
    UNIT_SIZE_MAX,
    address_to_offset,
    is_extension_address,
    read_unit,
)
from rmqstore.records.dispatch_rules import tags_codes


def holds_tag_hashes(disk: ReadableDisk, root: str, key: QueueKey, kind: str) -> bool:
    """Whether every tags code of a span's entries is the hash of its record's own TAGS.

    Not so in the schedule topic (delivery times), in light queues (other topics' records), in queues of inner batches
    and where there are extension files (which may be damaged in their own way).
    """
    topic, queue_id = key
    plain = kind == SIMPLE and topic != names.SCHEDULE_TOPIC and not is_light_queue(topic)
    return plain and not disk.exists(join(root, EXTENSION_ROOM, topic, str(queue_id)))


def contradicted(located: Located, codes: Ints) -> Mask:
    """Which records' TAGS have another hash than the code in their entry, int64[n].

    A code beyond 32 bits is no hash and contradicts nothing; an inner batch has no tags of its own.
    """
    other: Mask = tags_codes(located, "", ()) != codes
    other &= (codes.astype(np.int32) == codes) & (located.flags & sys_flag.INNER_BATCH == 0)
    return other


def resolve_extensions(disk: ReadableDisk, root: str, key: QueueKey, entries: npt.NDArray[np.void]) -> None:
    """Puts the tags codes of extension units in place of their addresses; an address that leads nowhere stays as it
    is.
    """
    directory = join(root, EXTENSION_ROOM, key[0], str(key[1]))
    codes = entries["tags_code"]
    rows = [row for row, code in enumerate(codes.tolist()) if is_extension_address(code)]
    for file in stored_files(disk, directory):
        inside = [row for row in rows if file.start <= address_to_offset(int(codes[row])) < file.end]
        if not inside:
            continue
        places = [address_to_offset(int(codes[row])) - file.start for row in inside]
        low = min(places)
        data = read_part(disk, file.path, low, max(places) - low + EXTENSION_HEAD.size + UNIT_SIZE_MAX)
        for row, place in zip(inside, places, strict=True):
            unit = read_unit(data, place - low)
            if unit is not None:
                codes[row] = unit.tags_code
        rows = [row for row in rows if is_extension_address(int(codes[row]))]
