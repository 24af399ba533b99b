"""Walking the log: chains of records, places where they break, and where they go on."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqstore import DataLost
from rmqstore.directory import walk as walking
from rmqstore.directory.listing import stored_files
from rmqstore.directory.log_files import LogView
from rmqstore.directory.walk import Break, Stretch, WalkLimits, walk
from rmqstore.files.reading import LOCAL
from rmqstore.formats import message, names
from rmqstore.formats.message import Record, encode_record, read_record
from rmqstore.formats.record_chain import chain, magic_positions
from rmqstore.records.soundness import Reason
from tests.formats.records import MAGICS, encoded, records
from tests.snapshot.small_store import FIRST_MS, SmallStore, small_store

WINDOW_SIZE = 1024
ZEROS_SIZE = 256
EVER = 2**62
# Bodies that hold what looks like records: magics, whole records, fronts of records with any size.
FAKES = st.lists(
    st.sampled_from([*MAGICS, encoded(), encoded(body=b"")[:60], b"\0\0\0\x68" + MAGICS[0], b"\0\0\0\x5b" + MAGICS[1]]),
    max_size=4,
).map(b"".join)
TAILS = st.sampled_from(
    [
        b"",
        bytes(30),
        encoded()[:-1],
        encoded()[:50],
        message.BLANK.struct.pack(8, MAGIC := message.MAGIC_BLANK),
        b"\xff" * 40,
    ]
)


@dataclass
class Walked:
    """What a walk gave: the sound and the unsound records by offset, and the breaks."""

    sound: list[int]
    bad: dict[int, Reason]
    breaks: list[Break]


def walked(
    root: Path, access: str = "pread", stop: int | None = None, start: int | None = None, **limits: int
) -> Walked:
    files = stored_files(LOCAL, str(root / "commitlog"))
    end = files[-1].end
    found = Walked([], {}, [])
    with LogView(LOCAL, files, end if access == "mmap" else 0, end) as view:
        bounds = WalkLimits(
            files[0].start if start is None else start, end if stop is None else stop, **({"crc_from": 0} | limits)
        )
        for item in walk(view, bounds):
            if isinstance(item, Stretch):
                for offset, reason in zip(item.offsets.tolist(), item.reasons.tolist(), strict=True):
                    if reason == Reason.SOUND:
                        found.sound.append(offset)
                    else:
                        found.bad[offset] = Reason(reason)
            else:
                found.breaks.append(item)
    return found


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows smaller than the files, so that their edges are met."""
    monkeypatch.setattr(walking, "WINDOW_SIZE", WINDOW_SIZE)
    monkeypatch.setattr(walking, "_ZEROS_SIZE", ZEROS_SIZE)


both_ways = pytest.mark.parametrize("access", ["mmap", "pread"])


@given(
    st.lists(records() | FAKES.map(lambda body: read_record(encoded(body=body), 0)), max_size=6),
    TAILS,
    st.binary(max_size=9),
)
@example([read_record(encoded(body=encoded() * 2), 0)] * 3, b"", b"")
def test_a_chain_is_what_reading_one_by_one_gives(wanted: list[Record], tail: bytes, before: bytes) -> None:
    page = before + b"".join(encode_record(record) for record in wanted) + tail
    starts, position = [], len(before)
    while isinstance(found := read_record(page, position), Record):
        starts.append(position)
        position = found.end
    assert len(starts) == len(wanted)
    assert chain(np.frombuffer(page, np.uint8), len(before)).tolist() == starts


@given(
    st.lists(records() | FAKES.map(lambda body: read_record(encoded(body=body), 0)), max_size=6),
    TAILS,
    st.binary(max_size=9),
    st.data(),
)
def test_told_places_change_nothing_in_a_chain(
    wanted: list[Record], tail: bytes, before: bytes, data: st.DataObject
) -> None:
    """Right, wrong, doubled and missing ones; also those of records in bodies, and outside of the page."""
    page = np.frombuffer(before + b"".join(encode_record(record) for record in wanted) + tail, np.uint8)
    starts = chain(page, len(before)).tolist()
    right = st.sampled_from(starts) if starts else st.nothing()
    wrong = st.integers(-10, len(page) + 10) | st.sampled_from([-(2**63), 2**63 - 1])
    told = data.draw(st.just(starts) | st.lists(right | wrong, max_size=9))
    cut = data.draw(st.integers(len(before), len(page)))
    for part in (page, page[:cut]):
        expected = chain(part, len(before)).tolist()
        assert chain(part, len(before), np.array(sorted(told), np.int64)).tolist() == expected


@given(st.binary(max_size=60) | FAKES, st.integers(0, 20))
def test_magics_are_found_wherever_they_stand(data: bytes, start: int) -> None:
    found = magic_positions(np.frombuffer(data, np.uint8), start).tolist()
    assert found == [at for at in range(start, len(data)) if data[at : at + 4] in MAGICS[:2]]


@both_ways
def test_every_record_of_every_file_is_walked(tmp_path: Path, access: str) -> None:
    store = small_store(100)
    assert walked(store.write(tmp_path), access) == Walked(store.offsets, {}, [Break(store.end, message.NO_DATA, None)])


@both_ways
@pytest.mark.parametrize("size", [WINDOW_SIZE - 130, WINDOW_SIZE, 3 * WINDOW_SIZE])
def test_records_larger_than_a_window(tmp_path: Path, access: str, size: int) -> None:
    store = SmallStore(8 * WINDOW_SIZE)
    for number in range(12):
        store.add(body=b"x" * (size if number % 2 else 3))
    assert walked(store.write(tmp_path), access).sound == store.offsets


@both_ways
@pytest.mark.parametrize("place", [0, 4, 28, 84])
def test_a_broken_front_breaks_the_chain_until_the_next_record(tmp_path: Path, access: str, place: int) -> None:
    store = small_store(50)
    victim = store.offsets[20]
    store.change(victim + place, b"\xff\xff\xff\xff")
    found = walked(store.write(tmp_path), access)
    rest = [offset for offset in store.offsets if offset != victim]
    assert found.sound == rest
    assert {*found.bad, *(item.offset for item in found.breaks[:-1])} == {victim}
    assert [item.resume for item in found.breaks[:-1]] in ([], [store.offsets[21]])


def test_a_record_in_the_body_of_a_broken_one_does_not_count(tmp_path: Path) -> None:
    store = SmallStore()
    store.add()
    victim = store.add(body=encoded(physical_offset=7, store_timestamp=FIRST_MS + 5000))
    store.add()
    store.change(victim + 4, b"\0")
    found = walked(store.write(tmp_path))
    assert found.sound == [store.offsets[0], store.offsets[2]]
    assert [(item.offset, item.resume) for item in found.breaks[:1]] == [(victim, store.offsets[2])]


@pytest.mark.parametrize(("age_ms", "comes_back"), [(-1, False), (0, True), (1, True)])
def test_older_records_behind_a_break_do_not_come_back(tmp_path: Path, age_ms: int, comes_back: bool) -> None:
    """A recovery cut the log and left older bytes in the file."""
    store = SmallStore()
    for _ in range(5):
        store.add()
    newest_ms = FIRST_MS + 4000
    cut = store.end
    store.append(bytes(40))
    stale = store.add(store_timestamp=newest_ms + age_ms)
    found = walked(store.write(tmp_path))
    assert found.sound == store.offsets[:5] + ([stale] if comes_back else [])
    assert (found.breaks[0].offset, found.breaks[0].resume) == (cut, stale if comes_back else None)


@pytest.mark.parametrize("damage", ["body", "place"])
def test_a_chain_does_not_go_on_at_a_record_that_is_not_sound(tmp_path: Path, damage: str) -> None:
    store = SmallStore()
    store.add()
    cut = store.end
    store.append(bytes(40))
    store.add(body_crc=1) if damage == "body" else store.add(physical_offset=5)
    last = store.add()
    found = walked(store.write(tmp_path))
    assert found.sound == [store.offsets[0], last]
    assert (found.breaks[0].offset, found.breaks[0].resume) == (cut, last)


def zeroed(size: int) -> SmallStore:
    """Three records, `size` zeros, three records; one file."""
    store = SmallStore(16 * WINDOW_SIZE)
    for _ in range(3):
        store.add()
    store.end += size
    for _ in range(3):
        store.add()
    return store


@both_ways
def test_few_zeros_in_the_middle_do_not_end_the_log(tmp_path: Path, access: str) -> None:
    store = zeroed(ZEROS_SIZE - 50)
    assert walked(store.write(tmp_path), access).sound == store.offsets


def test_many_zeros_end_the_log_but_where_the_queues_know_of_more(tmp_path: Path) -> None:
    store = zeroed(4 * WINDOW_SIZE)
    root = store.write(tmp_path)
    assert walked(root).sound == store.offsets[:3]
    assert walked(root).breaks[-1].resume is None
    assert walked(root, known_end=store.offsets[-1]).sound == store.offsets


def test_zeros_to_the_end_of_a_file_go_on_where_the_next_begins_with_a_record(tmp_path: Path) -> None:
    store = SmallStore(8 * WINDOW_SIZE)
    store.add()
    store.end = store.file_size
    later = store.add()
    found = walked(store.write(tmp_path))
    assert found.sound == [0, later]
    assert found.breaks[0].resume == later == store.file_size


@both_ways
def test_a_blank_leads_to_the_next_file(tmp_path: Path, access: str) -> None:
    store = SmallStore()
    store.add()
    store.roll()
    store.add()
    store.roll()
    store.roll()
    store.add()
    found = walked(store.write(tmp_path), access)
    assert found.sound == store.offsets == [0, 4096, 3 * 4096]
    assert [item.resume for item in found.breaks] == [None]


def test_a_missing_middle_file_is_said(tmp_path: Path) -> None:
    store = small_store(150)
    root = store.write(tmp_path)
    (root / "commitlog" / names.format_start(4096)).unlink()
    (root / "commitlog" / names.format_start(8192)).unlink()
    found = walked(root)
    assert found.sound == [offset for offset in store.offsets if not 4096 <= offset < 3 * 4096]
    assert found.breaks[0] == Break(4096, "commitlog files are missing", 3 * 4096, is_missing=True)


def test_a_walk_stays_within_its_limits(tmp_path: Path) -> None:
    store = small_store(100)
    root = store.write(tmp_path)
    first, last = store.offsets[10], store.offsets[70]
    found = walked(root, start=first, stop=last)
    assert found == Walked(store.offsets[10:70], {}, [])


def test_crcs_are_checked_from_a_place_on(tmp_path: Path) -> None:
    store = small_store(40)
    for number in (5, 25):
        store.change(store.offsets[number] + 88, b"B")
    root = store.write(tmp_path)
    assert walked(root, crc_from=store.offsets[25]).bad == {store.offsets[25]: Reason.BODY_CRC}
    assert walked(root, crc_from=EVER).bad == {}
    assert len(walked(root, crc_from=0).bad) == 2


def test_a_record_that_names_another_place_is_not_sound(tmp_path: Path) -> None:
    store = SmallStore()
    store.add()
    wrong = store.add(physical_offset=3)
    store.add()
    found = walked(store.write(tmp_path))
    assert found.bad == {wrong: Reason.WRONG_PLACE}
    assert found.sound == [store.offsets[0], store.offsets[2]]


def remove(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


@pytest.mark.parametrize("harm", [remove, cut])
def test_a_mapped_file_that_vanishes_or_shrinks_is_lost(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    root = small_store(100).write(tmp_path)
    files = stored_files(LOCAL, str(root / "commitlog"))
    with LogView(LOCAL, files, files[-1].end, files[-1].end) as view:
        items = walk(view, WalkLimits(0, files[-1].end, 0))
        next(items)
        harm(Path(files[1].path))
        with pytest.raises(DataLost) as caught:
            list(items)
    assert caught.value.path == files[1].path
