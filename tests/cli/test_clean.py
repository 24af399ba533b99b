"""`rmqstore clean`."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore import Message, open_snapshot
from rmqstore.engine.store import open_store
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.testing import Probe
from tests.cli.conftest import Run, document_of, last_line
from tests.golden.cases import unpack
from tests.golden.rows import fingerprint
from tests.log.retaining import CONFIG, check_against_log, fill, filled

HOUR_S = 3600
NOW_S = 1_900_000_000


def made(tmp_path: Path, is_clean: bool = True) -> tuple[Path, dict[int, bytes]]:
    """A store of seven log files, the three oldest of which are four days old; the oldest first."""
    root = tmp_path / "store"
    store = filled(RealFileSystem(), 0, CONFIG, str(root))
    stored = fill(store, 60)
    store.flush()
    if is_clean:
        store.close()
    else:
        store.abandon()
    files = sorted((root / "commitlog").iterdir())
    assert len(files) == 6
    for number, file in enumerate(files):
        age_s = (96 - number) * HOUR_S + 600 if number < 3 else 0
        now_s = file.stat().st_mtime
        os.utime(file, (now_s - age_s, now_s - age_s))
    return root, stored


def names_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - {"lock", "checkpoint"}


def test_the_disk_is_not_spoken_of_where_it_does_not_count(run: Run, tmp_path: Path) -> None:
    root, _ = made(tmp_path)
    heads = [line.split(" ")[0] for line in run("clean", root, "--dry-run").output.splitlines()]
    assert "commitlog" in heads
    assert "disk" not in heads
    document = document_of(run("clean", root, "--dry-run", "--json"))
    assert (document["disk"], document["trigger"]) == ({"logs": [], "queues": -1.0}, "manual")


@pytest.mark.parametrize("options", [[], ["--force"], ["--older-than", "95h"], ["--older-than", "9d"]], ids=str)
def test_what_a_dry_run_shows_is_what_then_goes(options: list[str], run: Run, tmp_path: Path) -> None:
    root, stored = made(tmp_path)
    before = fingerprint(root)
    planned = document_of(run("clean", root, "--dry-run", "--json", *options))
    assert fingerprint(root) == before
    there = names_of(root)
    assert planned.pop("unread") == []
    done = document_of(run("clean", root, "--json", *options))
    assert done == planned | {"isApplied": True}
    count = {"[]": 3, "['--force']": 5, "['--older-than', '95h']": 2}.get(str(options), 0)
    assert len(done["logFiles"]) == count
    gone = [file["path"] for file in (*done["logFiles"], *done["indexFiles"])]
    gone += [path for queue in done["queues"] for path in queue["paths"]]
    assert {str(root / name) for name in there - names_of(root)} == set(gone)
    assert len(gone) == done["fileCount"]
    assert not (root / "abort").exists()
    assert run("verify", root).exit_code == 0
    again = document_of(run("clean", root, "--json", *options))
    assert again["changesNothing"]
    with open_store(str(root), CONFIG, workers=False) as store:
        assert Probe(store).log_start == done["minOffset"]
        check_against_log(store, stored)


def test_the_plan_for_people(run: Run, tmp_path: Path) -> None:
    root, _ = made(tmp_path)
    result = run("clean", root, "--dry-run")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines if str(root) not in line) <= 80
    assert "commitlog/00000000000000008192: 4096 bytes, it is old enough" in result.stdout
    assert last_line(result.stdout) == "nothing was deleted; run without --dry-run to do this"
    assert last_line(run("clean", root).stdout) == "deleted"
    assert last_line(run("clean", root).stdout).endswith("nothing to do")


def test_what_groups_have_still_to_read_is_told_before_it_goes(run: Run, tmp_path: Path) -> None:
    root, _ = made(tmp_path)
    log_start = document_of(run("clean", root, "--dry-run", "--json"))["minOffset"]
    rows = open_snapshot(root).scan(columns=["topic", "queueId", "physicalOffset"]).read_all().to_pylist()
    goes = [r for r in rows if (r["topic"], r["queueId"]) == ("orders", 0) and r["physicalOffset"] < log_start]
    assert len(goes) > 2
    (root / "config").mkdir(exist_ok=True)
    groups = {"done": len(goes), "behind": 2, "past": 10**6}
    offsets = {f"orders@{group}": {"0": offset} for group, offset in groups.items()} | {"None@g": {"0": 0}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    told = document_of(run("clean", root, "--dry-run", "--json"))["unread"]
    assert told == [{"group": "behind", "topic": "orders", "messages": len(goes) - 2}]
    said = run("clean", root, "--dry-run").stdout
    assert f"unread      behind has not read {len(goes) - 2} messages of orders in these files" in said


def test_what_groups_have_still_to_read_is_told_of_a_log_elsewhere(run: Run, tmp_path: Path) -> None:
    config = replace(CONFIG, log_paths=(str(tmp_path / "log"),))
    with open_store(tmp_path / "store", config, workers=False) as store:
        for _ in range(60):
            store.put(Message("orders", bytes(400), queue_id=0))
        store.offsets.commit("behind", "orders", 0, 2)
    (tmp_path / "broker.conf").write_text(f"storePathCommitLog={tmp_path / 'log'}\n")
    asked = ("clean", tmp_path / "store", "--dry-run", "--force", "--json", "--broker-conf", tmp_path / "broker.conf")
    (told,) = document_of(run(*asked))["unread"]
    assert (told["group"], told["topic"]) == ("behind", "orders")
    assert 40 < told["messages"] < 58


def test_a_plan_for_a_store_that_is_open_says_so(run: Run, tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG) as store:
        store.put(Message("T", b"x", queue_id=0))
        for command in ("recover", "clean"):
            said = " ".join(run(command, tmp_path, "--dry-run").stdout.split())
            assert said.startswith("open in another program, such as its broker")
            assert "without --dry-run it is refused" in said
    assert not run("recover", tmp_path, "--dry-run").stdout.startswith("open")


def test_a_store_that_was_killed_is_recovered_first(run: Run, tmp_path: Path) -> None:
    root, stored = made(tmp_path, is_clean=False)
    assert "recovered first" in run("clean", root, "--dry-run").stdout
    done = document_of(run("clean", root, "--json"))
    assert len(done["logFiles"]) == 3
    assert not (root / "abort").exists()
    with open_store(str(root), CONFIG, workers=False) as store:
        check_against_log(store, stored)


def test_a_broker_s_configuration(run: Run, tmp_path: Path) -> None:
    root, _ = made(tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_bytes("# Größe\nfileReservedTime=95\n".encode("latin-1"))  # as old editors write it
    arguments = ("clean", root, "--dry-run", "--json", "--broker-conf", conf)
    assert len(document_of(run(*arguments))["logFiles"]) == 2
    assert len(document_of(run(*arguments, "--older-than", "90m"))["logFiles"]) == 3
    conf.write_text("fileReservedTime=soon\n")
    assert "fileReservedTime" in run(*arguments).stderr
    assert run("clean", root, "--broker-conf", tmp_path / "none").exit_code == 2


def test_a_broker_s_own_store(run: Run, tmp_path: Path) -> None:
    """Files of several sizes and of real queues: only what leads to nothing goes."""
    root = unpack("multipath", tmp_path)
    conf = tmp_path / "broker.conf"
    paths = ",".join(str(path) for path in sorted(root.glob("log-*")))
    assert paths
    conf.write_text(f"storePathCommitLog={paths}\n")
    options = ("--force", "--json", "--broker-conf", conf)
    planned = document_of(run("clean", root, "--dry-run", *options))
    assert len(planned["logFiles"]) > 1
    planned.pop("unread")
    assert document_of(run("clean", root, *options)) == planned | {"isApplied": True}
    assert len([file for path in root.glob("log-*") for file in path.iterdir()]) == 1


@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=str)
def test_force_does_not_pass_over_an_age_without_a_word(options: list[str], run: Run, tmp_path: Path) -> None:
    root, _ = made(tmp_path)
    before = fingerprint(root)
    result = run("clean", root, "--force", "--older-than", "9d", *options)
    assert (result.exit_code, fingerprint(root)) == (2, before)
    said = " ".join(result.stderr.split())
    assert "give only one of them" in said
    assert "of any age" in said
    assert "last changed longer ago than AGE" in said


@pytest.mark.parametrize("age", ["72", "h", "-3h", "3w", "1.5h"])
def test_an_age_that_makes_no_sense(age: str, run: Run, tmp_path: Path) -> None:
    result = run("clean", tmp_path, "--older-than", age)
    assert result.exit_code == 2
    assert "72h" in result.stderr


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_what_is_no_store_does_not_become_one(options: list[str], run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for path in (tmp_path / "nowhere", tmp_path):
        before = sorted(tmp_path.rglob("*"))
        assert run("clean", path, *options).exit_code == 1
        assert sorted(tmp_path.rglob("*")) == before


def test_a_store_that_somebody_writes_to_is_left_alone(run: Run, tmp_path: Path) -> None:
    root, _ = made(tmp_path)
    with open_store(str(root), CONFIG, workers=False):
        before = names_of(root)
        result = run("clean", root, "--force")
        assert result.exit_code == 1
        assert "stop the other writer" in result.stderr
        assert names_of(root) == before
