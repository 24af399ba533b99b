"""DLedger's log, just enough to recognize one: the head of an entry in a node's `data` files.  Java: DLedgerEntry."""

import struct

from rmqstore.formats.layout import Layout

ENTRY_HEAD = Layout(
    ("magic", "i4"),  # 1 a message, 2 nothing, 3 a change of the configuration
    ("size", "i4"),  # of the whole entry
    ("index", "i8"),
    ("term", "i8"),
    ("offset", "i8"),  # of the entry's first byte in the log
    ("channel", "i4"),
    ("chain_crc", "i4"),
    ("body_crc", "i4"),
    ("body_size", "i4"),
)
assert ENTRY_HEAD.size == 48

_MAGICS = (1, 2, 3)


def is_entry(data: bytes | memoryview, start: int) -> bool:
    """Whether a file that starts at byte `start` of a log begins as DLedger's do.

    No commitlog does: there a record of 1, 2 or 3 bytes would begin.
    """
    try:
        fields = ENTRY_HEAD.read(data)
    except struct.error:
        return False
    return (
        fields["magic"] in _MAGICS
        and fields["offset"] == start
        and fields["size"] == ENTRY_HEAD.size + fields["body_size"]
        and fields["body_size"] >= 0
    )
