"""`tags` and `keys` of a scan are written as everywhere else, or come as a collection."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.errors import Rejected
from rmqstore.snapshot.request import ScanRequest
from tests.snapshot.small_store import SmallStore

TAGS = ["paid", "sent", "p", "a"]


@pytest.fixture
def snapshot(tmp_path: Path) -> rmqstore.Snapshot:
    store = SmallStore()
    for number, tag in enumerate(TAGS):
        store.add("T", 0, properties={"TAGS": tag, "KEYS": f"k{number} all", "UNIQ_KEY": f"u{number}"})
    return rmqstore.open_snapshot(store.write(tmp_path))


def tags_of(snapshot: rmqstore.Snapshot, **how: Any) -> list[str]:
    return snapshot.scan(["T"], columns=["tags"], **how).read_all()["tags"].to_pylist()


@pytest.mark.parametrize("of", [str, lambda text: text.split(" || "), lambda text: {*text.split(" || ")}])
@pytest.mark.parametrize(("text", "found"), [("paid", ["paid"]), ("paid || sent", ["paid", "sent"]), ("none", [])])
def test_tags(snapshot: rmqstore.Snapshot, text: str, found: list[str], of: Callable[[str], Any]) -> None:
    assert tags_of(snapshot, tags=of(text)) == found


@pytest.mark.parametrize(("text", "found"), [("k1", TAGS[1:2]), ("k1 || u2", TAGS[1:3]), ("all", TAGS), ("k", [])])
def test_keys(snapshot: rmqstore.Snapshot, text: str, found: list[str]) -> None:
    assert tags_of(snapshot, keys=text) == tags_of(snapshot, keys=text.split(" || ")) == found


def test_a_star_nothing_and_none_mean_any(snapshot: rmqstore.Snapshot) -> None:
    for any_tag in ("*", "", None, [], ()):
        assert tags_of(snapshot, tags=any_tag) == TAGS
    assert tags_of(snapshot, keys=None) == tags_of(snapshot, keys=[]) == TAGS


@pytest.mark.parametrize("how", [{"tags": "a ||"}, {"tags": "a || *"}, {"keys": " || "}, {"tags": [1]}, {"keys": 7}])
def test_what_names_nothing_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(Rejected):
        ScanRequest(**how)


def test_one_topic_as_a_text(snapshot: rmqstore.Snapshot) -> None:
    assert snapshot.scan("T").read_all().num_rows == len(TAGS)
    with pytest.raises(rmqstore.UnknownTopic, match="no topic 'orders'"):
        snapshot.scan("orders")
