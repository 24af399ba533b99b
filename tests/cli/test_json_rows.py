"""JSON objects made column by column are those that json makes row by row."""

import base64
import datetime
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.cli.decoding.decoder import BodyDecoder, Shown
from rmqstore.cli.message_output import COLUMNS, json_objects
from rmqstore.cli.output import escaped, iso
from rmqstore.snapshot.columns import schema_of

pytestmark = pytest.mark.stores

SCHEMA = schema_of(COLUMNS)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(['"', "\\", "\x00\x1f", "a\n"])
TIMES = st.datetimes(timezones=st.just(datetime.UTC)).filter(lambda moment: moment.year >= 1000)  # as %Y fills up
VALUES = {
    pa.string(): TEXTS,
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.binary(): st.binary(max_size=12) | TEXTS.map(str.encode),
    SCHEMA.field("properties").type: st.dictionaries(TEXTS, TEXTS, max_size=4).map(lambda found: list(found.items())),
    SCHEMA.field("storeTimestamp").type: TIMES,
}
ROWS = st.lists(st.fixed_dictionaries({f.name: st.none() | VALUES[f.type] for f in SCHEMA}), max_size=6)


def document(row: dict) -> dict:
    """A row as the command's output means it."""
    body, reason = row.pop("body"), row.pop("corruptReason")
    row["properties"] = dict(row["properties"] or ())
    for name in ("bornTimestamp", "storeTimestamp"):
        row[name] = iso(row[name])
    try:
        row["body"] = None if body is None else body.decode()
    except UnicodeDecodeError:
        row["bodyBase64"] = base64.b64encode(body).decode()
    return row if reason is None else row | {"corruptReason": reason}


@given(rows=ROWS, first=st.integers(0, 3))
def test_rows_are_those_of_json(rows: list[dict], first: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA).slice(first)
    expected = [escaped(json.dumps(document(row), ensure_ascii=False)) for row in batch.to_pylist()]
    assert json_objects(batch) == expected


def batch_of(**values: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict.fromkeys(COLUMNS) | values], SCHEMA)


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1000, "1969-12-31T23:59:59.999Z"),
        (-62_167_219_200_000_000, "0000-01-01T00:00:00.000Z"),
        (253_402_300_799_999_000, "9999-12-31T23:59:59.999Z"),
        # What ISO 8601 does not say is told as `put` takes it.
        (-62_167_219_200_001_000, -62_167_219_200_001),
        (253_402_300_800_000_000, 253_402_300_800_000),
        (2**53 * 1000, 2**53),
    ],
)
def test_times_of_any_year(microseconds: int, shown: str | int) -> None:
    moment = pa.array([microseconds]).cast(SCHEMA.field("storeTimestamp").type)
    at = SCHEMA.get_field_index("storeTimestamp")
    (line,) = json_objects(batch_of().set_column(at, SCHEMA.field(at), moment))
    assert json.loads(line)["storeTimestamp"] == shown


def test_halves_of_characters_that_a_decoder_finds_are_escaped() -> None:
    halves = BodyDecoder(lambda _: Shown("a\ud800", False))
    (line,) = json_objects(batch_of(body=b"x", corruptReason="r"), halves)
    assert json.loads(line)["corruptReason"] == "r"
    assert '"body": "a\\ud800"' in line


def test_names_that_became_equal_are_one_field() -> None:
    (line,) = json_objects(batch_of(properties=[("a\ufffd", "1"), ("b", "2"), ("a\ufffd", "3")]))
    assert json.loads(line, object_pairs_hook=list)[-2] == ("properties", [("a\ufffd", "3"), ("b", "2")])
