"""A sound store is sound whatever its writer's clock did, and delayed messages go out when their records say."""

from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig
from rmqstore.clock import ManualClock
from rmqstore.engine.store import Store, open_store
from rmqstore.files.reading import LOCAL
from rmqstore.formats import java_hash
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from rmqstore.snapshot.finding import DAMAGE, Finding
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify import verify
from tests.snapshot.small_store import FIRST_MS, SmallStore

NOW, YEAR = 1_700_000_000_000, 365 * 86_400_000
CONFIG = StoreConfig(
    log_file_size=65536, queue_file_size=2000, index_slot_count=20, index_item_count=30, preallocate=False
)
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def damage_of(root: Path) -> list[Finding]:
    return [found for found in verify(survey(LOCAL, str(root))) if found.severity == DAMAGE]


def written(root: Path, steps: list[int], delay: str | None) -> Store:
    """An open store with 40 messages from each of some moments."""
    clock = ManualClock(steps[0])
    store = open_store(root, CONFIG, clock=clock, workers=False)
    for now_ms in steps:
        clock.ms = now_ms
        for number in range(40):
            named = {} if delay is None else {"DELAY": delay}
            store.put(Message("T", b"x" * 50, keys=f"k{now_ms}-{number}", tags="A", properties=named))
    return store


@pytest.mark.parametrize("delay", [None, "3"])
@pytest.mark.parametrize(
    "steps",
    [
        [NOW, NOW - 1],
        [NOW, NOW - 1000, NOW - 500],
        [NOW, NOW - 25 * YEAR],
        [NOW, NOW + YEAR, NOW],
        [NOW, NOW - YEAR, NOW - 2 * YEAR, NOW - 3 * YEAR],
        [-5 * YEAR, -5 * YEAR + 1000],
        [-20_000, 0, 1000],
        [0],
        [YEAR // 40],
        [NOW, 0],
    ],
)
def test_a_clock_that_was_set_back_or_wrong_is_no_damage(steps: list[int], delay: str | None, tmp_path: Path) -> None:
    written(tmp_path / "closed", steps, delay).close()
    assert damage_of(tmp_path / "closed") == []
    written(tmp_path / "killed", steps, delay).abandon()
    assert damage_of(tmp_path / "killed") == []


def test_a_store_that_was_not_stopped_cleanly_is_found_after_the_clock_was_set_back(tmp_path: Path) -> None:
    written(tmp_path / "store", [NOW, NOW - 1000], None).close()
    checkpoint = tmp_path / "store" / "checkpoint"
    data = bytearray(checkpoint.read_bytes())
    data[8:16] = (NOW - 5000).to_bytes(8, "big")
    checkpoint.write_bytes(data)
    assert [found.reason for found in damage_of(tmp_path / "store") if "not stopped cleanly" in found.reason]


@pytest.mark.parametrize("first_ms", [FIRST_MS, 0])
def test_an_entry_that_delivers_before_its_message_was_stored_is_found(first_ms: int, tmp_path: Path) -> None:
    store = SmallStore()
    for number in range(3):
        store.add(SCHEDULE, 2, properties={"TAGS": "A", "DELAY": "3"}, store_timestamp=first_ms + number)
    times = [first_ms + 10_000, java_hash.string_hash("A"), first_ms - 5_000]
    for number, time_ms in enumerate(times):
        offset, size, _ = QUEUE_ENTRY.struct.unpack(store.entries[SCHEDULE, 2][number])
        store.entries[SCHEDULE, 2][number] = QUEUE_ENTRY.struct.pack(offset, size, time_ms)
    found = [each for each in damage_of(store.write(tmp_path)) if "tags code" in each.reason]
    place = tmp_path / "consumequeue" / SCHEDULE / "2" / format_start(0)
    assert [(each.path, each.position) for each in found] == [(str(place), 2 * QUEUE_ENTRY.size)]


def test_delayed_messages_whose_entries_hold_a_hash_go_out_when_their_records_say(tmp_path: Path) -> None:
    """The recovery of RocketMQ 4.9.8 writes such entries: it does not know the delay levels yet."""
    store = SmallStore()
    named = {"REAL_TOPIC": "T", "REAL_QID": "0"}
    for properties in ({"DELAY": "3"}, {"DELAY": "3", "TAGS": "A"}, {"DELAY": "99"}, {"TAGS": "A"}):
        store.add(SCHEDULE, 2, properties=named | properties)
    own = FIRST_MS + 4000 + 77
    offset = store.add(SCHEDULE, 2, properties=named | {"DELAY": "3"})
    _, size, _ = QUEUE_ENTRY.struct.unpack(store.entries[SCHEDULE, 2][-1])
    store.entries[SCHEDULE, 2][-1] = QUEUE_ENTRY.struct.pack(offset, size, own)
    rows = rmqstore.open_snapshot(store.write(tmp_path)).table("delayed", now_ms=FIRST_MS + 10_000).to_pylist()
    due = [round(row["deliverAt"].timestamp() * 1000) - FIRST_MS for row in rows]
    assert due == [10_000, 11_000, 2000 + 2 * 3_600_000, 3000, own - FIRST_MS]
    assert [row["isDue"] for row in rows] == [True, False, False, True, True]
