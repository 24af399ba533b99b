"""A Sail server in this process and a session of Spark Connect that speaks to it, for `make test-sail`."""

from collections.abc import Iterator

import pytest
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

from spark_source.source import RmqStoreDataSource
from tests.golden.conftest import store_of

__all__ = ["sail", "store_of"]


@pytest.fixture(scope="session")
def sail() -> Iterator[SparkSession]:
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    try:
        _, port = server.listening_address
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        session.dataSource.register(RmqStoreDataSource)
        yield session
        session.stop()
    finally:
        server.stop()
