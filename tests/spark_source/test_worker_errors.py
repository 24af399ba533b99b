"""Errors on their way out of a worker of Spark; what Spark makes of them is in test_failures and test_stream_query."""

import inspect
import subprocess
import sys

import pytest

from rmqstore.errors import Rejected
from spark_source.source import RmqStoreDataSource
from spark_source.worker_errors import RefusedStream, errors_in_one_line

pytestmark = pytest.mark.stores


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
