"""`rmqstore cat`."""

import base64
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import Result
from rich.cells import cell_len

from rmqstore import Message, StoreConfig, open_store
from rmqstore.clock import ManualClock
from rmqstore.core.arguments import moment_ms
from rmqstore.formats.sys_flag import COMPRESSED
from tests.cli.conftest import Run, document_of, last_line
from tests.golden.cases import java_rows, load_expected
from tests.snapshot.small_store import SmallStore, small_store

pytestmark = pytest.mark.stores

StoreOf = Callable[[str], Path]
TOPIC = "%RETRY%ZvScxdxQmOx"
MAIN = "from rmqstore.cli import main; main(prog_name='rmqstore')"


def lines_of(result: Result) -> list[dict]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def expected(case: str, topic: str) -> list[dict]:
    return [row for row in java_rows(load_expected(case)["records"]) if row["topic"] == topic]


@pytest.mark.parametrize(("case", "topic"), [("basic", TOPIC), ("killed-lagcq", "%DLQ%nT"), ("basic-nocq", TOPIC)])
def test_every_message_in_order(case: str, topic: str, run: Run, store_of: StoreOf) -> None:
    rows = lines_of(run("cat", store_of(case), "--topic", topic, "--json-lines"))
    theirs = expected(case, topic)
    names = ("queueId", "queueOffset", "physicalOffset", "tags", "keys", "msgId", "properties")
    assert [[row[name] for name in names] for row in rows] == [[row[name] for name in names] for row in theirs]
    bodies = [row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"]) for row in rows]
    assert bodies == [row["body"] for row in theirs]
    assert {"body" in row for row in rows} == {True, False}


def test_json_is_an_array(run: Run, store_of: StoreOf) -> None:
    lines = lines_of(run("cat", store_of("basic"), "--topic", TOPIC, "--json-lines"))
    assert document_of(run("cat", store_of("basic"), "--topic", TOPIC, "--json")) == lines
    assert document_of(run("cat", store_of("basic"), "--topic", TOPIC, "--tags", "nosuchtag", "--json")) == []


def test_queue_from_and_limit(run: Run, store_of: StoreOf) -> None:
    arguments = ("cat", store_of("basic"), "--topic", TOPIC, "--json-lines")
    rows = lines_of(run(*arguments, "--queue", 1, "--from", 50, "--limit", 3))
    assert [(row["queueId"], row["queueOffset"]) for row in rows] == [(1, 50), (1, 51), (1, 52)]
    assert lines_of(run(*arguments, "--queue", 1, "--from", 10**6)) == []


def test_from_below_what_is_left_begins_at_the_first(run: Run, store_of: StoreOf) -> None:
    arguments = ("cat", store_of("deleted_head"), "--topic", "%DLQ%OJgU", "--queue", 0, "--json-lines")
    assert [row["queueOffset"] for row in lines_of(run(*arguments, "--from", 1, "--limit", 1))] == [201]


def test_tags_and_key(run: Run, store_of: StoreOf) -> None:
    theirs = expected("basic", TOPIC)
    wanted = sorted({row["tags"] for row in theirs if (row["tags"] or "").isalnum()})[:2]
    rows = lines_of(run("cat", store_of("basic"), "--topic", TOPIC, "--tags", " || ".join(wanted), "--json-lines"))
    assert [row["physicalOffset"] for row in rows] == [r["physicalOffset"] for r in theirs if r["tags"] in wanted]
    keyed = next(row for row in theirs if row["keys"] and " " not in row["keys"])
    rows = lines_of(run("cat", store_of("basic"), "--topic", TOPIC, "--key", keyed["keys"], "--json-lines"))
    assert keyed["physicalOffset"] in [row["physicalOffset"] for row in rows]
    assert all(keyed["keys"] in (row["keys"] or "").split(" ") for row in rows)


def test_a_key_is_found_without_its_topic(run: Run, tmp_path: Path) -> None:
    with open_store(tmp_path, StoreConfig(preallocate=False), workers=False) as store:
        for number in range(40):
            store.put(Message("AB"[number % 2], b"%d" % number, queue_id=0, keys=[f"k{number // 2}"]))
    rows = lines_of(run("cat", tmp_path, "--key", "k7", "--json-lines"))
    assert [(row["topic"], row["body"]) for row in rows] == [("A", "14"), ("B", "15")]
    assert "topic" in run("cat", tmp_path, "--key", "k7").stdout.splitlines()[0]
    assert lines_of(run("cat", tmp_path, "--key", "k70", "--json-lines")) == []


BODIES = [b"short", b"x" * 300, "Größe 日本".encode() * 20, b"two\nlines and blanks  "]
TAG, KEY = "a-tag-of-more-than-ten-characters", "key-of-more-than-twelve"


@pytest.fixture(scope="module")
def long_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four messages whose lines do not fit 80 columns, all but one."""
    path = tmp_path_factory.mktemp("cat") / "store"
    with open_store(path, StoreConfig(preallocate=False), workers=False) as store:
        for body in BODIES:
            store.put(Message("orders", body, queue_id=0, tags=TAG, keys=[KEY]))
    return path


def on_a_terminal(columns: int, *arguments: object, **variables: str) -> list[str]:
    """The lines that `rmqstore ARGUMENTS` prints on a terminal so wide; COLUMNS is set by `variables` only."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"} | variables
    command = [sys.executable, "-c", MAIN, *map(str, arguments)]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        shown = bytearray()
        with suppress(OSError):  # EIO: the terminal was closed
            while data := os.read(ours, 65536):
                shown += data
        os.close(ours)
        assert process.wait() == 0
    return shown.decode().splitlines()


@pytest.mark.some(5)
@pytest.mark.parametrize(
    ("columns", "variables", "expected"),
    [
        (80, {}, 80),
        (100, {}, 100),
        (80, {"COLUMNS": "120"}, 120),
        (80, {"COLUMNS": "0"}, 80),
        (80, {"COLUMNS": "x"}, 80),
    ],
)
def test_a_line_is_cut_at_the_width_of_the_terminal_or_at_columns(
    columns: int, variables: dict[str, str], expected: int, long_lines: Path
) -> None:
    lines = on_a_terminal(columns, "cat", long_lines, "--topic", "orders", **variables)
    if expected < 110:
        assert lines.pop() == "no room for sent: use a wider terminal, a pipe or -o json-lines"
    assert len(lines) == 1 + len(BODIES)
    sent = ["sent", "(UTC)"] if expected >= 110 else []
    assert lines[0].split() == ["queue", "offset", *sent, "stored", "(UTC)", "tags", "keys", "body"]
    assert [cell_len(line) for line in lines[2:3]] == [expected]
    assert max(map(cell_len, lines)) <= expected
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("columns", [None, "60"])
def test_in_a_pipe_bodies_tags_and_keys_are_whole(
    columns: str | None, long_lines: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    lines = run("cat", long_lines, "--topic", "orders").stdout.splitlines()
    assert [line.split(TAG)[1] for line in lines[1:]] == [
        f"  {KEY}  {body.decode().replace(chr(10), ' ')}" for body in BODIES
    ]


def test_in_a_pipe_a_damaged_message_is_one_line(run: Run, store_of: StoreOf) -> None:
    result = run("cat", store_of("basic-midflip"), "--topic", "JmtZGxB", "--queue", 1)
    (line,) = [line for line in result.stdout.splitlines() if "damaged: " in line]
    rows = lines_of(run("cat", store_of("basic-midflip"), "--topic", "JmtZGxB", "--queue", 1, "--json-lines"))
    (reason,) = [row["corruptReason"] for row in rows if "corruptReason" in row]
    assert line.endswith(f"damaged: {reason}")


def test_damaged_messages_are_shown_as_such(run: Run, store_of: StoreOf) -> None:
    arguments = ("cat", store_of("basic-midflip"), "--topic", "JmtZGxB", "--queue", 1)
    result = run(*arguments, "--json-lines")
    damaged = [row for row in lines_of(result) if "corruptReason" in row]
    assert [row["physicalOffset"] for row in damaged] == [157420]
    assert result.stderr == "1 message damaged; `rmqstore verify` says where\n"
    assert "damaged: the CRC" in run(*arguments).stdout


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_log_file_that_is_gone_is_told(is_killed: bool, tmp_path: Path, run: Run) -> None:
    root = small_store(120).write(tmp_path)
    if is_killed:
        (root / "abort").touch()
    first, gone, *_ = sorted(path.name for path in (root / "commitlog").iterdir())
    (root / "commitlog" / gone).unlink()
    told = f"no commitlog file holds bytes {int(gone)} to {int(gone) + 4096}"
    line = f"{root}: {told}; messages in these bytes are left out\n"
    whole = run("cat", root, "--topic", "T", "--json-lines")
    assert (whole.exit_code, whole.stderr) == (0, line)
    assert 0 < len(whole.stdout.splitlines()) < 120
    counted = run("query", root, "--topic", "T", "--count")
    assert (counted.stdout.strip(), counted.stderr) == (str(len(whole.stdout.splitlines())), line)
    assert told in run("inspect", root).stdout
    (root / "commitlog" / first).unlink()  # as expired files are
    assert run("cat", root, "--topic", "T", "--json-lines").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--topic", "JmtZGx"], 1, "did you mean JmtZGxB?"),
        (["--topic", "JmtZGxB", "--queue", "9"], 2, "'JmtZGxB' has no queue 9; choose one of 0, 1, 2, 3"),
        (["--topic", "no*"], 1, "`rmqstore inspect` lists the topics"),
        (["--topic", "JmtZGxB", "--tags", "a,b"], 2, "write a || b (no quotes, || between tags)"),
        (["--topic", "JmtZGxB", "--tags", "'a'"], 2, "write a (no quotes, || between tags)"),
        ([], 2, "name a topic with --topic, a key with --key, or a time"),
        (["--topic", "JmtZGxB", "--limit", "0"], 2, "Invalid value for '--limit'"),
    ],
)
def test_mistakes_end_with_one_line(arguments: list[str], status: int, words: str, run: Run, store_of: StoreOf) -> None:
    result = run("cat", store_of("basic"), *arguments)
    assert result.exit_code == status
    assert words in last_line(result.stderr)
    assert result.stdout == ""


def test_not_a_store(run: Run, tmp_path: Path, store_of: StoreOf) -> None:
    result = run("cat", tmp_path / "nowhere", "--topic", "t")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    assert "does not exist here; give the broker's storePathRootDir" in result.stderr
    result = run("cat", store_of("basic").parent, "--topic", "t")
    assert f"did you mean {store_of('basic')}?" in last_line(result.stderr)


def test_debug_shows_the_stack(run: Run, tmp_path: Path) -> None:
    arguments = ("cat", tmp_path / "nowhere", "--topic", "t")
    assert isinstance(run(*arguments).exception, SystemExit)
    assert type(run(*arguments, "--debug").exception).__name__ == "NotAStore"
    assert type(run("--debug", *arguments).exception).__name__ == "NotAStore"


def test_a_reader_that_goes_away_ends_it_quietly(store_of: StoreOf) -> None:
    """As `rmqstore cat … | head -1` does; more than a pipe holds is waiting."""
    arguments = ["cat", str(store_of("basic")), "--topic", TOPIC, "--json-lines"]
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["topic"] == TOPIC
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait()


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a message of each of ten hours from HOUR_0 on, in turn of two topics and two queues."""
    path = tmp_path_factory.mktemp("hours") / "store"
    clock = ManualClock(HOUR_0)
    with open_store(path, StoreConfig(preallocate=False), workers=False, clock=clock) as store:
        for number in range(10):
            store.put(Message(("orders-a", "orders-b")[number % 2], b"%d" % number, queue_id=number // 2 % 2))
            clock.advance(3_600_000)
        store.put(Message("%DLQ%g", b"dead"))
    return path


HOUR_0 = 1_795_000_000_000  # 2026-11-18T11:06:40Z


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--topic", "orders-a", "--topic", "orders-b"], range(10)),
        (["--topic", "orders-b", "--topic", "orders-b"], range(1, 10, 2)),
        (["--topic", "orders-*"], range(10)),
        (["--topic", "orders-?", "--topic", "orders-a"], range(10)),
        (["--topic", "*"], range(10)),
        (["--topic", "orders*", "--queue", "1"], [2, 3, 6, 7]),
        (["--topic", "orders*", "--from", "2"], [8, 9]),
        (["--topic", "orders*", "--since", "2026-11-18T14:00Z"], range(3, 10)),
        (["--topic", "orders*", "--since", "2026-11-18T22:06:40.000+08:00"], range(3, 10)),
        (["--topic", "orders*", "--until", "2026-11-18T14:06:40Z"], range(3)),
        (["--topic", "orders*", "--since", str(HOUR_0 + 1), "--until", str(HOUR_0 + 7_200_001)], [1, 2]),
        (["--topic", "orders-a", "--since", "2026-11-18T14:00Z", "--queue", "0"], [4, 8]),
        (["--topic", "orders*", "--since", "2027-01-01T00:00Z"], []),
        (["--topic", "orders*", "--until", "1970-01-01T00:00Z"], []),
    ],
)
def test_topics_and_times(arguments: list[str], wanted: list[int], hours: Path, run: Run) -> None:
    found = lines_of(run("cat", hours, *arguments, "-o", "json-lines"))
    assert sorted(int(row["body"]) for row in found) == list(wanted)


def test_topics_of_its_own_fit_what_begins_as_they_do(hours: Path, run: Run) -> None:
    assert [row["body"] for row in lines_of(run("cat", hours, "--topic", "%DLQ%*", "-o", "json-lines"))] == ["dead"]


def test_several_topics_have_a_column_in_the_table(hours: Path, run: Run) -> None:
    assert run("cat", hours, "--topic", "orders*").stdout.startswith("topic ")
    assert run("cat", hours, "--topic", "orders-a").stdout.startswith("queue ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "last week"], "write ms since 1970 or ISO-8601"),
        (["--since", "2026-11-25T09:00"], "a time without a zone; write 2026-11-25T09:00:00Z"),
        (["--until", "1795000000"], "looks like seconds: write 1795000000000"),
        (["--since", ""], "an age such as 30m"),
        (["--since", "5y"], "an age such as 30m"),
        (["--since", "1h", "--until", "2h"], "--since is not before --until"),
        (["--since", "1h", "--from", "1"], "--since and --from: give only one of them"),
        (["--topic", " "], "is empty"),
    ],
)
def test_mistakes_in_times_and_topics(arguments: list[str], words: str, hours: Path, run: Run) -> None:
    failed = run("cat", hours, "--topic", "orders-a", *arguments)
    assert failed.exit_code == 2
    assert words in last_line(failed.stderr)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("now", HOUR_0), ("90s", HOUR_0 - 90_000), ("-2h", HOUR_0 - 7_200_000), ("1w", HOUR_0 - 604_800_000),
     ("999999999d", 0), ("0", 0), ("2026-11-18T11:06:40.001Z", HOUR_0 + 1)],
)  # fmt: skip
def test_a_time_as_people_say_it(text: str, ms: int) -> None:
    assert moment_ms(text, HOUR_0) == ms


# An environment in which Python prints in an encoding that lacks most characters.
LATIN = {"PYTHONIOENCODING": "latin-1"}
TEXT = "Zurich → 東京"


@pytest.fixture(scope="module")
def of_the_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a message whose text is not in Latin 1."""
    path = tmp_path_factory.mktemp("world") / "store"
    with open_store(path, StoreConfig(preallocate=False), workers=False) as store:
        store.put(Message("orders", TEXT.encode(), queue_id=0))
    return path


@pytest.mark.parametrize(
    "form",
    [["-o", "json-lines"], ["-o", "csv"], ["--format", "{body}\\n"], ["-o", "bodies"],
     ["-o", "bodies", "--decode", "utf8"], ["--json"], []],
    ids=" ".join,
)  # fmt: skip
def test_text_is_whole_in_a_pipe_whatever_the_locale_is(form: list[str], of_the_world: Path) -> None:
    command = [sys.executable, "-c", MAIN, "cat", str(of_the_world), "--topic", "orders", *form]
    done = subprocess.run(command, capture_output=True, env=os.environ | LATIN, check=True)
    assert TEXT in done.stdout.decode()


def test_a_terminal_that_has_no_such_characters_shows_what_it_can(of_the_world: Path) -> None:
    arguments = ("cat", of_the_world, "--topic", "orders", "--format", r"{body}\n")
    assert on_a_terminal(80, *arguments, **LATIN) == ["Zurich ? ??"]
    assert on_a_terminal(80, *arguments, PYTHONIOENCODING="utf-8") == [TEXT]


@pytest.mark.parametrize("command", ["cat", "tail", "query"])
def test_a_damaged_message_has_no_line_among_bodies(command: str, run: Run, tmp_path: Path) -> None:
    store = SmallStore(file_size=1024 * 1024)
    for body in (b"one", zlib.compress(bytes(1000)), b"", b"three"):
        store.add(body=body, sys_flag=COMPRESSED if len(body) > 5 else 0)
    store.write(tmp_path)
    result = run(command, tmp_path, "--topic", "T", "-o", "bodies", "--max-body-bytes", 999)
    assert result.stdout == "one\n\nthree\n"
    assert "1 message damaged" in result.stderr


def test_a_body_may_be_limited(run: Run, tmp_path: Path) -> None:
    store = SmallStore(file_size=1024 * 1024)
    store.add(body=zlib.compress(bytes(1000)), sys_flag=COMPRESSED)
    store.write(tmp_path)
    for command in (("cat", "--topic", "T"), ("tail", "--topic", "T"), ("query", "--topic", "T")):
        (whole,) = lines_of(run(command[0], tmp_path, *command[1:], "-o", "json-lines", "--max-body-bytes", 1000))
        assert len(whole["body"]) == 1000
        cut = run(command[0], tmp_path, *command[1:], "-o", "json-lines", "--max-body-bytes", 999)
        assert "1 message damaged" in cut.stderr
    assert run("verify", tmp_path, "--max-body-bytes", 999).stdout.count("unpacks to more than 999") == 1
    assert "unpacks" not in run("verify", tmp_path).stdout
