"""The fenced blocks of the README and of the pages in docs/, and what becomes of each.

A page is one story: its blocks run in their order, in one directory, by `Reader`:

- `python` blocks are one program.  One that begins with a comment which is nothing but the name of a file
  (`# conftest.py`) is that file, for a later block to use.
- `sh` blocks are typed into a shell, command by command as they stand, and have to end with 0; what they export stays.
  So are blocks without a language that begin with a command of COMMANDS.
- a `text` block is what the block before it shows, where that shows anything: `…` stands for what is left out.
- `{eval-rst}` is for `make docs`, which fails on whatever is wrong there.
- A job (`python jobs/…`, `spark-submit … jobs/…`) is run in the process of the test, with the arguments that stand
  there: Java is started once.

Only places differ from what a reader types: `/data/` and `build/` at the beginning of a path are below a directory of
the test's own, and ports of the page are free ones.  What cannot be run like that stands in elsewhere.py with what
runs it.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

PROJECT = Path(__file__).parents[2]
PAGES = ("README.md", *sorted(str(path.relative_to(PROJECT)) for path in (PROJECT / "docs").rglob("*.md")))
COMMANDS = ("rmqstore", "python", "pip", "make", "openssl", "spark-submit", "export", "cp", "pytest")
_FILE = re.compile(r"# ([\w./-]+\.py)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line in the page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def kind(self) -> str:
        """python, file, sh, text or directive.  Raises ValueError for a language that nothing here runs."""
        if self.language == "python":
            return "file" if _FILE.match(self.text) else "python"
        if self.language == "sh" or (not self.language and self.text.split(maxsplit=1)[0] in COMMANDS):
            return "sh"
        if self.language in ("", "text"):
            return "text"
        if self.language == "{eval-rst}":
            return "directive"
        raise ValueError(f"{self.where}: nothing runs a block of {self.language!r}")

    @property
    def where(self) -> str:
        """Page and line, as an editor finds them."""
        return f"{self.page}:{self.line}"

    @property
    def first_line(self) -> str:
        """By which elsewhere.py knows it."""
        return self.text.splitlines()[0]

    @property
    def file_name(self) -> str:
        """Of a file that a block is."""
        found = _FILE.match(self.text)
        assert found is not None
        return found[1]


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page, in their order."""
    text = (PROJECT / page).read_text(encoding="utf-8")
    fences = [token for token in MarkdownIt().parse(text) if token.type == "fence"]
    return [Block(page, (fence.map or [0])[0] + 2, fence.info.strip(), fence.content) for fence in fences]


def shows(pattern: str, printed: str) -> bool:
    """Whether a block of output is what was printed; `…` on a line of its own is any lines, within a line any text."""
    lines = [
        "(?:.*\n)*" if line.strip() == "…" else ".*?".join(map(re.escape, line.rstrip().split("…"))) + " *\n"
        for line in pattern.strip("\n").splitlines()
    ]
    return re.fullmatch("".join(lines), printed.strip("\n") + "\n") is not None
