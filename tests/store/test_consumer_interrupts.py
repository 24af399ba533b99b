"""Ctrl-C before every line of a topic's deletion, and of a consumer's calls: it goes on and passes over nothing."""

import pytest

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.consumer import Consumer
from rmqstore.engine.store import Store, open_store
from rmqstore.formats.stored_message import StoredMessage
from tests.crash.disks import MemoryDisk
from tests.store.interrupting import Interrupt, sweep

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(log_file_size=16384, queue_file_size=400, index_slot_count=5, index_item_count=20,
                     preallocate=False, statistics=False)  # fmt: skip
FRESH = [b"new %d" % number for number in range(6)]


def opened() -> Store:
    return open_store("/store", CONFIG, filesystem=MemoryDisk(), clock=ManualClock(), workers=False)


def put(store: Store, bodies: list[bytes]) -> None:
    for number, body in enumerate(bodies):
        assert store.put(Message("orders", body, queue_id=number % 2)).is_stored
    store.flush()


def everything(consumer: Consumer) -> list[bytes | None]:
    found: list[bytes | None] = []
    while messages := consumer.poll(2):
        found += [message.body for message in messages]
    return found


def test_a_deletion_that_is_interrupted_leaves_its_topic_readable() -> None:
    def check(interrupt: Interrupt) -> None:
        store = opened()
        put(store, [b"old %d" % number for number in range(10)])
        consumer = store.consumer("billing", "orders")
        assert len(everything(consumer)) == 10
        interrupt.call(lambda: store.delete_topic("orders"))
        store.delete_topic("orders")
        put(store, FRESH)
        assert sorted(map(str, everything(consumer))) == sorted(map(str, FRESH))
        consumer.commit()
        assert store.offsets.committed("billing", "orders", 0) == 3
        store.close()

    assert sweep(check, step=3, is_real=True) > 10


def test_a_poll_that_is_interrupted_passes_over_no_message() -> None:
    def check(interrupt: Interrupt) -> None:
        store = opened()
        put(store, [b"old %d" % number for number in range(10)])
        consumer = store.consumer("billing", "orders")
        everything(consumer)
        assert store.delete_topic("orders")
        put(store, FRESH)
        first = interrupt.call(lambda: consumer.poll(3)) or []
        found = [message.body for message in first] + everything(consumer)
        assert sorted(map(str, found)) == sorted(map(str, FRESH))
        assert sum(consumer.lag().values()) == 0
        store.close()

    assert sweep(check, is_real=True) > 30


def test_a_loop_that_is_interrupted_passes_over_no_message() -> None:
    def check(interrupt: Interrupt) -> None:
        store = opened()
        put(store, FRESH)
        consumer, handed_out = store.consumer("billing", "orders"), list[StoredMessage]()

        def loop() -> None:
            for message in consumer.messages(wait_s=0):
                handed_out.append(message)

        interrupt.call(loop)
        found, rest = [message.body for message in handed_out], everything(consumer)
        assert sorted({*map(str, found), *map(str, rest)}) == sorted(map(str, FRESH))
        assert len(found) + len(rest) <= len(FRESH) + 1  # the last one may come again
        store.close()

    assert sweep(check, step=2, is_real=True) > 30
