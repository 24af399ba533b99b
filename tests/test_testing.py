"""The fixtures for tests of other programs: what they give, and that the example of their documentation runs."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from rmqstore import testing
from rmqstore.clock import ManualClock
from rmqstore.core.message import Message
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import NotNow, StoreInUse
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.testing import ManualStore, Probe
from tests.crash.disks import BreakingDisk, MemoryDisk

pytestmark = pytest.mark.stores

pytest_plugins = ["pytester", "rmqstore.testing"]

# Nothing of this project's own settings, and no other plugin.
ALONE = ("-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider")


def example() -> str:
    """The tests that the module's documentation shows."""
    return textwrap.dedent((testing.__doc__ or "").split("A test then looks like this:\n")[1])


def bodies(store: ManualStore, topic: str = "orders") -> list[bytes | None]:
    return [message.body for message in store.get(topic, 0, 0).messages]


def test_the_documented_example_runs(pytester: pytest.Pytester):
    pytester.makeconftest('pytest_plugins = ["rmqstore.testing"]')
    pytester.makepyfile(example())
    outcome = pytester.runpytest_inprocess("-W", "error", *ALONE)
    outcome.assert_outcomes(passed=example().count("def test_"))
    assert example().count("def test_") == 2


def test_the_fixtures_are_there_only_when_asked_for(pytester: pytest.Pytester):
    pytester.makepyfile("def test_it(rmq_store): pass")
    outcome = pytester.runpytest_inprocess(*ALONE)
    outcome.assert_outcomes(errors=1)
    outcome.stdout.fnmatch_lines("*fixture 'rmq_store' not found*")


def test_a_store_that_failed_fails_the_test(pytester: pytest.Pytester):
    pytester.makeconftest('pytest_plugins = ["rmqstore.testing"]')
    pytester.makepyfile(
        """
        from rmqstore.engine.log.derived.dispatch_loop import DispatchLoop

        def test_it(rmq_store_factory, monkeypatch):
            monkeypatch.setattr(DispatchLoop, "step", lambda self: 1 / 0)
            rmq_store_factory().step()
        """
    )
    outcome = pytester.runpytest_inprocess(*ALONE)
    outcome.assert_outcomes(passed=1, errors=1)
    outcome.stdout.fnmatch_lines("*DurabilityLost*ZeroDivisionError*")


def test_what_was_put_can_be_read_at_once(rmq_store: ManualStore):
    rmq_store.put(Message("orders", b"1"))
    assert bodies(rmq_store) == [b"1"]
    rmq_store.put_batch([Message("orders", b"2"), Message("orders", b"3")])
    assert bodies(rmq_store) == [b"1", b"2", b"3"]
    rmq_store.put_columns(pa.table({"topic": ["orders"], "body": [b"4"]}))
    assert bodies(rmq_store) == [b"1", b"2", b"3", b"4"]


def test_time_is_the_tests(rmq_store: ManualStore):
    assert isinstance(rmq_store.clock, ManualClock)
    began_ms = rmq_store.clock.now_ms()
    rmq_store.put(Message("orders", b"1"))
    rmq_store.deliver(90_000)
    rmq_store.put(Message("orders", b"2"))
    first, second = rmq_store.get("orders", 0, 0).messages
    assert (first.store_timestamp_ms, second.store_timestamp_ms) == (began_ms, began_ms + 90_000)
    rmq_store.deliver()
    assert rmq_store.clock.now_ms() == began_ms + 90_000


def test_deliver_goes_on_until_nothing_is_left_to_do(rmq_store: ManualStore, monkeypatch: pytest.MonkeyPatch):
    chain = [b"3", b"2", b"1"]
    step = rmq_store.step

    def step_that_puts() -> None:
        step()
        if chain:
            Store.put(rmq_store, Message("orders", chain.pop()))  # which dispatches nothing

    monkeypatch.setattr(rmq_store, "step", step_that_puts)
    rmq_store.deliver(1)
    assert bodies(rmq_store) == [b"1", b"2", b"3"]
    assert rmq_store.health().dispatch_behind_bytes == 0


def test_deliver_tells_what_went_wrong(rmq_store_factory: testing.StoreFactory, monkeypatch: pytest.MonkeyPatch):
    busy = rmq_store_factory("busy", log_file_size=4096)
    monkeypatch.setattr(testing, "_ROUNDS_MAX", 5)
    monkeypatch.setattr(busy, "step", lambda: Store.put(busy, Message("orders", b"and again")))
    with pytest.raises(NotNow, match="after 5 rounds"):
        busy.deliver()
    closed = rmq_store_factory("closed")
    closed.close()
    with pytest.raises(NotNow, match="closed"):
        closed.deliver()


def test_stores_of_one_test_share_the_clock_and_keep_apart(rmq_store_factory: testing.StoreFactory, tmp_path):
    one, two = rmq_store_factory("one"), rmq_store_factory("two", flush="SYNC")
    one.put(Message("orders", b"1"))
    assert one.clock is two.clock
    assert two.config.flush == "SYNC"
    assert two.queues() == []
    assert (tmp_path / "one" / "commitlog").is_dir()
    one.close()
    assert bodies(rmq_store_factory("one")) == [b"1"]


def test_a_probe_says_how_far_the_log_is(rmq_store_factory: testing.StoreFactory):
    store = rmq_store_factory("probed", log_file_size=4096, flush="ASYNC")
    probe = Probe(store)
    assert (probe.log_start, probe.log_end, probe.flushed, probe.dispatched) == (0, 0, 0, 0)
    result = Store.put(store, Message("orders", b"x" * 3000))
    Store.put(store, Message("orders", b"x" * 3000))
    assert (probe.log_files, probe.log_end) == ([0, 4096], 4096 + result.size)
    assert (probe.flushed, probe.dispatched, probe.bounds("orders", 0)) == (0, 0, (0, 0))
    assert probe.next_offset("orders", 0) == 2
    probe.catch_up()
    assert (probe.flushed, probe.dispatched, probe.bounds("orders", 0)) == (0, probe.log_end, (0, 2))
    probe.sync_log()
    assert probe.flushed == probe.log_end
    assert probe.clock is store.clock
    store.flush()
    store.clean(any_age=True)
    assert (probe.log_start, probe.log_files, probe.read_log(0, 10)) == (4096, [4096], b"")
    assert probe.read_log(4096, 9999) == store.message_at(4096).stored_record


def test_a_step_of_one_worker_raises_what_ended_it(rmq_store: ManualStore):
    probe = Probe(rmq_store)
    Store.put(rmq_store, Message("orders", b"1"))
    probe.step("queues")
    assert probe.dispatched == 0
    probe.step("dispatch")
    assert probe.dispatched == probe.log_end
    disk = BreakingDisk(MemoryDisk())
    clock = ManualClock()
    store = open_store("/store", filesystem=disk, clock=clock, workers=False)
    failing = Probe(store)
    store.put(Message("orders", b"1"))
    failing.step("dispatch")
    store.flush()
    clock.advance(1000)  # else the checkpoint has nothing to tell
    store.put(Message("orders", b"2"))
    failing.step("dispatch")
    disk.broken = "/checkpoint"
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            failing.step("queues")


def test_a_crash_frees_the_directory_and_the_lock_can_be_given_away(tmp_path: Path):
    store = open_store(tmp_path, workers=False)
    store.put(Message("orders", b"1"))
    Probe(store).crash()
    with open_store(tmp_path, workers=False) as again:
        assert not again.recovery.is_clean_exit
        assert again.get("orders", 0, 0).messages[0].body == b"1"
        disk, path = RealFileSystem(), str(tmp_path / "lock")
        with pytest.raises(StoreInUse):
            disk.lock(path)
        Probe(again).lock.release()
        disk.lock(path).release()


def test_a_program_without_pytest_has_the_probe():
    program = "import sys; sys.modules['pytest'] = None; from rmqstore.testing import Probe; print(Probe.__name__)"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout == b"Probe\n"


def test_a_message_that_fails_every_time_goes_through_all_delays_to_the_dead_letters(rmq_store: ManualStore):
    """RocketMQ's default group: 16 times, 10 s after the first and 2 h after the last."""
    rmq_store.put(Message("orders", b"hard", tags="paid"))
    with rmq_store.consumer("billing", "orders", tags="paid") as consumer:
        (message,) = consumer.poll()
        for times, delay_ms in enumerate(rmq_store.config.delay_ms()[2:], start=1):
            consumer.send_back(message)
            consumer.commit()
            rmq_store.deliver(delay_ms - 1)
            assert consumer.poll() == []
            rmq_store.deliver(1)
            (message,) = consumer.poll()
            assert (message.topic, message.body, message.reconsume_times) == ("orders", b"hard", times)
        consumer.send_back(message)
        rmq_store.deliver(86_400_000)
        assert consumer.poll() == []
        assert [dead.body for dead in consumer.dead_letters()] == [b"hard"]
