"""Consume-queue entries: 20 bytes a message in consumequeue/<topic>/<queueId>/<first byte offset>."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rmqstore.formats.layout import Layout

QUEUE_ENTRY = Layout(
    ("physical_offset", "i8"),  # of the record in the commitlog
    ("size", "i4"),  # bytes of the whole record
    # Java's string hash of TAGS, 0 without tags; in SCHEDULE_TOPIC_XXXX the time of delivery in ms since the epoch; or
    # the address of an extension unit, which has the code (queue_extension.is_extension_address).
    ("tags_code", "i8"),
)

# Java: ConsumeQueue.fillPreBlank: the units before the first real one of a queue that begins above 0.
PRE_BLANK_SIZE = 0x7FFFFFFF
# Slots nearer than this are read together.
_NEAR_SLOTS = 4096


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
