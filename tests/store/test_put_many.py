"""Many messages in one put: what each is answered, and what is on the disk, is that of as many single puts."""

import errno
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.ledger_config import LedgerConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.log.put.watermarks import Watermarks
from rmqstore.engine.store import open_store
from rmqstore.errors import DurabilityLost, WrongType
from rmqstore.files.filesystem import DiskFile
from rmqstore.formats.broker_json import TopicConfig
from rmqstore.snapshot import open_snapshot
from rmqstore.testing import Probe
from tests.crash.disks import BreakingDisk, MemoryDisk
from tests.crash.workload import comparable, differences
from tests.store.odd_messages import BATCH, LIGHT, MESSAGES, WHOLE
from tests.store.opened import opened

pytestmark = pytest.mark.stores

MANY = 300  # more than are made into records one by one
SMALL = StoreConfig(log_file_size=65536, queue_file_size=2000, index_slot_count=64, index_item_count=4000,
                    batch_queue_file_size=46 * 40, preallocate=False)  # fmt: skip
CONFIGS = {
    "async": SMALL,
    "sync": replace(SMALL, flush="SYNC"),
    "light": replace(SMALL, multi_dispatch=True, light_queue_max=3),
    "crc": replace(SMALL, append_property_crc=True, cluster_name="c"),
    "v6": replace(SMALL, store_host="[2001:db8::1]:10911"),
    "pool": replace(SMALL, pool_buffers=2),
    "ledger": replace(SMALL, dledger=LedgerConfig(index_file_size=6400)),
    "closed table": replace(SMALL, auto_create_topics=False),
    "no delays": replace(SMALL, delay_levels=""),
}
FINE = Message("plain", b"fine", tags="paid", keys=["k"], properties={"a": "1"}, queue_id=1)


def changing(message: Message) -> Message | PutStatus:
    if message.tags == "no":
        return PutStatus.MESSAGE_ILLEGAL
    return replace(message, queue_id=2, properties={**message.properties, "by": "hook"})


def answers_and_disk(config: StoreConfig, messages: list[Message], hooks: list[Any], one_by_one: bool) -> Any:
    disk = MemoryDisk()
    with opened(config, disk, clock=ManualClock(), hooks=hooks) as store:
        store.topics.put(BATCH)
        store.topics.put(TopicConfig("closed", perm=4))
        answers = [store.put(message) for message in messages] if one_by_one else store.put_many(messages)
        assert len(answers) == len(messages)
        counted = store.statistics()
        store.flush()
        bodies = {place: [m.body for m in store.get(*place, 0, 1000).messages] for place in store.queues()}
        topics = {name: replace(each, unknown_fields={}) for name, each in store.topics.all().items()}
    facts = answers, counted.put_topics, counted.put_failed, bodies, topics
    return facts, comparable(disk.image())


def require_same(config: StoreConfig, messages: list[Message], hooks: list[Any]) -> list[PutResult]:
    wanted, wanted_disk = answers_and_disk(config, messages, hooks, one_by_one=True)
    found, disk = answers_and_disk(config, messages, hooks, one_by_one=False)
    assert found == wanted
    assert disk == wanted_disk, differences(disk, wanted_disk)
    return list(found[0])


@pytest.mark.some(2)
@pytest.mark.parametrize("hooks", [[], [changing]], ids=["no hook", "a hook"])
@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_messages_of_all_kinds_are_stored_as_single_puts_store_them(name: str, hooks: list[Any]) -> None:
    chosen = random.Random(5)
    kinds = [
        replace(FINE, topic="other", queue_id=5, born_host="10.0.0.9:5"),
        replace(FINE, properties={"UNIQ_KEY": "U", "a": "2"}), replace(FINE, wait_store_ok=False),
        replace(FINE, properties={"DELAY": "3"}), replace(FINE, sys_flag=4), replace(FINE, sys_flag=8),
        replace(FINE, sys_flag=0xC), Message("batch", b"alone"), WHOLE, LIGHT, replace(FINE, tags="no"),
        replace(FINE, topic="a/b"), replace(FINE, topic="closed"), replace(FINE, body=bytes(2000)),
        replace(FINE, properties={"WAIT": "false"}), replace(FINE, properties={"a": None}), replace(FINE, queue_id=-1),
        Message("%RETRY%g", b"again", reconsume_times=2), replace(FINE, keys="x y", tags="é"),
        replace(FINE, properties={"TIMER_DELAY_SEC": "5"}), Message("%LMQ%a", b"light"),
    ]  # fmt: skip
    messages = [replace(FINE, body=b"%d" % number) for number in range(MANY)]
    messages += [chosen.choice(kinds) for _ in range(MANY)]
    messages += [replace(FINE, topic=chosen.choice("xyz"), queue_id=number % 7) for number in range(MANY)]
    messages += [replace(FINE, properties={"DELAY": "2"})] * MANY
    answers = require_same(CONFIGS[name], messages, hooks)
    assert {answer.status for answer in answers} >= {PutStatus.MESSAGE_ILLEGAL}
    if name != "closed table":
        assert PutStatus.PUT_OK in {answer.status for answer in answers}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(MESSAGES, min_size=1, max_size=4), st.integers(0, 2 * MANY), st.sampled_from(["async", "light"]))
def test_odd_messages_among_many_are_answered_as_single_puts_answer_them(
    odd: list[Message], place: int, name: str
) -> None:
    messages = [FINE] * MANY
    messages[place:place] = odd
    require_same(CONFIGS[name], messages, [])


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 4097])
def test_any_number_of_messages_is_answered_in_its_order(count: int) -> None:
    store = opened(replace(SMALL, log_file_size=1 << 20))
    answers = store.put_many(replace(FINE, body=b"%d" % number) for number in range(count))
    assert [answer.queue_offset for answer in answers] == list(range(count))
    for number in (0, count // 2, count - 1)[: count or 0]:
        assert store.message_at(answers[number].msg_id).body == b"%d" % number


def test_nothing_is_stored_when_what_brings_the_messages_raises() -> None:
    def broken() -> Iterator[Message]:
        yield from [FINE] * MANY
        raise LookupError("the source is gone")

    store = opened(SMALL)
    with pytest.raises(LookupError, match="the source is gone"):
        store.put_many(broken())
    assert Probe(store).log_end == 0
    assert store.put(FINE).queue_offset == 0


@pytest.mark.parametrize("count", [2, MANY])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (replace(FINE, tags=["a"]), "tags"), (replace(FINE, body="text"), "body"), ("text", "message"),
        (None, "message"), (replace(FINE, queue_id="1"), "queue_id"),
    ],
)  # fmt: skip
def test_nothing_is_stored_when_one_is_of_wrong_type(count: int, wrong: Any, words: str) -> None:
    store = opened(SMALL)
    with pytest.raises(WrongType, match=words):
        store.put_many([*[FINE] * count, wrong, *[FINE] * count])
    assert Probe(store).log_end == 0
    assert store.put(FINE).is_stored


def test_nothing_is_stored_when_a_hook_raises() -> None:
    def hook(message: Message) -> Message:
        if message.tags == "bad":
            raise LookupError("no such customer")
        return message

    store = opened(SMALL, hooks=[hook])
    with pytest.raises(LookupError, match="no such customer"):
        store.put_many([*[FINE] * MANY, replace(FINE, tags="bad")])
    assert Probe(store).log_end == 0


@pytest.mark.parametrize("count", [2, MANY])
def test_each_by_itself_is_answered_by_its_own_mistake(count: int) -> None:
    def hook(message: Message) -> Message:
        if message.tags == "bad":
            raise LookupError("no such customer")
        return message

    strangers: list[Any] = ["text", replace(FINE, keys=5), replace(FINE, tags="bad"), replace(FINE, topic="a/b")]
    for hooks in ([], [hook]):
        store = opened(SMALL, hooks=hooks)
        answers = store.put_each([*[FINE] * count, *strangers, *[FINE] * count])
        kinds = [type(answer) for answer in answers[count:-count]]
        assert kinds == [WrongType, WrongType, LookupError if hooks else PutResult, PutResult]
        stored = [answer.queue_offset for answer in answers if isinstance(answer, PutResult) and answer.is_stored]
        assert stored == list(range(2 * count + (not hooks)))


@pytest.mark.parametrize("messages", [FINE, "text", b"bytes", 5, None])
def test_what_is_not_several_messages_is_refused(messages: Any) -> None:
    with pytest.raises(WrongType, match="several messages"):
        opened(SMALL).put_many(messages)


@pytest.mark.parametrize("count", [3, MANY])
def test_they_wait_for_the_disk_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(CONFIGS["sync"])
    syncs: list[int] = []
    sync_to = Watermarks.sync_to
    monkeypatch.setattr(
        Watermarks, "sync_to", lambda marks, end, *more: syncs.append(end) or sync_to(marks, end, *more)
    )
    store.put_many([FINE] * count)
    assert syncs == [Probe(store).log_end]
    assert Probe(store).flushed == Probe(store).log_end
    store.put_many([replace(FINE, wait_store_ok=False)] * count)
    assert len(syncs) == 1


@pytest.mark.parametrize("count", [1, 2, 3, MANY])
@pytest.mark.parametrize("odd", [[], [replace(FINE, wait_store_ok=False)], [replace(FINE, topic="")]], ids=len)
def test_all_that_wait_are_told_that_the_disk_did_not_answer(
    count: int, odd: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first, the last, and those beside one that does not wait, or that is refused."""
    store = opened(CONFIGS["sync"])
    monkeypatch.setattr(Watermarks, "sync_to", lambda marks, end, *more: False)
    for messages in ([*odd, *[FINE] * count], [*[FINE] * count, *odd]):
        statuses = [answer.status for answer in store.put_each(messages)]
        waiting = [status for message, status in zip(messages, statuses, strict=True) if message is FINE]
        assert waiting == [PutStatus.FLUSH_DISK_TIMEOUT] * count


class FullDisk(MemoryDisk):
    """Takes no more files once `is_full`."""

    is_full = False

    def create(self, path: str, size: int) -> DiskFile:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().create(path, size)


def test_a_full_disk_refuses_those_that_need_the_next_file_only() -> None:
    """A short message still goes into the present file, as that of a single put."""
    found = []
    for one_by_one in (True, False):
        disk = FullDisk()
        store = opened(replace(SMALL, log_file_size=4096), disk)
        store.put_many([replace(FINE, body=bytes(800))] * 3)
        messages = [replace(FINE, body=bytes(size)) for size in (100, 3000, 50, 3000, 60)]
        disk.is_full = True
        found.append([store.put(each) for each in messages] if one_by_one else store.put_many(messages))
    assert found[0] == found[1]
    assert [each.is_stored for each in found[0]] == [True, False, True, False, True]


@pytest.mark.parametrize("count", [3, MANY])
def test_a_store_that_is_closed_answers_so(count: int) -> None:
    store = opened(SMALL)
    store.close()
    answers = store.put_many([FINE] * count)
    assert [answer.status for answer in answers] == [PutStatus.SERVICE_NOT_AVAILABLE] * count
    assert answers == [store.put(FINE)] * count


def test_a_disk_that_fails_ends_in_durability_lost() -> None:
    disk = BreakingDisk(MemoryDisk())
    store = opened(CONFIGS["sync"], disk)
    store.put(FINE)
    disk.broken = "/commitlog/"
    with pytest.raises(DurabilityLost):
        store.put_many([FINE] * MANY)


def test_a_store_on_the_disk_takes_many(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "s"), StoreConfig(flush="SYNC")) as store:
        answers = store.put_many([FINE] * MANY)
        assert {answer.status for answer in answers} == {PutStatus.PUT_OK}
    with open_store(str(tmp_path / "s")) as store:
        assert store.bounds("plain", 1) == (0, MANY)


def test_a_buffer_that_is_filled_again_is_copied(tmp_path: Path) -> None:
    def chunks() -> Iterator[Message]:
        buffer = bytearray(4)
        for number in range(300):
            buffer[:] = b"%04d" % number
            yield Message("t", buffer)

    with open_store(tmp_path / "s", StoreConfig(preallocate=False), workers=False) as store:
        store.put_many(chunks())
        store.put_each(chunks())
        store.flush()
    rows = open_snapshot(tmp_path / "s").scan(["t"], columns=["body"]).read_all()
    found = rows["body"].to_pylist()
    assert found == [b"%04d" % number for number in range(300)] * 2


class Sulking(dict[str, str]):
    """Properties that cannot be had."""

    def items(self) -> Any:
        raise LookupError("no")


@pytest.mark.parametrize("count", [3, 300])
def test_each_error_of_a_message_is_its_own(count: int, tmp_path: Path) -> None:
    gone = memoryview(b"abc")
    gone.release()
    plain = [Message("t", b"x")] * count
    with open_store(tmp_path / "s", StoreConfig(preallocate=False), workers=False) as store:
        for odd in (Message("t", gone), Message("t", b"y", properties=Sulking(a="b"))):  # type: ignore[arg-type]
            answers = store.put_each([*plain, odd, *plain])
            assert isinstance(answers[count], Exception)
            assert all(each.is_stored for number, each in enumerate(answers) if number != count)  # type: ignore[union-attr]
        store.flush()
        assert store.get("t", 0, 0).max_offset == 4 * count
