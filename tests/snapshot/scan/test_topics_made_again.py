"""A topic that is deleted and made again while a snapshot of the old one is open: its rows, or that they are lost."""

from pathlib import Path
from typing import Any

import pytest

from rmqstore import DataLost, Message, StoreConfig, open_snapshot, open_store

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=65536, queue_file_size=2000, message_size_max=3000, preallocate=False)


def outcome(snapshot: Any, mode: str, **options: Any) -> set[bytes] | None:
    try:
        return set(snapshot.scan(["t"], scan_mode=mode, **options).read_all()["body"].to_pylist())
    except DataLost:
        return None


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
@pytest.mark.parametrize("new", [10, 100, 120])
@pytest.mark.parametrize("queues", [1, 4])
def test_no_row_is_passed_over_in_silence(tmp_path: Path, queues: int, new: int, mode: str) -> None:
    old = {b"old %d" % number for number in range(100)}
    with open_store(tmp_path, CONFIG, workers=False) as store:
        for number in range(100):
            store.put(Message("t", b"old %d" % number, queue_id=number % queues))
        store.flush()
        snapshot = open_snapshot(tmp_path)
        assert store.delete_topic("t")
        for number in range(new):
            store.put(Message("t", b"new %d" % number, queue_id=number % queues))
        store.flush()
        assert outcome(snapshot, mode) in (old, None)
        assert outcome(snapshot, mode, tags="*") in (old, None)
        assert (outcome(snapshot, mode, fail_on_data_loss=False) or set()) <= old
    assert outcome(snapshot, mode) in (old, None)
