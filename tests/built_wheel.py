"""The project as its wheel, under a name that Spark imports from."""

import shutil
import subprocess
import sys
from pathlib import Path

BUILD_SECONDS_MAX = 600
LEFT_OUT = shutil.ignore_patterns(".*", "build", "tests", "examples", "notebooks", "__pycache__")


def built_archive(project: Path, directory: Path) -> Path:
    """The wheel, built into `directory`, as rmqstore.zip: Spark takes .zip, .egg and .jar, and not .whl."""
    # Built from a copy, so that a build directory of somebody else's cannot leak in or be left behind.
    source = directory / "source"
    shutil.copytree(project, source, ignore=LEFT_OUT)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=BUILD_SECONDS_MAX)
    (wheel,) = directory.glob("rmqstore-*.whl")
    return Path(shutil.copy(wheel, directory / "rmqstore.zip"))
