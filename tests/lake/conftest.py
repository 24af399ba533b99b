"""A store, and tables of both formats for it."""

from pathlib import Path

import pytest

from rmqstore import Message, Store, StoreConfig, open_snapshot, open_store
from tests.lake.tables import KINDS, Lake, Place, places_of

CONFIG = StoreConfig(log_file_size=64 * 1024, queue_file_size=2000, index_slot_count=20, index_item_count=60)


def put(store: Store, topic: str, first: int, count: int) -> None:
    """Messages whose body is their number."""
    for number in range(first, first + count):
        message = Message(
            topic, b"%d" % number, queue_id=number % 3, tags="ab"[number % 2], properties={"orderId": f"o{number}"}
        )
        assert store.put(message).is_stored
    store.flush()


def put_into(path: Path, topic: str, first: int, count: int) -> None:
    with open_store(path, CONFIG) as store:
        put(store, topic, first, count)


def stored(path: Path) -> list[Place]:
    """Where each message of a store stands."""
    return places_of(open_snapshot(path).scan().read_all())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    put_into(tmp_path / "store", "orders", 0, 30)
    put_into(tmp_path / "store", "payments", 0, 12)
    return tmp_path / "store"


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path, store: Path) -> Lake:
    return Lake(request.param, tmp_path / "lake", store)
