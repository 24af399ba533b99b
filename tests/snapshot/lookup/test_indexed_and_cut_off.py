"""Key look-ups where the index knows a record that the log has lost to a crash."""

from pathlib import Path

import rmqstore
from rmqstore import Message, StoreConfig, open_store


def test_the_others_are_found_once(tmp_path: Path) -> None:
    config = StoreConfig(log_file_size=65536, index_slot_count=16, index_item_count=64)
    with open_store(str(tmp_path / "s"), config) as store:
        places = [store.put(Message("orders", b"body", keys="k")).physical_offset for _ in range(4)]
    log = tmp_path / "s" / "commitlog" / ("0" * 20)
    content = bytearray(log.read_bytes())
    content[content.rindex(b"body")] ^= 1
    log.write_bytes(content)
    (tmp_path / "s" / "abort").touch()
    snapshot = rmqstore.open_snapshot(tmp_path / "s")
    assert snapshot.index_offsets("orders", "k") == [places[3], *places[2::-1]]
    assert [message.physical_offset for message in snapshot.query("orders", "k")] == places[:3]
