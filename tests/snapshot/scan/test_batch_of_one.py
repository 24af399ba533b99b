"""A batch of one message whose properties were damaged: no CRC covers them, and its unit counts one either way.

Found by `make mutation`: the message's row had the bytes of the whole batch for a body, without a word.
"""

from pathlib import Path

import pytest

import rmqstore
from tests.golden.cases import row_order, unpack
from tests.golden.rows import SCAN_MODES, scanned

CHECKED = {"verify_crc": "always", "decompress": False}
TOPIC, BATCH_AT, QUEUE_OFFSET = "%RETRY%dTA", 28594, 61  # in Java's store: a batch of one


@pytest.mark.parametrize("mode", SCAN_MODES)
@pytest.mark.parametrize(("name", "behind"), [
    (b"INNER_NUM", 0), (b"INNER_NUM", 8), (b"INNER_NUM", 9), (b"INNER_NUM", 10),  # its name, its sign, its value
    (b"INNER_BASE", 0), (b"INNER_BASE", 9), (b"INNER_BASE", 10), (b"INNER_BASE", 11),
])  # fmt: skip
def test_the_message_of_a_batch_of_one_is_not_the_bytes_of_its_batch(
    tmp_path: Path, name: bytes, behind: int, mode: str
) -> None:
    store = unpack("batchcq", tmp_path)
    log = min((store / "commitlog").iterdir())
    sound = scanned(rmqstore.open_snapshot(store), **CHECKED)
    data = log.read_bytes()
    at = data.index(name + b"\x01", BATCH_AT) + behind
    for bit in range(8):
        log.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        found = scanned(rmqstore.open_snapshot(store), scan_mode=mode, on_corrupt_record="null", **CHECKED)
        assert [row for row in found if row_order(row)[:3] == (TOPIC, 0, QUEUE_OFFSET)] != []
        assert [row["body"] for row in found if "corruptReason" not in row] == [row["body"] for row in sound]
