"""What a row says of its body's compression, and what is said of a body that is not what its record says."""

import zlib
from pathlib import Path

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import Corrupt, Message, StoreConfig
from rmqstore.formats import sys_flag
from rmqstore.formats.inner_batch import Piece, encode_pieces
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.verify import verify
from tests.snapshot.small_store import SmallStore

CONFIG = StoreConfig(flush="SYNC", log_file_size=64 * 1024, queue_file_size=400)
TEXT = b"many times the same; " * 40
ZLIB, OLD_ZLIB = sys_flag.COMPRESSED | sys_flag.COMPRESSION_ZLIB, sys_flag.COMPRESSED
ZSTD, LZ4 = (sys_flag.COMPRESSED | kind for kind in (sys_flag.COMPRESSION_ZSTD, sys_flag.COMPRESSION_LZ4))
PACKED = {
    ZLIB: zlib.compress(TEXT),
    OLD_ZLIB: zlib.compress(TEXT),
    ZSTD: pa.Codec("zstd").compress(TEXT, asbytes=True),
    LZ4: pa.Codec("lz4").compress(TEXT, asbytes=True),
}
MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])


def written(root: Path, bodies: dict[int, bytes]) -> Path:
    """A store with a message for each sysFlag, and a plain one behind them."""
    with rmqstore.open_store(str(root), CONFIG, workers=False) as store:
        for flag, body in [*bodies.items(), (0, b"plain")]:
            assert store.put(Message("T", body, sys_flag=flag)).is_stored
    return root


def scanned(root: Path, **how: object) -> list[tuple[int, bytes | None]]:
    found = rmqstore.open_snapshot(root).scan(["T"], columns=["sysFlag", "body"], **how).read_all()
    return [(row["sysFlag"], row["body"]) for row in found.to_pylist()]


@MODES
def test_rows_with_unpacked_bodies_do_not_say_that_they_are_compressed(tmp_path: Path, mode: str) -> None:
    root = written(tmp_path, PACKED)
    assert scanned(root, scan_mode=mode) == [*[(0, TEXT)] * len(PACKED), (0, b"plain")]


@MODES
def test_rows_with_stored_bodies_say_how_they_are_compressed(tmp_path: Path, mode: str) -> None:
    root = written(tmp_path, PACKED)
    assert scanned(root, scan_mode=mode, decompress=False) == [*PACKED.items(), (0, b"plain")]


def test_the_flags_do_not_hang_on_which_columns_are_asked_for(tmp_path: Path) -> None:
    snapshot = rmqstore.open_snapshot(written(tmp_path, PACKED))
    for decompress, flags in ((True, [0] * 5), (False, [*PACKED, 0])):
        table = snapshot.scan(["T"], columns=["sysFlag"], decompress=decompress).read_all()
        assert table["sysFlag"].to_pylist() == flags


def test_bits_that_mean_nothing_stay(tmp_path: Path) -> None:
    root = written(tmp_path, {sys_flag.COMPRESSION_ZSTD: b"not compressed", 0x2: b"several tags"})
    assert scanned(root)[:2] == [(sys_flag.COMPRESSION_ZSTD, b"not compressed"), (0x2, b"several tags")]


@pytest.mark.parametrize("decompress", [True, False])
def test_rows_that_are_stored_again_read_the_same(tmp_path: Path, decompress: bool) -> None:
    root = written(tmp_path / "first", PACKED)
    columns = ["topic", "queueId", "sysFlag", "body"]
    rows = rmqstore.open_snapshot(root).scan(["T"], columns=columns, decompress=decompress).read_all()
    with rmqstore.open_store(str(tmp_path / "second"), CONFIG, workers=False) as store:
        store.put_columns(rows)
    again = tmp_path / "second"
    assert scanned(again, decompress=decompress) == scanned(root, decompress=decompress)
    assert [body for _, body in scanned(again)] == [*[TEXT] * len(PACKED), b"plain"]
    assert not [found for found in verify(rmqstore.open_snapshot(again).stores[0]) if found.severity == DAMAGE]


def batch_store(root: Path, body: bytes) -> Path:
    """A compressed record, and one that says of itself that it is an inner batch, in one queue."""
    store = SmallStore()
    flags = sys_flag.NEED_UNWRAP | sys_flag.INNER_BATCH | OLD_ZLIB
    store.add("T", body=PACKED[ZLIB], sys_flag=ZLIB)
    store.add("T", body=zlib.compress(body), sys_flag=flags, properties={"INNER_NUM": "2", "INNER_BASE": "1"})
    return store.write(root)


@MODES
def test_beside_a_batch_that_is_taken_apart_other_bodies_stay_as_they_are_stored(tmp_path: Path, mode: str) -> None:
    pieces = encode_pieces([Piece(0, b"one", b""), Piece(0, b"two", b"")])
    root = batch_store(tmp_path, pieces)
    apart = [(0, b"one"), (0, b"two")]
    assert scanned(root, scan_mode=mode, decompress=False) == [(ZLIB, PACKED[ZLIB]), *apart]
    assert scanned(root, scan_mode=mode) == [(0, TEXT), *apart]


def test_verify_names_a_batch_that_cannot_be_taken_apart(tmp_path: Path) -> None:
    root = batch_store(tmp_path, b"no messages at all")
    with pytest.raises(Corrupt, match="cannot be split"):
        scanned(root)
    reasons = [found.reason for found in verify(rmqstore.open_snapshot(root).stores[0])]
    assert [reason for reason in reasons if "cannot be split" in reason]


@MODES
def test_a_body_that_is_not_what_its_record_says_is_damage_for_a_scan_and_for_verify(tmp_path: Path, mode: str) -> None:
    """As a Java client sees it: its decoder fails on such a message, and hands nothing on."""
    root = written(tmp_path, dict.fromkeys((*PACKED, 1281), b"as it was sent"))
    with pytest.raises(Corrupt, match="body: damaged zlib body"):
        scanned(root, scan_mode=mode)
    assert scanned(root, scan_mode=mode, on_corrupt_record="skip") == [(0, b"plain")]
    found = [each for each in verify(rmqstore.open_snapshot(root).stores[0]) if each.severity == DAMAGE]
    assert len(found) == 5
    assert all("body: " in each.reason and "its CRC is right" in each.reason for each in found)
    with pytest.raises(Corrupt) as caught:
        scanned(root)
    assert (caught.value.path, caught.value.offset) == (found[0].path, found[0].position)


def test_no_bytes_are_not_decompressed(tmp_path: Path) -> None:
    root = written(tmp_path, dict.fromkeys(PACKED, b""))
    assert scanned(root) == [*[(0, b"")] * len(PACKED), (0, b"plain")]
