"""The navigation of the site is what docs/index.md lists, and leaves no page out."""

import runpy
from typing import Any

import pytest

from tests.docs.blocks import PAGES, PROJECT

pytestmark = pytest.mark.stores

INDEX = (PROJECT / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def conf() -> dict[str, Any]:
    return runpy.run_path(str(PROJECT / "docs" / "conf.py"))


def test_what_is_listed_is_there_once(conf: dict[str, Any]) -> None:
    pages = {page.removesuffix(".md") for page in PAGES}
    made = conf["navigation"](INDEX, pages)
    listed = [line.split("<")[1].rstrip(">") for line in made.splitlines() if line.endswith(">")]
    assert len(listed) > 30
    assert len(listed) == len(set(listed))
    assert [page for page in listed if not (PROJECT / "docs" / page).exists()] == []


def test_a_page_that_no_list_names_stands_last(conf: dict[str, Any]) -> None:
    made = conf["navigation"](
        "# Pages\n\n## Start\n\n- [Jobs](jobs.md): first\n", {"docs/jobs", "docs/two", "docs/index"}
    )
    assert [line for line in made.splitlines() if line and line[0] not in "`:"] == ["Jobs <jobs.md>", "/docs/two"]
