"""Golden stores, unpacked once a session and never writable; the Spark session is that of the other Spark tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden.cases import unpack
from tests.golden.rows import make_read_only, make_writable
from tests.spark_source.conftest import spark, worker_environment

__all__ = ["spark", "worker_environment"]


@pytest.fixture(scope="session")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """The directory of a case's store: read-only, shared by all tests."""
    unpacked: dict[str, Path] = {}

    def store(case: str) -> Path:
        if case not in unpacked:
            unpacked[case] = unpack(case, tmp_path_factory.mktemp("golden"))
            make_read_only(unpacked[case])
        return unpacked[case]

    yield store
    for path in unpacked.values():
        make_writable(path)
