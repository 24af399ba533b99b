"""`rmqstore put`: what stands in an input is in the store once, and what is said of it is so."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqstore import Message, StoreConfig, open_snapshot, open_store
from rmqstore.cli.putting.chunks import Mistake
from rmqstore.cli.putting.line_input import lines_of
from rmqstore.cli.putting.message_columns import MessageWishes, of_table
from rmqstore.engine.log.encode.queue_choice import QueueChoice
from rmqstore.files.filesystem import RealFileSystem
from tests.cli.conftest import Run, document_of, last_line, store_of

pytestmark = pytest.mark.stores

__all__ = ["store_of"]

RMQSTORE = [sys.executable, "-c", "from rmqstore.cli import main; main(prog_name='rmqstore')"]
# The fields of a message that an input may have; where it is stored is the store's own.
KEPT = (
    "topic", "tags", "keys", "properties", "body", "bodyBase64", "flag", "bornTimestamp", "bornHost", "reconsumeTimes",
)  # fmt: skip


def objects(run: Run, store: object, *arguments: object) -> list[dict[str, Any]]:
    shown = run("cat", store, "--topic", "*", "-o", "json-lines", *arguments)
    assert shown.exit_code == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def bodies(run: Run, store: object) -> list[str]:
    found = objects(run, store)
    return [row["body"] for row in sorted(found, key=lambda row: row["physicalOffset"])]


def write(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
    return path


def line(body: str, **fields: Any) -> str:
    return json.dumps({"topic": "orders", "body": body} | fields)


@pytest.mark.parametrize("case", ["basic", "killed-lagcq", "batch"])
def test_what_cat_prints_can_be_put_again(case: str, run: Run, store_of: Callable[[str], Path], tmp_path: Path) -> None:
    topics = {name for store in open_snapshot(store_of(case)).stores for name, _ in store.queues}
    printed = []
    for topic in sorted(topics - {"SCHEDULE_TOPIC_XXXX"}):
        shown = run("cat", store_of(case), "--topic", topic, "-o", "json-lines")
        printed += [each for each in shown.stdout.splitlines() if "corruptReason" not in each]
    file = write(tmp_path / "all.jsonl", *printed)
    put = run("put", tmp_path / "store", "--create", "--keep-queues", file)
    assert (put.exit_code, put.stderr) == (0, "")
    assert put.stdout.startswith(f"{len(printed):,} message")
    again = []
    for topic in sorted(topics - {"SCHEDULE_TOPIC_XXXX"}):
        shown = run("cat", tmp_path / "store", "--topic", topic, "-o", "json-lines")
        again += shown.stdout.splitlines() if shown.exit_code == 0 else []

    def kept(lines: list[str]) -> list[list[Any]]:
        rows = [json.loads(each) for each in lines]
        found = ([row.get(name) for name in (*KEPT, "queueId")] for row in rows)
        return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))

    assert len(again) == len(printed) > 100
    assert kept(again) == kept(printed)


def test_plain_lines_are_bodies_each_to_the_last_byte(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_bytes(b"one\n\n\xff\x00three\r\nfour without an end")
    put = run("put", tmp_path / "store", "--create", "--topic", "logs", "--lines", "--tags", "t", "--key", "a b", file)
    assert put.stdout == f"4 messages put into {tmp_path / 'store'}\n"
    rows = open_snapshot(tmp_path / "store").scan(["logs"], columns="*").read_all().sort_by("physicalOffset")
    assert rows["body"].to_pylist() == [b"one", b"", b"\xff\x00three\r", b"four without an end"]
    assert {*rows["tags"].to_pylist(), *rows["keys"].to_pylist()} == {"t", "a b"}


def test_rows_of_parquet_are_messages(run: Run, tmp_path: Path) -> None:
    with open_store(tmp_path / "first") as store:
        for number in range(20):
            store.put(Message("orders", b"%d" % number, queue_id=number % 3, tags="a", properties={"x": str(number)}))
    table = open_snapshot(tmp_path / "first").scan(["orders"], columns="*").read_all()
    pq.write_table(table.drop_columns(["sysFlag"]), tmp_path / "orders.parquet")
    put = run("put", tmp_path / "second", "--create", "--keep-queues", tmp_path / "orders.parquet")
    assert (put.exit_code, put.stderr) == (0, "")
    wanted = ["topic", "body", "tags", "properties", "queueId", "queueOffset", "bornTimestamp"]
    again = open_snapshot(tmp_path / "second").scan(["orders"], columns=wanted).read_all()
    assert again.sort_by("body").equals(table.select(wanted).sort_by("body"))
    pq.write_table(pa.table({"topic": ["a"], "body": ["x"], "boddy": [1]}), tmp_path / "wrong.parquet")
    assert "no field 'boddy'; did you mean body?" in last_line(
        run("put", tmp_path / "second", tmp_path / "wrong.parquet").stderr
    )


def test_single_properties_are_properties(run: Run, tmp_path: Path) -> None:
    table = pa.table({"topic": ["orders"] * 3, "body": ["a", "b", "c"], "property.x": ["1", None, "3"],
                      "property.n": [1, 2, None]})  # fmt: skip
    pq.write_table(table, tmp_path / "in.parquet")
    assert run("put", tmp_path / "store", "--create", tmp_path / "in.parquet").exit_code == 0
    rows = objects(run, tmp_path / "store")
    found = {row["body"]: row["properties"] for row in rows}
    assert found == {"a": {"x": "1", "n": "1"}, "b": {"n": "2"}, "c": {"x": "3"}}
    file = write(tmp_path / "in", line("d", **{"property.x": "4"}), line("e", properties={}, **{"property.x": "4"}))
    assert "line 2: has both properties and property.x" in run("put", tmp_path / "store", file).stderr
    assert (
        "no field 'propertiesText'"
        in run("put", tmp_path / "store", write(tmp_path / "in", line("x", propertiesText=""))).stderr
    )


def test_messages_with_one_key_share_a_queue_and_the_others_take_turns(run: Run, tmp_path: Path) -> None:
    lines = [line(str(number), keys=f"k{number % 3}") for number in range(30)]
    lines += [json.dumps({"topic": "turns", "body": "x"}) for _ in range(16)]
    assert run("put", tmp_path / "store", "--create", write(tmp_path / "in.jsonl", *lines)).exit_code == 0
    rows = objects(run, tmp_path / "store")
    by_key = {(row["keys"], row["queueId"]) for row in rows if row["topic"] == "orders"}
    assert len(by_key) == 3
    assert sorted(row["queueId"] for row in rows if row["topic"] == "turns") == sorted([*range(8)] * 2)


LISTED = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
MAPS = (pa.map_(pa.string(), pa.string()), pa.map_(pa.large_string(), pa.string_view()), LISTED)
KINDS = [
    pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.list_(pa.string()),
    pa.large_list(pa.large_string()), pa.int8(), pa.dictionary(pa.int8(), pa.int64()),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("maps", MAPS, ids=["map", "others", "list"])
def test_a_value_that_differs_from_its_property_is_a_mistake_in_every_type(
    kind: pa.DataType, maps: pa.DataType
) -> None:
    column, own, value = ("delayLevel", "DELAY", 4) if "int8" in str(kind) else ("keys", "KEYS", "4")
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    given = pa.array([[str(value)] if listed else value] * 4)
    given = given.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else given.cast(kind)
    for last, is_wrong in (("5", True), ("4", False)):
        rows = [None, [], [("x", "5"), (own, None)], [(own, "4" if not is_wrong else "3"), (own, last)]]
        pairs = (
            [row and [{"key": name, "value": text} for name, text in row] for row in rows] if maps == LISTED else rows
        )
        batch = pa.record_batch({"body": ["x"] * 4, column: given, "properties": pa.array(pairs, maps)})
        for first in range(4):
            part = batch.slice(first)
            if not is_wrong:
                assert of_table(part, MessageWishes("a")).num_rows == 4 - first
                continue
            with pytest.raises(Mistake, match=f"has both {column} and the property {own}, and they differ"):
                of_table(part, MessageWishes("a"))


@pytest.mark.parametrize("form", ["map", "single", "list", "mixed"])
def test_keys_among_the_properties_choose_the_queue_as_well(form: str) -> None:
    keys = [f"k{number % 5}" for number in range(20)]
    wanted = QueueChoice(8).queued(pa.record_batch({"keys": keys})).column("queueId")
    rows = [[("x", "1"), ("KEYS", key)] for key in keys]
    columns: dict[str, Any] = {"topic": ["a"] * 20, "body": ["x"] * 20}
    if form == "single":
        columns |= {"property.KEYS": keys}
    elif form == "list":
        columns |= {"properties": pa.array([[{"key": n, "value": t} for n, t in row] for row in rows], LISTED)}
    else:
        columns |= {"properties": pa.array(rows, MAPS[0])}
    if form == "mixed":
        columns |= {"keys": [key if number % 2 else None for number, key in enumerate(keys)]}
    made = of_table(pa.record_batch(columns), MessageWishes())
    assert QueueChoice(8).queued(made).column("queueId").to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("numbers", [[None, None, 1], [1, None, 1], [None], [0, 1]], ids=str)
def test_a_message_without_a_queue_is_a_mistake_where_queues_are_kept(
    numbers: list[int | None], form: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / f"in.{form}"
    if form == "jsonl":
        write(file, *(line("x", **({} if number is None else {"queueId": number})) for number in numbers))
    elif numbers == [None]:
        pq.write_table(pa.table({"topic": ["orders"], "body": ["x"]}), file)
    else:
        whole = {"topic": ["orders"] * len(numbers), "body": ["x"] * len(numbers)}
        pq.write_table(pa.table(whole | {"queueId": pa.array(numbers, pa.int32())}), file)
    done = run("put", tmp_path / "store", "--create", "--keep-queues", file)
    if None not in numbers:
        assert (done.exit_code, sorted(row["queueId"] for row in objects(run, tmp_path / "store"))) == (0, numbers)
        return
    first = numbers.index(None)
    assert done.exit_code == 1
    assert f"line {first + 1}: has no queueId, which --keep-queues asks for" in last_line(done.stderr)
    assert ("1 message put" in done.stderr) == (first == 1)


WRONG = {
    "no json": ("{", "is not a JSON object (Expecting property name"),
    "array": ("[1]", "is not a JSON object"),
    "two": ('{"topic":"a","body":"x"}{}', "is not a JSON object (Extra data"),
    "utf-8": (b'{"topic":"a","body":"\xff"}', "is not UTF-8"),
    "utf-16": ('{"topic":"a","body":"x"}'.encode("utf-16-le"), "is not a JSON object"),
    "no body": ('{"topic":"a"}', "has no body"),
    "no topic": ('{"body":"a"}', "has no topic; --topic names one for all"),
    "field": ('{"topic":"a","body":"x","tag":"y"}', "no field 'tag'; did you mean tags?"),
    "object": ('{"topic":"a","body":{"x":1}}', "body: expected a text"),
    "number": ('{"topic":"a","body":"x","flag":"1"}', "flag: expected a whole number of 32 bits"),
    "true": ('{"topic":"a","body":"x","flag":true}', "flag: expected a whole number of 32 bits"),
    "too large": ('{"topic":"a","body":"x","flag":4294967296}', "flag: expected a whole number of 32 bits"),
    "constant": ('{"topic":"a","body":"x","flag":NaN}', "is not a JSON object (NaN is not a JSON number)"),
    "digits": ('{"topic":"a","body":"x","flag":%s}' % ("1" * 9999), "is not a JSON object"),
    "deep": ("[" * 200_000, "is nested too deeply"),
    "twice": ('{"topic":"a","body":"x","body":"y"}', "is not a JSON object (it has 'body' twice)"),
    "twice within": (
        '{"topic":"a","body":"x","properties":{"a":"1","a":"2"}}',
        "is not a JSON object (it has 'a' twice)",
    ),
    "system": ('{"topic":"SCHEDULE_TOPIC_XXXX","body":"x"}', "the topic SCHEDULE_TOPIC_XXXX is RocketMQ's own"),
    "tags twice": (
        '{"topic":"a","body":"x","tags":"q","properties":{"TAGS":"z"}}', "has both tags and the property TAGS",
    ),
    "level twice": (
        '{"topic":"a","body":"x","delayLevel":2,"properties":{"DELAY":"3"}}',
        "has both delayLevel and the property DELAY",
    ),
    "half": ('{"topic":"a","body":"\\ud800"}', "body: expected a text"),
    "time": ('{"topic":"a","body":"x","bornTimestamp":"noon"}', "bornTimestamp: expected a time such as"),
    "properties": ('{"topic":"a","body":"x","properties":{"a":1}}', "properties: expected an object of texts"),
    "base64": ('{"topic":"a","bodyBase64":"?"}', "bodyBase64 is not base64"),
    "both": ('{"topic":"a","body":"x","bodyBase64":"eA=="}', "has both body and bodyBase64"),
    "damaged": ('{"topic":"a","body":"x","corruptReason":"CRC"}', "was damaged when it was read"),
    "topic": ('{"topic":"a b","body":"x"}', "topic 'a b' may not be stored"),
    "separator": ('{"topic":"a","body":"x","tags":"\\u0001"}', "tags hold a separator"),
    "body": ('{"topic":"a","body":"%s"}' % ("x" * (4 * 1024 * 1024 + 1)), "body of more than 4194304 bytes"),
    "properties size": ('{"topic":"a","body":"x","properties":{"a":"%s"}}' % ("x" * 40_000), "properties of more than"),
}  # fmt: skip


@pytest.mark.some(6)
@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_line_ends_it_and_from_line_goes_on(which: str, run: Run, tmp_path: Path) -> None:
    wrong, words = WRONG[which]
    store, file = (
        tmp_path / "store",
        write(tmp_path / "in.jsonl", line("1"), "", line("2"), wrong, line("4"), line("5")),
    )
    failed = run("put", store, "--create", file)
    assert failed.exit_code == 1
    assert failed.stdout == ""
    assert len(failed.stderr.splitlines()) == 1
    assert f"{file}, line 4: {words}" in failed.stderr
    assert failed.stderr.endswith(
        "; 2 messages put, and on the disk, none from that line on; correct it, and continue with --from-line 4\n"
    )
    assert bodies(run, store) == ["1", "2"]
    write(file, line("1"), "", line("2"), line("3"), line("4"), line("5"))
    assert run("put", store, "--from-line", 4, file).stdout.startswith("3 messages put")
    assert bodies(run, store) == ["1", "2", "3", "4", "5"]


def test_the_first_line_may_be_the_wrong_one_and_nothing_is_made(run: Run, tmp_path: Path) -> None:
    failed = run("put", tmp_path / "store", "--create", "--json", write(tmp_path / "in.jsonl", "nonsense"))
    assert failed.exit_code == 1
    said = json.loads(failed.stdout)
    assert (said["put"], said["unknown"], said["line"]) == (0, 0, 1)
    assert not (tmp_path / "store").exists()


def test_a_wrong_line_in_the_second_file_is_told_by_its_name(run: Run, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", line("1"), line("2")), write(tmp_path / "b", line("3"), "x")
    failed = run("put", tmp_path / "store", "--create", "--from-line", 2, first, second)
    assert f"{second}, line 2: is not a JSON" in failed.stderr
    assert "; 2 messages put" in failed.stderr
    assert failed.stderr.endswith(f"continue with --from-line 2 and {second} alone\n")
    assert bodies(run, tmp_path / "store") == ["2", "3"]


def test_the_advice_after_a_wrong_line_names_the_files_that_are_left(run: Run, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name} {name}", line(f"{name}1"), line(f"{name}2")) for name in "abc"]
    write(files[1], line("b1"), "x")
    said = run("put", tmp_path / "store", "--create", *files)
    told = said.stderr.strip().partition("continue with ")[2].replace(" and, of the files,", "")
    assert json.loads(run("put", tmp_path / "other", "--create", "--json", *files).stdout)["rest"] == [
        *map(str, files[1:])
    ]
    write(files[1], line("b1"), line("b2"))
    assert run("put", tmp_path / "store", *shlex.split(told)).exit_code == 0
    assert bodies(run, tmp_path / "store") == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_a_line_after_the_end_is_no_place_to_go_on(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "in", line("1"), line("2"))
    done = run("put", tmp_path / "store", "--create", "--from-line", 3, file)  # where a run that put all would go on
    assert (done.exit_code, done.stdout[:10]) == (0, "0 messages")
    failed = run("put", tmp_path / "store", "--create", "--from-line", 4, file)
    assert failed.exit_code == 1
    assert f"{file} ends with line 2, before --from-line 4; 0 messages put" in failed.stderr


def test_wrong_lines_far_in_are_counted_exactly(run: Run, tmp_path: Path) -> None:
    lines = [line(str(number)) for number in range(20_000)]
    lines[17_123] = line("x", queueOffset=5, topic="no topic")
    failed = run("put", tmp_path / "store", "--create", "--json", write(tmp_path / "in.jsonl", *lines))
    said = json.loads(failed.stdout)
    assert (said["put"], said["line"]) == (17_123, 17_124)
    assert bodies(run, tmp_path / "store") == [str(number) for number in range(17_123)]


@pytest.mark.parametrize(
    ("content", "words"), [(b"\x1f\x8b\x08\x00", "zcat FILE"), (b"PAR1\x15\x04", "--format parquet")]
)
def test_another_kind_of_file_is_recognised(content: bytes, words: str, run: Run, tmp_path: Path) -> None:
    failed = run("put", tmp_path / "store", "--create", write(tmp_path / "in", content))
    assert words in last_line(failed.stderr)


def test_an_empty_input_puts_nothing(run: Run, tmp_path: Path) -> None:
    done = run("put", tmp_path / "store", "--create", write(tmp_path / "empty"))
    assert (done.exit_code, done.stdout) == (0, f"0 messages put into {tmp_path / 'store'}\n")


def test_a_byte_order_mark_is_no_matter(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "in", b"\xef\xbb\xbf" + line("1").encode())
    assert run("put", tmp_path / "store", "--create", file).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 1, "does not exist here"),
        (["--lines", "--format", "json-lines"], 2, "--lines and --format: give only one of them"),
        (["--lines", "--topic", "a", "--keep-queues"], 2, "--lines and --keep-queues: lines have no queues"),
        (["--format", "lines", "--topic", "a", "--keep-queues"], 2, "--lines and --keep-queues: lines have no queues"),
        (["--lines"], 2, "lines have no topic; name it with --topic"),
        (["--topic", ""], 2, "is empty"),
        (["--queue", "1", "--keep-queues"], 2, "give only one of them"),
        (["--from-line", "0"], 2, "--from-line"),
        (["nowhere.jsonl"], 2, "does not exist"),
        (["."], 2, "is a directory"),
        (["--create", "--format", "parquet", "-"], 1, "cannot come through a pipe"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], status: int, words: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    failed = run("put", tmp_path / "store", *arguments)
    assert failed.exit_code == status, failed.stderr
    assert words in last_line(failed.stderr)
    assert not (tmp_path / "store").exists()


def test_a_directory_that_is_no_store_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    failed = run("put", tmp_path / "photos", "--create", write(tmp_path / "in", line("1")))
    assert failed.exit_code == 1
    assert "holds no RocketMQ store" in failed.stderr
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.jpg"]


def test_a_store_that_is_in_use_is_refused_before_anything_is_read(run: Run, tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.put(Message("orders", b"0"))
        failed = run("put", tmp_path / "store", write(tmp_path / "in", line("1")))
    assert failed.exit_code == 1
    assert "stop the other writer" in last_line(failed.stderr)
    assert bodies(run, tmp_path / "store") == ["0"]


def test_a_replica_takes_none(run: Run, tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.put(Message("orders", b""))
    (tmp_path / "store" / "config" / "replica.json").write_text(
        '{"cluster": "c", "brokerName": "broker-a", "logStart": 0}', encoding="utf-8"
    )
    failed = run("put", tmp_path / "store", write(tmp_path / "in", line("1")))
    assert "is a replica of broker-a" in last_line(failed.stderr)


@pytest.fixture
def piped(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [*RMQSTORE, "put", str(tmp_path / "store"), "--create", "--topic", "orders", "--lines"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


@pytest.mark.deep
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_a_pipe_is_put_as_it_comes_and_a_signal_says_how_much(
    piped: "subprocess.Popen[bytes]", ended_by: int, tmp_path: Path
) -> None:
    assert piped.stdin is not None
    piped.stdin.write(b"one\ntwo\nthr")
    piped.stdin.flush()
    found: list[bytes] = []
    while len(found) < 2:  # they are there before the pipe ends
        if (tmp_path / "store" / "commitlog").exists():
            rows = open_snapshot(tmp_path / "store").scan(pattern="orders", columns="body").read_all()
            found = rows["body"].to_pylist()
    piped.send_signal(ended_by)
    assert piped.stderr is not None
    said = piped.stderr.read().decode()
    assert piped.wait() == 1
    assert said == (
        "Error: standard input, line 3: interrupted; 2 messages put, and on the disk, none from that line on; "
        "continue with --from-line 3\n"
    )
    assert sorted(found) == [b"one", b"two"]


def test_a_pipe_with_a_name_that_nobody_writes_to_holds_up_no_signal(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    asked: list[None] = []
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(list, lines_of(str(pipe), lambda: bool(asked.append(None)) or len(asked) > 2, int))
        try:
            assert read.result(timeout=60) == []
        finally:
            os.close(os.open(pipe, os.O_RDWR))  # lets a thread go that waits in open


def test_a_pipe_with_a_name_is_read_to_the_end_of_its_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_bytes, b"one\ntwo\n" * 100_000)
        lines = [line for part in lines_of(str(pipe), lambda: False, int) for line in part.lines]
        assert written.result() == 800_000
    assert lines == [b"one", b"two"] * 100_000


@pytest.mark.some(3)
@pytest.mark.parametrize("size", [300_000, 3_000_000, 9_000_000])
def test_what_a_kill_leaves_is_the_beginning_each_once(size: int, tmp_path: Path) -> None:
    write(tmp_path / "in", *[b"%08d" % number + b"x" * 40 for number in range(600_000)])
    command = [*RMQSTORE, "put", str(tmp_path / "store"), "--create", "--topic", "t", "--lines", "--queue", "0"]
    with subprocess.Popen([*command, str(tmp_path / "in")], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        queue = tmp_path / "store" / "consumequeue" / "t" / "0"
        while process.poll() is None and sum(file.stat().st_blocks for file in queue.glob("*")) * 512 < size / 6:
            pass
        process.kill()
    with open_store(tmp_path / "store") as store:
        first, end = store.bounds("t", 0)
    rows = open_snapshot(tmp_path / "store").scan(["t"], columns="body").read_all()["body"].to_pylist()
    assert (first, end) == (0, len(rows))
    assert [int(body[:8]) for body in rows] == [*range(len(rows))]


FULL = """
mount -t tmpfs -o size=24m rmqstore "$1/disk" || exit 9
"$2" -c "$3" put "$1/disk/store" --create --broker-conf "$1/broker.conf" --topic t --lines --json "$1/in" > "$1/said"
echo $? > "$1/status"
"$2" -c "$3" cat "$1/disk/store" --topic t -o bodies > "$1/found"
"""


@pytest.mark.deep
def test_a_full_disk_counts_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog=1048576\nmaxIndexNum=1000\nmaxHashSlotNum=100\n"
                                          "mappedFileSizeConsumeQueue=20000\n", encoding="utf-8")  # fmt: skip
    write(tmp_path / "in", *[b"x" * 100_000 + b"%06d" % number for number in range(400)])
    program = "from rmqstore.cli import main; main(prog_name='rmqstore')"
    done = subprocess.run(
        ["unshare", "-r", "-m", "sh", "-c", FULL, "sh", str(tmp_path), sys.executable, program],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 9 or "unshare" in done.stderr:
        assert "RMQSTORE_MUST_MOUNT" not in os.environ, done.stderr
        pytest.skip(f"this system lets nobody mount a disk of his own: {done.stderr.strip()}")
    said = json.loads((tmp_path / "said").read_text(encoding="utf-8"))
    assert (tmp_path / "status").read_text(encoding="utf-8") == "1\n"
    assert len(done.stderr.splitlines()) == 1
    found = sorted(int(body[-6:]) for body in (tmp_path / "found").read_bytes().split())
    assert found == [*range(said["put"] + said["unknown"])]
    assert 100 < said["put"] < 240
    assert said["line"] == said["put"] + said["unknown"] + 1


def test_the_output_can_be_closed(tmp_path: Path) -> None:
    file = write(tmp_path / "in", line("1"))
    command = [*RMQSTORE, "put", str(tmp_path / "store"), "--create", str(file)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert b"cannot write to standard output" in done.stderr
    assert b"1 message put, and on the disk" in done.stderr


def test_the_input_can_be_closed(tmp_path: Path) -> None:
    command = [*RMQSTORE, "put", str(tmp_path / "store"), "--create"]
    done = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: standard input is closed: name a FILE, or pipe messages into it; 0 messages put, and on the disk\n"
    )


def test_hostile_names_do_not_steer_a_terminal(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "in\x1b[2J", '{"topic":"a","body":"x","\\u001b[2J":1}')
    failed = run("put", tmp_path / "store", "--create", file)
    assert failed.exit_code == 1
    assert "\x1b" not in failed.stderr


def test_a_store_of_a_configuration_takes_what_that_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealFileSystem, "used_ratio", lambda *_: 0.5)  # a broker's refuses everything from 0.9 on
    (tmp_path / "broker.conf").write_text("maxMessageSize=10\n", encoding="utf-8")
    arguments = ("--create", "--broker-conf", tmp_path / "broker.conf")
    failed = run("put", tmp_path / "store", *arguments, write(tmp_path / "in", line("x" * 11)))
    assert "body of more than 10 bytes" in failed.stderr


def test_topics_that_a_pipe_copies_within_one_store(run: Run, tmp_path: Path) -> None:
    with open_store(tmp_path / "store", StoreConfig()) as store:
        store.put(Message("orders", b"1", tags="t"))
    printed = run("cat", tmp_path / "store", "--topic", "orders", "-o", "json-lines").stdout
    (tmp_path / "in").write_text(printed, encoding="utf-8")
    assert document_of(run("put", tmp_path / "store", "--topic", "copy", "--json", tmp_path / "in"))["put"] == 1
    (row,) = [row for row in objects(run, tmp_path / "store") if row["topic"] == "copy"]
    assert (row["body"], row["tags"]) == ("1", "t")


def test_times_of_a_broken_clock_are_taken_as_they_are_printed(run: Run, tmp_path: Path) -> None:
    times = [1, -62_167_219_200_000, -62_167_219_200_001, 253_402_300_799_999, 253_402_300_800_000, 2**53]
    with open_store(tmp_path / "a", StoreConfig(preallocate=False), workers=False) as store:
        for at in times:
            store.put(Message("t", b"x", born_timestamp_ms=at))
    printed = run("cat", tmp_path / "a", "--topic", "t", "-o", "json-lines").stdout
    (tmp_path / "in").write_text(printed, encoding="utf-8")
    assert run("put", tmp_path / "b", "--create", "--queue", 0, tmp_path / "in").exit_code == 0
    with open_store(tmp_path / "b", StoreConfig(preallocate=False), workers=False) as store:
        assert [each.born_timestamp_ms for each in store.get("t", 0, 0).messages] == times


LATE = """
import signal, os, sys
import rmqstore.cli.putting.put as command
number, told = int(sys.argv.pop(1)), command._tell
def tell(*given, **named):
    told(*given, **named)
    os.kill(os.getpid(), number)
command._tell = tell
import rmqstore.command
import atexit
atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))
rmqstore.command.main()
"""


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_when_all_is_told_changes_no_status(number: signal.Signals, tmp_path: Path) -> None:
    file = write(tmp_path / "in", line("1"))
    command = [sys.executable, "-c", LATE, str(int(number)), "put", str(tmp_path / "store"), "--create", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 message put into")


def test_a_wrong_line_is_told_where_nothing_can_be_printed(tmp_path: Path) -> None:
    file = write(tmp_path / "in", line("1"), "x")
    command = [*RMQSTORE, "put", str(tmp_path / "store"), "--create", "--json", str(file)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "line 2: is not a JSON" in done.stderr
    assert "; 1 message put, and on the disk, none from that line on; correct it, and continue with" in done.stderr
