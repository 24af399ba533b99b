"""The walk along the log: where records stand, where it ends, and what is checked."""

import pytest

from rmqstore.formats import message
from rmqstore.formats.message import Blank, Torn
from rmqstore.formats.record_crc import property_crc
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import CrcChecks
from tests.formats.records import encoded
from tests.records.logs import laid, walked

FILE_SIZE = 4096


def test_a_blank_leads_to_the_next_file() -> None:
    first, second = laid([{}, {}]), laid([{"queue_id": 7}], start=FILE_SIZE)
    blank = message.BLANK.struct.pack(FILE_SIZE - len(first), message.MAGIC_BLANK)
    data = (first + blank).ljust(FILE_SIZE, b"x") + second
    found = walked(data, file_size=FILE_SIZE)
    assert [type(each) for each in found] == [RecordBatch, Blank, RecordBatch]
    assert found[1] == Blank(len(first), FILE_SIZE - len(first))
    assert found[2].offsets.tolist() == [FILE_SIZE]
    assert found[2].end == len(data)


def test_nothing_is_read_beyond_stop() -> None:
    data = laid([{}, {}, {}])
    size = len(data) // 3
    assert [len(batch) for batch in walked(data, stop=2 * size)] == [2]
    assert walked(data, stop=0) == []
    whole, torn = walked(data, stop=2 * size + 10)
    assert (len(whole), torn.position) == (2, 2 * size)


def test_a_record_larger_than_the_window_is_read_whole() -> None:
    found = walked(laid([{"body": b"x" * 5000}, {}]), window_size=200)
    assert [len(batch) for batch in found] == [1, 1]


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("damage", "position", "reason"),
    [
        (lambda data, at: data[:at].ljust(at + 500, b"\0"), 1, message.NO_DATA),
        (lambda data, at: flipped(data, at + 35), 1, "physicalOffset field"),
        (lambda data, at: flipped(data, at + 4), 1, "no message magic"),
        (lambda data, at: flipped(data, at + 3), 1, "lengths"),
        (lambda data, at: data[: at + 60], 1, "record size"),
        (lambda data, at: flipped(data, at + 85), 1, "body"),
        (lambda data, at: flipped(data, 35), 0, "physicalOffset field"),
    ],
)
def test_the_walk_ends_where_no_sound_record_stands(damage, position: int, reason: str) -> None:
    data = laid([{}, {}, {}])
    at = len(data) // 3
    *batches, torn = walked(damage(data, at))
    assert sum(map(len, batches)) == position
    assert torn.position == at * position
    assert reason in torn.reason


@pytest.mark.parametrize("row", [0, 1])
def test_crcs_are_checked_when_asked(row: int) -> None:
    plain = laid([{}, {"body": b""}, {}])
    at = [0, len(plain) - len(laid([{}]))][row]
    data = flipped(plain, at + message.FRONT_V4.size)
    assert [len(batch) for batch in walked(data)] == [3]
    *batches, torn = walked(data, checks=CrcChecks(bodies=True))
    assert (sum(map(len, batches)), torn) == ([0, 2][row], Torn(at, "the CRC of the body is wrong"))


def test_crc_properties_are_checked_when_asked() -> None:
    record = encoded(properties=b"KEYS\x01k\x02" + b"\0" * 20)
    data = record[:-20] + property_crc(record[:-20])
    assert [len(batch) for batch in walked(data, checks=CrcChecks(bodies=True, properties=True))] == [1]
    found = walked(flipped(data, 44), checks=CrcChecks(bodies=True, properties=True))
    assert found == [Torn(0, "the CRC property of the record is wrong")]


def test_a_gap_between_files_ends_the_walk() -> None:
    assert walked(b"", stop=100) == [Torn(0, "0 bytes left, too few for a record")]
