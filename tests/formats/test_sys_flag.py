"""The bits of sysFlag."""

import pytest

from rmqstore.formats import sys_flag
from rmqstore.formats.sys_flag import CompressionType


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        (0x001, CompressionType.ZLIB),
        (0x101, CompressionType.LZ4),
        (0x201, CompressionType.ZSTD),
        (0x301, CompressionType.ZLIB),
        (0x401, None),
        (0x501, None),
        (0x601, None),
        (0x701, None),
        (-1, None),
        (0x2F | 0x200, CompressionType.ZSTD),
    ],
)
def test_bits_8_to_10_name_the_compression(flag: int, kind: CompressionType | None) -> None:
    assert sys_flag.compression_type(flag) is kind


def test_the_bits_do_not_overlap() -> None:
    parts = [
        sys_flag.COMPRESSED, sys_flag.MULTI_TAGS, sys_flag.TRANSACTION_MASK, sys_flag.BORN_HOST_V6,
        sys_flag.STORE_HOST_V6, sys_flag.NEED_UNWRAP, sys_flag.INNER_BATCH, sys_flag.COMPRESSION_MASK,
    ]  # fmt: skip
    assert sum(parts) == 0x7FF


@pytest.mark.parametrize(("flag", "is_one"), [(0xC0, True), (0x40, False), (0x80, False), (0x1C1, True)])
def test_an_inner_batch_has_both_bits(flag: int, is_one: bool) -> None:
    assert sys_flag.is_inner_batch(flag) is is_one
