"""RocketMQ's own reader as the comparison: the oracle's `benchGet` on a store of which it may not change a byte."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from bench.synth import StoreShape
from tests.oracle.oracle import HERE, Oracle

VERSION = "5.3.3"


def build_if_possible() -> str:
    """Builds the oracle unless it is there.  Returns "" when it can run, else what is missing."""
    if shutil.which("java") is None:
        return "no Java on PATH"
    root = Path(os.environ.get("ORACLE_BUILD_ROOT", HERE / "target"))
    if (root / VERSION / "classpath.txt").exists():
        return ""
    if shutil.which("mvn") is None:
        return "no Maven on PATH, and the oracle is not built"
    command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), f"-Drmq={VERSION}", "process-classes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"mvn failed: {done.stdout.strip().splitlines()[0][:200]}"


class JavaReader:
    """RocketMQ with a store open.  It writes to what it opens, so it gets a directory of its own with the same
    files linked in."""

    def __init__(self, store: Path, shape: StoreShape, scratch: Path) -> None:
        linked = scratch / f"java-{store.name}"
        shutil.copytree(store, linked, copy_function=_link)
        self._oracle = Oracle(VERSION)
        config = {"mappedFileSizeCommitLog": shape.log_file_size, "mappedFileSizeConsumeQueue": shape.queue_file_size}
        config |= {"messageIndexEnable": False, "haListenPort": 0}
        opened = self._oracle.open(linked, config)
        assert opened["load"], "RocketMQ refuses the synthetic store"
        self.messages_per_second: list[float] = []
        self.count = 0

    def read(self) -> None:
        """Reads and decodes every message of BenchTopic once."""
        done = self._oracle.call("benchGet")
        self.count = int(done["n"])
        self.messages_per_second.append(float(done["perSecond"]))

    def close(self) -> None:
        """Ends the JVM."""
        self._oracle.halt()


def _link(source: str, target: str) -> str:
    if Path(source).name == "checkpoint" or "config" in Path(source).parts[-2:]:
        return shutil.copy2(source, target)
    with suppress(OSError):
        os.link(source, target)
        return target
    return shutil.copy2(source, target)
