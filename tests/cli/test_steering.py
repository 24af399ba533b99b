"""Nothing that a store holds steers the terminal, in any output; JSON says it all the same."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.snapshot.small_store import SmallStore

STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
EVIL = (
    "\x1b[31mred\x1b]0;title\x07",
    "\u009b31m",
    "\x7f\x08",
    "\u202egnp.exe",
    "a\r\nb",
    "\u2066iso\u2069",
    "\ufeff\u2028",
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = SmallStore(file_size=64 * 1024)
    for evil in EVIL:
        made.add("T", body=evil.encode(), properties={"TAGS": evil, "KEYS": evil, evil: evil, "UNIQ_KEY": evil})
    made.write(tmp_path)
    for evil in EVIL:
        for room in ("commitlog", "consumequeue/T/0", "config", "index"):
            (tmp_path / room).mkdir(exist_ok=True)
            (tmp_path / room / evil).write_bytes(b"x" * 100)
    table = {evil: {"topicName": evil, "perm": 6, "attributes": {"+" + evil: evil}} for evil in EVIL}
    (tmp_path / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}, ensure_ascii=False))
    offsets = {f"T@{evil}": {"0": 1} for evil in EVIL}
    (tmp_path / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}, ensure_ascii=False))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [("inspect",), ("inspect", "--json"), ("inspect", "--record", "0"), ("inspect", "--record", "0", "--json"),
     ("verify",), ("verify", "--json"), ("cat", "--topic", "T"), ("cat", "--topic", "T", "--json"),
     ("cat", "--topic", "T", "--json-lines"), ("cat", "--topic", EVIL[0]), ("recover", "--dry-run"),
     ("recover", "--dry-run", "--json"), ("clean", "--dry-run"), ("clean", "--dry-run", "--json")],
    ids=lambda command: " ".join(command).encode("ascii", "replace").decode(),
)  # fmt: skip
def test_no_output_steers_the_terminal(command: tuple[str, ...], store: Path, run: Run) -> None:
    result = run(command[0], store, *command[1:])
    assert result.exit_code in {0, 1}
    assert not STEERS.search(result.stdout + result.stderr)


def test_json_says_what_is_there(store: Path, run: Run) -> None:
    for flag in ("--json", "--json-lines"):
        output = run("cat", store, "--topic", "T", flag).stdout
        rows = json.loads(output) if flag == "--json" else [json.loads(line) for line in output.split("\n") if line]
        assert [row["body"] for row in rows] == list(EVIL)
        assert [row["tags"] for row in rows] == list(EVIL)
        assert [row["properties"][evil] for row, evil in zip(rows, EVIL, strict=True)] == list(EVIL)
    (document,) = json.loads(run("inspect", store, "--json").stdout)["stores"]
    assert {each["topic"] for each in document["topics"]} == {"T", *EVIL}


def test_a_huge_body_costs_no_more_than_its_line(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore.cli.message_output.cut_size", lambda: 80)  # as on a terminal
    made = SmallStore(file_size=64 * 1024 * 1024)
    made.add("T", body=b"\x1b" * 8_000_000)
    made.write(tmp_path)
    line, *rest = run("cat", tmp_path, "--topic", "T").stdout.splitlines()[1:]
    assert len(line) <= 80
    assert " ".join(rest) == "no room for sent: use a wider terminal, a pipe or -o json-lines"


@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63), 253_402_300_800_000])
def test_a_time_that_no_calendar_holds_is_left_blank(time_ms: int, tmp_path: Path, run: Run) -> None:
    made = SmallStore()
    made.add("T", store_timestamp=time_ms, born_timestamp=time_ms)
    made.write(tmp_path)
    for command in (("cat", tmp_path, "--topic", "T"), ("inspect", tmp_path), ("inspect", tmp_path, "--record", 0)):
        result = run(*command)
        assert (result.exit_code, result.exception) == (0, None)
