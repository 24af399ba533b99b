"""Peak memory of a scan above that of an interpreter that has imported the same modules: python -m
bench.bench_memory"""

import json
import subprocess
import sys
from pathlib import Path

from bench.figures import Figure
from bench.synth import MIB, StoreShape

GOAL_MIB = 300
_CHILD = """
import json, sys, threading
import rmqstore

def status():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {name: int(lines[name].split()[0]) // 1024 for name in ("VmHWM", "VmRSS", "RssAnon")}

before = status()
anonymous, rows = 0, 0
for batch in rmqstore.open_snapshot(sys.argv[1]).scan(["BenchTopic"]):
    rows += batch.num_rows
    anonymous = max(anonymous, status()["RssAnon"])
after = status()
print(json.dumps({"rows": rows, "peak": after["VmHWM"] - before["VmRSS"], "anonymous": anonymous - before["RssAnon"]}))
"""


def measure(store: Path, shape: StoreShape) -> list[Figure]:
    """Peak resident memory of a scan of the default columns in a process of its own; mapped file pages count."""
    done = subprocess.run([sys.executable, "-c", _CHILD, str(store)], capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert seen["rows"] == shape.count
    size = shape.count * shape.record_size / MIB
    return [
        Figure(
            line=f"peak memory, {shape.body_size} B bodies",
            value=seen["peak"],
            unit="MiB above the interpreter",
            against=f"a store of {size:.0f} MiB; not of files: {seen['anonymous']} MiB",
            judged=seen["peak"],
            goal=GOAL_MIB,
            at_least=False,
        )
    ]


if __name__ == "__main__":
    from bench.__main__ import run

    raise SystemExit(run(["memory"]))
