"""Where records stand in a log's files: one right behind the other, or each in an entry of DLedger's.

Either way a record's place is the byte at which it begins itself: what it says of its place, queues and index count so.
"""

from dataclasses import dataclass
from typing import NamedTuple

from rmqstore.formats import dledger, message
from rmqstore.formats.message_columns import Bytes, Ints
from rmqstore.formats.record_chain import chain


class Framing(NamedTuple):
    """`gap`: how many bytes stand between the end of a record and the next one, which are the head of its entry.

    A walk may begin where a record, the head in front of it, a blank or a file does: it is told by the bytes, as a head
    never reads as a record's beginning.
    """

    gap: int

    @property
    def window(self) -> int:
        """So many bytes tell how large the record is to which a place leads."""
        return self.gap + message.BLANK.size

    def record_position(self, buffer: bytes | memoryview | Bytes, position: int) -> int:
        """Where in `buffer` the record begins to which `position` leads, if one stands there."""
        if not self.gap or len(buffer) - position < message.BLANK.size:
            return position
        is_record = message.BLANK.struct.unpack_from(buffer, position)[1] in message.MESSAGE_MAGICS
        return position if is_record else position + self.gap

    def standing(self, buffer: bytes | memoryview, position: int) -> message.Record | message.Blank | message.Torn:
        """As `message.read_record`: the record to which `position` leads, or what stands there instead."""
        begin = self.record_position(buffer, position)
        if begin == position:
            return message.read_record(buffer, position)
        magic, size = dledger.ENTRY_BLANK.struct.unpack_from(buffer, position)
        if magic == dledger.MAGIC_BLANK and size >= dledger.ENTRY_BLANK.size:
            return message.Blank(position, size)
        if magic == size == 0:
            return message.Torn(position, message.NO_DATA)
        if len(buffer) < begin:
            return message.Torn(position, f"{len(buffer) - position} bytes left, too few for an entry")
        found = message.read_record(buffer, begin)
        if isinstance(found, message.Record):
            return found
        reason = found.reason if isinstance(found, message.Torn) else "a blank"
        return message.Torn(position, f"the entry holds no message: {reason}")

    def chain(self, page: Bytes, position: int, places: Ints | None = None) -> Ints:
        """As `record_chain.chain`, from the record on to which `position` leads."""
        return chain(page, self.record_position(page, position), places, gap=self.gap)

    def may_begin(self, data: bytes, start: int, size_max: int = message.RECORD_SIZE_MAX) -> bool:
        """Whether the write of a record to byte `start` of a log, where a file starts, may have ended within its head,
        or that of its entry, and left `data` and then zeros.  `size_max`: what a file has room for.
        """
        written = data.rstrip(b"\0")
        entry, record, head, least = dledger.ENTRY_HEAD, message.HEAD, written[self.gap :], message.RECORD_SIZE_MIN
        is_entry = not self.gap or (
            entry.may_hold(written, "magic", dledger.MAGIC_MESSAGE)
            and entry.may_hold(written, "size", entry.size + least, size_max)
            and entry.may_hold(written, "offset", start)
        )
        return (
            is_entry
            and len(head) <= record.size
            and record.may_hold(head, "total_size", least, size_max)
            and any(record.may_hold(head, "magic", magic) for magic in message.MESSAGE_MAGICS)
            and record.may_hold(head, "physical_offset", start + self.gap)
        )

    def blank(self, size: int) -> bytes:
        """The beginning of the blank that fills up a file with its last `size` bytes."""
        if self.gap:
            return dledger.ENTRY_BLANK.struct.pack(dledger.MAGIC_BLANK, size)
        return message.BLANK.struct.pack(size, message.MAGIC_BLANK)


BARE = Framing(0)
WRAPPED = Framing(dledger.ENTRY_HEAD.size)


def bare(_: int) -> Framing:
    """The framing at any offset of a log without entries."""
    return BARE


@dataclass(frozen=True, slots=True)
class Divided:
    """The framing of a log of which all from `divider` on is wrapped."""

    divider: int

    def __call__(self, offset: int) -> Framing:
        return WRAPPED if offset >= self.divider else BARE
