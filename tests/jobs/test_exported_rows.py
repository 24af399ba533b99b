"""What `rmqstore export` writes is what the job that Spark runs writes: directories, columns, types, rows."""

from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from jobs import topic_to_parquet
from rmqstore.export import ExportWish, export_messages
from spark_source.job_stream import TIME_COLUMNS
from tests.golden.conftest import store_of

__all__ = ["store_of"]

pytestmark = [pytest.mark.deep, pytest.mark.spark]

CASES = ("broker-clean-5.3.3", "basic-4.9.8", "killed")


def directories(root: Path) -> set[str]:
    return {str(path.parent.relative_to(root)) for path in root.rglob("*.parquet")}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("time_column", TIME_COLUMNS)
def test_spark_finds_the_same(case: str, time_column: str, spark: SparkSession, store_of, tmp_path: Path) -> None:
    store = str(store_of(case))
    messages = spark.read.format("rmqstore").options(subscribePattern=".*", includeSystemTopics="true").load(store)
    job, own = tmp_path / "job", tmp_path / "own"
    topic_to_parquet.write_by_day(topic_to_parquet.transform(messages, time_column), str(job))
    wish = ExportWish(pattern=".*", include_system_topics=True, day_of=time_column)  # type: ignore[arg-type]
    export_messages(store, own, wish)
    assert directories(own) == directories(job)
    of_job, of_own = spark.read.parquet(str(job)), spark.read.parquet(str(own))
    assert of_own.schema == of_job.schema
    assert_df_equality(of_own, of_job, ignore_row_order=True)
