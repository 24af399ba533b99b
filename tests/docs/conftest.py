"""One Spark session, and the places that the pages speak of."""

import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.blocks import PROJECT

# What of the project a reader sees in the directory of a checkout.
_SEEN = ("examples", "jobs", "scripts", "rmqstore", "spark_source", "Makefile", "pyproject.toml", "README.md")


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """A session of two cores; the one that other tests of this process use, if there is one."""
    with pytest.MonkeyPatch.context() as patch:
        environment = {"PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        for name, value in environment.items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master("local[2]").appName("rmqstore tests").config("spark.ui.enabled", "false")
        session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture
def spark(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """The session, which no page and no job ends; the streams of a page end with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession, "stop", lambda _: None)
        zone = session.conf.get("spark.sql.session.timeZone")
        yield session
        for query in session.streams.active:
            query.stop()
        session.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.fixture(scope="session")
def example_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the example store; shared, so that no test may write to it."""
    directory = tmp_path_factory.mktemp("example")
    with tarfile.open(PROJECT / "examples" / "orders-store.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "store"


@pytest.fixture
def data(tmp_path: Path, example_store: Path) -> Path:
    """What the pages call /data: a broker's store in /data/rocketmq/store, and a replica of it below /data/rmq."""
    for place in ("rocketmq/store", "rmq/broker-a"):
        _copy(example_store, tmp_path / "data" / place)
    return tmp_path / "data"


@pytest.fixture
def work(tmp_path: Path, example_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout as `make demo` leaves it, in which the test stands."""
    directory = tmp_path / "checkout"
    _copy(example_store, directory / "build" / "demo" / "store")
    for name in _SEEN:
        (directory / name).symlink_to(PROJECT / name)
    (directory / ".venv").symlink_to(sys.prefix)
    monkeypatch.chdir(directory)
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return directory


def _copy(store: Path, to: Path) -> None:
    """With the holes of its files."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(store, to, copy_function=_copy_sparse)


def _copy_sparse(source: str, target: str) -> None:
    data = Path(source).read_bytes()
    with open(target, "wb") as file:
        file.write(data.rstrip(b"\0"))
        file.truncate(len(data))
    os.utime(target, ns=(os.stat(source).st_atime_ns, os.stat(source).st_mtime_ns))
