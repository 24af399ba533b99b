"""Name servers of both lines of RocketMQ, each started when the first test wants it."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.broker import NEWEST, Rocketmq, name_server
from tests.conformance.replicas import RELEASES, Cluster, Clusters

# Minutes of what another test shows for the other line or another kind of store: `-m "not long"` leaves them out.
LONG = {
    "test_new_stores_read_as_java_reads_them[5.3.3-others]",
    "test_new_stores_read_as_java_reads_them[4.9.8-others]",
    "test_a_broker_that_goes_over_to_dledger_is_read_through_its_life[4.9.7]",
    "test_a_new_slave_fetches_the_whole_log_from_serve_and_goes_on_with_its_master[4.9.7]",
    "test_a_replica_has_every_byte_whoever_is_killed[4.9.7]",
    "test_a_topic_that_the_master_deletes_and_makes_again[4.9.7]",
    "test_a_slave_of_rocketmqs_follows_our_master_and_serves_each_message_once_in_order[4.9.7]",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what takes long."""
    for item in items:
        if item.name in LONG:
            item.add_marker("long")


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """A cluster of each release that is asked for."""
    with ExitStack() as running:
        known: dict[Rocketmq, Cluster] = {}

        def cluster_of(rocketmq: Rocketmq) -> Cluster:
            if rocketmq not in known:
                address = running.enter_context(name_server(tmp_path_factory.mktemp("namesrv"), rocketmq))
                known[rocketmq] = Cluster(rocketmq, address)
            return known[rocketmq]

        yield cluster_of


@pytest.fixture(params=RELEASES, ids=lambda rocketmq: rocketmq.release)
def cluster(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    """Of either line."""
    return clusters(request.param)


@pytest.fixture
def newest(clusters: Clusters) -> Cluster:
    """Of the newest line."""
    return clusters(NEWEST)
