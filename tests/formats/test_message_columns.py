"""The vector codec reads what the scalar codec reads, on anything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import message
from rmqstore.formats.message import MAGIC_V1, MAGIC_V2, Record, encode_record, read_record
from rmqstore.formats.message_columns import (
    Located,
    equal_bytes,
    gather,
    gather_bytes,
    gather_rows,
    locate,
    take_rows,
)
from tests.formats.records import encoded, records

pytestmark = pytest.mark.stores

NOISE = st.one_of(st.binary(max_size=60), st.integers(0, 60).map(bytes))
BLANK = message.BLANK.struct.pack(8, message.MAGIC_BLANK)
FIELDS = ("body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp",
          "store_timestamp", "reconsume_times", "prepared_transaction_offset")  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Records, blanks and noise end to end, then changed in places and cut."""
    parts = draw(st.lists(st.one_of(records().map(encode_record), st.just(BLANK), NOISE), max_size=8))
    data = bytearray(b"".join(parts))
    for place, value in draw(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4)):
        if place < len(data):
            data[place] = value
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 1, 7, 30]))])


def assert_same(data: bytes, starts: list[int], located: Located) -> None:
    """Each row of `located` says what read_record says about the same place."""
    for row, start in enumerate(starts):
        record = read_record(data, start) if start >= 0 else None
        assert bool(located.sound[row]) == isinstance(record, Record), (start, record)
        if not isinstance(record, Record):
            continue
        assert int(located.starts[row]) == start
        assert int(located.total_size[row]) == record.size
        assert int(located.flags[row]) == record.sys_flag
        assert {name: int(located.head(name)[row]) for name in FIELDS} == {n: getattr(record, n) for n in FIELDS}
        for name in ("body", "topic", "properties"):
            at, size = int(getattr(located, f"{name}_at")[row]), int(getattr(located, f"{name}_size")[row])
            assert data[at : at + size] == getattr(record, name)
        at = int(located.store_host_at[row])
        assert data[at : at + len(record.store_host)] == record.store_host


@given(logs())
def test_locate_reads_every_place_as_the_scalar_codec_does(data: bytes) -> None:
    starts = list(range(-2, len(data) + 3))
    assert_same(data, starts, locate(np.frombuffer(data, np.uint8), np.array(starts, np.int64)))


@given(st.lists(records(), min_size=1, max_size=8), st.data())
def test_locate_finds_records_end_to_end_in_any_order(wanted: list[Record], data: st.DataObject) -> None:
    parts = [encode_record(record) for record in wanted]
    page = b"".join(parts)
    starts = np.concatenate(([0], np.cumsum([len(part) for part in parts])[:-1]))
    order = data.draw(st.permutations(range(len(parts))))
    located = locate(np.frombuffer(page, np.uint8), starts[order])
    assert located.sound.all()
    assert_same(page, starts[order].tolist(), located)
    rows = np.array(sorted(order[: len(order) // 2 + 1]), np.intp)
    assert_same(page, starts[order][rows].tolist(), located.take(rows))
    mask = located.flags & 0x30 != 0
    assert_same(page, starts[order][mask].tolist(), located.take(mask))


@given(records(), st.data())
def test_nothing_behind_the_readable_end_is_a_record(record: Record, data: st.DataObject) -> None:
    page = encode_record(record)
    end = data.draw(st.integers(0, len(page)))
    located = locate(np.frombuffer(page + page, np.uint8), np.array([0, len(page)], np.int64), end)
    assert located.sound.tolist() == [end == len(page), False]


@given(
    st.sampled_from([MAGIC_V1, MAGIC_V2]), st.sampled_from([0, 0x10, 0x20, 0x30]),
    st.lists(st.integers(-(2**31), 2**31 - 1) | st.sampled_from([2**31 - 1, -(2**31), -1, 0, 91, 200]),
             min_size=2, max_size=2), st.integers(91, 220), st.binary(min_size=130, max_size=130),
)  # fmt: skip
def test_hostile_sizes_are_refused_as_the_scalar_codec_refuses_them(
    magic: int, families: int, sizes: list[int], room: int, rest: bytes
) -> None:
    head = message.HEAD.struct.pack(sizes[0], magic, 0, 0, 0, 0, 0, families, 0)
    born, store = message.host_sizes(families)
    foot = bytes(born + 8 + store) + message.FOOT.struct.pack(0, 0, sizes[1])
    page = (head + foot + rest)[:room]
    assert_same(page, [0], locate(np.frombuffer(page, np.uint8), np.zeros(1, np.int64)))


EXAMPLES = [
    encoded(magic=magic, sys_flag=families, body=body)
    for magic in (MAGIC_V1, MAGIC_V2)
    for families in (0, 0x10, 0x20, 0x30)
    for body in (b"", b"hello")
]


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x0C, 0x10, 0x80, 0xFF])
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_other_byte_is_judged_as_the_scalar_codec_judges_it(example: bytes, mask: int) -> None:
    changed = [bytes(example[:at] + bytes([example[at] ^ mask]) + example[at + 1 :]) for at in range(len(example))]
    page = b"".join(changed)
    starts = [len(example) * number for number in range(len(changed))]
    assert_same(page, starts, locate(np.frombuffer(page, np.uint8), np.array(starts, np.int64)))


@pytest.mark.parametrize("page", [b"", b"\0", bytes(90), bytes(91), b"\xff" * 91])
def test_pages_without_records_have_none(page: bytes) -> None:
    starts = np.array([-1, 0, 1, 91, 2**62, -(2**62)], np.int64)
    assert not locate(np.frombuffer(page, np.uint8), starts).sound.any()


def test_no_starts_no_rows() -> None:
    located = locate(np.zeros(200, np.uint8), np.zeros(0, np.int64))
    assert len(located.sound) == len(located.body_at) == len(located.fronts) == 0


@given(st.binary(min_size=8, max_size=64), st.sampled_from(["i1", "i2", "i4", "i8"]), st.data())
def test_gather_reads_big_endian_integers_anywhere(data: bytes, kind: str, choice: st.DataObject) -> None:
    size = int(kind[1])
    positions = choice.draw(st.lists(st.integers(0, len(data) - size), max_size=10))
    found = gather(np.frombuffer(data, np.uint8), np.array(positions, np.int64), kind)
    assert found.dtype == np.dtype(kind)
    assert found.tolist() == [int.from_bytes(data[at : at + size], "big", signed=True) for at in positions]


@pytest.mark.parametrize(("kind", "size"), [("i1", 1), ("i2", 2), ("i4", 4), ("i8", 8)])
@pytest.mark.parametrize("room", [0, 1, 7, 8, 20])
def test_gather_refuses_what_reaches_over_the_end(kind: str, size: int, room: int) -> None:
    page = np.zeros(room, np.uint8)
    last = room - size
    if last >= 0:
        assert gather(page, np.array([last]), kind).tolist() == [0]
    with pytest.raises(IndexError):
        gather(page, np.array([max(last, -1) + 1]), kind)


@given(st.binary(min_size=1, max_size=30), st.integers(1, 12), st.data())
def test_gather_bytes_and_rows_copy_what_stands_there(data: bytes, size: int, choice: st.DataObject) -> None:
    size = min(size, len(data))
    positions = choice.draw(st.lists(st.integers(0, len(data) - size), max_size=5))
    page = np.frombuffer(data, np.uint8)
    wanted = [data[at : at + size] for at in positions]
    assert gather_bytes(page, np.array(positions, np.int64), size).tobytes() == b"".join(wanted)
    dtype = np.dtype([(f"b{place}", "u1") for place in range(size)])
    rows = gather_rows(page, np.array(positions, np.int64), dtype)
    assert rows.dtype == dtype
    assert rows.tobytes() == b"".join(wanted)
    assert take_rows(rows, np.arange(len(rows))[::-1]).tobytes() == b"".join(wanted[::-1])
    with pytest.raises(IndexError):
        gather_bytes(page, np.array([len(data) - size + 1]), size)
    with pytest.raises(IndexError):
        gather_rows(page, np.array([len(data) - size + 1]), dtype)


TEXTS = st.lists(st.binary(max_size=4) | st.sampled_from([b"ab", b"ab\0", b"a\0", b"\0\0", b"ab\0\0"]), max_size=8)


@given(TEXTS, st.binary(max_size=4) | st.sampled_from([b"ab", b"ab\0", b"\0", b"\0\0"]))
def test_equal_bytes_is_equality_of_bytes(texts: list[bytes], wanted: bytes) -> None:
    sizes = np.array([len(text) for text in texts], np.int64)
    positions = np.concatenate(([0], np.cumsum(sizes)))[:-1].astype(np.int64)
    page = np.frombuffer(b"".join(texts), np.uint8)
    assert equal_bytes(page, positions[: len(texts)], sizes, wanted).tolist() == [text == wanted for text in texts]
