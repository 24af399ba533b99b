"""Whatever happens to a file of a store, a reader yields the right rows, flagged rows, or a typed error.

Hypothesis chooses the damage.  RMQSTORE_MUTATION_EXAMPLES says how often (`make mutation`: much oftener).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import rmqstore
from tests.golden.cases import FOLDERS, INNER_BATCH, Row, row_order, unpack
from tests.golden.rows import SCAN_MODES, scanned
from tests.mutation.damage import THOROUGH, Damage, damaged_copy, damages, no_hang
from tests.mutation.uncovered import UNCOVERED

pytestmark = pytest.mark.mutation

# Between them: both releases, clean and killed, IPv6, inner batches, LMQ, extensions, compression, transactions,
# property CRCs; the last is of a broker in DLedger mode.
CASES = ("basic", "killed-4.9.8", "batchcq", "lmq", "cqext", "ipv6", "sysflags", "crcprop")
CASES += ("broker-dledger-5.3.3",)
DERIVED = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "checkpoint", "abort")
DERIVED += ("dledger-n0/index", "dledger-n0/checkpoint", "dledger-n0/currterm")
SINGLE = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "MSG_REGION", "absent")
CHECKED = {"verify_crc": "always", "decompress": False}
DAMAGE_WORDS = ("fail", "null", "skip")
CRC_PROPERTY_SIZE = 20
SYS_FLAG = range(36, 40)  # its bytes in a record: compression, transaction type, address families, inner batch


@dataclass(frozen=True, slots=True)
class Sound:
    """An undamaged store: its rows by queue and queue offset, and its files by path relative to it."""

    case: str
    path: Path
    rows: dict[tuple[str, int, int], Row]
    files: tuple[str, ...]

    def files_of(self, *directories: str) -> tuple[str, ...]:
        """The files below some directories of the store."""
        return tuple(file for file in self.files if file.startswith(directories))


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Sound]:
    stores: dict[str, Sound] = {}

    def store(case: str) -> Sound:
        if case not in stores:
            path = unpack(case, tmp_path_factory.mktemp("sound"))
            rows = {row_order(row)[:3]: row for row in scanned(rmqstore.open_snapshot(path), **CHECKED)}
            files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
            stores[case] = Sound(case, path, rows, tuple(files))
        return stores[case]

    return store


@pytest.mark.parametrize("case", [case for case in CASES if case in FOLDERS])
class TestOneWound:
    """One damaged place: what comes back unflagged is what was there, but for what no check can know."""

    @THOROUGH
    @given(data=st.data())
    def test_commitlog(
        self, case: str, data: st.DataObject, sound_store: Callable[[str], Sound], tmp_path: Path
    ) -> None:
        sound = sound_store(case)
        wound = data.draw(damages(sound.files_of("commitlog", "dledger-n0/data")))
        mode, word = data.draw(st.sampled_from(SCAN_MODES)), data.draw(st.sampled_from(DAMAGE_WORDS))
        with damaged_copy(sound.path, tmp_path, [wound]) as (store, changed), no_hang():
            rows = _read(store, mode, word)
        (span,) = changed.values()
        begin = int(Path(wound.file).name)
        hurt = range(begin + span.start, begin + span.stop)
        assert [text for row in rows or () if (text := _wrong(sound, row, hurt))] == []
        if rows is not None and word == "fail":
            _assert_only_the_tail_is_missing(sound, rows, wound, hurt)

    @THOROUGH
    @given(data=st.data())
    def test_single_properties(
        self, case: str, data: st.DataObject, sound_store: Callable[[str], Sound], tmp_path: Path
    ) -> None:
        """Properties as columns are what their map says, whatever became of the log."""
        sound = sound_store(case)
        wound = data.draw(damages(sound.files_of("commitlog", "dledger-n0/data")))
        mode = data.draw(st.sampled_from(SCAN_MODES))
        columns = ["properties", *(f"property.{name}" for name in SINGLE)]
        with damaged_copy(sound.path, tmp_path, [wound]) as (store, _), no_hang():
            try:
                found = rmqstore.open_snapshot(store).scan(
                    columns=columns, scan_mode=mode, on_corrupt_record="null", include_system_topics=True
                )
                rows = found.read_all().to_pylist()
            except rmqstore.StoreError:
                return
        assert [row for row in rows if [row[f"property.{name}"] for name in SINGLE] != _of_map(row["properties"])] == []

    @THOROUGH
    @given(data=st.data())
    def test_derived_files(
        self, case: str, data: st.DataObject, sound_store: Callable[[str], Sound], tmp_path: Path
    ) -> None:
        """Queues, extensions, index, checkpoint: the messages are all in the commitlog, and none may vanish unsaid."""
        sound = sound_store(case)
        files = sound.files_of(*DERIVED)
        wound = data.draw(damages(files))
        mode, word = data.draw(st.sampled_from(SCAN_MODES)), data.draw(st.sampled_from(DAMAGE_WORDS))
        with damaged_copy(sound.path, tmp_path, [wound]) as (store, _), no_hang():
            rows = _read(store, mode, word)
        assert [text for row in rows or () if (text := _wrong(sound, row, range(0)))] == []
        if rows is not None and word == "fail":
            lost = sound.rows.keys() - {row_order(row)[:3] for row in rows}
            # An LMQ queue that lost its file is not looked for: any record of the whole log may belong to it.
            assert {place for place in lost if not place[0].startswith("%LMQ%")} == set(), sorted(lost)[:3]


@pytest.mark.parametrize("case", [case for case in CASES if case in FOLDERS])
@THOROUGH
@given(data=st.data())
def test_many_wounds_and_every_question(
    case: str, data: st.DataObject, sound_store: Callable[[str], Sound], tmp_path: Path
) -> None:
    """Rows or a typed error, never anything else, from every question that a snapshot answers."""
    sound = sound_store(case)
    wounds = data.draw(st.lists(damages(sound.files), min_size=1, max_size=5))
    some = sound.rows[data.draw(st.sampled_from(sorted(sound.rows)))]
    errors: list[rmqstore.StoreError] = []
    with damaged_copy(sound.path, tmp_path, wounds) as (store, _):
        for question in _questions(
            store, some, data.draw(st.sampled_from(SCAN_MODES)), data.draw(st.sampled_from(DAMAGE_WORDS))
        ):
            with no_hang():
                try:
                    question()
                except rmqstore.StoreError as error:
                    errors.append(error)
    assert all(map(str, errors))  # whatever else came out of a question has ended the test


def _questions(store: Path, some: Row, mode: str, word: str) -> Iterator[Callable[[], object]]:
    try:
        snapshot = rmqstore.open_snapshot(store)
    except rmqstore.StoreError as error:
        note(str(error))
        return
    key = (some["keys"] or "none").split(" ")[0]
    yield snapshot.queues
    yield snapshot.topics
    yield snapshot.consumer_offsets
    yield lambda: scanned(snapshot, scan_mode=mode, on_corrupt_record=word)
    yield lambda: snapshot.message_at(some["physicalOffset"])
    yield lambda: snapshot.query(some["topic"], key)
    yield lambda: snapshot.index_offsets(some["topic"], key, begin_ms=0, end_ms=some["storeTimestamp"])
    for boundary in ("lower", "upper", "nearest"):
        yield lambda boundary=boundary: snapshot.offset_at(
            some["topic"], some["queueId"], int(some["storeTimestamp"]), boundary
        )


def _read_by_a_user(error: rmqstore.StoreError) -> None:
    """The error's words, which must be there; hypothesis shows them beside a failure."""
    words = str(error)
    note(f"{type(error).__name__}: {words}")
    assert words


def _read(store: Path, mode: str, word: str) -> list[Row] | None:
    """The rows; None for a typed error."""
    try:
        return scanned(rmqstore.open_snapshot(store), scan_mode=mode, on_corrupt_record=word, **CHECKED)
    except rmqstore.StoreError as error:
        _read_by_a_user(error)
        return None


def _wrong(sound: Sound, row: Row, hurt: range) -> str | None:
    """Where an unflagged row is not the one that was there; `hurt` is the damaged part of the commitlog, in physical
    offsets."""
    if "corruptReason" in row:
        return None
    place = row_order(row)[:3]
    record = range(row["physicalOffset"], row["physicalOffset"] + row["storeSize"])
    is_hurt = _overlap(record, hurt)
    if is_hurt and _overlap(range(record.start + SYS_FLAG.start, record.start + SYS_FLAG.stop), hurt):
        return None
    if place not in sound.rows:
        return f"a row that nobody wrote: {place}"
    was = sound.rows[place]
    differing = {name for name in was if was[name] != row.get(name)}
    if is_hurt:
        has_crc = sound.case.startswith("crcprop") and not _overlap(record[-CRC_PROPERTY_SIZE:], hurt)
        allowed = {"tagsCode"} if has_crc else UNCOVERED
        if not was["body"] or row["sysFlag"] & INNER_BATCH:
            allowed = allowed | {"bodyCrc"}  # the CRC of no body is not looked at
    else:
        allowed = {"tagsCode"}  # what the queue's entry says: nothing else tells it
    return None if differing <= allowed else f"{place} differs in {differing - allowed}"


def _assert_only_the_tail_is_missing(sound: Sound, rows: list[Row], wound: Damage, hurt: range) -> None:
    """Without an error, only what a crash can have left unwritten may be missing, or what the deletion of old files
    takes away."""
    found = {row_order(row)[:3] for row in rows}
    lost = [row for place, row in sound.rows.items() if place not in found]
    if not lost or wound.kind in ("remove", "empty", "cut"):
        return  # a log file that is gone or short: the log begins behind it or ends before it
    first = min(row["physicalOffset"] for row in lost)
    record = next(row for row in lost if row["physicalOffset"] == first)
    if _overlap(range(first + SYS_FLAG.start, first + SYS_FLAG.stop), hurt):
        return  # it now reads as a prepared or rolled back one
    assert _overlap(range(first, first + record["storeSize"]), hurt), (
        f"lost {record['physicalOffset']}, which is not damaged"
    )
    assert all(row["physicalOffset"] < first for row in rows), f"lost {first} from the middle without an error"


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def _of_map(pairs: list[tuple[str, str]] | None) -> list[str | None]:
    named = dict(pairs or ())
    return [named.get(name) for name in SINGLE]
