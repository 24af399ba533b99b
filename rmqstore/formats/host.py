"""Socket addresses as records store them: 4 or 16 address bytes in network order, then the port as i32."""

import ipaddress
import re
import struct

from rmqstore.formats.message import HOST_V4, HOST_V6

SIZE_V4 = HOST_V4.size
SIZE_V6 = HOST_V6.size
assert (SIZE_V4, SIZE_V6) == (8, 20)

_PORT = struct.Struct(">i")  # the last field of both
_TEXT = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<v4>[0-9.]+)):(?P<port>-?[0-9]{1,10})")
_PLACE = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^:\[\]\s]+)):(?P<port>[0-9]{1,5})")


def decode_host(buffer: bytes | memoryview, position: int, size: int) -> str:
    """The host of `size` 8 or 20 bytes at `position`: `203.0.113.9:10911` or `[2001:db8::1]:10911`.

    IPv6 reads as RFC 5952 wants it.  The port is shown as stored, even if no socket can have it.  Raises ValueError for
    another size or a buffer that ends before.
    """
    host = bytes(buffer[position : position + size])
    if len(host) != size or size not in (SIZE_V4, SIZE_V6):
        raise ValueError(f"a host of {len(host)} bytes at {position}")
    (port,) = _PORT.unpack_from(host, size - _PORT.size)
    if size == SIZE_V4:
        return f"{ipaddress.IPv4Address(host[: -_PORT.size])}:{port}"
    address = ipaddress.IPv6Address(host[: -_PORT.size])
    mapped = address.ipv4_mapped
    # Spelled out: Python writes such addresses with a dotted end from 3.13 on, without one before.
    return f"[::ffff:{mapped}]:{port}" if mapped else f"[{address.compressed}]:{port}"


def encode_host(text: str) -> bytes:
    """The 8 or 20 bytes of `address:port` in the notation of `decode_host`.  Raises ValueError for other text."""
    parts = _TEXT.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text!r} is not a host: write 203.0.113.9:10911 or [2001:db8::1]:10911")
    port = int(parts["port"])
    if not -(2**31) <= port < 2**31:
        raise ValueError(f"{text!r}: the port does not fit 32 bits")
    address = ipaddress.IPv6Address(parts["v6"]) if parts["v6"] else ipaddress.IPv4Address(parts["v4"])
    return address.packed + _PORT.pack(port)


def parse_wanted_host(text: str) -> str:
    """An address in the notation of `decode_host`, without a port where the text has none: an IPv6 address may come
    without brackets then.  Raises ValueError for other text."""
    bare = text.removeprefix("[").removesuffix("]") if text.endswith("]") else text
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        host = encode_host(text)
        return decode_host(host, 0, len(host))
    host = address.packed + _PORT.pack(0)
    return decode_host(host, 0, len(host)).removesuffix(":0")


def place_text(host: str, port: int) -> str:
    """host:port as `parse_place` reads it: an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_place(text: str) -> tuple[str, int] | None:
    """Host and port, 0 to 65535, of host:port; an IPv6 host stands in brackets.  None for anything else."""
    found = _PLACE.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        return None
    return found["v6"] or found["host"], int(found["port"])
