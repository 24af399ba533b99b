"""One Spark session and one real store for all Spark tests."""

import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, datasource

import spark_source

PROJECT = Path(spark_source.__file__).parents[1]

# What older versions of PySpark have not: filters (before 4.1), read limits (before 4.2).  CI runs the newest.
collect_ignore = [] if hasattr(datasource, "EqualTo") else ["test_filters.py", "test_pushdown.py"]
collect_ignore += (
    []
    if find_spec("pyspark.sql.streaming.datasource")
    else [f"stream/test_{name}.py" for name in ("reader", "turned_back", "same_logs", "stores_in")]
)

# Written by a real broker: several topics of several queues, compressed bodies, retries, delays, transactions.
STORE_CASE = "broker-clean-5.3.3"
TOPIC = "G101Normal"


@pytest.fixture(scope="session")
def project() -> Path:
    """The directory that holds the packages under test and their pyproject.toml."""
    return PROJECT


@pytest.fixture(scope="session")
def worker_environment() -> dict[str, str]:
    """The environment in which Spark's Python workers find this project, wherever this process found it."""
    # A machine whose host name does not resolve to itself cannot run executors without SPARK_LOCAL_IP.
    return os.environ | {"PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture(scope="session")
def spark(worker_environment: dict[str, str]) -> Iterator[SparkSession]:
    """A Classic session of two cores, without any registration: Spark has to find the source by itself."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
            patch.setenv(name, worker_environment[name])
        session = (
            SparkSession.builder.master("local[2]")
            .appName("rmqstore tests")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a store; shared, so that no test may write to it."""
    directory = tmp_path_factory.mktemp("spark_source")
    with tarfile.open(PROJECT / "tests" / "golden" / "broker" / STORE_CASE / "store.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "store"


@pytest.fixture(scope="session")
def topic() -> str:
    """A topic of `store` with several queues."""
    return TOPIC


@pytest.fixture
def load(spark: SparkSession, store: Path, topic: str) -> Callable[..., DataFrame]:
    """Loads `topic` of `store`; options in keywords replace the topic, `path` the store, None leaves one out."""

    def loaded(path: Path | str | list[str] | None = store, **options: str | None) -> DataFrame:
        chosen = {"subscribe": topic} | options
        given = {name: text for name, text in chosen.items() if text is not None}
        return (
            spark.read.format("rmqstore")
            .options(**given)
            .load(path if path is None or isinstance(path, list) else str(path))
        )

    return loaded
