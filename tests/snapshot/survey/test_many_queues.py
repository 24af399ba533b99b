"""Thousands of queues of a message or two: read together, and each row as if its queue were read alone."""

from pathlib import Path

import pytest

from rmqstore.formats.record_crc import masked_crc32
from rmqstore.snapshot import ScanRequest, SplitBudget, open_snapshot, read_split
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores


@pytest.mark.parametrize("dispatched", [False, True])
def test_queues_of_one_message_share_splits_and_batches(dispatched: bool, tmp_path: Path) -> None:
    store, count = SmallStore(file_size=1024 * 1024), 600
    for number in reversed(range(count)):
        store.add("T", number * 400_000 if number % 2 else number, body=b"%d" % number, dispatched=dispatched)
    snapshot = open_snapshot(store.write(tmp_path))
    ranges = snapshot.select(["T"])
    splits = snapshot.plan(ranges, ScanRequest(scan_mode="queue"), SplitBudget())
    assert len(splits) <= (1 if not dispatched else count // 64 + 1)
    request = ScanRequest(scan_mode="queue", columns=("queueId", "queueOffset", "body"))
    batches = [batch for split in splits for batch in read_split(split, request)]
    assert len(batches) <= len(splits) + 4
    rows = [(row["queueId"], row["queueOffset"], row["body"]) for batch in batches for row in batch.to_pylist()]
    assert rows == sorted((n * 400_000 if n % 2 else n, 0, b"%d" % n) for n in range(count))


def test_a_torn_body_among_queues_that_share_a_batch_is_found(tmp_path: Path) -> None:
    """Of a log that was closed only the newest part is checked: one record of a batch may lie there, the last not."""
    store = SmallStore(file_size=32 * 1024 * 1024)
    store.add("T", 1)
    for _ in range(18):
        store.add("U", 0, body=bytes(1024 * 1024))
    store.add("T", 0, body=b"torn", body_crc=masked_crc32(b"whole"))
    store.add("U", 0)
    snapshot = open_snapshot(store.write(tmp_path))
    table = snapshot.scan(["T"], columns="*", scan_mode="queue", on_corrupt_record="null").read_all()
    reasons = dict(zip(table["queueId"].to_pylist(), table["corruptReason"].to_pylist(), strict=True))
    assert [queue for queue, reason in reasons.items() if reason] == [0]
