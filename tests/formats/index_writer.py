"""Writes index files as RocketMQ does (IndexFile.putKey), plainly: what the reading side is tested against."""

import struct

from rmqstore.formats.index import (
    HEADER,
    ITEM,
    SLOT,
    file_size,
)
from rmqstore.formats.java_hash import index_hash


class IndexWriter:
    """One index file in memory; `data` is the file."""

    def __init__(self, slot_count: int, item_count: int) -> None:
        self.slot_count, self.item_count = slot_count, item_count
        self.data = bytearray(file_size(slot_count, item_count))
        self.header = [0, 0, 0, 0, 0, 1]

    def put(self, key: str, physical_offset: int, store_ms: int) -> bool:
        """Adds an item; False when the file is full."""
        begin_ms, _, _, _, used, count = self.header
        if count >= self.item_count:
            return False
        key_hash = index_hash(key)
        slot_at = HEADER.size + SLOT.size * (key_hash % self.slot_count)
        (newest,) = struct.unpack_from(">i", self.data, slot_at)
        newest = newest if 0 < newest <= count else 0
        delay_s = min(max((store_ms - begin_ms) // 1000, 0), 2**31 - 1) if begin_ms > 0 else 0
        item = struct.pack(">iqii", key_hash, physical_offset, delay_s, newest)
        self.data[(at := file_size(self.slot_count, count)) : at + ITEM.size] = item
        struct.pack_into(">i", self.data, slot_at, count)
        if count <= 1:
            self.header[0], self.header[2] = store_ms, physical_offset
        self.header[1], self.header[3] = store_ms, physical_offset
        self.header[4], self.header[5] = used + (newest == 0), count + 1
        self.data[: HEADER.size] = HEADER.struct.pack(*self.header)
        return True


START_MS = 1700000000000


def written(slot_count: int, item_count: int, keys: list[str], step_ms: int = 700) -> IndexWriter:
    index = IndexWriter(slot_count, item_count)
    for number, key in enumerate(keys):
        assert index.put(key, 100 * number, START_MS + step_ms * number)
    return index
