"""Name servers of each line of RocketMQ, each started when the first test wants it; and the seed of a run."""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from rmqstore.engine.broker.delay_delivery import SAVE_INTERVAL_S, DelayDelivery
from tests.conformance.broker import NEWEST, RELEASES, Rocketmq, name_server
from tests.conformance.replicas import Cluster, Clusters


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
    """Of each line."""
    return clusters(request.param)


@pytest.fixture
def newest(clusters: Clusters) -> Cluster:
    """Of the newest line."""
    return clusters(NEWEST)


@pytest.fixture(scope="module")
def seed() -> str:
    """The seed of this run; new every time unless one is given."""
    return os.environ.get("RMQSTORE_CONFORMANCE_SEED") or str(secrets.randbelow(10**6))


@pytest.fixture
def nobody_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ's store leaves deliveries to its broker.  What is due here, because Java took its time, is not ours."""
    monkeypatch.setattr(DelayDelivery, "step", lambda _: SAVE_INTERVAL_S)
