"""The parts of the ladder of tests.  A test is in a part by its markers; the folder that it stands in does not matter.

A test without a marker is in `unit`, and has to be quick there: see times.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest

from tests.crash.strides import every

# What `make test` leaves out.
NOT_QUICK = "source or deep or host or browser or teeth or mutation"
_QUICK = f"not ({NOT_QUICK})"
_REPEATABLE = ("--hypothesis-profile=repeatable",)
_BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder")
# A session lives for a minute: what its second compiler would gain costs more than it brings, a third of all.
_SHORT_JVM = MappingProxyType({"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
# The slowest test took 120 s on a machine that did much else.
_QUICK_HANG_S = 900.0


@dataclass(frozen=True, slots=True)
class Part:
    """`marks`: its tests, as pytest's -m takes them; or `command`: one of the Makefile's.

    `needs`: tools that have to be there, as scripts/check_environment.sh names them.  `workers`: how many processes
    pytest-xdist has; 0: none.  `hang_s`: a run in which no test ends for so long hangs, and is ended; a command is not.
    `is_on_disk`: what its tests write goes to a disk, not to memory; that of a command does anyway.
    """

    name: str
    what: str
    marks: str = ""
    command: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    workers: int = 2
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    hang_s: float = 3600.0
    is_on_disk: bool = False


QUICK = (
    Part(
        "unit", "the parts of the product one by one", f"{_QUICK} and not stores and not spark",
        options=_REPEATABLE, hang_s=_QUICK_HANG_S,
    ),
    Part(
        "stores", "whole stores and programs", f"{_QUICK} and stores and not spark",
        options=_REPEATABLE, hang_s=_QUICK_HANG_S,
    ),
    Part(
        "spark", "the source in Spark", f"{_QUICK} and spark", needs=("java",),
        options=(*_REPEATABLE, *_BY_FILE), environment=_SHORT_JVM, hang_s=_QUICK_HANG_S,
    ),
)  # fmt: skip

_WHOLE = MappingProxyType({"RMQSTORE_SWEEPS": "whole"})
_MANY = MappingProxyType({"RMQSTORE_MUTATION_EXAMPLES": "300"})
_JAVA, _MAVEN = ("java",), ("java", "mvn")

DEEP = (
    Part("conformance", "RocketMQ's own code and brokers", command=("make", "conformance"), needs=_MAVEN),
    Part(
        "slow", "what takes long: all golden stores, deep sweeps of parts",
        "deep and not (spark or host or crash or mutation or teeth or browser)",
    ),
    Part(
        "sweeps", "a crash and a failure at every operation; kills",
        "crash and not (spark or host or mutation or teeth)", environment=_WHOLE,
    ),
    Part("host", "clocks, memory, hostile peers", "host and not spark", workers=0, is_on_disk=True),
    Part("browser", "the page of `rmqstore report` in Chromium", "browser", needs=("chromium",), workers=0),
    Part(
        "spark-deep", "streams, sinks, clusters, jobs, notebooks", "spark and (deep or host)", needs=_JAVA,
        options=_BY_FILE, environment=_SHORT_JVM,
    ),
    Part(
        "examples", "examples of hypothesis: new ones, a thousand a test", f"{_QUICK} and hypothesis and not spark",
        options=("--hypothesis-profile=many",),
    ),
    Part("mutation", "random damage to every kind of file", "mutation", environment=_MANY),
    Part("flips", "every bit of a small store turned over", command=("make", "flips")),
    Part("sim", "a master and a slave: 2,000 lives", command=("make", "sim", "N=2000")),
    Part("teeth", "planted faults, which the tests have to find", command=("make", "teeth")),
    Part("tables", "Delta and Iceberg tables by Java's libraries", command=("make", "test-tables"), needs=_MAVEN),
    Part("sail", "the source in Sail", command=("make", "test-sail")),
    Part("bench", "every bench, on small stores", command=("make", "bench", "ARGS=--small"), needs=_JAVA),
    Part("soak", "a stream under kills, ten minutes", command=("make", "soak", "N=60"), needs=_JAVA),
    Part("matrix", "the Spark tests on PySpark 4.0 to 4.3", command=("make", "test-matrix"), needs=_JAVA),
)  # fmt: skip


def left_out(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The cases that a mark `some(n)` leaves to `make deep`: all but every n-th of a test's cases, in the order of
    their names, beginning at the run's residue."""
    by_test: defaultdict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("some"):
            by_test[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (_, distance), cases in by_test.items():
        taken = {item.nodeid for item in every(distance, sorted(cases, key=lambda item: item.nodeid))}
        yield from (item for item in cases if item.nodeid not in taken)
