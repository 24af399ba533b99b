"""The properties block of a record: name 0x01 value 0x02, repeated; the scalar codec.

The last 0x02 is written by 4.9.0 and earlier, left out by 4.9.1 … 5.1.4, written again from 5.2.0 on; reading takes
all forms.
"""

from collections.abc import Mapping

from rmqstore.formats.java_text import java_text

NAME_END = b"\x01"
VALUE_END = b"\x02"

# Java: MessageConst, as spelled in records.
KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
UNIQUE_KEY = "UNIQ_KEY"
INNER_COUNT = "INNER_NUM"
INNER_BASE = "INNER_BASE"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_OFFSET = "TRANS_OFFSET"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CLUSTER = "CLUSTER"
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
CRC32 = "__CRC32#"

# With these a message would be delayed, or waited for by a transaction, once more when it is put again.
DELIVERED = (
    DELAY, "TIMER_DELAY_SEC", "TIMER_DELAY_MS", TIMER_DELIVER_MS, TIMER_OUT_MS, TRANSACTION_PREPARED,
)  # fmt: skip

# KEYS holds several keys, a TAGS expression several tags.
KEY_SEPARATOR = " "


def parse_properties(block: bytes) -> dict[str, str]:
    """The properties of a block by name, in the order of the first appearance; the last of equal names wins.

    Never fails: pieces without a name, without a value or without 0x01 are left out, as Java leaves them
    (MessageDecoder.string2messageProperties, 4.9.1 and later), and malformed UTF-8 reads as U+FFFD.
    """
    found: dict[str, str] = {}
    for piece in block.split(VALUE_END):
        name, _, value = piece.partition(NAME_END)
        if name and value:
            found[java_text(name)] = java_text(value)
    return found


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The block of `properties` with the trailing 0x02, which every version reads.

    Empty values are written and vanish on reading, as in Java; lone surrogates become `?`.  Raises ValueError for an
    empty name and for 0x01 or 0x02 in a name or a value.  The caller sees to it that the block fits i16.
    """
    block = bytearray()
    for name, value in properties.items():
        if not name or any(mark in text for text in (name, value) for mark in ("\x01", "\x02")):
            raise ValueError(f"property {name!r} is empty or holds a separator (0x01, 0x02)")
        block += name.encode(errors="replace") + NAME_END + value.encode(errors="replace") + VALUE_END
    return bytes(block)


def split_keys(keys: str) -> list[str]:
    """The single keys of a KEYS value: cut at spaces, empty ones left out (Java: IndexService.buildIndex)."""
    return [key for key in keys.split(KEY_SEPARATOR) if key]
