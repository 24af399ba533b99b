"""Records and bodies that cannot be trusted: an error, left out, or flagged rows in the order of their queue."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import Corrupt, Snapshot
from rmqstore.formats import sys_flag
from rmqstore.formats.record_crc import masked_crc32
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
ZLIB, LZ4, ZSTD = (sys_flag.COMPRESSED | kind for kind in (0, sys_flag.COMPRESSION_LZ4, sys_flag.COMPRESSION_ZSTD))
VICTIM = 7
LIMIT = 1024 * 1024  # of a body that is unpacked
COUNT = 20
BODY_AT = 88  # of a record with IPv4 hosts
# What is done to one record, and the words of its flag.
DAMAGES = {
    "magic": (4, b"\0\0\0\0", "no whole record stands here"),
    "size": (0, b"\0\0\xff\xff", "no whole record stands here"),
    "body size": (84, b"\0\0\xff\xff", "no whole record stands here"),
    "queue offset": (20, b"\0\0\0\0\0\0\0\x63", "the record's queueId or queueOffset contradict the consume queue"),
    "physical offset": (28, b"\0\0\0\0\0\0\0\x63", "the record's physicalOffset field names another place"),
    "topic": (BODY_AT + 8, b"U", "the record's topic contradicts the consume queue"),
    "body": (BODY_AT, b"B", "the CRC of the body is wrong"),
}


def stored(store: SmallStore, tmp_path: Path) -> Snapshot:
    return rmqstore.open_snapshot(store.write(tmp_path))


def damaged(place: int, data: bytes, tmp_path: Path) -> tuple[SmallStore, Path]:
    """Queue T/0 with one damaged record in the middle; all bodies are seven bytes long."""
    store = SmallStore(64 * 1024)
    for number in range(COUNT):
        store.add(body=b"body %02d" % number)
    store.change(store.offsets[VICTIM] + place, data)
    return store, store.write(tmp_path)


def rows(snapshot: Snapshot, **how: Any) -> list[dict[str, Any]]:
    table: pa.Table = snapshot.scan(topics=["T"], columns="*", **{"body_bytes_max": LIMIT} | how).read_all()
    found: list[dict[str, Any]] = table.to_pylist()
    return found


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
@pytest.mark.parametrize("damage", DAMAGES)
def test_flagged_rows_keep_the_order_of_queue_offsets(tmp_path: Path, damage: str, batch_rows: int) -> None:
    place, data, words = DAMAGES[damage]
    store, root = damaged(place, data, tmp_path)
    found = rows(rmqstore.open_snapshot(root), on_corrupt_record="null", verify_crc="always", batch_rows=batch_rows,
                 scan_mode="queue")  # fmt: skip
    assert [row["queueOffset"] for row in found] == list(range(COUNT))
    assert [row["physicalOffset"] for row in found] == store.offsets
    assert {row["queueOffset"]: row["corruptReason"] for row in found if row["corruptReason"]} == {VICTIM: words}
    flagged = found[VICTIM]
    assert (flagged["topic"], flagged["queueId"], flagged["brokerName"]) == ("T", 0, "default")
    assert flagged["storeSize"] == store.offsets[VICTIM + 1] - store.offsets[VICTIM]
    answered = {"topic", "queueId", "brokerName", "queueOffset", "physicalOffset", "storeSize", "tagsCode"}
    assert {name for name, value in flagged.items() if value is not None} == answered | {"corruptReason"}
    assert all(row["body"] == b"body %02d" % row["queueOffset"] for row in found if row is not flagged)


@MODES
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_way_through_flags_the_same_row(tmp_path: Path, damage: str, mode: str) -> None:
    place, data, _ = DAMAGES[damage]
    _, root = damaged(place, data, tmp_path)
    found = rows(rmqstore.open_snapshot(root), on_corrupt_record="null", verify_crc="always", scan_mode=mode)
    assert sorted(row["queueOffset"] for row in found) == list(range(COUNT))
    assert [row["queueOffset"] for row in found if row["corruptReason"]] == [VICTIM]


@MODES
@pytest.mark.parametrize("damage", DAMAGES)
def test_skip_leaves_the_row_out(tmp_path: Path, damage: str, mode: str) -> None:
    place, data, _ = DAMAGES[damage]
    _, root = damaged(place, data, tmp_path)
    found = rows(rmqstore.open_snapshot(root), on_corrupt_record="skip", verify_crc="always", scan_mode=mode)
    assert [row["queueOffset"] for row in found] == [number for number in range(COUNT) if number != VICTIM]
    assert {row["corruptReason"] for row in found} == {None}


@MODES
@pytest.mark.parametrize("damage", DAMAGES)
def test_fail_names_file_and_place(tmp_path: Path, damage: str, mode: str) -> None:
    place, data, _ = DAMAGES[damage]
    store, root = damaged(place, data, tmp_path)
    with pytest.raises(Corrupt) as caught:
        rows(rmqstore.open_snapshot(root), verify_crc="always", scan_mode=mode)
    error = caught.value
    assert (error.path, error.offset) == (f"{root}/commitlog/{0:020d}", store.offsets[VICTIM])
    assert str(error).endswith("on_corrupt_record='skip' leaves such records out, `rmqstore verify` lists them all")


@pytest.mark.parametrize(("verify_crc", "flags"), [("always", 1), ("auto", 1), ("never", 0)])
def test_whether_crcs_are_looked_at(tmp_path: Path, verify_crc: str, flags: int) -> None:
    _, root = damaged(*DAMAGES["body"][:2], tmp_path)
    found = rows(rmqstore.open_snapshot(root), on_corrupt_record="null", verify_crc=verify_crc)
    assert sum(row["corruptReason"] is not None for row in found) == flags


def packed(kind: str, data: bytes) -> bytes:
    return zlib.compress(data) if kind == "zlib" else bytes(pa.Codec(kind).compress(data, asbytes=True))


# A body whose sysFlag does not tell the truth, or that unpacks to more than the limit: flag, body, words.
BAD_BODIES: dict[str, Callable[[], tuple[int, bytes, str]]] = {
    "zlib bomb": lambda: (ZLIB, zlib.compress(bytes(LIMIT + 1)), f"unpacks to more than {LIMIT}"),
    "zstd bomb": lambda: (ZSTD, packed("zstd", bytes(LIMIT + 1)), f"unpacks to more than {LIMIT}"),
    "lz4 bomb": lambda: (LZ4, packed("lz4", bytes(LIMIT + 1)), f"unpacks to more than {LIMIT}"),
    "plain bytes called zlib": lambda: (ZLIB, b"plain", "damaged zlib body"),
    "zlib called zstd": lambda: (ZSTD, zlib.compress(b"x"), "damaged zstd body"),
    "zstd called lz4": lambda: (LZ4, packed("zstd", b"x" * 50), "damaged lz4 body"),
    "cut zlib": lambda: (ZLIB, zlib.compress(bytes(500))[:-6], "zlib body is cut"),
    "unknown compression": lambda: (sys_flag.COMPRESSED | 0x500, b"x", "unknown compression in sysFlag 0x501"),
}


@pytest.fixture
def bad_body(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Snapshot, bytes, str, int]:
    """Three messages, the one in the middle with a bad body; all CRCs are right."""
    flags, body, words = BAD_BODIES[request.param]()
    store = SmallStore(512 * 1024)
    store.add(body=packed("zstd", b"first"), sys_flag=ZSTD)
    offset = store.add(body=body, sys_flag=flags, body_crc=masked_crc32(body))
    store.add(body=b"last")
    return stored(store, tmp_path), body, words, offset


each_bad_body = pytest.mark.parametrize("bad_body", BAD_BODIES, indirect=True)


@each_bad_body
@MODES
def test_a_body_that_cannot_be_unpacked(bad_body: tuple[Snapshot, bytes, str, int], mode: str) -> None:
    snapshot, stored_body, words, offset = bad_body
    with pytest.raises(Corrupt) as caught:
        rows(snapshot, scan_mode=mode)
    assert caught.value.offset == offset
    assert words in str(caught.value)
    assert [row["body"] for row in rows(snapshot, scan_mode=mode, on_corrupt_record="skip")] == [b"first", b"last"]
    flagged = rows(snapshot, scan_mode=mode, on_corrupt_record="null")
    assert [row["body"] for row in flagged] == [b"first", None, b"last"]
    assert [row["queueOffset"] for row in flagged] == [0, 1, 2]
    assert words in flagged[1]["corruptReason"]
    assert (flagged[0]["corruptReason"], flagged[2]["corruptReason"]) == (None, None)
    assert flagged[1]["tags"] == "A"
    as_stored = rows(snapshot, scan_mode=mode, decompress=False)
    assert [row["body"] for row in as_stored][1:] == [stored_body, b"last"]
    assert {row["corruptReason"] for row in as_stored} == {None}


@each_bad_body
@pytest.mark.parametrize("columns", [["tags"], ["queueOffset"], ["topic", "keys", "bornTimestamp"]])
def test_a_bad_body_that_nobody_asks_for_is_no_harm(
    bad_body: tuple[Snapshot, bytes, str, int], columns: list[str]
) -> None:
    assert bad_body[0].scan(topics=["T"], columns=columns).read_all().num_rows == 3


@pytest.mark.parametrize(("size", "limit", "flags"), [(100, 100, 0), (101, 100, 1), (1, 100, 0)])
@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_the_limit_is_the_requests(tmp_path: Path, kind: str, size: int, limit: int, flags: int) -> None:
    store = SmallStore()
    store.add(body=packed(kind, b"x" * size), sys_flag={"zlib": ZLIB, "lz4": LZ4, "zstd": ZSTD}[kind])
    (row,) = rows(stored(store, tmp_path), on_corrupt_record="null", body_bytes_max=limit)
    assert (row["corruptReason"] is not None) == bool(flags)
    assert row["body"] == (None if flags else b"x" * size)
