"""Planning and reading without Spark around them."""

import os
import pickle
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import rmqstore
from rmqstore.errors import NotAStore
from spark_source.batch_reader import BatchReader
from spark_source.source import RmqStoreDataSource

NOBODY = 65534


def reader_of(path: Path, topic: str, schema: StructType | None = None, **options: str) -> BatchReader:
    """A reader as Spark's planner makes it: of a source that has been pickled on the way."""
    source = RmqStoreDataSource({"path": str(path), "subscribe": topic, **options})
    return pickle.loads(pickle.dumps(source)).reader(schema or source.schema())


@contextmanager
def unreadable(directory: Path) -> Iterator[None]:
    """`directory` closed to this process, which gives up being root for the while where it is."""
    mode = directory.stat().st_mode
    user = os.geteuid()
    directory.chmod(0)
    try:
        if user == 0:
            os.seteuid(NOBODY)
        yield
    finally:
        os.seteuid(user)
        directory.chmod(mode)


def test_the_reader_has_no_pushdown(store, topic):
    # Spark 4.1 to 4.3 keep a pushed filter for later uses of the same DataFrame, which then lacks rows.
    assert "pushFilters" not in vars(type(reader_of(store, topic)))


def test_partitions_are_a_list_and_batches_fit_the_schema(store, topic):
    reader = reader_of(store, topic, maxRecordsPerPartition="100", mergePartitions="false", batchRows="32")
    partitions = reader.partitions()
    assert type(partitions) is list
    assert len(partitions) > 4
    executor_side = pickle.loads(pickle.dumps(reader))
    batches = [batch for partition in partitions for batch in executor_side.read(partition)]
    assert max(batch.num_rows for batch in batches) <= 32
    expected = rmqstore.open_snapshot(store).scan(topics=[topic]).read_all()
    keys = [("queueId", "ascending"), ("queueOffset", "ascending")]
    assert pa.Table.from_batches(batches).sort_by(keys).equals(expected.sort_by(keys))


@pytest.mark.parametrize("made_up", [None, InputPartition(None)])
def test_no_plan_is_no_row(store, topic, made_up):
    reader = reader_of(
        store, topic, startingTimestamp="2200-01-01T00:00:00Z", startingOffsetsByTimestampStrategy="latest"
    )
    assert reader.partitions() == []
    assert list(reader.read(made_up)) == []


def test_a_reader_that_is_left_early_ends(store, topic):
    reader = reader_of(store, topic, batchRows="10")
    batches = reader.read(reader.partitions()[0])
    assert next(batches).num_rows <= 10
    batches.close()
    assert list(batches) == []


@pytest.mark.parametrize("mount_point", ["absent", "empty"])
def test_a_store_that_a_host_does_not_see_is_told_with_the_host(store, topic, tmp_path, mount_point):
    path = tmp_path / "store"
    shutil.copytree(store, path)
    reader = reader_of(path, topic)
    partitions = reader.partitions()
    path.rename(tmp_path / "elsewhere")
    if mount_point == "empty":
        path.mkdir()
    with pytest.raises(NotAStore) as caught:
        list(reader.read(partitions[0]))
    line = str(caught.value)
    assert str(path) in line
    assert f"host {socket.gethostname()} cannot see this store" in line
    assert "mount it at the same path on every executor" in line
    assert "\n" not in line


def test_an_unreadable_directory_is_told_with_its_path(store, topic, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(store, path)
    reader = reader_of(path, topic)
    source = RmqStoreDataSource({"path": str(path), "subscribe": topic})
    schema = source.schema()
    for ask in (reader.partitions, source.schema, lambda: source.reader(schema)):
        with unreadable(path), pytest.raises(NotAStore) as caught:
            ask()
        line = str(caught.value)
        assert str(path) in line
        assert "cannot be read" in line
        assert "\n" not in line


@pytest.mark.parametrize("option", ["path", "paths", "stores"])
def test_the_source_itself_refuses_what_is_no_store(store, topic, tmp_path, option):
    wrong = tmp_path / "nowhere"
    texts = {"path": str(wrong), "paths": f'["{store}", "{wrong}"]', "stores": f'{{"a": "{store}", "b": "{wrong}"}}'}
    source = RmqStoreDataSource({option: texts[option], "subscribe": topic})  # a sink may be about to create it
    schema = RmqStoreDataSource({"path": str(store), "subscribe": topic}).schema()
    for ask in (source.schema, lambda: source.reader(schema)):
        with pytest.raises(NotAStore, match="does not exist here") as caught:
            ask()
        assert caught.value.path == str(wrong)
