"""The demo's part about the engine: its sums, and a writer that is really killed."""

import pytest
from chispa import assert_df_equality

import rmqstore
from jobs import engine_demo, engine_writer
from jobs.engine_demo import Acknowledgement, arrivals, read_answers, recover, remove, write_and_kill

pytestmark = pytest.mark.stores

MESSAGES = "topic string, physicalOffset long"
ARRIVALS = "topic string, acknowledged long, found long, unanswered long"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([("a", 0), ("a", 100), ("b", 200)], [("a", 2, 2, 0), ("b", 1, 1, 0)]),
        ([("a", 0), ("a", 100), ("b", 200), ("b", 300)], [("a", 2, 2, 0), ("b", 1, 1, 1)]),  # the last got no answer
        ([("a", 0), ("b", 200)], [("a", 2, 1, 0), ("b", 1, 1, 0)]),  # one is lost
        ([("a", 0), ("a", 100), ("c", 300)], [("a", 2, 2, 0), ("b", 1, 0, 0), ("c", 0, 0, 1)]),
    ],
)
def test_what_was_acknowledged_is_told_from_what_came_later(spark, messages, expected):
    acknowledged = spark.createDataFrame([("a", 2, 199), ("b", 1, 299)], engine_demo.ACKNOWLEDGED)
    rows = arrivals(spark.createDataFrame(messages, MESSAGES), acknowledged)
    assert_df_equality(rows, spark.createDataFrame(expected, ARRIVALS), ignore_nullable=True)


def test_an_answer_without_its_end_is_none():
    assert read_answers(["orders 0 120 1\n", "audit 120 900 7\n", "orders 10"]) == [
        Acknowledgement("orders", 0, 120, 1),
        Acknowledgement("audit", 120, 900, 7),
    ]


def test_a_result_that_is_no_acknowledgement_ends_the_writer():
    with pytest.raises(RuntimeError, match="orders: SERVICE_NOT_AVAILABLE"):
        engine_writer.report("orders", rmqstore.PutResult(rmqstore.PutStatus.SERVICE_NOT_AVAILABLE))


@pytest.fixture
def killed(store, tmp_path, environment, monkeypatch):
    """A store whose writer was killed, and the answers that it had."""
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    path = tmp_path / "killed"
    return path, write_and_kill(path, store, 60)


@pytest.mark.deep
def test_a_killed_writer_leaves_what_it_acknowledged(killed):
    path, answers = killed
    assert len(answers) >= 60
    assert {answer.topic for answer in answers} == {"orders", "payments", "audit"}
    assert (path / "abort").exists()
    assert "nothing was written" in recover(path, "--dry-run")
    assert (path / "abort").exists()
    assert recover(path).splitlines()[-1] == "recovered, and closed cleanly"
    assert not (path / "abort").exists()
    offsets = rmqstore.open_snapshot(path).scan(pattern=".*", columns=["physicalOffset"]).read_all()
    newest = max(answer.offset + answer.size for answer in answers)
    found = sum(offset < newest for offset in offsets["physicalOffset"].to_pylist())
    assert found == sum(answer.messages for answer in answers)


def test_a_writer_that_ends_by_itself_is_an_error(tmp_path, environment, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", environment["PYTHONPATH"])
    with pytest.raises(ChildProcessError, match="ended by itself"):
        write_and_kill(tmp_path / "new", tmp_path / "no example", 10)
    assert "no example" in capfd.readouterr().err


def test_a_recovery_that_fails_says_why(tmp_path):
    with pytest.raises(ChildProcessError, match="missing"):
        recover(tmp_path / "missing")


def test_an_earlier_store_is_removed(tmp_path):
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    remove(tmp_path / "a")
    remove(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
