"""`rmqstore doctor`: facts as they are, advice where something is wrong, and nothing written."""

import json
import os
import re
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rmqstore import Message, StoreConfig, open_store
from rmqstore.cli.doctor import command, machine, pyspark_zip, stores
from tests.cli.conftest import Run, last_line

pytestmark = pytest.mark.stores

Facts = dict[tuple[str, str], dict[str, Any]]


def facts_of(run: Run, *arguments: object, status: int = 0) -> Facts:
    done = run("doctor", *arguments, "--json")
    assert done.exit_code == status, done.stdout
    document = json.loads(done.stdout)
    assert document["isSound"] is (status == 0)
    found = {}
    for fact in document["facts"]:
        assert set(fact) == {"area", "name", "value", "state", "advice"}
        assert bool(fact["advice"]) is (fact["state"] != "good"), fact
        assert "\n" not in fact["value"] + fact["advice"]
        found[fact["area"], fact["name"]] = fact
    return found


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What importing PySpark costs is measured in test_pyspark_zip.py."""
    monkeypatch.setattr(pyspark_zip, "import_seconds", lambda program, home: 0.7)


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which everything is as it should be."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", StoreConfig(preallocate=False)) as one:
        one.put(Message("orders", b"x"))
    return tmp_path / "store"


def tree(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        found[str(path)] = status.st_ino, status.st_size, status.st_mtime_ns
    return found


@pytest.mark.usefixtures("sound")
def test_a_sound_machine_is_told_as_it_is(run: Run, store: Path) -> None:
    found = facts_of(run, store)
    root = str(store)
    assert sys.executable in found["machine", "Python"]["value"]
    assert found["machine", "pyarrow"]["value"][0].isdigit()
    assert "imports the source" in found["Spark", "workers"]["value"]
    assert found["Spark", "Java"]["value"].split()[0].isdigit()
    assert found["Spark", "pyspark.zip"]["value"].startswith("0.70 s of CPU for each stream")
    assert found[root, "store"]["value"].startswith("broker default, RocketMQ 4.9.x, 1 message in 1 queue, ")
    assert found[root, "lock"]["value"] == "no process of this host has it open"
    assert " at /" in found[root, "file system"]["value"]
    assert "free" in found[root, "room"]["value"]


def test_each_extra_that_brings_a_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has facts of its own."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].keys() - {"spark", "notebooks"}
    libraries = [re.split(r"[\[>=]", wanted)[0] for name in extras for wanted in project["optional-dependencies"][name]]
    said = dict(fact.split() for fact in extras_of().split(", "))
    assert said == {name: version for name in libraries if (version := machine.version_of(name)) is not None}
    assert said
    monkeypatch.setattr(machine, "version_of", lambda name: None)
    assert set(re.findall(r"\w+", extras_of())) == {"none", *extras}


def extras_of() -> str:
    return next(fact.value for fact in machine.machine_facts() if fact.name == "extras")


@pytest.mark.usefixtures("sound")
def test_nothing_in_a_store_changes_and_nothing_beside_it_stays(run: Run, store: Path) -> None:
    before, beside = tree(store), sorted(store.parent.iterdir())
    root = str(store)
    found = facts_of(run, store, "--try")
    assert (tree(store), sorted(store.parent.iterdir())) == (before, beside)
    assert found[root, "locks"]["value"] == "tried: keep a second process out"
    assert found[root, "mmap"]["value"].startswith("tried: works")
    assert found[root, "fsync"]["value"].startswith("tried: ")


@pytest.mark.usefixtures("sound")
def test_who_has_the_store_is_told_and_keeps_it(run: Run, tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as one:
        one.put(Message("orders", b"x"))
        found = facts_of(run, tmp_path / "store")
        assert found[str(tmp_path / "store"), "lock"]["value"].startswith("held by ")
        assert one.put(Message("orders", b"y")).is_stored  # the lock was not dropped
        assert os.access(tmp_path / "store" / "lock", os.R_OK)


@pytest.mark.usefixtures("sound")
def test_a_store_that_was_killed_and_one_from_the_future(run: Run, tmp_path: Path) -> None:
    from rmqstore.clock import ManualClock

    one = open_store(tmp_path / "store", clock=ManualClock(2**42), workers=False)
    one.put(Message("orders", b"x"))
    one.abandon()
    found = facts_of(run, tmp_path / "store")
    assert found[str(tmp_path / "store"), "last stop"]["state"] == "odd"
    assert "in the future" in found[str(tmp_path / "store"), "newest message"]["advice"]


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize("path", ["nowhere", ".", "", "file", "http://x/y"])
def test_what_is_no_store_is_broken(path: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    found = facts_of(run, path, "--try", status=1)
    (broken,) = [fact for fact in found.values() if fact["state"] == "broken"]
    assert broken["name"] == "store"


@pytest.mark.usefixtures("sound")
def test_the_page_is_whole_lines_with_marks(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("doctor", store, store.parent / "no\x1bwhere")
    assert shown.exit_code == 1
    assert "\x1b" not in shown.stdout
    assert last_line(shown.stdout).startswith("1 problem, ")
    assert any(line.startswith("! store") for line in shown.stdout.splitlines())
    assert max(map(len, shown.stdout.splitlines())) < 200


def test_try_wants_a_store(run: Run) -> None:
    assert run("doctor", "--try").exit_code == 2


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        ("echo 'openjdk version \"1.8.0_402\"' >&2", "broken", "8 ("),
        ("echo 'openjdk version \"11.0.2\" 2019' >&2", "broken", "needs 17"),
        ("echo 'openjdk version \"17.0.2\"' >&2", "good", "17 ("),
        ("echo 'openjdk version \"99-ea\"' >&2", "odd", "99 ("),
        ("exit 3", "broken", "does not print its version"),
    ],
)
@pytest.mark.usefixtures("sound")
def test_java(version: str, state: str, words: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "java", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    fact = facts_of(run, status=1 if state == "broken" else 0)["Spark", "Java"]
    assert fact["state"] == state
    assert words in fact["value"]


@pytest.mark.usefixtures("sound")
def test_no_java_at_all(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "no java on PATH" in facts_of(run, status=1)["Spark", "Java"]["value"]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "cannot be run" in facts_of(run, status=1)["Spark", "Java"]["value"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo \"No module named 'pyspark_rmqstore'\" >&2; exit 1", "No module named 'pyspark_rmqstore'"),
        ("echo 3 8", "is Python 3.8"),
        (None, "cannot be run"),
    ],
)  # fmt: skip
def test_workers_of_another_python(
    script: str | None, words: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    path = tmp_path / "python3"
    if script is not None:
        program(path, script)
    monkeypatch.setenv("PYSPARK_PYTHON", str(path))
    fact = facts_of(run, status=1)["Spark", "workers"]
    assert words in fact["value"]
    assert fact["advice"] == f"export PYSPARK_PYTHON={sys.executable}"


def test_a_host_whose_name_does_not_resolve(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setattr(command.socket, "gethostname", lambda: "nobody.invalid")
    fact = facts_of(run, status=1)["Spark", "host name"]
    assert "SPARK_LOCAL_IP=127.0.0.1" in fact["advice"]


def test_without_pyspark_that_is_no_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "version_of", lambda name: None)
    assert facts_of(run)["Spark", "pyspark"]["state"] == "odd"


@pytest.mark.usefixtures("sound")
def test_old_and_missing_libraries(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "version_of", {"pyarrow": "17.0.0", "numpy": "2.0"}.get)
    found = facts_of(run, status=1)
    assert found["machine", "pyarrow"]["value"] == "17.0.0, and 18 is wanted"
    assert found["machine", "zlib-ng"]["value"] == "is not installed"


MOUNTS = """\
21 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 21 0:44 / /data/with\\040blank rw,relatime - nfs4 server:/x rw,vers=4.2,local_lock=all
31 21 0:45 / /data/fast rw - tmpfs tmpfs rw,size=1g
32 21 259:2 / /data/risky ro,relatime - xfs /dev/b rw,nobarrier
33 32 259:3 / /data/risky/deeper rw - xfs /dev/c rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "names"),
    [
        ("/data/with blank/store", "nfs4", {"file system", "locks"}),
        ("/data/fast/store", "tmpfs", {"file system"}),
        ("/data/risky/store", "xfs", {"fsync"}),
        ("/data/risky/deeper/store", "xfs", set()),
        ("/data/riskyish", "ext4", set()),
    ],
)
def test_mounts(path: str, kind: str, names: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounts").write_text(MOUNTS, encoding="utf-8")
    monkeypatch.setattr(stores, "_MOUNTS", str(tmp_path / "mounts"))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    mount = stores.mount_of(path)
    assert mount is not None
    assert mount.kind == kind
    odd = {fact.name for fact in stores.disk_facts("area", path) if fact.state == "odd"}
    assert odd == names


def test_a_disk_that_syncs_in_no_time_is_not_believed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_SYNC_LEAST_S", 1e9)
    (fact,) = [fact for fact in command.tried_facts(str(store)) if fact.name == "fsync"]
    assert fact.state == "odd"
    assert "power cut" in fact.advice
