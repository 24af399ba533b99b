"""JSON objects as columns: what is written there comes out, and the first wrong line is found in any company."""

import base64
import json
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.cli.putting.chunks import up_to_a_mistake
from rmqstore.cli.putting.message_columns import MessageWishes, of_json
from rmqstore.formats.names import NOT_SENDABLE_TOPICS

pytestmark = pytest.mark.stores

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
I32 = st.integers(-(2**31), 2**31 - 1)


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """An object as `rmqstore cat` prints it, in full or in part."""
    body = draw(st.binary(max_size=30))
    row: dict[str, Any] = {"topic": draw(TEXT.filter(lambda name: name and name not in NOT_SENDABLE_TOPICS))}
    try:
        row["body"] = body.decode()
    except UnicodeDecodeError:
        row["bodyBase64"] = base64.b64encode(body).decode()
    more = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "tags": TEXT | st.none(), "flag": I32 | st.none(),
                "keys": TEXT | st.none() | st.lists(TEXT, max_size=3),
                "properties": st.dictionaries(TEXT, TEXT | st.none(), max_size=3) | st.none(), "queueOffset": I32,
                "property.x": TEXT,
                "bornTimestamp": st.integers(0, 2**41) | st.just("2026-11-25T09:00:00.123Z"), "storeTimestamp": TEXT,
            },
        )
    )  # fmt: skip
    if more.get("properties") is not None:
        more.pop("property.x", None)
    return row | more


def body_of(row: dict[str, Any]) -> bytes:
    return row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"])


def line_of(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=len(row) % 2 == 0).encode()


@given(st.lists(objects(), min_size=1, max_size=8))
def test_what_is_written_comes_out(rows: list[dict[str, Any]]) -> None:
    found = of_json([line_of(row) for row in rows], MessageWishes()).to_pylist()
    for row, made in zip(rows, found, strict=True):
        assert (made["topic"], made["body"]) == (row["topic"], body_of(row))
        assert made.get("tags") == row.get("tags")
        keys = row.get("keys")
        assert made.get("keys") == (" ".join(keys) if isinstance(keys, list) else keys)
        given_properties = row.get("properties") or ({"x": row["property.x"]} if "property.x" in row else {})
        assert dict(made.get("properties") or []) == given_properties
        assert made.get("flag", 0) == (row.get("flag") or 0)
        assert "queueOffset" not in made
        if isinstance(row.get("bornTimestamp"), int):
            assert round(made["bornTimestamp"].timestamp() * 1000) == row["bornTimestamp"]


WRONG = [
    b"", b"{", b"[]", b"\xff", b"{}", b"1}", b'"\\ud800"', b'{"topic":"a"}', b'{"a":1,"topic":"a"',
    b'{"topic":"a","body":1}', b'{"topic":"a","body":"x","tags":1}', b'{"topic":"a","body":"x","properties":[]}',
    b'{"topic":"a","body":"x","bornTimestamp":true}', b'{"topic":"a","body":"x","keys":[1]}',
    b'{"topic":"a","body":"x"},{"topic":"a","body":"y"}', b'{"topic":"a","body":"x","unknown":1}',
    b'{"topic":"\\udfff","body":"x"}',
]  # fmt: skip


@given(st.lists(objects().map(line_of) | st.sampled_from(WRONG), min_size=1, max_size=12))
def test_the_first_wrong_line_is_found_in_any_company(lines: list[bytes]) -> None:
    def columns(count: int) -> pa.RecordBatch:
        return of_json(lines[:count], MessageWishes())

    first = next((number for number, line in enumerate(lines) if line in WRONG), len(lines))
    chunk = up_to_a_mistake(range(1, len(lines) + 1), partial(columns), len(lines) + 1)
    assert (chunk.messages.num_rows if chunk.messages is not None else 0) == len(chunk.lines) == first
    assert (None if chunk.wrong is None else chunk.wrong.line) == (None if first == len(lines) else first + 1)
