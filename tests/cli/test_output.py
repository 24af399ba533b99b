"""What the commands print with, and what all of them say."""

import ast
import errno
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import rmqstore
from rmqstore import Message, StoreConfig, open_store
from rmqstore.cli.output import (
    body_fields,
    body_text,
    byte_size,
    fitted,
    one_line,
    padded,
    printable,
    said_here,
    utc,
    wrapped,
)
from spark_source.options.texts import READ, WRITE
from tests.cli.conftest import Run, last_line

pytestmark = pytest.mark.stores


@given(st.text())
def test_nothing_steers_the_terminal(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in shown)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Mn", "Me", "Cf"])), st.integers(1, 30))
def test_cells_keep_their_width(text: str, size: int) -> None:
    assert cell_len(fitted(text, size)) <= size
    assert cell_len(padded(fitted(text, size), size)) == size


def test_bodies() -> None:
    assert body_fields("größe".encode()) == {"body": "größe"}
    assert body_fields(b"\xff\x00") == {"bodyBase64": "/wA="}
    assert body_fields(None) == {"body": None}
    assert body_text(b"a\nb\x1b[2J", " ") == "a b\ufffd[2J"
    assert body_text(b"\xff\x00", " ") == "2 bytes: ff 00"


PROGRAM = "from rmqstore.cli import main; main(prog_name='rmqstore')"
REACHES_NOBODY = "Error: cannot write to standard output: {}; redirect it, with > FILE or | less\n"


@pytest.mark.some(8)
@pytest.mark.parametrize(("to", "why"), [(">&-", "it is closed"), ("> /dev/full", os.strerror(errno.ENOSPC))])
@pytest.mark.parametrize("command", ["cat {} --topic orders", "verify {}", "--version", "cat --help"])
def test_output_that_cannot_be_written_is_no_matter_of_the_store(
    command: str, to: str, why: str, tmp_path: Path
) -> None:
    with open_store(tmp_path / "store", StoreConfig(preallocate=False), workers=False) as store:
        store.put(Message("orders", b""))
    line = f'{shlex.quote(sys.executable)} -c "{PROGRAM}" {command.format(tmp_path / "store")} {to}'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == (REACHES_NOBODY.format(why), 1)


@pytest.mark.parametrize("option", ["--topic", "--key", "--tags"])
def test_an_argument_that_is_no_text_is_a_mistake_in_the_command(option: str, run: Run, tmp_path: Path) -> None:
    open_store(tmp_path / "store", StoreConfig(preallocate=False), workers=False).close()
    result = run("cat", tmp_path / "store", "--topic", "orders", option, os.fsdecode(b"k\xff"))
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': 'k\ufffd' is not UTF-8" in last_line(result.stderr)


# Words of Spark's options that stand in texts which the command line shows nowhere, or where they are RocketMQ's own.
_NOT_SHOWN = {
    "maxRecordsPerPartition", "mergePartitions", "minPartitions", "maxBytesPerPartition", "scanMode", "progressFile",
    "includeUncommitted", "storePathCommitLog", "storeHost",
}  # fmt: skip


def _texts(path: Path) -> Iterator[str]:
    """The texts in a module but its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def test_no_words_of_spark_s_options_reach_the_command_line() -> None:
    options = {name for name in (*READ, *WRITE, "checkpointLocation") if not name.islower()} - _NOT_SHOWN
    word = re.compile(rf"\b({'|'.join(sorted(options))})\b")
    package = Path(rmqstore.__file__).parent
    found = {
        (path.name, hit[1])
        for path in package.rglob("*.py")
        if "cli" not in path.parts
        for text in _texts(path)
        for hit in word.finditer(said_here(text))
    }
    assert found == set()
    assert word.search("the stream goes on with failOnDataLoss=false")


def test_warnings_are_lines_without_frames(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    open_store(tmp_path / "store", StoreConfig(preallocate=False), workers=False).close()

    def warned(*_: object, **__: object) -> None:
        logging.getLogger("rmqstore.follow").warning(
            "cut\x1b[2J; a read from the beginning (a new checkpointLocation) has all"
        )

    monkeypatch.setattr(sys.modules["rmqstore.cli.verify"], "print_json", warned)
    shown = run("verify", tmp_path / "store", "--json")
    assert shown.stderr == "cut\ufffd[2J; `rmqstore cat` shows all\n"
    assert not [each for each in logging.getLogger("rmqstore").handlers if type(each).__name__ == "_Warnings"]


@pytest.mark.parametrize(("size", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes(size: int, shown: str) -> None:
    assert byte_size(size) == shown


def test_times() -> None:
    assert utc(1_700_000_000_123) == "2023-11-14 22:13:20"
    assert utc(None) == utc(2**62) == ""


def test_wrapped_lines_stand_under_each_other() -> None:
    first, second = wrapped("  name  ", "word " * 20).splitlines()
    assert first.startswith("  name  word")
    assert second.startswith("        word")


def test_a_full_disk_is_no_matter_of_permissions() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/store/commitlog/0")
    assert one_line(full) == "/data/store/commitlog/0: No space left on device; make room on that disk, then try again"


@pytest.mark.parametrize(
    "command",
    [
        ["verify"], ["inspect"], ["cat", "--topic", "t"], ["recover"], ["recover", "--dry-run"], ["clean"],
        ["clean", "--dry-run"],
    ],
)  # fmt: skip
def test_an_empty_path_is_refused_by_every_command(
    command: list[str], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an unset variable in a script makes it; the directory that the script runs in may be a store."""
    open_store(tmp_path, StoreConfig(preallocate=False), workers=False).close()
    monkeypatch.chdir(tmp_path)
    result = run(*command, "")
    assert result.exit_code == 1
    assert "is an empty path; give the broker's storePathRootDir" in last_line(result.stderr)
    assert result.stdout == ""


def test_a_store_that_a_program_has_open_is_not_said_to_be_a_brokers(run: Run, tmp_path: Path) -> None:
    with open_store(tmp_path / "store", StoreConfig(preallocate=False), workers=False) as store:
        store.put(Message("orders", b"body"))
        shown = run("inspect", tmp_path / "store").stdout
    assert "open: a broker or another program of this host holds the lock" in shown


def test_a_place_without_a_record_is_no_damage_of_a_sound_store(run: Run, store_of) -> None:
    result = run("inspect", store_of("basic"), "--record", 1)
    assert (result.exit_code, result.stdout) == (1, "")
    line = last_line(result.stderr)
    assert "no whole record stands here; give the physicalOffset of a message, as `rmqstore cat --json-lines`" in line
    assert "lists all damage" not in line


def test_debug_shows_the_stack_of_a_disk_that_is_full(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the store's, not that of standard output."""

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path))

    monkeypatch.setattr(sys.modules["rmqstore.cli.verify"], "look_at", fails)
    assert "No space left" in last_line(run("verify", str(tmp_path)).stderr)
    assert getattr(run("verify", str(tmp_path), "--debug").exception, "errno", None) == errno.ENOSPC
