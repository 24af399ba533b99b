"""The same rows through Spark: every broker store and a dozen of the others, to the last field."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rmqstore
from tests.golden.broker_answers import (
    ANSWERED,
    answers_of,
    as_a_client_shows_all,
    is_asked_for,
    pulled_rows,
)
from tests.golden.cases import BROKER_CASES, FOLDERS, java_rows, load_expected
from tests.golden.rows import differences, plain_rows, scanned

pytestmark = pytest.mark.spark

# Of each layout and release one, clean and killed.
DOZEN = [
    case
    for case in (
        "basic",
        "basic-4.9.8",
        "killed",
        "killed-lagcq-noabort",
        "killed-portable-4.9.8",
        "batchcq",
        "cqext",
        "deleted_head",
        "delay",
        "ipv6-4.9.8",
        "lmq",
        "longtopic",
        "multipath",
        "sysflags",
        "basic-5.5.1",
        "doublewrite-5.5.1",
        "lite-5.5.1",
        "rockscq-5.5.1",
    )
    if case in FOLDERS
]


def _spark_rows(spark: SparkSession, store: Path) -> list[dict[str, object]]:
    options = {"subscribePattern": ".*", "includeSystemTopics": "true", "columns": "*"}
    return plain_rows(spark.read.format("rmqstore").options(**options).load(str(store)).toArrow())


@pytest.mark.parametrize("case", DOZEN)
def test_rows_are_java_s(case: str, store_of: Callable[[str], Path], spark: SparkSession) -> None:
    assert differences(_spark_rows(spark, store_of(case)), java_rows(load_expected(case)["records"])) == []


@pytest.mark.parametrize("case", ANSWERED)
def test_rows_are_what_a_client_pulled(case: str, store_of: Callable[[str], Path], spark: SparkSession) -> None:
    answers = answers_of(case)
    rows = as_a_client_shows_all(_spark_rows(spark, store_of(case)), answers)
    asked_for = [row for row in rows if is_asked_for(row, answers)]
    assert differences(asked_for, pulled_rows(answers)) == []


@pytest.mark.parametrize("case", [case for case in BROKER_CASES if case not in ANSWERED])
def test_a_live_copy_reads_as_without_spark(case: str, store_of: Callable[[str], Path], spark: SparkSession) -> None:
    """`test_brokers` holds the same rows against what was acknowledged."""
    store = store_of(case)
    assert differences(_spark_rows(spark, store), scanned(rmqstore.open_snapshot(store))) == []
