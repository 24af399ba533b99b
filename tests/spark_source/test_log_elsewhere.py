"""The option storePathCommitLog, in batch, stream and tables."""

import json
from pathlib import Path

import pytest

from rmqstore import NotAStore
from rmqstore.errors import Rejected
from rmqstore.snapshot import open_snapshot
from spark_source.options.reads import parse_options, parse_stream_options
from spark_source.source import RmqStoreDataSource
from spark_source.tables import TablePartition, TableReader, parse_table
from tests.snapshot.small_store import split_store

COUNT = 10


@pytest.fixture
def split(tmp_path: Path) -> tuple[str, str]:
    root, log = split_store(COUNT, tmp_path)
    return str(root), str(log)


@pytest.fixture(
    params=[
        lambda root, log: {"path": root, "storePathCommitLog": log},
        lambda root, log: {"path": root, "storepathcommitlog": f"{log}, {log}"},
        lambda root, log: {"paths": json.dumps([root, log])},
        lambda root, log: {"stores": json.dumps({"broker-a": [root, log]})},
    ],
    ids=["option", "two paths", "paths", "stores"],
)
def layout(request: pytest.FixtureRequest, split: tuple[str, str]) -> dict[str, str]:
    """Each way to say it."""
    return request.param(*split)


def test_a_batch_read_finds_the_messages(layout: dict[str, str]) -> None:
    reader = RmqStoreDataSource(layout | {"subscribe": "T", "columns": "queueOffset"})
    assert open_snapshot(parse_options(reader.options).stores).scan(topics=["T"]).read_all().num_rows == COUNT
    parts = reader.reader(reader.schema()).partitions()
    assert sum(batch.num_rows for part in parts for batch in reader.reader(reader.schema()).read(part)) == COUNT


def test_a_stream_finds_the_messages(layout: dict[str, str], tmp_path: Path) -> None:
    more = {"subscribe": "T", "startingOffsets": "earliest", "progressFile": str(tmp_path / "progress.json")}
    source = RmqStoreDataSource(layout | more)
    ends = source.streamReader(source.schema()).reportLatestOffset()
    assert ends.keys() - {"$metrics"} == {"T"}
    assert [sum(queues.values()) for queues in ends["T"].values()] == [COUNT]


def test_a_table_finds_the_messages(layout: dict[str, str]) -> None:
    asked = parse_table(layout | {"table": "queues"})
    assert asked is not None
    (rows,) = TableReader(asked).read(TablePartition("queues"))
    assert sum(rows.column("messages").to_pylist()) == COUNT


def test_without_it_the_read_is_refused_and_names_it(split: tuple[str, str]) -> None:
    options = {"path": split[0], "subscribe": "T"}
    source = RmqStoreDataSource(options)
    with pytest.raises(NotAStore, match="the option storePathCommitLog"):
        source.reader(source.schema()).partitions()
    with pytest.raises(NotAStore, match="the option storePathCommitLog"):
        source.streamReader(source.schema()).reportLatestOffset()
    asked = parse_table({"path": split[0], "table": "queues"})
    assert asked is not None
    with pytest.raises(NotAStore, match="the option storePathCommitLog"):
        list(TableReader(asked).read(TablePartition("queues")))


def test_a_log_inside_of_a_store_is_no_place_for_a_progress_file(split: tuple[str, str]) -> None:
    more = {"subscribe": "T", "progressFile": f"{split[1]}/progress.json"}
    source = RmqStoreDataSource({"path": split[0], "storePathCommitLog": split[1]} | more)
    with pytest.raises(Rejected, match="progressFile"):
        source.streamReader(source.schema()).initialOffset()


def test_with_several_stores_each_log_stands_behind_its_own(split: tuple[str, str]) -> None:
    several = {"stores": json.dumps({"a": split[0]}), "storePathCommitLog": split[1]}
    for parse in (parse_options, parse_stream_options, lambda options: parse_table(options | {"table": "queues"})):
        with pytest.raises(Rejected, match="storePathCommitLog goes with one store"):
            parse({**several} if parse not in (parse_options, parse_stream_options) else several | {"subscribe": "T"})
    with pytest.raises(Rejected, match="or a JSON object of directories"):
        parse_options({"stores": json.dumps({"a": []}), "subscribe": "T"})
