"""CPU seconds of this process and all that it started, and the machine that they were spent on."""

import os
import platform
import time
from collections.abc import Collection
from importlib import metadata
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PACKAGES = ("pyspark", "pyarrow", "numpy")
# Fields of /proc/<pid>/stat after the name of the program: the parent, and four times in ticks, those of children that
# have ended among them.
_PARENT, _TIMES = 1, slice(11, 15)


def tree_seconds(without: Collection[int] = ()) -> float:
    """CPU seconds of this process and those below it, but for those below the process ids `without`."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(entry.name)] = int(fields[_PARENT])
        ticks[int(entry.name)] = sum(map(int, fields[_TIMES]))
    own = os.getpid()
    return sum(count for process, count in ticks.items() if _is_below(process, own, parents, without)) / _TICKS


def _is_below(process: int, top: int, parents: dict[int, int], without: Collection[int]) -> bool:
    while process not in without:
        if process == top:
            return True
        if process not in parents:
            return False
        process = parents[process]
    return False


def machine() -> dict[str, str]:
    """The circumstances of figures, for people: when, on what, with which versions."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    models = {line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = [f"{name} {metadata.version(name)}" for name in _PACKAGES]
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{os.cpu_count()} cores of {', '.join(sorted(models)) or 'a processor'}, {memory:.0f} GiB",
        "versions": ", ".join((f"Python {platform.python_version()}", *versions)),
    }
