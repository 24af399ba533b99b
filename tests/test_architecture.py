"""The import map, the size budgets and the naming rules of the project, read from its source.

`rmqstore/README.md` draws the map for people; this file is what holds.  A budget is raised only here, with its reason.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]

# Room, or wing of one -> the rooms that it may import, lowest first.  A module belongs to the longest name here that
# begins its own; importing within a room is free.  A room that is not in this table may not exist.
ROOMS: dict[str, set[str]] = {
    "rmqstore.errors": set(),
    "jobs": {"rmqstore", "rmqstore.errors", "spark_source"},
    "rmqstore.clock": set(),
    "rmqstore.locks": set(),
    "rmqstore.log.plan_text": set(),
    "rmqstore.arguments": {"rmqstore.errors"},
    "rmqstore.message": {"rmqstore.errors"},
    "rmqstore.worker": {"rmqstore.locks"},
    "rmqstore.annotations": {"rmqstore.arguments", "rmqstore.errors"},
    "rmqstore.snapshot.columns": {"rmqstore.arguments", "rmqstore.errors"},
    "rmqstore.stats": {"rmqstore.clock", "rmqstore.message"},
    "rmqstore.formats": {"rmqstore.annotations", "rmqstore.arguments", "rmqstore.errors", "rmqstore.message"},
    "rmqstore.stats_text": {"rmqstore.errors", "rmqstore.stats"},
    "rmqstore.files": {"rmqstore.arguments", "rmqstore.clock", "rmqstore.errors", "rmqstore.formats", "rmqstore.locks"},
    "rmqstore.records": {"rmqstore.formats"},
    "rmqstore.consumer": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.message",
    },
    "rmqstore.snapshot.request": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.snapshot.columns",
    },
    "rmqstore.snapshot.split": {"rmqstore.formats"},
    "rmqstore.config": {"rmqstore.annotations", "rmqstore.errors", "rmqstore.files", "rmqstore.formats"},
    "rmqstore.progress_file": {"rmqstore.errors", "rmqstore.files", "rmqstore.formats"},
    "rmqstore.directory": {"rmqstore.errors", "rmqstore.files", "rmqstore.formats", "rmqstore.records"},
    "rmqstore.log.encode": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.message",
        "rmqstore.records",
    },
    "rmqstore.snapshot.arrow": {
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.split",
    },
    "rmqstore.snapshot.survey": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.split",
    },
    "rmqstore.log.put": {
        "rmqstore.arguments",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.locks",
        "rmqstore.log.encode",
        "rmqstore.message",
        "rmqstore.records",
    },
    "rmqstore.snapshot.finding": {"rmqstore.directory"},
    "rmqstore.snapshot.verify": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.arrow",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.survey",
        "rmqstore.snapshot.finding",
    },
    "rmqstore.snapshot.scan": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.arrow",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.split",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.log.derived": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.locks",
        "rmqstore.log.encode",
        "rmqstore.log.put",
        "rmqstore.records",
    },
    "rmqstore.snapshot.lookup": {
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.log.get": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.log.derived",
        "rmqstore.message",
    },
    "rmqstore.log.recovery": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.derived",
        "rmqstore.log.plan_text",
        "rmqstore.records",
    },
    "rmqstore.log.retention": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.derived",
        "rmqstore.log.plan_text",
    },
    "rmqstore.snapshot.plan": {
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.split",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.log.staging": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.encode",
        "rmqstore.log.recovery",
        "rmqstore.records",
    },
    "rmqstore.snapshot.tables": {
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.log": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.derived",
        "rmqstore.log.recovery",
        "rmqstore.log.retention",
        "rmqstore.log.staging",
        "rmqstore.records",
    },
    "rmqstore.snapshot.reader": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.split",
        "rmqstore.snapshot.survey",
        "rmqstore.snapshot.tables",
    },
    "rmqstore.broker": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.locks",
        "rmqstore.log",
        "rmqstore.log.derived",
        "rmqstore.log.encode",
        "rmqstore.log.get",
        "rmqstore.log.put",
        "rmqstore.log.retention",
        "rmqstore.message",
        "rmqstore.records",
    },
    "rmqstore.snapshot": {
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.split",
    },
    "rmqstore.snapshot.stream": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.snapshot.group_start": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.reader",
    },
    "rmqstore.store_condition": {
        "rmqstore.broker",
        "rmqstore.files",
        "rmqstore.log.derived",
        "rmqstore.log.put",
        "rmqstore.log.recovery",
        "rmqstore.log.retention",
        "rmqstore.stats",
    },
    "rmqstore.store": {
        "rmqstore.annotations",
        "rmqstore.broker",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.consumer",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log",
        "rmqstore.log.derived",
        "rmqstore.log.encode",
        "rmqstore.log.get",
        "rmqstore.log.put",
        "rmqstore.log.retention",
        "rmqstore.log.staging",
        "rmqstore.message",
        "rmqstore.stats",
        "rmqstore.store_condition",
        "rmqstore.worker",
    },
    "rmqstore": {
        "rmqstore.broker",
        "rmqstore.config",
        "rmqstore.consumer",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.message",
        "rmqstore.records",
        "rmqstore.snapshot",
        "rmqstore.stats",
        "rmqstore.store",
    },
    "rmqstore.sink": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log",
        "rmqstore.log.encode",
        "rmqstore.log.put",
        "rmqstore.log.recovery",
        "rmqstore.log.staging",
        "rmqstore.message",
        "rmqstore.store",
    },
    "rmqstore.testing": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.message",
        "rmqstore.store",
    },
    "rmqstore.cli": {
        "rmqstore.arguments",
        "rmqstore",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.log",
        "rmqstore.log.recovery",
        "rmqstore.log.retention",
        "rmqstore.records",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.survey",
        "rmqstore.store",
        "rmqstore.snapshot.verify",
        "rmqstore.snapshot.finding",
    },
    "spark_source": {
        "rmqstore",
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.progress_file",
        "rmqstore.sink",
        "rmqstore.snapshot",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.group_start",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.stream",
        "rmqstore.snapshot.survey",
        "rmqstore.snapshot.tables",
    },
    "pyspark_rmqstore": {"spark_source"},
}

# Imports that leave the map only inside one function, so that the package works without Spark: (module, imported room).
LAZY_IMPORTS = {("rmqstore", "spark_source"), ("rmqstore", "pyspark"), ("rmqstore.message", "rmqstore.formats")}

# Name -> the rooms (or single modules) that may import it.
SINGLE_DOORS: dict[str, set[str]] = {
    "os": {"rmqstore.files", "jobs.demo"},  # jobs.demo: tells Spark by the environment which Python its workers run
    "mmap": {"rmqstore.files"},
    "ctypes": {"rmqstore.files"},
    "fcntl": {"rmqstore.files"},
    "shutil": {"rmqstore.files", "rmqstore.cli.output"},  # cli.output: the width of the terminal
    "tempfile": {"rmqstore.files"},
    "pyarrow": {
        "rmqstore.formats.compression",
        "rmqstore.records",
        "rmqstore.log",
        "rmqstore.broker",
        "rmqstore.store",
        "rmqstore.sink",
        "rmqstore.snapshot",
        "rmqstore.snapshot.verify",
        "rmqstore.snapshot.finding",
        "rmqstore.cli",
        "spark_source",
    },
    "zlib_ng": {"rmqstore.formats.record_crc"},
    "prometheus_client": {"rmqstore.stats_text"},
    "pytest": {"rmqstore.testing"},
    "pyspark": {"spark_source", "jobs", "pyspark_rmqstore"},
    "click": {"rmqstore.cli"},
    "rich": {"rmqstore.cli"},
}

# `formats` is pure: these, and nothing else.
PURE_IMPORTS = {
    "collections", "dataclasses", "datetime", "enum", "functools", "ipaddress", "itertools", "json", "math", "re",
    "struct", "typing", "zlib",
    "numpy",
}  # fmt: skip

# Rooms that touch files only through `rmqstore.files`, so also not through the built-in function or pathlib.
FILELESS = {
    "rmqstore.errors",
    "rmqstore.formats",
    "rmqstore.records",
    "rmqstore.directory",
    "rmqstore.snapshot",
    "spark_source",
    "pyspark_rmqstore",
}

FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500
PARAMETERS_MAX = 7

# "module" (lines), "module:function" (lines) or "module:function()" (parameters) -> (limit, reason).
LARGER_BUDGETS: dict[str, tuple[int, str]] = {
    "rmqstore.store:open_store()": (8, "what a store is opened with: each by name, with a default"),
    "rmqstore.store:__init__()": (8, "the same"),
    "rmqstore.snapshot.reader:select()": (10, "a user's query: each part has a name of its own and a default"),
    "rmqstore.snapshot.reader:scan()": (
        20,
        "the same query, and how its rows are made: each named, for who completes it",
    ),
}

BANNED_WORDS = {
    "Manager", "Helper", "Helpers", "Util", "Utils", "Common", "Misc", "Impl", "Info", "Context", "Wrapper", "Service",
}  # fmt: skip
BANNED_CLASS = re.compile(rf"(?:{'|'.join(sorted(BANNED_WORDS))})$|^_?(?:Base|Abstract)(?=[A-Z0-9]|$)")
BANNED_FILE_WORDS = {word.lower() for word in BANNED_WORDS} | {"base", "abstract"}
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|HACK|NotImplementedError)\b")


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its text and its tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The room that the module belongs to; KeyError for a module of none."""
        return room_of(self.name)


def room_of(name: str) -> str:
    """The longest room that `name` is in: the room itself, or something below it."""
    rooms = [room for room in ROOMS if name == room or (name.startswith(f"{room}.") and room != "rmqstore")]
    if not rooms:
        raise KeyError(f"{name} is in no room: give it one in ROOMS")
    return max(rooms, key=len)


def module_of(name: str, text: str) -> Module:
    return Module(name, text, ast.parse(text))


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
        elif isinstance(node, ast.ImportFrom) and node.level == 1 and module.room == "jobs":
            # In the wheel the room is rmqstore.jobs, so that its modules know each other by relative names only.
            yield from ((".".join(filter(None, ("jobs", node.module, a.name))), node.lineno, lazy) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            # "from rmqstore import files" and "from rmqstore.files import reading" both name a module of the room.
            yield from ((f"{'.' * node.level}{node.module or ''}.{a.name}", node.lineno, lazy) for a in node.names)


def is_in(name: str, room: str) -> bool:
    """Whether a module is a room, or stands in it or one of its wings."""
    return name == room or name.startswith(f"{room}.")


def is_fileless(module: Module) -> bool:
    return any(is_in(module.name, room) for room in FILELESS)


def is_ours(name: str) -> bool:
    return name.split(".", 1)[0] in {"rmqstore", "spark_source", "jobs", "pyspark_rmqstore"}


def target_room(name: str) -> str:
    """The room that an imported name leads to; a public name of `rmqstore` leads to `rmqstore` itself."""
    try:
        return room_of(name)
    except KeyError:
        return name.split(".", 1)[0]


def import_offences(module: Module) -> list[str]:
    """What `module` imports against ROOMS, SINGLE_DOORS and PURE_IMPORTS, one line each."""
    offences = []
    for name, line, lazy in imports_of(module):
        top = name.split(".", 1)[0]
        place = f"{module.name}:{line} imports {name}"
        if not top:
            offences.append(f"{place}: relative imports hide the room")
        elif is_ours(name):
            room = target_room(name)
            allowed = {module.room} | ROOMS[module.room]
            if room not in allowed and not (lazy and (module.name, room) in LAZY_IMPORTS):
                offences.append(f"{place}: {module.room} may import {', '.join(sorted(allowed))}")
        elif top in SINGLE_DOORS:
            doors = SINGLE_DOORS[top]
            if not any(is_in(module.name, door) for door in doors) and not (
                lazy and (module.name, top) in LAZY_IMPORTS
            ):
                offences.append(f"{place}: only {', '.join(sorted(doors))} may")
        elif module.room == "rmqstore.formats" and top not in PURE_IMPORTS:
            offences.append(f"{place}: formats is pure")
        elif is_fileless(module) and top in {"pathlib", "io", "glob"}:
            offences.append(f"{place}: files are read through rmqstore.files")
    return offences


def open_calls(module: Module) -> list[str]:
    """Calls of the built-in open() in a room that may not touch files."""
    if not is_fileless(module):
        return []
    return [
        f"{module.name}:{node.lineno} calls open(): files are read through rmqstore.files"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]


def functions_of(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameter_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters without self, cls and the star ones."""
    given = function.args
    names = [argument.arg for argument in given.posonlyargs + given.args + given.kwonlyargs]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def limit_of(key: str, usual: int) -> int:
    return LARGER_BUDGETS.get(key, (usual, ""))[0]


def budget_offences(module: Module) -> list[str]:
    """Modules, functions and parameter lists beyond their budget, one line each."""
    offences = []
    lines = len(module.text.splitlines())
    if lines > limit_of(module.name, MODULE_LINES_MAX):
        offences.append(f"{module.name} has {lines} lines")
    for function in functions_of(module):
        place = f"{module.name}:{function.name}"
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > limit_of(place, FUNCTION_LINES_MAX):
            offences.append(f"{place} has {lines} lines")
        if parameter_count(function) > limit_of(f"{place}()", PARAMETERS_MAX):
            offences.append(f"{place} has {parameter_count(function)} parameters")
    return offences


def naming_offences(module: Module) -> list[str]:
    """File and class names that say nothing, and words that say that something is not finished."""
    stem = module.name.rsplit(".", 1)[-1]
    offences = [f"{module.name}: a file named {word}" for word in stem.split("_") if word in BANNED_FILE_WORDS]
    offences += [
        f"{module.name}:{node.lineno} class {node.name}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and BANNED_CLASS.search(node.name)
    ]
    offences += [
        f"{module.name}:{number} {hit.group()}"
        for number, line in enumerate(module.text.splitlines(), start=1)
        if (hit := UNFINISHED.search(line))
    ]
    return offences


def test_every_module_has_a_room() -> None:
    assert len(shipped_modules()) > 1
    for module in shipped_modules():
        assert module.room in ROOMS


@pytest.mark.parametrize("check", [import_offences, open_calls, budget_offences, naming_offences])
def test_shipped_modules_keep_to(check) -> None:
    offences = [offence for module in shipped_modules() for offence in check(module)]
    assert not offences, "\n".join(offences)


def test_rooms_import_downwards_only() -> None:
    below: dict[str, set[str]] = {}
    for room, next_rooms in ROOMS.items():  # the rooms reachable from each, by widening until nothing is added
        reached = set(next_rooms)
        while further := set().union(*(ROOMS[other] for other in reached)) - reached:
            reached |= further
        below[room] = reached
    assert [room for room, reached in below.items() if room in reached] == []


def test_larger_budgets_have_a_reason_and_a_use() -> None:
    names = {module.name for module in shipped_modules()}
    places = {f"{module.name}:{function.name}" for module in shipped_modules() for function in functions_of(module)}
    for key, (limit, reason) in LARGER_BUDGETS.items():
        usual = PARAMETERS_MAX if key.endswith("()") else FUNCTION_LINES_MAX if ":" in key else MODULE_LINES_MAX
        assert key.removesuffix("()") in names | places, f"{key} is gone: take it out"
        assert limit > usual
        assert reason


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rmqstore.formats.message", "import os"),
        ("rmqstore.formats.message", "import pyarrow as pa"),
        ("rmqstore.formats.message", "import time"),
        ("rmqstore.formats.message", "from rmqstore.files import reading"),
        ("rmqstore.formats.message", "from rmqstore import files"),
        ("rmqstore.directory.walk", "from os import path"),
        ("rmqstore.directory.walk", "import mmap"),
        ("rmqstore.directory.walk", "from pathlib import Path"),
        ("rmqstore.directory.walk", "from . import rows"),
        ("rmqstore.directory.walk", "import rmqstore.cli"),
        ("rmqstore.directory.walk", "def late():\n    import pyspark"),
        ("rmqstore.files.reading", "import pyarrow"),
        ("rmqstore.files.reading", "from rmqstore.snapshot import walk"),
        ("rmqstore", "import pyspark"),
        ("rmqstore", "import spark_source"),
        ("rmqstore.cli", "from rmqstore.files import reading"),
        ("spark_source.source", "from rmqstore.files.reading import open_file"),
        ("spark_source.source", "import jobs.demo"),
        ("pyspark_rmqstore", "import rmqstore"),
        ("jobs.demo", "from .. import rmqstore"),
    ],
)
def test_a_forbidden_import_is_found(name: str, text: str) -> None:
    assert len(import_offences(module_of(name, text))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rmqstore.formats.compression", "import pyarrow as pa"),
        ("rmqstore.formats.message", "import struct\nimport numpy.typing as npt\nfrom rmqstore.errors import Corrupt"),
        ("rmqstore.files.reading", "import os, mmap\nfrom rmqstore.formats import names"),
        ("rmqstore.snapshot.scan.log_scan", "import pyarrow\nfrom rmqstore.files import reading"),
        (
            "rmqstore",
            "from rmqstore.snapshot import open_snapshot\ndef register(spark):\n    import spark_source",
        ),
        ("rmqstore.cli", "import click\nfrom rmqstore import open_snapshot"),
        ("rmqstore.cli.inspect", "import rich\nfrom rmqstore.cli import main"),
        ("pyspark_rmqstore", "from spark_source.source import DefaultSource"),
        ("jobs.demo", "import argparse\nimport rmqstore\nfrom pyspark.sql import SparkSession"),
        ("jobs.demo", "from . import printing\nfrom .printing import table"),
    ],
)
def test_an_allowed_import_passes(name: str, text: str) -> None:
    assert import_offences(module_of(name, text)) == []


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (open_calls, "def read(path):\n    return open(path)"),
        (budget_offences, "def long():\n" + "    pass\n" * FUNCTION_LINES_MAX),
        (budget_offences, "\n" * (MODULE_LINES_MAX + 1)),
        (budget_offences, "class A:\n    def many(self, a, b, c, d, e, f, *, g, h): ..."),
        (naming_offences, "class QueueManager: ..."),
        (naming_offences, "class BaseReader: ..."),
        (naming_offences, "class _AbstractReader: ..."),
        (naming_offences, "x = 1  # FIXME"),
        (naming_offences, "raise NotImplementedError"),
    ],
)
def test_an_offence_is_found(check, text: str) -> None:
    assert len(check(module_of("rmqstore.directory.walk", text))) == 1


@pytest.mark.parametrize("name", ["rmqstore.snapshot.utils", "rmqstore.files.file_helper", "rmqstore.formats.common"])
def test_a_banned_file_name_is_found(name: str) -> None:
    assert len(naming_offences(module_of(name, ""))) == 1


@pytest.mark.parametrize("name", ["rmqstore.attic", "rmqstore.attic.old", "other"])
def test_a_module_of_no_room_is_found(name: str) -> None:
    with pytest.raises(KeyError, match="in no room"):
        room_of(name)
