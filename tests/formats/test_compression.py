"""Bodies unpacked within a limit."""

import base64
import contextlib
import types
import zlib
from typing import Any, Self

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.formats import compression
from rmqstore.formats.compression import BodyError, decompress
from tests.golden.cases import STORE_CASES, base_name, load_expected

ZLIB_OLD, LZ4, ZSTD, ZLIB = 0x001, 0x101, 0x201, 0x301
FLAGS = (ZLIB_OLD, LZ4, ZSTD, ZLIB)
LIMIT = 16 * 1024 * 1024
BODY = b"the quick brown fox jumps over the lazy dog " * 200


def packed(flag: int, body: bytes) -> bytes:
    """`body` compressed by the flag's kind."""
    if flag in (ZLIB_OLD, ZLIB):
        return zlib.compress(body, 5)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4" if flag == LZ4 else "zstd") as stream:
        stream.write(body)
    return sink.getvalue().to_pybytes()


def gibibyte_bomb(flag: int) -> bytes:
    """One stream (zlib) or sixteen frames of 64 MiB of zeros each."""
    zeros = bytes(1 << 26)
    if flag not in (ZLIB_OLD, ZLIB):
        return packed(flag, zeros) * 16
    compressor = zlib.compressobj(5)
    head, part = compressor.compress(b"\0") + compressor.flush(zlib.Z_FULL_FLUSH), compressor.compress(zeros)
    return head + (part + compressor.flush(zlib.Z_FULL_FLUSH)) * 16  # after a full flush each part stands alone


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(range(256)) * 4096])
def test_a_body_comes_back(flag: int, body: bytes) -> None:
    assert decompress(packed(flag, body), flag) == body
    assert decompress(memoryview(packed(flag, body)), flag | 0x3E) == body


@pytest.mark.parametrize("flag", [0, 0x100, 0x300, 0x700, 0x2E])
def test_a_body_without_the_bit_stays_as_it_is(flag: int) -> None:
    assert decompress(b"as it is", flag) == b"as it is"


@pytest.mark.parametrize("flag", FLAGS)
def test_the_limit_is_the_last_size_that_passes(flag: int) -> None:
    assert decompress(packed(flag, BODY), flag, len(BODY)) == BODY
    with pytest.raises(BodyError, match=f"more than {len(BODY) - 1}"):
        decompress(packed(flag, BODY), flag, len(BODY) - 1)


class Counting:
    """Hands on what a codec's stream makes, and adds the bytes to `made`."""

    def __init__(self, stream: Any, made: list[int]) -> None:
        self._stream, self._made = stream, made

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._stream, name)
        if not callable(found):
            return found

        def counted(*given: Any) -> Any:
            result = found(*given)
            self._made.append(len(result))
            return result

        return counted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each call of a codec makes."""
    sizes: list[int] = []
    inflating = types.SimpleNamespace(error=zlib.error, decompressobj=lambda: Counting(zlib.decompressobj(), sizes))
    monkeypatch.setattr(compression, "zlib", inflating)
    reading = types.SimpleNamespace(
        BufferReader=pa.BufferReader,
        ArrowException=pa.ArrowException,
        CompressedInputStream=lambda *given: Counting(pa.CompressedInputStream(*given), sizes),
    )
    monkeypatch.setattr(compression, "pa", reading)
    return sizes


@pytest.mark.parametrize("flag", FLAGS)
def test_a_bomb_of_a_gibibyte_stops_at_the_limit(flag: int, made: list[int]) -> None:
    """No codec makes more, and Arrow has no more room for it at any moment."""
    bomb = gibibyte_bomb(flag)
    pool = pa.default_memory_pool()
    peak, room = pool.max_memory(), pool.bytes_allocated() + 2 * LIMIT
    with pytest.raises(BodyError, match="unpacks to more than"):
        decompress(bomb, flag, LIMIT)
    assert sum(made) == LIMIT + 1
    assert pool.max_memory() <= max(peak, room)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_cut_body_is_an_error_at_every_byte(flag: int) -> None:
    whole = packed(flag, BODY[:500])
    for size in range(1, len(whole)):
        with pytest.raises(BodyError):
            decompress(whole[:size], flag)


@pytest.mark.parametrize("flag", [0x401, 0x501, 0x601, 0x701])
def test_an_unknown_compression_is_an_error(flag: int) -> None:
    with pytest.raises(BodyError, match="unknown compression"):
        decompress(packed(ZLIB, BODY), flag)


@pytest.mark.parametrize(
    ("flag", "wrong"), [(ZLIB, LZ4), (ZLIB, ZSTD), (LZ4, ZLIB_OLD), (LZ4, ZSTD), (ZSTD, LZ4), (ZSTD, ZLIB)]
)
def test_a_wrong_flag_is_an_error(flag: int, wrong: int) -> None:
    with pytest.raises(BodyError, match="damaged"):
        decompress(packed(flag, BODY), wrong)


def test_bytes_behind_the_stream_count_as_in_java() -> None:
    assert decompress(packed(ZLIB, BODY) + b"rest", ZLIB) == BODY
    for flag in (LZ4, ZSTD):
        assert decompress(packed(flag, BODY) + packed(flag, b"more"), flag) == BODY + b"more"
        with pytest.raises(BodyError):
            decompress(packed(flag, BODY) + b"rest", flag)


@settings(deadline=None)
@given(st.sampled_from(FLAGS), st.binary(max_size=60), st.integers(0, 400), st.integers(0, 255))
def test_any_bytes_are_a_body_or_a_body_error(flag: int, data: bytes, position: int, value: int) -> None:
    damaged = bytearray(packed(flag, BODY[:300]))
    damaged[position % len(damaged)] ^= value
    for body in (data, bytes(damaged)):
        with contextlib.suppress(BodyError):
            assert len(decompress(body, flag, 4096)) <= 4096


@pytest.mark.parametrize("case", [case for case in STORE_CASES if base_name(case) == "sysflags"])
def test_bodies_of_real_stores_unpack_as_in_java(case: str) -> None:
    records = [record for record in load_expected(case)["records"] if record["sysFlag"] & 1]
    assert {record["sysFlag"] & 0x701 for record in records} == set(FLAGS)
    for record in records:
        assert decompress(base64.b64decode(record["body"]), record["sysFlag"]) == base64.b64decode(
            record["bodyUncompressed"]
        )
