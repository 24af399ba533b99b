"""Any sequence of puts, rolls, flushes, crashes and reopenings against a plain model: lists of what was put."""

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmqstore.core.message import GetStatus
from rmqstore.engine.log.recovery.planner import plan_recovery
from tests.crash.disks import MemoryDisk
from tests.crash.strides import IS_WHOLE
from tests.crash.workload import ALONE, ASYNC, MANY, POOL, ROOT, SYNC, Fate, Workload, check, check_rebuild

pytestmark = [pytest.mark.crash, pytest.mark.stores]

CONFIGS = {"sync": SYNC, "async": ASYNC, "pool": POOL, "alone": ALONE}
TOPICS = st.sampled_from(["orders", "refunds"])
QUEUES = st.integers(0, 1)
SIZES = st.sampled_from([1, 30, 400, 1500, 3500])


class StoreMachine(RuleBasedStateMachine):
    """A store on a disk in memory, and the ledger as its model."""

    @initialize(name=st.sampled_from(sorted(CONFIGS)), clock_step_ms=st.sampled_from([0, 3, 900, -40]))
    def begin(self, name: str, clock_step_ms: int) -> None:
        self.config = CONFIGS[name]
        self.disk = MemoryDisk()
        self.clock_step_ms = clock_step_ms
        self.load = Workload(self.disk, self.config, clock_step_ms)
        self.load.open()

    @rule(topic=TOPICS, queue_id=QUEUES, size=SIZES, waits=st.booleans())
    def put(self, topic: str, queue_id: int, size: int, waits: bool) -> None:
        self.load.put(topic, queue_id, size, waits)
        assert self.load.ledger.sent[-1].fate is Fate.STORED

    @rule(topic=TOPICS, queue_id=QUEUES, sizes=st.lists(st.sampled_from([1, 30, 400]), min_size=1, max_size=5))
    def put_batch(self, topic: str, queue_id: int, sizes: list[int]) -> None:
        self.load.put_batch(topic, queue_id, sizes)

    @rule(rows=st.lists(st.tuples(TOPICS, QUEUES, SIZES), min_size=1, max_size=6))
    def put_columns(self, rows: list[tuple[str, int, int]]) -> None:
        self.load.put_columns(rows)

    @rule(rows=st.lists(st.tuples(TOPICS, QUEUES, SIZES), min_size=1, max_size=6), waits=st.booleans())
    def put_many(self, rows: list[tuple[str, int, int]], waits: bool) -> None:
        self.load.put_many(rows, waits)

    @rule(rows=st.lists(st.tuples(TOPICS, QUEUES), min_size=1, max_size=3), waits=st.booleans())
    def put_so_many(self, rows: list[tuple[str, int]], waits: bool) -> None:
        self.load.put_many([(*row, 1) for row in rows * MANY][:MANY], waits)
        assert self.load.ledger.sent[-1].fate is Fate.STORED

    @rule()
    def step(self) -> None:
        self.load.step()

    @rule()
    def flush(self) -> None:
        """Then everything can be read."""
        self.load.flush()
        assert self.load.store is not None
        check(self.load.store, self.load.ledger, is_power_cut=False)

    @rule(topic=TOPICS, queue_id=QUEUES, count=st.integers(1, 5), place=st.floats(0, 1))
    def get(self, topic: str, queue_id: int, count: int, place: float) -> None:
        """What can be read is a beginning of what was put, at its queue offset."""
        store = self.load.store
        assert store is not None
        wanted = [each.body for each in self.stored(topic, queue_id)]
        behind = store.bounds(topic, queue_id)[1]
        offset = int(place * behind)
        answer = store.get(topic, queue_id, offset, count)
        assert behind <= len(wanted)
        if offset < behind:
            assert answer.status is GetStatus.FOUND
            bodies = [message.body for message in answer.messages]
            assert bodies == wanted[offset : offset + len(bodies)]
            assert 1 <= len(bodies) <= count
        else:
            assert answer.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)

    @rule(place=st.floats(0, 1))
    def query(self, place: float) -> None:
        """Each key that is dispatched finds its message and no other."""
        store = self.load.store
        assert store is not None
        keyed = [each for each in self.load.ledger.sent if each.key and each.fate is Fate.STORED]
        if keyed and self.config.index_enabled:
            each = keyed[int(place * (len(keyed) - 1))]
            bodies = [message.body for message in store.query(each.topic, each.key)]
            number = self.stored(each.topic, each.queue_id).index(each)
            assert bodies == ([each.body] if number < store.bounds(each.topic, each.queue_id)[1] else [])

    @precondition(lambda self: self.clock_step_ms >= 0)
    @rule(topic=TOPICS, queue_id=QUEUES, place=st.floats(0, 1))
    def offset_at(self, topic: str, queue_id: int, place: float) -> None:
        """The first message of a time is found by its time."""
        store = self.load.store
        assert store is not None
        behind = store.bounds(topic, queue_id)[1]
        if behind:
            offset = int(place * (behind - 1))
            stored_ms = store.get(topic, queue_id, offset).messages[0].store_timestamp_ms
            found = store.offset_at(topic, queue_id, stored_ms)
            assert found <= offset
            assert store.get(topic, queue_id, found).messages[0].store_timestamp_ms == stored_ms
            if found:
                assert store.get(topic, queue_id, found - 1).messages[0].store_timestamp_ms < stored_ms

    @rule()
    def reopen(self) -> None:
        """After a clean end there is nothing to do, but that a checkpoint of the future is corrected."""
        self.load.close()
        plan = plan_recovery(self.disk, ROOT, self.config)
        assert plan.changes_nothing or self.clock_step_ms < 0, "\n".join(plan.lines())
        self.load.open()
        self.flush()

    @rule(kind=st.sampled_from(["lost", "kept", "killed"]) | st.integers(0, 2**32))
    def crash(self, kind: str | int) -> None:
        """The next store has what was durable, and goes on from there."""
        choice = random.Random(kind) if isinstance(kind, int) else kind
        old = self.load
        self.disk = self.disk.crash(choice)
        self.load = Workload(self.disk, self.config, self.clock_step_ms)
        self.load.clock.ms = old.clock.ms
        self.load.open()
        assert self.load.store is not None
        in_memory = choice == "killed" and not self.config.pool_buffers
        bodies = check(self.load.store, old.ledger, is_power_cut=not in_memory)
        check_rebuild(self.disk.image(), self.config)
        self.load.ledger = old.ledger
        self.load.ledger.keep_only(bodies)

    @invariant()
    def is_healthy(self) -> None:
        assert self.load.store is not None
        health = self.load.store.health()
        assert health.is_writable, health.reasons

    def stored(self, topic: str, queue_id: int) -> list:
        return [
            each for each in self.load.ledger.sent
            if each.fate is Fate.STORED and (each.topic, each.queue_id) == (topic, queue_id)
        ]  # fmt: skip


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=250 if IS_WHOLE else 30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
