"""The source of the project as modules with trees, for the tests that read it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.ladder.clocks import parsed

PROJECT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its text and its tree."""

    name: str
    text: str
    tree: ast.Module


def module_of(name: str, text: str) -> Module:
    return Module(name, text, parsed(text))


@cache
def shipped_modules() -> tuple[Module, ...]:
    """Every module that the wheel carries."""
    files = [path for top in ("rmqstore", "spark_source", "jobs") for path in sorted((PROJECT / top).rglob("*.py"))]
    files += PROJECT.glob("pyspark_*.py")
    modules = []
    for path in files:
        parts = path.relative_to(PROJECT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(module_of(name, path.read_text(encoding="utf-8")))
    return tuple(modules)


def imports_of(module: Module) -> Iterator[tuple[str, int, bool]]:
    """Every import: (dotted name, line, whether it stands inside a function or is for types only)."""
    lazy_lines: set[int] = set()
    for node in ast.walk(module.tree):
        types_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if types_only or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lazy_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for node in ast.walk(module.tree):
        lazy = getattr(node, "lineno", 0) in lazy_lines
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 1 and module.name.startswith("jobs"):
            # In the wheel the room is rmqstore.jobs, so that its modules know each other by relative names only.
            yield from ((".".join(filter(None, ("jobs", node.module, a.name))), node.lineno, lazy) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            # "from rmqstore import files" and "from rmqstore.files import reading" both name a module of the room.
            yield from ((f"{'.' * node.level}{node.module or ''}.{a.name}", node.lineno, lazy) for a in node.names)


def is_in(name: str, room: str) -> bool:
    """Whether a module is a room, or stands in it or one of its wings."""
    return name == room or name.startswith(f"{room}.")


def is_ours(name: str) -> bool:
    return name.split(".", 1)[0] in {"rmqstore", "spark_source", "jobs", "pyspark_rmqstore"}


def functions_of(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@cache
def modules_of_tests() -> tuple[Module, ...]:
    """Every Python file of the tests and benches."""
    files = [*sorted((PROJECT / "tests").rglob("*.py")), *sorted((PROJECT / "bench").rglob("*.py"))]
    return tuple(module_of(f"tests.{path.stem}", path.read_text(encoding="utf-8")) for path in files)
