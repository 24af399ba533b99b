"""Where tests look at a clock or at the memory in use, or wait for a time to pass, read from their source.

A name counts whether it is called or handed on, and whatever it was imported as; in text that is a program it counts as
well.  A wait counts as a look at the clock if a busy machine can reach its end.
"""

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

# A wait that is at least so long ends a hang and nothing else.
PATIENT_S = 60

_READ = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
CLOCKS = frozenset(
    [f"time.{name}{ns}" for name in _READ for ns in ("", "_ns")]
    + ["time.sleep", "asyncio.sleep", "asyncio.timeout", "threading.Timer", "sched.scheduler", "os.times"]
    + [f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")]
    + ["datetime.date.today", "signal.alarm", "signal.setitimer", "signal.sigtimedwait"]
    + ["select.poll", "select.epoll", "resource.getrusage", "os.wait3", "os.wait4"]
)
# Modules that are for nothing else.
_CLOCK_MODULES = frozenset({"psutil", "selectors", "timeit", "tracemalloc"})
# Of a call with this name, the argument that is a time-out in seconds.
_TIMEOUTS = {
    "wait": 0, "join": 0, "settimeout": 0, "result": 0, "wait_for": 1, "acquire": 1, "communicate": 1,
    "create_connection": 1, "select": 3,
}  # fmt: skip
_SPELLED = re.compile(
    rf"\b(?:time|asyncio)\.(?:sleep|{'|'.join(_READ)})(?:_ns)?\s*\((?!0\))"
    r"|\bsleep\s+[\d.$]|/proc/[^/\s]+/(?:status|statm?|smaps\w*|schedstat)\b|\bru_maxrss\b|\bVm(?:RSS|HWM|Peak|Size)\b"
)

Names = Mapping[str, str]


class Unit(NamedTuple):
    """A function, or a statement of a class or of the module, with the marks that pytest sees on it."""

    name: str
    node: ast.stmt
    marks: set[str]


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a module, which nobody changes."""
    return ast.parse(source)


def marks_of(nodes: Sequence[ast.expr]) -> set[str]:
    """The names of the pytest marks in decorators, or in the value of `pytestmark`."""
    return {node.attr for one in nodes for node in ast.walk(one) if isinstance(node, ast.Attribute)}


def _marks_in(body: Sequence[ast.stmt]) -> set[str]:
    """What `pytestmark` says of a module or class."""
    return marks_of([
        node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ])  # fmt: skip


def units(body: Sequence[ast.stmt], name: str = "", marks: Iterable[str] = ()) -> Iterator[Unit]:
    """The units of a module; those of a class have its name."""
    of_all = {*marks, *_marks_in(body)}
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from units(node.body, name or node.name, of_all | marks_of(node.decorator_list))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Unit(name or node.name, node, of_all | marks_of(node.decorator_list))
        else:
            yield Unit(name or "<module>", node, of_all)


def names_of(module: str, tree: ast.Module, nodes: Sequence[ast.AST] = ()) -> dict[str, str]:
    """What each name of a module is in full: what it imports, wherever it does, and its own functions and classes.

    `nodes`: all of the tree, where the caller has walked it.
    """
    found = {
        node.name: f"{module}.{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for node in nodes or ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                found[one.asname or one.name.partition(".")[0]] = one.name if one.asname else one.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            above = module.rsplit(".", node.level)[0] if node.level else ""
            begin = ".".join(filter(None, (above, node.module)))
            found |= {one.asname or one.name: f"{begin}.{one.name}" for one in node.names}
    return found


def _in_full(node: ast.AST, names: Names) -> str:
    """The full name of `a.b.c`; nothing if `a` is no name of the module's."""
    if isinstance(node, ast.Attribute):
        begin = _in_full(node.value, names)
        return begin and f"{begin}.{node.attr}"
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    return names.get(node.arg, "") if isinstance(node, ast.arg) else ""  # a fixture


def _seconds(node: ast.expr, numbers: Mapping[str, float]) -> float | None:
    """A time-out that is a number, or the name of one of the module's."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    return numbers.get(node.id) if isinstance(node, ast.Name) else None


def _numbers(nodes: Sequence[ast.AST]) -> dict[str, float]:
    """The numbers that have names in a module."""
    return {
        ast.unparse(node.targets[0]): node.value.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int | float)
    }


def _short_waits(call: ast.Call, names: Names, numbers: Mapping[str, float]) -> Iterator[str]:
    """The waits of a call that a busy machine may reach the end of; no wait at all is none."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    at = _TIMEOUTS.get(method, len(call.args))
    given = [*call.args[at : at + 1], *(each.value for each in call.keywords if each.arg == "timeout")]
    for one in given:
        seconds = _seconds(one, numbers)
        if seconds is not None and 0 < seconds < PATIENT_S:
            yield f"{method}({ast.unparse(one)})"
    is_select = _in_full(call.func, names) == "select.select"
    made_here = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call) and method == "wait"
    if given and is_select and _seconds(given[0], numbers) is None:
        yield "select.select"
    elif given and made_here and _in_full(call.func.value.func, names).startswith(("threading.", "asyncio.")):
        yield f"{method} on what nobody else knows"


def _text_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(each) or "_" for each in node.values)
    if isinstance(node, ast.List | ast.Tuple) and node.elts and _text_of(node.elts[0]) in ("sleep", "timeout"):
        return " ".join(_text_of(each) or "$" for each in node.elts)  # a command
    return ""


def _in_text(text: str) -> Iterator[str]:
    """The clocks of a program that is given as text."""
    yield from _SPELLED.findall(text)
    if "import" in text:
        try:
            program = ast.parse(textwrap.dedent(text))
        except (SyntaxError, ValueError):
            return
        nodes = [*ast.walk(program)]
        yield from readings(nodes, names_of("", program, nodes), _numbers(nodes), CLOCKS)


def readings(
    nodes: Sequence[ast.AST], names: Names, numbers: Mapping[str, float], clocks: Iterable[str]
) -> Iterator[str]:
    """What a piece of source looks at of `clocks` and of the rest that counts."""
    none = {id(each.func) for each in nodes if isinstance(each, ast.Call) and _yields_only(each)}
    for each in nodes:
        name = "" if id(each) in none else _in_full(each, names)
        if name in clocks or (name.partition(".")[0] in _CLOCK_MODULES and "." in name):
            yield name
        if isinstance(each, ast.Call):
            yield from _short_waits(each, names, numbers)
        elif text := _text_of(each):
            yield from _in_text(text)


def _yields_only(call: ast.Call) -> bool:
    """asyncio.sleep(0): the others' turn, and no time."""
    return [_seconds(each, {}) for each in call.args] == [0] and ast.unparse(call) == "asyncio.sleep(0)"


def look(
    module: str, source: str, clocks: Iterable[str] = CLOCKS, fixtures: Names | None = None
) -> Iterator[tuple[Unit, str]]:
    """The units of a module that look at a clock, each with a clock that it looks at."""
    tree = parsed(source)
    nodes = [*ast.walk(tree)]
    names, numbers = {**(fixtures or {}), **names_of(module, tree, nodes)}, _numbers(nodes)
    for unit in units(tree.body):
        if reading := next(readings([*ast.walk(unit.node)], names, numbers, clocks), None):
            yield unit, reading
