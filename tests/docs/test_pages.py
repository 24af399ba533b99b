"""Every command and every program on README and the pages, as a reader would run them: see blocks.py."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, PROJECT, Block, blocks_of, shows
from tests.docs.elsewhere import ELSEWHERE, SHOWN
from tests.docs.reader import Reader

# What a page takes for granted, beside what stands on it.
_SPARK_WORDS = ("spark.", "SparkSession", "jobs/")


def is_elsewhere(block: Block) -> bool:
    """Whether something else runs it."""
    return any(block.page == one.page and block.first_line.startswith(one.begins) for one in ELSEWHERE)


def is_shown(block: Block) -> bool:
    """Whether it is no command and no output."""
    return block.kind == "text" and any(
        block.page == page and block.first_line.startswith(begins) for page, begins, _ in SHOWN
    )


def run_here(page: str) -> list[Block]:
    """The blocks of a page that this file runs."""
    return [
        block for block in blocks_of(page)
        if block.kind != "directive" and not is_elsewhere(block) and not is_shown(block)
    ]  # fmt: skip


def needs_spark(page: str) -> bool:
    """Whether a block of the page starts Spark."""
    texts = [block.text for block in run_here(page) if block.kind in ("python", "sh")]
    return any(word in text for text in texts for word in _SPARK_WORDS)


def of_pages(pages: Sequence[str]) -> list[object]:
    """Parameters of a test; of the pages README alone is quick."""
    return [page if page == "README.md" else pytest.param(page, marks=pytest.mark.deep) for page in pages]


PLAIN = [page for page in PAGES if run_here(page) and not needs_spark(page)]
WITH_SPARK = [page for page in PAGES if run_here(page) and needs_spark(page)]


@pytest.mark.parametrize("page", of_pages(PLAIN))
def test_a_page_does_what_it_says(page: str, data: Path, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader = Reader(data, work, capsys)
    for block in run_here(page):
        reader.do(block)


@pytest.mark.spark
@pytest.mark.parametrize("page", of_pages(WITH_SPARK))
def test_a_page_with_spark_does_what_it_says(
    page: str, spark: object, data: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = Reader(data, work, capsys, spark=spark)
    for block in run_here(page):
        reader.do(block)


def test_what_is_run_elsewhere_is_on_its_page_and_has_its_test() -> None:
    for one in ELSEWHERE:
        assert [block for block in blocks_of(one.page) if is_elsewhere(block)], f"{one.page} has no {one.begins!r}"
        assert one.name in (PROJECT / one.by).read_text(encoding="utf-8"), f"{one.by} has no {one.name}"
    for page, begins, _ in SHOWN:
        assert [block for block in blocks_of(page) if is_shown(block)], f"{page} has no {begins!r}"


def test_what_needs_a_cluster_is_typed_as_in_the_tutorial() -> None:
    """Which is run with one: tests/conformance/test_replica_tutorial.py."""

    def lines(page: str) -> set[str]:
        text = "\n".join(block.text for block in blocks_of(page) if block.kind == "sh")
        found = (line.partition("  #")[0].strip() for line in text.splitlines())
        return {line for line in found if line.startswith("rmqstore replicate --namesrv")}

    tutorial = lines("docs/replica.md")
    others = {page for page in PAGES if lines(page)} - {"docs/replica.md"}
    assert "README.md" in others
    for page in others:
        assert lines(page) <= tutorial, page


@pytest.mark.parametrize(
    ("pattern", "printed", "expected"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\n…\nz", "a\nb\nc\nz\n", True),
        ("a … z", "a and z\n", True),
        ("a", "a\nb\n", False),
        ("a.c", "abc", False),
    ],
)
def test_output_is_compared(pattern: str, printed: str, expected: bool) -> None:
    assert shows(pattern, printed) is expected


def test_a_block_that_nothing_runs_is_found() -> None:
    with pytest.raises(ValueError, match="nothing runs a block of 'yaml'"):
        print(Block("README.md", 1, "yaml", "a: b\n").kind)  # noqa: T201
