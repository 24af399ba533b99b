"""Consume-queue entries: 20 bytes a message in consumequeue/<topic>/<queueId>/<first byte offset>."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore.formats import names
from rmqstore.formats.layout import Layout
from rmqstore.formats.queue_extension import is_extension_address

QUEUE_ENTRY = Layout(
    ("physical_offset", "i8"),  # of the record in the commitlog
    ("size", "i4"),  # bytes of the whole record
    ("tags_code", "i8"),  # see TagsCode
)

# Java: ConsumeQueue.fillPreBlank: the units before the first real one of a queue that begins above 0.
PRE_BLANK_SIZE = 0x7FFFFFFF
# Slots nearer than this are read together.
_NEAR_SLOTS = 4096


class TagsCodeKind(enum.Enum):
    """What the third field of an entry holds."""

    TAG_HASH = "hash"  # Java's string hash of TAGS, 0 without tags
    DELIVERY_TIME = "delivery time"  # ms since the epoch, in SCHEDULE_TOPIC_XXXX
    EXTENSION_ADDRESS = "extension address"  # of a unit in consumequeue_ext/


@dataclass(frozen=True, slots=True)
class TagsCode:
    """A tags code with its meaning, so that no later code can mix them up."""

    kind: TagsCodeKind
    value: int


def tags_code_of(topic: str, value: int) -> TagsCode:
    """The meaning of an entry's third field in a queue of `topic`.

    A delayed message without a delay level keeps the tag hash; hashes fit 32 bits, delivery times of our era do not.
    """
    if is_extension_address(value):
        return TagsCode(TagsCodeKind.EXTENSION_ADDRESS, value)
    if topic == names.SCHEDULE_TOPIC and value > 2**31 - 1:
        return TagsCode(TagsCodeKind.DELIVERY_TIME, value)
    return TagsCode(TagsCodeKind.TAG_HASH, value)


def read_entries(data: bytes | memoryview) -> npt.NDArray[np.void]:
    """The entries of a byte run: structured array of QUEUE_ENTRY.dtype, a view of `data`; a cut last entry is left
    out.
    """
    return np.frombuffer(data, QUEUE_ENTRY.dtype, count=len(data) // QUEUE_ENTRY.size)


def is_valid(entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Where an entry is written: offset ≥ 0 and size > 0 (Java: ConsumeQueue.recover); pre-blank units count as
    written.
    """
    return np.asarray((entries["physical_offset"] >= 0) & (entries["size"] > 0))


def is_pre_blank(entries: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Where an entry only fills the room before the first real one."""
    return np.asarray((entries["physical_offset"] == 0) & (entries["size"] == PRE_BLANK_SIZE))


def scattered_entries(
    read: Callable[[int, int], npt.NDArray[np.void]], first: int, last: int, slots: npt.NDArray[np.int64]
) -> npt.NDArray[np.void]:
    """The entries of some slots, structured[n], zeros for those outside [first, last); slots may be any number.

    `read(low, high)` gives the entries of consecutive slots inside; slots that lie near each other are read together.
    """
    entries = np.zeros(len(slots), QUEUE_ENTRY.dtype)
    inside = np.flatnonzero((slots >= first) & (slots < last))
    if len(inside):
        wanted = slots[inside]
        order = np.argsort(wanted, kind="stable")
        cuts = np.flatnonzero(np.diff(wanted[order]) > _NEAR_SLOTS) + 1
        for rows in np.split(order, cuts):
            low, high = int(wanted[rows[0]]), int(wanted[rows[-1]]) + 1
            entries[inside[rows]] = read(low, high)[wanted[rows] - low]
    return entries
