"""`rmqstore inspect`."""

from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message, StoreConfig, open_store
from tests.cli.conftest import Run, document_of, last_line
from tests.golden.cases import BROKER_CASES, load_expected

StoreOf = Callable[[str], Path]


@pytest.mark.parametrize("case", ["basic-4.9.8", "batchcq", "killed-lagcq", "basic-nocq", "deleted_head", "lmq"])
def test_queues_are_those_of_the_snapshot(case: str, run: Run, store_of: StoreOf) -> None:
    (store,) = document_of(run("inspect", store_of(case), "--json"))["stores"]
    found = [
        (topic["topic"], queue["queueId"], queue["minOffset"], queue["maxOffset"], queue["queueType"])
        for topic in store["topics"]
        for queue in topic["queues"]
    ]
    table = rmqstore.open_snapshot(store_of(case)).queues().drop_columns("brokerName")
    assert sorted(found) == sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("case", ["basic", "killed-lagcq", "basic-nocq", "batchcq"])
def test_oldest_and_newest_are_those_of_the_records(case: str, run: Run, store_of: StoreOf) -> None:
    (store,) = document_of(run("inspect", store_of(case), "--json"))["stores"]
    records = load_expected(case)["records"]
    for topic in store["topics"]:
        for queue in topic["queues"]:
            place = (topic["topic"], queue["queueId"])
            times = [r["storeTimestamp"] for r in records if (r["topic"], r["queueId"]) == place]
            assert (queue["oldestMs"], queue["newestMs"]) == (min(times), max(times))


def test_a_stopped_store_and_one_that_was_killed(run: Run, store_of: StoreOf) -> None:
    (stopped,) = document_of(run("inspect", store_of("basic"), "--json"))["stores"]
    assert (stopped["versionLine"], stopped["state"], stopped["logEnd"]) == ("5.x", "stopped", 158816)
    (killed,) = document_of(run("inspect", store_of("killed-4.9.8"), "--json"))["stores"]
    assert (killed["versionLine"], killed["state"], killed["abortPresent"]) == ("4.9.x", "not stopped cleanly", True)


def test_groups_with_backlog(run: Run, store_of: StoreOf) -> None:
    store = store_of("broker-clean-5.3.3")
    (document,) = document_of(run("inspect", store, "--json"))["stores"]
    ends = {
        (topic["topic"], queue["queueId"]): queue["maxOffset"]
        for topic in document["topics"]
        for queue in topic["queues"]
    }
    (slow,) = [
        group for group in document["groups"] if (group["group"], group["topic"]) == ("g_slow_G101", "G101Normal")
    ]
    assert (
        slow["backlog"] == sum(ends["G101Normal", queue["queueId"]] - queue["offset"] for queue in slow["queues"]) > 0
    )
    shown = run("inspect", store).stdout
    assert [
        line for line in shown.splitlines() if line.split() == ["g_slow_G101", "G101Normal", f"{slow['backlog']:,}"]
    ]


@pytest.mark.parametrize("case", [*BROKER_CASES, "basic-midflip", "longtopic", "multipath"])
def test_it_fits_80_columns(case: str, run: Run, store_of: StoreOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore.cli.output.cut_size", lambda: 80)  # as on a terminal
    result = run("inspect", store_of(case))
    assert result.exit_code == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if len(line) > 80 and not line.startswith("/")] == []
    assert "`rmqstore cat" in last_line(result.stdout)


def test_one_record(run: Run, store_of: StoreOf) -> None:
    record = load_expected("basic")["records"][5]
    shown = run("inspect", store_of("basic"), "--record", record["physicalOffset"])
    assert shown.exit_code == 0
    lines = {line.split()[0]: line.split()[1:] for line in shown.stdout.splitlines() if line.strip()}
    assert lines["queueOffset"] == [str(record["queueOffset"])]
    assert lines["offsetMsgId"] == [record["msgId"]]
    document = document_of(run("inspect", store_of("basic"), "--record", record["physicalOffset"], "--json"))
    assert document["properties"] == record["properties"]
    assert document["physicalOffset"] == record["physicalOffset"]


@pytest.mark.parametrize(
    ("offset", "words"),
    [(1, "no whole record stands here"), (10**12, "it holds [0, 158816)"), (157420, "the CRC of the body is wrong")],
)
def test_no_such_record(offset: int, words: str, run: Run, store_of: StoreOf) -> None:
    result = run("inspect", store_of("basic-midflip"), "--record", offset)
    assert result.exit_code == 1
    assert words in last_line(result.stderr)
    assert len(result.stderr.splitlines()) == 1


def test_a_record_beyond_any_commitlog_is_no_offset(run: Run, store_of: StoreOf) -> None:
    answer = run("inspect", store_of("basic"), "--record", 2**63)
    assert answer.exit_code == 2
    assert "beyond any commitlog" in answer.stderr


def test_what_a_store_is_like_does_not_say_who_wrote_it(run: Run, tmp_path: Path) -> None:
    with rmqstore.open_store(tmp_path):
        pass
    assert "as RocketMQ 4.9.x writes" in run("inspect", tmp_path).stdout


def test_the_disk_is_what_files_take_there(tmp_path: Path, run: Run) -> None:
    """A broker's timer wheel is 37 MB long, and a hole until there are timers."""
    with open_store(tmp_path / "s", StoreConfig(preallocate=False), workers=False) as store:
        store.put(Message("T", b"body"))
    with (tmp_path / "s" / "timerwheel").open("wb") as wheel:
        wheel.truncate(1 << 40)
    (line,) = [line for line in run("inspect", tmp_path / "s").stdout.splitlines() if line.startswith("  disk")]
    assert "TiB" not in line
