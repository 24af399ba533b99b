"""Bodies that expand: a batch is as large as what comes out of them, and what nobody asked for is not unpacked."""

import random
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqstore import open_snapshot
from rmqstore.formats.compression import BodyError, decompress
from rmqstore.formats.sys_flag import COMPRESSED
from rmqstore.snapshot.arrow import bodies
from rmqstore.snapshot.verify import verify
from tests.golden.rows import scanned
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

StoreOf = Callable[[str], Path]

BATCH_BYTES = 64 * 1024
CODES = {"zlib": 3 << 8, "zstd": 2 << 8, "lz4": 1 << 8}
MODES = ("queue", "commitlog")


def packed(body: bytes, codec: str) -> bytes:
    return zlib.compress(body) if codec == "zlib" else pa.compress(body, codec, asbytes=True)


def mixed_store(sizes: list[int], codec: str, path: Path, damaged: int = -1) -> list[bytes]:
    """A store of bodies of these sizes, each third one stored as it is; the bodies."""
    store, bodies = SmallStore(file_size=4 * 1024 * 1024), []
    for number, size in enumerate(sizes):
        body = bytes([number % 251]) * size
        is_packed = number % 3 != 0
        flags = {"sys_flag": COMPRESSED | CODES[codec]} if is_packed else {}
        stored = packed(body, codec) if is_packed else body
        store.add(body=b"no frame" if number == damaged else stored, **flags)
        bodies.append(body)
    store.write(path)
    return bodies


def body_size(batch: pa.RecordBatch) -> int:
    return sum(len(body) for body in batch.column("body").to_pylist() if body is not None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("codec", CODES)
def test_decompressed_bytes_count_toward_a_batch(codec: str, mode: str, tmp_path: Path) -> None:
    bodies = mixed_store([20_000] * 60, codec, tmp_path)
    batches = list(open_snapshot(tmp_path).scan(["T"], batch_bytes=BATCH_BYTES, scan_mode=mode))
    assert [body for batch in batches for body in batch.column("body").to_pylist()] == bodies
    assert max(map(body_size, batches)) <= BATCH_BYTES
    assert len(batches) <= 2 * len(bodies) * 20_000 // BATCH_BYTES


@pytest.mark.parametrize("mode", MODES)
def test_batches_of_any_sizes_hold_every_row_once(mode: str, tmp_path: Path) -> None:
    dice = random.Random(7)
    bodies = mixed_store([dice.choice((0, 1, 500, 30_000, BATCH_BYTES, 200_000)) for _ in range(200)], "zstd", tmp_path)
    batches = list(open_snapshot(tmp_path).scan(["T"], batch_bytes=BATCH_BYTES, scan_mode=mode))
    assert [body for batch in batches for body in batch.column("body").to_pylist()] == bodies
    assert all(body_size(batch) <= BATCH_BYTES or batch.num_rows == 1 for batch in batches)


@pytest.mark.parametrize("mode", MODES)
def test_a_damaged_body_among_them_is_flagged_in_its_place(mode: str, tmp_path: Path) -> None:
    bodies = mixed_store([20_000] * 30, "zlib", tmp_path, damaged=13)
    scan = open_snapshot(tmp_path).scan(
        ["T"], columns="*", batch_bytes=BATCH_BYTES, scan_mode=mode, on_corrupt_record="null"
    )
    table = scan.read_all()
    assert table["body"].to_pylist() == [*bodies[:13], None, *bodies[14:]]
    assert [row for row, reason in enumerate(table["corruptReason"].to_pylist()) if reason] == [13]


def test_a_body_that_nobody_asked_for_is_not_unpacked(tmp_path: Path) -> None:
    store = SmallStore(file_size=1024 * 1024)
    flags = COMPRESSED | CODES["zlib"]
    for tag in ("A", "B"):
        for body in (b"x" * 50_000, b"y" * 50_000):
            stored = zlib.compress(body) if tag == "B" else b"no zlib"
            store.add(body=stored, sys_flag=flags, properties={"TAGS": tag, "KEYS": tag})
    store.write(tmp_path)
    for wanted in ({"tags": ("B",)}, {"keys": ("B",)}):
        batches = list(open_snapshot(tmp_path).scan(["T"], batch_bytes=BATCH_BYTES, scan_mode="commitlog", **wanted))
        assert [body_size(batch) for batch in batches] == [50_000, 50_000]


@pytest.mark.parametrize("case", ["sysflags", "batchcq"])
def test_the_smallest_batches_bring_the_same_rows(case: str, store_of: StoreOf) -> None:
    snapshot = open_snapshot(store_of(case))
    assert list(scanned(snapshot, batch_bytes=1)) == list(scanned(snapshot))


@pytest.mark.parametrize("codec", CODES)
def test_a_size_that_a_frame_only_claims_is_not_believed(codec: str, tmp_path: Path) -> None:
    claims = {
        "zlib": zlib.compress(bytes(1_000_000)),
        "zstd": b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\0\0",
        "lz4": b"\x04\x22\x4d\x18\x6c\x40" + (1 << 40).to_bytes(8, "little") + b"\0\0\0\0\0",
    }
    store = SmallStore(file_size=1024 * 1024)
    store.add(body=claims[codec], sys_flag=COMPRESSED | CODES[codec])
    store.write(tmp_path)
    (row,) = (
        open_snapshot(tmp_path).scan(["T"], columns="*", body_bytes_max=1000, on_corrupt_record="null").read_all()
    ).to_pylist()
    assert "malloc" not in (row["corruptReason"] or "")
    assert row["body"] in (None, b"")
    assert bool(row["corruptReason"]) == (row["body"] is None)


@pytest.mark.parametrize("codec", CODES)
def test_bodies_beyond_the_limit_hold_no_memory(codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is kept keeps its frames, and these what they had unpacked."""
    limit = 1024 * 1024
    store = SmallStore(file_size=4 * 1024 * 1024)
    for _ in range(60):
        store.add(body=packed(bytes(limit + 1), codec), sys_flag=COMPRESSED | CODES[codec])
    store.write(tmp_path)
    snapshot = open_snapshot(tmp_path)
    options: dict[str, Any] = {"on_corrupt_record": "null", "body_bytes_max": limit, "columns": "*"}
    errors: list[weakref.ref[BodyError]] = []
    alive: list[int] = []

    def watched(*given: Any) -> bytes:
        alive.append(sum(error() is not None for error in errors))
        try:
            return decompress(*given)
        except BodyError as error:
            errors.append(weakref.ref(error))
            raise

    monkeypatch.setattr(bodies, "decompress", watched)
    reasons = snapshot.scan(["T"], **options).read_all()["corruptReason"].to_pylist()
    assert all("unpacks to more than" in reason for reason in reasons)
    assert len(reasons) == 60
    assert (len(errors), max(alive)) == (60, 0)


@pytest.mark.parametrize("codec", CODES)
def test_a_body_is_read_that_a_client_packed_a_thousandfold(codec: str, tmp_path: Path) -> None:
    """RocketMQ's clients read it; a limit that somebody sets lower, or a bomb, is told with the option to raise."""
    body = bytes(20 * 1024 * 1024)
    store = SmallStore(file_size=1024 * 1024)
    store.add(body=packed(body, codec), sys_flag=COMPRESSED | CODES[codec])
    store.write(tmp_path)
    snapshot = open_snapshot(tmp_path)
    assert snapshot.scan(["T"]).read_all()["body"].to_pylist() == [body]
    (extent,) = snapshot.stores
    said = [[each.reason for each in verify(extent, body_bytes_max=limit)] for limit in (len(body), len(body) - 1)]
    (more,) = set(said[1]) - set(said[0])
    assert not set(said[0]) - set(said[1])
    assert f"unpacks to more than {len(body) - 1} bytes, the limit" in more
    (message,) = snapshot.query("T", snapshot.scan(["T"], columns=["offsetMsgId"]).read_all()[0][0].as_py())
    assert message.body == body
