"""Queues are loaded by what the recovery's look knows of them: they come out as if every file was looked at again."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.broker.features import Duties, Features
from rmqstore.engine.log.derived.known_queues import NOTHING_KNOWN
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.engine.log.opening import mark_open
from rmqstore.engine.log.recovery.apply import StoreParts, apply, open_parts
from rmqstore.engine.log.recovery.plan import RecoveryPlan
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.engine.store import open_store
from rmqstore.errors import StoreError
from rmqstore.files.file_sequence import FileSequence
from rmqstore.files.filesystem import DiskFile, FileSystem
from rmqstore.formats import names
from rmqstore.formats.broker_json import TopicConfig
from tests.crash.disks import MemoryDisk, WatchedDisk
from tests.store.odd_messages import LIGHT, ROOT, SMALL, WHOLE, Caller

pytestmark = pytest.mark.stores

CONFIG = replace(SMALL, multi_dispatch=True, on_middle_damage="cut")
EXTENDED = replace(CONFIG, queue_extension=True, extension_file_size=200)
TOPICS = ("plain", "other", "batch", "%LMQ%a", "%LMQ%b", "new", names.SCHEDULE_TOPIC)

ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(["plain", "other"]), st.integers(0, 2), st.integers(1, 25)),
    st.tuples(st.just("whole"), st.just("batch"), st.integers(0, 1), st.integers(1, 9)),
    st.tuples(st.just("light"), st.sampled_from(["%LMQ%a", "%LMQ%a,%LMQ%b"]), st.integers(0, 1), st.integers(1, 12)),
    st.tuples(st.just("delete"), st.sampled_from(["plain", "other", "batch"]), st.just(0), st.just(1)),
    st.tuples(st.sampled_from(["flush", "again", "delayed"]), st.just("plain"), st.just(0), st.integers(1, 3)),
)
# What becomes of a file or directory of a queue, by number.
KINDS_OF_HARM = ("cut", "grow", "zero", "hole", "stray", "second name", "gone", "blank", "pre-blank", "empty")
HARM = st.lists(st.tuples(st.sampled_from(KINDS_OF_HARM), st.integers(0, 1000)), max_size=3)


def written(config: StoreConfig, actions: Sequence[tuple[str, str, int, int]]) -> Caller:
    """A store that these actions were done to, still open."""
    caller = Caller(config, {})
    for what, name, queue_id, count in actions:
        store = caller.store
        for _ in range(count):
            if what == "put":
                store.put(Message(name, b"x" * 60, queue_id=queue_id))
            elif what == "whole":
                store.put(replace(WHOLE, queue_id=queue_id))
            elif what == "light":
                store.put(replace(LIGHT, queue_id=queue_id, properties={"INNER_MULTI_DISPATCH": name}))
            elif what == "delayed":
                store.put(Message(name, b"later", properties={"DELAY": "2"}))
        if what == "delete":
            caller.do("delete", name)
        elif what in {"flush", "again"}:
            caller.do(what, None)
    return caller


def harmed(disk: MemoryDisk, harm: Sequence[tuple[str, int]]) -> None:
    """Does things to queue files and their directories."""
    for what, number in harm:
        files = {path: data for path, data in disk.image().items() if "consumequeue/" in path}
        if not files:
            return
        path, data = sorted(files.items())[number % len(files)]
        directory, name = path.rsplit("/", 1)
        place = number * 7 % len(data) // 20 * 20 if data else 0
        match what:
            case "cut":
                disk.put_file(path, data[:place])
            case "grow":
                disk.put_file(path, data + bytes(20))
            case "zero":
                disk.put_file(path, bytes(len(data)))
            case "blank":
                disk.put_file(path, data[:place].ljust(len(data), b"\0"))
            case "hole":
                disk.put_file(path, (data[:place] + bytes(20) + data[place + 20 :])[: len(data)])
            case "pre-blank":
                entry = b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 8
                disk.put_file(path, (data[:place] + entry + data[place + 20 :])[: len(data)])
            case "stray":
                disk.put_file(f"{(directory, directory.rsplit('/', 1)[0])[number % 2]}/notes.txt", b"mine")
            case "second name":
                disk.put_file(f"{directory.rsplit('/', 1)[0]}/0{directory.rsplit('/', 1)[1]}/{name}", data)
            case "gone":
                disk.remove(path)
            case "empty":
                disk.put_file(f"{directory}/{names.format_start(10**6)}", b"")


def table_of(queues: QueueTable) -> dict[str, Any]:
    """All that a table knows."""
    plain = [
        (each.topic, each.queue_id, each.min_offset, each.max_offset, each.max_physical, each.files.starts,
         files_of(each.files), None if each.extension is None else (each.extension.end, each.extension.files.starts))
        for each in queues.queues()
    ]  # fmt: skip
    batches = [
        (each.topic, each.queue_id, each.slots, each.min_offset, each.max_offset, each.max_physical, each.files.starts)
        for each in queues.batches.queues()
    ]
    kinds = queues.kinds.multi_dispatch, queues.kinds.extension, queues.kinds.extension_file_size
    of_batches = [topic for topic in TOPICS if queues.is_batch_topic(topic)]
    return {"plain": plain, "batches": batches, "kinds": kinds, "of batches": of_batches}


def files_of(files: FileSequence) -> list[str]:
    return [files.path_of(start) for start in files.starts]


class Opened:
    """What opening the store on a disk came to, with what the plan knows or without."""

    def __init__(self, disk: MemoryDisk, config: StoreConfig, *, quick: bool) -> None:
        self.disk = disk
        self.plan: RecoveryPlan | None = None
        self.parts: StoreParts | None = None
        self.outcome: Any = None
        clock = ManualClock()
        with suppress(FileExistsError):
            disk.lock(f"{ROOT}/lock")
        kinds = Features(disk, ROOT, config, clock, Duties(), lambda: None).queue_kinds()
        try:
            self.plan = plan_recovery(disk, ROOT, config, kinds, keeps_records=True)
            mark_open(disk, ROOT)
            self.parts = open_parts(disk, self.plan, config, clock, (), kinds)
            known = self.plan.known if quick else NOTHING_KNOWN
            self.outcome = apply(replace(self.plan, known=known), self.parts)
        except StoreError as error:
            self.outcome = type(error), str(error)

    @property
    def table(self) -> dict[str, Any] | None:
        return None if self.parts is None else table_of(self.parts.queues)


def loaded_plainly(opened: Opened) -> dict[str, Any]:
    """The table that the disk has now, each file looked at."""
    assert opened.plan is not None
    assert opened.parts is not None
    ours = opened.parts.queues
    table = QueueTable(opened.disk, opened.parts.handles, ROOT, opened.parts.queue_file_size, kinds=ours.kinds)
    table.load()
    table.correct_min(opened.plan.log_start)
    return table_of(table)


def both_ways(disk: MemoryDisk, config: StoreConfig) -> tuple[Opened, Opened]:
    """The store opened the quick way, and with all its files looked at again."""
    quick, slow = (Opened(disk.crash("kept"), config, quick=is_quick) for is_quick in (True, False))
    return quick, slow


def differences(disk: MemoryDisk, config: StoreConfig) -> list[str]:
    """What the two ways do not agree on: outcome, table, files, or the table that the files hold now."""
    quick, slow = both_ways(disk, config)
    found = [name for name in ("outcome", "table") if getattr(quick, name) != getattr(slow, name)]
    if quick.disk.image() != slow.disk.image():
        found.append("files")
    if isinstance(quick.outcome, list):
        plain, table = loaded_plainly(quick), quick.table
        assert table is not None
        for kind in ("plain", "batches"):
            plain[kind], table[kind] = sorted(plain[kind]), sorted(table[kind])
        found += ["loaded"] if table != plain else []
    return found


@pytest.mark.parametrize("config", [CONFIG, EXTENDED], ids=["plain", "extended"])
@settings(max_examples=60)
@given(
    actions=st.lists(ACTIONS, min_size=1, max_size=8), ended=st.sampled_from(["closed", "killed", "lost", "torn"]),
    harm=HARM, seed=st.integers(0, 1000),
)  # fmt: skip
def test_a_store_opened_the_quick_way_has_the_queues_of_one_whose_files_were_looked_at_again(
    config: StoreConfig, actions: list[tuple[str, str, int, int]], ended: str, harm: list[tuple[str, int]], seed: int
) -> None:
    caller = written(config, actions)
    caller.store.close() if ended == "closed" else caller.store.abandon()
    disk = caller.disk.crash({"lost": "lost", "torn": Random(seed)}.get(ended, "kept"))
    harmed(disk, harm)
    assert not differences(disk, config)


@pytest.mark.some(4)
@pytest.mark.parametrize("what", KINDS_OF_HARM)
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_whatever_became_of_a_single_file(what: str, is_closed: bool) -> None:
    caller = several_kinds()
    caller.store.close() if is_closed else caller.store.abandon()
    for number in range(0, 40, 3):
        disk = caller.disk.crash("kept")
        harmed(disk, [(what, number)])
        assert not differences(disk, CONFIG), number


def several_kinds() -> Caller:
    return written(
        CONFIG,
        [("put", "plain", 0, 25), ("put", "plain", 1, 3), ("put", "other", 0, 1), ("whole", "batch", 0, 9),
         ("light", "%LMQ%a", 0, 12), ("put", "new", 0, 2), ("delete", "new", 0, 1)],
    )  # fmt: skip


def test_all_plain_queues_of_a_closed_store_are_known() -> None:
    caller = several_kinds()
    caller.store.close()
    opened, _ = both_ways(caller.disk.crash("kept"), CONFIG)
    assert opened.plan is not None
    known = opened.plan.known
    assert set(known.queues) == {("plain", 0), ("plain", 1), ("other", 0), ("%LMQ%a", 0)}
    assert {topic: list(queue_ids) for topic, queue_ids in known.topics.items()} == {
        "%LMQ%a": [0], "other": [0], "plain": [0, 1],
    }  # fmt: skip
    assert known.queues["plain", 0].starts == (0, 200, 400, 600)
    assert known.queues["plain", 0].head is None
    start, head = known.queues["plain", 1].head or (-1, b"")
    assert (start, len(head)) == (0, 3 * 20)


def test_what_a_recovery_cuts_or_adds_to_is_looked_at_again() -> None:
    caller = written(CONFIG, [("put", "plain", 0, 3), ("put", "other", 0, 3), ("put", "new", 0, 3)])
    caller.store.close()
    disk = caller.disk.crash("kept")
    path = f"{ROOT}/consumequeue/plain/0/{names.format_start(0)}"
    disk.put_file(path, disk.image()[path][:40].ljust(200, b"\0"))  # lacks its last entry
    disk.put_file(f"{ROOT}/consumequeue/other/0/{names.format_start(200)}", bytes(200))  # a file with nothing in it
    opened, _ = both_ways(disk, CONFIG)
    assert not differences(disk, CONFIG)
    assert opened.plan is not None
    assert set(opened.plan.known.queues) == {("new", 0)}
    assert set(opened.plan.known.topics) == {"new"}
    assert opened.parts is not None
    assert opened.parts.queues.bounds("plain", 0) == opened.parts.queues.bounds("other", 0) == (0, 3)


class CountingDisk(WatchedDisk):
    """Counts how often files are opened and directories listed."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.opened: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()

    def open(self, path: str) -> DiskFile:
        self.opened[path] += 1
        return super().open(path)

    def entries(self, directory: str) -> Any:
        self.listed[directory] += 1
        return super().entries(directory)


def of_queues(counted: Counter[str]) -> Iterator[tuple[str, int]]:
    return ((path, count) for path, count in counted.items() if "/consumequeue/" in path)


def test_opening_opens_each_file_of_a_small_queue_once_and_lists_each_directory_once() -> None:
    caller = Caller(CONFIG, {})
    for number in range(12):
        caller.store.topics.put(TopicConfig(f"t{number}"))
        for queue_id in range(4):
            caller.store.put(Message(f"t{number}", b"x", queue_id=queue_id))
    caller.store.close()
    disk = CountingDisk(caller.disk.crash("kept"))
    store = open_store(ROOT, CONFIG, clock=ManualClock(), filesystem=disk, workers=False)
    opened, listed = dict(of_queues(disk.opened)), dict(of_queues(disk.listed))
    # Some queues are asked beforehand whether the log is theirs.
    assert sum(opened.values()) <= 48 + 16
    assert sorted(opened.values())[:30] == [1] * 30
    assert set(listed.values()) == {1}
    assert len(listed) == 12 + 48
    store.put(Message("t3", b"more", queue_id=2))
    store.flush()
    assert store.bounds("t3", 2) == (0, 2)
    store.close()
