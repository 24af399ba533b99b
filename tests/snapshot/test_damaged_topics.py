"""A record whose topic is damaged is in its queue, and in no other."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

import rmqstore
from rmqstore.directory.queue_files import QueueFiles
from tests.golden.cases import FOLDERS
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

LOG, PLACE = "commitlog/00000000000000000000", 28007


def test_a_record_with_a_damaged_topic_is_no_message_of_a_new_topic(tmp_path: Path) -> None:
    """Found by `make mutation`: one bit of a name.  The queues leave records out here, so that the log is looked at,
    and there the record came a second time, as one that nobody had dispatched yet."""
    with tarfile.open(FOLDERS["sysflags"] / "store.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / "store"
    topics = set(rmqstore.open_snapshot(store).queues().column("topic").to_pylist())
    data = bytearray((store / LOG).read_bytes())
    assert data[PLACE - 1 : PLACE + 15] == b"MJnszqFknSjn-v_2"
    data[PLACE] ^= 1
    (store / LOG).chmod(0o644)
    (store / LOG).write_bytes(data)
    snapshot = rmqstore.open_snapshot(store)
    assert set(snapshot.queues().column("topic").to_pylist()) == topics
    rows = snapshot.scan(columns=["topic", "queueOffset", "corruptReason"], on_corrupt_record="null", scan_mode="queue")
    found = [row for row in rows.read_all().to_pylist() if row["corruptReason"]]
    assert [(row["topic"], row["queueOffset"]) for row in found] == [("MJnszqFknSjn-v_2", 13)]


def store_without_a(topics: str) -> SmallStore:
    """A message for each letter, in that topic.  A's queue has no files, so that all of the log is looked at."""
    store = SmallStore(file_size=64 * 1024)
    for topic in topics:
        store.add(topic, dispatched=topic != "A")
    return store


def read(root: Path, topic: str, mode: str) -> list[tuple[int, str | None]]:
    """Queue offset and what is wrong, for every row of a topic."""
    scan = rmqstore.open_snapshot(root).scan(
        topics=[topic], columns=["queueOffset", "corruptReason"], on_corrupt_record="null", scan_mode=mode
    )
    return [(row["queueOffset"], row["corruptReason"]) for row in scan.read_all().to_pylist()]


@pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
def test_a_damaged_topic_adds_nothing_to_a_queue_that_it_would_continue(tmp_path: Path, mode: str) -> None:
    """C's record 3 says that it is B's, where 2 is the last.  A's one message, which no entry points at, is found."""
    store = store_without_a("ABBBCCCCD")
    place = store.offsets[7]
    store.change(store.data[0].index(b"\x01C", place), b"\x01B")
    root = store.write(tmp_path)
    assert read(root, "B", mode) == [(0, None), (1, None), (2, None)]
    assert read(root, "A", mode) == [(0, None)]
    *sound, (_, reason) = read(root, "C", mode)
    assert sound == [(0, None), (1, None), (2, None)]
    assert reason


def test_a_lost_queue_has_the_others_read_a_fixed_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many looks the log takes: they were read anew for each, and a store of 3 million messages took 32 s."""
    root = store_without_a("ABC" * 13_000).write(tmp_path)
    entries: list[int] = []
    whole = QueueFiles.read

    def read(queue: QueueFiles, first: int, last: int) -> np.ndarray:
        entries.append(last - first)
        return whole(queue, first, last)

    monkeypatch.setattr(QueueFiles, "read", read)
    assert rmqstore.open_snapshot(root).queues().num_rows == 3
    assert sum(entries) < 3 * 26_000
