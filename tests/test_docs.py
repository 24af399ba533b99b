"""Pages that are made of tables in the code, or name tests, held to them; tests/docs does what all pages say."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench import figures_page
from rmqstore import Snapshot
from spark_source import tables
from spark_source.options import reads as options
from spark_source.options import writes as sink_options
from spark_source.options.texts import READ, WRITE
from tests.conformance.odd_differences import ACCEPTED, row
from tests.option_page import PAGE, page

PROJECT = Path(__file__).parents[1]


def test_every_accepted_difference_from_rocketmq_is_documented() -> None:
    """The conformance tests hold the list to RocketMQ itself."""
    page = (PROJECT / "docs/differences.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| asked")]
    assert rows == [row(one) for one in ACCEPTED]


def test_the_stories_of_recovery_have_a_test_each_and_each_test_its_story() -> None:
    page = (PROJECT / "docs/recovery.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d, ()]+) \| ", page, re.MULTILINE)
    told = {number for row in rows for number in re.findall(r"\d+", re.sub(r"\(.*?\)", "", row))}
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (PROJECT / "tests").rglob("test_*issues.py"))
    assert told == set(re.findall(r"^def test_rocketmq_(\d+)_", tests, re.MULTILINE))


def test_every_path_on_the_page_of_reads_and_puts_exists() -> None:
    """A name without a directory stands beside the one that is named before it, or is the only file of that name."""
    page = (PROJECT / "docs/inside.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w./]+\.py)`", page))
    assert len(paths) > 25
    names = {path.name for path in (PROJECT / "rmqstore").rglob("*.py")}
    assert [path for path in paths if "/" in path and not (PROJECT / "rmqstore" / path).exists()] == []
    assert paths - names - {path for path in paths if "/" in path} == set()


def test_every_path_on_the_house_page_exists() -> None:
    page = (PROJECT / "rmqstore/README.md").read_text(encoding="utf-8")
    table = page[page.index("## Where does a change go?") :]
    paths = [path for path in re.findall(r"`([\w./]+(?:\.py|\.md|/))`", table) if path != "config/"]
    assert len(set(paths)) > 60
    places = {path: top / path for path in paths for top in (PROJECT, PROJECT / "rmqstore") if (top / path).exists()}
    assert set(paths) == places.keys()
    for path, said in re.findall(r"`([\w./]+\.py)` \(([^)]*)\)", table):  # what is named in brackets stands there
        words = re.findall(r"`([A-Za-z_]\w*)`", said)
        assert [word for word in words if word not in places[path].read_text(encoding="utf-8")] == []


def test_the_page_of_options_says_what_the_code_takes() -> None:
    """`make options` writes it anew."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_page_of_figures_is_that_of_the_kept_ones() -> None:
    """`make figures` writes it anew."""
    assert figures_page.PAGE.read_text(encoding="utf-8") == figures_page.text()


def test_every_option_has_its_text() -> None:
    assert set(READ) == {*options.PARSERS, *options.STREAM_PARSERS}
    assert {name.lower() for name in READ} >= {name.lower() for name in tables.PARSERS}
    assert set(WRITE) == set(sink_options.PARSERS)


LEAST = {"path": "/s", "subscribe": "t"}
SELECTED_BY_DEFAULT = {
    name: parameter.default
    for name, parameter in inspect.signature(Snapshot.select).parameters.items()
    if parameter.default is not parameter.empty
}


def whole(read: options.BatchRead) -> options.BatchRead:
    """The same read with what `Snapshot.select` does where it is not told."""
    return replace(read, selection=SELECTED_BY_DEFAULT | read.selection)


@pytest.mark.parametrize("name", sorted(name for name in options.PARSERS if READ[name].default))
def test_a_default_of_a_read_is_what_comes_of_no_option(name: str) -> None:
    given = options.parse_options(LEAST | {name: READ[name].default})
    assert whole(given) == whole(options.parse_options(LEAST))


@pytest.mark.parametrize("name", sorted(name for name in options.STREAM_PARSERS if READ[name].default))
def test_a_default_of_a_stream_is_what_comes_of_no_option(name: str) -> None:
    needed = LEAST | ({"minOffsetsPerTrigger": "1"} if name == "maxTriggerDelay" else {})
    given = options.parse_stream_options(needed | {name: READ[name].default})
    assert given == options.parse_stream_options(needed)


@pytest.mark.parametrize("name", sorted(name for name, text in WRITE.items() if text.default))
def test_a_default_of_a_write_is_what_comes_of_no_option(name: str) -> None:
    without = sink_options.parse_sink_options({"path": "/s"}, is_stream=False)
    assert sink_options.parse_sink_options({"path": "/s", name: WRITE[name].default}, is_stream=False) == without
