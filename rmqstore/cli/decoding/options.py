"""The options that say how bodies are unpacked and decoded; what prints messages asks for the decoder here."""

import base64
import json
import math
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, TypeVar, get_args

import click

from rmqstore.cli.decoding.decoder import PLAIN, BodyDecoder, Encoding, Shown, Undecodable, schema_file
from rmqstore.cli.output import mistakes_in_command
from rmqstore.errors import Rejected
from rmqstore.formats.compression import BODY_LIMIT_MAX, BODY_SIZE_MAX

# --- Bodies that are messages of Protocol Buffers; by protobuf (the extra "protobuf").


def protobuf_decode(path: str, name: str) -> Callable[[bytes], Shown]:
    """The decoding of a message by a file of descriptors, as protoc --descriptor_set_out writes it.  Raises
    Rejected."""
    try:
        from google.protobuf import (  # noqa: PLC0415  an extra: the package works without it
            descriptor_pb2,
            descriptor_pool,
            json_format,
            message_factory,
        )
        from google.protobuf.message import DecodeError  # noqa: PLC0415  the same
    except ImportError:
        raise Rejected("--decode protobuf needs protobuf: pip install 'rmqstore[protobuf]'") from None
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(schema_file(path))
        for file in files.file:
            pool.Add(file)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        known = sorted(f"{file.package}.{each.name}".lstrip(".") for file in files.file for each in file.message_type)
        raise Rejected(f"{path}: no message {name!r}; it has {', '.join(known) or 'none'}") from None
    except (OSError, DecodeError, TypeError, ValueError) as error:
        what = "protoc --include_imports --descriptor_set_out=FILE writes one"
        raise Rejected(f"{path}: not a descriptor set ({error}); {what}") from None

    def decode(body: bytes) -> Shown:
        try:
            text = json_format.MessageToJson(
                kind.FromString(body), indent=None, preserving_proto_field_name=True, ensure_ascii=False,
                descriptor_pool=pool,
            )  # fmt: skip
        except RecursionError:
            raise Undecodable("the message is nested too deeply") from None
        except Exception as error:  # noqa: BLE001  what a library says to any bytes at all
            raise Undecodable(f"not a {name}: {str(error) or type(error).__name__}") from None
        return Shown(text, True)

    return decode


# ---

# --- Bodies in Avro's binary encoding, without the schema in front; by fastavro (the extra "avro").

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
        raise Rejected(f"{path}: not an Avro schema ({error})") from None
    except fastavro.schema.UnknownType as error:
        raise Rejected(
            f"{path}: not an Avro schema: it names the type {error.name}, which it does not define"
        ) from None

    def decode(body: bytes) -> Shown:
        if is_framed and (len(body) < _FRAME_SIZE or not body.startswith(_FRAME)):
            raise Undecodable("the body has no schema registry header: leave --framed out")
        source = BytesIO(body[_FRAME_SIZE:] if is_framed else body)
        try:
            value = read(source, schema, None)
        except RecursionError:
            raise Undecodable("the Avro is nested too deeply") from None
        except Exception as error:  # noqa: BLE001  what a library says to any bytes at all
            raise Undecodable(f"not Avro of this schema: {str(error) or type(error).__name__}") from None
        left = source.tell(), len(source.getbuffer())
        if left[0] != left[1]:
            raise Undecodable(f"not Avro of this schema: {left[1] - left[0]} of {left[1]} bytes are left over")
        return Shown(_json(value), True)

    return decode


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except RecursionError:
        raise Undecodable("the Avro is nested too deeply") from None
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


# ---

Command = TypeVar("Command", bound=Callable[..., Any])
_META = "rmqstore.decode."
_NAMES = ("decode", "schema", "message", "framed")


def decode_options(command: Command) -> Command:
    """Adds --decode, --schema, --message and --framed; the command itself gets no parameter of them."""
    options = (
        click.option(
            "--decode", type=click.Choice(get_args(Encoding)), expose_value=False, callback=_keep,
            help="How bodies are decoded; avro and protobuf need the extra of that name.",
        ),
        click.option(
            "--schema", type=click.Path(exists=True, dir_okay=False), expose_value=False, callback=_keep,
            help="With --decode avro: the .avsc; protobuf: protoc --include_imports --descriptor_set_out=FILE.",
        ),
        click.option(
            "--message", metavar="NAME", expose_value=False, callback=_keep,
            help="With --decode protobuf: the full name of the message, as shop.Order.",
        ),
        click.option(
            "--framed", is_flag=True, expose_value=False, callback=_keep,
            help="With --decode avro: skip the 5 bytes of a schema registry at the start of each body.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return body_limit_option(command)


def body_limit_option(command: Command) -> Command:
    """Adds --max-body-bytes, which `body_bytes_max` tells."""
    return click.option(
        "--max-body-bytes", type=click.IntRange(1, BODY_LIMIT_MAX), default=BODY_SIZE_MAX, metavar="BYTES",
        expose_value=False, callback=_keep, help="Largest size of a compressed body once it is unpacked (default: "
            "128 MiB).",
    )(command)  # fmt: skip


def body_bytes_max() -> int:
    """The limit that the command at work was given for a body, in bytes."""
    ctx = click.get_current_context(silent=True)
    return BODY_SIZE_MAX if ctx is None else int(ctx.meta.get(f"{_META}max_body_bytes", BODY_SIZE_MAX))


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta[f"{_META}{param.name}"] = value


def chosen_decoder() -> BodyDecoder | None:
    """The decoder that the command at work was given, if it was.  Raises UsageError, Rejected."""
    ctx = click.get_current_context(silent=True)
    given = {} if ctx is None else {name: ctx.meta.get(f"{_META}{name}") for name in _NAMES}
    encoding = given.get("decode")
    if encoding is None:
        if any(given.values()):
            raise click.UsageError("--schema, --message and --framed need --decode")
        return None
    with mistakes_in_command():
        return decoder_of(encoding, given["schema"], given["message"], is_framed=bool(given["framed"]))


def decoder_of(encoding: Encoding, schema: str | None, message: str | None, *, is_framed: bool) -> BodyDecoder:
    """A decoder; `schema` is a file with an Avro schema or a set of Protocol Buffers' descriptors, `message` the name
    of the message there.  `is_framed`: bodies begin with the five bytes of a schema registry, which are passed over.

    Raises Rejected for a schema that is missing, unreadable or superfluous.
    """
    if encoding not in ("avro", "protobuf"):
        if schema is not None or message is not None or is_framed:
            raise Rejected("--schema, --message and --framed need --decode avro or protobuf")
        return BodyDecoder(PLAIN[encoding])
    if schema is None:
        raise Rejected(f"--decode {encoding} needs --schema FILE")
    if encoding == "avro":
        if message is not None:
            raise Rejected("--message needs --decode protobuf")
        return BodyDecoder(avro_decode(schema, is_framed=is_framed))
    if message is None or is_framed:
        raise Rejected("--decode protobuf needs --message NAME, such as shop.Order, and takes no --framed")
    return BodyDecoder(protobuf_decode(schema, message))
