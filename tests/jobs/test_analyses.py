"""The jobs that answer questions, on frames made for them and on stores that real brokers wrote."""

import datetime
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import rmqstore
from jobs import dead_letters, duplicates, lag_report, order_trace, replay, traffic, transaction_audit
from tests.golden.cases import unpack
from tests.jobs.frames import at, messages
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.spark

JOBS = {
    "traffic": ["--store=s"],
    "duplicates": ["--store=s"],
    "lag_report": ["--store=s"],
    "order_trace": ["--store=s", "--key=k"],
    "dead_letters": ["--store=s"],
    "transaction_audit": ["--store=s"],
    "replay": ["--store=s", "--to=t"],
}
ALL_TOPICS = {"subscribePattern": ".*", "includeSystemTopics": "true"}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of a 5.3.3 broker with retries, dead letters and transactions; no test writes to it."""
    return str(unpack("broker-clean-5.3.3", tmp_path_factory.mktemp("broker")))


def read(spark, store, columns=None, **options) -> DataFrame:
    chosen = {} if columns is None else {"columns": ",".join(columns)}
    return spark.read.format("rmqstore").options(**chosen, **options).load(str(store))


@pytest.mark.some(7)
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize(("arguments", "status", "said"), [("none", 2, "required: --store"), ("help", 0, "--store"),
                                                         ("all", 1, "pip install 'rmqstore[spark]'")])  # fmt: skip
def test_without_pyspark_it_says_what_to_install(name: str, arguments: str, status: int, said: str) -> None:
    given = {"none": [], "help": ["--help"], "all": JOBS[name]}[arguments]
    program = (
        f"import sys; sys.modules['pyspark'] = None; from jobs import {name} as job; sys.exit(job.main({given!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_traffic_counts_messages_bytes_and_sizes(spark):
    def sent(tag: str | None, host: str, time: str, size: int) -> dict[str, object]:
        return {"topic": "t", "tags": tag, "bornHost": host, "storeTimestamp": at(time), "storeSize": size}

    found = traffic.transform(
        messages(
            spark, traffic.COLUMNS,
            sent("a", "10.0.0.1:1", "10:00:00", 100), sent("a", "10.0.0.1:2", "10:00:59.999", 300),
            sent(None, "[fe80::1]:9", "10:00:30", 50), sent("a", "10.0.0.1:2", "10:01:00", 70),
        )
    )  # fmt: skip
    schema = "since timestamp, topic string, tags string, bornHost string, messages long, bytes long"
    expected = [
        (at("10:00:00"), "t", None, "[fe80::1]", 1, 50, 50, 50, 50),
        (at("10:00:00"), "t", "a", "10.0.0.1", 2, 400, 200, 290, 300),
        (at("10:01:00"), "t", "a", "10.0.0.1", 1, 70, 70, 70, 70),
    ]
    assert_df_equality(
        found, spark.createDataFrame(expected, f"{schema}, p50 long, p95 long, max int"), ignore_nullable=True
    )


def test_traffic_of_a_store_is_all_of_its_messages(spark, store):
    found = traffic.transform(read(spark, store, traffic.COLUMNS, subscribePattern=".*"), ("topic",), 60).collect()
    counted = {}
    for row in found:
        counted[row.topic] = counted.get(row.topic, 0) + row.messages
    topics = rmqstore.open_snapshot(store).table("topics").to_pylist()
    assert counted == {row["topic"]: row["messages"] for row in topics if row["messages"] and not row["isSystem"]}


def test_duplicates_are_messages_that_a_topic_has_again(spark):
    def copy(topic: str, offset: int, body: bytes, minute: int, key: str | None = "U1") -> dict[str, object]:
        return {"topic": topic, "brokerName": "b", "queueId": 0, "queueOffset": offset, "msgId": key, "body": body,
                "storeTimestamp": at(f"10:{minute:02}:00")}  # fmt: skip

    given = messages(
        spark, duplicates.COLUMNS, copy("t", 7, b"x", 5), copy("t", 0, b"x", 0), copy("other", 0, b"x", 0),
        copy("t", 1, b"x", 0, None), copy("t", 2, b"x", 0, None), copy("t", 3, b"y", 1, "U2"),
        copy("t", 4, b"z", 1, "U2"), copy("t", 5, b"z", 4, "U2"),
    )  # fmt: skip
    rows = [row.asDict(recursive=True) for row in duplicates.transform(given).collect()]
    place = {"brokerName": "b", "queueId": 0}
    assert [(row["msgId"], row["copies"]) for row in rows] == [("U1", 2), ("U2", 2)]  # a batch may have one key
    assert rows[0]["places"] == [place | {"queueOffset": 0}, place | {"queueOffset": 7}]
    assert rows[1]["places"] == [place | {"queueOffset": 4}, place | {"queueOffset": 5}]
    assert [row.msgId for row in duplicates.transform(given, within_minutes=4).collect()] == ["U2"]


def test_the_lag_report_says_who_is_behind(spark, store):
    rows = {(row.group, row.topic): row for row in lag_report.transform(read(spark, store, table="groups")).collect()}
    assert (rows["analytics", "orders"].lag, rows["analytics", "orders"].behind) == (4478, 4)
    assert rows["billing", "orders"].worstQueue.lag == 719 + 1
    assert rows["shipping", "orders"].worstQueue is None
    assert next(iter(rows)) == ("analytics", "orders")


def test_a_trace_is_the_life_of_a_key(spark, broker):
    letter = read(spark, broker, ("keys",), subscribePattern="%DLQ%.*", includeSystemTopics="true").first()
    steps = order_trace.transform(read(spark, broker, order_trace.COLUMNS, keys=letter["keys"], **ALL_TOPICS)).collect()
    stages = [row.stage for row in steps]
    assert stages[0] == "message"
    assert stages[-1] == "dead letter"
    assert stages.count("retry") == 2
    assert {row.topic for row in steps} == {"G101Normal"}
    assert stages.count("delayed") >= 2
    assert [row.step for row in steps] == list(range(1, len(steps) + 1))
    assert [row.afterMs for row in steps] == sorted(row.afterMs for row in steps)
    assert {row.group for row in steps if row.stage in ("retry", "delayed")} == {"g_fast_G101"}


def test_dead_letters_have_their_origin_and_retries(spark, broker):
    def back(prefix: str) -> DataFrame:
        return read(spark, broker, dead_letters.BACK_COLUMNS, subscribePattern=prefix, includeSystemTopics="true")

    origins = read(spark, broker, dead_letters.ORIGIN_COLUMNS, subscribePattern=".*")
    rows = dead_letters.transform(back("%DLQ%.*"), back("%RETRY%.*"), origins).collect()
    assert len(rows) == 9
    assert {(row.group, row.topic, row.attempts, row.retries) for row in rows} == {("g_fast_G101", "G101Normal", 3, 2)}
    sent = {row.offsetMsgId: row for row in read(spark, broker, (*dead_letters.ORIGIN_COLUMNS, "body"),
                                                 subscribe="G101Normal").collect()}  # fmt: skip
    for row in rows:
        origin = sent[row.originId]
        assert (row.queueId, row.queueOffset, row.sentAt, row.body) == (
            origin.queueId, origin.queueOffset, origin.storeTimestamp, origin.body,
        )  # fmt: skip
        assert row.sentAt < row.lastRetryAt <= row.diedAt


@pytest.fixture(scope="session")
def popped(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with the retries and letters of POP consumers as brokers of 5.x put them, by both names, and with a copy
    that has the unique key of another message, as the messages of a batch do."""
    one = SmallStore()
    for number, (separator, topic) in enumerate(zip("_++_", ("t", "t", "a_b", "b"), strict=True)):
        back, body = f"%RETRY%g_x{separator}{topic}", b"%d" % number
        kept = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number}"}
        one.add(topic, body=body, properties=kept)
        one.add(topic, body=b"another", properties=kept | {"KEYS": "x"})
        kept |= {"1ST_POP_TIME": "1"} | ({"ORIGIN_GROUP": "g_x"} if number == 3 else {})
        for times in (1, 2, 3):
            one.add(back, body=body, properties=kept, reconsume_times=times)
        kept |= {"RETRY_TOPIC": back, "ORIGIN_MESSAGE_ID": "of the last retry"}
        one.add("%DLQ%g_x", body=body, properties=kept, reconsume_times=4)
    return str(one.write(tmp_path_factory.mktemp("popped") / "store"))


def test_letters_of_pop_consumers_have_their_origin_and_retries(spark, popped):
    def back(prefix: str) -> DataFrame:
        return read(spark, popped, dead_letters.BACK_COLUMNS, subscribePattern=prefix, includeSystemTopics="true")

    origins = read(spark, popped, dead_letters.ORIGIN_COLUMNS, subscribePattern=".*")
    rows = dead_letters.transform(back("%DLQ%.*"), back("%RETRY%.*"), origins).collect()
    sent = {row.offsetMsgId: row for row in read(spark, popped, (*dead_letters.ORIGIN_COLUMNS, "body"),
                                                 subscribePattern=".*").collect()}  # fmt: skip
    assert sorted((row.group, row.topic, row.body, row.attempts, row.retries) for row in rows) == [
        ("g_x", "a_b", b"2", 4, 3), ("g_x", "b", b"3", 4, 3), ("g_x", "t", b"0", 4, 3), ("g_x", "t", b"1", 4, 3),
    ]  # fmt: skip
    for row in rows:
        origin = sent[row.originId]
        assert (row.topic, row.body, row.sentAt) == (origin.topic, origin.body, origin.storeTimestamp)
        assert row.sentAt <= row.lastRetryAt <= row.diedAt


@pytest.mark.usefixtures("same_session")
def test_letters_of_one_group_of_pop_consumers(popped, tmp_path):
    output = ["--output", str(tmp_path / "dead"), "--format", "json"]
    assert dead_letters.main(["--store", popped, "--group", "g_x", *output]) == 0
    lines = [line for path in (tmp_path / "dead").glob("*.json") for line in path.read_text().splitlines()]
    assert [(row["group"], row["retries"]) for row in map(json.loads, lines)] == [("g_x", 3)] * 4


@pytest.mark.parametrize("number", range(4))
def test_a_trace_of_a_pop_consumer(spark, popped, number: int):
    found = read(spark, popped, order_trace.COLUMNS, keys=f"k{number}", **ALL_TOPICS)
    steps = order_trace.transform(found).collect()
    topic = ("t", "t", "a_b", "b")[number]
    assert [(row.stage, row.topic, row.group, row.attempt) for row in steps] == [
        ("message", topic, None, 0), *(("retry", topic, "g_x", times) for times in (1, 2, 3)),
        ("dead letter", topic, "g_x", 4),
    ]  # fmt: skip


def test_retries_of_a_pop_consumer_whose_message_is_gone(spark, popped):
    found = read(spark, popped, order_trace.COLUMNS, keys="k0", **ALL_TOPICS).where("topic != 't'")
    steps = order_trace.transform(found).collect()
    assert [(row.topic, row.group) for row in steps] == [("%RETRY%g_x_t", "g_x_t")] * 3 + [("t", "g_x")]


def test_transactions_are_audited(spark, broker):
    transactions = read(spark, broker, table="transactions")
    halves = read(spark, broker, transaction_audit.HALF_COLUMNS, subscribe=transaction_audit.HALF_MESSAGES)
    finals = read(spark, broker, transaction_audit.FINAL_COLUMNS, subscribePattern=".*")
    rows = transaction_audit.transform(transactions, halves, finals).collect()
    states = rmqstore.open_snapshot(broker).table("transactions")["state"].to_pylist()
    assert sorted(row.verdict for row in rows) == sorted(states)
    assert all(row.bytes and row.producer for row in rows)
    gone = transaction_audit.transform(transactions, halves, finals.where("topic != 'G101Tx'"))
    assert {row.verdict for row in gone.collect()} == {"lost", "rolledback", "discarded"}
    other = finals.withColumn("body", importlib.import_module("pyspark.sql.functions").lit(b"other"))
    assert "changed" in {row.verdict for row in transaction_audit.transform(transactions, halves, other).collect()}


@pytest.mark.deep
def test_a_pending_transaction_is_late_after_a_while(spark, broker):
    functions = importlib.import_module("pyspark.sql.functions")
    pending = read(spark, broker, table="transactions").withColumn("state", functions.lit("pending"))
    halves = read(spark, broker, transaction_audit.HALF_COLUMNS, subscribe=transaction_audit.HALF_MESSAGES)
    finals = read(spark, broker, transaction_audit.FINAL_COLUMNS, subscribePattern=".*")

    def found(minutes: int) -> set[str]:
        return {row.verdict for row in transaction_audit.transform(pending, halves, finals, minutes).collect()}

    assert found(100_000) == {"pending"}
    assert "late" in found(0)


def test_a_replay_keeps_rows_and_order_and_comes_once(spark, store, tmp_path):
    target = tmp_path / "events"
    found = read(spark, store, replay.COLUMNS, subscribe="orders")
    rows = replay.transform(found, {"orders": "again"}, 86_400_000)
    for _ in range(2):  # the second one adds nothing
        rows.write.format("rmqstore").options(writerId="w", batchId="0").mode("append").save(str(target))
    columns = ["queueId", "queueOffset", "tags", "keys", "body", "msgId", "bornTimestamp"]
    ours = rmqstore.open_snapshot(target).scan(["again"], columns=columns).read_all().sort_by(
        [("queueId", "ascending"), ("queueOffset", "ascending")]
    )  # fmt: skip
    theirs = rmqstore.open_snapshot(store).scan(["orders"], columns=columns).read_all().sort_by(
        [("queueId", "ascending"), ("queueOffset", "ascending")]
    )  # fmt: skip
    assert ours.num_rows == 4774
    assert ours.drop_columns("bornTimestamp").equals(theirs.drop_columns("bornTimestamp"))
    day = datetime.timedelta(days=1)
    assert [one - day for one in ours["bornTimestamp"].to_pylist()] == theirs["bornTimestamp"].to_pylist()


def bodies(store: Path, topic: str) -> list[bytes]:
    return sorted(rmqstore.open_snapshot(store).scan([topic], columns=["body"]).read_all()["body"].to_pylist())


@pytest.fixture
def small(tmp_path) -> Path:
    with rmqstore.open_store(tmp_path / "small") as one:
        for number in range(5):
            one.put(rmqstore.Message("t", b"%d" % number, keys=["a\tb || c", "k"]))
            one.put(rmqstore.Message("u", b"%d" % number))
    return tmp_path / "small"


def test_another_replay_of_the_same_store_is_put_as_well(same_session, small, tmp_path, capsys):
    both = ["--store", str(small), "--to", str(tmp_path / "to")]
    for topic in "tu":
        assert replay.main([*both, "--topic", topic]) == 0
        assert capsys.readouterr().out.startswith("5 messages were added")
    with pytest.raises(SystemExit) as ended:
        replay.main([*both, "--topic", "t"])
    assert ended.value.code == 1
    assert "nothing was added: writer replay-" in capsys.readouterr().err
    assert [len(bodies(tmp_path / "to", topic)) for topic in "tu"] == [5, 5]


def test_a_writer_that_has_put_its_replay_is_told(same_session, small, tmp_path, capsys):
    both = ["--store", str(small), "--to", str(tmp_path / "to"), "--writer-id", "w"]
    replay.main([*both, "--topic", "t"])
    with pytest.raises(SystemExit) as ended:
        replay.main([*both, "--topic", "u"])
    assert ended.value.code == 1
    assert "nothing was added: writer w has put its replay" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "every topic would be doubled"),
        (["--rename", "t=again"], "every topic would be doubled"),
        (["--topic", "t"], "topic t would be doubled"),
        (["--topic", "t,u", "--rename", "t=u"], "topic t would be doubled"),
        (["--topic", "t,u", "--rename", "t=again"], "topic u would be doubled"),
        (["--topic", "t", "--rename", "t=a b"], "--rename t=a b: a topic takes"),
        (["--topic", "t", "--rename", "t="], "write OLD=NEW"),
        (["--topic", ""], "--topic: is empty"),
        (["--since", " "], "--since: is empty"),
        (["--keys", ""], "--keys: is empty"),
    ],
)
def test_a_replay_that_would_double_or_be_refused_is_told_before_it_begins(
    small, tmp_path, capsys, arguments: list[str], words: str
) -> None:
    (tmp_path / "link").symlink_to(small)
    with pytest.raises(SystemExit) as ended:
        replay.main(["--store", str(small), "--to", str(tmp_path / "link"), *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert [len(bodies(small, topic)) for topic in "tu"] == [5, 5]


@pytest.mark.parametrize("job", ["traffic", "duplicates", "topic_to_parquet", "topic_to_table"])
@pytest.mark.parametrize("place", ["small", "small/out", ".", "link", "small/commitlog"])
def test_a_job_writes_to_no_place_that_is_a_store_or_holds_one(small, tmp_path, capsys, job: str, place: str) -> None:
    (tmp_path / "link").symlink_to(small)
    before = bodies(small, "t")
    given = str(tmp_path / place)
    arguments = {
        "topic_to_parquet": ["--topic", "t", "--output", given, "--overwrite"],
        "topic_to_table": ["--topic", "t", "--format", "delta", "--table", given, "--checkpoint", str(tmp_path / "c")],
    }.get(job, ["--output", given, "--overwrite"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"jobs.{job}").main(["--store", str(small), *arguments])
    assert ended.value.code == 2
    assert "is a store, lies in one or holds one" in capsys.readouterr().err
    assert bodies(small, "t") == before


def test_minutes_are_no_negative_number(small, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("jobs.duplicates").main(["--store", str(small), "--within", "-5"])
    assert ended.value.code == 2
    assert "0 or more" in capsys.readouterr().err


@pytest.mark.deep
def test_a_replay_goes_into_its_own_store_under_another_name(same_session, small):
    assert replay.main(["--store", str(small), "--to", str(small), "--topic", "t", "--rename", "t=again"]) == 0
    assert bodies(small, "again") == bodies(small, "t")


def test_a_key_is_traced_as_it_stands(same_session, small, capsys):
    assert order_trace.main(["--store", str(small), "--key", "a\tb"]) == 0
    assert "small" not in capsys.readouterr().err
    with pytest.raises(SystemExit):
        order_trace.main(["--store", str(small), "--key", "two keys"])
    assert "RocketMQ separates keys by spaces" in capsys.readouterr().err


@pytest.mark.parametrize(("raised", "said"), [
    ("ModuleNotFoundError: No module named 'rmqstore'",
     ("No module named 'rmqstore' in the Python of Spark's workers: run them with the Python that has it "
         f"(PYSPARK_PYTHON={sys.executable})")),
    ("pyarrow.lib.ArrowInvalid: no\nOSError: [Errno 28] No space left on device",
     "OSError: [Errno 28] No space left on device"),
])  # fmt: skip
def test_what_a_worker_raised_is_said_and_not_that_it_did(
    same_session, small, monkeypatch, capsys, raised: str, said: str
) -> None:
    def transform(*_: object) -> None:
        raise PySparkException(
            "[PYTHON_DATA_SOURCE_ERROR] Failed to create a data source: Traceback (most recent call last):\n"
            f'  File "x.py", line 1, in <module>\n    import rmqstore\n{raised}\n\nJVM stacktrace:\norg.apache.spark.X'
        )

    monkeypatch.setattr(traffic, "transform", transform)
    with pytest.raises(SystemExit) as ended:
        traffic.main(["--store", str(small)])
    assert (ended.value.code, capsys.readouterr().err.splitlines()[-1]) == (1, f"traffic.py: {said}")


@pytest.mark.parametrize("is_submitted", [False, True])
def test_workers_run_the_python_of_a_job_unless_spark_submit_says_which(
    same_session, small, monkeypatch, is_submitted: bool
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.delenv("PYSPARK_PYTHON")
    if is_submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert traffic.main(["--store", str(small)]) == 0
    assert os.environ.get("PYSPARK_PYTHON") == (None if is_submitted else sys.executable)


@pytest.mark.parametrize("jvm", ["there", "gone"])
def test_an_interrupted_job_says_so_in_one_line(jvm, spark, same_session, small, monkeypatch, capsys):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def gone(*_: object) -> None:
        raise ConnectionRefusedError("the JVM was interrupted, too")

    monkeypatch.setattr(traffic, "transform", interrupted)
    if jvm == "gone":
        monkeypatch.setattr(spark.sparkContext, "cancelAllJobs", gone)
    with pytest.raises(SystemExit) as ended:
        traffic.main(["--store", str(small)])
    assert ended.value.code == 130
    assert capsys.readouterr().err.splitlines()[-1] == "traffic.py: interrupted"


def test_a_replay_delays_nothing_once_more(spark):
    found = messages(spark, replay.COLUMNS, {"topic": "t", "queueId": 0, "queueOffset": 0, "body": b"x", "flag": 0,
                                             "properties": {"DELAY": "3", "TRAN_MSG": "true", "mine": "kept"},
                                             "bornTimestamp": at("10:00:00")})  # fmt: skip
    (row,) = replay.transform(found).collect()
    assert (row.properties, row.topic) == ({"mine": "kept"}, "t")
    assert row.bornTimestamp.astimezone(datetime.UTC) == at("10:00:00")


def test_a_store_without_any_of_them_has_none(spark, tmp_path):
    with rmqstore.open_store(tmp_path / "s") as one:
        one.put(rmqstore.Message("t", b"body"))
    system = {"includeSystemTopics": "true"}
    halves = read(spark, tmp_path / "s", transaction_audit.HALF_COLUMNS,
                  subscribePattern=transaction_audit.HALF_MESSAGES, **system)  # fmt: skip
    finals = read(spark, tmp_path / "s", transaction_audit.FINAL_COLUMNS, subscribePattern=".*")
    transactions = read(spark, tmp_path / "s", table="transactions")
    assert transaction_audit.transform(transactions, halves, finals).count() == 0
    letters = read(spark, tmp_path / "s", dead_letters.BACK_COLUMNS, subscribePattern="%DLQ%.*", **system)
    origins = read(spark, tmp_path / "s", dead_letters.ORIGIN_COLUMNS, subscribePattern=".*")
    assert dead_letters.transform(letters, letters, origins).count() == 0


@pytest.mark.deep
def test_a_mistake_is_one_line(store, environment):
    command = [sys.executable, duplicates.__file__, "--store", store, "--topic", "nope"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("duplicates.py: no topic 'nope' in ")


@pytest.mark.deep
def test_a_job_runs_as_a_script(spark, store, tmp_path, environment):
    output = tmp_path / "out"
    command = [
        sys.executable,
        traffic.__file__,
        "--store",
        store,
        "--by",
        "topic",
        "--output",
        output,
        "--format",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=environment)
    written = spark.read.json(str(output))
    assert done.stdout == f"{written.count()} rows are in {output}\n"
    assert written.where("topic = 'orders'").agg({"messages": "sum"}).first()[0] == 4774
