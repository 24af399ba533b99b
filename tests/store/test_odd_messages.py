"""Whatever a caller puts: what is acknowledged is in its queue under its number, now and after any opening.

No message may stop the dispatch worker, and none may keep the store from being opened again.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqstore.core.message import Message
from rmqstore.engine.store import Store
from rmqstore.errors import Rejected, StoreError
from rmqstore.formats.sys_flag import is_inner_batch
from rmqstore.records.batch import RecordBatch
from rmqstore.records.read_batches import read_batches
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk
from tests.store.odd_messages import FLAGS, FORGED, LIGHT, PROPERTIES, PUTS, ROOT, SMALL, WHOLE, Caller

pytestmark = pytest.mark.stores


def records_of(store: Store) -> Iterator[RecordBatch]:
    probe = Probe(store)
    for item in read_batches(probe.read_log, probe.log_start, probe.log_end, store.config.log_file_size):
        if isinstance(item, RecordBatch):
            yield item


def queues_of(store: Store) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """What a consumer gets of every queue: queue offset and place in the log of each message."""
    found = {}
    for topic, queue_id in store.queues():
        offset, end = store.bounds(topic, queue_id)
        rows = found[topic, queue_id] = []
        while offset < end:
            answer = store.get(topic, queue_id, offset)
            assert answer.next_offset > offset
            is_light = topic.startswith("%LMQ%")  # their messages have numbers of their own queue
            rows += [(-1 if is_light else each.queue_offset, each.physical_offset) for each in answer.messages]
            offset = answer.next_offset
    return found


def require_everything(store: Store, caller: Caller) -> None:
    """Nothing ended, and everything acknowledged is where it was said to be."""
    store.flush()
    health = store.health()
    assert (health.is_writable, health.reasons, health.dispatch_behind_bytes) == (True, (), 0)
    queues = queues_of(store)
    for result in caller.acknowledged:
        message = store.message_at(result.physical_offset)
        if message.record.sys_flag & 0xC in (0, 8):
            assert message.queue_offset == result.queue_offset
            held = queues[message.topic, message.queue_id]
            assert any(place == result.physical_offset for _, place in held), (message.topic, result)
            assert message.topic.startswith("%LMQ%") or (result.queue_offset, result.physical_offset) in held
    for key, rows in queues.items():
        if not rows or key[0].startswith("%LMQ%") or is_inner_batch(store.message_at(rows[-1][1]).record.sys_flag):
            continue  # a batch that holds more or fewer messages than it says stays one
        assert store.bounds(*key)[1] == rows[-1][0] + 1


@pytest.mark.deep
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(PUTS, min_size=1, max_size=8),
    st.booleans(),
    st.fixed_dictionaries({}, optional={"sys_flag": FLAGS, "properties": PROPERTIES}),
)
@example([("put", Message("plain", b"")), ("put_batch", [Message("plain", b"", sys_flag=0xC0)] * 2)], False, {})
@example([("put", Message("plain", b"")), ("put_columns", [Message("plain", b"", sys_flag=0xC0)])], False, {})
@example([("put", WHOLE), ("put", Message("batch", b"x")), ("put_columns", [Message("batch", b"y")] * 2)], False, {})
@example([("commit", WHOLE), ("put", replace(WHOLE, properties={"INNER_NUM": "2", "DELAY": "1"}))], False, {})
@example([("put", LIGHT), ("put", replace(WHOLE, properties=WHOLE.properties | FORGED)), ("put", LIGHT)], True, {})
@example([("put", LIGHT), ("put", replace(LIGHT, properties=FORGED | {"INNER_MULTI_DISPATCH": " "}))], True, {})
@example([("put", LIGHT), ("put", LIGHT), ("put", Message("%LMQ%a", b""))], True, {})
@example([("put", WHOLE), ("delete", "batch"), ("put", Message("batch", b"x")), ("put", WHOLE)], False, {})
def test_no_message_stops_the_store_and_none_is_lost(
    puts: list[tuple[str, Any]], is_light: bool, changes: dict[str, Any]
) -> None:
    caller = Caller(replace(SMALL, multi_dispatch=is_light), changes)
    for what, with_what in puts:
        try:
            caller.do(what, with_what)
        except (Rejected, UnicodeEncodeError):
            pass  # refused with nothing stored
        except StoreError as error:
            raise AssertionError(f"{what} {with_what}: {error!r}") from error
    caller.do("wait", None)
    require_everything(caller.store, caller)
    queues = queues_of(caller.store)
    caller.store.close()
    killed = MemoryDisk()
    for path, data in caller.disk.image().items():
        if "consumequeue" not in path and "/index/" not in path:
            killed.put_file(path, data)
    killed.put_file(f"{ROOT}/abort", b"")
    for disk in (caller.disk,) if caller.has_deleted else (caller.disk, killed):
        again = caller.opened(disk)
        require_everything(again, caller)
        found = queues_of(again)
        assert {key: found.get(key, []) for key in queues} == queues
        assert caller.has_deleted or {key for key, rows in found.items() if rows} <= set(queues)
        again.close()


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_message_that_lists_the_queue_it_is_put_to_stands_there_once(count: int, is_closed: bool) -> None:
    """Its number there is said twice: a recovery took the second for a lie, and cut the log."""
    caller = Caller(replace(SMALL, multi_dispatch=True), {})
    listed = Message("%LMQ%a", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
    for message in (listed, *[Message("%LMQ%a", b"")] * (count - 1), listed):
        caller.told(caller.store.put(message))
    if is_closed:
        caller.store.close()
    with caller.opened(caller.disk if is_closed else caller.disk.crash("kept")) as again:
        again.flush()
        assert again.bounds("%LMQ%a", 0) == (0, count + 1)
        assert [each.physical_offset for each in again.get("%LMQ%a", 0, 0, 32).messages] == [
            result.physical_offset for result in caller.acknowledged
        ]
        assert not again.warnings
