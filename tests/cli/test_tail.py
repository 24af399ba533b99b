"""`rmqstore tail`: the newest messages, and those that come, each once."""

import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqstore import Message, Store, StoreConfig, open_store
from rmqstore.cli.tail import _Newest
from rmqstore.clock import ManualClock
from tests.cli.conftest import Run

pytestmark = pytest.mark.stores

RMQSTORE = [sys.executable, "-c", "from rmqstore.cli import main; main(prog_name='rmqstore')"]


def put(store: Store, topic: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        message = Message(
            topic, b"%d" % number, queue_id=number % 3, tags="ab"[number % 2], properties={"at": f"p{number}"}
        )
        assert store.put(message).is_stored
    store.flush()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as one:
        put(one, "orders", 0, 20)
        put(one, "payments", 20, 10)
        yield one


def bodies(output: str) -> list[int]:
    return [int(json.loads(line)["body"]) for line in output.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], range(20, 30)),
        (["-n", "12"], range(18, 30)),
        (["-n", "1000"], range(30)),
        (["-n", "0"], []),
        (["--topic", "orders", "-n", "2"], [18, 19]),
        (["--topic", "orders", "--topic", "payments", "-n", "11"], range(19, 30)),
        (["--pattern", "ord.*", "-n", "1"], [19]),
        (["--topic", "ord*", "-n", "1"], [19]),
        (["--topic", "o?ders", "--topic", "pay*", "-n", "11"], range(19, 30)),
        (["--tags", "a", "-n", "3"], [24, 26, 28]),
    ],
)
def test_the_newest_come_oldest_first(store: Store, run: Run, arguments: list[str], wanted: list[int]) -> None:
    assert bodies(run("tail", store.path, *arguments, "-o", "json-lines").stdout) == list(wanted)


def changed_clocks(root: Path, stored: list[tuple[str, bytes, int]], damaged: tuple[bytes, ...] = ()) -> Path:
    """A directory of stores: messages by broker, body and second, in the order in which they were stored."""
    for broker in sorted({broker for broker, _, _ in stored}):
        clock = ManualClock(0)
        path = root / broker
        with open_store(path, StoreConfig.embedded(), workers=False, clock=clock) as store:
            for _, body, at_s in (one for one in stored if one[0] == broker):
                clock.advance(1_790_000_000_000 + 1000 * at_s - clock.now_ms())
                assert store.put(Message("t", body, tags="x", queue_id=len(body) % 2)).is_stored
        (log,) = (path / "commitlog").iterdir()
        data = bytearray(log.read_bytes())
        for body in damaged:
            at = data.find(body)
            if at >= 0:
                data[at] ^= 0xFF
        log.write_bytes(data)
    return root


def newest(run: Run, paths: list[Any], *arguments: str) -> list[str]:
    """The bodies that are shown, "" for a damaged one."""
    output = run("tail", *paths, *arguments, "-o", "json-lines").stdout
    return [json.loads(line)["body"] or "" for line in output.splitlines()]


def test_a_damaged_message_stands_where_it_was_stored(run: Run, tmp_path: Path) -> None:
    root = changed_clocks(tmp_path, [("a", b"m%03d" % one, one) for one in range(9)], damaged=(b"m001", b"m006"))
    assert newest(run, [root / "a"], "-n", "2") == ["m007", "m008"]
    assert newest(run, [root / "a"], "-n", "4") == ["m005", "", "m007", "m008"]


def test_no_damaged_message_takes_the_place_of_one_that_a_filter_finds(run: Run, tmp_path: Path) -> None:
    root = changed_clocks(tmp_path, [("a", b"m%03d" % one, one) for one in range(5)], damaged=(b"m001", b"m004"))
    assert newest(run, [root / "a"], "--tags", "x", "-n", "2") == ["m002", "m003"]
    assert newest(run, [root / "a"], "--tags", "x", "-n", "4") == ["m000", "m002", "m003", ""]
    assert newest(run, [root / "a"], "--tags", "x", "-n", "0") == []


def test_a_clock_that_was_set_back_changes_no_order(run: Run, tmp_path: Path) -> None:
    times = [0, 5000, 5001, 1, 2, 3]
    root = changed_clocks(tmp_path, [("a", b"m" * (number + 1), time) for number, time in enumerate(times)])
    assert list(map(len, newest(run, [root / "a"], "-n", "2"))) == [5, 6]
    assert list(map(len, newest(run, [root / "a"]))) == [1, 2, 3, 4, 5, 6]


def test_messages_of_several_brokers_are_in_the_order_of_their_times(run: Run, tmp_path: Path) -> None:
    root = changed_clocks(
        tmp_path,
        [("a", b"a0", 0), ("a", b"a9", 90), ("a", b"a2", 2), ("a", b"a4", 4), ("b", b"b1", 1), ("b", b"b3", 3),
         ("b", b"b5", 5)],
        damaged=(b"b3", b"a4"),
    )  # fmt: skip
    both = [f"{broker}={root / broker}" for broker in "ab"]
    assert newest(run, both) == ["a0", "b1", "", "a9", "a2", "", "b5"]
    assert newest(run, both, "-n", "3") == ["a2", "", "b5"]
    assert newest(run, both, "-n", "3", "--tags", "x") == ["a9", "a2", "b5"]


@pytest.mark.parametrize("sound_first", [True, False])
def test_the_newest_are_the_same_however_much_was_held(sound_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of three brokers in any order, some damaged, under a clock that jumps; and what is shown is all chunks."""
    rng = random.Random(7)
    brokers, times = "abc", (None, *range(0, 900, 7))
    places = [(rng.choice(brokers), offset, rng.choice(times)) for offset in range(600)]
    rng.shuffle(places)
    names = ("brokerName", "physicalOffset", "storeTimestamp", "corruptReason")
    table = pa.table(
        dict(zip(names, zip(*((*one, None if one[2] else "torn") for one in places), strict=True), strict=True)),
        schema=pa.schema(zip(names, (pa.string(), pa.int64(), pa.timestamp("us", "UTC"), pa.string()), strict=True)),
    )

    def shown(held_rows: int) -> list[tuple[str, int]]:
        newest_rows = _Newest(table.schema, 5, sound_first=sound_first)
        monkeypatch.setattr(newest_rows, "_room", held_rows)
        for batch in table.to_batches(max_chunksize=7):
            newest_rows.add(batch)
        batches = newest_rows.rows()
        return [(row["brokerName"], row["physicalOffset"]) for batch in batches for row in batch.to_pylist()]

    assert len(shown(10_000)) == 5
    assert shown(20) == shown(10_000)


def test_what_is_shown_is_chosen(store: Store, run: Run) -> None:
    one = ("tail", store.path, "--topic", "orders", "-n", "1")
    assert run(*one, "-o", "bodies").stdout == "19\n"
    assert run(*one, "--format", r"{topic}\t{queueOffset} {property.at}{property.none} {keys}{{}}\n").stdout == (
        "orders\t6 p19 {}\n"
    )
    (row,) = csv.DictReader(io.StringIO(run(*one, "-o", "csv").stdout))
    assert (row["queueId"], row["body"], row["tags"]) == ("1", "19", "b")
    assert run(*one).stdout.splitlines()[1].split()[:2] == ["1", "6"]
    assert run("tail", store.path, "-n", "1").stdout.split()[0] == "topic"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "{nothing}"], "no field {nothing}; choose from topic"),
        (["--format", "{body!r}"], "no field {body}"),
        (["--format", "{"], "Single '{'"),
        (["--format", "{body}", "-o", "csv"], "give only one of them"),
        (["--topic", "order"], "did you mean orders?"),
        (["--topic", "orders", "--pattern", "x"], "give only one of them"),
        (["--pattern", "("], "regular expression"),
        (["--pattern", "["], "it is a regular expression for the whole name"),
        (["--topic", ""], "is empty"),
        (["--key", ""], "is empty; leave it out for all messages"),
        (["--tags", " "], "is empty; leave it out for all messages"),
    ],
)
def test_mistakes_are_one_line(store: Store, run: Run, arguments: list[str], words: str) -> None:
    failed = run("tail", store.path, *arguments)
    assert failed.exit_code == (1 if "mean" in words else 2)
    assert words in failed.stderr.splitlines()[-1]


def test_a_message_cannot_steer_a_terminal(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "store") as one:
        one.put(Message("T", b"\x1b[2J\x9b", tags="\x1b]0;x\x07"))
    monkeypatch.setattr("rmqstore.cli.message_output.is_terminal", lambda: True)
    for form in (["-o", "table"], ["-o", "json-lines"], ["-o", "csv"], ["-o", "bodies"], ["--format", "{tags} {body}"]):
        shown = run("tail", tmp_path / "store", *form).stdout
        assert len(shown) > 5
        assert not set("\x1b\x9b\x07") & set(shown), form


@contextmanager
def following(root: str | Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    tail = subprocess.Popen(
        [*RMQSTORE, "tail", str(root), "-f", "-o", "json-lines", *arguments], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        yield tail
    finally:
        tail.kill()  # one that a test gave up
        tail.communicate()


@pytest.mark.deep
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_what_comes_is_printed_once_until_it_is_told_to_end(store: Store, ended_by: int) -> None:
    with following(store.path, "-n", "3") as tail:
        assert tail.stdout is not None
        found = [int(json.loads(tail.stdout.readline())["body"]) for _ in range(3)]
        put(store, "orders", 30, 10)
        put(store, "refunds", 40, 5)  # a topic that was not there
        found += [int(json.loads(tail.stdout.readline())["body"]) for _ in range(15)]
        tail.send_signal(ended_by)
        rest, said = tail.communicate()
        assert (rest, said, tail.returncode) == ("", "", 0)
    assert sorted(found) == list(range(27, 45))


def test_a_store_that_is_made_again_is_followed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as one:
        put(one, "orders", 0, 6)
    with following(root, "-n", "1") as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert json.loads(tail.stdout.readline())["body"] == "5"
        root.rename(tmp_path / "before")
        assert tail.stderr.readline().startswith("waiting: ")
        with open_store(root) as one:
            put(one, "orders", 100, 3)
        found = [int(json.loads(tail.stdout.readline())["body"]) for _ in range(3)]
        tail.send_signal(signal.SIGINT)
        rest, _ = tail.communicate()
        assert (rest, tail.returncode) == ("", 0)
    assert sorted(found) == [100, 101, 102]


def test_a_reader_that_has_enough_ends_it(store: Store) -> None:
    with following(store.path, "-n", "1") as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        tail.stdout.readline()
        tail.stdout.close()
        put(store, "orders", 30, 3)
        assert tail.stderr.read() == ""
        assert tail.wait() == 1
        tail.stdout = None


@pytest.mark.parametrize("command", ["inspect", "cat --topic t", "tail", "verify", "query --tags x"])
def test_a_directory_of_stores_is_all_that_are_in_it(run: Run, tmp_path: Path, command: str) -> None:
    stores = changed_clocks(tmp_path / "stores", [("a", b"m1", 1), ("b", b"m2", 2)])
    name, *arguments = command.split()
    together = run(name, stores, *arguments)
    assert together.exit_code == 0
    assert together.stdout == run(name, f"a={stores / 'a'}", f"b={stores / 'b'}", *arguments).stdout


def test_a_store_under_a_wrong_name_among_others_is_told(run: Run, tmp_path: Path) -> None:
    stores = changed_clocks(tmp_path / "stores", [("a", b"m1", 1), ("b", b"m2", 2)])
    (stores / "b" / "brokerIdentity").write_text("cluster#broker-b#1")
    result = run("inspect", stores)
    assert (result.exit_code, "and its directory should have that name" in result.stderr) == (1, True)


def test_a_report_of_a_directory_of_stores_is_of_all_that_are_in_it(run: Run, tmp_path: Path) -> None:
    stores = changed_clocks(tmp_path / "stores", [("a", b"m1", 1), ("b", b"m2", 2)])
    assert "2 messages" in run("report", stores, "-o", tmp_path / "report.html").stdout
