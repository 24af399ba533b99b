"""Jobs by spark-submit on a standalone cluster of two workers, where nothing of this project is installed."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs import topic_to_parquet, traffic
from tests.built_wheel import built_archive
from tests.jobs.spark_cluster import Cluster, bare_python, environment, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.deep]

PROJECT = Path(__file__).parents[2]
WORKERS = 2


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_archive(PROJECT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(bare_python(directory / "environment"), directory, WORKERS) as running:
        yield running


def outside(job: str, directory: Path) -> Path:
    """The job's file, away from the project."""
    return Path(shutil.copy(job, directory))


def test_the_project_is_not_in_the_environment(cluster):
    program = "import importlib.util as u; print([u.find_spec(n) for n in ('rmqstore', 'spark_source', 'jobs')])"
    said = subprocess.run(
        [cluster.python, "-c", program], env=environment(cluster.python), cwd=cluster.directory, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert said.stdout == "[None, None, None]\n"


def test_topics_go_to_parquet_by_both_workers(cluster, archive, store, tmp_path):
    job, output = outside(topic_to_parquet.__file__, tmp_path), tmp_path / "orders.parquet"
    done = cluster.submit(
        archive, job, "--store", store, "--topic", "orders", "--output", output, "--partition-by", "bornTimestamp"
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"4774 messages of orders are in {output}, 3 files\n"
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in output.glob("topic=*/day=*/*.parquet")) == 4774
    assert all(list((cluster.directory / f"work-{number}").glob("app-*/*")) for number in range(WORKERS))


def test_a_stream_goes_on_where_it_stood(cluster, archive, store, tmp_path):
    job, output = outside(topic_to_parquet.__file__, tmp_path), tmp_path / "payments.parquet"
    given = ("--store", store, "--topic", "payments", "--output", output, "--checkpoint", tmp_path / "checkpoint")
    for added in (1502, 0):
        done = cluster.submit(archive, job, *given)
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout == f"{added} messages of payments were added to {output}\n"


def test_traffic_is_counted_and_written(cluster, archive, store, tmp_path):
    job, output = outside(traffic.__file__, tmp_path), tmp_path / "traffic"
    done = cluster.submit(archive, job, "--store", store, "--by", "topic", "--output", output)
    assert done.returncode == 0, done.stderr[-4000:]
    counted = pq.read_table(output).group_by("topic").aggregate([("messages", "sum")]).to_pylist()
    assert {row["topic"]: row["messages_sum"] for row in counted}["orders"] == 4774
