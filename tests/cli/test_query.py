"""`rmqstore query`."""

import base64
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqstore import Message, StoreConfig, open_snapshot, open_store
from rmqstore.cli.output import iso
from rmqstore.core.arguments import moment_ms
from rmqstore.errors import Rejected
from rmqstore.export.open_files import ParquetFile
from tests.cli.conftest import Run
from tests.golden.cases import BROKER_CASES
from tests.snapshot.small_store import FIRST_MS, SmallStore, small_store

pytestmark = pytest.mark.stores

StoreOf = Callable[[str], Path]
MAIN = "from rmqstore.cli import main; main(prog_name='rmqstore')"
CONFIG = StoreConfig(preallocate=False)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with open_store(path, CONFIG, workers=False) as one:
        for number in range(6):
            one.put(
                Message(
                    ["orders", "orders-eu", "pay"][number % 3], b"order %d of Ada" % number, queue_id=0,
                    tags="ab"[number % 2], keys=[f"k{number}"], properties={"UNIQ_KEY": f"U{number}"},
                )
            )  # fmt: skip
        one.put(Message("%RETRY%g", b"order 9", queue_id=0, keys=["k9"]))
    return path


def rows(run: Run, *arguments: object) -> list[dict]:
    done = run("query", *arguments, "-o", "json-lines")
    assert done.exit_code in (0, 1), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def bodies(run: Run, *arguments: object) -> list[str]:
    return [row["body"] for row in rows(run, *arguments)]


def test_conditions_go_together(store: Path, run: Run) -> None:
    assert len(bodies(run, store, "--grep", "of Ada")) == 6
    assert bodies(run, store, "--grep", "order 4") == ["order 4 of Ada"]
    assert bodies(run, store, "--grep", "ORDER 4", "-i") == ["order 4 of Ada"]
    assert bodies(run, store, "-e", "order [12] ", "--tags", "a") == ["order 2 of Ada"]
    assert sorted(bodies(run, store, "--topic", "orders*", "--tags", "a")) == ["order 0 of Ada", "order 4 of Ada"]
    assert bodies(run, store, "--topic", "orders", "--topic", "pay", "--key", "k5") == ["order 5 of Ada"]
    assert bodies(run, store, "--id", "U3") == ["order 3 of Ada"]
    assert bodies(run, store, "--id", "U3", "--topic", "pay") == []
    assert bodies(run, store, "--grep", "order 9") == []
    assert bodies(run, store, "--grep", "order 9", "--include-system-topics") == ["order 9"]


def test_topics_of_rocketmq_s_own_by_their_beginning(store: Path, run: Run) -> None:
    assert bodies(run, store, "--topic", "%RETRY%*") == ["order 9"]
    assert len(bodies(run, store, "--topic", "*", "--topic", "%RETRY%*", "--grep", "order")) == 7
    assert len(bodies(run, store, "--topic", "*", "--grep", "order")) == 6


def test_properties_and_hosts(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "store"
    with open_store(store, CONFIG, workers=False) as one:
        for number in range(12):
            host = ["203.0.113.9:10911", "203.0.113.9:5", "203.0.113.90:5", "[2001:db8::1]:7"][number % 4]
            found = {"a": str(number % 3), "b": "x=y"} if number % 2 else {"a": "0"}
            found |= {"DELAY": "3"} if number == 11 else {}
            one.put(Message("t", b"%d" % number, queue_id=0, born_host=host, properties=found))
    assert bodies(run, store, "--property", "a=1") == ["1", "7"]
    assert bodies(run, store, "--property", "a=0", "--property", "b=x=y") == ["3", "9"]
    assert bodies(run, store, "--property", "c=") == []
    assert bodies(run, store, "--born-host", "203.0.113.9") == ["0", "1", "4", "5", "8", "9"]
    assert bodies(run, store, "--born-host", "203.0.113.9:5", "--born-host", "203.0.113.90") == [
        "1",
        "2",
        "5",
        "6",
        "9",
        "10",
    ]
    assert bodies(run, store, "--born-host", "[2001:db8::1]", "--property", "a=1") == ["7"]
    for text in ("2001:db8::1", "2001:DB8:0::1", " [2001:db8::1]:7 ", "[2001:db8:0:0::1]:7"):
        assert bodies(run, store, "--born-host", text, "--property", "a=1") == ["7"], text
    for text in ("localhost", "127.1", "203.0.113.9:", "203.0.113.*", "", "203.0.113.9:99999999999"):
        failed = run("query", store, "--born-host", text)
        assert (failed.exit_code, "write 203.0.113.9, " in failed.stderr) == (2, True), text
    assert bodies(run, store, "--delayed", "--property", "a=2", "--born-host", "[2001:db8::1]:7") == ["11"]
    assert bodies(run, store, "--delayed", "--property", "a=1") == []
    shown = run("query", store, "--property", "a=1", "--format", "{bornHost} {reconsumeTimes}\n")
    assert shown.stdout.splitlines() == ["203.0.113.9:5 0", "[2001:db8::1]:7 0"]
    assert "write NAME=VALUE" in run("query", store, "--property", "a").stderr


def test_an_offset_id_is_exact(store: Path, run: Run) -> None:
    table = open_snapshot(store).scan(columns=["offsetMsgId", "body"]).read_all()
    for own, body in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
        assert bodies(run, store, "--id", own.lower()) == [body.decode()]


def test_the_status_is_that_of_grep(store: Path, run: Run) -> None:
    found, missed = run("query", store, "--grep", "order 1"), run("query", store, "--grep", "nothing")
    assert (found.exit_code, missed.exit_code) == (0, 1)
    assert (missed.stdout, missed.stderr) == ("", "no messages\n")
    counted, none = run("query", store, "--count"), run("query", store, "--grep", "nothing", "-c")
    assert (counted.stdout, counted.exit_code) == ("6\n", 0)
    assert (none.stdout, none.exit_code) == ("0\n", 1)


def test_a_limit_ends_it(store: Path, run: Run) -> None:
    assert len(bodies(run, store, "--limit", 2)) == 2
    assert run("query", store, "-n", 4, "--count").stdout == "4\n"


def test_times_are_of_storing_or_of_birth(tmp_path: Path, run: Run) -> None:
    made = SmallStore()
    for number in range(4):
        made.add("T", body=b"%d" % number, born_timestamp=FIRST_MS - 10_000 * number)
    store = made.write(tmp_path / "s")
    assert bodies(run, store, "--since", FIRST_MS + 2000) == ["2", "3"]
    assert bodies(run, store, "--since", "2023-11-14T22:13:21Z", "--until", "2023-11-14T22:13:22Z") == ["1"]
    assert bodies(run, store, "--born", "--until", FIRST_MS - 10_000) == ["2", "3"]
    assert bodies(run, store, "--since", "1h") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", 10**12 + 7), ("90s", 10**12 + 7 - 90_000), ("2h", 10**12 + 7 - 7_200_000),
        (" 1 D ", 10**12 + 7 - 86_400_000),
        ("today", 10**12 // 86_400_000 * 86_400_000), ("Yesterday", (10**12 // 86_400_000 - 1) * 86_400_000),
        ("2001-09-09T01:46:40Z", 10**12), ("1000000000000", 10**12), ("999999w", 0),
    ],
)  # fmt: skip
def test_a_time_is_an_age_or_an_instant(text: str, expected: int) -> None:
    assert moment_ms(text, 10**12 + 7) == expected


@pytest.mark.parametrize("text", ["", "2 fortnights", "2026-05-01", "1795000000", "h"])
def test_any_other_time_is_refused(text: str) -> None:
    with pytest.raises(Rejected):
        moment_ms(text, 10**12)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say which messages"),
        (("--since", "1h", "--until", "2h"), "is not before the end"),
        (("--since", "later"), "or an age such as 30m"),
        (("--grep", "a", "-e", "b"), "give only one of them"),
        (("--grep", ""), "an empty text is in every body"),
        (("-e", "("), "no regular expression"),
        (("-i", "-n", "1"), "needs --grep"),
        (("-n", "1", "-o", "parquet"), "needs --to FILE"),
        (("-n", "1", "--to", "f"), "--to needs -o parquet"),
        (("-n", "1", "--overwrite"), "needs -o parquet"),
        (("-n", "1", "-c", "-o", "csv"), "leave --output and --format out"),
        (("-n", "1", "-o", "csv", "--format", "{body}"), "give only one of them"),
        (("--transaction", "U1", "--grep", "a"), "takes no other conditions"),
        (("--id", " "), "is empty"),
        (("--key", "a,b"), "|| between keys"),
        (("--born", "-n", "1"), "--born changes"),
        (("--topic", ""), "without a name"),
        (("--grep", "\udcff"), "is not UTF-8"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(
    arguments: tuple[str, ...], said: str, store: Path, run: Run
) -> None:
    done = run("query", store, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("topic", "said"), [("order", "did you mean orders"), ("zz*", "no topic fits zz* in")]
)  # fmt: skip
def test_an_unknown_topic_is_one_line(topic: str, said: str, store: Path, run: Run) -> None:
    done = run("query", store, "--topic", topic)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert said in done.stderr


def test_several_stores_and_a_directory_of_them(tmp_path: Path, run: Run) -> None:
    small_store(6).write(tmp_path / "all" / "broker-a")
    made = SmallStore()
    made.add("T", body=b"of b")
    made.write(tmp_path / "all" / "broker-b")
    found = rows(run, tmp_path / "all", "--topic", "T")
    assert {row["brokerName"] for row in found} == {"broker-a", "broker-b"}
    assert len(found) == 7
    assert len(rows(run, f"a={tmp_path / 'all' / 'broker-a'}", f"b={tmp_path / 'all' / 'broker-b'}", "-n", 99)) == 7
    shown = run("query", tmp_path / "all", "--topic", "T").stdout
    assert "broker-b/0" in shown


def test_a_file_of_parquet(store: Path, tmp_path: Path, run: Run) -> None:
    place = tmp_path / "found.parquet"
    arguments = ("query", store, "--tags", "a", "-o", "parquet", "--to", place)
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "3 messages in" in done.stderr
    table = pq.read_table(place)
    assert sorted(table["body"].to_pylist()) == [b"order 0 of Ada", b"order 2 of Ada", b"order 4 of Ada"]
    assert table.schema.field("storeTimestamp").type.unit == "us"
    again = run(*arguments)
    assert (again.exit_code, ": exists; name another file" in again.stderr) == (1, True)
    assert run(*arguments, "--overwrite").exit_code == 0
    assert run("query", store, "--grep", "nothing", "-o", "parquet", "--to", tmp_path / "none.parquet").exit_code == 1
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found.parquet", "none.parquet", "store"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("store/found.parquet", "lies in the store"),
        ("other/found.parquet", "is a store, lies in one"),
        ("nowhere/found.parquet", "there is no directory"),
        (".", "is a directory"),
    ],
)
def test_no_file_is_written_into_a_store(place: str, said: str, store: Path, tmp_path: Path, run: Run) -> None:
    small_store().write(tmp_path / "other")
    done = run("query", store, "-n", 1, "-o", "parquet", "--to", tmp_path / place)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert said in done.stderr


def test_damaged_messages_are_counted(tmp_path: Path, run: Run) -> None:
    made = small_store(10)
    made.change(made.offsets[3] + 4, b"\0\0\0\0")
    store = made.write(tmp_path / "s")
    done = run("query", store, "--grep", "body", "-c")
    assert done.exit_code == 0
    assert int(done.stdout) < 10
    assert "damaged, and left out; `rmqstore verify` says where" in done.stderr


def test_damage_where_the_index_leads_is_counted(tmp_path: Path, run: Run) -> None:
    """The message that is looked for may be the damaged one."""
    place = tmp_path / "s"
    with open_store(place, StoreConfig(preallocate=False, index_slot_count=9, index_item_count=50)) as store:
        for number in range(40):
            store.put(Message("T", b"body %d" % number, keys=[f"k{number}"], queue_id=0))
    first = place / "commitlog" / f"{0:020d}"
    first.write_bytes(first.read_bytes().replace(b"body 7", b"bodY 7", 1))
    done = run("query", place, "--key", "k7")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "1 message damaged, and left out; `rmqstore verify` says where" in done.stderr
    other = run("query", place, "--key", "k8", "-o", "bodies")
    assert other.stdout == "body 8\n"


def test_a_key_is_found_wherever_its_message_is(store: Path, run: Run) -> None:
    """Among retries and dead letters, too: an operator asks where an order is."""
    assert [row["topic"] for row in rows(run, store, "--key", "k9")] == ["%RETRY%g"]
    assert rows(run, store, "--key", "k9", "--topic", "*") == []
    assert "%RETRY%g" in run("cat", store, "--key", "k9").stdout


def test_bodies_are_searched_decompressed(tmp_path: Path, run: Run) -> None:
    made = SmallStore(file_size=64 * 1024)
    made.add("T", body=zlib.compress(b"a needle in it"), sys_flag=0x1)
    store = made.write(tmp_path / "s")
    assert bodies(run, store, "--grep", "needle") == ["a needle in it"]


EVIL = "\x1b]0;title\x07\u202e"


@pytest.mark.parametrize("form", ["table", "json-lines", "csv", "bodies"])
def test_nothing_steers_the_terminal(form: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore.cli.message_output.is_terminal", lambda: True)
    made = SmallStore()
    made.add("T", body=EVIL.encode(), properties={"TAGS": EVIL, "UNIQ_KEY": EVIL})
    store = made.write(tmp_path / "s")
    shown = run("query", store, "--grep", EVIL, "-o", form).output
    assert shown
    assert not set("\x1b\x07\u202e") & set(shown)
    assert not set("\x1b\x07\u202e") & set(run("query", store, "--topic", EVIL).output)


def test_a_pipe_that_is_closed_ends_it_quietly(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(store, CONFIG, workers=False) as one:
        for number in range(300):
            one.put(Message("orders", b"%d " % number + b"x" * 2000))
    command = [sys.executable, "-c", MAIN, "query", str(store), "--topic", "orders", "-o", "bodies"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in (0, 1)


# --- what waits, and transactions


@pytest.mark.some(2)
@pytest.mark.parametrize("case", BROKER_CASES)
def test_what_waits_is_the_table_s(case: str, run: Run, store_of: StoreOf) -> None:
    snapshot = open_snapshot(store_of(case))
    wanted = snapshot.table("delayed").to_pylist()
    found = rows(run, store_of(case), "--delayed")
    shown = sorted((row["physicalOffset"], row["topic"], row["queueId"], row["deliverAt"]) for row in found)
    assert shown == sorted(
        (row["physicalOffset"], row["topic"], row["queueId"], iso(row["deliverAt"])) for row in wanted
    )
    if wanted:
        one = wanted[0]
        of_topic = rows(run, store_of(case), "--delayed", "--topic", one["topic"])
        assert len(of_topic) == sum(row["topic"] == one["topic"] for row in wanted)
        assert [row["msgId"] for row in rows(run, store_of(case), "--delayed", "--id", one["msgId"])] == [one["msgId"]]
        table = run("query", store_of(case), "--delayed", "-n", 1).stdout.splitlines()
        assert table[0].startswith("deliverAt")


@pytest.mark.some(4)
@pytest.mark.parametrize("case", BROKER_CASES)
def test_a_transaction_is_shown_from_half_to_end(case: str, run: Run, store_of: StoreOf) -> None:
    table = open_snapshot(store_of(case)).table("transactions").to_pylist()
    by_state = {row["state"]: row for row in table}
    for state, row in by_state.items():
        if [other["transactionId"] for other in table].count(row["transactionId"]) > 1:
            continue
        done = run("query", store_of(case), "--transaction", row["transactionId"])
        assert done.exit_code == 0
        assert f"transaction {row['transactionId']}: {state}, topic {row['topic']}" in done.stdout.splitlines()[0]
        steps = [line["step"] for line in rows(run, store_of(case), "--transaction", row["transactionId"])]
        assert steps.count("half") + steps.count("check") == row["checkTimes"] + 1
        assert steps.count("final") == (state == "committed")
        assert ("op" in steps) >= (state == "rolledback")
        assert ("given up" in steps) == (state == "discarded")
        assert steps.count("given up") <= 2  # 5.5.1 does it again after its next start


def test_bodies_that_are_no_text_are_searched_by_bytes(tmp_path: Path, run: Run) -> None:
    made = SmallStore()
    made.add("T", body=b"\xff\xfe raw needle")
    (row,) = rows(run, made.write(tmp_path / "s"), "--grep", "needle")
    assert base64.b64decode(row["bodyBase64"]) == b"\xff\xfe raw needle"


def test_an_interrupt_leaves_no_part_of_a_file(store: Path, tmp_path: Path, run: Run, monkeypatch) -> None:
    def interrupted(file: ParquetFile, rows: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ParquetFile, "write", interrupted)
    done = run("query", store, "-n", 1, "-o", "parquet", "--to", tmp_path / "found.parquet")
    assert (done.exit_code, done.output.strip()) == (1, "Aborted!")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("arguments", [("--grep", "order"), ("--topic", "orders", "-n", "1"), ("--delayed",)])
def test_a_table_fits_a_terminal_of_80_columns_and_shows_bodies(
    arguments: tuple[str, ...], store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(store, CONFIG, workers=False) as one:
        one.put(Message("orders", b"order that waits", queue_id=0, keys=["k9"], properties={"DELAY": "9"}))
    monkeypatch.setattr("rmqstore.cli.message_output.cut_size", lambda: 80)
    head, *lines = run("query", store, *arguments).stdout.splitlines()
    assert max(map(len, (head, *lines))) <= 80
    told = next(number for number, line in enumerate(lines) if line.startswith("no room for sent"))
    lines = lines[:told]
    assert lines
    assert all(line[head.index("body") :].startswith("order ") for line in lines)


def test_escape_sequences_of_messages_are_whole_in_a_pipe(tmp_path: Path, run: Run) -> None:
    body = b"\x1b[31mERROR\x1b[0m disk full"
    with open_store(tmp_path / "store", CONFIG, workers=False) as one:
        one.put(Message("t", body, queue_id=0, tags="\x1b[1mt", properties={"a": "\x1b[2J"}))
    shown = run("query", tmp_path / "store", "--topic", "t", "--format", "{tags} {property.a} {body}")
    assert shown.stdout_bytes == b"\x1b[1mt \x1b[2J " + body
    for command in (("query", "--topic", "t"), ("cat", "--topic", "t"), ("tail",)):
        assert run(command[0], tmp_path / "store", *command[1:], "-o", "csv").stdout_bytes.count(b"\x1b") == 5
