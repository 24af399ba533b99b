"""Reader and engine are asked the same of the same directories: which queues, which messages, which numbers and codes.

A store is looked at as its writer left it, closed, killed, or without its queues; then the engine recovers it.  What
the reader said before is what the engine serves afterwards.
"""

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

from rmqstore import StoreConfig, open_snapshot, open_store
from rmqstore.core.message import Message
from rmqstore.engine.store import Store
from rmqstore.errors import Corrupt, Rejected
from rmqstore.formats import names
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk
from tests.store.odd_messages import FORGED, LIGHT, PUTS, ROOT, SMALL, WHOLE, Caller

pytestmark = pytest.mark.stores

DELAYED = Message(names.SCHEDULE_TOPIC, b"later", queue_id=2, properties={"DELAY": "+3"})
LISTED = Message("plain", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,plain,%LMQ%b,x"})
Rows = dict[tuple[str, int], list[tuple[int, int, int]]]


def written(image: dict[str, bytes], root: Path) -> None:
    """A memory disk's files below a directory of this machine, with the locks of nobody."""
    for path, data in image.items():
        place = root / Path(path).relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def said_by_reader(root: Path, mode: str) -> tuple[dict[tuple[str, int], tuple[int, int]], Rows]:
    """Bounds and (queue offset, physical offset, tags code) of each queue that has messages."""
    snapshot = open_snapshot(root)
    extents = snapshot.stores[0].queues
    bounds = {key: (queue.min_offset, queue.max_offset) for key, queue in extents.items()}
    columns = ["topic", "queueId", "queueOffset", "physicalOffset", "tagsCode"]
    rows: Rows = {}
    for batch in snapshot.scan(columns=columns, include_system_topics=True, scan_mode=mode):
        for row in batch.to_pylist():
            place = (row["queueOffset"], row["physicalOffset"], row["tagsCode"])
            rows.setdefault((row["topic"], row["queueId"]), []).append(place)
    filled = {key: (low, high) for key, (low, high) in bounds.items() if low < high}
    return filled, {key: sorted(found) for key, found in rows.items()}


def said_by_engine(store: Store) -> tuple[dict[tuple[str, int], tuple[int, int]], Rows]:
    """The same by bounds and entries of the opened store."""
    bounds, rows = {}, {}
    for key in store.queues():
        low, high = store.bounds(*key)
        if low < high:
            bounds[key] = low, high
    queues = Probe(store).engine.parts.queues
    for key, (low, high) in bounds.items():
        plain, batches = queues.find(*key), queues.batches.find(*key)
        if plain is not None:
            entries = plain.read(low, high)
            places = zip(range(low, high), entries["physical_offset"], entries["tags_code"], strict=True)
        else:
            units = batches.read(0, high)
            counts = units["message_count"]
            numbers = np.concatenate(
                [base + np.arange(count) for base, count in zip(units["base_queue_offset"], counts, strict=True)]
            )
            places = zip(
                numbers, np.repeat(units["physical_offset"], counts), np.repeat(units["tags_code"], counts), strict=True
            )
        rows[key] = sorted(tuple(map(int, place)) for place in places)
    return bounds, rows


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PUTS, min_size=1, max_size=8), st.booleans(), st.sampled_from(["closed", "killed", "no queues"]))
@example([("put", DELAYED), ("put", replace(DELAYED, properties={"DELAY": "99999999999"}))], False, "no queues")
@example([("put", LIGHT), ("put", replace(LIGHT, properties=FORGED)), ("put", LISTED)], True, "no queues")
@example([("put", Message("%LMQ%a", b"")), ("put", Message("%LMQ%a", b""))], False, "closed")
@example([("put", WHOLE), ("put", Message("batch", b"x")), ("commit", WHOLE)], False, "killed")
@example(
    [("put", Message("plain", b"", sys_flag=0x80)), ("put", Message("plain", b"", sys_flag=0x40))], False, "killed"
)
def test_what_a_reader_sees_is_what_the_engine_serves(puts: list[tuple[str, Any]], is_light: bool, state: str) -> None:
    caller = Caller(replace(SMALL, multi_dispatch=is_light), {})
    for what, with_what in puts:
        with suppress(Rejected, UnicodeEncodeError):  # refused with nothing stored
            caller.do(what, with_what)
    if state == "closed":
        caller.store.close()
    image = caller.disk.image()
    if state == "no queues" and not caller.has_deleted:
        image = {path: data for path, data in image.items() if "consumequeue" not in path and "/index/" not in path}
    with tempfile.TemporaryDirectory() as directory:
        written(image, Path(directory))
        try:
            by_queue = said_by_reader(Path(directory), "queue")
            by_log = said_by_reader(Path(directory), "commitlog")
        except Corrupt as damage:
            if not damage.reason.endswith("its number of messages is not the one that it states"):
                raise
            reject()
    disk = MemoryDisk()
    for path, data in image.items():
        disk.put_file(path, data)
    again = caller.opened(disk)
    try:
        again.flush()
        served = said_by_engine(again)
    finally:
        again.abandon()
    assert by_queue == served
    assert by_log == by_queue


def test_a_key_is_found_among_others_of_its_hash(tmp_path: Path) -> None:
    """ "AaAa" and "BBBB" have one hash: RocketMQ looks at the newest 64 of these and no further."""
    with open_store(tmp_path / "s", StoreConfig(preallocate=False, index_slot_count=9, index_item_count=50)) as store:
        for number in range(150):
            store.put(Message("t", b"%d" % number, keys=["AaAa" if number in (0, 70) else "BBBB"], queue_id=0))
        store.flush()
        snapshot = open_snapshot(tmp_path / "s")
        for ask in (lambda key, count: store.query("t", key, count), lambda k, n: snapshot.query("t", k, count_max=n)):
            assert [message.body for message in ask("AaAa", 32)] == [b"0", b"70"]
            assert [message.body for message in ask("AaAa", 1)] == [b"70"]
            assert [message.body for message in ask("BBBB", 3)] == [b"147", b"148", b"149"]
            assert len(ask("BBBB", 1000)) == 64
            assert ask("CCCC", 32) == []
