"""The import map, the size budgets and the naming rules of the project, read from its source.

`rmqstore/README.md` draws the map for people; this file is what holds.  A budget is raised only here, with its reason.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.source import (
    PROJECT,
    Module,
    functions_of,
    imports_of,
    is_in,
    is_ours,
    module_of,
    modules_of_tests,
    parsed,
    shipped_modules,
)

pytestmark = pytest.mark.source

# The floors of the house, the lowest first, a slash between them; a name without its top is of rmqstore.  A room knows
# the floors below its own, and all of itself.  A module belongs to the longest name here that begins its own; a module
# of no room may not exist.
FLOORS = """
    errors clock core core.locks core.safe_text engine engine.log.plan_text replica cli.signals
    spark_source.job_stream spark_source.shipped spark_source.worker_errors
  / core.arguments core.message core.worker spark_source.job_table
  / core.annotations snapshot.columns engine.stats
  / formats stats_text
  / files records engine.consumer snapshot.request core.ledger_config replica.remoting replica.link
  / snapshot.split config directory engine.log.encode
  / engine.log.ledger_paths snapshot.arrow snapshot.survey engine.log.put snapshot.finding engine.log.deleted_topics
    replica.tls
  / snapshot.scan engine.log.derived snapshot.stores_in replica.serving
  / snapshot.lookup engine.log.get engine.log.recovery engine.log.retention snapshot.store_paths
  / snapshot.plan engine.log.staging dledger
  / snapshot.tables engine.log
  / snapshot.reader engine.broker
  / snapshot.opening snapshot.search
  / snapshot.verify snapshot.stream engine.engine
  / snapshot.losses snapshot.snapshot engine.store sink replica.following
  / snapshot testing replica.checking export
  / rmqstore aio report lake spark_source.partitions spark_source.options
  / spark_source.job_command cli.output spark_source.columns
  / cli.decoding cli.metrics cli.doctor cli.choices cli.inspection spark_source.batch_reader
  / cli.putting cli.replication spark_source.stream
  / cli spark_source
  / jobs command pyspark_rmqstore
"""
_TOPS = ("rmqstore", "spark_source", "jobs", "pyspark_rmqstore")
ROOMS = {
    room if room.partition(".")[0] in _TOPS else f"rmqstore.{room}": floor
    for floor, rooms in enumerate(FLOORS.split("/"))
    for room in rooms.split()
}

# Rooms with all that is in them -> those of which they know nothing, though they stand on lower floors.
_OPEN_STORES = {
    "rmqstore.engine.broker", "rmqstore.engine.engine", "rmqstore.engine.store", "rmqstore.dledger",
    "rmqstore.engine.consumer", "rmqstore.replica", "rmqstore.core.worker",
}  # fmt: skip
_WRITERS = _OPEN_STORES | {"rmqstore.engine"}
_READERS = {"rmqstore.snapshot", "rmqstore.report", "rmqstore.export", "rmqstore.lake"}
STRANGERS = (
    # Readers know no writer; an export puts into a store by the sink, a report asks when a file is due.
    ({"rmqstore.snapshot", "rmqstore.lake"}, _WRITERS | {"rmqstore.sink", "rmqstore.config"}),
    ({"rmqstore.report", "rmqstore.export"}, _OPEN_STORES),
    ({"spark_source", "pyspark_rmqstore", "jobs"}, _WRITERS | _READERS - {"rmqstore.snapshot"} | {"rmqstore.cli"}),
    # Writers know no reader; the engine alone puts a log, a broker, a group's log and a master together.
    (_WRITERS | {"rmqstore.sink"}, _READERS),
    ({"rmqstore.engine.log", "rmqstore.engine.broker"}, {"rmqstore.dledger", "rmqstore.replica"}),
    ({"rmqstore.engine.log"}, {"rmqstore.engine.stats", "rmqstore.engine.consumer"}),
    # Commands use doors, not the parts of an open store.
    (
        {"rmqstore.cli"},
        {
            "rmqstore.engine.engine",
            "rmqstore.engine.log.put",
            "rmqstore.engine.log.derived",
            "rmqstore.engine.log.staging",
        },
    ),
)

# Imports that leave the map only inside one function, so that the package works without Spark: (module, imported room).
LAZY_IMPORTS = {
    ("rmqstore", "spark_source"),
    ("rmqstore", "spark_source.shipped"),
    ("rmqstore", "pyspark"),
    ("rmqstore.core.message", "rmqstore.formats"),
}

# Name -> the rooms (or single modules) that may import it.
SINGLE_DOORS: dict[str, set[str]] = {
    # jobs.demo, job_command: tell Spark by the environment which Python its workers run; doctor: looks at what all
    # others use.
    "os": {"rmqstore.files", "jobs.demo", "spark_source.job_command", "rmqstore.cli.doctor"},
    "mmap": {"rmqstore.files", "rmqstore.cli.doctor.command"},
    "socket": {
        "rmqstore.files",
        "rmqstore.replica.remoting",
        "rmqstore.replica.serving",
        "rmqstore.replica.following",
        "rmqstore.replica.checking.ports",
        "rmqstore.cli.doctor.command",  # the name of this host
        "rmqstore.cli.metrics.scrapes",  # the family of addresses, and the end of a connection, of http.server's
        "spark_source.batch_reader",
    },
    "selectors": {"rmqstore.replica.serving"},
    "ssl": {
        "rmqstore.replica.remoting",
        "rmqstore.cli",
        "rmqstore.replica.tls",
        "rmqstore.replica.serving.peer_socket",
        "rmqstore.replica.following.connection",
    },
    "ctypes": {"rmqstore.files"},
    "fcntl": {"rmqstore.files", "rmqstore.cli.doctor.command"},
    # cli.output, job_command: the width of the terminal; metrics: the size of a disk; doctor: where a program is
    "shutil": {
        "rmqstore.files",
        "rmqstore.cli.output",
        "rmqstore.cli.metrics.serve_metrics",
        "rmqstore.cli.doctor",
        "spark_source.job_command",
    },
    "tempfile": {"rmqstore.files", "rmqstore.cli.doctor.command", "rmqstore.cli.doctor.compiled_home"},
    "pyarrow": {
        "rmqstore.core.safe_text",
        "rmqstore.formats.compression",
        "rmqstore.records",
        "rmqstore.engine.log",
        "rmqstore.engine.broker",
        "rmqstore.engine.store",
        "rmqstore.sink",
        "rmqstore.snapshot",
        "rmqstore.snapshot.verify",
        "rmqstore.snapshot.finding",
        "rmqstore.report",
        "rmqstore.snapshot.search",
        "rmqstore.export",
        "rmqstore.lake",
        "rmqstore.cli",
        "spark_source",
    },
    "pyiceberg": {"rmqstore.lake.iceberg"},
    "deltalake": {"rmqstore.lake.delta"},
    "zlib_ng": {"rmqstore.formats.record_crc"},
    "prometheus_client": {"rmqstore.stats_text", "rmqstore.cli.metrics.serve_metrics"},
    "fastavro": {"rmqstore.cli.decoding.options"},
    "google": {"rmqstore.cli.decoding.options"},
    "rocksdict": {"rmqstore.files.rocksdb"},
    "pytest": {"rmqstore.testing"},
    "pyspark": {"spark_source", "jobs", "pyspark_rmqstore"},
    "click": {"rmqstore.cli"},
    "rich": {"rmqstore.cli"},
}

# Rooms that read through the disk that is handed in, and the doors of theirs where one that is not named is the host's.
ON_ANY_DISK = {"rmqstore.directory", "rmqstore.snapshot"}
HOST_BY_DEFAULT = {
    "rmqstore.directory.store_root:found_store",
    "rmqstore.engine.log.ledger_paths:with_found_member",
    "rmqstore.snapshot.opening:look_at",
    "rmqstore.snapshot.opening:open_selected",
    "rmqstore.snapshot.opening:open_stores",
    "rmqstore.snapshot.snapshot:open_snapshot",
    "rmqstore.snapshot.store_paths:require_stores",
    "rmqstore.snapshot.store_paths:stores_below",
    "rmqstore.snapshot.stream.ends:__init__",
}
# The module of the host's disk; all else in it, and the disk that writes, is not for these rooms.
HOST_MODULE = "rmqstore.files.reading"
WORDS_OF_PATHS = {"StorePath", "canonical_path", "path_list"}

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
# Names with one underscore that their owners have for everybody: of named tuples, sys, os and notebooks.
PUBLIC_UNDERSCORES = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace", "_repr_html_"}
# How often tests use private members of what is not theirs; it only falls (164 at first).
TESTS_PRIVATE_REACHES_MAX = 16
# How often tests ask `rmqstore.testing.Probe` for all of an open store's parts; it only falls (once 117).
TESTS_ENGINE_USES_MAX = 17

BANNED_WORDS = {
    "Manager", "Helper", "Helpers", "Util", "Utils", "Common", "Misc", "Impl", "Info", "Context", "Wrapper", "Service",
}  # fmt: skip
BANNED_CLASS = re.compile(rf"(?:{'|'.join(sorted(BANNED_WORDS))})$|^_?(?:Base|Abstract)(?=[A-Z0-9]|$)")
BANNED_FILE_WORDS = {word.lower() for word in BANNED_WORDS} | {"base", "abstract"}
# An error that is an answer in an engine's own protocol.
ANSWERS = {("spark_source.batch_reader", "NotImplementedError")}
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|HACK|NotImplementedError)\b")


def room_of(name: str) -> str:
    """The longest room that `name` is in: the room itself, or something below it."""
    rooms = [room for room in ROOMS if name == room or (name.startswith(f"{room}.") and room != "rmqstore")]
    if not rooms:
        raise KeyError(f"{name} is in no room: give it one in ROOMS")
    return max(rooms, key=len)


def is_fileless(module: Module) -> bool:
    return any(is_in(module.name, room) for room in FILELESS)


def target_room(name: str) -> str:
    """The room that an imported name leads to; a public name of `rmqstore` leads to `rmqstore` itself."""
    try:
        return room_of(name)
    except KeyError:
        return name.split(".", 1)[0]


def may_import(module: Module, room: str) -> bool:
    """Whether the room, or a wing of it, is known to a module."""
    own = room_of(module.name)
    is_stranger = any(
        any(is_in(own, one) for one in rooms) and any(is_in(room, other) for other in others)
        for rooms, others in STRANGERS
    )
    return room == own or (ROOMS[room] < ROOMS[own] and not is_stranger)


def import_offences(module: Module) -> list[str]:
    """What `module` imports against FLOORS, STRANGERS, SINGLE_DOORS and PURE_IMPORTS, one line each."""
    offences = []
    for name, line, lazy in imports_of(module):
        top = name.split(".", 1)[0]
        place = f"{module.name}:{line} imports {name}"
        if not top:
            offences.append(f"{place}: relative imports hide the room")
        elif is_ours(name):
            room = target_room(name)
            if not may_import(module, room) and not (lazy and (module.name, room) in LAZY_IMPORTS):
                offences.append(f"{place}: {room} is on no floor below {room_of(module.name)}, or a stranger to it")
        elif top in SINGLE_DOORS:
            doors = SINGLE_DOORS[top]
            if not any(is_in(module.name, door) for door in doors) and not (
                lazy and (module.name, top) in LAZY_IMPORTS
            ):
                offences.append(f"{place}: only {', '.join(sorted(doors))} may")
        elif room_of(module.name) == "rmqstore.formats" and top not in PURE_IMPORTS:
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


def host_offences(module: Module) -> list[str]:
    """The host's disk in a room that reads any: named otherwise than as the default of a door, or asked by itself."""
    if not any(is_in(module.name, room) for room in ON_ANY_DISK):
        return []
    in_doors = {
        id(default)
        for function in functions_of(module)
        if f"{module.name}:{function.name}" in HOST_BY_DEFAULT
        for default in (*function.args.defaults, *function.args.kw_defaults)
    }
    offences = [
        f"{module.name}:{node.lineno} names LOCAL: take the disk that is handed in"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and node.id == "LOCAL" and id(node) not in in_doors
    ]
    for node in ast.walk(module.tree):
        named: set[str] = set()
        if isinstance(node, ast.ImportFrom):
            named = {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            named = {alias.name for alias in node.names}
        allowed = {f"{HOST_MODULE}.{word}" for word in WORDS_OF_PATHS | {"LOCAL"}}
        offences += [
            f"{module.name}:{node.lineno} imports {name}: ask the disk that is handed in"
            for name in sorted(named - allowed)
            if is_in(name, HOST_MODULE) or name == "rmqstore.files.filesystem.RealFileSystem"
        ]
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
        if (hit := UNFINISHED.search(line)) and (module.name, hit.group()) not in ANSWERS
    ]
    return offences


def private_names(tree: ast.Module) -> set[str]:
    """Names with one underscore in front that a module gives to something of its own."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            is_own = isinstance(node, ast.Name) or _is_self(node.value)
            found |= {node.id if isinstance(node, ast.Name) else node.attr} if is_own else set()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # in __slots__
            found.add(node.value)
    return {name for name in found if name.startswith("_")}


def private_reaches(module: Module) -> list[str]:
    """Uses of private members of what another module made, one line each."""
    own = private_names(module.tree)
    return [
        f"{module.name}:{node.lineno} reaches into {ast.unparse(node)}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr)
        and not _is_self(node.value) and node.attr not in own | PUBLIC_UNDERSCORES
    ]  # fmt: skip


def _is_self(node: ast.expr) -> bool:
    is_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    return is_super or (isinstance(node, ast.Name) and node.id in {"self", "cls"})


# --- circles


# Files that import each other, for types only -> why.
CIRCLES: dict[frozenset[str], str] = {}


def circles(modules: Sequence[Module]) -> list[set[str]]:
    """The files that import each other, directly or by way of others: imports in functions and for types count."""
    names = {module.name for module in modules}
    reached: dict[str, set[str]] = {}
    for module in modules:
        reached[module.name] = found = set()
        for name, _, _ in imports_of(module):
            target = name
            while target and target not in names:
                target = target.rpartition(".")[0]
            if target not in ("", module.name) and (module.name, target_room(target)) not in LAZY_IMPORTS:
                found.add(target)
    while True:  # what is reached from each, by widening until nothing is added
        wider = {name: found.union(*(reached[other] for other in found)) for name, found in reached.items()}
        if wider == reached:
            break
        reached = wider
    turning = [name for name, found in reached.items() if name in found]
    return [{other for other in turning if other in reached[name] and name in reached[other]} for name in turning]


def test_files_import_each_other_in_no_circle() -> None:
    assert {frozenset(circle) for circle in circles(shipped_modules())} == set(CIRCLES)


# --- tests


def imports_of_tests() -> Iterator[tuple[str, str]]:
    """(file, module) for every import of another test file in a test file."""
    for path in (PROJECT / "tests").rglob("*.py"):
        for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2].startswith("test_"):
                yield str(path.relative_to(PROJECT)), node.module or ""


def test_tests_import_from_no_test_file() -> None:
    assert list(imports_of_tests()) == [], "move what both need into a helper file of the folder"


def test_every_module_has_a_room_and_every_room_a_module() -> None:
    assert {room_of(module.name) for module in shipped_modules()} == ROOMS.keys()
    strangers = {name for pair in STRANGERS for names in pair for name in names}
    assert [name for name in strangers if not any(is_in(room, name) for room in ROOMS)] == []


@pytest.mark.parametrize("check", [import_offences, open_calls, host_offences, naming_offences, private_reaches])
def test_shipped_modules_keep_to(check) -> None:
    offences = [offence for module in shipped_modules() for offence in check(module)]
    assert not offences, "\n".join(offences)


def test_the_host_is_the_default_of_every_door_that_is_named() -> None:
    doors = {
        f"{module.name}:{function.name}"
        for module in shipped_modules()
        for function in functions_of(module)
        for default in (*function.args.defaults, *function.args.kw_defaults)
        if isinstance(default, ast.Name) and default.id == "LOCAL"
    }
    assert doors == HOST_BY_DEFAULT


def test_tests_reach_into_private_members_less_and_less() -> None:
    found = [reach for module in modules_of_tests() for reach in private_reaches(module)]
    assert len(found) <= TESTS_PRIVATE_REACHES_MAX, "\n".join(found)


def engine_reaches(module: Module) -> list[str]:
    """Uses of an open store's `_engine`, in code and in code that is written as text."""
    return [
        f"{module.name}:{node.lineno} reaches into _engine"
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Attribute) and node.attr == "_engine")
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and "._engine" in node.value)
    ]


def engine_uses(module: Module) -> list[str]:
    """Where `Probe(...).engine` stands."""
    return [
        f"{module.name}:{node.lineno} asks for an engine"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "engine" and ast.unparse(node.value).startswith("Probe(")
    ]


def test_tests_reach_a_store_by_the_probe() -> None:
    """`rmqstore.testing.Probe`; where that has no word for it, by its `engine`, which is counted."""
    modules = [module for module in modules_of_tests() if module.name != f"tests.{Path(__file__).stem}"]
    found = [reach for module in modules for reach in engine_reaches(module)]
    assert found == [], "\n".join(found)
    used = [use for module in modules for use in engine_uses(module)]
    assert len(used) <= TESTS_ENGINE_USES_MAX, "\n".join(used)


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
        ("rmqstore.cli", "from rmqstore.engine.log.put import commitlog"),
        ("rmqstore.snapshot.reader", "from rmqstore.engine.log.recovery import planner"),
        ("rmqstore.sink", "from rmqstore.snapshot.scan import log_scan"),
        ("spark_source.source", "from rmqstore.lake import sync"),
        ("spark_source.source", "import jobs.demo"),
        ("pyspark_rmqstore", "import rmqstore.engine.store"),
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
        ("rmqstore.cli.cat", "import rich\nfrom rmqstore.cli import main"),
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
        (host_offences, "def open_queue(root, disk=LOCAL): ..."),
        (host_offences, "def found_store(path):\n    return look(LOCAL, path)"),
        (host_offences, "from rmqstore.files.reading import OpenFile"),
        (host_offences, "from rmqstore.files import reading"),
        (host_offences, "import rmqstore.files.reading"),
        (private_reaches, "def put(store):\n    store._log.append(b'')"),
        (private_reaches, "class A:\n    def put(self):\n        self._store._log = 1"),
        (engine_reaches, "def put(store):\n    store._engine.put(b'')"),
        (engine_reaches, "PROGRAM = 'store._engine.put(b)'"),
        (engine_uses, "def end(store):\n    return Probe(store).engine.log"),
        (naming_offences, "class QueueManager: ..."),
        (naming_offences, "class BaseReader: ..."),
        (naming_offences, "class _AbstractReader: ..."),
        (naming_offences, "x = 1  # FIXME"),
        (naming_offences, "raise NotImplementedError"),
    ],
)
def test_an_offence_is_found(check, text: str) -> None:
    assert len(check(module_of("rmqstore.directory.walk", text))) == 1


@pytest.mark.parametrize("text", [
    "class A:\n    def __init__(self):\n        self._a = 1\n    def same(self, other):\n        return other._a",
    "class A:\n    __slots__ = ('_a',)\n    def of(other):\n        return other._a",
    "def of(row):\n    return row._replace(a=1)",
    "class A(B):\n    def put(self):\n        super()._put()\n        return self._b",
])  # fmt: skip
def test_what_is_ones_own_is_no_reach(text: str) -> None:
    assert private_reaches(module_of("rmqstore.directory.walk", text)) == []


def test_a_circle_is_found_also_one_for_types_only() -> None:
    files = [
        module_of("rmqstore.files.one", "from rmqstore.files import two"),
        module_of("rmqstore.files.two", "from rmqstore.files.three import Three"),
        module_of("rmqstore.files.three", "if TYPE_CHECKING:\n    from rmqstore.files.one import One"),
        module_of("rmqstore.files.four", "from rmqstore.files import one"),
    ]
    assert {frozenset(circle) for circle in circles(files)} == {frozenset(each.name for each in files[:3])}
    assert circles(files[1:]) == []


@pytest.mark.parametrize("name", ["rmqstore.snapshot.utils", "rmqstore.files.file_helper", "rmqstore.formats.common"])
def test_a_banned_file_name_is_found(name: str) -> None:
    assert len(naming_offences(module_of(name, ""))) == 1


@pytest.mark.parametrize("name", ["rmqstore.attic", "rmqstore.attic.old", "other"])
def test_a_module_of_no_room_is_found(name: str) -> None:
    with pytest.raises(KeyError, match="in no room"):
        room_of(name)
