"""Forks, interrupts, closings, openings and renames at random moments, against the model of acknowledged messages.

On the host's disk, as a child made by fork has no other.
"""

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import StoreClosed, StoreError, StoreInUse
from rmqstore.testing import Probe
from tests.crash.strides import IS_WHOLE, ROUNDS
from tests.crash.workload import ALONE, POOL
from tests.store.children import in_child
from tests.store.interrupting import Interrupt
from tests.store.real_store import SYNC

pytestmark = [pytest.mark.crash, pytest.mark.stores]

CONFIGS = {"sync": SYNC, "pool": replace(POOL, flush="SYNC"), "alone": ALONE}
QUEUES = st.integers(0, 1)
LINES = st.integers(1, 400)
WAYS = st.sampled_from(["put", "put_batch", "put_columns"])


class SlipsMachine(RuleBasedStateMachine):
    """`acked`: by queue, the bodies that were acknowledged by their queue offsets; `maybe`: those of puts that did not
    come back, which may be there once.
    """

    @initialize(name=st.sampled_from(sorted(CONFIGS)), workers=st.booleans())
    def begin(self, name: str, workers: bool) -> None:
        self.room = Path(tempfile.mkdtemp(prefix="rmqstore-slips-"))
        self.root = self.room / "store"
        self.config, self.workers = CONFIGS[name], workers
        self.acked: dict[int, dict[int, bytes]] = {0: {}, 1: {}}
        self.maybe: set[bytes] = set()
        self.count = 0
        self.store = self.opened()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.check()
            self.store.close()
            shutil.rmtree(self.room)

    def opened(self) -> Store:
        return open_store(str(self.root), self.config, workers=self.workers)

    @rule(way=WAYS, queue_id=QUEUES, size=st.sampled_from([10, 700, 2500]))
    def put(self, way: str, queue_id: int, size: int) -> None:
        body = self.body(size)
        result = self.put_by(way, queue_id, body)
        assert result.status is PutStatus.PUT_OK, (result, self.store.health())
        self.note(result, queue_id, body)

    @rule(way=WAYS, queue_id=QUEUES, size=st.sampled_from([10, 2500]), line=LINES, again=st.sampled_from([0, 0, 0, 3]))
    def interrupted_put(self, way: str, queue_id: int, size: int, line: int, again: int) -> None:
        body = self.body(size)
        result = Interrupt(line, again).call(lambda: self.put_by(way, queue_id, body))
        if result is None:
            self.maybe.add(body)
        else:
            self.note(result, queue_id, body)
        if not self.store.health().is_writable:
            assert again
            self.crash()

    @rule(line=LINES, what=st.sampled_from(["flush", "step", "close"]))
    def interrupted_call(self, line: int, what: str) -> None:
        try:
            Interrupt(line * 3, is_real=True).call(getattr(self.store, what))
        except StoreError:
            assert not self.store.health().is_writable
        if not self.store.health().is_writable:
            self.crash()

    @rule(way=WAYS, ends=st.sampled_from(["exit", "close", "with"]))
    def child(self, way: str, ends: str) -> None:
        """A child that uses what it inherited: refused, and nothing changes."""

        def work(tell) -> None:
            try:
                tell(str(self.put_by(way, 0, b"child")))
            except StoreClosed:
                tell("refused")
            if ends == "close":
                self.store.close()
            elif ends == "with":
                with self.store:
                    pass

        assert in_child(work) == ["refused"]
        assert (self.root / "abort").exists()

    @rule()
    def second_writer(self) -> None:
        """Neither here nor in a child."""

        def work(tell) -> None:
            try:
                self.opened()
            except StoreInUse:
                tell("in use")

        assert in_child(work) == ["in use"]

    @rule()
    def reopen(self) -> None:
        self.store.close()
        assert not (self.root / "abort").exists()
        self.store = self.opened()

    @rule()
    def crash(self) -> None:
        self.store.abandon()
        self.store = self.opened()

    @precondition(lambda self: self.config is SYNC)
    @rule(count=st.integers(1, 6), is_replaced=st.booleans())
    def rename(self, count: int, is_replaced: bool) -> None:
        """The directory goes away under the store, another one may take its place, and later it is back."""
        moved = self.room / "moved"
        self.root.rename(moved)
        if is_replaced:
            with open_store(str(self.root), SYNC, workers=False) as other:
                other.put(Message("alpha", b"other"))
            before = self.image()
        for _ in range(count):
            body = self.body(2500)
            try:
                assert self.put_by("put", 0, body).status is not PutStatus.PUT_OK
            except StoreError:
                self.maybe.add(body)
        assert not self.store.health().is_writable
        self.store.abandon()
        if is_replaced:
            assert self.image() == before
            shutil.rmtree(self.root)
        moved.rename(self.root)
        self.store = self.opened()

    @rule()
    def check(self) -> None:
        """What was acknowledged is there, at its number; what is there beside it was put, and is there once."""
        self.store.flush()
        for queue_id, acked in self.acked.items():
            low, high = self.store.bounds("alpha", queue_id)
            assert low == 0
            found = {}
            for offset in range(low, high):
                (message,) = self.store.get("alpha", queue_id, offset, 1).messages
                assert (message.queue_offset, message.queue_id) == (offset, queue_id)
                found[offset] = bytes(message.body or b"")
            assert acked.items() <= found.items()
            others = [body for offset, body in found.items() if offset not in acked]
            assert len(others) == len(set(others))
            assert set(others) <= self.maybe

    # --- the model

    def body(self, size: int) -> bytes:
        self.count += 1
        return (b"%d " % self.count).ljust(size, b"x")

    def put_by(self, way: str, queue_id: int, body: bytes) -> PutResult:
        if way == "put":
            return self.store.put(Message("alpha", body, queue_id=queue_id, keys=["k"]))
        if way == "put_batch":
            return self.store.put_batch([Message("alpha", body, queue_id=queue_id)])
        columns = {
            "topic": ["alpha"],
            "queueId": pa.array([queue_id], pa.int32()),
            "body": pa.array([body], pa.binary()),
        }
        return self.store.put_columns(pa.table(columns))

    def note(self, result: PutResult, queue_id: int, body: bytes) -> None:
        if result.status is not PutStatus.PUT_OK:
            self.maybe.add(body)
        elif result.queue_offset >= 0:
            self.acked[queue_id][result.queue_offset] = body
        else:  # of columns: nobody else puts
            self.acked[queue_id][Probe(self.store).next_offset("alpha", queue_id) - 1] = body

    def image(self) -> dict[str, bytes]:
        names = [os.path.join(place, name) for place, _, files in os.walk(self.root) for name in files]
        return {name: Path(name).read_bytes() for name in names}


TestSlipsMachine = SlipsMachine.TestCase
TestSlipsMachine.settings = settings(
    max_examples=ROUNDS * (30 if IS_WHOLE else 10),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
