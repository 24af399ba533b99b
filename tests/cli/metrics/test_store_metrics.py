"""`rmqstore serve-metrics`: the figures are those of the stores, whatever happens to these."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rmqstore import Message, Store, open_store
from rmqstore.cli.metrics.serve_metrics import ExtentFigures, Looks, PlaceFigures, QueueFigures, Watched, metrics_text
from rmqstore.errors import NotAStore
from tests.cli.conftest import Run, last_line

pytestmark = pytest.mark.stores

EVIL = 'a"b\\c\nd\ud800\u202e\x1b[2J'
Samples = dict[tuple[str, ...], float]


def samples_of(text: str) -> Samples:
    """The samples by name and the values of their labels, without those of the store and its broker."""
    return {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name not in ("store", "broker"))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def put(store: Store, topic: str, count: int, queue_id: int = 0) -> None:
    for _ in range(count):
        assert store.put(Message(topic, b"x" * 100, queue_id=queue_id)).is_stored
    store.flush()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as one:
        put(one, "orders", 5)
        put(one, "orders", 3, queue_id=1)
        put(one, "payments", 2)
        one.offsets.commit("billing", "orders", 0, 2)
        one.offsets.persist()
        yield one


def looks(*paths: object, series_max: int = 100, every_s: float = 0.0, said: list[str] | None = None) -> Looks:
    return Looks([Watched(str(path), series_max) for path in paths], every_s, (said if said is not None else []).append)


def test_the_figures_are_those_of_the_store(store: Store) -> None:
    of = looks(store.path)
    found = samples_of(of.text())
    size = found["rmqstore_log_end_offset",]
    assert found["rmqstore_up",] == found["rmqstore_locked",] == 1
    assert found["rmqstore_log_files",] in (1, 2)  # one may be made ahead
    assert (found["rmqstore_topic_messages", "orders"], found["rmqstore_topic_messages", "payments"]) == (8, 2)
    assert found["rmqstore_queue_min_offset", "1", "orders"] == 0
    assert found["rmqstore_queue_max_offset", "1", "orders"] == 3
    assert found["rmqstore_group_lag_messages", "billing", "orders"] == 3
    assert found["rmqstore_log_start_offset",] == 0
    assert 10 * 200 > size > 10 * 100
    assert 0 <= found["rmqstore_newest_message_age_seconds",] < 3600
    assert 0 < found["rmqstore_disk_free_bytes",] <= found["rmqstore_disk_size_bytes",]
    put(store, "orders", 4)
    store.offsets.commit("billing", "orders", 0, 9)
    store.offsets.persist()
    found = samples_of(of.text())
    assert found["rmqstore_topic_messages", "orders"] == 12
    assert found["rmqstore_group_lag_messages", "billing", "orders"] == 0
    assert found["rmqstore_log_end_offset",] > size
    store.offsets.commit("billing", "orders", 0, 3)  # the store itself is as it was
    store.offsets.persist()
    assert samples_of(of.text())["rmqstore_group_lag_messages", "billing", "orders"] == 6


def test_what_is_beyond_the_limit_is_counted(store: Store) -> None:
    for number in range(20):
        put(store, f"small-{number:02}", 1)
    found = samples_of(looks(store.path, series_max=4).text())
    topics = sorted(name[1] for name in found if name[0] == "rmqstore_topic_messages")
    assert topics == ["orders", "payments", "small-00"]
    assert found["rmqstore_left_out", "topics"] == 19
    assert found["rmqstore_left_out", "groups"] == 0


def test_nobody_has_it_look_more_often_than_it_says(store: Store) -> None:
    of = looks(store.path, every_s=3600)
    before = of.text()
    put(store, "orders", 4)
    assert samples_of(of.text())["rmqstore_topic_messages", "orders"] == 8
    assert samples_of(before)["rmqstore_look_seconds",] == samples_of(of.text())["rmqstore_look_seconds",]


def test_a_store_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    said: list[str] = []
    for name in ("one", "two"):
        with open_store(tmp_path / name) as store:
            put(store, "orders", 3)
    of = looks(tmp_path / "one", tmp_path / "two", said=said)
    (tmp_path / "one").rename(tmp_path / "elsewhere")
    for _ in range(3):
        text = of.text()
    up = {sample.labels["store"]: sample.value for family in text_string_to_metric_families(text)
          for sample in family.samples if sample.name == "rmqstore_up"}  # fmt: skip
    assert up == {str(tmp_path / "one"): 0, str(tmp_path / "two"): 1}
    assert samples_of(text)["rmqstore_topic_messages", "orders"] == 3
    (tmp_path / "one").mkdir()  # not yet a store
    assert 'rmqstore_up{store="%s"} 0.0' % (tmp_path / "one") in of.text()
    (tmp_path / "one").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "one")
    assert 'rmqstore_up{store="%s"} 1.0' % (tmp_path / "one") in of.text()
    assert [line.removeprefix(f"{tmp_path / 'one'} ")[:8] for line in said] == ["cannot b", "can be r"]


def test_a_directory_of_stores_has_those_that_there_are(tmp_path: Path) -> None:
    for name in ("broker-a", "broker-b"):
        with open_store(tmp_path / "all" / name) as store:
            put(store, "orders", 3)
    of = looks(tmp_path / "all")
    brokers = {
        sample.labels.get("broker") for family in text_string_to_metric_families(of.text()) for sample in family.samples
    }
    assert brokers == {None, "broker-a", "broker-b"}
    with open_store(tmp_path / "all" / "broker-c") as store:
        put(store, "orders", 3)
    assert 'rmqstore_topic_messages{broker="broker-c"' in of.text()


def test_names_are_anything() -> None:
    figures = ExtentFigures(
        (EVIL, EVIL), 0, 1, 1, 1, None, False, {EVIL: [QueueFigures(0, 0, 1)]}, {(EVIL, EVIL): 3}, {}
    )
    text = metrics_text([PlaceFigures(EVIL, (figures,), None, 0.0)], 0)
    labels = {value for family in text_string_to_metric_families(text) for sample in family.samples
              for value in sample.labels.values()}  # fmt: skip
    assert labels == {EVIL.replace("\ud800", "?"), "0"}
    assert "rmqstore_newest" not in {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }


@pytest.mark.parametrize("path", ["", "nowhere", "."])
def test_what_is_no_store_is_refused_at_the_start(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotAStore):
        looks(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "0.0.0.0:1"], "add --open-to-network"),
        (["--listen", "x"], "expected host:port"),
        (["--every", "0"], "--every"),
        (["--series", "0"], "--series"),
    ],
)
def test_mistakes_in_the_command(arguments: list[str], words: str, run: Run, tmp_path: Path) -> None:
    failed = run("serve-metrics", tmp_path, *arguments)
    assert failed.exit_code == 2
    assert words in last_line(failed.stderr)


@contextmanager
def served(*arguments: object) -> Iterator[tuple["subprocess.Popen[str]", tuple[str, int]]]:
    command = [sys.executable, "-c", "from rmqstore.cli import main; main(prog_name='rmqstore')", "serve-metrics"]
    process = subprocess.Popen(
        [*command, *map(str, arguments), "--listen", "0", "--every", "0.1"], text=True, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("metrics: http://127.0.0.1:"), line
        yield process, ("127.0.0.1", int(line.rpartition(":")[2].partition("/")[0]))
    finally:
        process.kill()
        process.communicate()


@pytest.mark.deep
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_until_it_is_told_to_end(store: Store, ended_by: int) -> None:
    with served(store.path) as (process, place):
        connection = HTTPConnection(*place, timeout=600)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        assert samples_of(answer.read().decode())["rmqstore_topic_messages", "orders"] == 8
        connection.close()
        process.send_signal(ended_by)
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait()) == ("", 0)


def test_a_port_that_is_taken_is_one_line(store: Store, run: Run) -> None:
    with served(store.path) as (_, place):
        failed = run("serve-metrics", store.path, "--listen", place[1])
        assert failed.exit_code == 1
        assert "--listen: cannot listen on 127.0.0.1" in last_line(failed.stderr)
        assert "Address already in use" in last_line(failed.stderr)


def test_without_its_library_it_says_so(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    failed = run("serve-metrics", store.path)
    assert failed.exit_code == 1
    assert "pip install 'rmqstore[metrics]'" in last_line(failed.stderr)
    assert failed.stdout == ""
