"""Whether a log only grew between two looks, and how often a look asks the disk."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import rmqstore
from rmqstore.files.disk import StoredFile
from rmqstore.files.reading import LocalDisk
from rmqstore.snapshot.survey.footprint import only_grew
from tests.snapshot.small_store import SmallStore

QUEUE_SIZE = 20 * 10_000
FILES = tuple(StoredFile(f"/log/{start:020}", start, 100, identity=start + 7) for start in (100, 200, 300))


@pytest.mark.parametrize("is_copied_over", [False, True])
def test_a_log_grows_by_files_at_its_end_alone(is_copied_over: bool) -> None:
    def grew(before: tuple[StoredFile, ...], now: tuple[StoredFile, ...]) -> bool:
        return only_grew(before, now, is_copied_over=is_copied_over)

    assert grew((), FILES)
    assert grew(FILES, FILES)
    assert grew(FILES[:2], FILES)
    assert not grew(FILES, FILES[:2])
    assert not grew(FILES, FILES[1:])
    assert not grew(FILES[1:], FILES)
    assert not grew(FILES, (*FILES[:2], replace(FILES[2], size=50)))
    assert not grew(FILES, (*FILES[:2], replace(FILES[2], path="/other/00000000000000000300")))


def test_a_file_written_again_is_another_one_for_a_survey_alone() -> None:
    now = (replace(FILES[0], identity=1), *FILES[1:])
    assert not only_grew(FILES, now, is_copied_over=False)
    assert only_grew(FILES, now, is_copied_over=True)


@pytest.mark.parametrize("is_dense", [False, True])
@pytest.mark.parametrize("queue_count", [1, 4, 9])
def test_a_read_lists_directories_and_opens_files_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue_count: int, is_dense: bool
) -> None:
    """The root and its log are listed by the look, by the check that all stood still, and by the read: a disk far away
    is paid by the call.  Each queue is listed twice, and opened a few times, by itself; also where a copy filled the
    holes of its file.
    """
    store = SmallStore()
    for number in range(20):
        store.add("T", number % queue_count, body=b"body %d" % number)
    root = store.write(tmp_path)
    for path in root.glob("consumequeue/*/*/*"):
        entries = path.read_bytes().rstrip(b"\0")
        path.write_bytes(entries.ljust(QUEUE_SIZE if is_dense else 400, b"\0"))
        os.truncate(path, QUEUE_SIZE)
    asked = Counter[str]()

    def counted(name: str) -> None:
        ask = getattr(LocalDisk, name)

        def count(disk: LocalDisk, path: str) -> object:
            asked[name] += 1
            return ask(disk, path)

        monkeypatch.setattr(LocalDisk, name, count)

    for name in ("entries", "names", "open"):
        counted(name)
    assert rmqstore.open_snapshot(root).scan().read_all().num_rows == 20
    assert asked["entries"] + asked["names"] <= 8 + 2 * queue_count
    assert asked["open"] <= 11 + 4 * queue_count
