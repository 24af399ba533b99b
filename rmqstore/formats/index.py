"""Index files: index/<creation time>, from the hash of `topic#key` to commitlog offsets.

A file is the header, S slots, N items (item 0 is never used).  A slot holds the number of the newest item of its chain,
an item the number of the one before.  S and N are not stored: see `infer_sizes`.  Java: IndexFile, IndexHeader.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rmqstore.formats.layout import Layout

HEADER = Layout(
    ("begin_timestamp_ms", "i8"),  # store time of the first item
    ("end_timestamp_ms", "i8"),  # of the last item
    ("begin_offset", "i8"),  # commitlog offset of the first item
    ("end_offset", "i8"),  # of the last item
    ("used_slot_count", "i4"),  # puts that found an empty slot
    ("index_count", "i4"),  # number of items + 1
)
SLOT = Layout(("newest_item", "i4"))  # 0: empty
ITEM = Layout(
    ("key_hash", "i4"),  # java_hash.index_hash of topic#key
    ("physical_offset", "i8"),
    ("delay_s", "i4"),  # whole seconds since begin_timestamp_ms
    ("previous_item", "i4"),  # of the same slot; 0: none
)
SLOT_NUMBER = SLOT.dtype["newest_item"]
assert (HEADER.size, SLOT.size, ITEM.size) == (40, 4, 20)

# Java maps an index file as one buffer, whose length is an int.
FILE_SIZE_MAX = 2**31 - 1
DEFAULT_SLOT_COUNT = 5_000_000  # Java: MessageStoreConfig.maxHashSlotNum
DEFAULT_ITEM_COUNT = 20_000_000  # maxIndexNum

# Items looked at for one candidate.
_SAMPLE_COUNT = 4096
# A file that somebody has filled with anchors must not cost more looks than this.
_CANDIDATE_COUNT_MAX = 256
# Of the items looked at, so many must agree: damage spoils some, a wrong S spoils nearly all.
_AGREEMENT_MIN = 0.5

_Words = npt.NDArray[np.uint32]


class Pages(Protocol):
    """A file that is read in parts: a slice reads those bytes; of a mapping it is no copy."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes | memoryview: ...


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an index file; times in ms since the epoch, offsets in the commitlog."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_offset: int
    end_offset: int
    used_slot_count: int
    index_count: int

    def matches(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file can hold items of [begin_ms, end_ms]; Java: IndexFile.isTimeMatched, bound for bound."""
        first, last = self.begin_timestamp_ms, self.end_timestamp_ms
        return (begin_ms < first and end_ms > last) or first <= begin_ms <= last or first <= end_ms <= last


def log_order(header: IndexHeader | None, name: int) -> list[int]:
    """The sort key of index files by the part of the log that they know; a file that knows nothing yet is the last.

    Names are the broker's local time, which another time zone, the end of daylight saving and a clock that is put right
    set back.  RocketMQ sorts by names, and its searches ask each file.
    """
    if header is None:
        return [1, 0, 0, 1, name]
    is_empty = header.index_count <= 1
    knows_nothing = is_empty and header.end_offset <= 0
    return [int(knows_nothing), header.begin_offset, header.end_offset, int(is_empty), name]


def unanswered(offsets: Iterable[int], answered: Iterable[int], shared: int) -> list[int]:
    """The answers of a file without those that files after it gave: files that overlap know the same records.

    `shared`: where the file after it begins.  The keys of the record there may be in both files, and a key that it has
    twice is answered twice, as by RocketMQ.
    """
    known = {*answered} - {shared}
    return [offset for offset in offsets if offset not in known]


def of_one_key(look_up: Callable[[int], list[int]], is_others: Callable[[int], bool], count_max: int) -> list[int]:
    """The first `count_max` answers of a look-up by hash, but for the records of other keys with the same hash: these
    take nobody's place.  `look_up` is asked for so many answers, and for more while it has any.
    """
    asked = count_max
    while True:
        offsets = look_up(asked)
        own = [offset for offset in offsets if not is_others(offset)]
        if len(own) >= count_max or len(offsets) < asked:
            return own[:count_max]
        asked *= 4


def file_size(slot_count: int, item_count: int) -> int:
    """Bytes of an index file with S slots and N items."""
    return HEADER.size + SLOT.size * slot_count + ITEM.size * item_count


def _array(data: Pages, dtype: npt.DTypeLike, count: int, start: int) -> npt.NDArray[Any]:
    """`count` values from byte `start` on.  Raises ValueError if the file is shorter."""
    whole = memoryview(data) if isinstance(data, bytes) else data
    return np.frombuffer(whole[start : start + count * np.dtype(dtype).itemsize], dtype, count)


def read_header(data: Pages) -> IndexHeader | None:
    """The header of a file; None if the file is too short for one.

    A count of 0 or less (nothing put yet) reads as 1, as Java loads it.
    """
    if len(data) < HEADER.size:
        return None
    fields = HEADER.read(data[: HEADER.size])
    fields["index_count"] = max(fields["index_count"], 1)
    return IndexHeader(**fields)


def read_slots(data: Pages, slot_count: int) -> npt.NDArray[np.int32]:
    """The newest item of each slot: >i4[slots], a view of `data`.  Raises ValueError if the file is shorter."""
    return _array(data, SLOT_NUMBER, slot_count, HEADER.size)


def read_items(data: Pages, slot_count: int) -> npt.NDArray[np.void]:
    """The items that are put, from item 0 (unused) on: structured array of ITEM.dtype, a view of `data`.

    As many as the header says and the file has room for.
    """
    return _array(data, ITEM.dtype, put_count(data, slot_count), file_size(slot_count, 0))


def read_run(data: Pages, slot_count: int, first: int, count: int) -> npt.NDArray[np.void]:
    """`count` of the items that are put, from item `first` on.  Raises ValueError if the file is shorter."""
    return _array(data, ITEM.dtype, count, file_size(slot_count, first))


def put_count(data: Pages, slot_count: int) -> int:
    """How many items `read_items` brings."""
    header = read_header(data)
    room = (len(data) - file_size(slot_count, 0)) // ITEM.size
    return 0 if header is None else max(0, min(header.index_count, room))


def item_offset(data: Pages, slot_count: int, number: int) -> int:
    """The commitlog offset of one item that is put."""
    return int(read_run(data, slot_count, number, 1)["physical_offset"][0])


def search(
    data: Pages,
    slot_count: int,
    item_count: int,
    key_hash: int,
    begin_ms: int,
    end_ms: int,
    count_max: int,
) -> list[int]:
    """Physical offsets of the items with `key_hash` put in [begin_ms, end_ms], newest first, at most `count_max`.

    Follows IndexFile.selectPhyOffset rule for rule: whole seconds, a stop at the first item before `begin_ms`, at a
    negative delay and at a previous item that cannot be.  Where Java would run in a ring for ever, this ends after
    `index_count` steps.  Equal hashes of other keys are among the answers: the caller looks at the messages.
    """
    header = read_header(data)
    if header is None or header.index_count <= 1 or slot_count < 1 or len(data) < file_size(slot_count, 0):
        return []
    offsets: list[int] = []
    at = HEADER.size + SLOT.size * (key_hash % slot_count)
    (number,) = SLOT.struct.unpack(data[at : at + SLOT.size])
    room = min(item_count, (len(data) - file_size(slot_count, 0)) // ITEM.size)
    for _ in range(header.index_count):
        # `number < room` keeps the walk inside the file; Java throws there and answers with what it has.
        if len(offsets) >= count_max or not 0 < number <= header.index_count or number >= room:
            break
        at = file_size(slot_count, number)
        item_hash, physical_offset, delay_s, previous = ITEM.struct.unpack(data[at : at + ITEM.size])
        if delay_s < 0:
            break
        put_ms = header.begin_timestamp_ms + delay_s * 1000
        if item_hash == key_hash and begin_ms <= put_ms <= end_ms:
            offsets.append(physical_offset)
        if previous == number or put_ms < begin_ms:
            break
        number = previous
    return offsets


def infer_sizes(data: Pages) -> tuple[int, int] | None:
    """Slot count S and item count N of a whole index file, worked out from its content; None if nothing decides.

    Only the length, 40 + 4·S + 20·N, is known.  The header gives two anchors, the commitlog offsets of the first and
    the last item: where they stand, S is known.  Each such candidate is checked: items and slots must agree on hash
    mod S.

    `data` is the file as long as it is on disk.  A file without items gives None and answers no query either; other
    files of the same directory and length have the same sizes.
    """
    header = read_header(data)
    if header is None or header.index_count <= 1 or (len(data) - HEADER.size) % SLOT.size:
        return None
    if len(data) > FILE_SIZE_MAX:
        return None
    if len(data) == file_size(DEFAULT_SLOT_COUNT, DEFAULT_ITEM_COUNT):
        slot_counts = [DEFAULT_SLOT_COUNT]  # found at once, without a look through 420 MB
        if _agreement(data, DEFAULT_SLOT_COUNT) < _AGREEMENT_MIN:
            slot_counts = _candidates(data, header)
    else:
        slot_counts = _candidates(data, header)
    ranked = sorted(((_agreement(data, slot_count), slot_count) for slot_count in slot_counts), reverse=True)
    if not ranked or ranked[0][0] < _AGREEMENT_MIN or (len(ranked) > 1 and ranked[1][0] == ranked[0][0]):
        return None
    slot_count = ranked[0][1]
    return slot_count, (len(data) - file_size(slot_count, 0)) // ITEM.size


def _candidates(data: Pages, header: IndexHeader) -> list[int]:
    """The slot counts that put the first and the last item where the header says, of all that the length allows."""
    word_size = SLOT.size
    words = _array(data, np.uint32, len(data) // word_size, 0)
    header_words, item_words = HEADER.size // word_size, ITEM.size // word_size
    room_words = len(words) - header_words  # S + item_words * N
    item_count_max = (room_words - 1) // item_words
    if header.index_count > item_count_max:
        return []
    # Every possible S: the smallest leaves item_count_max items, each next one item less, down to index_count.
    slot_count_min = room_words - item_words * item_count_max
    first = header_words + slot_count_min + item_words  # word of item 1 with the smallest S
    span = item_words * (item_count_max - header.index_count + 1)

    def column(item: int, word: int) -> _Words:
        """That word of that item, for each S."""
        start = first + (item - 1) * item_words + word
        return words[start : start + span : item_words]

    last_item = header.index_count - 1

    def stands(offset: int, item: int) -> npt.NDArray[np.bool_]:
        """Where that item has this physical offset, for each S."""
        high, low = np.frombuffer(offset.to_bytes(8, "big", signed=True), np.uint32)
        at = ITEM.offset["physical_offset"] // word_size
        places: npt.NDArray[np.bool_] = (column(item, at) == high) & (column(item, at + 1) == low)
        return places

    # Java counts an item before it sets end_offset: a live file may be caught between the two.
    at_end = stands(header.end_offset, last_item)
    if last_item > 1:
        at_end |= stands(header.end_offset, last_item - 1)
    fits = stands(header.begin_offset, 1) & at_end
    if header.end_offset == 0:
        # All items belong to the first message: zero anchors fit empty space too, but hashes are not 0.
        fits &= (column(1, 0) != 0) & (column(last_item, 0) != 0)
    found = np.flatnonzero(fits)[:_CANDIDATE_COUNT_MAX]
    return [slot_count_min + item_words * step for step in found.tolist()]


def _agreement(data: Pages, slot_count: int) -> float:
    """The share of (sampled) items whose slot and previous item belong to the same hash mod S, 0 … 1."""
    count = put_count(data, slot_count)
    if count <= 1:
        return 0.0
    numbers = np.unique(np.linspace(1, count - 1, min(_SAMPLE_COUNT, count - 1)).astype(np.int64))
    start = file_size(slot_count, 0)
    sample = _rows(data, ITEM.dtype, start, count, numbers)
    hashes = sample["key_hash"].astype(np.int64)
    slots = hashes % slot_count
    newest = _rows(data, SLOT_NUMBER, HEADER.size, slot_count, slots).astype(np.int64)
    previous = sample["previous_item"].astype(np.int64)
    sound = (hashes >= 0) & (sample["delay_s"] >= 0)
    sound &= (newest >= numbers) & (newest < count) & (previous >= 0) & (previous < numbers)
    heads = _rows(data, ITEM.dtype, start, count, np.where(sound, newest, 0))
    befores = _rows(data, ITEM.dtype, start, count, np.where(sound, previous, 0))
    linked = heads["key_hash"] % slot_count == slots
    chained = (previous == 0) | (befores["key_hash"] % slot_count == slots)
    return float(np.mean(sound & linked & chained))


def _rows(
    data: Pages, dtype: np.dtype[Any], start: int, count: int, numbers: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """The values of these numbers, of `count` that begin at byte `start`; only they are read, unless the file is in
    memory."""
    if isinstance(data, bytes | memoryview):
        return _array(data, dtype, count, start)[numbers]
    size = dtype.itemsize
    parts = (data[start + number * size : start + (number + 1) * size] for number in numbers.tolist())
    return np.frombuffer(b"".join(parts), dtype)
