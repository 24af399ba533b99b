"""The option storePathCommitLog, in batch, stream and tables."""

import json
import shutil
from pathlib import Path

import pytest

from rmqstore import NotAStore
from rmqstore.errors import Rejected
from rmqstore.snapshot import open_snapshot
from spark_source.options.reads import parse_options, parse_stream_options
from spark_source.source import RmqStoreDataSource
from spark_source.tables import TablePartition, TableReader, parse_table
from tests.snapshot.small_store import small_store

COUNT = 10


@pytest.fixture
def split(tmp_path: Path) -> tuple[str, str]:
    """A store and the directory of its commitlog."""
    root = small_store(COUNT).write(tmp_path / "store")
    shutil.move(root / "commitlog", tmp_path / "log")
    return str(root), str(tmp_path / "log")


def options_of(root: str, log: str) -> list[dict[str, str]]:
    """Each way to say it."""
    return [
        {"path": root, "storePathCommitLog": log},
        {"path": root, "storepathcommitlog": f"{log}, {log}"},
        {"paths": json.dumps([root, log])},
        {"stores": json.dumps({"broker-a": [root, log]})},
    ]


def test_a_batch_read_finds_the_messages(split: tuple[str, str]) -> None:
    for options in options_of(*split):
        reader = RmqStoreDataSource(options | {"subscribe": "T", "columns": "queueOffset"})
        read = parse_options(reader.options)
        assert open_snapshot(read.stores).scan(topics=["T"]).read_all().num_rows == COUNT
        parts = reader.reader(reader.schema()).partitions()
        assert sum(batch.num_rows for part in parts for batch in reader.reader(reader.schema()).read(part)) == COUNT


def test_a_stream_finds_the_messages(split: tuple[str, str], tmp_path: Path) -> None:
    for options in options_of(*split):
        more = {"subscribe": "T", "startingOffsets": "earliest", "progressFile": str(tmp_path / "progress.json")}
        source = RmqStoreDataSource(options | more)
        stream = source.streamReader(source.schema())
        (topic,) = stream.reportLatestOffset().keys() - {"$metrics"}
        assert topic == "T"
        assert [sum(queues.values()) for queues in stream.reportLatestOffset()["T"].values()] == [COUNT]


def test_a_table_finds_the_messages(split: tuple[str, str]) -> None:
    for options in options_of(*split):
        asked = parse_table(options | {"table": "queues"})
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
