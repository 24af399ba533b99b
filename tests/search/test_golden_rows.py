"""Every condition finds the rows of a scan that fulfil it, on every golden store."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore import Snapshot, open_snapshot
from rmqstore.snapshot.search.body_text import BodyText
from rmqstore.snapshot.search.meant_topics import MeantTopics
from rmqstore.snapshot.search.search import Search, SearchRun
from rmqstore.snapshot.search.window import Window
from tests.golden.cases import BROKER_CASES, READ_CASES, layouts
from tests.golden.conftest import store_of

pytestmark = pytest.mark.stores

__all__ = ["store_of"]

COLUMNS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "tags", "keys", "msgId", "offsetMsgId", "body",
    "storeTimestamp", "bornTimestamp",
)  # fmt: skip
Row = dict[str, Any]


def place(row: Row) -> tuple:
    return row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"]


def ms(row: Row, name: str) -> int:
    at = row[name]
    return int(at.timestamp() * 1000 + 0.5)


def searches(rows: list[Row], chance: random.Random) -> Iterator[tuple[Search, Callable[[Row], bool]]]:
    """Conditions that some row fulfils, each beside the same in plain Python."""
    one = chance.choice(rows)
    every = {"include_system_topics": True}
    piece = next((row["body"] for row in chance.sample(rows, len(rows)) if row["body"]), b"")[1:4]
    if piece.isascii() and piece:
        text = piece.decode()
        yield Search(**every, text=BodyText(text)), lambda row: piece in (row["body"] or b"")
        lower = piece.lower()
        yield (
            Search(**every, text=BodyText(text, ignores_case=True)), lambda row: lower in (row["body"] or b"").lower()
        )  # fmt: skip
    keyed = next((row for row in chance.sample(rows, len(rows)) if row["keys"]), one)
    key = (keyed["keys"] or keyed["msgId"]).split(" ")[0]
    if key:
        yield (
            Search(**every, keys=(key,)),
            lambda row: key in (row["keys"] or "").split(" ") or key in (row["msgId"], row["offsetMsgId"]),
        )  # fmt: skip
    for own in (one["msgId"], one["offsetMsgId"], one["offsetMsgId"].lower()):
        yield (
            Search(**every, ids=(own,)),
            lambda row, own=own: row["msgId"] == own or row["offsetMsgId"] == own.upper(),
        )
    if one["tags"]:
        yield Search(**every, tags=(one["tags"],)), lambda row: row["tags"] == one["tags"]
    yield Search(topics=MeantTopics((one["topic"],), None)), lambda row: row["topic"] == one["topic"]
    for column in ("storeTimestamp", "bornTimestamp"):
        low, high = sorted(ms(row, column) for row in chance.choices(rows, k=2))
        if low > 10**11:
            yield (
                Search(**every, window=Window(low, high + 1, column)),  # type: ignore[arg-type]
                lambda row, low=low, high=high, column=column: low <= ms(row, column) <= high,
            )


def found(snapshot: Snapshot, search: Search) -> list[Row]:
    return [row for batch in SearchRun(snapshot, search, COLUMNS) for row in batch.to_pylist()]


@pytest.mark.some(6)
@pytest.mark.parametrize("case", layouts([*READ_CASES, *BROKER_CASES]))
def test_rows_are_those_of_a_scan(case: str, store_of: Callable[[str], Path]) -> None:
    snapshot = open_snapshot(store_of(case))
    rows = snapshot.scan(
        pattern=".*", include_system_topics=True, columns=COLUMNS, on_corrupt_record="skip", fail_on_data_loss=False
    ).read_all().to_pylist()  # fmt: skip
    if not rows:
        assert found(snapshot, Search(include_system_topics=True)) == []
        return
    for search, holds in searches(rows, random.Random(case)):
        wanted = sorted(place(row) for row in rows if holds(row))
        assert sorted(place(row) for row in found(snapshot, search)) == wanted, search
