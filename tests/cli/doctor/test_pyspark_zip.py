"""`rmqstore doctor` about PySpark's zip, and `--write-pyspark-zip`: what is written, what is refused, what stays."""

import importlib.util
import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rmqstore.cli.doctor import compiled_home, pyspark_zip
from tests.cli.conftest import Run

pytestmark = pytest.mark.stores

RUNNER = "pyspark/sql/streaming/python_streaming_source_runner.py"
MODULES = {
    "pyspark/__init__.py": b"",
    "pyspark/version.py": b"__version__: str = '9.9.9'\n",
    "pyspark/sql/__init__.py": b"",
    "pyspark/sql/streaming/__init__.py": b"",
    RUNNER: b"import warnings\nwhere = (lambda: None).__code__.co_filename\n",
    "pyspark/broken.py": b"print 'an old Python'\n",
    "pyspark/tests/test_more.py": b"raise SystemExit\n",
    "pyspark/data.txt": b"as it is",
}


def zip_file(path: Path, modules: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in modules.items():
            archive.writestr(name, content)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of a Spark that there is not, as SPARK_HOME."""
    root = tmp_path / "spark"
    (root / "python" / "lib").mkdir(parents=True)
    (root / "jars").mkdir()
    (root / "bin").mkdir()
    (root / "bin" / "spark-submit").touch()
    (root / "jars" / "spark-core_2.13-9.9.9.jar").touch()
    (root / "python" / "lib" / "py4j-1-src.zip").touch()
    zip_file(zip_in(root), MODULES)
    monkeypatch.setenv("SPARK_HOME", str(root))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return root


def zip_in(root: Path) -> Path:
    return root / "python" / "lib" / "pyspark.zip"


def told(home: Path) -> tuple[str, str]:
    (fact,) = pyspark_zip.zip_facts(str(home))
    assert bool(fact.advice) is (fact.state != "good")
    return fact.state, fact.value


def wrote(run: Run, directory: object) -> dict[str, Any]:
    done = run("doctor", "--write-pyspark-zip", directory, "--json")
    assert done.exit_code == 0, done.output
    return {fact["name"]: fact for fact in json.loads(done.stdout)["facts"]}


def imported(path: Path, what: str) -> str:
    text = f"import {RUNNER.removesuffix('.py').replace('/', '.')} as it; print({what})"
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(path)},
    )
    return done.stdout.strip()


def everything(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_what_an_installation_pays_is_told(home: Path) -> None:
    state, said = told(home)
    assert state == "odd"
    assert "s of CPU for each stream" in said
    assert said.endswith("has no compiled modules")


def test_a_vendor_s_version_has_other_marks_in_the_jar(home: Path) -> None:
    (home / "jars" / "spark-core_2.13-9.9.9.jar").rename(home / "jars" / "spark-core_2.13-9.9.9-amzn-0.jar")
    zip_file(zip_in(home), MODULES | {"pyspark/version.py": b"__version__ = '9.9.9+amzn.0'\n"})
    assert told(home)[0] == "odd"


def test_a_home_of_links_has_compiled_modules_and_leaves_the_installation_alone(
    run: Run, home: Path, tmp_path: Path
) -> None:
    before = everything(home)
    facts = wrote(run, tmp_path / "made")
    made = tmp_path / "made"
    assert f"export SPARK_HOME={made}" in facts["written"]["value"]
    assert facts["pyspark.zip"]["state"] == "odd"  # one module does not compile
    assert everything(home) == before
    assert os.readlink(made / "bin") == str(home / "bin")
    assert os.readlink(made / "jars" / "spark-core_2.13-9.9.9.jar") == str(home / "jars" / "spark-core_2.13-9.9.9.jar")
    assert os.readlink(made / "python" / "lib" / "py4j-1-src.zip") == str(home / "python" / "lib" / "py4j-1-src.zip")
    with zipfile.ZipFile(zip_in(made)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist() if not name.endswith(".pyc")} == MODULES
        added = {name for name in archive.namelist() if name.endswith(".pyc")}
    assert added == {f"{name}c" for name in MODULES if name.endswith(".py") and "tests" not in name} - {
        "pyspark/broken.pyc"
    }
    assert imported(zip_in(made), "it.__file__").endswith("runner.pyc")
    assert imported(zip_in(made), "it.where") == f"{zip_in(made)}/{RUNNER}"


def test_tracebacks_show_lines_of_the_zip(run: Run, home: Path, tmp_path: Path) -> None:
    zip_file(zip_in(home), MODULES | {RUNNER: b"def fail():\n    raise ValueError('here')\n"})
    wrote(run, tmp_path / "made")
    shown = imported(zip_in(tmp_path / "made"), "[it.fail()] if False else __import__('inspect').getsource(it.fail)")
    assert "raise ValueError('here')" in shown


def test_twice_and_after_an_upgrade_is_as_once(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    wrote(run, made)
    first = everything(made)
    monkeypatch.setenv("SPARK_HOME", str(made))
    wrote(run, made)
    assert everything(made) == first
    (home / "jars" / "spark-core_2.13-9.9.9.jar").rename(home / "jars" / "spark-core_2.13-9.9.10.jar")
    assert told(made)[0] == "broken"
    zip_file(zip_in(home), MODULES | {"pyspark/version.py": b"__version__ = '9.9.10'\n"})
    wrote(run, made)
    assert sorted(os.listdir(made / "jars")) == ["spark-core_2.13-9.9.10.jar"]
    assert "compiled" in told(made)[1]
    assert sorted(os.listdir(tmp_path)) == ["made", "spark"]


@pytest.mark.parametrize("place", ["conf/spark-defaults.conf", "jars/my.jar", "NOTES", "python/lib/more.zip", "bin2"])
def test_what_its_user_put_there_is_not_deleted(place: str, run: Run, home: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    wrote(run, made)
    (made / place).parent.mkdir(exist_ok=True)
    if place == "bin2":
        (made / place).symlink_to(tmp_path)
    else:
        (made / place).write_text("mine", encoding="utf-8")
    before = everything(made)
    failed = run("doctor", "--write-pyspark-zip", made)
    assert failed.exit_code == 1
    assert (
        f"holds {place.split('/', maxsplit=1)[0] if place.startswith('conf') else place}, which this command did not"
        in failed.stderr
    )
    assert everything(made) == before


def test_the_installation_itself_keeps_its_zip_beside(run: Run, home: Path) -> None:
    original = zip_in(home).read_bytes()
    zip_in(home).chmod(0o644)
    for _ in range(2):
        assert ".orig" in wrote(run, home)["written"]["value"]
        assert (home / "python" / "lib" / "pyspark.zip.orig").read_bytes() == original
    assert stat.S_IMODE(zip_in(home).stat().st_mode) == 0o644
    assert imported(zip_in(home), "it.__file__").endswith("runner.pyc")
    assert sorted(os.listdir(home / "python" / "lib")) == ["py4j-1-src.zip", "pyspark.zip", "pyspark.zip.orig"]


def test_modules_of_another_python_are_told_and_still_imported(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_home, "MAGIC_NUMBER", b"\x01\x02\r\n")
    wrote(run, home)
    state, said = told(home)
    assert state == "odd"
    assert "another Python compiled" in said
    assert imported(zip_in(home), "it.__file__").endswith("runner.py")
    monkeypatch.undo()
    assert importlib.util.MAGIC_NUMBER == compiled_home.MAGIC_NUMBER


def test_workers_of_another_python_are_refused(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho 01020d0a\n")
    other.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    done = run("doctor", "--write-pyspark-zip", tmp_path / "made")
    assert done.exit_code != 0
    assert "is a different Python than this one" in done.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("place", ["full", "file", "spark/inside", ".", "full/no/such", ""])
def test_other_places_are_refused_and_left_as_they_are(
    place: str, run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("keep")
    (tmp_path / "file").write_text("keep")
    before = everything(tmp_path)
    done = run("doctor", "--write-pyspark-zip", place)
    assert done.exit_code not in (0, None)
    assert "Traceback" not in done.output
    assert everything(tmp_path) == before
    assert home.is_dir()


@pytest.mark.parametrize("state", ["absent", "damaged", "no spark"])
def test_without_a_zip_that_can_be_read(
    state: str, run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if state == "damaged":
        zip_in(home).write_bytes(b"PK no zip")
        assert told(home)[0] == "broken"
    elif state == "absent":
        zip_in(home).unlink()
        assert told(home)[0] == "good"
    else:
        monkeypatch.setattr(compiled_home, "spark_home", lambda: None)
    done = run("doctor", "--write-pyspark-zip", tmp_path / "made")
    assert done.exit_code not in (0, None)
    assert "Traceback" not in done.output
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("moment", ["compiling", "renaming"])
def test_an_interrupt_leaves_what_was_there(
    moment: str, run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    wrote(run, made)
    before = everything(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    if moment == "compiling":
        monkeypatch.setattr(compiled_home, "source_hash", interrupted)
    else:
        renames, rename = iter((False, True, False)), os.rename

        def rename_or_stop(old: str, new: str) -> None:
            return interrupted() if next(renames) else rename(old, new)

        monkeypatch.setattr(compiled_home.os, "rename", rename_or_stop)
    for place in (made, home) if moment == "compiling" else (made,):
        with pytest.raises(KeyboardInterrupt):
            list(compiled_home.write_home(str(place)))
        assert everything(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["made", "spark"]


def test_a_disk_that_refuses(run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    before = everything(tmp_path)
    monkeypatch.setattr(compiled_home.tempfile, "mkdtemp", refused)
    monkeypatch.setattr("os.open", refused)
    for place in (tmp_path / "made", home):
        done = run("doctor", "--write-pyspark-zip", place)
        assert done.exit_code not in (0, None)
        assert "Read-only file system" in done.stderr
    monkeypatch.undo()
    assert everything(tmp_path) == before


def test_it_goes_without_a_store(run: Run, tmp_path: Path) -> None:
    assert run("doctor", "--write-pyspark-zip", tmp_path / "made", tmp_path).exit_code == 2


_IN_SPARK = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
def module(batches):
    import pyspark, pyarrow as pa
    yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})
print(spark.range(1).mapInArrow(module, "file string").collect()[0].file)
spark.stop()
"""


@pytest.mark.deep
@pytest.mark.spark
def test_spark_starts_from_it_and_its_workers_import_compiled_modules(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    facts = wrote(run, tmp_path / "made")
    assert facts["pyspark.zip"]["state"] == "good"
    done = subprocess.run(
        [sys.executable, "-c", _IN_SPARK], capture_output=True, text=True, check=True,
        env={**os.environ, "SPARK_HOME": str(tmp_path / "made"), "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.stdout.strip() == f"{zip_in(tmp_path / 'made')}/pyspark/__init__.pyc"
