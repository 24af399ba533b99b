"""Records for tests: one sound record with everything in it, and hypothesis strategies for all kinds of them."""

import zlib
from dataclasses import replace

from hypothesis import strategies as st

from rmqstore.formats import message, sys_flag
from rmqstore.formats.message import HOST_V4, HOST_V6, MAGIC_V1, MAGIC_V2, Record, encode_record

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
# What looks like the front of a record, so that a search by magic is led astray.
MAGICS = [magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2, message.MAGIC_BLANK)]
PIECES = st.sampled_from([*MAGICS, b"\0\0\0\x5b", b"\0" * 8, b"TAGS\x01a\x02", b"\xff\xff\xff\xff"])
BYTES = st.one_of(st.binary(max_size=40), st.lists(PIECES, max_size=5).map(b"".join))


def hosts(flags: int, byte: int = 10) -> tuple[bytes, bytes]:
    """bornHost and storeHost of the sizes that `flags` say: address and port."""
    port = (10911).to_bytes(4, "big")
    born, store = message.host_sizes(flags)
    return bytes([byte]) * (born - len(port)) + port, bytes([byte + 1]) * (store - len(port)) + port


def make_record(**fields: object) -> Record:
    """A sound record, `fields` put over the defaults; bodyCrc and hosts follow from body and sys_flag."""
    flags = int(str(fields.get("sys_flag", 0)))
    body = fields.get("body", b"hello")
    assert isinstance(body, bytes)
    born, store = hosts(flags)
    record = Record(
        position=0, end=0, magic=MAGIC_V1, body_crc=zlib.crc32(body) & 0x7FFFFFFF, queue_id=0, flag=0, queue_offset=0,
        physical_offset=0, sys_flag=flags, born_timestamp=1_700_000_000_000, born_host=born,
        store_timestamp=1_700_000_000_001, store_host=store, reconsume_times=0, prepared_transaction_offset=0,
        body=body, topic=b"T", properties=b"TAGS\x01A\x02",
    )  # fmt: skip
    return replace(record, **fields)  # type: ignore[arg-type]


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any record that can be encoded: both versions, every combination of host families, any values and bytes."""
    magic = draw(st.sampled_from([MAGIC_V1, MAGIC_V2]))
    families = draw(st.sampled_from([0, sys_flag.BORN_HOST_V6, sys_flag.STORE_HOST_V6, 0x30]))
    flags = draw(I32) & ~0x30 | families
    born_size = HOST_V6.size if families & sys_flag.BORN_HOST_V6 else HOST_V4.size
    store_size = HOST_V6.size if families & sys_flag.STORE_HOST_V6 else HOST_V4.size
    return make_record(
        magic=magic,
        body_crc=draw(I32),
        queue_id=draw(I32),
        flag=draw(I32),
        queue_offset=draw(I64),
        physical_offset=draw(I64),
        sys_flag=flags,
        born_timestamp=draw(I64),
        born_host=draw(st.binary(min_size=born_size, max_size=born_size)),
        store_timestamp=draw(I64),
        store_host=draw(st.binary(min_size=store_size, max_size=store_size)),
        reconsume_times=draw(I32),
        prepared_transaction_offset=draw(I64),
        body=draw(BYTES),
        topic=draw(st.binary(max_size=127) if magic == MAGIC_V1 else st.binary(max_size=300)),
        properties=draw(BYTES),
    )


def encoded(**fields: object) -> bytes:
    """The bytes of `make_record`."""
    return encode_record(make_record(**fields))
