"""RocketMQ itself, for these tests: the oracle's client, and JVMs that hold many stores open at a time."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ORACLE = Path(__file__).parents[1] / "oracle"
sys.path.insert(0, str(ORACLE))

from oracle import Oracle, answers, ask_all, differences  # noqa: E402  lies beside the package, as it came

__all__ = ["VERSIONS", "Oracle", "answers", "ask_all", "differences", "java_put", "jvm"]

Json = dict[str, Any]

# Two in each change, all three in `make conformance`.
VERSIONS = ("5.3.3", "4.9.8", pytest.param("5.5.1", marks=pytest.mark.deep))


@contextmanager
def jvm(version: str) -> Iterator[Oracle]:
    """One JVM of a release; it dies without ceremony at the end."""
    oracle = Oracle(version)
    try:
        yield oracle
    finally:
        oracle.halt()


def java_put(oracle: Oracle, requests: Sequence[Mapping[str, Any]]) -> None:
    """Has the open store put messages; AssertionError if it refuses one."""
    for request, reply in zip(requests, oracle.call("puts", requests=list(requests)), strict=True):
        assert (reply["status"], reply["append"]) == ("PUT_OK", "PUT_OK"), (request, reply)
