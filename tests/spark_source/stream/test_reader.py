"""A stream without Spark around it: offsets through JSON as Spark carries them, rows by reading the partitions."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

import rmqstore
from rmqstore.directory import config_files
from rmqstore.errors import Corrupt, DataLost, Rejected, StoreChanging, UnknownTopic
from rmqstore.files.reading import LOCAL
from rmqstore.snapshot.stream import ends as stream_ends
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.snapshot.survey.survey import LOOKS_MAX, LOSSES_MIN
from spark_source.columns.schema import spark_schema
from spark_source.source import RmqStoreDataSource
from spark_source.stream import reader as stream_reader
from spark_source.stream.reader import StreamReader
from tests.snapshot.growing_store import GrowingStore, made_anew
from tests.spark_source.stream.streams import BROKER, COLUMNS, Clock, Stream, expected, places

pytestmark = pytest.mark.stores


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    grown = GrowingStore(tmp_path / "store")
    grown.add_many(10)
    grown.publish()
    return grown


def test_a_stream_reads_what_is_there_and_what_comes(store):
    stream = Stream(store.root)
    assert stream.step() == 10
    assert stream.step() == 0
    store.add_many(60)
    store.publish()
    assert stream.step() == 60
    assert places(stream.rows) == expected({("T", 0): range(35), ("T", 1): range(35)})
    assert stream.stands == {"T": {BROKER: {"0": 35, "1": 35}}}


def test_nothing_new_is_the_same_text(store):
    stream = Stream(store.root)
    stream.step()
    start, end = stream.plan()
    assert start == end == stream.ends[-1]
    assert stream.reader.partitions(json.loads(start), json.loads(end)) == []


def test_latest_is_the_default_and_remembered(store):
    stream = Stream(store.root, startingOffsets="-")
    first = stream.begin()
    assert json.loads(first) == {"T": {BROKER: {"0": 5, "1": 5}}}
    store.add_many(4)
    store.publish()
    assert stream.begin() == first
    assert stream.step() == 4


def test_only_the_first_end_carries_its_start_and_a_replay_reads_what_was_planned(store):
    stream = Stream(store.root, startingOffsets="latest")
    stream.begin()
    store.add_many(4)
    store.publish()
    start, end = stream.plan()
    assert json.loads(end)["$from"] == json.loads(start)
    store.add_many(20)
    store.publish()
    stream.start()  # the driver died in batch 0: Spark asks for the initial offset again, and gets a later one
    moved = stream.begin()
    assert moved != start
    assert places(stream.run(moved, end)) == expected({("T", 0): range(5, 7), ("T", 1): range(5, 7)})
    stream.ends.append(end)
    assert stream.step() == 20
    assert "$from" not in json.loads(stream.ends[-1])


def test_a_replay_of_an_empty_first_batch_reads_nothing(store):
    stream = Stream(store.root, startingOffsets="latest")
    start, end = stream.plan()
    assert start == end
    store.add_many(4)
    store.publish()
    stream.start()
    assert stream.run(stream.begin(), end) == []
    stream.ends.append(end)
    assert stream.step() == 4


def test_new_queues_and_topics_come_from_their_beginning(store):
    stream = Stream(store.root, subscribe="-", subscribePattern="T|U.*", startingOffsets="latest")
    assert stream.step() == 0
    store.add("T", 7)
    store.add("U1", 0)
    store.add("U1", 0)
    store.add("Other", 0)
    store.publish()
    assert stream.step() == 3
    assert places(stream.rows) == [("T", 7, 0), ("U1", 0, 0), ("U1", 0, 1)]


def test_where_a_new_queue_began_is_in_the_end_that_brings_it(store):
    stream = Stream(store.root)
    stream.step()
    store.add("T", 7)
    store.publish()
    assert stream.step() == 1
    assert json.loads(stream.ends[-1])["$from"] == {"T": {BROKER: {"7": 0}}}
    assert stream.step() == 0
    store.add("T", 7)
    store.publish()
    assert stream.step() == 1
    assert "$from" not in json.loads(stream.ends[-1])


def test_an_assigned_queue_and_no_other(store):
    stream = Stream(store.root, subscribe="-", assign='{"T": [1]}')
    assert stream.step() == 5
    assert {row[1] for row in stream.rows} == {1}


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ('{"T": {"0": 2}}', {"0": 2, "1": 5}),
        ('{"T": {"default": {"0": -2, "1": 3}}}', {"0": 0, "1": 3}),
        ('{"T": "earliest"}', {"0": 0, "1": 0}),
    ],
)
def test_a_start_that_names_some_queues_is_the_latest_for_the_others(store, start, first):
    assert json.loads(Stream(store.root, startingOffsets=start).begin()) == {"T": {BROKER: first}}


def test_a_start_by_time(store):
    stream = Stream(store.root, startingOffsets="-", startingTimestamp=str(1_700_000_000_000 + 4000))
    assert json.loads(stream.begin()) == {"T": {BROKER: {"0": 2, "1": 2}}}


def group_table(store: GrowingStore, table: Mapping[str, Mapping[int, int]]) -> None:
    (store.root / "config").mkdir(exist_ok=True)
    (store.root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def test_a_start_where_a_group_stands_batch_and_stream(store):
    group_table(store, {"T@billing": {"0": 3}})
    stream = Stream(store.root, startingOffsets="group:billing")
    assert json.loads(stream.begin()) == {"T": {BROKER: {"0": 3, "1": 0}}}
    source = RmqStoreDataSource({"path": str(store.root), "subscribe": "T", "startingOffsets": "group:billing"})
    reader = source.reader(spark_schema(COLUMNS))
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 7


def test_a_group_that_is_not_there_is_told(store):
    group_table(store, {"T@billing": {"0": 3}})
    with pytest.raises(Rejected, match="group 'biling' has committed no offset of these topics: did you mean billing"):
        Stream(store.root, startingOffsets="group:biling").begin()


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("subscribed", ["New", "New,T"])
def test_a_topic_that_is_not_there_yet_is_waited_for(store, subscribed, start, caplog):
    stream = Stream(store.root, subscribe=subscribed, startingOffsets=start)
    stream.begin()
    (said,) = [record.getMessage() for record in caplog.records if "waits for a topic" in record.getMessage()]
    assert f"no topic 'New' in {store.root}" in said
    old = stream.step()
    assert old == (10 if (subscribed, start) == ("New,T", "earliest") else 0)
    assert stream.step() == 0
    for _ in range(3):
        store.add("New")
    store.publish()
    assert stream.step() == 3
    assert [row for row in places(stream.rows) if row[0] == "New"] == expected({("New", 0): range(3)})
    assert sum("waits for a topic" in record.getMessage() for record in caplog.records) == 1


def test_a_batch_of_a_topic_that_is_not_there_is_refused(store):
    reader = RmqStoreDataSource({"path": str(store.root), "subscribe": "Tee"}).reader(spark_schema(COLUMNS))
    with pytest.raises(UnknownTopic, match="no topic 'Tee'"):
        reader.partitions()


def test_a_group_begins_where_a_topic_is_and_another_is_waited_for(store):
    group_table(store, {"T@billing": {"0": 3}})
    stream = Stream(store.root, subscribe="New,T", startingOffsets="group:billing")
    assert json.loads(stream.begin()) == {"T": {BROKER: {"0": 3, "1": 0}}}


def test_a_checkpoint_of_something_else_is_told(store):
    stream = Stream(store.root)
    with pytest.raises(Rejected, match="is not of this source"):
        stream.reader.latestOffset({"T": {"0": 12}}, ReadAllAvailable())


# What one trigger takes.


def test_rows_are_limited_and_all_of_them_come(store):
    store.add_many(21)
    store.publish()
    stream = Stream(store.root, maxOffsetsPerTrigger="4")
    steps = [stream.step() for _ in range(9)]
    assert steps == [4] * 7 + [3, 0]
    assert places(stream.rows) == expected({("T", 0): range(16), ("T", 1): range(15)})


def test_once_means_all_whatever_the_limit(store):
    start, end = (stream := Stream(store.root, maxOffsetsPerTrigger="4")).plan(ReadAllAvailable())
    assert len(stream.run(start, end)) == 10


def test_bytes_are_limited_exactly_and_a_big_message_goes_through(store):
    sizes = {}
    for number, size in enumerate([10, 900, 20, 3000, 30, 40]):
        store.add("T", 0, body=bytes(size))
        sizes[5 + number] = size
    store.publish()
    stream = Stream(store.root, maxBytesPerTrigger="1000")
    seen = []
    while stream.step():
        seen.append(len(stream.rows))
    assert places(stream.rows) == expected({("T", 0): range(11), ("T", 1): range(5)})
    record = 100  # about the size of one without its body; the records of this store have 102 bytes and a few
    for low, high in zip([0, *seen], seen, strict=False):
        batch = stream.rows[low:high]
        assert len(batch) == 1 or sum(record + len(row[3]) for row in batch) <= 1000
    assert max(high - low for low, high in zip([0, *seen], seen, strict=False)) > 3


def test_few_rows_wait_for_more_or_for_the_delay(store):
    clock = Clock()
    stream = Stream(store.root, clock=clock, minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    assert stream.step() == 10
    store.add_many(3)
    store.publish()
    clock.now_s += 9
    assert stream.step() == 0
    clock.now_s += 2
    assert stream.step() == 3
    store.add_many(5)
    store.publish()
    assert stream.step() == 5


def test_available_now_stops_at_what_there_was_queues_included(store):
    stream = Stream(store.root, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="4")
    stream.reader.prepareForTriggerAvailableNow()
    steps = [stream.step()]
    store.add_many(50)
    store.add("T", 9)
    store.publish()
    steps += [stream.step() for _ in range(3)]
    assert steps == [4, 4, 2, 0]
    stream.start()
    stream.reader.prepareForTriggerAvailableNow()
    while stream.step():
        continue
    assert places(stream.rows) == expected({("T", 0): range(30), ("T", 1): range(30), ("T", 9): range(1)})


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "4", "maxBytesPerTrigger": "1m"}, ReadMaxRows(4)),
        ({"maxBytesPerTrigger": "1m"}, ReadMaxBytes(1 << 20)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
    ],
)
def test_the_limit_that_spark_is_told(store, options, limit):
    assert Stream(store.root, **options).reader.getDefaultReadLimit() == limit


def test_spark_before_4_2_refuses_limits(store, monkeypatch):
    monkeypatch.setattr(stream_reader, "HAS_LIMITS", False)
    with pytest.raises(Rejected, match=r"need Spark 4\.2 or later"):
        Stream(store.root, maxOffsetsPerTrigger="4")


class EarlierStream(Stream):
    """What Spark before 4.2 does: it asks for the first end before it asks where a new query begins."""

    def plan(self, limit: Any = None) -> tuple[str, str]:
        end = json.dumps(self.reader.latestOffset())
        return (self.ends[-1] if self.ends else self.begin()), end


@pytest.fixture
def before_4_2(monkeypatch):
    monkeypatch.setattr(stream_reader, "HAS_LIMITS", False)


@pytest.mark.usefixtures("before_4_2")
def test_spark_before_4_2_finds_the_start_of_the_first_batch_in_its_end(store):
    stream = EarlierStream(store.root, startingOffsets='{"T": {"0": 2, "1": 2}}')
    start, end = stream.plan()
    rows = stream.run(start, end)
    assert len(rows) == 6
    later = EarlierStream(store.root, startingOffsets="latest")
    store.add_many(4)
    store.publish()
    assert later.run(later.begin(), end) == rows, "the options say something else by now"


def test_a_first_batch_that_spark_before_4_2_planned_is_what_4_2_reads(store, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(stream_reader, "HAS_LIMITS", False)
        planned = EarlierStream(store.root, startingOffsets='{"T": {"0": 2, "1": 2}}').plan()[1]
    store.add_many(4)
    store.publish()
    stream = Stream(store.root, startingOffsets="latest")
    first = stream.run(stream.begin(), planned)
    assert places(first) == expected({("T", 0): range(2, 5), ("T", 1): range(2, 5)}), "the options say another place"
    stream.ends.append(planned)
    stream.start()
    assert stream.step() == 4


@pytest.mark.usefixtures("before_4_2")
def test_spark_before_4_2_does_not_say_where_a_restarted_query_stands(store):
    stream = EarlierStream(store.root)
    assert stream.step() == 10
    stream.ends.append(stream.plan()[1])
    assert stream.plan() == (stream.ends[-1], stream.ends[-1]), "or Spark would run empty batches for ever"
    store.add_many(4)
    store.add("T", 7)
    store.publish()
    assert stream.step() == 5
    assert json.loads(stream.ends[-1])["$from"] == {"T": {BROKER: {"7": 0}}}
    stream.start()
    store.add("T", 0)
    store.publish()
    assert stream.step() == 1
    assert stream.step() == 0
    assert len(set(stream.rows)) == len(stream.rows) == 16


@pytest.mark.usefixtures("before_4_2")
def test_spark_before_4_2_goes_on_though_the_options_name_no_place_any_more(store, tmp_path):
    stream = EarlierStream(store.root, startingOffsets='{"T": {"0": 2, "1": 2}}')
    assert stream.step() == 6
    stream.options["startingOffsets"] = '{"U": {"0": 2}}'
    stream.start()
    store.add("T", 0)
    store.publish()
    assert stream.step() == 1


def test_spark_sees_that_limits_and_available_now_are_there():
    from inspect import signature

    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    assert stream_reader.HAS_LIMITS
    assert issubclass(StreamReader, SupportsTriggerAvailableNow)
    assert len(signature(StreamReader.latestOffset).parameters) == 3


# A live store, and what is lost of it.


def test_a_torn_tail_is_neither_an_error_nor_skipped(store):
    stream = Stream(store.root)
    stream.step()
    place = store.add("T", 0, body=b"late", dispatched=False)
    whole = bytes(store.data[0][place : store.end])
    store.change(place, whole[:40].ljust(len(whole), b"\0"))
    store.publish()
    assert stream.step() == 0
    store.add("T", 1, dispatched=False)
    store.publish()
    assert stream.step() == 0
    assert stream.reader.reportLatestOffset()["$metrics"]["notWholeAt"] == {BROKER: place}
    store.change(place, whole)
    store.publish()
    assert stream.step() == 2
    assert ("T", 0, 5, b"late") in stream.rows
    assert "notWholeAt" not in stream.reader.reportLatestOffset()["$metrics"]


def test_damage_with_messages_behind_it_is_an_error_or_left_out(store, monkeypatch):
    stream, lenient = Stream(store.root), Stream(store.root, onCorruptRecord="skip")
    stream.step()
    lenient.step()
    place = store.add("T", 0, dispatched=False)
    store.change(place, bytes(store.end - place))
    store.add("T", 1)
    store.publish()
    assert stream.step() == 0  # zeros are taken for the end of the log, for a while
    monkeypatch.setattr(stream_ends, "_SURVEY_AGE_S", 0.0)
    start, end = stream.plan()
    with pytest.raises(Corrupt):
        stream.run(start, end)
    assert lenient.step() == 1


@pytest.fixture
def rolled(store: GrowingStore) -> GrowingStore:
    """Of four log files."""
    store.add_many(110)
    store.publish()
    assert len(store.data) == 4
    return store


def in_file(store: GrowingStore, number: int) -> list[tuple[str, int, int]]:
    """The messages of one log file of a store that has all of them in queues 0 and 1 in turn."""
    return [("T", n % 2, n // 2) for n, offset in enumerate(store.offsets) if offset // store.file_size == number]


def skipped_in(stream: Stream) -> int:
    """What it says of messages that it went on without."""
    return int(stream.reader.reportLatestOffset()["$metrics"]["skippedMessages"])


def run_to_end(stream: Stream) -> None:
    """Also over batches that have lost all of their rows."""
    batches = -1
    while batches < len(stream.ends):
        batches = len(stream.ends)
        stream.step()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_deleted_file_is_an_error_that_names_all_or_is_skipped_forward(rolled, number):
    lost = in_file(rolled, number)
    strict = Stream(rolled.root, maxOffsetsPerTrigger="6")
    lenient = Stream(rolled.root, maxOffsetsPerTrigger="6", failOnDataLoss="false")
    assert strict.step() == lenient.step() == 6
    rolled.delete_log_file(number)
    with pytest.raises(DataLost) as caught:
        run_to_end(strict)
    queue = int(caught.value.queue.removeprefix("T/"))
    offsets = [place[2] for place in lost if place[1] == queue]
    seen = max([row[2] for row in strict.rows if row[1] == queue])
    assert caught.value.wanted == (max(min(offsets), seen + 1), max(offsets) + 1)
    assert caught.value.available is not None
    assert "failOnDataLoss=false" in str(caught.value)
    assert "checkpointLocation" in str(caught.value)
    run_to_end(lenient)
    first_read = set(places(lenient.rows[:6]))
    # The others came, those of the last file too, each once.
    whole = expected({("T", 0): range(60), ("T", 1): range(60)})
    assert places(lenient.rows) == [place for place in whole if place not in lost or place in first_read]
    assert skipped_in(lenient) == len(set(lost) - first_read)


def test_a_batch_that_skips_tells_it_in_its_own_progress(rolled):
    """Spark asks for the report before the partitions: it said 0, and a run of one batch never more."""
    stream = Stream(rolled.root, failOnDataLoss="false", startingOffsets='{"T": {"0": 3, "1": 0}}')
    lost = [place for place in in_file(rolled, 0) if place[1:] not in ((0, 0), (0, 1), (0, 2))]
    rolled.delete_log_file(0)
    start, end = stream.plan()
    assert skipped_in(stream) == len(lost)
    stream.run(start, end)
    assert skipped_in(stream) == len(lost)


def test_the_last_file_deleted_is_an_end_that_came_back(rolled):
    lost = in_file(rolled, 3)
    strict, lenient = Stream(rolled.root), Stream(rolled.root, failOnDataLoss="false")
    behind = Stream(rolled.root, maxOffsetsPerTrigger="6")
    assert strict.step() == lenient.step() == 120
    assert behind.step() == 6
    rolled.delete_log_file(3)
    first = min(place[2] for place in lost if place[1] == 0)
    with pytest.raises(DataLost, match=rf"T/0: offsets \[{first}, 60\) wanted, it holds \[0, {first}\)"):
        strict.step()
    assert lenient.step() == 0
    run_to_end(behind)  # who had not come so far sees a store that ends here
    whole = expected({("T", 0): range(60), ("T", 1): range(60)})
    assert places(behind.rows) == [place for place in whole if place not in lost]


def test_a_store_made_anew_is_an_error_or_waited_for_until_it_goes_on(rolled):
    strict, lenient = Stream(rolled.root), Stream(rolled.root, failOnDataLoss="false")
    assert strict.step() == lenient.step() == 120
    anew = made_anew(rolled, 30)
    with pytest.raises(DataLost, match=r"T/0: offsets \[15, 60\) wanted, it holds \[0, 15\).*cut or made again"):
        strict.step()
    assert lenient.step() == 0
    anew.add_many(100)
    anew.publish()
    assert lenient.step() == 10
    assert places(lenient.rows[120:]) == expected({("T", 0): range(60, 65), ("T", 1): range(60, 65)})


def test_a_topic_that_is_gone_is_an_error_or_left_as_it_stands(store):
    store.add("U", 0)
    store.publish()
    names = {"subscribe": "T,U"}
    strict, lenient = Stream(store.root, **names), Stream(store.root, failOnDataLoss="false", **names)
    assert strict.step() == lenient.step() == 11
    made_anew(store, 12)
    with pytest.raises(DataLost, match=r"U/0: .*the queue is gone"):
        strict.step()
    assert lenient.step() == 2
    end = json.loads(lenient.ends[-1])
    assert list(end.pop("$since")) == ["U"], "from then on what is stored there is new"
    assert {name: end[name] for name in "TU"} == {"T": {BROKER: {"0": 6, "1": 6}}, "U": {BROKER: {"0": 1}}}


@pytest.mark.usefixtures("before_4_2")
def test_spark_before_4_2_is_told_at_a_restart_that_a_store_was_made_anew(rolled):
    strict, lenient = EarlierStream(rolled.root), EarlierStream(rolled.root, failOnDataLoss="false")
    assert strict.step() == lenient.step() == 120
    anew = made_anew(rolled, 30)
    for stream in (strict, lenient):
        stream.start()
    for _ in range(2):  # the batch was written down: it comes again
        with pytest.raises(DataLost, match=r"T/0: offsets \[15, 60\) wanted, it holds \[0, 15\).*cut or made again"):
            strict.run(*strict.plan())
    assert lenient.step() == 0
    anew.add_many(100)
    anew.publish()
    assert lenient.step() == 10
    assert places(lenient.rows[120:]) == expected({("T", 0): range(60, 65), ("T", 1): range(60, 65)})


@pytest.mark.usefixtures("before_4_2")
def test_spark_before_4_2_is_told_at_a_restart_that_a_topic_is_gone(store):
    store.add("U", 0)
    store.publish()
    names = {"subscribePattern": "T|U", "subscribe": "-"}
    strict, lenient = EarlierStream(store.root, **names), EarlierStream(store.root, failOnDataLoss="false", **names)
    assert strict.step() == lenient.step() == 11
    anew = made_anew(store, 12)
    for stream in (strict, lenient):
        stream.start()
    with pytest.raises(DataLost, match=r"U/0: .*the queue is gone"):
        strict.run(*strict.plan())
    assert lenient.step() == 2
    anew.add_many(2, "U", 1)
    anew.publish()
    assert lenient.step() == 1
    assert lenient.rows[-1][:3] == ("U", 0, 1), "never backwards"


@pytest.mark.usefixtures("before_4_2")
def test_spark_before_4_2_reads_nothing_twice_where_a_restarted_query_saw_less_for_a_moment(store):
    stream = EarlierStream(store.root)
    assert stream.step() == 10
    stream.start()
    stream.begin()
    stream.ends.append(json.dumps({"T": {BROKER: {"0": 3}}}))  # as if it had seen so much
    assert stream.run(stream.ends[0], stream.ends[1]) == []
    store.add_many(4)
    store.publish()
    more = stream.run(stream.ends[1], stream.plan()[1])
    assert places(more) == expected({("T", 0): range(5, 7), ("T", 1): range(5, 7)})


def test_a_planned_batch_whose_messages_are_gone(rolled):
    strict, lenient = Stream(rolled.root), Stream(rolled.root, failOnDataLoss="false")
    start, end = strict.plan()
    lenient.plan()
    rolled.delete_log_file(0)
    for stream in (strict, lenient):
        stream.start()
    with pytest.raises(DataLost, match="older messages were deleted"):
        strict.run(start, end)
    kept = [place for place in expected({("T", 0): range(60), ("T", 1): range(60)}) if place not in in_file(rolled, 0)]
    assert places(lenient.run(start, end)) == kept
    assert skipped_in(lenient) == len(in_file(rolled, 0))
    lenient.run(start, end)
    assert skipped_in(lenient) == len(in_file(rolled, 0))


def test_a_queue_of_a_known_topic_whose_beginning_is_gone_before_it_was_seen(store):
    strict, lenient = Stream(store.root), Stream(store.root, failOnDataLoss="false")
    assert strict.step() == lenient.step() == 10
    for _ in range(80):
        store.add("T", 5)
    store.publish()
    store.delete_log_file(0)
    first = next(n for n, offset in enumerate(store.offsets[10:]) if offset >= store.file_size)
    with pytest.raises(DataLost, match=rf"T/5: offsets \[0, {first}\) wanted"):
        strict.step()
    assert lenient.step() == 80 - first
    assert skipped_in(lenient) == first
    lenient.run(lenient.ends[-2], lenient.ends[-1])
    assert skipped_in(lenient) == first


def test_a_queue_of_a_new_topic_that_has_to_wait_is_read_from_what_it_has(store):
    names = {"subscribe": "-", "subscribePattern": ".*", "maxOffsetsPerTrigger": "10"}
    streams = [Stream(store.root, **names, failOnDataLoss=strict) for strict in ("true", "false")]
    assert [stream.step() for stream in streams] == [10, 10]
    for number in range(200):
        store.add("U", number % 40)
    store.publish()
    store.delete_log_file(0)
    there = sum(offset >= store.file_size for offset in store.offsets[10:])
    for stream in streams:
        steps = []
        while step := stream.step():
            steps.append(step)
        assert sum(steps) == there
        assert max(steps) <= 10
        assert skipped_in(stream) == 0


def test_what_expired_before_a_stream_began_is_not_counted(rolled):
    rolled.delete_log_file(0)
    stream = Stream(rolled.root, failOnDataLoss="false")
    assert stream.step() == 120 - len(in_file(rolled, 0))
    assert skipped_in(stream) == 0


# What is told.


def test_lag_in_messages_bytes_and_time(store):
    stream = Stream(store.root, maxOffsetsPerTrigger="4")
    stream.step()
    report = json.loads(json.dumps(stream.reader.reportLatestOffset()))
    metrics = report.pop("$metrics")
    assert report == {"T": {BROKER: {"0": 5, "1": 5}}}
    sizes = [after - before for before, after in zip(store.offsets, [*store.offsets[1:], store.end], strict=True)]
    assert metrics == {"lagMessages": 6, "lagBytes": sum(sizes[4:]), "lagMs": 5000, "skippedMessages": 0}
    while stream.step():
        continue
    assert stream.reader.reportLatestOffset()["$metrics"]["lagMessages"] == 0


def test_progress_is_exported_in_the_broker_s_shape(store, tmp_path):
    path = tmp_path / "config" / "consumerOffset.json"
    path.parent.mkdir()
    stream = Stream(store.root, progressFile=str(path), progressGroup="billing", maxOffsetsPerTrigger="4")
    stream.step()
    stream.step()  # the first is done with then
    assert config_files.consumer_offsets(LOCAL, str(tmp_path)) == {("billing", "T"): {0: 2, 1: 2}}
    stream.reader.commit(json.loads(stream.ends[-1]))
    assert config_files.consumer_offsets(LOCAL, str(tmp_path)) == {("billing", "T"): {0: 4, 1: 4}}
    assert sorted(one.name for one in path.parent.iterdir()) == ["consumerOffset.json"]


def test_progress_of_several_brokers_is_a_file_each(store, tmp_path):
    other = GrowingStore(tmp_path / "other")
    other.add_many(6)
    other.publish()
    stores = json.dumps({"a": str(store.root), "b": str(other.root)})
    path = tmp_path / "progress.json"
    stream = Stream(store.root, path="-", stores=stores, progressFile=str(path))
    assert stream.step() == 16
    stream.step()
    texts = {name: (tmp_path / f"progress.json.{name}").read_text() for name in "ab"}
    assert "{0:5,1:5" in texts["a"]
    assert "{0:3,1:3" in texts["b"]


def test_progress_of_one_store_has_no_offsets_of_a_broker_that_was_read_before(store, tmp_path):
    other = GrowingStore(tmp_path / "other")
    other.add_many(6)
    other.publish()
    both = Stream(store.root, path="-", stores=json.dumps({"a": str(store.root), "b": str(other.root)}))
    assert both.step() == 16
    path = tmp_path / "config" / "consumerOffset.json"
    path.parent.mkdir()
    one = Stream(
        store.root, path="-", stores=json.dumps({"a": str(store.root)}), failOnDataLoss="false",
        progressFile=str(path), progressGroup="billing",
    )  # fmt: skip
    one.ends = both.ends
    one.reader.commit(json.loads(one.ends[-1]))
    assert config_files.consumer_offsets(LOCAL, str(tmp_path)) == {("billing", "T"): {0: 5, 1: 5}}
    assert [each.name for each in path.parent.iterdir()] == ["consumerOffset.json"]


@pytest.mark.parametrize(
    ("path", "advice"), [("{store}/config/x.json", "lies in the store"), ("{tmp}/no/x", "create it")]
)
def test_a_progress_file_in_a_wrong_place_is_refused(store, tmp_path, path, advice):
    with pytest.raises(Rejected, match=advice):
        Stream(store.root, progressFile=path.format(store=store.root, tmp=tmp_path))


@pytest.mark.parametrize(
    ("root", "path"),
    [("{store}", "{tmp}/link/x"), ("{tmp}/same", "{store}/config/x"), ("{tmp}/same", "{tmp}/link/x"),
     ("{store}", "{tmp}/file")],
)  # fmt: skip
def test_no_link_leads_a_progress_file_into_a_store(store, tmp_path, root, path):
    offsets = store.root / "config" / "x"
    offsets.parent.mkdir(exist_ok=True)
    offsets.write_text("a broker's")
    for name, target in (("link", offsets.parent), ("same", store.root), ("file", offsets)):
        (tmp_path / name).symlink_to(target)
    root, path = (text.format(store=store.root, tmp=tmp_path) for text in (root, path))
    with pytest.raises(Rejected, match="lies in the store"):
        Stream(root, progressFile=path)
    assert offsets.read_text() == "a broker's"


def test_a_changed_subscription_forgets_what_it_does_not_mean(store):
    store.add("U", 0)
    store.publish()
    both = Stream(store.root, subscribe="T,U")
    both.step()
    one = Stream(store.root, subscribe="T")
    one.ends.append(both.ends[-1])
    assert one.step() == 0
    store.add("U", 0)
    store.add("T", 0)
    store.publish()
    assert one.step() == 1
    assert "U" not in json.loads(one.ends[-1])


TOPICS_OF_BROKER_A = '{"topicConfigTable":{"rmq_sys_SYNC_BROKER_MEMBER_broker-a":{}}}'


def named_store(store: GrowingStore) -> Path:
    """The store of a broker that says its name in both files of its topics; the .bak's path."""
    config = store.root / "config"
    config.mkdir()
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_text(TOPICS_OF_BROKER_A)
    return config / "topics.json.bak"


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_stream_goes_on_under_the_broker_s_name_though_its_topics_are_lost(store, fails):
    named_store(store)
    stream = Stream(store.root, failOnDataLoss=fails)
    assert stream.step() == 10
    (store.root / "config" / "topics.json").write_text("")
    stream.start()
    assert stream.step() == 0
    store.add_many(2)
    store.publish()
    assert stream.step() == 2
    assert stream.stands == {"T": {"broker-a": {"0": 6, "1": 6}}}


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_stream_whose_broker_has_another_name_now_stops_and_says_why(store, fails):
    """Else it would fail for queues that are there, or read every message once more."""
    old = named_store(store)
    stream = Stream(store.root, failOnDataLoss=fails)
    assert stream.step() == 10
    planned = stream.ends[-1]
    old.unlink()
    (store.root / "config" / "topics.json").unlink()
    stream.start()
    with pytest.raises(Rejected, match=r'of broker-a, .* of default: .*stores.*\{"broker-a": ".*/store"\}'):
        stream.step()
    with pytest.raises(Rejected, match="of broker-a"):
        stream.run("{}", planned)
    named = Stream(store.root, failOnDataLoss=fails, path="-", stores=json.dumps({"broker-a": str(store.root)}))
    named.ends = [planned]
    assert named.step() == 0


@pytest.mark.usefixtures("before_4_2")
def test_spark_before_4_2_is_told_at_a_restart_that_the_broker_has_another_name(store):
    old = named_store(store)
    stream = EarlierStream(store.root, failOnDataLoss="false")
    assert stream.step() == 10
    old.unlink()
    (store.root / "config" / "topics.json").unlink()
    stream.start()
    with pytest.raises(Rejected, match="of broker-a"):
        stream.step()


def test_a_second_store_is_new_and_no_other_name_for_the_first(store, tmp_path):
    named_store(store)
    stream = Stream(store.root, failOnDataLoss="false")
    assert stream.step() == 10
    other = GrowingStore(tmp_path / "other")
    other.add_many(4)
    other.publish()
    both = Stream(store.root, failOnDataLoss="false", path="-", paths=json.dumps([str(store.root), str(other.root)]))
    both.ends = stream.ends
    assert both.step() == 4


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("mode", ["auto", "queue", "commitlog"])
def test_a_recovery_between_plan_and_read_costs_no_message(tmp_path, fails, mode):
    store = GrowingStore(tmp_path)
    store.add_many(100)
    stream = Stream(store.publish(), failOnDataLoss=fails, scanMode=mode)
    start, end = stream.plan()
    parts = stream.reader.partitions(json.loads(start), json.loads(end))
    shutil.rmtree(tmp_path / "consumequeue")
    rows = [row for part in parts for batch in stream.reader.read(part) for row in batch.to_pylist()]
    assert sorted(row["body"] for row in rows) == sorted(b"T %d" % number for number in range(100))
    assert sorted(stream.run(start, end)) == sorted(tuple(row.values()) for row in rows)
    store.publish()
    assert stream.step() == 100


@pytest.mark.parametrize(
    ("error", "refusals", "ends"),
    [
        (StoreChanging("store", "its owner came"), LOOKS_MAX - 1, False),
        (StoreChanging("store", "its owner came"), LOOKS_MAX, True),
        (DataLost("T/0", (0, 1), None, "store", "gone"), LOSSES_MIN - 1, False),
        (DataLost("T/0", (0, 1), None, "store", "gone"), LOSSES_MIN, True),
    ],
)
def test_a_stream_looks_again_at_a_store_that_does_not_come_to_rest(tmp_path, monkeypatch, error, refusals, ends):
    """As often as any reader, and not often for what is lost; then the query ends, and begins again where it stood."""
    store = GrowingStore(tmp_path)
    store.add_many(10)
    stream = Stream(store.publish())
    start = json.loads(stream.begin())
    look, refused = StreamEnds.look, []

    def refuse(watched, looks=None):
        if len(refused) < refusals:
            refused.append(watched)
            raise error
        return look(watched, looks)

    monkeypatch.setattr(StreamEnds, "look", refuse)
    if ends:
        with pytest.raises(type(error)):
            stream.reader.latestOffset(start, ReadAllAvailable())
        stream.start()
    assert stream.step() == 10


def test_the_lag_of_several_sources_is_one_and_of_none_none() -> None:
    def source(latest: object) -> dict[str, object]:
        return {"description": "rmqstore", "latestOffset": latest}

    def lag(ms: int, messages: int) -> str:
        return json.dumps({"$metrics": {"lagMs": ms, "lagMessages": messages, "lagBytes": 7, "skippedMessages": 1}})

    progress = {"sources": [source(lag(50, 3)), source(None), source("9"), source("a place"), source(lag(20, 4))]}
    assert rmqstore.stream_lag(progress) == {"lagMs": 50, "lagMessages": 7, "lagBytes": 14, "skippedMessages": 2}
    assert rmqstore.stream_lag({"sources": [source(None)]}) is None
    assert rmqstore.stream_lag(None) is None  # no batch yet
