"""One request or answer as bytes (Java: RemotingCommand); integers are big-endian.

i32 size of what follows | u8 how the header is coded, u24 its size | header | body
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.errors import Corrupt
from rmqstore.formats import broker_json

_SIZES = struct.Struct(">iI")
_JSON = 0
_HEADER_BITS = 24
_HEADER_SIZE_MAX = (1 << _HEADER_BITS) - 1
# Netty's limit in RocketMQ (com.rocketmq.remoting.frameMaxLength) is 16 MiB; a cluster may have set it higher.
FRAME_SIZE_MAX = 64 * 1024 * 1024
SUCCESS = 0

_IS_ANSWER = 1  # bit of `flag`
_LANGUAGE = "PYTHON"
_VERSION = 461  # MQVersion.V5_1_3: what a client of our time says of itself


class BadFrame(Exception):
    """The bytes are no command of RocketMQ's."""


@dataclass(frozen=True, slots=True)
class Command:
    """A request, or the answer that has its `opaque`.  `code` of an answer is SUCCESS or says what is wrong, and
    `remark` says it in words."""

    code: int
    opaque: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str = ""
    is_answer: bool = False

    def encode(self) -> bytes:
        """The whole frame, its header in JSON."""
        header: dict[str, Any] = {
            "code": self.code,
            "language": _LANGUAGE,
            "version": _VERSION,
            "opaque": self.opaque,
            "flag": _IS_ANSWER if self.is_answer else 0,
            "serializeTypeCurrentRPC": "JSON",
            "extFields": dict(self.fields),
        }
        if self.remark:
            header["remark"] = self.remark
        coded = json.dumps(header).encode()
        return _SIZES.pack(4 + len(coded) + len(self.body), (_JSON << _HEADER_BITS) | len(coded)) + coded + self.body


class CommandReader:
    """Commands out of a stream of bytes, however it is cut.  Holds at most one that is not whole."""

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._held = bytearray()
        self._frame_size_max = frame_size_max

    def read(self, data: bytes) -> list[Command]:
        """The commands that are whole once `data` has come.  Raises BadFrame for what cannot be one."""
        held = self._held
        held += data
        found, position = [], 0
        while len(held) - position >= _SIZES.size:
            size, coded = _SIZES.unpack_from(held, position)
            header_size = coded & _HEADER_SIZE_MAX
            if not 4 + header_size <= size <= self._frame_size_max:
                raise BadFrame(f"a frame of {size} bytes with a header of {header_size}")
            if coded >> _HEADER_BITS != _JSON:
                raise BadFrame(f"a header that is coded in way {coded >> _HEADER_BITS}, and not in JSON")
            end = position + 4 + size
            if len(held) < end:
                break
            begin = position + _SIZES.size
            found.append(_command(bytes(held[begin : begin + header_size]), bytes(held[begin + header_size : end])))
            position = end
        del held[:position]
        return found


def _command(coded: bytes, body: bytes) -> Command:
    try:
        header = broker_json.parse(coded)
    except Corrupt as error:
        raise BadFrame(f"a header that is {error.reason}") from None
    if not isinstance(header, dict):
        raise BadFrame("a header that is no object")
    code, opaque, flag = (_number(header, name) for name in ("code", "opaque", "flag"))
    fields = header.get("extFields") or {}
    if not isinstance(fields, dict):
        raise BadFrame("extFields that are no object")
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    return Command(code, opaque, texts, body, str(header.get("remark") or ""), bool(flag & _IS_ANSWER))


def _number(header: Mapping[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadFrame(f"a header whose {name} is no number")
    return value
