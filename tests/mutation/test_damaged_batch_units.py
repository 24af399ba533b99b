"""Units of batch queues say themselves which queue offsets they have: a damaged one must not be believed.

Found by `make mutation`: a flipped bit in the last unit made a queue of 2^60 messages (whose parts were planned one by
one), left messages out, or gave them the numbers of others.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore.formats.batch_queue_entry import BATCH_QUEUE_ENTRY
from tests.golden.cases import row_order, unpack
from tests.golden.rows import scanned
from tests.mutation.damage import no_hang

pytestmark = pytest.mark.mutation

BIT_STEP = 1 if "RMQSTORE_MUTATION_EXAMPLES" in os.environ else 5  # `make mutation` flips them all
QUEUE = Path("batchconsumequeue/%RETRY%dTA/1")
UNITS = 31  # 20 in the first file, 11 in the second
CHECKED = {"verify_crc": "always", "decompress": False, "scan_mode": "queue"}
Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("batchcq", tmp_path_factory.mktemp("batchcq"))


@pytest.fixture(scope="module")
def rows(store: Path) -> dict[Place, object]:
    return {row_order(row)[:3]: row["body"] for row in scanned(rmqstore.open_snapshot(store), **CHECKED)}


def flipped(store: Path, unit: int, name: str) -> Iterator[int]:
    """Bits of a field of a unit in turn, while each is flipped in the store."""
    file = sorted((store / QUEUE).iterdir())[unit // 20]
    file.chmod(0o644)
    sound = file.read_bytes()
    first = unit % 20 * BATCH_QUEUE_ENTRY.size + BATCH_QUEUE_ENTRY.offset[name]
    try:
        for bit in range(unit % BIT_STEP, BATCH_QUEUE_ENTRY.dtype[name].itemsize * 8, BIT_STEP):
            data = bytearray(sound)
            data[first + bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            yield bit
    finally:
        file.write_bytes(sound)


def wrong(store: Path, rows: dict[Place, object]) -> list[str]:
    """What is wrong with the answer of a reader that fails at damage, and of one that keeps it as rows."""
    found = []
    for word in ("fail", "null"):
        try:
            answer = scanned(rmqstore.open_snapshot(store), on_corrupt_record=word, **CHECKED)
        except rmqstore.StoreError:
            continue
        sound = {row_order(row)[:3]: row["body"] for row in answer if not row.get("corruptReason")}
        found += [f"{word}: {place} has another body" for place, body in sound.items() if rows.get(place) != body]
        if len(sound) < len(rows) and (word == "fail" or len(sound) == len(answer)):
            found.append(f"{word}: {sorted(rows.keys() - sound.keys())[:3]} are missing")
    return found


@pytest.mark.parametrize("unit", [0, 1, 19, 20, UNITS - 2, UNITS - 1])
@pytest.mark.parametrize("name", ["base_queue_offset", "message_count", "physical_offset", "size"])
def test_no_message_is_left_out_or_has_the_number_of_another(
    store: Path, rows: dict[Place, object], unit: int, name: str
) -> None:
    with no_hang():
        assert {bit: found for bit in flipped(store, unit, name) if (found := wrong(store, rows))} == {}
