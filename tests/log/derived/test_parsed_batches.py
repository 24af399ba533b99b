"""Batches that came from another log: handed out from memory where they follow, else read, and never twice."""

import random

import pytest

from rmqstore.engine.log.derived import parsed_batches
from rmqstore.engine.log.derived.dispatch_loop import DispatchLoop, FollowedLog
from rmqstore.engine.log.derived.parsed_batches import ParsedBatches
from rmqstore.engine.log.put.block import block_parts
from rmqstore.formats.properties import MULTI_DISPATCH
from rmqstore.records.batch import RecordBatch
from tests.crash.disks import MemoryDisk
from tests.log.queue_kinds_store import DERIVED, KINDS, KindsStore

FILE_SIZE = 4096


def log_of_every_kind() -> bytes:
    store = KindsStore(MemoryDisk())
    for number in range(40):
        store.put("plain", b"p" * 150, queue_id=number % 3, keys=[f"k{number}"], tags="a")
        store.put("light", b"l" * 60, properties={MULTI_DISPATCH: "%LMQ%x,%LMQ%y"})
        store.put_batch("batches", [b"in", b"one", b"record"], properties={"UNIQ_KEY": f"u{number}"})
    return store.log.read(0, store.log.marks.appended)


LOG = log_of_every_kind()


def batches() -> list[RecordBatch]:
    parts = block_parts(0, LOG, FILE_SIZE, KINDS)
    return [part.records for part in parts if part.records is not None]


def derived_of(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: data for path, data in disk.image().items() if any(f"/{name}/" in path for name in DERIVED)}


class Reads:
    """A log that counts what is read of it."""

    start = 0

    def __init__(self) -> None:
        self.size = 0

    def read(self, offset: int, size: int) -> bytes:
        self.size += size
        return LOG[offset : offset + size]


def dispatched(left_out: set[int]) -> tuple[dict[str, bytes], int]:
    """The queues' files where these batches are not at hand, and how much was read of the log."""
    store, log, parsed = KindsStore(MemoryDisk()), Reads(), ParsedBatches()
    for number, batch in enumerate(batches()):
        if number not in left_out:
            parsed.add(batch)
    followed = FollowedLog(log, lambda: len(LOG), FILE_SIZE)
    loop = DispatchLoop(followed, store.parts.dispatchers, position=0, parsed=parsed)
    loop.catch_up()
    assert loop.position == len(LOG)
    store.flush()
    return derived_of(store.disk), log.size  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(12))
def test_the_queues_are_the_same_whatever_is_at_hand(seed: int) -> None:
    count = len(batches())
    every = set(range(count))
    expected, most = dispatched(every)
    missing = set(random.Random(seed).sample(range(count), seed % count))
    found, read = dispatched(missing)
    assert found == expected
    assert read < most


def test_a_batch_is_handed_out_at_its_place_only_and_once() -> None:
    first, second, third, *_ = batches()
    parsed = ParsedBatches()
    for batch in (first, second, third):
        parsed.add(batch)
    begins = [int(batch.offsets[0]) for batch in (first, second, third)]
    assert parsed.take(begins[0], first.end - 1) is None  # not readable as a whole yet
    assert parsed.take(begins[0], len(LOG)) is first
    assert parsed.take(begins[0], len(LOG)) is None
    assert parsed.take(begins[2], len(LOG)) is third  # what lies before is passed over
    assert parsed.take(begins[1], len(LOG)) is None


def test_it_holds_no_more_than_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsed_batches, "_HELD_SIZE_MAX", 3000)
    parsed, all_of_them = ParsedBatches(), batches()
    for batch in all_of_them:
        parsed.add(batch)
    taken = [batch for batch in all_of_them if parsed.take(int(batch.offsets[0]), len(LOG)) is batch]
    sizes = [batch.end - int(batch.offsets[0]) for batch in taken]
    assert 0 < sum(sizes) <= 3000
    parsed.add(all_of_them[-1])  # there is room again
    assert parsed.take(int(all_of_them[-1].offsets[0]), len(LOG)) is all_of_them[-1]
