"""`rmqstore export`."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from rmqstore import Message, open_snapshot, open_store
from rmqstore.files.real_file import RealFile
from tests.cli.conftest import Run, last_line
from tests.export.reading import files_of, require_each_once, rows_of
from tests.export.stores import CONFIG, filled, put
from tests.snapshot.small_store import SmallStore, small_store

pytestmark = pytest.mark.stores

PLAIN = ("--partition-by", "none", "--columns", "topic,queueId,queueOffset,body")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(tmp_path / "store", 60)


def exported(run: Run, *arguments: object) -> str:
    """What a run says at its end; it must have ended well."""
    done = run("export", *arguments)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return last_line(done.stdout)


def test_it_says_what_it_did(store: Path, tmp_path: Path, run: Run) -> None:
    place = tmp_path / "out"
    assert exported(run, store, "--topic", "orders", "--to", place) == (f"20 messages added to {place}, 20 in all")
    assert exported(run, store, "--topic", "orders", "--to", place).startswith("0 messages added")
    assert ds.dataset(place, partitioning="hive").count_rows() == 20
    (path,) = files_of(place)
    assert path.parent.parent.name == "topic=orders"


@pytest.mark.parametrize("form", ["parquet", "json-lines", "store"])
def test_each_format_has_each_message_once(form: str, store: Path, tmp_path: Path, run: Run) -> None:
    how = () if form == "store" else PLAIN
    for _ in range(2):
        exported(run, store, "--to", tmp_path / "out", "--format", form, *how)
        require_each_once(tmp_path / "out", form, store)
        with open_store(store, CONFIG, workers=False) as more:
            put(more, 100, 9)
    exported(run, store, "--to", tmp_path / "out", "--format", form, *how)
    require_each_once(tmp_path / "out", form, store)


def test_patterns_tags_and_keys_choose(store: Path, tmp_path: Path, run: Run) -> None:
    assert exported(run, store, "--topic", "o*", "--topic", "pay", "--to", tmp_path / "a").startswith("40 messages")
    assert exported(run, store, "--tags", "a", "--to", tmp_path / "b").startswith("30 messages")
    assert exported(run, store, "--key", "k7 || k8", "--to", tmp_path / "c").startswith("2 messages")
    assert exported(run, store, "--until", "yesterday", "--to", tmp_path / "d").startswith("0 messages")
    assert exported(run, store, "--since", "1h", "--born", "--to", tmp_path / "e").startswith("60 messages")


def test_an_age_goes_on_as_it_was_meant(store: Path, tmp_path: Path, run: Run) -> None:
    arguments = (store, "--since", "2h", "--to", tmp_path / "out")
    exported(run, *arguments)
    with open_store(store, CONFIG, workers=False) as more:
        put(more, 100, 9)
    assert exported(run, *arguments).startswith("9 messages")
    other = run("export", store, "--since", "3h", "--to", tmp_path / "out")
    assert (other.exit_code, "its since: 2h before, 3h now" in other.stderr) == (1, True)


def test_a_directory_of_stores(tmp_path: Path, run: Run) -> None:
    for name in ("broker-a", "broker-b"):
        made = SmallStore()
        made.add("T", body=name.encode())
        made.write(tmp_path / "brokers" / name)
    assert exported(run, tmp_path / "brokers", "--to", tmp_path / "two").startswith("2 messages")
    made = SmallStore()
    made.add("T", body=b"another")
    made.write(tmp_path / "brokers" / "broker-c")
    assert exported(run, tmp_path / "brokers", "--to", tmp_path / "two").startswith("1 message added")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "1h", "--until", "2h"), "is not before the end"),
        (("--format", "store", "--columns", "body"), "a store takes whole messages"),
        (("--format", "json-lines", "--compression", "snappy"), "JSON lines take"),
        (("--partition-by", "hour"), "topic, day, or both"),
        (("--columns", "topic"), "all of them are partitions"),
        (("--columns", "bodi"), "no column 'bodi'"),
        (("--tags", "a,b"), "write a || b"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(
    arguments: tuple[str, ...], said: str, store: Path, tmp_path: Path, run: Run
) -> None:
    done = run("export", store, "--to", tmp_path / "out", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("topic", "said"), [("order", "did you mean orders"), ("zz*", "no topic fits zz* in")]
)  # fmt: skip
def test_an_unknown_topic_is_one_line(topic: str, said: str, store: Path, tmp_path: Path, run: Run) -> None:
    done = run("export", store, "--topic", topic, "--to", tmp_path / "out")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert said in done.stderr


def test_a_foreign_directory_is_one_line(store: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "\x1b[31m").write_bytes(b"")
    done = run("export", store, "--to", tmp_path / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "is not part of an export" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_full_disk_is_one_line_and_the_next_run_goes_on(
    store: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(file: RealFile, position: int, data: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(RealFile, "write", is_full)
        done = run("export", store, "--to", tmp_path / "out", *PLAIN)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "No space left on device; make room on that disk, then try again" in done.stderr
    exported(run, store, "--to", tmp_path / "out", *PLAIN)
    require_each_once(tmp_path / "out", "parquet", store)


def test_what_was_lost_is_told_in_the_words_of_the_command(tmp_path: Path, run: Run) -> None:
    with open_store(tmp_path / "store", CONFIG) as store:
        put(store, 0, 12, ["orders"])
        arguments = (store.path, "--to", tmp_path / "out")
        exported(run, *arguments)
        store.delete_topic("orders")
        put(store, 50, 40, ["orders"])
        done = run("export", *arguments)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert "orders/1: is another log than was exported up to offset" in done.stderr
        assert done.stderr.endswith("; name another directory, or restore the store that was exported\n")
        assert run("export", *arguments, "--skip-lost").stderr == done.stderr
        store.delete_topic("orders")
        put(store, 0, 1, ["pay"])
        gone = run("export", *arguments)
        assert "goes on after it with skip_lost (--skip-lost), or starts again in another directory" in gone.stderr
        assert run("export", *arguments, "--skip-lost").exit_code == 0


def test_files_that_are_gone_are_told(store: Path, tmp_path: Path, run: Run) -> None:
    place = tmp_path / "o\x1b[1m"
    assert "file of this export" not in exported(run, store, "--to", place, *PLAIN)
    for path in files_of(place):
        path.unlink()
    done = run("export", store, "--to", place, *PLAIN)
    assert (done.exit_code, done.stderr.count("\n"), "\x1b" in done.stdout + done.stderr) == (0, 1, False)
    assert done.stderr.startswith("1 file of this export is gone from ")
    assert done.stderr.endswith("their messages are not exported again; to export all again, name another directory\n")


def test_damaged_messages_end_it_or_are_kept(tmp_path: Path, run: Run) -> None:
    made = small_store(10)
    made.change(made.offsets[3] + 88, b"\xff\xff")  # in the body
    store = made.write(tmp_path / "s")
    (store / "abort").write_bytes(b"")
    done = run("export", store, "--to", tmp_path / "out")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    done = run("export", store, "--to", tmp_path / "kept", "--on-corrupt-record", "null", "--columns", "*")
    assert (done.exit_code, done.stderr) == (0, "1 message damaged; `rmqstore verify` says where\n")
    table = ds.dataset(tmp_path / "kept", partitioning="hive").to_table()
    assert table.num_rows == 10
    assert table["corruptReason"].null_count == 9


def test_hostile_names_become_directories_that_are_none(tmp_path: Path, run: Run) -> None:
    made = SmallStore()
    made.add("%RETRY%g|x", body=b"1")
    store = made.write(tmp_path / "s")
    exported(run, store, "--include-system-topics", "--to", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name[0] != "."] == ["topic=%25RETRY%25g|x"]


def test_ctrl_c_leaves_an_export_that_goes_on(store: Path, tmp_path: Path, run: Run) -> None:
    place = tmp_path / "out"
    slow = (
        "from rmqstore.files.real_file import RealFile\n"
        "def sync(_):\n print('syncing', flush=True)\n while True: pass\n"
        "RealFile.sync = sync\n"
        f"from rmqstore.cli import main; main(['export', {str(store)!r}, '--to', {str(place)!r}, *{PLAIN!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "syncing\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert (process.returncode, said.strip()) == (1, "Aborted!")
    exported(run, store, "--to", place, *PLAIN)
    require_each_once(place, "parquet", store)


def test_the_same_command_twice_at_once(store: Path, tmp_path: Path, run: Run) -> None:
    place = tmp_path / "out"
    slow = (
        "import sys; from rmqstore.files.real_file import RealFile\n"
        "real = RealFile.sync\n"
        "def sync(file): print('syncing', flush=True); sys.stdin.readline(); real(file)\n"
        "RealFile.sync = sync\n"
        f"from rmqstore.cli import main; main(['export', {str(store)!r}, '--to', {str(place)!r}, *{PLAIN!r}])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", slow], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:  # fmt: skip
        assert first.stdout is not None
        assert first.stdin is not None
        assert first.stdout.readline() == "syncing\n"
        second = run("export", store, "--to", place, *PLAIN)
        assert (second.exit_code, second.stderr.count("\n")) == (1, 1)
        assert "another export writes there" in second.stderr
        first.stdin.write("\n" * 50)
        first.stdin.close()
        assert "60 messages added" in first.stdout.read()
    require_each_once(place, "parquet", store)


def test_lines_of_json_are_those_of_cat(store: Path, tmp_path: Path, run: Run) -> None:
    exported(run, store, "--topic", "pay", "--format", "json-lines", "--partition-by", "none", "--to", tmp_path / "o")
    (path,) = files_of(tmp_path / "o")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    cat = [json.loads(line) for line in run("cat", store, "--topic", "pay", "-o", "json-lines").stdout.splitlines()]
    shared = set(lines[0]) & set(cat[0])
    key = ("queueId", "queueOffset")
    for ours, theirs in zip(
        *(sorted(rows, key=lambda row: [row[name] for name in key]) for rows in (lines, cat)), strict=True
    ):
        assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_the_store_is_left_as_it_is(store: Path, tmp_path: Path, run: Run) -> None:
    def look() -> list[tuple[str, int, int]]:
        found = ((path, path.stat()) for path in sorted(store.rglob("*")))
        return [(str(path), status.st_size, status.st_mtime_ns) for path, status in found]

    before = look()
    exported(run, store, "--to", tmp_path / "out")
    assert look() == before


def test_a_store_goes_into_itself_never(store: Path, run: Run) -> None:
    done = run("export", store, "--format", "store", "--to", store)
    assert (done.exit_code, "every message would be doubled" in done.stderr) == (1, True)


def test_delays_and_transactions_are_not_begun_again(tmp_path: Path, run: Run) -> None:
    source = tmp_path / "s"
    with open_store(source, CONFIG, workers=False) as one:
        kept = {"PGROUP": "g", "UNIQ_KEY": "U", "ORIGIN_MESSAGE_ID": "M", "RETRY_TOPIC": "T", "CLUSTER": "c"}
        one.put(Message("orders", b"1", properties=kept))
        gone = [("DELAY", "3"), ("TIMER_DELAY_SEC", "9"), ("TRAN_MSG", "false"), *kept.items()]
        row = {"topic": "orders", "body": b"2", "queueId": 0, "properties": gone}
        kinds = {"topic": pa.string(), "body": pa.binary(), "queueId": pa.int32()}
        schema = pa.schema(kinds | {"properties": pa.map_(pa.string(), pa.string())})
        one.put_columns(pa.Table.from_pylist([row], schema))
    exported(run, source, "--format", "store", "--to", tmp_path / "t")
    for found in open_snapshot(tmp_path / "t").scan(columns=["properties"]).read_all()["properties"].to_pylist():
        assert dict(found) == kept


def with_waiting(path: Path) -> Path:
    """A store with 4 messages, and 2 more that wait."""
    with open_store(path, CONFIG, workers=False) as one:
        put(one, 0, 4, ["orders"])
        for body in (b"1", b"2"):
            one.put(Message("orders", body, properties={"DELAY": "18"})).raise_for_status()
    return path


@pytest.mark.parametrize("named", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_a_topic_that_no_store_takes_is_refused_by_name(named: str, tmp_path: Path, run: Run) -> None:
    source, place = with_waiting(tmp_path / "s"), tmp_path / "t"
    done = run("export", source, "--format", "store", "--to", place, "--topic", "orders", "--topic", named)
    assert (done.exit_code, done.stdout, place.exists()) == (2, "", False)
    line = last_line(done.stderr)
    assert line.startswith(f"Error: topics: no message can be put to {named}")
    assert line.endswith("leave it out, or export it as parquet or json-lines")


@pytest.mark.parametrize("how", [(), ("--topic", "S*", "--topic", "orders")], ids=["all", "a pattern"])
def test_topics_that_no_store_takes_are_left_out_and_told(how: tuple[str, ...], tmp_path: Path, run: Run) -> None:
    source, place = with_waiting(tmp_path / "s"), tmp_path / "t"
    arguments = ("export", source, "--include-system-topics", *how, "--to")
    done = run(*arguments, place, "--format", "store")
    assert (done.exit_code, last_line(done.stdout)) == (0, f"4 messages added to {place}, 4 in all")
    told = "2 messages of 1 topic left out, to which no message can be put: SCHEDULE_TOPIC_XXXX\n"
    assert done.stderr == told
    assert {row[0] for row in rows_of(place, "store")} == {"orders"}
    assert run(*arguments, place, "--format", "store").stderr == ""
    assert last_line(run(*arguments, tmp_path / "files").stdout).startswith("6 messages added")


@pytest.mark.parametrize("form", ["parquet", "json-lines", "store"])
def test_damaged_messages_that_are_left_out_are_told(form: str, tmp_path: Path, run: Run) -> None:
    made = small_store(10)
    made.change(made.offsets[3] + 88, b"\xff\xff")  # in the body
    store = made.write(tmp_path / "s")
    (store / "abort").write_bytes(b"")
    place = tmp_path / "out"
    arguments = ("export", store, "--to", place, "--on-corrupt-record", "skip", "--format", form)
    done = run(*arguments)
    assert (done.exit_code, last_line(done.stdout)) == (0, f"9 messages added to {place}, 9 in all")
    assert done.stderr == "1 message damaged, and left out; `rmqstore verify` says where\n"
    again = run(*arguments)
    assert (again.stderr, last_line(again.stdout)) == ("", f"0 messages added to {place}, 9 in all")
