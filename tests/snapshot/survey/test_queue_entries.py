"""Small queues judged in vectors: the same as each of them by its files."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from rmqstore import StoreConfig, StoreError, open_store
from rmqstore.directory.queue_files import small_content
from rmqstore.files.reading import LOCAL
from rmqstore.snapshot.survey import queue_entries
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.survey.survey import survey

pytestmark = pytest.mark.stores

TOPICS = [f"t{number}" for number in range(6)] + ["%LMQ%light"]
ENTRY = 20


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven topics of two queues, four messages each; the log in several files, each queue in one of ten entries."""
    root = tmp_path_factory.mktemp("small") / "store"
    config = StoreConfig(log_file_size=4096, queue_file_size=10 * ENTRY, default_queue_nums=2, preallocate=False)
    with open_store(root, config, workers=False) as store:
        for _ in range(4):
            names = [topic for topic in TOPICS for _ in range(2)]
            queues = pa.array([number % 2 for number in range(len(names))], pa.int32())
            store.put_columns(pa.table({"topic": names, "body": [bytes(60)] * len(names), "queueId": queues}))
    return root


def looked_at(root: Path) -> StoreExtent | str:
    """What a survey finds, without what only small queues know; or its error."""
    try:
        found = survey(LOCAL, str(root))
    except StoreError as error:
        return str(error)
    return replace(found, queues={key: replace(queue, mean_size=0.0) for key, queue in found.queues.items()})


def damage_a_queue(root: Path, dice: random.Random) -> None:
    """Something that a crash, a recovery or a bad disk leaves of a queue's file."""
    files = sorted((root / "consumequeue").rglob("0*0"))
    path, other = dice.sample(files, 2)
    data = bytearray(path.read_bytes())
    slot = dice.randrange(5) * ENTRY
    match dice.randrange(6):
        case 0:
            data[slot : slot + ENTRY] = bytes(ENTRY)
        case 1:
            data[slot + dice.randrange(ENTRY)] ^= 1 << dice.randrange(8)
        case 2:
            del data[dice.randrange(len(data)) :]
        case 3:
            data[slot:] = bytes(len(data) - slot)
        case 4:
            data[slot : slot + ENTRY] = other.read_bytes()[:ENTRY]
        case 5:
            data[:ENTRY] = (0).to_bytes(8, "big") + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)
    path.write_bytes(data)
    if dice.random() < 0.2:
        path.rename(path.with_name(f"{10 * ENTRY:020d}"))
    if dice.random() < 0.1:
        shutil.rmtree(other.parent)


@pytest.mark.parametrize("seed", range(60))
def test_vectors_say_what_the_files_say(
    seed: int, closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    root = shutil.copytree(closed, tmp_path / "s")
    for _ in range(dice.randrange(4)):
        damage_a_queue(root, dice)
    if dice.random() < 0.4:
        (root / "abort").write_text("1")
    if dice.random() < 0.3:  # an expired file
        (root / "commitlog" / f"{0:020d}").unlink()
    if dice.random() < 0.3:  # an end that is lost
        newest = max((root / "commitlog").iterdir())
        newest.write_bytes(newest.read_bytes()[:512].ljust(4096, b"\0"))
    by_vectors = looked_at(root)
    monkeypatch.setattr(queue_entries, "small_content", lambda _: None)
    assert looked_at(root) == by_vectors


def test_queues_beyond_what_is_held_are_read_by_file(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = survey(LOCAL, str(closed))
    assert all(queue.mean_size > 100 for queue in whole.queues.values())
    monkeypatch.setattr(queue_entries, "_BLOCK_QUEUES", 3)
    monkeypatch.setattr(queue_entries, "_HELD_ENTRIES_MAX", 20)
    part = survey(LOCAL, str(closed))
    assert sum(queue.mean_size > 0 for queue in part.queues.values()) == 6
    assert looked_at(closed) == replace(
        whole, queues={key: replace(queue, mean_size=0.0) for key, queue in whole.queues.items()}
    )


@pytest.mark.parametrize(
    ("size", "written", "expected"),
    [
        (200, {}, b""),
        (200, {0: b"\1" * 7}, b"\1" * 7 + bytes(13)),
        (200, {30: b"\1"}, bytes(30) + b"\1" + bytes(9)),
        (210, {205: b"\1"}, bytes(200)),  # in no slot
        (6_000_000, {0: b"\1"}, b"\1" + bytes(19)),
        (6_000_000, {4090: b"\1"}, None),  # in the slot that the head cuts
        (6_000_000, {0: b"\1", 3_000_000: b"\2"}, None),
    ],
)
def test_content_of_a_small_queue(
    size: int, written: dict[int, bytes], expected: bytes | None, closed: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(closed, tmp_path / "s")
    path = root / "consumequeue" / "t1" / "0" / f"{0:020d}"
    path.unlink()
    with path.open("wb") as file:
        file.truncate(size)
        for position, data in written.items():
            file.seek(position)
            file.write(data)
    queue = survey(LOCAL, str(closed)).queues["t1", 0].files
    (file_found,) = queue.files
    listed = replace(queue, root=str(root), files=(replace(file_found, path=str(path), size=size),))
    found = small_content(listed)
    assert found == (None if expected is None else expected.rstrip(b"\0").ljust(len(expected), b"\0"))
