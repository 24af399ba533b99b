"""The examples of the documentation, run as a reader would run them: one program a page."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["docs/engine.md"])
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = _BLOCK.findall((PROJECT / page).read_text(encoding="utf-8"))
    assert len(blocks) > 3
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), page, "exec"), {})
