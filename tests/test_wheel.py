"""The wheel: what it puts among its users' modules, and that it works where nothing of the project lies around."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.snapshot.small_store import small_store

pytestmark = pytest.mark.stores

PROJECT = Path(__file__).parents[1]
# Spark looks for pyspark_rmqstore, and that for spark_source.
TOP_LEVEL = {"rmqstore", "spark_source", "pyspark_rmqstore.py"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: no build directory of somebody else's leaks in, and none is left behind."""
    source = tmp_path_factory.mktemp("wheel") / "source"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "tests", "examples")
    shutil.copytree(PROJECT, source, ignore=ignored)
    command = [sys.executable, "-c", "import hatchling.build as b, sys; b.build_wheel(sys.argv[1])", str(source.parent)]
    subprocess.run(command, check=True, capture_output=True, cwd=source)
    (built,) = source.parent.glob("rmqstore-*.whl")
    return built


def test_an_archive_that_is_built_again_has_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """Whatever the times of the files."""
    source = wheel.parent / "source"
    build = "import hatchling.build as b, sys; b.build_wheel(sys.argv[1]); b.build_sdist(sys.argv[1])"
    archives = []
    for number in range(2):
        for path in source.rglob("*.py"):
            os.utime(path, (10**9 + number, 10**9 + number))
        output = tmp_path / str(number)
        output.mkdir()
        subprocess.run([sys.executable, "-c", build, str(output)], check=True, capture_output=True, cwd=source)
        archives.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert sorted(Path(name).suffix for name in archives[0]) == [".gz", ".whl"]
    assert archives[0] == archives[1]


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """The wheel unpacked, as pip does it for one that is pure Python."""
    directory = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if "__pycache__" in name]
        packed.extractall(directory)
    return directory


def _store(directory: Path) -> Path:
    return small_store().write(directory / "store")


def run_beside(directory: Path, site: Path, *arguments: str) -> str:
    """What `python ARGUMENTS` prints in `directory`, whose modules come first, with the unpacked wheel behind them.

    The project itself, which is on this interpreter's path by its editable install, is taken off that.
    """
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    hide = (
        f"import sys; sys.path[:] = [p for p in sys.path if p != {str(PROJECT)!r}]; sys.path.insert(1, {str(site)!r})"
    )
    run = f"import runpy; sys.argv = sys.argv[1:]; {arguments[0]}"
    done = subprocess.run(
        [sys.executable, "-B", "-c", f"{hide}; {run}", *arguments], capture_output=True, text=True, check=False,
        cwd=directory, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_of_a_users_own_is_shadowed(site: Path, tmp_path: Path) -> None:
    names = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert names == TOP_LEVEL
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "__init__.py").write_text("WHOSE = 'mine'")
    shown = run_beside(tmp_path, site, "import jobs, rmqstore.jobs.demo as d; print(jobs.WHOSE, d.__file__)")
    assert shown.split() == ["mine", str(site / "rmqstore" / "jobs" / "demo.py")]


def test_without_a_users_own_there_is_no_module_jobs(site: Path, tmp_path: Path) -> None:
    shown = run_beside(tmp_path, site, "import importlib.util; print(importlib.util.find_spec('jobs'))")
    assert shown.split() == ["None"]


@pytest.mark.some(7)
@pytest.mark.parametrize("name", sorted(path.stem for path in (PROJECT / "jobs").glob("*.py")))
def test_every_job_imports_under_its_installed_name(name: str, site: Path, tmp_path: Path) -> None:
    module = "rmqstore.jobs" if name == "__init__" else f"rmqstore.jobs.{name}"
    assert run_beside(tmp_path, site, f"import {module}; print(sys.modules[{module!r}].__file__)").startswith(str(site))


@pytest.mark.parametrize(
    ("name", "prog"), [("topic_to_parquet", "topic_to_parquet.py"), ("demo", "python -m rmqstore.jobs.demo")]
)
def test_a_job_runs_by_its_installed_name(name: str, prog: str, site: Path, tmp_path: Path) -> None:
    run = f"runpy.run_module('rmqstore.jobs.{name}', run_name='__main__', alter_sys=True)"
    assert run_beside(tmp_path, site, run, "--help").startswith(f"usage: {prog} [-h]")


def test_the_page_of_a_report_has_its_parts(site: Path, tmp_path: Path) -> None:
    """Script, style and the library of plots, which has to be shipped with its licence."""
    assets = {path.name for path in (site / "rmqstore" / "report" / "assets").iterdir()}
    assert assets == {"report.css", "report.js", "uPlot.LICENSE.txt", "uPlot.iife.min.js", "uPlot.min.css"}
    run_beside(tmp_path, site, "from rmqstore.cli import main; main()", "report", str(_store(tmp_path)), "-o", "r.html")
    assert "uPlot" in (tmp_path / "r.html").read_text(encoding="utf-8")
    (metadata,) = site.glob("rmqstore-*.dist-info/METADATA")
    assert "License-Expression: Apache-2.0 AND MIT\n" in metadata.read_text(encoding="utf-8")
    assert list(site.glob("rmqstore-*.dist-info/licenses/**/uPlot.LICENSE.txt"))


def test_spark_finds_the_source_by_the_wheels_modules(site: Path, tmp_path: Path) -> None:
    """Spark lists the modules called pyspark_* and takes the DefaultSource of each."""
    look = "import pkgutil, importlib; print(*[importlib.import_module(m.name).DefaultSource.name() for m in"
    look += " pkgutil.iter_modules() if m.name.startswith('pyspark_')], sys.modules['spark_source'].__file__)"
    assert run_beside(tmp_path, site, look).split() == ["rmqstore", str(site / "spark_source" / "__init__.py")]
