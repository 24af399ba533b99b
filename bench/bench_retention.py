"""Planning a round of retention over 10,000 queues of three files each, and doing it.

python -m bench.bench_retention
"""

from pathlib import Path
from time import perf_counter

import numpy as np

from bench.figures import Figure
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.engine.log.retention.plan import DiskUse, Request, RetentionPlan, RetentionPolicy, plan_retention
from rmqstore.engine.log.retention.rounds import RetainedParts, apply_retention, look
from rmqstore.files.file_sequence import FileHandles, FileSequence
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import QUEUE_ENTRY

QUEUES, GOAL_SECONDS = 10_000, 0.5
FILE_ENTRIES = 50
LOG_FILE_SIZE = 1024 * 1024
LOG_FILES = 4
RECORD_SIZE = 100
OPEN_FILES = 512


def measure(scratch: Path, *, is_small: bool = False) -> list[Figure]:
    """The first plan, which reads an entry of each file that may go, a later one, and the round itself."""
    count = QUEUES // 10 if is_small else QUEUES
    parts = _store(scratch / "retention", count)
    seconds = []
    for _ in range(3):
        began = perf_counter()
        plan = _plan(parts)
        seconds.append(perf_counter() - began)
        assert len(plan.queues) == count
        assert plan.file_count == count + 2
    began = perf_counter()
    apply_retention(plan, parts)
    applied = perf_counter() - began
    assert _plan(parts).changes_nothing
    return [
        Figure(
            line=f"retention: plan {count:,} queues", value=seconds[0], unit="s",
            against=f"again {min(seconds):.2f} s", judged=seconds[0], goal=GOAL_SECONDS, at_least=False,
        ),
        Figure(
            line=f"retention: delete {plan.file_count:,} files", value=applied, unit="s",
            against=f"{plan.file_count / applied:,.0f} files/s, each durable",
        ),
    ]  # fmt: skip


def _plan(parts: RetainedParts) -> RetentionPlan:
    request = Request(2 * LOG_FILE_SIZE, any_age=True)
    return plan_retention(look(parts, DiskUse((), 0.5), request=request), RetentionPolicy(), 0)


def _store(root: Path, count: int) -> RetainedParts:
    """Four log files, and queues of three files, of which the first leads to the first half of the log."""
    fs = RealFileSystem()
    handles = FileHandles(fs, OPEN_FILES)
    log = root / "commitlog"
    log.mkdir(parents=True)
    for number in range(LOG_FILES):
        (log / format_start(number * LOG_FILE_SIZE)).write_bytes(bytes(LOG_FILE_SIZE))
    size = FILE_ENTRIES * QUEUE_ENTRY.size
    entries = np.zeros(3 * FILE_ENTRIES, QUEUE_ENTRY.dtype)
    entries["physical_offset"] = np.linspace(0, LOG_FILES * LOG_FILE_SIZE - RECORD_SIZE, len(entries)).astype(np.int64)
    entries["size"] = RECORD_SIZE
    data = entries[:-1].tobytes().ljust(3 * size, b"\0")
    for number in range(count):
        directory = root / "consumequeue" / f"topic{number // 4}" / str(number % 4)
        directory.mkdir(parents=True)
        for part in range(3):
            (directory / format_start(part * size)).write_bytes(data[part * size : (part + 1) * size])
    queues = QueueTable(fs, handles, str(root), size)
    queues.load()
    files = _log(fs, handles, str(log))
    end = LOG_FILES * LOG_FILE_SIZE
    return RetainedParts(fs, str(root), files, queues, None, lambda: end, lambda: end, lambda: True)


def _log(fs: RealFileSystem, handles: FileHandles, directory: str) -> FileSequence:
    files = FileSequence(fs, handles, [directory], LOG_FILE_SIZE)
    files.load()
    return files


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["retention"]))
