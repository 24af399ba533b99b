"""The rows of a job in a terminal, in a pipe, and in CSV."""

import csv
import datetime
import io
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from jobs import dead_letters, duplicates, lag_report, order_trace, replay, traffic, transaction_audit
from rmqstore.clock import ManualClock
from spark_source import job_command, job_table

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("text", "width"), [("", 0), ("Köln", 4), ("東京", 4), ("e\u0301", 1), ("Łódź", 4)])
def test_a_terminal_shows_wide_and_combining_characters(text, width):
    assert job_table.shown_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "ab..."),
        ("ab cdefg", 6, "ab..."),
        ("東京都", 5, "東..."),
        ("東京都", 4, "..."),
        ("Ha\u0309i Pho\u0300ng", 9, "Ha\u0309i Pho\u0300ng"),
        ("e\u0301le\u0301ve\u0301", 5, "e\u0301le\u0301ve\u0301"),
        ("e\u0301le\u0301ve\u0301", 4, "e\u0301..."),
    ],
)
def test_what_does_not_fit_is_cut(text, width, shown):
    assert job_table.cut(text, width) == shown
    assert job_table.shown_width(shown) <= width


def test_numbers_stand_right_and_the_last_column_gives_way():
    rows = [["city", "count", "text"], ["東京", "7", "x" * 100], ["Lisbon", "1,200", ""]]
    lines = job_table.laid_out(rows, [False, True, False], 78).splitlines()
    assert lines[0] == "city    count  text"
    assert lines[1] == "------  -----  " + "-" * 63
    assert lines[2] == "東京        7  " + "x" * 60 + "..."
    assert lines[3] == "Lisbon  1,200"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (True, "true"),
        (1234567, "1234567"),
        ("two\n lines\tand", "two\\n lines\\tand"),
        ("a\x1b[2Jb\u202e", "a\\u001B[2Jb\\u202E"),
        ("x" * 5000, "x" * 5000),
    ],
)
def test_a_cell_is_one_line_in_which_all_can_be_seen(value: object, shown: str) -> None:
    assert job_table.cell(value) == shown


AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)


def nested(spark: SparkSession) -> DataFrame:
    rows = [
        (1, AT, ["a", "b"], ("x", 5), bytearray(b"caf\xc3\xa9"), 'say "so",\nor not'),
        (2, None, None, None, bytearray(b"\xff"), None),
    ]
    kinds = "n int, at timestamp, keys array<string>, place struct<name: string, id: int>, body binary, text string"
    return spark.createDataFrame(rows, kinds)


def test_a_wide_row_is_a_block_of_lines_within_the_terminal(spark: SparkSession) -> None:
    assert job_table.shown(nested(spark), 40, 40).text.splitlines() == [
        "n      1",
        "at     2026-01-02 03:04:05.678",
        'keys   ["a","b"]',
        'place  {"name":"x","id":5}',
        "body   café",
        'text   say "so",\\nor not',
        "",
        "n      2",
        "body   \ufffd",
    ]


def test_a_row_that_fits_is_a_line_of_a_table(spark: SparkSession) -> None:
    frame = nested(spark).select("n", "at", "text")
    found = job_table.shown(frame, 1, 60)
    assert found.text.splitlines() == [
        "n  at                       text",
        "-  -----------------------  -----------------",
        '1  2026-01-02 03:04:05.678  say "so",\\nor not',
    ]
    assert found.left_out == "only the first 1 rows are shown: --rows N shows more"
    assert job_table.shown(frame.where("n = 3"), 1, 60) == ("no rows", "")


def test_a_pipe_has_names_and_rows_whole_with_tabs(spark: SparkSession) -> None:
    lines = job_table.shown(nested(spark), 40, None).text.splitlines()
    assert [len(line.split("\t")) for line in lines] == [6, 6, 6]
    assert lines[0] == "n\tat\tkeys\tplace\tbody\ttext"
    assert lines[2] == "2\t\t\t\t\ufffd\t"


JOBS = {
    "lag_report": lag_report,
    "order_trace": order_trace,
    "dead_letters": dead_letters,
    "transaction_audit": transaction_audit,
    "traffic": traffic,
}
ARGUMENTS = {"order_trace": ["--key", "o-1017"], "traffic": ["--minutes", "600"]}


@pytest.mark.usefixtures("same_session")
@pytest.mark.parametrize("name", JOBS)
def test_each_job_shows_its_rows_and_writes_them_as_csv(
    name: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--store", str(store), *ARGUMENTS.get(name, [])]
    assert JOBS[name].main(given) == 0
    piped = capsys.readouterr().out.splitlines()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    assert JOBS[name].main(given) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 0 < max(map(job_table.shown_width, lines)) <= 80
    output = tmp_path / "out"
    assert JOBS[name].main([*given, "--output", str(output), "--format", "csv"]) == 0
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(output.glob("*.csv")))
    rows = list(csv.reader(io.StringIO(text, newline="")))
    names = piped[0].split("\t")
    assert names in rows
    found = [row for row in rows if row != names]
    assert capsys.readouterr().out == f"{len(found)} rows are in {output}\n"
    assert min(len(found), 40) == len(piped) - 1
    assert bool(found) == (name != "transaction_audit")  # of which the store has none


def test_the_trace_of_an_order_says_when_each_step_was_sent(
    same_session: None, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert order_trace.main(["--store", str(store), "--key", "o-1017"]) == 0
    names, *steps = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    rows = [dict(zip(names, step, strict=True)) for step in steps]
    assert len(rows) == 4
    assert all(row["sent"] <= row["stored"] for row in rows)
    assert rows[0]["sent"] < rows[-1]["sent"]


def test_what_all_rows_have_is_told_once_where_a_table_is_too_wide():
    rows = [["topic", "tags", "host", "key"], ["t", "", "h", "1"], ["t", "", "h", "2"]]
    assert job_table.told_once(rows) == ("in all rows: topic t, host h", [3])
    assert job_table.told_once(rows[:2]) == ("", [0, 2, 3])  # of one row nothing is in common
    assert job_table.told_once([["topic"], ["t"], ["t"]]) == ("", [0])
    assert job_table.told_once([["topic", "body", "n"], ["t", "x" * 41, "1"], ["t", "x" * 41, "2"]])[1] == [1, 2]


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        (["2026-11-21 05:00:00.000", "", "2026-11-21 06:30:00.000"], ["2026-11-21 05:00", "", "2026-11-21 06:30"]),
        (["2026-11-21 05:00:00.000", "2026-11-21 06:30:01.000"], ["2026-11-21 05:00:00", "2026-11-21 06:30:01"]),
        (["2026-11-21 05:00:00.000", "2026-11-21 06:30:00.001"], None),
    ],
)
def test_times_lose_what_is_zero_in_all_of_them(times, shown):
    rows = [["since", "name"], *([time, "12:00:00.000"] for time in times)]
    found = job_table.with_short_times(rows, [True, False])
    assert found == [["since", "name"], *([time, "12:00:00.000"] for time in shown or times)]


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [("2h", 2_800_000), ("now", 10_000_000), ("1970-01-01T00:00:07Z", 7000), ("300000000000", 300_000_000_000)],
)
def test_a_job_takes_the_times_of_the_command_line(text: str, at_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_command, "SYSTEM_CLOCK", ManualClock(10_000_000))
    assert job_command.moment(text) == str(at_ms)


@pytest.mark.parametrize("job", [traffic, duplicates])
def test_a_wrong_topic_is_told_before_spark_starts(
    job: object, store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: pytest.fail("Spark was started"))
    with pytest.raises(SystemExit) as ended:
        job.main(["--store", str(store), "--topic", "orders,ordrs"])
    assert ended.value.code == 1
    assert "no topic 'ordrs'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("job", "arguments", "words"),
    [
        (traffic, ["--by", "topics"], "--by: topics: of topic, tags, bornHost"),
        (traffic, ["--minutes", "0"], "1 or more"),
        (traffic, ["--since", "tomorrow"], "--since: 'tomorrow': write ms since 1970 or ISO-8601"),
        (traffic, ["--until", "2026-01-01T00:00:00"], "without a zone"),
        (traffic, ["--since", "1700000000"], "looks like seconds"),
        (traffic, ["--rows", "-1"], "0 or more"),
        (transaction_audit, ["--only", "late, gone"], "--only: gone: of committed"),
        (transaction_audit, ["--late-minutes", "-1"], "0 or more"),
        (dead_letters, ["--group", " "], "--group: is empty"),
        (replay, ["--to", "/nowhere/to", "--since", "later"], "--since: 'later'"),
    ],
)
def test_a_wrong_argument_is_told_before_spark_starts(
    job: object, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: pytest.fail("Spark was started"))
    with pytest.raises(SystemExit) as ended:
        job.main(["--store", "/nowhere", *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_rows_that_are_left_out_are_told_beside_a_pipe(
    same_session: None, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert traffic.main(["--store", str(store), "--rows", "1"]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert told.err.splitlines()[-1] == "only the first 1 rows are shown: --rows N shows more"


def test_a_writer_s_name_that_is_none_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: pytest.fail("Spark was started"))
    with pytest.raises(SystemExit) as ended:
        replay.main(["--store", "/nowhere", "--to", str(tmp_path / "to"), "--writer-id", "a/b"])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("replay.py: ")
