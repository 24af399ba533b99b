"""The options that say how bodies are unpacked and decoded; what prints messages asks for the decoder here."""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from rmqstore.cli.decoding.avro import avro_decode
from rmqstore.cli.decoding.decoder import PLAIN, BodyDecoder, Encoding
from rmqstore.cli.decoding.protobuf import protobuf_decode
from rmqstore.cli.output import mistakes_in_command
from rmqstore.errors import Rejected
from rmqstore.formats.compression import BODY_LIMIT_MAX, BODY_SIZE_MAX

Command = TypeVar("Command", bound=Callable[..., Any])
_META = "rmqstore.decode."
_NAMES = ("decode", "schema", "message", "framed")


def decode_options(command: Command) -> Command:
    """Adds --decode, --schema, --message and --framed; the command itself gets no parameter of them."""
    options = (
        click.option(
            "--decode", type=click.Choice(get_args(Encoding)), expose_value=False, callback=_keep,
            help="Show bodies so; avro and protobuf need the extra of that name.",
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
            help="With --decode avro: bodies begin with a schema registry's 5 bytes, which are passed over.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return body_limit_option(command)


def body_limit_option(command: Command) -> Command:
    """Adds --max-body-bytes, which `body_bytes_max` tells."""
    return click.option(
        "--max-body-bytes", type=click.IntRange(1, BODY_LIMIT_MAX), default=BODY_SIZE_MAX, metavar="BYTES",
        expose_value=False, callback=_keep, help="What a compressed body may unpack to (128 MiB if not given).",
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
            raise click.UsageError("--schema, --message and --framed belong to --decode")
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
            raise Rejected("--schema, --message and --framed belong to --decode avro or protobuf")
        return BodyDecoder(PLAIN[encoding])
    if schema is None:
        raise Rejected(f"--decode {encoding} needs --schema FILE")
    if encoding == "avro":
        if message is not None:
            raise Rejected("--message belongs to --decode protobuf")
        return BodyDecoder(avro_decode(schema, is_framed=is_framed))
    if message is None or is_framed:
        raise Rejected("--decode protobuf needs --message NAME, such as shop.Order, and no --framed")
    return BodyDecoder(protobuf_decode(schema, message))
