"""The examples of the documentation, run as a reader would run them: one program a page."""

import re
from pathlib import Path

import pytest

from tests.conformance.odd_differences import ACCEPTED, row

PROJECT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["docs/engine.md"])
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = _BLOCK.findall((PROJECT / page).read_text(encoding="utf-8"))
    assert len(blocks) > 3
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), page, "exec"), {})


def test_every_accepted_difference_from_rocketmq_is_documented() -> None:
    """The conformance tests hold the list to RocketMQ itself."""
    page = (PROJECT / "docs/differences.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| asked")]
    assert rows == [row(one) for one in ACCEPTED]
