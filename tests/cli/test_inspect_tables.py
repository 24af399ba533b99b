"""`rmqstore inspect`: the first screen, and tables by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import rmqstore
from rmqstore.cli.inspection.named_tables import TABLES
from rmqstore.cli.output import iso, moment_of
from tests.cli.conftest import Run, document_of, last_line
from tests.golden.cases import BROKER_CASES
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

StoreOf = Callable[[str], Path]
OF_SOURCE = ("files", "queues", "topics", "groups", "transactions", "delayed")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Has lines cut as a terminal of so many columns has them."""

    def of(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        for module in ("output", "inspection.named_tables"):
            monkeypatch.setattr(f"rmqstore.cli.{module}.cut_size", lambda: columns)

    return of


def expected(store: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table of the source, as JSON has them."""
    rows = []
    for row in rmqstore.open_snapshot(store).table(table).to_pylist():  # type: ignore[arg-type]
        for name, value in row.items():
            if hasattr(value, "tzinfo"):
                row[name] = iso(value)
            elif isinstance(value, list):
                row[name] = dict(value)
        rows.append(row)
    return rows


@pytest.mark.some(3)
@pytest.mark.parametrize("table", OF_SOURCE)
@pytest.mark.parametrize("case", [*BROKER_CASES, "basic", "killed-lagcq", "batchcq", "basic-nocq", "lmq"])
def test_a_table_has_the_rows_of_the_source(case: str, table: str, run: Run, store_of: StoreOf) -> None:
    assert document_of(run("inspect", store_of(case), "--table", table, "--json")) == expected(store_of(case), table)


@pytest.mark.parametrize("case", [*BROKER_CASES, "basic", "killed-4.9.8"])
def test_index_and_checkpoint_are_those_of_the_document(case: str, run: Run, store_of: StoreOf) -> None:
    (document,) = document_of(run("inspect", store_of(case), "--json"))["stores"]
    index = document_of(run("inspect", store_of(case), "--table", "index", "--json"))
    told = ("path", "size", "slotCount", "itemCount")
    assert [[row[name] for name in told] for row in index] == [
        [row[name] for name in told] for row in document["indexFiles"]
    ]
    assert [row["oldestTimestamp"] for row in index] == [row["oldest"] for row in document["indexFiles"]]
    rows = document_of(run("inspect", store_of(case), "--table", "checkpoint", "--json"))
    known = document["checkpoint"]
    assert len(rows) == (known is not None)
    for row in rows:
        assert row["physicMsgTimestamp"] == iso(moment_of(known["physicMsgTimestamp"] or None))
        assert row["confirmPhyOffset"] == known["confirmPhyOffset"]


def test_entries_of_a_plain_store_are_none(run: Run, store_of: StoreOf) -> None:
    assert run("inspect", store_of("basic"), "--table", "entries").stdout == "no rows\n"
    assert document_of(run("inspect", store_of("basic"), "--table", "entries", "--json")) == []


def test_numbers_are_sorted_from_the_largest_and_texts_by_letters(run: Run, store_of: StoreOf) -> None:
    store = store_of("broker-clean-5.3.3")

    def column(name: str, *more: str) -> list[Any]:
        found = document_of(run("inspect", store, "--table", "queues", "--sort", name, "--json", *more))
        return [row[name] for row in found]

    assert column("messages") == sorted(column("messages"), reverse=True) != column("messages", "--reverse")
    assert column("messages", "--reverse") == sorted(column("messages"))
    assert column("topic") == sorted(column("topic"))
    assert column("messages", "-n", "3") == column("messages")[:3]
    newest = [time for time in column("newestTimestamp") if time is not None]
    assert newest == sorted(newest, reverse=True)


def test_topics_by_bytes_are_the_bytes_of_their_records(run: Run, store_of: StoreOf) -> None:
    store = store_of("broker-clean-5.3.3")
    rows = document_of(run("inspect", store, "--table", "topics", "--sort", "bytes", "--json"))
    columns = ("topic", "physicalOffset", "storeSize")  # messages of a batch share its record
    records = rmqstore.open_snapshot(store).scan(columns=columns, include_system_topics=True).read_all()
    records = records.group_by(list(columns)).aggregate([])
    sizes = records.group_by("topic").aggregate([("storeSize", "sum")]).to_pylist()
    assert {row["topic"]: row["bytes"] for row in rows if row["bytes"]} == {
        row["topic"]: row["storeSize_sum"] for row in sizes
    }
    assert [row["bytes"] for row in rows] == sorted((row["bytes"] for row in rows), reverse=True)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["G101W*"], {"G101Wide", "G101WriteOnly"}),
        (["G101Sql", "G101W?de"], {"G101Sql", "G101Wide"}),
        (["g101*"], set()),
    ],
)
def test_topics_by_name_and_by_pattern(patterns: list[str], names: set[str], run: Run, store_of: StoreOf) -> None:
    chosen = [part for pattern in patterns for part in ("--topic", pattern)]
    rows = document_of(run("inspect", store_of("broker-clean-5.3.3"), "--table", "queues", *chosen, "--json"))
    assert {row["topic"] for row in rows} == names


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sort", "messages"], "--sort belongs to --table"),
        (["--topic", "a"], "--topic belongs to --table"),
        (["-n", "3"], "--limit belongs to --table"),
        (["--table", "files", "--topic", "a"], "the table files has no topics"),
        (["--table", "files", "--sort", "lag"], "the table files has kind, "),
        (["--table", "topics", "--sort", "attributes"], "cannot be sorted by"),
        (["--table", "files", "--record", "0"], "give only one of them"),
        (["--table", "queues", "-n", "0"], "0 is not in the range"),
        (["--table", "nope"], "is not one of 'files', 'queues'"),
    ],
)
def test_mistakes_in_the_command_end_with_2(options: list[str], words: str, run: Run, store_of: StoreOf) -> None:
    result = run("inspect", store_of("basic"), *options)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("table", TABLES)
def test_a_table_fits_the_terminal(
    table: str, columns: int, run: Run, store_of: StoreOf, terminal: Callable[[int], None]
) -> None:
    terminal(columns)
    shown = run("inspect", store_of("broker-clean-5.3.3"), "--table", table, "-n", 4).stdout
    assert max(map(cell_len, shown.splitlines())) <= columns
    if columns == 200:
        assert "no room for" not in shown


def test_what_rows_are_sorted_by_is_always_shown(run: Run, store_of: StoreOf, terminal: Callable[[int], None]) -> None:
    terminal(60)
    shown = run("inspect", store_of("broker-clean-5.3.3"), "--table", "queues", "--sort", "oldestTimestamp").stdout
    assert "oldestTimestamp" in shown.splitlines()[0]
    assert "no room for queueType, newestTimestamp" in " ".join(shown.split())


@pytest.mark.parametrize("case", BROKER_CASES)
def test_the_first_screen_says_what_the_document_says(
    case: str, run: Run, store_of: StoreOf, terminal: Callable[[int], None]
) -> None:
    terminal(80)
    (document,) = document_of(run("inspect", store_of(case), "--json"))["stores"]
    shown = run("inspect", store_of(case)).stdout
    lines = shown.splitlines()
    assert max(cell_len(line) for line in lines[1:]) <= 80
    total = sum(topic["messages"] for topic in document["topics"])
    queues = sum(len(topic["queues"]) for topic in document["topics"])
    said = f"{total:,} messages in {len(document['topics'])} topics and {queues} queues"
    assert said in shown
    largest = max(document["topics"], key=lambda topic: topic["messages"])
    row = lines[lines.index(next(line for line in lines if line.startswith("largest topics"))) + 2]
    topic, *counts = row.split()[:3]
    assert largest["topic"].startswith(topic.removesuffix("…"))
    assert counts == [f"{largest['messages']:,}", str(len(largest["queues"]))]
    stored = rmqstore.open_snapshot(store_of(case)).table("files").to_pylist()
    newest = max(row["lastTimestamp"] for row in stored if row["kind"] == "commitlog" and row["lastTimestamp"])
    assert f" to {newest:%Y-%m-%d %H:%M:%S}, " in shown


def test_the_first_screen_of_a_store_of_many_topics_is_short(tmp_path: Path, run: Run) -> None:
    made = SmallStore(file_size=1024 * 1024)
    for number in range(300):
        for _ in range(number // 100 + 1):
            made.add(f"topic-{number:03}", body=b"x")
    made.write(tmp_path)
    offsets = {f"topic-{number:03}@group-{number}": {"0": 0} for number in range(300)}
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    shown = run("inspect", tmp_path).stdout
    assert len(shown.splitlines()) < 50
    assert "largest topics (10 of 300)" in shown
    assert "messages still to consume (10 of 300)" in shown
    assert "topic-299" in run("inspect", tmp_path, "--table", "topics").stdout


def test_a_store_without_messages_has_a_first_screen(tmp_path: Path, run: Run) -> None:
    with rmqstore.open_store(tmp_path):
        pass
    result = run("inspect", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "0 messages in 0 topics and 0 queues" in result.stdout
    assert "no message that can be read" in result.stdout
    assert "`rmqstore cat" in last_line(result.stdout)
