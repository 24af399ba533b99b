"""Very many queues, very many log files, a huge sparse log: looks at a store and openings of it, in CPU seconds and
peak memory.

    python -m bench.bench_many [QUEUES [LOG_FILES]]

Every line is measured in a process of its own.  By default 100,000 queues of four messages in 12,500 topics, and 10,000
log files.  The sparse log says that it has 8 TiB.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from bench.figures import Figure
from rmqstore import StoreConfig, open_store

QUEUES, LOG_FILES = 100_000, 10_000
TOPIC_QUEUES, ROWS = 8, 4
_TOPICS_AT_ONCE = 1000
_MANY_QUEUES = StoreConfig(flush="ASYNC", queue_file_size=200, log_file_size=1 << 26, retention=False)
_MANY_FILES = StoreConfig(flush="ASYNC", log_file_size=4096, retention=False, preallocate=False)
_SPARSE_SIZE = 1 << 43
# CPU seconds, for the numbers by default: of many queues, then of many log files and of the sparse log.
_QUEUE_GOALS = {"plan of one topic": 1.0, "plan of all": 10.0, "scan of all": 20.0, "open for writing": 10.0}
_FILE_GOALS = {"open for reading": 2.0, "open for writing": 2.0}
_SPARSE_GOAL_MIB = 64
_CHILD = """
import json, sys, time
import rmqstore
from rmqstore import StoreConfig, open_store
from rmqstore.snapshot import ScanRequest, SplitBudget, open_selected, open_snapshot

def status(name):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(lines[name].split()[0]) / 1024

root, what = sys.argv[1:3]
before, began = status("VmRSS"), time.process_time()
if what == "open for writing":
    open_store(root, StoreConfig(retention=False, **json.loads(sys.argv[3])), workers=False)
elif what == "open for reading":
    open_snapshot(root)
elif what == "scan of all":
    assert sum(batch.num_rows for batch in open_snapshot(root).scan()) == int(sys.argv[3])
else:
    chosen = {"topics": ["t00001"]} if what == "plan of one topic" else {}
    snapshot = open_selected(root, chosen)
    assert snapshot.plan(snapshot.select(**chosen), ScanRequest(), SplitBudget())
print(json.dumps({"seconds": time.process_time() - began, "peak": status("VmHWM") - before}))
"""


def measure(scratch: Path, *, queue_count: int = QUEUES, log_file_count: int = LOG_FILES) -> list[Figure]:
    """A store of many small queues, then one of many log files.  The openings for writing come last: they are not
    closed again.
    """
    queues, files = scratch / "very-many-queues", scratch / "very-many-log-files"
    write_many_queues(queues, queue_count // TOPIC_QUEUES)
    write_many_log_files(files, log_file_count)
    sizes = json.dumps({"queue_file_size": _MANY_QUEUES.queue_file_size, "log_file_size": _MANY_QUEUES.log_file_size})
    name, goals = f"{queue_count:,} queues", _QUEUE_GOALS if queue_count == QUEUES else {}
    of_queues = [
        _figure(queues, name, what, goals, *more)
        for what, more in (
            ("plan of one topic", ()),
            ("plan of all", ()),
            ("scan of all", (str(queue_count // TOPIC_QUEUES * TOPIC_QUEUES * ROWS),)),
            ("open for writing", (sizes,)),
        )
    ]
    sizes = json.dumps({"log_file_size": _MANY_FILES.log_file_size, "preallocate": False})
    name, goals = f"{log_file_count:,} log files", _FILE_GOALS if log_file_count == LOG_FILES else {}
    return [
        *of_queues,
        _figure(files, name, "open for reading", goals),
        _figure(files, name, "open for writing", goals, sizes),
        _sparse_figure(scratch / "sparse-log"),
    ]


def write_many_queues(path: Path, topic_count: int) -> None:
    """Topics t00000 and on, of TOPIC_QUEUES queues with ROWS messages each, closed cleanly."""
    with open_store(path, _MANY_QUEUES, workers=False) as store:
        for low in range(0, topic_count, _TOPICS_AT_ONCE):
            topics = range(low, min(low + _TOPICS_AT_ONCE, topic_count))
            names = [f"t{number:05d}" for number in topics for _ in range(TOPIC_QUEUES * ROWS)]
            ids = pa.array([queue for _ in topics for queue in range(TOPIC_QUEUES) for _ in range(ROWS)], pa.int32())
            bodies = pa.array([b"x" * 50] * len(names))
            store.put_columns(pa.table({"topic": names, "body": bodies, "queueId": ids}))


def write_many_log_files(path: Path, count: int) -> None:
    """A log of `count` files, or one more, with two messages each, closed cleanly."""
    with open_store(path, _MANY_FILES, workers=False) as store:
        for low in range(0, count, _TOPICS_AT_ONCE):
            rows = 2 * min(_TOPICS_AT_ONCE, count - low)
            store.put_columns(pa.table({"topic": ["t"] * rows, "body": [bytes(1700)] * rows}))


def write_sparse_log(path: Path) -> None:
    """A few messages in a log file whose size says 8 TiB, on a disk that knows holes."""
    write_many_queues(path, 1)
    (log,) = (path / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.truncate(_SPARSE_SIZE)


def _measured(store: Path, what: str, *more: str) -> dict[str, float]:
    command = [sys.executable, "-c", _CHILD, str(store), what, *more]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    seen: dict[str, float] = json.loads(found)
    return seen


def _sparse_figure(store: Path) -> Figure:
    write_sparse_log(store)
    seen = _measured(store, "open for reading")
    return Figure(
        line=f"a sparse log of {_SPARSE_SIZE >> 40} TiB: open for reading",
        value=seen["peak"],
        unit="MiB",
        against=f"peak above the interpreter, in {seen['seconds']:.2f} CPU s",
        judged=seen["peak"],
        goal=_SPARSE_GOAL_MIB,
        at_least=False,
    )


def _figure(store: Path, name: str, what: str, goals: Mapping[str, float], *more: str) -> Figure:
    seen = _measured(store, what, *more)
    return Figure(
        line=f"{name}: {what}",
        value=seen["seconds"],
        unit="CPU s",
        against=f"peak {seen['peak']:,.0f} MiB above the interpreter",
        judged=seen["seconds"],
        goal=goals.get(what),
        at_least=False,
    )


if __name__ == "__main__":
    import tempfile

    from bench.figures import table

    counts = dict(zip(("queue_count", "log_file_count"), map(int, sys.argv[1:]), strict=False))
    with tempfile.TemporaryDirectory(prefix="rmqstore-bench-") as scratch:
        print(table(measure(Path(scratch), **counts)))
