"""One Spark session with the libraries of the tables, for `make test-tables`."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]
JARS = Path(__file__).with_name("target") / "jars.txt"
DELTA_SESSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a job finds the libraries and an Iceberg catalog `lake`, as spark-submit gives them."""
    jars = JARS.read_text(encoding="utf-8").strip().replace(":", ",")
    conf = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": DELTA_SESSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path_factory.mktemp("lake")),
    }
    given = " ".join(f"--conf {name}={text}" for name, text in conf.items())
    return os.environ | {
        "PYTHONPATH": str(PROJECT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {given} pyspark-shell",
    }


@pytest.fixture(scope="session")
def session(environment: dict[str, str]) -> Iterator[SparkSession]:
    """A session of two cores."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "PYSPARK_SUBMIT_ARGS"):
            patch.setenv(name, environment[name])
        session = SparkSession.builder.appName("rmqstore tests").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture
def spark(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The session; jobs that take it leave it running."""
    monkeypatch.setattr(type(session), "stop", lambda _: None)
    return session
