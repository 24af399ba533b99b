"""`rmqstore report`."""

import errno
import importlib
import os
import signal
import stat
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.files import replace
from tests.cli.conftest import Run, last_line
from tests.report.stores import NAMES, hostile_store
from tests.snapshot.small_store import FIRST_MS, SmallStore, small_store

pytestmark = pytest.mark.stores

StoreOf = Callable[[str], Path]
collect_module = importlib.import_module("rmqstore.report.collect")  # the package has a function of this name


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store().write(tmp_path / "store")


def test_it_writes_one_page_and_says_so(store: Path, tmp_path: Path, run: Run) -> None:
    output = tmp_path / "report.html"
    done = run("report", store, "-o", output)
    assert (done.exit_code, done.stderr) == (0, "")
    assert last_line(done.stdout).startswith(f"{output}: ")
    assert "60 messages" in done.stdout
    page = output.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "store"]


def test_the_store_is_left_as_it_is(store: Path, tmp_path: Path, run: Run) -> None:
    def look() -> list[tuple[str, int, int]]:
        found = ((path, path.stat()) for path in sorted(store.rglob("*")))
        return [(str(path), status.st_size, status.st_mtime_ns) for path, status in found]

    before = look()
    assert run("report", store, "-o", tmp_path / "r.html").exit_code == 0
    assert look() == before


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("store/report.html", "lies in the store"),
        ("store", "lies in the store"),
        ("link/report.html", "lies in the store"),
        ("directory", "is a directory; name a file in it"),
        ("nowhere/report.html", "there is no directory"),
        ("new/", "is a directory"),
        ("fifo", "is no ordinary file"),
        ("a\x00b", "NUL character"),
        ("report.html/x", "there is no directory"),
    ],
)
def test_a_place_that_will_not_do_is_refused_before_anything_is_read(
    place: str, said: str, store: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_module, "_traffic", pytest.fail)
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(store)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "report.html").touch()
    done = run("report", store, "-o", f"{tmp_path}/{place}")
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", ""], "is empty; name a file, or - for standard output"),
        (["-o", "x", "--delete-when", "25"], "'25': hours from 0 to 23, with ; between"),
        (["-o", "x", "--delete-when", "a\nb"], "hours from 0 to 23"),
        (["-o", "x", "--top", "0"], "--top"),
    ],
)
def test_mistakes_in_the_command(arguments: list[str], words: str, store: Path, run: Run) -> None:
    done = run("report", store, *arguments)
    assert done.exit_code == 2
    assert words in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("place", ["-", "/dev/stdout"])
def test_standard_output_gets_the_page_and_nothing_else(
    place: str, store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("report", store, "-o", place)
    assert done.exit_code == 0
    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.rstrip().endswith("</html>")
    assert "message" in done.stderr
    monkeypatch.setattr(sys.modules["rmqstore.cli.report"], "is_terminal", lambda: True)
    refused = run("report", store, "-o", place)
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_a_file_that_is_there_is_replaced_and_keeps_its_permissions(store: Path, tmp_path: Path, run: Run) -> None:
    output, link = tmp_path / "r.html", tmp_path / "latest.html"
    output.write_text("old")
    output.chmod(0o640)
    link.symlink_to(output)
    assert run("report", store, "-o", link).exit_code == 0
    assert link.is_symlink()
    assert output.read_text(encoding="utf-8").startswith("<!doctype")
    assert stat.S_IMODE(output.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_the_umask(store: Path, tmp_path: Path, run: Run) -> None:
    before = os.umask(0o027)
    try:
        assert run("report", store, "-o", tmp_path / "r.html").exit_code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "r.html").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "options",
    [
        ("--top", "0"),
        ("--top", "x"),
        ("--file-reserved-hours", "0"),
        ("--delete-when", "25"),
        ("--delete-when", "x"),
        (),
    ],
    ids=str,
)
def test_a_mistake_in_an_option_is_one_line(options: tuple[str, ...], store: Path, tmp_path: Path, run: Run) -> None:
    output = () if not options else ("-o", tmp_path / "r.html")
    done = run("report", store, *output, *options)
    assert done.exit_code in {1, 2}
    assert last_line(done.stderr).startswith("Error: ")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("what", ["nothing", "a file", "an empty directory"])
def test_what_is_no_store_is_refused(what: str, tmp_path: Path, run: Run) -> None:
    place = tmp_path / "x"
    if what == "a file":
        place.write_bytes(b"x")
    elif what == "an empty directory":
        place.mkdir()
    done = run("report", place, "-o", tmp_path / "r.html")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert not (tmp_path / "r.html").exists()


def test_a_store_without_its_log_has_a_report_of_what_is_left(store_of: StoreOf, tmp_path: Path, run: Run) -> None:
    assert run("inspect", store_of("basic-nocommitlog")).exit_code == 1
    done = run("report", store_of("basic-nocommitlog"), "-o", tmp_path / "r.html")
    assert (done.exit_code, "1 damaged place" in done.stdout) == (0, True)


def test_a_part_that_cannot_be_read_is_told_and_the_rest_is_there(
    store: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error", "/s/commitlog/0")

    monkeypatch.setattr(collect_module, "traffic_batches", fails)
    done = run("report", store, "-o", tmp_path / "r.html")
    assert done.exit_code == 0
    assert "traffic could not be read: /s/commitlog/0: Input/output error" in done.stderr
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Not read of default: /s/commitlog/0: Input/output error" in page
    assert 'id="figure-messages" data-v="60"' in page


def test_several_stores_are_told_apart(tmp_path: Path, run: Run) -> None:
    for name, count in (("a", 3), ("b", 5)):
        made = SmallStore()
        for number in range(count):
            made.add("T", store_timestamp=FIRST_MS + number * 60_000)
        made.write(tmp_path / name)
    both = (f"broker-a={tmp_path / 'a'}", f"broker-b={tmp_path / 'b'}")
    assert run("report", *both, "-o", tmp_path / "r.html", "--title", "Shop <1>").exit_code == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert 'id="figure-messages" data-v="8"' in page
    assert 'id="figure-topics" data-v="1"' in page
    assert "<h1>Shop &lt;1&gt;</h1>" in page
    assert page.count(">Broker</th>") >= 2
    assert '<td class="text">broker-b</td>' in page


def test_what_takes_long_can_be_left_out(
    store: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect_module, "traffic_batches", pytest.fail)
    monkeypatch.setattr(collect_module, "verify", pytest.fail)
    done = run("report", store, "-o", tmp_path / "r.html", "--no-traffic", "--no-verify")
    assert (done.exit_code, "not checked" in done.stdout) == (0, True)


def test_the_terminal_is_not_steered_by_names(tmp_path: Path, run: Run) -> None:
    made = hostile_store(tmp_path / "store")
    done = run("report", f"\x1b[31m\u202e={made}", "-o", tmp_path / "r\x1b[31m.html")
    assert done.exit_code == 0
    assert not {"\x1b", "\u202e"} & set(done.stdout + done.stderr)
    assert len(NAMES) > 10


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_full_disk_is_one_line_and_the_old_page_stays(
    call: str, store: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "r.html"
    output.write_text("old")

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    faulty = types.SimpleNamespace(**{name: getattr(os, name) for name in dir(os)} | {call: is_full})
    monkeypatch.setattr(replace, "os", faulty)
    done = run("report", store, "-o", output)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert f"{output}: cannot be written (No space left on device); " in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "store"]
    assert output.read_text() == "old"


def test_an_interrupt_leaves_nothing_behind(store: Path, tmp_path: Path) -> None:
    """Neither half a page nor a file of another name, and the page that was there stays."""
    (tmp_path / "r.html").write_text("old")
    slow = (
        "from rmqstore.files import replace\n"
        "def sync(_):\n print('writing', flush=True)\n while True: pass\n"
        "replace.os.fsync = sync\n"
        f"from rmqstore.cli import main; main(['report', {str(store)!r}, '-o', {str(tmp_path / 'r.html')!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert (process.returncode, said.strip()) == (1, "Aborted!")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "store"]
    assert (tmp_path / "r.html").read_text() == "old"
