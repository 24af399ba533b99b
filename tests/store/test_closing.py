"""Closing while others work: what is under way ends first or is refused, and afterwards nothing is written."""

import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rmqstore.clock import SYSTEM_CLOCK
from rmqstore.config import StoreConfig
from rmqstore.core.locks import Bell
from rmqstore.core.message import Message, PutStatus
from rmqstore.core.worker import Worker
from rmqstore.engine.log.derived import dispatch_loop
from rmqstore.engine.log.derived.derived_flush import DerivedFlush
from rmqstore.engine.log.derived.dispatch_loop import DispatchLoop
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import DurabilityLost, NotNow, StoreClosed, WrongType
from rmqstore.files.filesystem import DiskFile, RealFileSystem
from tests.crash.disks import Operation, WatchedDisk
from tests.patience import PATIENCE_S
from tests.store.interrupting import Interrupt, sweep
from tests.store.real_store import SYNC, bodies

pytestmark = pytest.mark.stores


@pytest.mark.parametrize("flush", ["SYNC", "ASYNC"])
def test_a_put_that_stands_in_a_hook_while_the_store_is_closed_is_refused(tmp_path: Path, flush: str) -> None:
    """Somebody else may write there by then."""
    stands, goes_on = threading.Event(), threading.Event()

    def hook(message: Message) -> Message:
        if message.tags == "slow":
            stands.set()
            assert goes_on.wait(PATIENCE_S)
        return message

    config = replace(SYNC, flush=flush)
    store = open_store(str(tmp_path / "s"), config, hooks=[hook])
    store.put(Message("alpha", b"first"))
    said: list[PutStatus] = []
    late = threading.Thread(target=lambda: said.append(store.put(Message("alpha", b"late" * 99, tags="slow")).status))
    late.start()
    assert stands.wait(PATIENCE_S)
    store.close()
    with open_store(str(tmp_path / "s"), config) as other:
        for number in range(20):
            assert other.put(Message("alpha", b"%d" % number)).is_stored
        goes_on.set()
        late.join(PATIENCE_S)
        other.flush()
        assert bodies(other) == [b"first", *(b"%d" % number for number in range(20))]
    assert said == [PutStatus.SERVICE_NOT_AVAILABLE]


def test_columns_that_are_put_while_the_store_is_closed_are_stored_as_far_as_they_say(tmp_path: Path) -> None:
    """A turn at a time; the first that finds the store closed is the last."""
    began = threading.Event()

    class Telling(WatchedDisk):
        def write_in(self, file: DiskFile, operation: Operation, position: int, data) -> None:
            super().write_in(file, operation, position, data)
            if "/commitlog/" in operation.path:
                began.set()

    config = StoreConfig(log_file_size=1 << 20)
    store = open_store(str(tmp_path / "s"), config, filesystem=Telling(RealFileSystem()))
    table = pa.table({"topic": ["alpha"] * 60_000, "body": pa.array([b"x" * 100] * 60_000, pa.binary())})
    answers = []
    late = threading.Thread(target=lambda: answers.append(store.put_columns(table)))
    late.start()
    assert began.wait(PATIENCE_S)
    store.close()
    with open_store(str(tmp_path / "s"), config) as other:
        held = other.bounds("alpha", 0)
        other.put(Message("alpha", b"other"))
        late.join(PATIENCE_S)
    (answer,) = answers
    assert held == (0, answer.message_count)
    if answer.message_count < 60_000:
        assert answer.status is PutStatus.SERVICE_NOT_AVAILABLE
    with open_store(str(tmp_path / "s"), config) as again:
        assert again.bounds("alpha", 0) == (0, answer.message_count + 1)


def test_who_closes_second_waits_for_the_first(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s"), SYNC)
    store.put(Message("alpha", b"body"))
    threads = [threading.Thread(target=store.close) for _ in range(5)]
    for thread in threads:
        thread.start()
    store.close()
    assert not (tmp_path / "s" / "abort").exists()
    with open_store(str(tmp_path / "s"), SYNC) as again:  # the lock is free by now, whoever closed
        assert bodies(again) == [b"body"]
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def test_a_signal_handler_that_closes_in_the_middle_of_a_put_is_told_what_to_do_instead(tmp_path: Path) -> None:
    """The put that it interrupted cannot go on before it returns."""

    def hook(message: Message) -> Message:
        if message.tags == "signal":
            signal.raise_signal(signal.SIGUSR1)
        return message

    with open_store(str(tmp_path / "s"), SYNC, hooks=[hook]) as store:
        before = signal.signal(signal.SIGUSR1, lambda *_: store.close())
        try:
            with pytest.raises(NotNow, match="raise SystemExit in the signal handler"):
                store.put(Message("alpha", b"interrupted", tags="signal"))
            assert store.put(Message("alpha", b"after")).queue_offset == 0
            signal.raise_signal(signal.SIGUSR1)  # between two calls it closes
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert store.health().reasons == ("closed",)
    with open_store(str(tmp_path / "s"), SYNC) as again:
        assert bodies(again) == [b"after"]


def test_a_signal_handler_that_puts_in_the_middle_of_a_puts_turn_is_refused(tmp_path: Path) -> None:
    """Both would take the same place; while the store is asked for one it is not changed."""
    said: list[str] = []

    class Interrupting(WatchedDisk):
        def write_in(self, file: DiskFile, operation: Operation, position: int, data) -> None:
            super().write_in(file, operation, position, data)
            if "/commitlog/" in operation.path and not said:
                said.append("")
                with pytest.raises(NotNow, match="signal handler"):
                    store.put(Message("alpha", b"handler"))

    with open_store(str(tmp_path / "s"), SYNC, filesystem=Interrupting(RealFileSystem())) as store:
        assert store.put(Message("alpha", b"first", wait_store_ok=False)).queue_offset == 0
        assert store.put(Message("alpha", b"second")).queue_offset == 1
        assert said
    with open_store(str(tmp_path / "s"), SYNC) as again:
        assert bodies(again) == [b"first", b"second"]


def test_a_thread_that_cannot_be_started_leaves_no_other_and_no_lock(tmp_path: Path, monkeypatch) -> None:
    started: list[Worker] = []
    before = set(threading.enumerate())
    real = Worker.start

    def start(worker: Worker) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        real(worker)
        started.append(worker)

    monkeypatch.setattr(Worker, "start", start)
    with pytest.raises(RuntimeError):
        open_store(str(tmp_path / "s"), SYNC)
    assert len(started) == 3
    assert not set(threading.enumerate()) - before
    monkeypatch.setattr(Worker, "start", real)
    open_store(str(tmp_path / "s"), SYNC).close()


def test_what_a_close_could_not_do_the_next_opening_does(tmp_path: Path, monkeypatch) -> None:
    """Also when it was interrupted: the lock is given back, and the store is recovered."""
    store = open_store(str(tmp_path / "s"), SYNC)
    store.put(Message("alpha", b"body"))

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(DerivedFlush, "flush", interrupted)
        with pytest.raises((KeyboardInterrupt, DurabilityLost)):
            store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.get("alpha", 0, 0)
    with open_store(str(tmp_path / "s"), SYNC, filesystem=RealFileSystem()) as again:
        assert not again.recovery.is_clean_exit
        assert bodies(again) == [b"body"]


@pytest.mark.parametrize("at", range(6))
def test_an_opening_that_is_interrupted_where_a_thread_starts_leaves_the_store_free(
    tmp_path: Path, monkeypatch, at: int
) -> None:
    """As Ctrl-C is there; the thread may come all the same, and does no step."""
    started: list[Worker] = []
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("rmqstore-"):
            started.append(thread)  # type: ignore[arg-type]
            if len(started) == at + 1:
                raise KeyboardInterrupt
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        open_store(str(tmp_path / "s"), SYNC)
    assert not any(thread.is_alive() for thread in started)
    open_store(str(tmp_path / "s"), SYNC).close()


def test_an_opening_that_is_interrupted_anywhere_leaves_the_store_free(tmp_path: Path) -> None:
    root = str(tmp_path / "s")
    with open_store(root, SYNC, workers=False) as store:
        store.put(Message("alpha", b"body"))

    def check(interrupt: Interrupt) -> None:
        store = interrupt.call(lambda: open_store(root, SYNC, workers=False))
        if store is not None:
            store.close()
        with open_store(root, SYNC, workers=False) as again:
            assert bodies(again) == [b"body"]

    assert sweep(check, step=41, is_real=True) > 40


def test_a_truth_value_is_no_queue_id_and_another_integer_is_one(tmp_path: Path) -> None:
    """A directory of any other name than a number is found by nobody who reads."""
    with open_store(str(tmp_path / "s"), SYNC) as store:
        for queue_id in (True, False):
            with pytest.raises(WrongType, match="queue_id="):
                store.put(Message("alpha", b"", queue_id=queue_id))
        for number in (np.int64(1), 1, np.int32(0), 0):
            assert store.put(Message("alpha", b"%d" % number, queue_id=number)).is_stored  # type: ignore[arg-type]
        store.flush()
    assert sorted(path.name for path in (tmp_path / "s" / "consumequeue" / "alpha").iterdir()) == ["0", "1"]
    with open_store(str(tmp_path / "s"), SYNC) as again:
        assert (bodies(again), bodies(again, queue_id=1)) == ([b"0", b"0"], [b"1", b"1"])


def test_a_subclass_may_close_in_a_method_of_its_own(tmp_path: Path) -> None:
    class Own(Store):
        def shut(self) -> None:
            self.close()

    store = Own(str(tmp_path / "s"), SYNC, SYSTEM_CLOCK, RealFileSystem())
    store.shut()
    assert store.health().reasons == ("closed",)


def test_a_flush_that_waits_ends_when_another_thread_abandons_the_store(tmp_path: Path) -> None:
    """It waited for its whole timeout, a minute, for a dispatch that had ended."""
    waits, said = threading.Event(), list[str]()

    def flushes() -> None:
        try:
            store.flush(timeout_s=2 * PATIENCE_S)
        except StoreClosed as error:
            said.append(str(error))

    class Told(Bell):
        """Says that somebody waits for the dispatch."""

        def wait(self, timeout_s: float | None = None) -> bool:
            waits.set()
            return super().wait(timeout_s)

    thread = threading.Thread(target=flushes)
    with pytest.MonkeyPatch.context() as meanwhile:
        meanwhile.setattr(DispatchLoop, "step", lambda _: 60.0)
        meanwhile.setattr(dispatch_loop, "Bell", Told)
        store = open_store(str(tmp_path / "s"), SYNC)  # whose dispatch does nothing
        store.put(Message("alpha", b"x"))
        thread.start()
        assert waits.wait(PATIENCE_S)
        store.abandon()
        thread.join(PATIENCE_S)
    assert said == [f"{store.path} is closed"]
