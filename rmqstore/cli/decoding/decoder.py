"""Decodes bodies for readers: as JSON, text, hex, base64, Avro or Protocol Buffers.

Bodies are untrusted.  Decoding always ends, takes memory proportional to the body, and gives the reason for a failure
in one line.
"""

import base64
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

import pyarrow as pa

from rmqstore.errors import in_one_line

Encoding = Literal["json", "utf8", "hex", "base64", "avro", "protobuf"]
# A larger body is not decoded: the decoded object would take many times as much memory.
DECODED_SIZE_MAX = 16 * 1024 * 1024
_REASON_SIZE_MAX = 200
# A larger file is not a schema; it may be a device without an end.
_SCHEMA_SIZE_MAX = 16 * 1024 * 1024
_encode = json.JSONEncoder(ensure_ascii=False).encode
_LINE_ENDS = re.compile("[\r\n]")


class Undecodable(Exception):
    """A body that cannot be decoded; the text is the reason."""


class Shown(NamedTuple):
    """A decoded body: JSON where it `is_json`, else text."""

    text: str
    is_json: bool


def schema_file(path: str) -> bytes:
    """The whole of a file by which bodies are decoded.  Raises OSError, ValueError for one without an end."""
    with Path(path).open("rb") as file:
        data = file.read(_SCHEMA_SIZE_MAX + 1)
    if len(data) > _SCHEMA_SIZE_MAX:
        raise ValueError(f"it is larger than {_SCHEMA_SIZE_MAX >> 20} MiB")
    return data


class BodyDecoder:
    """Decodes bodies; one that cannot be decoded is shown with the reason."""

    def __init__(self, decode: Callable[[bytes], Shown]) -> None:
        """`decode` raises Undecodable."""
        self._decode = decode

    def texts(self, bodies: pa.Array) -> pa.Array:
        """The bodies decoded, binary[n] in UTF-8; the reason in angle brackets where that failed."""
        return pa.array([self._text(body) for body in bodies.to_pylist()], pa.binary())

    def json_fields(self, bodies: Sequence[bytes | None]) -> list[str]:
        """`"body": …` for JSON; where decoding failed, the body in base64, and the reason as `decodeError`."""
        return [self._json_field(body) for body in bodies]

    def _text(self, body: bytes | None) -> bytes | None:
        if body is None:
            return None
        try:
            return self._shown(body).text.encode("utf-8", "replace")
        except Undecodable as failure:
            return f"<{failure}>".encode("utf-8", "replace")

    def _json_field(self, body: bytes | None) -> str:
        if body is None:
            return '"body": null'
        try:
            shown = self._shown(body)
        except Undecodable as failure:
            encoded = base64.b64encode(body).decode("ascii")
            return f'"bodyBase64": "{encoded}", "decodeError": {_encode(str(failure))}'
        return f'"body": {shown.text if shown.is_json else _encode(shown.text)}'

    def _shown(self, body: bytes) -> Shown:
        if len(body) > DECODED_SIZE_MAX:
            raise Undecodable(f"not decoded: {len(body)} bytes are more than {DECODED_SIZE_MAX}")
        try:
            return self._decode(body)
        except Undecodable as failure:
            raise Undecodable(in_one_line(str(failure))[:_REASON_SIZE_MAX]) from None


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


# Numbers stay text, so that none is rounded or too long to be read.
_parse = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse_constant).decode


def _json(body: bytes) -> Shown:
    """The JSON document unchanged, but on one line: strings in JSON hold no line end."""
    text = _utf8(body).text
    try:
        _parse(text)
    except ValueError as error:
        raise Undecodable(f"not JSON: {error}") from None
    except RecursionError:
        raise Undecodable("the JSON is nested too deeply") from None
    return Shown(_LINE_ENDS.sub(" ", text.strip()), True)


def _utf8(body: bytes) -> Shown:
    try:
        return Shown(body.decode("utf-8"), False)
    except UnicodeDecodeError as error:
        raise Undecodable(f"not UTF-8: byte 0x{body[error.start]:02x} at {error.start}") from None


PLAIN: dict[str, Callable[[bytes], Shown]] = {
    "json": _json,
    "utf8": _utf8,
    "hex": lambda body: Shown(body.hex(), False),
    "base64": lambda body: Shown(base64.b64encode(body).decode("ascii"), False),
}
