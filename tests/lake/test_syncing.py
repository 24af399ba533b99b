"""Topics in tables: the rows of the store, each once, whoever runs how often."""

import errno
import io
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rmqstore import Message, StoreConfig, StoresIn, open_snapshot, open_store
from rmqstore.errors import DataLost, Rejected, UnknownColumn, UnknownTopic
from rmqstore.lake import (
    Committed,
    Consent,
    DeadLetterFile,
    Steps,
    Sync,
    SyncListener,
    SyncRequest,
    TableColumns,
    TableFailed,
)
from rmqstore.snapshot.stream.following import Following
from tests.lake.conftest import CONFIG, put, put_into, stored
from tests.lake.tables import Lake, places_of
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.stores


def test_a_table_has_the_rows_of_the_store(lake: Lake, store: Path) -> None:
    assert lake.sync(columns="*").rows == 42
    names = list(TableColumns("*").names)
    found, wanted = lake.rows().select(names), open_snapshot(store).scan(columns="*").read_all().select(names)
    order = [(name, "ascending") for name in ("topic", "queueId", "queueOffset")]
    plain = [table.cast(wanted.schema).sort_by(order) for table in (found, wanted)]
    assert plain[0].to_pylist() == plain[1].to_pylist()


def test_what_is_new_is_added_and_no_more(lake: Lake, store: Path) -> None:
    assert lake.sync().rows == 42
    assert lake.sync() == (0, 0, 0, 0)
    put_into(store, "orders", 30, 5)
    put_into(store, "refunds", 0, 3)
    assert lake.sync().rows == 8
    assert lake.places() == stored(store)


@pytest.mark.deep
def test_it_goes_in_steps(lake: Lake, store: Path) -> None:
    put_into(store, "many", 0, 20_000)
    counts: list[int] = []

    class Counted(SyncListener):
        def commit(self, done: Committed) -> None:
            counts.append(done.rows)

    totals = lake.started(listener=Counted(), steps=Steps(rows=1)).run()
    assert len(counts) == totals.commits > 1
    assert sum(counts) == totals.rows == 20_042
    assert lake.places() == stored(store)


def test_properties_are_columns(lake: Lake, store: Path) -> None:
    with open_store(store, CONFIG) as one:
        one.put(Message("orders", b"none"))
        one.put(Message("orders", b"twice", properties={"orderId": "é\n;", "x": "1"}))
    lake.sync(columns="body,property.orderId,property.x")
    assert lake.rows().schema.names[:7] == [*TableColumns("body").names[:6], "property.orderId"]
    found = dict(zip(*(lake.rows().column(name).to_pylist() for name in ("body", "property.orderId")), strict=True))
    assert found[b"7"] == "o7"
    assert found[b"none"] is None
    assert found[b"twice"] == "é\n;"
    put_into(store, "orders", 100, 1)
    assert lake.sync().rows == 1  # with the columns that the table has
    assert pc.sum(pc.equal(lake.rows().column("property.orderId"), "o100")).as_py() == 1


def test_a_table_is_divided_by_topic_and_day(lake: Lake) -> None:
    lake.sync()
    if lake.kind == "delta":
        assert lake.delta().metadata().partition_columns == ["topic", "day"]
        assert {row["topic"] for row in lake.delta().partitions()} == {"orders", "payments"}
        days = pc.strftime(lake.rows().column("storeTimestamp"), "%Y-%m-%d")
        assert days.to_pylist() == [str(day) for day in lake.rows().column("day").to_pylist()]
        return
    assert [str(field.transform) for field in lake.iceberg().spec().fields] == ["identity", "day"]
    parts = lake.iceberg().inspect.partitions().column("partition").to_pylist()
    assert {part["topic"] for part in parts} == {"orders", "payments"}
    one = lake.iceberg().scan(row_filter="topic == 'payments'")
    assert len(list(one.plan_files())) == 1
    assert one.to_arrow().num_rows == 12


def test_files_are_left_out_by_their_bounds(lake: Lake, store: Path) -> None:
    lake.sync(topics=["orders"])
    put_into(store, "orders", 30, 60)
    lake.sync(topics=["orders"])
    if lake.kind == "iceberg":
        assert len(list(lake.iceberg().scan(row_filter="queueOffset > 15").plan_files())) == 1
        return
    bounds = pa.table(lake.delta().get_add_actions(flatten=True)).to_pydict()
    assert sorted(zip(bounds["min.queueOffset"], bounds["max.queueOffset"], strict=True)) == [(0, 9), (10, 29)]
    assert sum(bounds["num_records"]) == 90
    assert set(bounds["null_count.corruptReason"]) == {30, 60}


def test_topics_of_one_table_go_on_by_themselves(lake: Lake, store: Path) -> None:
    assert lake.sync(topics=["orders"]).rows == 30
    assert lake.sync(pattern="pay.*").rows == 12
    put_into(store, "orders", 30, 2)
    assert lake.sync(topics=["payments"]).rows == 0
    assert lake.sync().rows == 2
    assert lake.places() == stored(store)


def test_brokers_of_one_table_go_on_by_themselves(lake: Lake, store: Path, tmp_path: Path) -> None:
    put_into(tmp_path / "other", "orders", 0, 9)
    assert lake.sync(paths={"a": str(store)}).rows == 42
    with pytest.raises(Rejected, match=r"has messages of a, but this store is of b; name the store as before, a="):
        lake.sync(paths={"b": str(tmp_path / "other")})
    assert lake.sync(paths={"b": str(tmp_path / "other")}, adds_brokers=True).rows == 9
    put_into(store, "orders", 30, 1)
    assert lake.sync(paths={"b": str(tmp_path / "other")}).rows == 0
    assert lake.sync(paths={"a": str(store)}).rows == 1
    assert len(lake.places()) == len(set(lake.places())) == 52


def test_a_store_that_comes_back_while_a_run_begins_goes_on_where_the_table_is(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not there when the run looked, as a disk that is mounted late, and is there when it reads."""
    room, away = tmp_path / "stores", tmp_path / "away"
    put_into(room / "broker-a", "orders", 0, 3)
    put_into(room / "broker-b", "orders", 0, 5)
    assert lake.sync(paths=StoresIn(str(room))).rows == 8
    put_into(room / "broker-b", "orders", 5, 2)
    (room / "broker-b").rename(away)
    follow = Sync.follow

    def coming_back(sync: Sync, *how: Any) -> Following:
        if away.exists():
            away.rename(room / "broker-b")
        return follow(sync, *how)

    monkeypatch.setattr(Sync, "follow", coming_back)
    assert lake.sync(paths=StoresIn(str(room))).rows == 2
    assert len(lake.places()) == len(set(lake.places())) == 10


def test_where_a_table_begins_is_kept_at_once(lake: Lake, store: Path) -> None:
    assert lake.sync(start="latest").rows == 0
    put_into(store, "orders", 30, 4)
    assert lake.sync(start="latest").rows == 4


def test_it_follows_until_it_is_stopped(lake: Lake, store: Path) -> None:
    came = threading.Semaphore(0)

    class Counting(SyncListener):
        def commit(self, done: Committed) -> None:
            for _ in range(done.rows):
                came.release()

    def have_come(count: int) -> bool:
        return all(came.acquire(timeout=600) for _ in range(count))

    with open_store(store, CONFIG) as one:
        run = lake.started(listener=Counting(), steps=Steps(seconds=0))
        thread = threading.Thread(target=run.run, kwargs={"follows": True})
        thread.start()
        assert have_come(42)
        put(one, "orders", 30, 5)
        assert have_come(5)
        run.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert lake.places() == stored(store)
    assert run.totals.rows == 47


def test_damaged_records_are_rows_with_a_reason(lake: Lake, store: Path) -> None:
    _damage(store)
    assert lake.sync().damaged == 1
    rows = lake.rows()
    assert rows.num_rows == 42
    bad = rows.filter(pc.is_valid(rows.column("corruptReason"))).to_pylist()
    assert [row["topic"] for row in bad] == ["orders"]
    assert bad[0]["storeTimestamp"] is None


def test_damaged_records_go_where_dead_letters_do(lake: Lake, store: Path, tmp_path: Path) -> None:
    _damage(store)
    letters = tmp_path / "letters.jsonl"
    assert lake.sync(dead_letters=DeadLetterFile(str(letters), [str(store)])) == (41, 1, 0, 1)
    assert lake.rows().num_rows == 41
    assert lake.sync(dead_letters=DeadLetterFile(str(letters), [str(store)])) == (0, 0, 0, 0)
    (line,) = letters.read_text().splitlines()
    assert '"topic": "orders"' in line
    assert '"corruptReason": "' in line
    with pytest.raises(Rejected, match="lies in the store"):
        DeadLetterFile(str(store / "letters"), [str(store)])


def _damage(store: Path) -> None:
    """One record's head, in the middle of the log."""
    (log,) = sorted((store / "commitlog").iterdir())
    at = open_snapshot(store).scan(columns="topic,physicalOffset").read_all().to_pylist()[10]["physicalOffset"]
    data = bytearray(log.read_bytes())
    data[at + 4 : at + 8] = b"\1\2\3\4"
    log.write_bytes(data)


def test_another_store_of_the_same_name_is_noticed(lake: Lake, store: Path, tmp_path: Path) -> None:
    lake.sync()
    put_into(tmp_path / "again", "orders", 1000, 90)
    put_into(tmp_path / "again", "payments", 1000, 90)
    with pytest.raises(DataLost, match="another message stands there"):
        lake.sync(paths=str(tmp_path / "again"))
    assert lake.places() == stored(store)


@pytest.mark.some(3)
@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("counts", [(3, 12), (30, 12), (90, 90)], ids=["shorter", "as long", "longer"])
def test_another_log_is_refused_whatever_is_said_of_losses(
    counts: tuple[int, int], fails: bool, lake: Lake, store: Path, tmp_path: Path
) -> None:
    lake.sync()
    before, commits = lake.places(), lake.commit_count()
    put_into(tmp_path / "again", "orders", 1000, counts[0])
    put_into(tmp_path / "again", "payments", 1000, counts[1])
    for _ in range(2):
        with pytest.raises(DataLost, match=r"is another log than went into the table.*; name another table"):
            lake.sync(paths=str(tmp_path / "again"), fail_on_data_loss=fails)
    assert (lake.places(), lake.commit_count()) == (before, commits)


def test_a_table_that_began_later_stands_in_its_log_too(lake: Lake, store: Path, tmp_path: Path) -> None:
    assert lake.sync(start="latest").rows == 0
    put_into(tmp_path / "again", "orders", 1000, 90)
    put_into(tmp_path / "again", "payments", 1000, 90)
    with pytest.raises(DataLost, match="is another log than went into the table"):
        lake.sync(paths=str(tmp_path / "again"), fail_on_data_loss=False)
    put_into(store, "orders", 30, 3)
    assert lake.sync(fail_on_data_loss=False).rows == 3


def test_messages_that_were_deleted_unread_are_an_error_or_counted(lake: Lake, tmp_path: Path) -> None:
    config = StoreConfig(log_file_size=16 * 1024, queue_file_size=2000, preallocate=False)
    rows = {"topic": ["orders"] * 900, "body": [b"x" * 50] * 900, "queueId": pa.array([0] * 900, pa.int32())}
    with open_store(tmp_path / "cut", config) as one:
        one.put_columns(pa.table(rows).slice(0, 20))
        one.flush()
        assert lake.sync(paths=one.path).rows == 20
        one.put_columns(pa.table(rows))
        one.flush()
        assert one.clean(any_age=True).log_files
        with pytest.raises(DataLost, match=r"older messages were deleted.*; --skip-lost continues"):
            lake.sync(paths=one.path)
        done = lake.sync(paths=one.path, fail_on_data_loss=False)
    assert done.skipped > 0
    assert done.rows + done.skipped == 900


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ("body,nothing", UnknownColumn, "no column 'nothing'"),
        ("body,body", Rejected, "body: name each column once"),
        ("property.a,property.A", Rejected, "property.A, property.a: name each column once, at least one, whatever"),
        ("property.", UnknownColumn, "no column 'property.'"),
    ],
)
def test_columns_that_cannot_be(columns: str, error: type[Rejected], words: str) -> None:
    with pytest.raises(error, match=words):
        TableColumns(columns)


def test_a_topic_that_does_not_exist_makes_no_table(lake: Lake) -> None:
    with pytest.raises(UnknownTopic, match="did you mean orders"):
        lake.sync(topics=["order"])
    assert not lake.sink().look().exists


def test_a_place_that_is_not_to_be_had_is_one_line(lake: Lake, store: Path) -> None:
    lake.directory = lake.directory / "file" / "in it"
    lake.directory.parent.write_text("x")
    with pytest.raises((TableFailed, Rejected, OSError)) as told:
        lake.sync()
    assert "\n" not in str(told.value)
    assert str(lake.name) in str(told.value)


def test_a_table_lies_in_no_store(store: Path, tmp_path: Path) -> None:
    for place in (store / "table", store, tmp_path):
        lake = Lake("delta", tmp_path, store)
        lake.__class__ = type("At", (Lake,), {"name": str(place)})
        before = sorted(store.rglob("*"))
        with pytest.raises(Rejected, match="is the store"):
            lake.sync()
        assert sorted(store.rglob("*")) == before


def test_rows_of_somebody_elses_are_refused_or_adopted(lake: Lake, store: Path) -> None:
    lake.sync()
    other = Lake(lake.kind, lake.directory.parent / "other", store)
    _copy_without_offsets(lake, other)
    with pytest.raises(Rejected, match="has rows and no offsets of a sync"):
        other.sync()
    put_into(store, "orders", 30, 3)
    before = len(other.places())
    assert other.sync(consent=Consent(adopts=True), start="latest").rows == 0
    put_into(store, "orders", 40, 2)
    assert other.sync().rows == 2
    assert len(other.places()) == before + 2


def _copy_without_offsets(lake: Lake, other: Lake) -> None:
    rows = lake.rows()
    if other.kind == "delta":
        import deltalake

        deltalake.write_deltalake(other.name, rows, partition_by=["topic", "day"])
        return
    other.catalog().create_namespace("shop")
    other.catalog().create_table(other.name, rows.schema).append(rows)


def test_a_table_of_another_shape_is_refused(lake: Lake, store: Path) -> None:
    import deltalake

    odd = pa.schema([("topic", pa.string()), ("brokerName", pa.string()), ("queueId", pa.string())])
    if lake.kind == "delta":
        deltalake.DeltaTable.create(lake.name, deltalake.Schema.from_arrow(odd))
    else:
        lake.catalog().create_namespace("shop")
        lake.catalog().create_table(lake.name, odd)
    with pytest.raises(Rejected, match=r"its column queueId is (large_)?string, but a message has int32"):
        lake.sync()
    assert lake.rows().num_rows == 0


def test_offsets_that_are_none_are_refused(lake: Lake) -> None:
    lake.sync()
    if lake.kind == "delta":
        for file in (Path(lake.name) / "_rmqstore").iterdir():
            file.write_text('{"table": 1}')
        with pytest.raises(Rejected, match="holds the offsets of the last sync, is gone or damaged"):
            lake.sync()
        return
    table = lake.iceberg()
    with (
        table.transaction() as change,
        change.update_snapshot(snapshot_properties={"rmqstore.offsets": '{"t": 3}'}).fast_append(),
    ):
        pass
    with pytest.raises(Rejected, match="its offsets are not those of a sync"):
        lake.sync()


def test_messages_of_many_partitions_are_each_in_theirs(lake: Lake, store: Path) -> None:
    with open_store(store, CONFIG) as one:
        for number in range(300):
            assert one.put(Message(f"%RETRY%t{number % 100}", b"x")).is_stored
    assert lake.sync(topics=None, pattern=".*", columns="body").rows == 42
    found = open_snapshot(store)
    assert lake.sync(topics=[f"%RETRY%t{number}" for number in range(100)]).rows == 300
    wanted = found.scan(include_system_topics=True, columns="brokerName,topic,queueId,queueOffset").read_all()
    assert lake.places() == places_of(wanted)


def test_times_that_no_calendar_has_do_not_stop_a_table(lake: Lake, store: Path) -> None:
    """Clients say when a message was born, and clocks break."""
    (log,) = sorted((store / "commitlog").iterdir())
    places = open_snapshot(store).scan(columns="physicalOffset").read_all().column("physicalOffset").to_pylist()
    data = bytearray(log.read_bytes())
    for place, at, millis in ((places[3], 40, 2**62), (places[5], 56, 2**52), (places[7], 56, -(2**52))):
        data[place + at : place + at + 8] = millis.to_bytes(8, signed=True)
    log.write_bytes(data)
    assert lake.sync().rows == 42
    assert lake.places() == stored(store)
    assert [lake.rows().column(name).null_count for name in ("bornTimestamp", "storeTimestamp")] == [1, 2]


def test_a_disk_that_is_full_is_one_line_and_nothing_is_left(
    lake: Lake, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sync(topics=["payments"])
    before = sorted(lake.directory.rglob("*.parquet"))

    class Full(io.FileIO):
        def write(self, data: object, /) -> int:
            if self.tell():
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(bytes(data))

    sink = lake.sink()
    monkeypatch.setattr(type(sink), "open_output", lambda self, path: Full(self._full_path(path), "wb"), raising=True)
    monkeypatch.setattr(
        type(sink), "_full_path", lambda self, path: str(lake.directory / "x.parquet"), raising=False
    )  # fmt: skip
    monkeypatch.setattr(type(sink), "discard", lambda self, path: (lake.directory / "x.parquet").unlink())
    with pytest.raises(TableFailed, match="No space left on device; repair that and run it again"):
        Sync(str(store), sink, SyncRequest()).run()
    monkeypatch.undo()
    assert sorted(lake.directory.rglob("*.parquet")) == before
    assert lake.sync().rows == 30
    assert lake.places() == stored(store)


def test_a_column_that_may_not_be_null_is_refused(store: Path, tmp_path: Path) -> None:
    """Of a message without tags, and of a damaged record, it is."""
    import deltalake

    lake = Lake("delta", tmp_path / "lake", store)
    fields = [pa.field(name, kind, name != "tags") for name, kind in [(f.name, f.type) for f in TableColumns().schema]]
    deltalake.DeltaTable.create(lake.name, deltalake.Schema.from_arrow(pa.schema(fields)))
    with pytest.raises(Rejected, match=r"tags.* is set, which|its column tags may not be null, but it is in some rows"):
        lake.sync()


def test_rocketmqs_own_topics_come_when_they_are_asked_for(lake: Lake, store: Path) -> None:
    put_into(store, "%DLQ%g", 0, 2)
    put_into(store, "%RETRY%g", 0, 1)
    with pytest.raises(Rejected, match=r"no topic of .* fits '%DLQ%.*'; RocketMQ's own"):
        lake.sync(pattern="%DLQ%.*")
    assert lake.sync(pattern="%DLQ%.*", include_system_topics=True).rows == 2
    assert lake.sync(topics=["%RETRY%g"]).rows == 1
    assert lake.sync(include_system_topics=True).rows == 42


def test_a_pattern_that_fits_nothing_is_told(lake: Lake) -> None:
    with pytest.raises(Rejected, match=r"no topic of .* fits 'ordr\.\*'"):
        lake.sync(pattern="ordr.*")
    assert not lake.sink().look().exists


def test_a_table_that_another_one_made_meanwhile_is_gone_on_with(lake: Lake) -> None:
    late = lake.sink()
    assert not late.look().exists
    assert lake.sync().rows == 42
    late.create()
    assert late.look().offsets is not None
