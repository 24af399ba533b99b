"""A light queue that messages are put to by its own name, and that others list: all are in it, in log order."""

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.store import Store, open_store
from tests.crash.disks import MemoryDisk

CONFIG = StoreConfig(log_file_size=16384, queue_file_size=200, multi_dispatch=True, index_slot_count=16,
                     index_item_count=40)  # fmt: skip
LISTED = {"INNER_MULTI_DISPATCH": "%LMQ%a"}


def opened(disk: MemoryDisk) -> Store:
    return open_store("/store", CONFIG, clock=ManualClock(), filesystem=disk, workers=False)


def bodies(store: Store) -> list[bytes | None]:
    return [message.body for message in store.get("%LMQ%a", 0, 0, 100).messages]


@pytest.mark.parametrize("end", ["close", "abandon"])
@pytest.mark.parametrize("flushes", [True, False], ids=["one by one", "together"])
@pytest.mark.parametrize("properties", [{}, LISTED], ids=["alone", "listed too"])
def test_each_message_has_its_place(properties: dict[str, str], flushes: bool, end: str) -> None:
    disk = MemoryDisk()
    store = opened(disk)
    wanted = []
    for number, topic in enumerate(["plain", "plain", "%LMQ%a", "plain", "%LMQ%a", "%LMQ%a", "plain"]):
        body = b"%d" % number
        own = LISTED if topic == "plain" else properties
        assert store.put(Message(topic, body, properties=dict(own))).queue_offset >= 0
        wanted.append(body)
        if flushes:
            store.flush()
    store.flush()
    assert (store.bounds("%LMQ%a", 0), bodies(store)) == ((0, 7), wanted)
    getattr(store, end)()
    again = opened(disk)
    assert (again.bounds("%LMQ%a", 0), bodies(again)) == ((0, 7), wanted)
    again.close()
