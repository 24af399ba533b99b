"""Whatever happens to a file of a store on DLedger's log: the engine refuses it with a typed error and changes nothing,
or goes on with every message that was stored for good; a reader yields rows that were put, or a typed error.

The entries' own CRC covers each byte of a record: an unflagged message is the one that was put, to the last byte.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import rmqstore
from rmqstore import Message, StoreError, open_snapshot, open_store
from tests.dledger.ledgers import LEDGER
from tests.golden.cases import row_order
from tests.golden.rows import SCAN_MODES, differences, scanned
from tests.mutation.damage import THOROUGH, damaged_copy, damages, no_hang

pytestmark = pytest.mark.mutation

COUNT, QUEUES = 60, 3
DERIVED = ("dledger-n0/index", "dledger-n0/checkpoint", "dledger-n0/currterm", "checkpoint", "consumequeue", "index")
Bodies = dict[tuple[int, int], bytes]


def body(number: int) -> bytes:
    return f"message {number} ".encode() * 9


SOUND: Bodies = {(number % QUEUES, number // QUEUES): body(number) for number in range(COUNT)}


@pytest.fixture(scope="module", params=["closed", "killed"])
def sound_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty messages in several files of the log and of its index; all of them are on the disk."""
    root = tmp_path_factory.mktemp("sound") / "store"
    store = open_store(str(root), LEDGER, workers=False)
    for number in range(COUNT):
        assert store.put(Message("t", body(number), queue_id=number % QUEUES, keys=[f"k{number}"])).is_stored
    store.flush()
    if request.param == "closed":
        store.close()
    else:
        store.abandon()
        (root / "lock").unlink(missing_ok=True)
    assert len(list((root / "dledger-n0" / "data").iterdir())) > 3
    return root


def files_of(root: Path, *rooms: str) -> list[str]:
    files = (str(file.relative_to(root)) for file in sorted(root.rglob("*")) if file.is_file())
    return [file for file in files if file.startswith(rooms)]


@THOROUGH
@given(data=st.data())
def test_entries(data: st.DataObject, sound_store: Path, tmp_path: Path) -> None:
    wound = data.draw(damages(files_of(sound_store, "dledger-n0/data")))
    with damaged_copy(sound_store, tmp_path, [wound], is_written=True) as (root, changed), no_hang():
        assert_read_or_refused(root, sound_store, data.draw(st.sampled_from(SCAN_MODES)))
        before = contents(root / "dledger-n0" / "data")
        kept = opened(root)
        if kept is None:
            assert contents(root / "dledger-n0" / "data") == before
            return
        if len(kept) == COUNT:
            return
        numbers = sorted(number * QUEUES + queue for queue, number in kept)
        if wound.kind == "remove" and wound.file == min(files_of(sound_store, "dledger-n0/data")):
            assert numbers == list(range(numbers[0], COUNT))
            return  # as retention does: the log begins behind it
        # Only a power cut explains that something is gone, the end from the damage on; the log has the numbers' order.
        assert (sound_store / "abort").exists()
        assert numbers == list(range(len(numbers))), sorted(set(range(COUNT)) - set(numbers))
        hurt = int(Path(wound.file).name) + changed[wound.file].start
        assert hurt < end_of_entry(sound_store, len(numbers)), (len(numbers), wound)


@THOROUGH
@given(data=st.data())
def test_what_is_derived_from_them(data: st.DataObject, sound_store: Path, tmp_path: Path) -> None:
    """Nothing that the entries themselves say is lost with any other file."""
    wounds = data.draw(st.lists(damages(files_of(sound_store, *DERIVED)), min_size=1, max_size=3))
    with damaged_copy(sound_store, tmp_path, wounds, is_written=True) as (root, _), no_hang():
        assert_read_or_refused(root, sound_store, data.draw(st.sampled_from(SCAN_MODES)))
        kept = opened(root)
        assert kept is None or len(kept) == COUNT, sorted(SOUND.keys() - kept.keys())


def assert_read_or_refused(root: Path, sound: Path, mode: str) -> None:
    """Both policies: unflagged rows are the sound store's to the last field."""
    wanted = {row_order(row): row for row in scanned(open_snapshot(sound))}
    for policy in ("fail", "null"):
        try:
            rows = scanned(open_snapshot(root), scan_mode=mode, verify_crc="always", on_corrupt_record=policy)
        except StoreError as error:
            said(error)
            continue
        found = [row for row in rows if "corruptReason" not in row]
        known = [wanted[row_order(row)] for row in found if row_order(row) in wanted]
        # The tags code of the queue's entry is what nothing else tells of a message without tags.
        assert [text for text in differences(found, known) if " tagsCode: " not in text] == []


def opened(root: Path) -> Bodies | None:
    """The messages after the engine opened the store, put one more and closed it; they are there the next time, too.
    None: it was refused."""
    try:
        store = open_store(str(root), LEDGER, workers=False)
    except StoreError as error:
        said(error)
        return None
    with store:
        kept = dict(messages(store))
        assert kept.items() <= SOUND.items()
        result = store.put(Message("t", b"one more", queue_id=0))
        assert result.is_stored
        assert result.queue_offset == 1 + max((offset for queue, offset in kept if not queue), default=-1), sorted(kept)
    with open_store(str(root), LEDGER, workers=False) as store:
        assert dict(messages(store)) == kept | {(0, result.queue_offset): b"one more"}
    last = open_snapshot(root).table("entries").to_pylist()[-1]
    newest = max((number * QUEUES + queue for queue, number in kept), default=-1)
    assert (last["index"], last["corruptReason"]) == (newest + 1, None)
    return kept


def messages(store: rmqstore.Store) -> Iterator[tuple[tuple[int, int], bytes]]:
    for queue in range(QUEUES):
        offset, end = store.bounds("t", queue)
        while offset < end:
            result = store.get("t", queue_id=queue, offset=offset, max_count=COUNT)
            assert result.messages, result
            for place, message in enumerate(result.messages, start=offset):
                if message.body is None:
                    assert message.corrupt_reason
                    yield (queue, place), SOUND[queue, place]  # said, and not lost
                else:
                    yield (queue, message.queue_offset), message.body
            offset = result.next_offset


def end_of_entry(root: Path, index: int) -> int:
    """Where an entry of a sound store ends, as an offset in its log."""
    row = open_snapshot(root).table("entries").slice(index, 1).to_pylist()[0]
    return int(row["position"] + row["size"])


def contents(room: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(room.iterdir())}


def said(error: StoreError) -> None:
    note(f"{type(error).__name__}: {error}")
    assert str(error)
