"""`--decode`: bodies as JSON, text, hex, base64, Avro and Protocol Buffers, and bodies that are none of these."""

import io
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from rmqstore import Message, open_store
from rmqstore.cli.decoding.decoder import DECODED_SIZE_MAX
from rmqstore.cli.decoding.options import decoder_of
from tests.cli.conftest import Run, last_line

ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "price", "type": "double"},
        {"name": "raw", "type": "bytes"}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip
CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}


@pytest.fixture
def avsc(tmp_path: Path) -> Callable[[Any], str]:
    def write(schema: Any) -> str:
        (tmp_path / "schema.avsc").write_text(json.dumps(schema), encoding="utf-8")
        return str(tmp_path / "schema.avsc")

    return write


def avro_of(schema: Any, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return written.getvalue()


def field_of(decoder: Any, body: bytes) -> dict[str, Any]:
    (field,) = decoder.json_fields([body])
    found: dict[str, Any] = json.loads("{" + field + "}")
    return found


@pytest.mark.parametrize(
    ("encoding", "body", "shown"),
    [
        ("json", b'{"a": 1}', {"a": 1}),
        ("json", b' [1,\r\n "\\n"]\n', [1, "\n"]),
        ("json", b'"text"', "text"),
        ("utf8", "größe".encode(), "größe"),
        ("hex", b"\xff\x00", "ff00"),
        ("base64", b"\xff\x00", "/wA="),
    ],
)
def test_plain_encodings(encoding: Any, body: bytes, shown: Any) -> None:
    assert field_of(decoder_of(encoding, None, None, is_framed=False), body) == {"body": shown}


def test_numbers_of_json_are_what_they_were() -> None:
    body = b'{"a": 123456789012345678901234567890, "b": 1e400, "c": 0.10, "d": %s}' % (b"9" * 100_000)
    (field,) = decoder_of("json", None, None, is_framed=False).json_fields([body])
    assert field == '"body": ' + body.decode()


HOSTILE = {
    "deep": b"[" * 1_000_000, "deep objects": b'{"a":' * 500_000, "nan": b"NaN", "nothing": b"", "bytes": b"\xff\xfe",
    "half": b'{"a"', "two": b"{}{}", "control": b'"a\nb"',
}  # fmt: skip


@pytest.mark.parametrize("which", HOSTILE)
def test_what_is_no_json_is_shown_with_the_reason(which: str) -> None:
    found = field_of(decoder_of("json", None, None, is_framed=False), HOSTILE[which])
    assert set(found) == {"bodyBase64", "decodeError"}
    assert 5 < len(found["decodeError"]) <= 200


def test_a_body_that_is_too_large_is_not_decoded() -> None:
    found = field_of(decoder_of("json", None, None, is_framed=False), b" " * (DECODED_SIZE_MAX + 1))
    assert "are more than" in found["decodeError"]


def test_avro(avsc: Callable[[Any], str]) -> None:
    value = {"id": 2**60, "name": "größe", "price": 1.5, "raw": b"\xff", "at": 1_795_000_000_000}
    body = avro_of(ORDER, value)
    decoder = decoder_of("avro", avsc(ORDER), None, is_framed=False)
    assert field_of(decoder, body)["body"] == value | {"raw": "/w==", "at": "2026-11-18T11:06:40+00:00"}
    for wrong in (b"", body[:-1], body + b"x", b"\xff" * 50, b"\x00"):
        assert "Avro" in field_of(decoder, wrong)["decodeError"]
    nan = avro_of(ORDER, value | {"price": float("nan")})
    assert field_of(decoder, nan)["body"]["price"] == "nan"
    framed = decoder_of("avro", avsc(ORDER), None, is_framed=True)
    assert field_of(framed, b"\0\0\0\0\7" + body)["body"]["id"] == 2**60
    assert "no schema registry header" in field_of(framed, body)["decodeError"]


def test_avro_that_holds_itself_ends_in_time(avsc: Callable[[Any], str]) -> None:
    decoder = decoder_of("avro", avsc(CHAIN), None, is_framed=False)
    assert field_of(decoder, avro_of(CHAIN, {"next": {"next": None}}))["body"] == {"next": {"next": None}}
    assert "nested too deeply" in field_of(decoder, b"\x02" * 5_000_000 + b"\0")["decodeError"]


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "fixed", "name": "F", "size": 0}, {"type": "record", "name": "E", "fields": []},
     {"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]}],
)  # fmt: skip
def test_arrays_of_nothing_are_refused(items: Any, avsc: Callable[[Any], str]) -> None:
    """A body of ten bytes could tell of as many as a number can."""
    with pytest.raises(ValueError, match="take no bytes"):
        decoder_of("avro", avsc({"type": "array", "items": items}), None, is_framed=False)


def test_sizes_that_a_body_tells_are_not_believed(avsc: Callable[[Any], str]) -> None:
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    for schema in ({"type": "array", "items": "long"}, {"type": "map", "values": "null"}, "bytes", "string"):
        assert "decodeError" in field_of(decoder_of("avro", avsc(schema), None, is_framed=False), huge + b"\2\2")


@pytest.fixture
def descriptors(tmp_path: Path) -> tuple[str, Any]:
    """A file of descriptors with shop.Order and shop.Node, and the class of the first."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate((("order_id", kinds.TYPE_INT64), ("name", kinds.TYPE_STRING)), 1):
        order.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=kinds.TYPE_MESSAGE, type_name=".shop.Node", label=kinds.LABEL_OPTIONAL)
    whole = descriptor_pb2.FileDescriptorSet(file=[file])
    (tmp_path / "shop.desc").write_bytes(whole.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return str(tmp_path / "shop.desc"), message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf(descriptors: tuple[str, Any]) -> None:
    path, order = descriptors
    decoder = decoder_of("protobuf", path, "shop.Order", is_framed=False)
    body = order(order_id=2**60, name="größe").SerializeToString()
    assert field_of(decoder, body)["body"] == {"order_id": str(2**60), "name": "größe"}
    for wrong in (b"\xff", body[:-1], b"\x12\xff\xff\xff\xff\x0f"):
        assert "shop.Order" in field_of(decoder, wrong)["decodeError"]
    deep = b""
    for _ in range(5000):
        deep = b"\x0a" + _varint(len(deep)) + deep
    assert "decodeError" in field_of(decoder_of("protobuf", path, "shop.Node", is_framed=False), deep)


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += struct.pack("B", number & 127 | 128)
        number >>= 7
    return out + struct.pack("B", number)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as one:
        for body in (b'{"n": 1}', b"\xff", b'{"n":\n2}'):
            one.put(Message("orders", body, queue_id=0))
    return tmp_path / "store"


@pytest.mark.parametrize("command", [["cat", "--topic", "orders"], ["tail"]])
def test_every_form_shows_what_is_decoded_and_goes_on(command: list[str], store: Path, run: Run) -> None:
    arguments = (command[0], store, *command[1:], "--decode", "json")
    rows = [json.loads(line) for line in run(*arguments, "-o", "json-lines").stdout.splitlines()]
    assert [row.get("body") for row in rows] == [{"n": 1}, None, {"n": 2}]
    assert (rows[1]["bodyBase64"], rows[1]["decodeError"]) == ("/w==", "not UTF-8: byte 0xff at 0")
    assert run(*arguments, "-o", "bodies").stdout == '{"n": 1}\n<not UTF-8: byte 0xff at 0>\n{"n": 2}\n'
    assert run(*arguments, "--format", r"{body}\n").stdout.splitlines()[2] == '{"n": 2}'
    assert "<not UTF-8" in run(*arguments).stdout
    assert '"{""n"": 1}"' in run(*arguments, "-o", "csv").stdout


def test_an_array_has_decoded_bodies_too(store: Path, run: Run) -> None:
    rows = json.loads(run("cat", store, "--topic", "orders", "--decode", "json", "--json").stdout)
    assert [row.get("body") for row in rows] == [{"n": 1}, None, {"n": 2}]


def test_what_is_decoded_does_not_steer_a_terminal(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "store") as one:
        one.put(Message("orders", '"\x9b\u202e"'.encode()))
    monkeypatch.setattr("rmqstore.cli.message_output.is_terminal", lambda: True)
    for form in ("table", "json-lines", "csv", "bodies"):
        shown = run("cat", tmp_path / "store", "--topic", "orders", "--decode", "json", "-o", form).stdout
        assert not set("\x1b\x9b\u202e") & set(shown), form


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--schema", "SCHEMA"], "need --decode"),
        (["--framed"], "need --decode"),
        (["--decode", "json", "--schema", "SCHEMA"], "need --decode avro or protobuf"),
        (["--decode", "avro"], "needs --schema"),
        (["--decode", "avro", "--schema", "nowhere.avsc"], "does not exist"),
        (["--decode", "avro", "--schema", "SCHEMA"], "not an Avro schema"),
        (["--decode", "protobuf", "--schema", "SCHEMA"], "needs --message"),
        (["--decode", "protobuf", "--schema", "SCHEMA", "--message", "x"], "not a descriptor set"),
        (["--decode", "xml"], "is not one of"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, store: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "schema").write_text("{", encoding="utf-8")
    given = [str(tmp_path / "schema") if each == "SCHEMA" else each for each in arguments]
    failed = run("cat", store, "--topic", "orders", *given)
    assert failed.exit_code == 2
    assert words in last_line(failed.stderr)


@pytest.mark.parametrize(("library", "extra"), [("fastavro", "avro"), ("google.protobuf", "protobuf")])
def test_without_its_library_it_says_so(
    library: str, extra: str, store: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / "schema").write_text('"long"', encoding="utf-8")
    more = ["--message", "x"] if extra == "protobuf" else []
    failed = run("cat", store, "--topic", "orders", "--decode", extra, "--schema", tmp_path / "schema", *more)
    assert f"pip install 'rmqstore[{extra}]'" in last_line(failed.stderr)
