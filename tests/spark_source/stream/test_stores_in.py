"""A stream of a directory of stores: stores come, go and come back while it runs, and between two runs."""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore import Message, StoreConfig, open_store
from rmqstore.errors import DataLost, NotAStore, Rejected
from tests.snapshot.growing_store import BrokerStore, broker_store
from tests.spark_source.stream.streams import Stream


class Brokers(Stream):
    """A stream of all stores in a directory; its rows say of which broker they are."""

    columns = ("brokerName", "topic", "queueId", "queueOffset")

    def __init__(self, directory: Path, **options: str) -> None:
        super().__init__(directory, **({"path": "-", "stores": str(directory)} | options))

    def counts(self) -> dict[str, int]:
        """The rows of each broker so far, of which none came twice."""
        assert len(set(self.rows)) == len(self.rows)
        return dict(Counter(str(row[0]) for row in self.rows))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "rmq"


@pytest.fixture
def first(directory: Path) -> BrokerStore:
    return broker_store(directory, "broker-a", 10)


def test_rows_come_under_the_names_of_their_brokers(first: BrokerStore, directory: Path) -> None:
    other = broker_store(directory, "broker-b", 6)
    stream = Brokers(directory)
    assert stream.step() == 16
    other.add_many(3)
    other.publish()
    assert stream.step() == 3
    assert stream.counts() == {"broker-a": 10, "broker-b": 9}
    assert stream.stands == {"T": {"broker-a": {"0": 5, "1": 5}, "broker-b": {"0": 5, "1": 4}}}


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_store_that_comes_is_read_from_its_beginning(first: BrokerStore, directory: Path, start: str) -> None:
    stream = Brokers(directory, startingOffsets=start)
    rows = 10 if start == "earliest" else 0
    assert stream.step() == rows
    broker_store(directory, "broker-0", 7)
    assert stream.step() == 7
    assert stream.step() == 0
    stream.start()
    assert stream.step() == 0
    broker_store(directory, "broker-c", 5)  # while the query was down
    stream.start()
    assert stream.step() == 5
    assert stream.counts() == ({"broker-a": rows} if rows else {}) | {"broker-0": 7, "broker-c": 5}


def test_a_store_is_followed_from_its_first_moment(first: BrokerStore, directory: Path) -> None:
    """Through the steps in which a replica is made: the directory, its lock, its tables, the log, messages."""
    stream = Brokers(directory, startingOffsets="latest")
    assert stream.step() == 0
    root = directory / "broker-b"
    for name in ("", "lock", "config/"):
        (root / name).mkdir(parents=True) if not name or name.endswith("/") else (root / name).touch()
        assert stream.step() == 0
        assert not stream.reader.reportLatestOffset()["$metrics"].get("notRead")
    (root / "config" / "topics.json").write_text("{}")
    (root / "commitlog").mkdir()
    assert stream.step() == 0
    other = BrokerStore(directory, "broker-b")
    other.add_many(4, dispatched=False)  # in the log, and in no queue yet
    other.publish()
    assert stream.step() == 4
    assert stream.counts() == {"broker-b": 4}


def test_a_batch_that_a_new_store_began_is_read_again_as_planned(first: BrokerStore, directory: Path) -> None:
    stream = Brokers(directory)
    stream.step()
    other = broker_store(directory, "broker-b", 4)
    start, end = stream.plan()
    assert json.loads(end)["$from"] == {"T": {"broker-b": {"0": 0, "1": 0}}}
    other.add_many(20)
    other.publish()
    broker_store(directory, "broker-c", 8)
    stream.start()  # the driver died before the batch was done
    assert len(stream.run(start, end)) == 4
    stream.ends.append(end)
    assert stream.step() == 28


def test_a_store_that_goes_is_lost_data(first: BrokerStore, directory: Path) -> None:
    broker_store(directory, "broker-b", 6)
    stream = Brokers(directory)
    assert stream.step() == 16
    (directory / "broker-b").rename(directory.parent / "away")
    for _ in range(2):
        with pytest.raises(
            DataLost, match=r"T/0: .*broker broker-b: .*its store made again or taken away.*failOnDataLoss=false"
        ):
            stream.step()
        stream.start()  # started again it is told again
    (directory.parent / "away").rename(directory / "broker-b")
    assert stream.step() == 0


def empty_it(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()  # what a file system leaves that is not mounted any more


def replace_by_a_link(root: Path) -> None:
    shutil.rmtree(root)
    root.symlink_to(root.with_name("not-mounted"))


@pytest.mark.parametrize("take_away", [shutil.rmtree, empty_it, replace_by_a_link])
def test_a_store_that_goes_and_comes_back_goes_on_where_it_stood(
    first: BrokerStore, directory: Path, take_away: Callable[[Path], None]
) -> None:
    other = broker_store(directory, "broker-b", 6)
    stream = Brokers(directory, failOnDataLoss="false")
    assert stream.step() == 16
    kept = directory.parent / "kept"
    shutil.copytree(other.root, kept)
    take_away(other.root)
    assert stream.step() == 0
    first.add_many(2)
    first.publish()
    assert stream.step() == 2
    if other.root.is_symlink():
        other.root.unlink()
    shutil.copytree(kept, other.root, dirs_exist_ok=True)
    assert stream.step() == 0
    other.add_many(4)
    other.publish()
    assert stream.step() == 4
    assert stream.counts() == {"broker-a": 12, "broker-b": 10}


def test_a_planned_batch_of_a_store_that_went_is_lost_or_left_out(first: BrokerStore, directory: Path) -> None:
    broker_store(directory, "broker-b", 6)
    start, end = Brokers(directory).plan()
    shutil.rmtree(directory / "broker-b")
    with pytest.raises(DataLost, match=r"T/0: offsets \[0, 3\) wanted, it holds none of them \(broker broker-b"):
        Brokers(directory).run(start, end)
    assert len(Brokers(directory, failOnDataLoss="false").run(start, end)) == 10


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_directory_that_holds_no_store_any_more_ends_the_stream(
    first: BrokerStore, directory: Path, fails: str
) -> None:
    """It is not mounted, most likely: nobody wants to go on without anything."""
    stream = Brokers(directory, failOnDataLoss=fails)
    assert stream.step() == 10
    directory.rename(directory.with_name("unmounted"))
    directory.mkdir()
    with pytest.raises(NotAStore, match="holds no store; is its file system mounted"):
        stream.step()
    directory.rmdir()
    directory.with_name("unmounted").rename(directory)
    assert stream.step() == 0


def test_something_else_that_comes_is_passed_over_and_told(
    first: BrokerStore, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Brokers(directory)
    stream.step()
    (directory / "logs").mkdir()
    (directory / "logs" / "broker.log").touch()
    first.add_many(2)
    first.publish()
    with caplog.at_level(logging.WARNING, "rmqstore.stream"):
        assert [stream.step() for _ in range(3)] == [2, 0, 0]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [f"{directory}/logs is not read"]
    assert str(directory / "logs") in stream.reader.reportLatestOffset()["$metrics"]["notRead"]
    (directory / "logs").rename(directory / ".logs")
    stream.step()
    assert "notRead" not in stream.reader.reportLatestOffset()["$metrics"]


def test_a_copy_that_comes_ends_the_stream_before_a_message_comes_twice(first: BrokerStore, directory: Path) -> None:
    stream = Brokers(directory)
    assert stream.step() == 10
    first.add_many(4)
    first.publish()
    copy = directory / "broker-a.old"
    shutil.copytree(first.root / "commitlog", copy / "commitlog")  # the log comes first, and no name with it
    with pytest.raises(Rejected, match="hold the same log, so that each message would come twice"):
        stream.step()
    shutil.rmtree(copy)
    copy.symlink_to(first.root)
    with pytest.raises(Rejected, match="hold the same log"):
        stream.step()
    copy.unlink()
    assert stream.step() == 4


def test_a_copy_whose_log_is_still_empty_is_told_when_it_has_one(first: BrokerStore, directory: Path) -> None:
    stream = Brokers(directory)
    assert stream.step() == 10
    log = directory / "broker-b" / "commitlog"
    log.mkdir(parents=True)
    files = sorted((first.root / "commitlog").iterdir())
    (log / files[0].name).write_bytes(bytes(files[0].stat().st_size))
    assert stream.step() == 0
    (log / files[0].name).write_bytes(files[0].read_bytes())
    with pytest.raises(Rejected, match="hold the same log"):
        stream.step()


def test_a_checkpoint_of_one_store_goes_on_with_the_directory(first: BrokerStore, directory: Path) -> None:
    named = json.dumps({"broker-a": str(first.root)})
    alone = Stream(first.root, path="-", stores=named)
    assert alone.step() == 10
    first.add_many(2)
    first.publish()
    broker_store(directory, "broker-b", 4)
    stream = Brokers(directory)
    stream.ends = alone.ends
    assert stream.step() == 6
    back = Stream(first.root, path="-", stores=named)  # and with the one store again, that it knows
    back.ends = stream.ends
    with pytest.raises(DataLost, match="broker broker-b"):
        back.step()


def test_a_checkpoint_of_a_store_without_a_name_is_not_of_the_directory(first: BrokerStore, directory: Path) -> None:
    alone = Stream(first.root)
    alone.step()
    stream = Brokers(directory)
    stream.ends = alone.ends
    with pytest.raises(Rejected, match="holds offsets of default, and what is read now is of broker-a"):
        stream.step()


@pytest.mark.parametrize(
    "wrong",
    [
        {"T": {"broker-a": 5}},
        {"T": {"broker-a": {"0": "5"}}},
        {"T": {"broker-a": {"0": True}}},
        {"T": {"broker-a": {"0": -1}}},
        {"T": {"broker-a": {"x": 1}}},
        {"T": {"broker-a": [0]}},
        {"T": "broker-a"},
    ],
)
def test_offsets_of_another_shape_are_refused(first: BrokerStore, directory: Path, wrong: dict[str, object]) -> None:
    stream = Brokers(directory)
    with pytest.raises(Rejected, match="the offset of 'T' in the checkpoint is not of this source"):
        stream.reader.latestOffset(wrong, stream.reader.getDefaultReadLimit())


def test_limits_are_shared_by_the_backlogs_of_all_stores(first: BrokerStore, directory: Path) -> None:
    for number in range(4):
        broker_store(directory, f"broker-{number}", 40 if number else 400)
    stream = Brokers(directory, maxOffsetsPerTrigger="60")
    seen = []
    for _ in range(3):
        assert stream.step() == 60
        seen.append(stream.counts())
    assert all(len(counts) >= 4 for counts in seen)  # nobody waits until the large one is read
    assert 20 <= seen[0]["broker-0"] <= 50
    while stream.step():
        pass
    assert stream.counts() == {"broker-a": 10, "broker-0": 400, "broker-1": 40, "broker-2": 40, "broker-3": 40}


def test_stores_that_are_alike_have_the_same_share(directory: Path) -> None:
    for name in ("a", "b", "c"):
        broker_store(directory, name, 50)
    stream = Brokers(directory, maxOffsetsPerTrigger="60")
    assert stream.step() == 60
    assert stream.counts() == dict.fromkeys("abc", 20)
    assert [stream.step() for _ in range(3)] == [60, 30, 0]


def test_bytes_are_shared_as_well_and_few_messages_wait(first: BrokerStore, directory: Path) -> None:
    broker_store(directory, "broker-b", 200)
    stream = Brokers(directory, maxBytesPerTrigger="2000")
    assert 0 < stream.step() < 25
    assert stream.counts().keys() == {"broker-a", "broker-b"}
    waits = Brokers(directory, minOffsetsPerTrigger="5", startingOffsets="latest")
    assert waits.step() == 0
    broker_store(directory, "broker-c", 2)
    assert waits.step() == 2  # the first batch does not wait
    broker_store(directory, "broker-d", 2)
    assert waits.step() == 0
    broker_store(directory, "broker-e", 3)
    assert waits.step() == 5
    assert waits.counts() == {"broker-c": 2, "broker-d": 2, "broker-e": 3}


def test_available_now_ends_with_the_stores_that_were_there(first: BrokerStore, directory: Path) -> None:
    stream = Brokers(directory, maxOffsetsPerTrigger="4")
    stream.begin()
    stream.reader.prepareForTriggerAvailableNow()
    late = broker_store(directory, "broker-b", 6)
    while stream.step():
        pass
    assert stream.counts() == {"broker-a": 10}
    stream.start()
    stream.reader.prepareForTriggerAvailableNow()
    while stream.step():
        pass
    assert stream.counts() == {"broker-a": 10, "broker-b": 6}
    shutil.rmtree(late.root)
    with pytest.raises(DataLost):
        stream.step()


@pytest.mark.parametrize(
    ("options", "first_offsets"),
    [
        ({"startingOffsets": '{"T": {"broker-a": {"0": 2}}}'}, {"broker-a": [2, 5], "broker-b": [2, 2]}),
        ({"startingOffsets": '{"T": "earliest"}'}, {"broker-a": [0, 0], "broker-b": [0, 0]}),
        ({"startingTimestamp": "1700000002000"}, {"broker-a": [1, 1], "broker-b": [1, 1]}),
        (
            {"startingOffsetsByTimestamp": '{"T": {"broker-b": {"0": 1700000001000}}}'},
            {"broker-a": [5, 5], "broker-b": [1, 2]},
        ),
    ],
)
def test_where_it_starts_is_said_by_broker(
    first: BrokerStore, directory: Path, options: dict[str, str], first_offsets: dict[str, list[int]]
) -> None:
    broker_store(directory, "broker-b", 4)
    stream = Brokers(directory, **({"startingOffsets": "-"} | options))
    begun = json.loads(stream.begin())["T"]
    assert {broker: list(queues.values()) for broker, queues in begun.items()} == first_offsets


def test_a_group_stands_in_each_store(first: BrokerStore, directory: Path) -> None:
    other = broker_store(directory, "broker-b", 4)
    for root, offset in ((first.root, 3), (other.root, 1)):
        (root / "config").mkdir()
        table = {"offsetTable": {"T@billing": {"0": offset}}}
        (root / "config" / "consumerOffset.json").write_text(json.dumps(table))
    stream = Brokers(directory, startingOffsets="group:billing")
    assert json.loads(stream.begin()) == {"T": {"broker-a": {"0": 3, "1": 0}, "broker-b": {"0": 1, "1": 0}}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": '{"T": {"0": 2}}'}, "with several stores name the broker"),
        ({"startingOffsets": '{"T": {"broker-x": {"0": 2}}}'}, "'T' has no broker 'broker-x'; it has broker-a"),
        ({"subscribe": "-", "assign": '{"T": {"broker-x": [0]}}'}, "no broker 'broker-x'"),
    ],
)
def test_a_start_that_names_no_broker_or_a_wrong_one_is_refused(
    first: BrokerStore, directory: Path, options: dict[str, str], words: str
) -> None:
    broker_store(directory, "broker-b", 4)
    with pytest.raises(Rejected, match=words):
        Brokers(directory, **options).begin()


def test_assigned_queues_name_their_broker_though_there_is_one(first: BrokerStore, directory: Path) -> None:
    """Another may come: what the queues of a topic meant would not be known then."""
    with pytest.raises(Rejected, match="name the broker in a directory of stores"):
        Brokers(directory, subscribe="-", assign='{"T": [0]}')
    stream = Brokers(directory, subscribe="-", assign='{"T": {"broker-a": [1]}}')
    assert stream.step() == 5
    broker_store(directory, "broker-b", 4)
    assert stream.step() == 0


def test_progress_is_a_file_for_each_broker_though_there_is_one(first: BrokerStore, directory: Path) -> None:
    path = directory.parent / "progress.json"
    stream = Brokers(directory, progressFile=str(path))
    stream.step()
    stream.step()
    broker_store(directory, "broker-b", 4)
    stream.step()
    stream.step()
    assert sorted(one.name for one in directory.parent.glob("progress*")) == [
        "progress.json.broker-a",
        "progress.json.broker-b",
    ]
    with pytest.raises(Rejected, match="lies in the store"):
        Brokers(directory, progressFile=str(directory / "progress.json"))


def test_a_topic_of_one_store_alone_is_read(first: BrokerStore, directory: Path) -> None:
    other = broker_store(directory, "broker-b", 4)
    other.add_many(3, topic="U")
    other.publish()
    stream = Brokers(directory, subscribe="U")
    assert stream.step() == 3
    first.add_many(2, topic="U")
    first.publish()
    assert stream.step() == 2
    assert stream.counts() == {"broker-a": 2, "broker-b": 3}


def test_a_store_of_an_engine_that_begins_while_the_stream_runs(first: BrokerStore, directory: Path) -> None:
    stream = Brokers(directory, subscribe="-", subscribePattern="T|U")
    stream.step()
    with open_store(directory / "broker-b", StoreConfig.embedded(broker_name="broker-b")) as engine:
        assert stream.step() == 0
        for number in range(30):
            engine.put(Message("U", b"%d" % number, queue_id=number % 3))
            stream.step()
        engine.flush()
        stream.step()
    assert stream.step() == 0
    assert stream.counts() == {"broker-a": 10, "broker-b": 30}
