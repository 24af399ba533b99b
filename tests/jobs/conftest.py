"""One Spark session and the example store for the tests of the jobs."""

import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment in which Spark's Python workers find this project, wherever this process found it."""
    return os.environ | {"PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture(scope="session")
def session(environment: dict[str, str]) -> Iterator[SparkSession]:
    """A session of two cores; the one that other tests of this process use, if there is one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):
            patch.setenv(name, environment[name])
        builder = SparkSession.builder.master("local[2]").appName("rmqstore tests").config("spark.ui.enabled", "false")
        session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture
def spark(session: SparkSession) -> Iterator[SparkSession]:
    """The session in the time zone that the jobs set."""
    session.conf.set("spark.sql.session.timeZone", "UTC")
    yield session
    session.conf.unset("spark.sql.session.timeZone")


@pytest.fixture
def same_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs take the session of the tests, and leave it."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the example store; shared, so that no test may write to it."""
    directory = tmp_path_factory.mktemp("jobs")
    with tarfile.open(PROJECT / "examples" / "orders-store.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "store"
