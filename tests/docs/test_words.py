"""Words that a native reader stumbles over, and pages that are named and are not there."""

import re
from collections.abc import Iterator

import pytest

from tests.source import PROJECT

pytestmark = pytest.mark.source

FOR_WHO = re.compile(r"\b(?:for|to|by|of) who\b")
# In what is shipped and in the pages: *again*, *after* (behind is for lag alone), and a docstring that names its thing.
STUMBLES = re.compile(r"\banew\b|\bbehind (?:it|them|that|what|the (?:end|last|first|one))\b|\"\"\"What ")
A_LINK = re.compile(r"https?://\S+")  # to a page of somebody else's
A_PAGE = re.compile(r"(?<![\w/.*-])([\w./-]*\w\.md)\b")


def written_files() -> Iterator[tuple[str, str]]:
    """Source, tests and pages of the project with their text: what a reader meets."""
    tops = ("rmqstore", "spark_source", "jobs", "examples", "docs", "tests", "bench")
    paths = [path for top in tops for path in (PROJECT / top).rglob("*") if path.suffix in (".py", ".md")]
    for path in [*paths, *PROJECT.glob("*.md"), *PROJECT.glob("*.py")]:
        name = str(path.relative_to(PROJECT))
        if "golden" not in path.parts and name not in ("tests/docs/test_words.py", "CHANGELOG.md"):
            yield name, path.read_text(encoding="utf-8")


def word_offences(name: str, text: str) -> list[str]:
    """Lines that a native reader stumbles over, and lines that name a page which the project does not have."""
    offences = [f"{name}:{number} says 'for who': whoever, or name the caller: {line.strip()}"
             for number, line in enumerate(text.splitlines(), start=1) if FOR_WHO.search(line)]  # fmt: skip
    if not name.startswith(("tests/", "bench/", "CONTRIBUTING")):
        offences += [
            f"{name}:{number} {hit.group()!r}: after, again, or name the thing: {line.strip()}"
            for number, line in enumerate(text.splitlines(), start=1)
            if (hit := STUMBLES.search(line))
        ]
    for number, line in enumerate(text.splitlines(), start=1):
        places = (PROJECT, PROJECT / "docs", (PROJECT / name).parent)
        pages = A_PAGE.findall(A_LINK.sub("", line))
        offences += [f"{name}:{number} names {page}, which is not there" for page in pages
                     if page != "HOW.md" and not any((place / page).exists() for place in places)]  # fmt: skip
        if "store-format" in line:
            offences.append(f"{name}:{number} names store-format, which is not there: docs/formats.md")
    return offences


def test_words_and_the_pages_that_are_named() -> None:
    offences = [offence for name, text in written_files() for offence in word_offences(name, text)]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    "text",
    [
        "a note for who reads",
        "by who can act",
        "see nowhere.md",
        "as store-format says",
        "built anew",
        "zeros behind it",
        '"""What is there."""',
    ],
)
def test_a_word_is_found(text: str) -> None:
    assert len(word_offences("docs/engine.md", text)) == 1
    assert word_offences("docs/engine.md", "for whoever reads, see formats.md and docs/recovery.md") == []
