"""The parts of an open store, for tests that look at them or stand in their way."""

from rmqstore.engine import Engine
from rmqstore.replication.following.replica import Replica
from rmqstore.store import Store


def engine_of(store: Store | Replica) -> Engine:
    """The one place where tests reach into a store."""
    return store._engine
