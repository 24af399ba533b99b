"""Everything that can be wrong with a record, and the checks that find it, for many records at once."""

import enum

import numpy as np
import numpy.typing as npt

from rmqstore.formats import dledger
from rmqstore.formats.dledger import ENTRY_HEAD
from rmqstore.formats.message_columns import Ints, Located, Mask, gather_rows
from rmqstore.formats.record_chain import NO_END
from rmqstore.formats.record_crc import masked_crc32s, property_crcs_hold

Reasons = npt.NDArray[np.int8]


class Reason(enum.IntEnum):
    """Why a record is not trusted; 0 is a sound one."""

    SOUND = 0
    LOST = 1
    NOT_WHOLE = 2
    WRONG_PLACE = 3
    WRONG_QUEUE = 4
    WRONG_TOPIC = 5
    BODY_CRC = 6
    PROPERTY_CRC = 7
    BODY = 8
    INNER_BATCH = 9
    TAGS = 10
    ENTRY_CRC = 11
    NO_END = 12


TEXT = {
    Reason.SOUND: "",
    Reason.LOST: "the commitlog does not hold it any more",
    Reason.NOT_WHOLE: "no whole record stands here",
    Reason.WRONG_PLACE: "the record's physicalOffset field names another place",
    Reason.WRONG_QUEUE: "the record's queueId or queueOffset contradict the consume queue",
    Reason.WRONG_TOPIC: "the record's topic contradicts the consume queue",
    Reason.BODY_CRC: "the CRC of the body is wrong",
    Reason.PROPERTY_CRC: "the CRC property of the record is wrong",
    Reason.BODY: "the body cannot be decompressed",
    Reason.INNER_BATCH: "the batch inside the body cannot be split, or its number of messages is not the one that it "
    "states",
    Reason.TAGS: "the record's TAGS contradict the tags code in the consume queue",
    Reason.ENTRY_CRC: "the CRC of the entry around the record is wrong",
    Reason.NO_END: NO_END,
}


def mark(reasons: Reasons, where: Mask, reason: Reason) -> None:
    """Gives `reason` to the rows of `where` that are still sound."""
    reasons[where & (reasons == Reason.SOUND)] = reason


def judge_place(located: Located, offsets: Ints) -> Reasons:
    """Reasons by structure: is it whole, and does it stand where it says it stands; int8[n]."""
    reasons = np.zeros(len(offsets), np.int8)
    if not located.sound.all():
        reasons[~located.sound] = Reason.NOT_WHOLE
        if not located.sound.any():
            return reasons
    mark(reasons, located.head("physical_offset") != offsets, Reason.WRONG_PLACE)
    return reasons


def judge_crcs(
    located: Located,
    reasons: Reasons,
    wanted: Mask | None = None,
    *,
    bodies_too: bool = True,
    properties_too: bool = True,
    gap: int = 0,
) -> None:
    """Marks wrong body CRCs (an empty body's is 0 or not checked by RocketMQ), and wrong CRC properties of the records
    that have one.

    `wanted` limits the check to some rows (None: all).  `gap`: how many bytes the head of an entry takes in front of
    each record; the CRC in it, which this project's engine writes, covers all of the record, and where it holds nothing
    else is asked.
    """
    rows = np.flatnonzero(reasons == Reason.SOUND if wanted is None else wanted & (reasons == Reason.SOUND))
    if gap and bodies_too:
        holds, is_wrong = _entry_crcs(located.take(rows))
        _judge_own_crcs(located, reasons, rows[~holds], bodies_too=True, properties_too=properties_too)
        wrong = rows[is_wrong]
        reasons[wrong[reasons[wrong] == Reason.SOUND]] = Reason.ENTRY_CRC
    else:
        _judge_own_crcs(located, reasons, rows, bodies_too=bodies_too, properties_too=properties_too)


def _entry_crcs(located: Located) -> tuple[Mask, Mask]:
    """Whose entry's CRC covers the record and holds, and whose is wrong, bool[n] each; an entry without one is neither,
    and so is one whose head is not in the page or says another size."""
    known = np.flatnonzero(located.starts >= ENTRY_HEAD.size)
    heads = gather_rows(located.page, located.starts[known] - ENTRY_HEAD.size, ENTRY_HEAD.dtype)
    says = (heads["magic"] == dledger.MAGIC_MESSAGE) & (heads["body_crc"] != 0)
    says &= heads["body_size"] == located.total_size[known]
    rows = known[says]
    holds, is_wrong = np.zeros(len(located.starts), bool), np.zeros(len(located.starts), bool)
    same = masked_crc32s(located.page, located.starts[rows], located.total_size[rows]) == heads["body_crc"][says]
    holds[rows], is_wrong[rows] = same, ~same
    return holds, is_wrong


def _judge_own_crcs(located: Located, reasons: Reasons, rows: Ints, *, bodies_too: bool, properties_too: bool) -> None:
    """Marks which of the records `rows` their own CRCs contradict."""
    if not len(rows):
        return
    part = located.take(rows) if len(rows) < len(reasons) else located
    if bodies_too:
        stored = part.head("body_crc").astype(np.int64)
        wrong = (masked_crc32s(part.page, part.body_at, part.body_size) != stored) & (part.body_size > 0)
        reasons[rows[wrong]] = Reason.BODY_CRC
    if properties_too:
        holds = property_crcs_hold(part.page, part.starts, part.total_size, part.properties_size)
        broken = rows[~holds]
        reasons[broken[reasons[broken] == Reason.SOUND]] = Reason.PROPERTY_CRC
