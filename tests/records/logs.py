"""Pieces of a log in memory, and the walk along them."""

from rmqstore.records.read_batches import read_batches
from tests.formats.records import encoded


def laid(fields: list[dict], start: int = 0) -> bytes:
    data = b""
    for each in fields:
        data += encoded(**each, physical_offset=start + len(data))
    return data


def reader(data: bytes, start: int = 0):
    return lambda offset, size: data[offset - start : offset - start + size]


def walked(data: bytes, **how) -> list:
    start = how.pop("start", 0)
    stop, file_size = how.pop("stop", start + len(data)), how.pop("file_size", 1 << 30)
    return list(read_batches(reader(data, start), start, stop, file_size, **how))
