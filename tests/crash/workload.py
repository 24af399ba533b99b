"""What is done to a store while its disk crashes or fails, what it acknowledged, and what must be true afterwards.

A `Ledger` stands outside of the store, like the producers that were told "stored".  `check` holds a store that was
opened after a crash against it, `check_recovered` the disk as a whole: queues and index against a store that is built
from the log alone, a second recovery against the first, and that the store goes on.
"""

import enum
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.ledger_config import LedgerConfig
from rmqstore.core.message import GetStatus, Message, PutResult, PutStatus
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import DurabilityLost, NotNow
from rmqstore.files.filesystem import DiskFile, FileSystem
from tests.crash.disks import Choice, MemoryDisk, Operation, WatchedDisk
from tests.crash.strides import every, first, stride
from tests.snapshot.read_disk import found_by_verify

ROOT = "/store"
DERIVED = ("consumequeue", "index", "checkpoint", "dledger-n0/index")
LOGS = ("/commitlog/", "/dledger-n0/data/")
SMALL = {
    "log_file_size": 4096,
    "queue_file_size": 200,
    "index_slot_count": 5,
    "index_item_count": 9,
    "flush_interval_ms": 0,
    "flush_thorough_interval_ms": 0,
    "busy_timeout_ms": 10_000_000,
}
SYNC = StoreConfig(flush="SYNC", **SMALL)
ASYNC = StoreConfig(flush="ASYNC", flush_least_pages=1, **(SMALL | {"flush_thorough_interval_ms": 10_000}))
POOL = StoreConfig(flush="ASYNC", pool_buffers=2, **SMALL)
ALONE = StoreConfig(flush="SYNC", preallocate=False, index_enabled=False, append_property_crc=True, **SMALL)

MANY = 130  # messages that are made into records in vectors
# Of the keys before the newest the quick part asks every n-th: each question looks into every file of the index.
_KEYS_MIN, _KEYS_QUICK = 12, 7

LEDGER = replace(SYNC, dledger=LedgerConfig(index_file_size=640))


class Fate(enum.Enum):
    """What the producer was told."""

    UNKNOWN = "unknown"  # nothing, or an error: it may be stored
    REFUSED = "refused"
    STORED = "stored"


@dataclass(slots=True)
class Sent:
    """One message that was handed to the store."""

    body: bytes
    topic: str
    queue_id: int
    key: str
    tags: str | None = None
    fate: Fate = Fate.UNKNOWN
    deletion: int | None = None  # of its topic, by number


@dataclass(slots=True)
class Ledger:
    """All that was sent, in order.  The first `durable_count` survive a power cut: a sync was confirmed after them.

    `deletions` says of each deletion of a topic whether it was confirmed: then none of its messages is there; else all
    are or none.
    """

    sent: list[Sent] = field(default_factory=list)
    durable_count: int = 0
    deletions: list[bool] = field(default_factory=list)

    def copy(self) -> "Ledger":
        return Ledger([replace(each) for each in self.sent], self.durable_count, [*self.deletions])

    def delete(self, topic: str) -> int:
        """The number of a deletion that begins."""
        self.deletions.append(False)
        number = len(self.deletions) - 1
        for each in self.sent:
            if each.topic == topic and (each.deletion is None or not self.deletions[each.deletion]):
                each.deletion = number
        return number

    def hidden(self, present: set[bytes]) -> set[bytes]:
        """Which messages went with their topic, given those that are there."""
        back = {each.deletion for each in self.sent if each.body in present} - {None}
        confirmed = [number for number in back if number is not None and self.deletions[number]]
        assert not confirmed, "a topic that was deleted is back"
        return {each.body for each in self.sent if each.deletion is not None and each.deletion not in back}

    def new(self, topic: str, queue_id: int, size: int) -> Sent:
        number = len(self.sent)
        body = f"<{number}>".encode().ljust(size, b".")
        each = Sent(body, topic, queue_id, f"key{number}" if number % 3 else "")
        self.sent.append(each)
        return each

    def settle(self, batch: Sequence[Sent], result: PutResult, durable: bool) -> None:
        """The store's answer to a put of these."""
        for number, each in enumerate(batch):
            each.fate = Fate.STORED if number < result.message_count else Fate.REFUSED
        if durable and result.status is PutStatus.PUT_OK:
            self.durable_count = len(self.sent)

    def keep_only(self, bodies: Sequence[bytes]) -> None:
        """After a crash: what was lost will not come back, what is there is durable."""
        present = set(bodies)
        for each in self.sent:
            each.fate = Fate.STORED if each.body in present else Fate.REFUSED
            each.deletion = None
        self.durable_count = len(self.sent)


class Workload:
    """A producer with a store of its own.  Any method may raise what the disk raises; `ledger` is right even so."""

    def __init__(self, fs: FileSystem, config: StoreConfig, clock_step_ms: int = 1900) -> None:
        self.ledger = Ledger()
        self.clock = ManualClock()
        self.errors: list[BaseException] = []
        self._fs = fs
        self._config = config
        self._clock_step_ms = clock_step_ms
        self.store: Store | None = None
        self.is_latched = False

    def open(self) -> None:
        if self.store is None:
            self.store = open_store(ROOT, self._config, clock=self.clock, filesystem=self._fs, workers=False)
            self.is_latched = False

    def close(self) -> None:
        store = self._opened()
        self.store = None
        store.close()
        self.ledger.durable_count = len(self.ledger.sent)

    def put(self, topic: str, queue_id: int, size: int = 20, waits: bool = True) -> None:
        store, each = self._opened(), self.ledger.new(topic, queue_id, size)
        each.tags = "paid"
        message = Message(topic, each.body, keys=each.key, tags="paid", queue_id=queue_id, wait_store_ok=waits)
        self._put([each], lambda: store.put(message), waits)

    def put_batch(self, topic: str, queue_id: int, sizes: Sequence[int]) -> None:
        store, batch = self._opened(), [self.ledger.new(topic, queue_id, size) for size in sizes]
        messages = [Message(topic, each.body, keys=each.key, queue_id=queue_id) for each in batch]
        self._put(batch, lambda: store.put_batch(messages), True)

    def put_columns(self, rows: Sequence[tuple[str, int, int]]) -> None:
        store, batch = self._opened(), [self.ledger.new(*row) for row in rows]
        table = pa.table(
            {
                "topic": [each.topic for each in batch],
                "queueId": pa.array([each.queue_id for each in batch], pa.int32()),
                "body": pa.array([each.body for each in batch], pa.binary()),
                "keys": [each.key for each in batch],
            }
        )
        self._put(batch, lambda: store.put_columns(table), True)

    def put_many(self, rows: Sequence[tuple[str, int, int]], waits: bool = True) -> None:
        store, batch = self._opened(), [self.ledger.new(*row) for row in rows]
        messages = [
            Message(each.topic, each.body, keys=each.key, queue_id=each.queue_id, wait_store_ok=waits) for each in batch
        ]
        answers: list[PutResult] = []

        def put() -> PutResult:
            answers.extend(store.put_many(messages))
            return next((answer for answer in reversed(answers) if answer.is_stored), answers[-1])

        self._put(batch, put, waits)
        for each, answer in zip(batch, answers, strict=True):  # a shorter one may have found room after a refusal
            each.fate = Fate.STORED if answer.is_stored else Fate.REFUSED

    def delete_topic(self, topic: str) -> None:
        """An error is no answer: the topic is there as a whole, or gone, also for whoever opens the store next."""
        store = self._opened()
        number = self.ledger.delete(topic)
        try:
            self.ledger.deletions[number] = store.delete_topic(topic)
        except OSError as error:
            self.errors.append(error)

    def flush(self) -> None:
        self._opened().flush()
        self.ledger.durable_count = len(self.ledger.sent)

    def step(self) -> None:
        self.clock.advance(self._clock_step_ms)
        self._opened().step()

    def lose_the_pool(self) -> None:
        """What was acknowledged while it was in the write pool's memory only: a disk that takes no more loses it."""
        if self._config.pool_buffers:
            for each in self.ledger.sent[self.ledger.durable_count :]:
                each.fate = Fate.UNKNOWN if each.fate is Fate.STORED else each.fate

    def _put(self, batch: list[Sent], put: Callable[[], PutResult], waits: bool) -> None:
        self.clock.advance(self._clock_step_ms)
        try:
            result = put()
        except DurabilityLost:
            if self.is_latched:  # it had let go of the log before: nothing of this was written
                for each in batch:
                    each.fate = Fate.REFUSED
            self.is_latched = True
            raise
        assert not self.is_latched or not result.is_stored, "a put was taken after durability was lost"
        self.ledger.settle(batch, result, waits and self._config.flush == "SYNC")

    def _opened(self) -> Store:
        assert self.store is not None
        return self.store


Action = Callable[[Workload], None]


def actions() -> list[Action]:
    """The workload: every way to put, rolls of all three kinds of files, flushes, workers' steps, a reopening."""
    return [
        lambda load: load.open(),
        lambda load: load.put("orders", 0),
        lambda load: load.put("orders", 1, 300),
        lambda load: load.step(),
        lambda load: load.put_batch("orders", 0, [10, 700, 10]),
        lambda load: load.put("refunds", 0, 900, waits=False),
        lambda load: load.step(),
        lambda load: load.put("orders", 0, 1500),
        lambda load: load.put("orders", 1, 1200),  # the log's second file
        lambda load: load.put_columns([("orders", row % 2, 30 + row) for row in range(7)]),
        lambda load: load.flush(),
        lambda load: load.put("orders", 1, 5),
        lambda load: load.put("orders", 0, 5, waits=False),
        lambda load: load.put("refunds", 0, 6, waits=False),
        lambda load: load.delete_topic("refunds"),  # partly not dispatched
        lambda load: load.put("refunds", 0, 7),
        lambda load: load.close(),
        lambda load: load.open(),
        lambda load: load.put("refunds", 0, 2000),
        lambda load: load.step(),
        lambda load: load.put_columns([("orders", 0, 500) for _ in range(8)]),  # the third, within one call
        lambda load: load.put_many([("late", 3, 900), ("orders", 1, 300), ("late", 3, 10)]),
        lambda load: load.put("late", 3, 50),
        lambda load: load.step(),
        lambda load: load.put_batch("orders", 1, [20] * 4),
        lambda load: load.put("orders", 0, 3000),  # the fourth
        lambda load: load.put("late", 3, 60, waits=False),
        lambda load: load.step(),
        lambda load: load.delete_topic("late"),
        lambda load: load.put("refunds", 0, 10),
        lambda load: load.put("orders", 0, 10, waits=False),
    ]  # fmt: skip


def actions_of_many() -> list[Action]:
    """Many messages in one put, in vectors, over the ends of files and beside single ones."""
    return [
        lambda load: load.open(),
        lambda load: load.put("orders", 0, 300),
        lambda load: load.put_many([("orders", row % 2, 1) for row in range(MANY)]),
        lambda load: load.step(),
        lambda load: load.put_many([("refunds", row % 3, 1) for row in range(MANY)], waits=False),
        lambda load: load.put("refunds", 0, 10),
        lambda load: load.close(),
    ]


def run(load: Workload, script: Sequence[Action]) -> None:
    """Does it all, going on after errors as a stubborn program does: the ledger says what must hold all the same.

    Raises AssertionError for an error that no method of a store says it raises.
    """
    for action in script:
        if load.store is None:
            try:
                load.open()
            except OSError as error:
                load.errors.append(error)
                continue
        try:
            action(load)
        except (DurabilityLost, NotNow) as error:
            load.errors.append(error)
            if isinstance(error, DurabilityLost):
                load.lose_the_pool()
        except OSError as error:
            if load.store is not None:
                raise AssertionError(f"a bare {error!r} came out of a store") from error
            load.errors.append(error)


class Moments(WatchedDisk):
    """In front of a MemoryDisk: takes what a crash just before each operation would leave, and the ledger's state.

    A moment is an operation and a choice of what the crash keeps; `count` is how many there were.  Where a run does not
    take all (strides.py), every `quick`-th is taken.
    """

    def __init__(
        self, inner: MemoryDisk, choices: Sequence[Choice], ledger: Callable[[], Ledger], quick: int = 1
    ) -> None:
        super().__init__(inner)
        self.taken: list[tuple[Operation, Choice, MemoryDisk, Ledger]] = []
        self.count = 0
        self._stride = stride(quick)
        self._choices = choices
        self._ledger = ledger

    def _is_taken(self) -> bool:
        self.count += 1
        return (self.count - 1) % self._stride == first(self._stride)

    def before(self, operation: Operation) -> None:
        assert isinstance(self.inner, MemoryDisk)
        for choice in self._choices:
            if self._is_taken():
                self.taken.append((operation, choice, self.inner.crash(choice), self._ledger().copy()))

    def create(self, path: str, size: int) -> DiskFile:
        """It may also stop half-way, with the name and a part of the room."""
        assert isinstance(self.inner, MemoryDisk)
        for part in dict.fromkeys((0, size // 2)):
            if not self._is_taken():
                continue
            partial = self.inner.crash("killed")
            with suppress(FileExistsError):
                partial.create(path, 0)
            partial.open(path).truncate(part)
            operation = Operation(self.operations + 1, "create", path)
            self.taken.append((operation, "kept", partial.crash("kept"), self._ledger().copy()))
        return super().create(path, size)


def stored_bodies(store: Store, ledger: Ledger) -> list[bytes]:
    """The bodies of all messages in the order of the log, each queue read from its beginning to its end.

    Raises AssertionError where a queue, a message or a key is not as it should be.
    """
    found: list[tuple[int, bytes]] = []
    by_body = {each.body: each for each in ledger.sent}
    for topic, queue_id in store.queues():
        first, behind = store.bounds(topic, queue_id)
        assert first == 0, (topic, queue_id, first)
        offset = first
        while (answer := store.get(topic, queue_id, offset)).status is GetStatus.FOUND:
            for message in answer.messages:
                assert message.queue_offset == offset, (topic, queue_id, offset, message.queue_offset)
                assert message.is_whole, message.corrupt_reason
                assert message.body is not None, f"{topic}/{queue_id} @ {offset} has no body"
                sent = by_body.get(message.body)
                assert sent is not None, f"{message.body[:20]!r} was never put"
                assert (sent.topic, sent.queue_id) == (message.topic, message.queue_id) == (topic, queue_id)
                assert (message.keys or "", message.tags) == (sent.key, sent.tags), f"other properties: {message!r}"
                found.append((message.physical_offset, message.body))
                offset += 1
        assert answer.status is GetStatus.OFFSET_OVERFLOW_ONE, (topic, queue_id, offset, answer.status)
        assert offset == behind, (topic, queue_id, offset, behind)
    found.sort()
    return [body for _, body in found]


def check(store: Store, ledger: Ledger, *, is_power_cut: bool = True) -> list[bytes]:
    """Holds a store that was opened after a crash against the ledger; returns its messages' bodies.

    All that was durable is there, and what is there is a beginning of what was put: nothing missing in between, nothing
    that was never put or that was refused, in the order of the puts.  If only the program ended, all that was taken is
    there.
    """
    bodies = stored_bodies(store, ledger)
    hidden = ledger.hidden(set(bodies))
    wanted = [each for each in ledger.sent if each.fate is not Fate.REFUSED and each.body not in hidden]
    check_tables(store, ledger)
    numbers = {each.body: number for number, each in enumerate(ledger.sent)}
    place = 0
    for body in bodies:
        while place < len(wanted) and wanted[place].body != body:
            each = wanted[place]
            assert each.fate is Fate.UNKNOWN, f"{each.body[:20]!r} is missing before {body[:20]!r}"
            place += 1
        assert place < len(wanted), f"{body[:20]!r} is out of order, or was refused"
        place += 1
    for each in wanted[place:]:
        was_safe = numbers[each.body] < ledger.durable_count or not is_power_cut
        assert not (was_safe and each.fate is Fate.STORED), f"{each.body[:20]!r} was acknowledged and is lost"
    if store.config.index_enabled:
        present = set(bodies)
        keyed = [each for each in ledger.sent if each.key and each.body in present]
        for each in (*every(_KEYS_QUICK, keyed[:-_KEYS_MIN]), *keyed[-_KEYS_MIN:]):
            answers = [message.body for message in store.query(each.topic, each.key)]
            assert answers == [each.body], f"the key {each.key!r} finds {answers!r}"
    return bodies


def check_tables(store: Store, ledger: Ledger) -> None:
    """A topic is in no table that was deleted, and to which nothing was put since."""
    for topic in {each.topic for each in ledger.sent}:
        numbers = {each.deletion for each in ledger.sent if each.topic == topic}
        if all(number is not None and ledger.deletions[number] for number in numbers):
            assert store.topics.find(topic) is None, f"{topic} is deleted, and in the table"


def check_disk(
    disk: MemoryDisk, config: StoreConfig, ledger: Ledger, *, is_power_cut: bool = True, thorough: bool = True
) -> list[bytes]:
    """Opens what a crash left and checks it all; the disk is changed.  Returns the bodies that were there.

    Thorough is: against a rebuild, a second recovery, and going on after it.  A store that counts as closed cleanly has
    nothing to recover and lacks nothing, synced or not when it was put.
    """
    was_clean = not disk.exists(f"{ROOT}/abort")
    if was_clean and ledger.sent:
        check_closed(disk, config)
    store = open_again(disk, config)
    bodies = check(store, ledger, is_power_cut=is_power_cut and not was_clean)
    check_sizes(disk, config)
    if config.dledger is not None:
        assert not [found for found in found_by_verify(disk, ROOT) if found[-1] != "note"]
    if thorough:
        check_rebuild(disk.image(), config)
        check_second_recovery(disk, config, was_clean)
        check_nothing_comes_back(disk, config, ledger, bodies)
        check_going_on(store, disk, config, ledger, bodies)
    return bodies


def check_closed(disk: MemoryDisk, config: StoreConfig) -> None:
    """Without the mark of being open all is on the disk: nobody has anything to recover, a broker neither."""
    plan = plan_recovery(disk, ROOT, config)
    assert plan.is_clean_exit
    assert plan.changes_nothing, "counts as closed, and lacks:\n" + "\n".join(plan.lines())


def open_again(disk: FileSystem, config: StoreConfig) -> Store:
    """The store on a disk, as the next program finds it: a day later."""
    return open_store(ROOT, config, clock=_later(), filesystem=disk, workers=False)


def check_rebuild(image: dict[str, bytes], config: StoreConfig) -> None:
    """Queues and index are what a recovery makes of the log alone."""
    disk = MemoryDisk()
    for path, content in image.items():
        if not any(path.startswith(f"{ROOT}/{name}") for name in DERIVED):
            disk.put_file(path, content)
    open_again(disk, config)
    assert derived_of(disk.image()) == derived_of(image), differences(derived_of(disk.image()), derived_of(image))


def check_sizes(disk: MemoryDisk, config: StoreConfig) -> None:
    """What was left of a file that was being made did not become the measure of all files."""
    for path, content in disk.image().items():
        if any(log in path for log in LOGS):
            assert len(content) == config.log_file_size, (path, len(content))
        elif "/consumequeue/" in path:
            assert len(content) == config.queue_file_size, (path, len(content))


def check_second_recovery(disk: MemoryDisk, config: StoreConfig, was_clean: bool) -> None:
    """Whatever a crash leaves of a recovered store, recovering it again changes no byte: all of it was on the disk.

    After a clean exit nothing was recovered, and the checkpoint is first written when something is.
    """
    before = comparable(disk.image())
    for choice in ("lost", "killed"):
        again = disk.crash(choice)
        open_again(again, config)
        after = comparable(again.image())
        if was_clean:
            after.pop(f"{ROOT}/checkpoint", None)
            before.pop(f"{ROOT}/checkpoint", None)
        assert after == before, differences(after, before)


def check_nothing_comes_back(disk: MemoryDisk, config: StoreConfig, ledger: Ledger, bodies: Sequence[bytes]) -> None:
    """A new record as long as the first one that was lost does not join what stood behind that one."""
    present = set(bodies)
    lost = next((each for each in ledger.sent if each.body not in present and each.fate is not Fate.REFUSED), None)
    if lost is None:
        return
    again = disk.crash("lost")
    store = open_again(again, config)
    sent = ledger.copy()
    sent.keep_only(bodies)
    new = replace(lost, body=lost.body[::-1], key=lost.key.swapcase(), fate=Fate.STORED, deletion=None)
    sent.sent.append(new)
    store.put(Message(new.topic, new.body, keys=new.key, tags=new.tags, queue_id=new.queue_id))
    store.flush()
    sent.durable_count = len(sent.sent)
    found = check(open_again(again.crash("lost"), config), sent)
    assert len(found) == len(bodies) + 1, "what was cut off came back"


def check_going_on(
    store: Store, disk: MemoryDisk, config: StoreConfig, ledger: Ledger, bodies: Sequence[bytes]
) -> None:
    """The store takes messages again, each queue from its end on, and after a clean end there is nothing to do."""
    sent = ledger.copy()
    sent.keep_only(bodies)
    for queue in sorted({(each.topic, each.queue_id) for each in sent.sent}):
        behind = store.bounds(*queue)[1]
        for size in (11, 1700):
            each = sent.new(*queue, size)
            result = store.put(Message(each.topic, each.body, keys=each.key, queue_id=each.queue_id))
            assert result.status is PutStatus.PUT_OK, result
            assert result.queue_offset == behind, (queue, result)
            behind += 1
            each.fate = Fate.STORED
    store.close()
    plan = plan_recovery(disk, ROOT, config)
    assert plan.is_clean_exit
    assert plan.changes_nothing, "\n".join(plan.lines())
    before = comparable(disk.image())
    sent.durable_count = len(sent.sent)
    last = open_again(disk, config)
    check(last, sent)
    assert comparable(disk.image()) == before, differences(comparable(disk.image()), before)


def derived_of(image: dict[str, bytes]) -> dict[str, bytes]:
    """Queues by path and index files in their order: their names are times."""
    queues = {path: content for path, content in image.items() if "/consumequeue/" in path}
    index = [content for path, content in sorted(image.items()) if "/index/" in path]
    return queues | {f"index {number}": content for number, content in enumerate(index)}


def comparable(image: dict[str, bytes]) -> dict[str, bytes]:
    """All that a store consists of, but the marks of being open, and files made ahead."""
    logs = {path: content for path, content in image.items() if any(log in path for log in LOGS)}
    others = {path: content for path, content in logs.items() if content.strip(b"\0")}
    return derived_of(image) | others | {path: image[path] for path in image if path.endswith("/checkpoint")}


def differences(one: dict[str, bytes], other: dict[str, bytes]) -> str:
    """Which files differ, and from which byte on."""
    lines = []
    for path in sorted({*one, *other}):
        left, right = one.get(path), other.get(path)
        if left is None or right is None:
            lines.append(f"{path}: only in the {'second' if left is None else 'first'}")
        elif left != right:
            place = next((at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), -1)
            lines.append(f"{path}: from {place} on {left[place : place + 40]!r} / {right[place : place + 40]!r}")
    return "\n".join(lines)


def _later() -> ManualClock:
    return ManualClock(ManualClock().ms + 86_400_000)
