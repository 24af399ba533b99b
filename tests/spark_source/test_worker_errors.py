"""Errors on their way out of a worker of Spark; what Spark makes of them is in test_failures and test_stream_query."""

import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore import Snapshot, open_snapshot
from rmqstore.errors import Corrupt, DataLost, OtherLog, Rejected, StoreError, UnknownTopic
from rmqstore.snapshot.request import ScanRequest, SplitBudget
from rmqstore.snapshot.stream.batches import ADVICE, refuse_other_brokers
from rmqstore.snapshot.stream.offsets import offsets_in
from spark_source.options.texts import READ
from spark_source.source import RmqStoreDataSource
from spark_source.worker_errors import RefusedStream, errors_in_one_line
from tests.snapshot.small_store import FIRST_MS, small_store

pytestmark = pytest.mark.stores


def _raised(error: StoreError) -> Callable[[Snapshot], None]:
    def ask(_: Snapshot) -> None:
        raise error

    return ask


def _cut(budget: SplitBudget) -> Callable[[Snapshot], object]:
    request = ScanRequest(scan_mode="commitlog")
    return lambda snapshot: snapshot.plan(snapshot.select(["T"]), request, budget)


_LOST = ("T/0", (0, 1), None, "/s", "older messages were deleted")


@pytest.mark.parametrize(
    ("ask", "in_python", "in_spark"),
    [
        (_raised(Corrupt("/s/f", 3, "torn")), "on_corrupt_record='skip' leaves", "onCorruptRecord=skip leaves"),
        (_raised(DataLost(*_LOST)), "set fail_on_data_loss=False", "load again for the current offsets, or set fail"),
        (_raised(DataLost(*_LOST[:4], "the disk fails: EIO")), "and try again", "check that disk, and load again"),
        (_raised(UnknownTopic("T*", "/s")), "pattern= takes", "; subscribePattern takes"),
        (_raised(OtherLog(*_LOST[:4], f"gone; {ADVICE}")), "`after`", "from the start with another checkpointLocation"),
        (lambda snapshot: snapshot.select(["T"], start_time=2 * FIRST_MS), "missing_time='latest'",
         "or startingOffsetsByTimestampStrategy=latest for"),
        (_cut(SplitBudget(max_records=10)), "max_records does",
         "maxRecordsPerPartition does not go with scanMode=commitlog: the"),
        (_cut(SplitBudget(max_records=10)), "max_bytes or", "together; use maxBytesPerPartition or minPartitions"),
        (_cut(SplitBudget(merge=False)), "merge=False does", "mergePartitions=false does not go with scanMode="),
        (lambda snapshot: refuse_other_brokers(snapshot.stores, {("b", "T", 0): 3}), "name it, as {",
         "message read again; if it is the same store, name it with the option stores, {"),
        (lambda snapshot: refuse_other_brokers(snapshot.stores, {("b", "T", 0): 3}), "the offsets to go on from",
         "the checkpoint holds offsets of b, and what is read now is of default: no queue would be known"),
        (lambda snapshot: refuse_other_brokers(snapshot.stores, {("b", "T", 0): 3}), "without `after`",
         "or start the query with another checkpointLocation"),
        (lambda _: offsets_in({"T": 5}), "to go on from is not of this source",
         "the offset of 'T' in the checkpoint is not of this source"),
        (lambda _: offsets_in({"T": 5}), "give back the offsets of a batch",
         "start the query with a checkpointLocation of its own"),
    ],
)  # fmt: skip
def test_an_error_names_python_s_arguments_and_to_spark_its_options(
    ask: Callable[[Snapshot], object], in_python: str, in_spark: str, tmp_path: Path
) -> None:
    snapshot = open_snapshot(small_store(20).write(tmp_path))
    options = re.compile(rf"\b({'|'.join(name for name in READ if not name.islower())}|checkpointLocation)\b")
    with pytest.raises(StoreError) as caught:
        ask(snapshot)
    assert in_python in str(caught.value)
    assert not options.search(str(caught.value))
    with pytest.raises(type(caught.value)) as told, errors_in_one_line():
        raise caught.value
    assert in_spark in str(told.value)
    assert in_python not in str(told.value)
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)
    with pytest.raises(type(caught.value)) as again, errors_in_one_line():
        raise told.value
    assert str(again.value).count(in_spark) == 1


@pytest.mark.parametrize("error", [Rejected("no"), ValueError("ours")])
def test_outside_of_a_worker_an_error_passes_as_it_is(error):
    with pytest.raises(type(error)) as caught, errors_in_one_line():
        raise error
    assert caught.value is error
    assert not hasattr(sys, "tracebacklimit")


IN_A_WORKER = """
import sys, traceback
from importlib.machinery import ModuleSpec
from rmqstore.errors import Rejected
from spark_source.worker_errors import errors_in_one_line
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)

@errors_in_one_line()
def read():
    try:
        {}["cause"]
    except KeyError:
        raise %s

try:
    read()
except Exception as error:
    traceback.print_exception(error)
"""


@pytest.mark.parametrize(
    ("error", "lines"), [("Rejected('say it')", ["rmqstore.errors.Rejected: say it"]), ("ValueError", None)]
)
def test_in_a_worker_a_store_error_has_no_frames_and_a_mistake_of_ours_has_all(error, lines):
    told = subprocess.run(
        [sys.executable, "-c", IN_A_WORKER % error], capture_output=True, text=True, check=True
    ).stderr
    assert told.splitlines() == lines or (lines is None and "in read" in told and "KeyError" in told)


@pytest.mark.parametrize(
    "options", [{}, {"path": "/nowhere", "subscribe": "t"}, {"path": "/s", "subscribe": "t", "x": "1"}]
)
def test_a_stream_that_cannot_be_refuses_every_question(options):
    """PySpark would tell of a mistake of its own if streamReader() raised: it stops a reader that it never had."""
    reader = RmqStoreDataSource(options).streamReader(None)
    assert isinstance(reader, RefusedStream)
    asked = [reader.initialOffset, reader.latestOffset, reader.getDefaultReadLimit, reader.reportLatestOffset]
    asked += [lambda: reader.partitions({}, {}), lambda: reader.read(None), lambda: reader.commit({})]
    told = set()
    for ask in asked:
        with pytest.raises(Rejected) as caught:
            ask()
        told.add(str(caught.value))
    assert len(told) == 1
    assert list(inspect.signature(reader.latestOffset).parameters) == ["start", "limit"]
    reader.stop()


def test_where_numpy_is_missing_the_source_has_its_name():
    """Spark imports the source to learn it; the user then reads of numpy at load()."""
    code = "import sys; sys.modules['numpy'] = None; sys.modules['pyarrow'] = None\n"
    code += "from pyspark_rmqstore import DefaultSource; print(DefaultSource.name())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["rmqstore"]
