"""What users give as the path of a store: handled, or one line that says what is wrong."""

import os
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqstore import Rejected, StoreConfig, open_snapshot, open_store
from rmqstore.cli import main
from rmqstore.files.reading import canonical_path
from tests.snapshot.small_store import small_store

WRONG = {
    "": "is an empty path",
    "a\0b": "contains a NUL character",
    b"a\0b": "contains a NUL character",
    "hdfs://host:9000/store": "not a file system path; mount or copy",
    "s3a://bucket/store": "not a file system path; mount or copy",
    "file://": "is an empty path",
    "~nobody-of-this-name/x": "home of a user that is not known",
    None: "is no path",
    7: "is no path",
}


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_wrong_path_is_told_in_one_line_and_nothing_is_made(
    wrong: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for look in (
        open_snapshot,
        lambda path: open_store(path, StoreConfig(), workers=False),
        lambda p: open_snapshot({"a": p}),
    ):
        with pytest.raises(Rejected) as caught:
            look(wrong)
        assert WRONG[wrong] in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [each for each in WRONG if isinstance(each, str) and "\0" not in each])
def test_the_command_line_says_it_in_one_line_too(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (("inspect",), ("verify",), ("cat", "--topic", "T"), ("recover",), ("recover", "--dry-run"),
                    ("clean",), ("clean", "--dry-run")):  # fmt: skip
        result = CliRunner().invoke(main, [command[0], wrong, *command[1:]])
        assert result.exit_code == 1
        assert WRONG[wrong] in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_path_of_any_kind_is_that_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "a b"
    small_store(4).write(root)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for given in (
        str(root),
        root,
        os.fsencode(root),
        "~/a b",
        b"~/a b",
        "a b",
        "./a b/",
        f"file://{tmp_path}/a%20b",
        f"file:{root}",
    ):
        assert canonical_path(given) == str(root)
        assert open_snapshot(given).scan(["T"]).read_all().num_rows == 4
        assert open_snapshot([given]).stores[0].path == str(root)
    (tmp_path / "~").mkdir()
    assert canonical_path("./~") == str(tmp_path / "~")
