"""A record whose topic is damaged is in its queue, and in no other."""

import tarfile
from pathlib import Path

import rmqstore
from tests.golden.cases import FOLDERS

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
