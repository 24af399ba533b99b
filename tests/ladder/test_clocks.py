"""Tests of `make test` do not look at the clock: what a busy machine changes has the mark `host`."""

import ast
from collections import ChainMap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ladder.clocks import CLOCKS, look, names_of, parsed
from tests.ladder.parts import NOT_QUICK
from tests.source import PROJECT

pytestmark = pytest.mark.source

# Functions and classes that read a clock and that tests of `make test` may use: they give a hang an end.
_ENDS_OF_HANGS = {
    "tests.crash.killed_child.told_until_killed",
    "tests.mutation.damage.no_hang",
    "tests.patience.until",
    "tests.replication.following.test_group.run_until",
    "tests.store.children.in_child",
    "tests.store.test_interrupts.no_hang",
    "tests.store.test_interrupts.opened",
}
# These make no figure of it that a test judges.
_JUDGED_BY_NOBODY = {
    "tests.cli.test_start.has_handler",  # the signals that a process handles
    "tests.crash.broker_killed_writer.FastClock",  # the clock of a program that is killed at random,
    "tests.crash.broker_killed_writer.Program",  # and its threads' pauses
    "tests.files.test_residency.locked_kib",  # pages that were locked: a count
    "tests.files.test_residency.test_no_address_space_to_map_is_told",  # the limit that it sets is above what it has
    "tests.ladder.__main__._done",  # the ladder tells the seconds of its parts,
    "tests.ladder.__main__.row_of",  # and when a part ended;
    "tests.ladder.run._end",  # what does not end by itself is killed
    "tests.spark_source.sink_kills._ancestors",  # the parent of a process
}
# Those that only tests outside `make test` may use: they make figures, or wait.
_FIGURES = {
    "tests.cli.test_start.waited",
    "tests.export.test_cost.seconds",
    "tests.remoting.test_hostile_answers.peak_kib",
    "tests.replication.following.test_hostile_masters.peak_kib",
    "tests.replication.serving.pairs.peak_kib",
    "tests.replication.serving.pairs.slowest_put_s",
    "tests.report.conftest.browser",
}
# Of these folders the test files are not in `make test` (tests/conftest.py).  The rest of them, and of some others, are
# programs and helpers: figures as well, as far as they read a clock.
_OWN_COMMANDS = {"conformance", "sail", "soak", "tables"}
_PROGRAMS = {"oracle", "teeth"}
_BROWSER = "tests.report.chromium"
_NOT_QUICK_MARKS = set(NOT_QUICK.split(" or "))


def sources_of_tests() -> dict[str, str]:
    """The source of each file of tests/, by its module."""
    paths = sorted((PROJECT / "tests").rglob("*.py"))
    return {".".join(path.relative_to(PROJECT).with_suffix("").parts): path.read_text("utf-8") for path in paths}


def is_test_file(module: str) -> bool:
    return module.rpartition(".")[2].startswith("test_")


def is_program(module: str) -> bool:
    """Whether `make test` has a module neither as a test nor as what its tests may use."""
    folder = module.split(".")[1]
    return folder in _OWN_COMMANDS or (not is_test_file(module) and (folder in _PROGRAMS or module == _BROWSER))


def readers_in(programs: dict[str, str], clocks: set[str]) -> set[str]:
    """The functions and classes of programs that read a clock, or use another that does."""
    found: set[str] = set()
    while more := {
        f"{name}.{unit.name}" for name in programs for unit, _ in look(name, programs[name], clocks | found)
    }:
        if more <= found:
            break
        found |= more
    return found


def clock_readers(sources: dict[str, str], figures: set[str]) -> dict[str, str]:
    """The functions and classes of tests that read a clock or use what `figures` names, and are in `make test` or may
    be used there; with what each reads."""
    clocks, fixtures = CLOCKS | figures, dict[str, dict[str, str]]()
    for module, source in sources.items():
        folder, _, name = module.rpartition(".")
        if name == "conftest" and not is_program(module):
            names = names_of(module, parsed(source))
            fixtures[folder] = {each: full for each, full in names.items() if full == f"{module}.{each}"}
    programs = {module: source for module, source in sources.items() if is_program(module)}
    clocks |= readers_in({module: programs[module] for module in programs if not is_test_file(module)}, clocks)
    found = {}
    for module, source in sources.items():
        if module not in programs:
            folder, _, name = module.rpartition(".")
            takes_fixtures = name == "conftest" or is_test_file(module)
            above = [fixtures[each] for each in fixtures if f"{folder}.".startswith(f"{each}.")]
            for unit, reading in look(module, source, clocks, dict(ChainMap(*above)) if takes_fixtures else {}):
                if not unit.marks & _NOT_QUICK_MARKS:
                    found[f"{module}.{unit.name}"] = reading
    return found


def test_quick_tests_do_not_look_at_the_clock() -> None:
    """What a busy machine changes is asserted under the mark `host` alone."""
    found = clock_readers(sources_of_tests(), _FIGURES)
    known = _ENDS_OF_HANGS | _JUDGED_BY_NOBODY | _FIGURES
    offences = [f"{name}: {found[name]}" for name in sorted(found.keys() - known)]
    assert offences == [], "\n".join(offences)
    assert sorted(known - found.keys()) == [], "take out what is gone"


def quick_readers(source: str) -> dict[str, str]:
    """What the check finds in a test file beside a helper that makes a figure, and a fixture that does."""
    sources = {
        "tests.store.test_one": source,
        "tests.store.figures": "import time\ndef took(): return time.monotonic()",
        "tests.store.conftest": "import time, pytest\n@pytest.fixture\ndef began(): return time.monotonic()",
        "tests.soak.load": "import time\ndef pause(): time.sleep(1)",
    }
    figures = {"tests.store.figures.took", "tests.store.conftest.began"}
    return {name: what for name, what in clock_readers(sources, figures).items() if name not in figures}


LOOKS = {
    **{name: f"import time\ndef test(): time.{name}()" for name in (
        "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
        "process_time_ns", "thread_time", "thread_time_ns",
    )},
    "sleep": "import time\ndef test(): time.sleep(0.1)",
    "asyncio.sleep": "import asyncio\nasync def test(): await asyncio.sleep(0.1)",
    "datetime.now": "from datetime import UTC, datetime\ndef test(): datetime.now(UTC)",
    "datetime.utcnow": "import datetime as d\ndef test(): d.datetime.utcnow()",
    "datetime.today": "import datetime\ndef test(): datetime.datetime.today()",
    "a name of one's own": "from time import monotonic as m\ndef test(): m()",
    "a module's name of one's own": "import time as t\ndef test(): t.sleep(1)",
    "imported late": "def test():\n    import time as t\n    t.sleep(1)",
    "handed on": "import time\ndef test(): measured(clock=time.monotonic)",
    "a default": "import time\ndef test(clock=time.monotonic): clock()",
    "an event": "from threading import Event\ndef test(): Event().wait(0.2)",
    "an event with a name": "import threading\ndef test():\n    turn = threading.Event()\n    turn.wait(0.2)",
    "an event's time that has a name": "import threading\nA_BIT = 0.2\ndef test(): threading.Event().wait(A_BIT)",
    "an event's time from elsewhere": "import threading\ndef test(pause): threading.Event().wait(pause)",
    "a condition": "def test(change): change.wait(timeout=0.2)",
    "a condition that is asked": "def test(change): change.wait_for(bool, 5)",
    "a lock": "def test(lock): assert lock.acquire(timeout=10)",
    "a thread": "def test(thread): thread.join(10)",
    "a process": "def test(child): child.communicate(timeout=20)",
    "a socket": "def test(peer): peer.settimeout(5)",
    "a connection": "import socket\ndef test(place): socket.create_connection(place, 5)",
    "select": "import select\ndef test(pipe): select.select([pipe], [], [], 0.2)",
    "select until then": "import select\ndef test(pipe, left_s): select.select([pipe], [], [], left_s)",
    "poll": "import select\ndef test(): select.poll().poll(200)",
    "selectors": "import selectors\ndef test(): selectors.DefaultSelector().select(0.2)",
    "setitimer": "import signal\ndef test(): signal.setitimer(signal.ITIMER_REAL, 0.2)",
    "alarm": "import signal\ndef test(): signal.alarm(1)",
    "a timer": "import threading\ndef test(): threading.Timer(1, print).start()",
    "the module": "import time\nBEGAN_S = time.monotonic()",
    "a class": "import time\nclass Case:\n    began_s = time.monotonic()",
    "a method": "import time\nclass TestCase:\n    def test(self): time.monotonic()",
    "a function within": "import time\ndef test():\n    def late(): return time.monotonic()\n    assert late()",
    "a fixture": "import time, pytest\n@pytest.fixture\ndef began(): return time.monotonic()",
    "a fixture of the folder": "def test(began): assert began",
    "a helper": "from tests.store.figures import took\ndef test(): assert took() < 1",
    "a helper's module": "from tests.store import figures as f\ndef test(): assert f.took() < 1",
    "a program's helper": "import tests.soak.load\ndef test(): tests.soak.load.pause()",
    "a program as text": "def test(): run('-c', 'import time as t; t.sleep(1)')",
    "a program that is indented": "PROGRAM = '''\n    from time import monotonic as m\n    m()\n'''",
    "a program with values": "def test(seconds): run(f'import time as t; t.sleep({seconds})')",
    "a part of a program": "def test(): run('-c', BEGIN + 'time.sleep(1)')",
    "a shell's sleep": "def test(): run('sh', '-c', 'echo; sleep 5')",
    "a command": "def test(): run(['sleep', '5'])",
    "psutil": "import psutil\ndef test(): psutil.Process().memory_info()",
    "tracemalloc": "from tracemalloc import get_traced_memory\ndef test(): get_traced_memory()",
    "getrusage": "from resource import RUSAGE_SELF, getrusage\ndef test(): getrusage(RUSAGE_SELF)",
    "status": "def test(): open('/proc/self/status')",
    "status of another": "def test(pid): open(f'/proc/{pid}/status')",
    "os.times": "import os\ndef test(): os.times()",
}  # fmt: skip


@pytest.mark.parametrize("source", LOOKS.values(), ids=LOOKS)
def test_a_look_at_the_clock_is_found(source: str) -> None:
    assert len(quick_readers(source)) == 1


@pytest.mark.parametrize("source", [
    "import time, pytest\n@pytest.mark.host\ndef test(): time.sleep(1)",
    "import time, pytest\npytestmark = [pytest.mark.stores, pytest.mark.host]\ndef test(): time.sleep(1)",
    "import time, pytest\n@pytest.mark.host\nclass TestCase:\n    def test(self): time.sleep(1)",
    "import pytest\nfrom tests.store.figures import took\n@pytest.mark.deep\ndef test(began): took()",
    "import asyncio\nasync def test(): await asyncio.sleep(0)",
    "import time\ndef test(monkeypatch): monkeypatch.setattr(time, 'sleep', print)",
    "from tests.patience import PATIENCE_S\ndef test(thread): thread.join(PATIENCE_S)",
    "def test(gate, lock): assert gate.wait(60) and not gate.wait(0) and lock.acquire(timeout=-1)",
    "import os\ndef test(names): return ', '.join(names), os.path.join('a', 'b')",
    "def test(consumer, time): return consumer.poll(2), time.time(), time.sleep",
    "import select\ndef test(pipe): select.select([pipe], [], [], 600), select.select([pipe], [], [])",
    "def test(): 'a page on how to sleep, on time and on monotonic clocks'",
    "def test(): open('/proc/self/fd')",
])  # fmt: skip
def test_what_looks_at_no_clock_passes(source: str) -> None:
    assert quick_readers(source) == {}


def source_marks(project: Path) -> Iterator[str]:
    """The test files with the mark `source` that the Makefile does not name for `make lint`."""
    named = (project / "Makefile").read_text(encoding="utf-8")
    for path in sorted((project / "tests").rglob("*.py")):
        name = str(path.relative_to(project))
        text = path.read_text(encoding="utf-8")
        nodes = ast.walk(parsed(text)) if "mark.source" in text else ()
        used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "source"}
        if "pytest.mark.source" in used and name not in named:
            yield name


def test_tests_of_the_source_stand_where_lint_runs_them(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "Makefile").write_text("SOURCE := tests/test_a.py\n")
    for name in "ab":
        text = "import pytest\n\n\n@pytest.mark.source\ndef test_it() -> None: ...\n"
        (tmp_path / "tests" / f"test_{name}.py").write_text(text)
    assert [*source_marks(tmp_path)] == ["tests/test_b.py"]
    assert [*source_marks(PROJECT)] == []
