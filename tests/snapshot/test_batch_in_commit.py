"""A batch that a sink is adding is not seen before it is in as a whole."""

from collections.abc import Collection
from pathlib import Path

import pytest

import rmqstore
from rmqstore.files.disk import ReadableDisk
from rmqstore.formats.checkpoint import Checkpoint, encode_checkpoint
from rmqstore.formats.sink_files import INTENT_FILE, SINK_DIRECTORY, BatchIntent
from rmqstore.snapshot.survey import survey as looking
from tests.snapshot.small_store import FIRST_MS, small_store


def begin(root: Path, start: int) -> Path:
    """What the sink writes before it appends."""
    path = root / SINK_DIRECTORY / "query-1" / INTENT_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(BatchIntent("query-1", 7, start, False, True, ()).to_json())
    return path


@pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
def test_its_rows_come_when_it_is_whole(tmp_path: Path, mode: str) -> None:
    store = small_store(20)
    start = store.end
    for number in range(5):
        store.add("T", 0, body=b"new %d" % number, dispatched=False)
    root = store.write(tmp_path)
    intent = begin(root, start)
    assert rmqstore.open_snapshot(root).scan(scan_mode=mode).read_all().num_rows == 20
    intent.unlink()
    assert rmqstore.open_snapshot(root).scan(scan_mode=mode).read_all().num_rows == 25


def test_one_that_begins_while_the_store_is_looked_at_is_not_seen_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = small_store(20)
    start = store.end
    store.add("T", 0, body=b"new", dispatched=False)
    root = store.write(tmp_path)
    find, begun = looking.find_queues, []

    def find_queues(disk: ReadableDisk, path: str, children: Collection[str]) -> object:
        if not begun:
            begun.append(begin(root, start))
        return find(disk, path, children)

    monkeypatch.setattr(looking, "find_queues", find_queues)
    assert rmqstore.open_snapshot(root).scan().read_all().num_rows == 20
    assert begun


def test_what_is_no_intent_is_no_matter(tmp_path: Path) -> None:
    root = small_store(20).write(tmp_path)
    begin(root, 0).write_bytes(b"{}")
    assert rmqstore.open_snapshot(root).scan().read_all().num_rows == 20


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_batch_that_was_cut_off_by_a_kill_is_not_called_lost(
    tmp_path: Path, is_begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint knows of its messages, and nobody is to see them yet; without a batch such messages are lost."""
    store = small_store(20)
    start = store.end
    if is_begun:
        store.add("T", 0, body=b"new", dispatched=False)
    root = store.write(tmp_path)
    if is_begun:
        begin(root, start)
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(FIRST_MS + 1000 * 20)))
    assert rmqstore.open_snapshot(root).scan().read_all().num_rows == 20
    assert ("some are lost" in caplog.text) != is_begun
