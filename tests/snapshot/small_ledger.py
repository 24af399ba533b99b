"""Stores of a few records in a DLedger node's log, written byte by byte."""

from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.formats import java_hash
from rmqstore.formats.dledger import (
    ENTRY_BLANK,
    ENTRY_HEAD,
    MAGIC_BLANK,
    Entry,
    Term,
    checkpoint_text,
    encode_entry,
    index_unit,
    term_text,
)
from rmqstore.formats.message import HEAD, encode_record
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.formats.records import make_record
from tests.snapshot.small_store import SmallStore

INDEX_FILE_UNITS = 40


@dataclass
class SmallLedger(SmallStore):
    """A node's log under construction: `units` are its index, `entry_count` how many entries it has.  Begins at
    `end`, the divided offset of a broker that had another log before.
    """

    term: int = 1
    units: list[bytes] = field(default_factory=list)

    def append(self, data: bytes) -> None:
        """Puts a record into an entry of its own."""
        entry = Entry(len(self.units), self.term, self.end, data)
        place = self.end + ENTRY_HEAD.size
        stamped = bytearray(data)
        if len(data) > HEAD.size:
            at = HEAD.offset["physical_offset"]
            stamped[at : at + 8] = place.to_bytes(8, "big", signed=True)
        super().append(encode_entry(Entry(entry.index, entry.term, entry.offset, bytes(stamped))))
        self.units.append(index_unit(entry))

    def add(self, topic: str = "T", queue_id: int = 0, **fields: object) -> int:  # type: ignore[override]
        """Appends a message in an entry; returns its physical offset, which is where the record itself begins."""
        body = fields.get("body", b"hello")
        assert isinstance(body, bytes)
        room = self.file_size - self.end % self.file_size
        size = len(encode_record(make_record(topic=topic.encode(), body=body))) + 200  # generous for its properties
        if size + ENTRY_HEAD.size + ENTRY_BLANK.size > room:
            SmallStore.append(self, ENTRY_BLANK.struct.pack(MAGIC_BLANK, room))
            self.end += room - ENTRY_BLANK.size
        before, dispatched = self.end, fields.pop("dispatched", True)
        super().add(topic, queue_id, dispatched=False, **fields)  # type: ignore[arg-type]
        place = before + ENTRY_HEAD.size
        self.offsets[-1] = place
        if dispatched:
            self._list(topic, queue_id, place, self.end - place)
        return place

    def _list(self, topic: str, queue_id: int, place: int, size: int) -> None:
        entry = QUEUE_ENTRY.struct.pack(place, size, java_hash.string_hash("A"))
        self.entries.setdefault((topic, queue_id), []).append(entry)

    def write(self, root: Path, log: str = "dledger-n0", committed: int | None = None) -> Path:
        """Writes the node's directory `log` and the queues; `committed` is the checkpoint's index, by default the last
        entry's."""
        node = root / log
        super().write(root, f"{log}/data")
        size = INDEX_FILE_UNITS * len(self.units[0])
        whole = b"".join(self.units)
        (node / "index").mkdir()
        for start in range(0, len(whole), size):
            (node / "index" / format_start(start)).write_bytes(whole[start : start + size].ljust(size, b"\0"))
        last = len(self.units) - 1
        (node / "checkpoint").write_text(checkpoint_text(last if committed is None else committed, last))
        (node / "currterm").write_text(term_text(Term(self.term, "n0")))
        return root


def small_ledger(count: int = 60) -> SmallLedger:
    """As `small_store`."""
    store = SmallLedger()
    for number in range(count):
        store.add("T", number % 2, body=b"body %d" % number)
    return store
