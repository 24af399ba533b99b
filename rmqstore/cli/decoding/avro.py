"""Bodies in Avro's binary encoding, without the schema in front; by fastavro (the extra "avro")."""

import base64
import json
import math
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from rmqstore.cli.decoding.decoder import Shown, Undecodable, schema_file
from rmqstore.errors import Rejected

# The magic byte and the schema's number, as schema registries put them in front.
_FRAME = b"\0"
_FRAME_SIZE = 5
_NAMED = ("record", "error", "enum", "fixed")


def avro_decode(path: str, *, is_framed: bool) -> Callable[[bytes], Shown]:
    """The decoding by the schema in a file.  Raises Rejected."""
    try:
        import fastavro  # noqa: PLC0415  an extra: the package works without it
        import fastavro._read_py as plain  # noqa: PLC0415  the same in Python
    except ImportError:
        raise Rejected("--decode avro needs fastavro: pip install 'rmqstore[avro]'") from None
    try:
        document = json.loads(schema_file(path))
        schema = fastavro.parse_schema(document)
        _require_bounded(document)
        # The compiled reader goes as deep as a body says, past the end of the stack; Python's own stops in time.
        read = plain.schemaless_reader if _is_recursive(document) else fastavro.schemaless_reader
    except (OSError, ValueError, RecursionError, fastavro.schema.SchemaParseException) as error:
        raise Rejected(f"{path}: no Avro schema ({error})") from None
    except fastavro.schema.UnknownType as error:
        raise Rejected(f"{path}: no Avro schema: it names the type {error.name}, which it does not define") from None

    def decode(body: bytes) -> Shown:
        if is_framed and (len(body) < _FRAME_SIZE or not body.startswith(_FRAME)):
            raise Undecodable("no frame of a schema registry: leave --framed out")
        source = BytesIO(body[_FRAME_SIZE:] if is_framed else body)
        try:
            value = read(source, schema, None)
        except RecursionError:
            raise Undecodable("Avro that is nested too deeply") from None
        except Exception as error:  # noqa: BLE001  what a library says to any bytes at all
            raise Undecodable(f"no Avro of this schema: {str(error) or type(error).__name__}") from None
        left = source.tell(), len(source.getbuffer())
        if left[0] != left[1]:
            raise Undecodable(f"no Avro of this schema: {left[1] - left[0]} of {left[1]} bytes are left over")
        return Shown(_json(value), True)

    return decode


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except RecursionError:
        raise Undecodable("Avro that is nested too deeply") from None
    except ValueError:  # NaN and the infinities, which JSON does not have
        return json.dumps(_without_nans(value), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> str:
    """A value that JSON has no type for: bytes in base64, numbers, times and identifiers as their text."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _without_nans(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {name: _without_nans(each) for name, each in value.items()}
    return [_without_nans(each) for each in value] if isinstance(value, list) else value


def _require_bounded(schema: Any, named: dict[str, Any] | None = None) -> None:
    """Raises ValueError for arrays whose items take no bytes: a body of ten bytes could tell of any number of them."""
    named = {} if named is None else named
    if isinstance(schema, list):
        for each in schema:
            _require_bounded(each, named)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind in _NAMED:
        named[str(schema.get("name"))] = schema
    if kind == "array" and not _takes_bytes(schema.get("items"), named, 0):
        raise ValueError("the items of an array take no bytes, so that a body could hold any number of them")
    for each in (kind, schema.get("items"), schema.get("values")):
        if not isinstance(each, str):
            _require_bounded(each, named)
    for field in schema.get("fields", ()):
        _require_bounded(field, named)


def _takes_bytes(schema: Any, named: Mapping[str, Any], depth: int) -> bool:
    """Whether a value of the schema takes a byte at least, as far as that is known."""
    if isinstance(schema, str):
        if schema in named and depth < len(named) + 1:
            return _takes_bytes(named[schema], named, depth + 1)
        return schema != "null"
    if isinstance(schema, list):
        return True  # the number of the branch
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind in ("record", "error"):
        return any(_takes_bytes(field.get("type"), named, depth) for field in schema.get("fields", ()))
    if kind == "fixed":
        return bool(schema.get("size"))
    return _takes_bytes(kind, named, depth) if isinstance(kind, str | dict | list) else True


def _is_recursive(schema: Any, inside: frozenset[str] = frozenset()) -> bool:
    """Whether a type holds itself, by its name with or without the namespace."""
    if isinstance(schema, str):
        return schema.rpartition(".")[2] in inside
    if isinstance(schema, list):
        return any(_is_recursive(each, inside) for each in schema)
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if kind in _NAMED:
        inside |= {str(schema.get("name")).rpartition(".")[2]}
    parts = [kind if kind not in _NAMED else None, schema.get("items"), schema.get("values")]
    parts += [field.get("type") for field in schema.get("fields", ()) if isinstance(field, dict)]
    return any(_is_recursive(part, inside) for part in parts if part is not None)
