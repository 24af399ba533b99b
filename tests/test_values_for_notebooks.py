"""What a notebook asks a store for: a check, a plan and an overview, as values, as Arrow and as HTML."""

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

import rmqstore
from rmqstore import Message, StoreClosed, StoreConfig, StoreInUse, open_snapshot, open_store, opened_store
from rmqstore.cli import main
from rmqstore.core.safe_text import arrow_html

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=65536, queue_file_size=2000, preallocate=False)


def made(root: Path, *, is_closed: bool = True) -> list[int]:
    """Where the 20 messages of a store stand: 15 of A, in two queues, and 5 of B."""
    store = open_store(root, CONFIG, workers=False)
    placed = [
        store.put(
            Message("A" if number % 4 else "B", b"x%d" % number, queue_id=number % 2, keys=[f"k{number}", "seven"])
        )
        for number in range(20)
    ]
    store.flush()
    store.close() if is_closed else store.abandon()
    return [result.physical_offset for result in placed]


def test_a_check_is_a_value_with_what_verify_prints(tmp_path: Path) -> None:
    places = made(tmp_path)
    sound = rmqstore.verify(tmp_path)
    assert (sound.is_sound, sound.damage, sound.paths) == (True, (), (str(tmp_path),))
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[data.index(b"x7", places[7])] ^= 1
    path.write_bytes(data)
    found = rmqstore.verify(tmp_path)
    assert not found.is_sound
    assert found.log_bytes == sound.log_bytes > places[-1]
    rows = found.to_arrow()
    damage = rows.filter(pc.equal(rows["severity"], "damage"))
    assert damage.num_rows == len(found.damage) > 0
    assert damage["position"].to_pylist()[0] == places[7]
    assert [damage[name][0].as_py() for name in ("topic", "queueId", "queueOffset", "keys")] == ["A", 1, 3, "k7 seven"]
    with pytest.raises(rmqstore.NotAStore):
        rmqstore.verify(tmp_path / "nowhere")
    with pytest.raises(rmqstore.Rejected):
        rmqstore.verify(tmp_path, body_bytes_max=-1)


def test_a_plan_is_a_value_with_what_recover_prints(tmp_path: Path) -> None:
    made(tmp_path, is_closed=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plan = rmqstore.recovery_plan(tmp_path, CONFIG)
    assert isinstance(plan, rmqstore.RecoveryPlan)
    assert not plan.is_clean_exit
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    steps = plan.to_arrow()
    assert steps.column_names == ["step", "detail"]
    assert "not clean" in dict(zip(*(steps[name].to_pylist() for name in steps.column_names), strict=True))["last exit"]
    assert CliRunner().invoke(main, ["recover", str(tmp_path), "--dry-run"]).stdout.count("\n") >= steps.num_rows
    open_store(tmp_path, CONFIG, workers=False).close()
    assert rmqstore.recovery_plan(tmp_path, CONFIG).changes_nothing


def test_an_overview_has_a_row_a_topic_the_largest_first(tmp_path: Path) -> None:
    made(tmp_path)
    snapshot = open_snapshot(tmp_path)
    rows = snapshot.overview().to_pylist()
    assert [(row["topic"], row["queues"], row["messages"]) for row in rows] == [("A", 2, 15), ("B", 1, 5)]
    assert all(row["oldestTimestamp"] <= row["newestTimestamp"] for row in rows)


class Cells(HTMLParser):
    """The texts of a page's elements, a list for each name of an element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in self._open:
            self.texts[tag][-1] += data


def test_a_snapshot_shows_its_largest_topics(tmp_path: Path) -> None:
    made(tmp_path)
    snapshot = open_snapshot(tmp_path)
    shown = Cells(snapshot._repr_html_())
    assert shown.texts["p"] == [repr(snapshot)]
    assert shown.texts["th"] == snapshot.overview().column_names
    newest = snapshot.overview()["newestTimestamp"][0].as_py()
    assert shown.texts["td"][:4] == ["A", snapshot.stores[0].broker_name, "2", "15"]
    assert shown.texts["td"][5] == f"{newest:%Y-%m-%d %H:%M:%S}Z"


def test_a_value_of_many_rows_shows_the_first_ones_and_counts_the_rest(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG, workers=False) as store:
        for number in range(25):
            store.put(Message(f"topic{number:02d}", b"x")).raise_for_status()
        store.flush()
        for value in (store, open_snapshot(tmp_path)):
            shown = Cells(value._repr_html_())
            assert len(shown.texts["tr"]) == 1 + 10
            assert shown.texts["p"][-1] == "15 more rows"
    assert store._repr_html_() is None  # closed: a notebook shows its line
    assert "closed" in repr(store)


def test_an_open_store_shows_its_topics(tmp_path: Path) -> None:
    made(tmp_path)
    with open_store(tmp_path, CONFIG, workers=False) as store:
        assert Cells(store._repr_html_()).texts["td"] == ["A", "2", "15", "B", "1", "5"]


def test_a_plan_and_a_check_show_what_the_commands_print(tmp_path: Path) -> None:
    places = made(tmp_path, is_closed=False)
    plan = rmqstore.recovery_plan(tmp_path, CONFIG)
    assert Cells(plan._repr_html_()).texts["pre"] == ["\n".join(plan.lines())]
    assert repr(plan) == f"<RecoveryPlan of {str(tmp_path)!r}, changes the store>"
    open_store(tmp_path, CONFIG, workers=False).close()
    sound = Cells(rmqstore.verify(tmp_path)._repr_html_())
    assert sound.texts["p"][0].startswith(f"{tmp_path}: no damage")
    path = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[data.index(b"x7", places[7])] ^= 1
    path.write_bytes(data)
    found = rmqstore.verify(tmp_path)
    shown = Cells(found._repr_html_())
    assert shown.texts["p"][0].startswith(f"{tmp_path}: {len(found.damage)} damaged")
    assert f"{places[7]:,}" in shown.texts["td"]


def test_names_of_topics_and_paths_become_no_elements(tmp_path: Path) -> None:
    root = tmp_path / "<b-id=harm>"
    with open_store(root, CONFIG, workers=False) as store:
        store.put(Message("%3Ci%3E", b"x")).raise_for_status()
        store.flush()
        pages = [store._repr_html_(), open_snapshot(root)._repr_html_(), rmqstore.recovery_plan(root)._repr_html_()]
    pages.append(rmqstore.verify(root)._repr_html_())
    for page in pages:
        assert "<b" not in page.replace("<bdi>", "").replace("<tbody>", "")
        assert "&lt;b-id=harm&gt;" in page


def test_a_time_that_no_calendar_has_is_a_number(tmp_path: Path) -> None:
    at_us = 20_000 * 365 * 86_400 * 1_000_000
    table = pa.table({"topic": ["A"], "newest": pa.array([at_us], pa.timestamp("us", "UTC"))})
    assert Cells(arrow_html("line", table)).texts["td"] == ["A", f"{at_us:,}"]


def test_a_snapshot_whose_files_went_shows_its_line(tmp_path: Path) -> None:
    made(tmp_path)
    snapshot = open_snapshot(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    assert snapshot._repr_html_() is None
    assert "20 messages" in repr(snapshot)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"
    for place in (tmp_path / "store", tmp_path / "other"):
        with suppress(StoreClosed):
            opened_store(place).close()


def test_a_store_whose_variable_was_lost_is_found_again(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreClosed, match=r"no store open at .*open_store opens it"):
        opened_store(root)
    first = open_store(root, CONFIG)
    open_store(tmp_path / "other", CONFIG)
    number = id(first)
    first.put(Message("A", b"x")).raise_for_status()
    del first
    gc.collect()
    with pytest.raises(StoreInUse, match="opened_store"):
        open_store(root, CONFIG)
    (tmp_path / "link").symlink_to(root)
    again = opened_store(tmp_path / "link")
    assert id(again) == number
    assert again is opened_store(str(root))
    assert again.put(Message("A", b"y")).queue_offset == 1
    again.close()
    with pytest.raises(StoreClosed):
        opened_store(root)
    with open_store(root, CONFIG) as newer:
        assert opened_store(root) is newer
    with pytest.raises(StoreClosed):
        opened_store(root)


def test_a_store_that_could_not_be_opened_is_none_that_is_open(root: Path) -> None:
    root.mkdir()
    (root / "notes.txt").write_text("mine")
    with pytest.raises(rmqstore.NotAStore):
        open_store(root, CONFIG)
    with pytest.raises(StoreClosed):
        opened_store(root)


def test_a_child_made_by_fork_has_no_store_open(root: Path) -> None:
    store = open_store(root, CONFIG)
    child = os.fork()
    if child == 0:
        try:
            opened_store(root)
        except StoreClosed:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert opened_store(root) is store
