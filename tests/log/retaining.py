"""Stores with a few log files, and retention over their parts."""

from collections.abc import Callable
from dataclasses import replace

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.log.retention.plan import RetentionPolicy
from rmqstore.engine.log.retention.rounds import RetainedParts, Retention
from rmqstore.engine.store import Store, open_store
from rmqstore.files.filesystem import FileSystem
from rmqstore.testing import Probe
from tests.crash.workload import SMALL

ROOT = "/store"
CONFIG = StoreConfig(flush="ASYNC", preallocate=False, **SMALL)
QUEUES = [("orders", 0), ("orders", 1), ("refunds", 0)]
# Every hour is an hour for deleting.
ALWAYS = RetentionPolicy(delete_when=";".join(map(str, range(24))))
NEVER = RetentionPolicy(delete_when="")


def parts_of(store: Store) -> RetainedParts:
    """What the engine hands to retention."""
    probe, engine = Probe(store), Probe(store).engine
    parts = engine.parts

    def flush() -> bool:
        if not engine.log_flush.flush():
            return False
        parts.queues.flush()
        return True

    return RetainedParts(
        engine.fs, store.path, parts.log, parts.queues, parts.index,
        lambda: probe.flushed, lambda: probe.dispatched, flush,
    )  # fmt: skip


def body_of(number: int, size: int = 300) -> bytes:
    return f"<{number}>".encode().ljust(size, b".")


def fill(store: Store, count: int, first: int = 0, size: int = 300) -> dict[int, bytes]:
    """Puts messages with a key each, in turns to all queues; what was stored by its place in the log."""
    stored = {}
    for number in range(first, first + count):
        topic, queue_id = QUEUES[number % len(QUEUES)]
        result = store.put(Message(topic, body_of(number, size), keys=f"key{number}", queue_id=queue_id))
        assert result.is_stored, result
        stored[result.physical_offset] = body_of(number, size)
    return stored


def filled(fs: FileSystem, count: int = 90, config: StoreConfig = CONFIG, root: str = ROOT) -> Store:
    """A store in which `count` messages stand, dispatched and flushed: nine to a log file."""
    store = open_store(root, config, clock=ManualClock(), filesystem=fs, workers=False)
    fill(store, count)
    store.flush()
    return store


def advance(store: Store, ms: int) -> None:
    """Moves the store's clock on."""
    clock = Probe(store).clock
    assert isinstance(clock, ManualClock)
    clock.advance(ms)


def retention_of(
    store: Store,
    policy: RetentionPolicy = ALWAYS,
    used: Callable[[str], float] = lambda _: 0.5,
    protect: Callable[[], int | None] | None = None,
    **changes: Callable[[], object],
) -> Retention:
    """A retention of its own over the store's parts; `changes` stand in for some of them."""
    parts = replace(parts_of(store), **changes)  # type: ignore[arg-type]
    return Retention(parts, policy, Probe(store).clock, used, protect)


def readable(store: Store) -> dict[int, bytes]:
    """Every message that can be read through its queue, by its place in the log."""
    found = {}
    for topic, queue_id in store.queues():
        offset, end = store.bounds(topic, queue_id)
        while offset < end:
            answer = store.get(topic, queue_id, offset)
            assert answer.messages, (topic, queue_id, offset, answer.status)
            for message in answer.messages:
                assert message.queue_offset == offset, "a message is missing"
                assert message.is_whole
                assert message.body is not None
                found[message.physical_offset] = message.body
                offset += 1
    return found


def key_of(body: bytes) -> str:
    return "key" + body[1 : body.index(b">")].decode()


def check_against_log(store: Store, stored: dict[int, bytes]) -> None:
    """Queues and index tell of just what stands in the log: nothing is missing, nothing gone is shown."""
    start = Probe(store).log_start
    assert readable(store) == {at: body for at, body in stored.items() if at >= start}
    for topic, queue_id in QUEUES:
        own = [at for at, body in sorted(stored.items())
               if QUEUES[int(key_of(body)[3:]) % len(QUEUES)] == (topic, queue_id)]  # fmt: skip
        assert store.bounds(topic, queue_id) == (sum(at < start for at in own), len(own))
    for at, body in list(stored.items())[::4]:
        topic = QUEUES[int(key_of(body)[3:]) % len(QUEUES)][0]
        assert [each.body for each in store.query(topic, key_of(body))] == ([body] if at >= start else [])
