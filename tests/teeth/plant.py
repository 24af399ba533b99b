"""A planted fault: what a careless change might do to the source, and the ordinary test that has to find it."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


class DoesNotFit(ValueError):
    """A plant whose text the source does not have any more, or whose test is gone: the list has to follow."""


@dataclass(frozen=True, slots=True)
class Edit:
    """In `file` (from the project's directory on), `old`, which stands there once, becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Plant:
    """`fault` names it in a line; each of `tests` (pytest's names) has to fail, with `finding` in its message: a
    regular expression that only the fault's own harm fits, so that a plant which breaks by itself is not found.
    """

    fault: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    finding: str = field(default="", kw_only=True)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it changes."""
        return tuple(dict.fromkeys(edit.file for edit in self.edits))

    def planted(self, root: Path) -> dict[str, str]:
        """The text of its files with the fault in them.  Raises DoesNotFit, also for text that is no Python."""
        texts = {name: (root / name).read_text(encoding="utf-8") for name in self.files}
        for edit in self.edits:
            count = texts[edit.file].count(edit.old)
            if count != 1 or edit.old == edit.new:
                raise DoesNotFit(f"{self.fault}: {edit.file} has this {count} times, not once:\n{edit.old}")
            texts[edit.file] = texts[edit.file].replace(edit.old, edit.new)
        for name, text in texts.items():
            try:
                compile(text, name, "exec", dont_inherit=True)
            except SyntaxError as error:
                raise DoesNotFit(f"{self.fault}: {name} is no Python any more: {error}") from error
        return texts

    def missing_tests(self, root: Path) -> Iterator[str]:
        """Those of `tests` that are not there."""
        for name in self.tests:
            path, _, function = re.sub(r"\[.*", "", name).partition("::")
            if not (root / path).is_file() or function not in _functions(root / path):
                yield name


def _functions(path: Path) -> set[str]:
    """Names of the functions of a module."""
    return {node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.FunctionDef)}


def plant(fault: str, file: str, old: str, new: str, *tests: str, finding: str) -> Plant:
    """A plant of one edit."""
    return Plant(fault, (Edit(file, old, new),), tests, finding=finding)
