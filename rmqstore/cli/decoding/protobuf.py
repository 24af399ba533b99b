"""Bodies that are messages of Protocol Buffers; by protobuf (the extra "protobuf")."""

from collections.abc import Callable

from rmqstore.cli.decoding.decoder import Shown, Undecodable, schema_file
from rmqstore.errors import Rejected


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
        raise Rejected(f"{path}: no set of descriptors ({error}); {what}") from None

    def decode(body: bytes) -> Shown:
        try:
            text = json_format.MessageToJson(
                kind.FromString(body), indent=None, preserving_proto_field_name=True, ensure_ascii=False,
                descriptor_pool=pool,
            )  # fmt: skip
        except RecursionError:
            raise Undecodable("a message that is nested too deeply") from None
        except Exception as error:  # noqa: BLE001  what a library says to any bytes at all
            raise Undecodable(f"no {name}: {str(error) or type(error).__name__}") from None
        return Shown(text, True)

    return decode
