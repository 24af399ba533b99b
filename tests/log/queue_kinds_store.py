"""A store with queues of every kind, put together without threads: what `engine.store` does, for these tests."""

from dataclasses import replace
from typing import Any

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.directory.queue_kinds import QueueKinds
from rmqstore.engine.log.derived.derived_flush import DerivedFlush, LogFlush
from rmqstore.engine.log.derived.dispatch_loop import DispatchLoop, FollowedLog
from rmqstore.engine.log.get.fetch import Fetch
from rmqstore.engine.log.opening import begin, mark_closed
from rmqstore.engine.log.put.appender import AfterPut, Appender
from rmqstore.engine.log.put.commitlog import CommitLog
from rmqstore.engine.log.put.gate import Gate
from rmqstore.engine.log.recovery.apply import apply, open_parts
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.formats.names import ABORT_FILE
from tests.crash.disks import MemoryDisk

ROOT = "/store"
SIZES = {"log_file_size": 4096, "queue_file_size": 100, "index_slot_count": 16, "index_item_count": 40}
KINDS = QueueKinds(
    multi_dispatch=True, light_queue_max=4, extension=True, extension_file_size=200, batch_file_size=46 * 3,
    is_batch_topic=lambda topic: topic.startswith("batch"),
)  # fmt: skip
DERIVED = ("consumequeue", "batchconsumequeue", "consumequeue_ext")


class KindsStore:
    """Opened when it is made; `close` ends it cleanly."""

    def __init__(
        self, disk: FileSystem, kinds: QueueKinds = KINDS, *, clock: ManualClock | None = None, root: str = ROOT,
        **changes: Any,
    ) -> None:  # fmt: skip
        self.disk, self.root = disk, root
        self.clock = clock or ManualClock()
        config = StoreConfig(**(SIZES | changes))
        disk.make_directories(root)
        found = disk if disk.exists(join(root, "commitlog")) else _bare(root)
        made = plan_recovery(found, root, config, kinds, keeps_records=True)
        self.plan = made if found is disk else None
        begin(disk, made)
        self.parts = parts = open_parts(disk, made, config, self.clock, kinds=kinds)
        apply(made, parts)
        self.log = CommitLog(parts.log, made.log_end)
        self.log.next_offsets.update(parts.queues.next_offsets())
        self.queues = parts.queues
        self._config = config
        self.put_from(config.store_host)
        self.fetch = Fetch(self.log, parts.queues, parts.index, batches=parts.queues.batches)
        self.dispatch = DispatchLoop(
            FollowedLog(self.log, lambda: self.log.readable_end, parts.log.file_size), parts.dispatchers,
            position=made.log_end, clock=self.clock,
        )  # fmt: skip
        self._log_flush = LogFlush(self.log, config, parts.checkpoint, self.clock)
        self._derived_flush = DerivedFlush(parts.queues, parts.index, parts.checkpoint, 1000)

    def put_from(self, host: str) -> None:
        """Has what is put from now on come from this store host."""
        config = replace(self._config, store_host=host)
        self.appender = Appender(self.log, config, self.clock, Gate(), AfterPut(lambda: None), self.queues.kinds)

    def put(self, topic: str, body: bytes = b"hello", **fields: Any) -> PutResult:
        """Puts one message, a little later than the one before."""
        self.clock.advance(700)
        return self.appender.put(Message(topic, body, **fields))

    def put_batch(self, topic: str, bodies: list[bytes], **fields: Any) -> PutResult:
        """Puts one batch."""
        self.clock.advance(700)
        return self.appender.put_batch([Message(topic, body, **fields) for body in bodies])

    def flush(self) -> None:
        """Everything is durable and dispatched."""
        self._log_flush.flush()
        self.dispatch.catch_up()
        self._derived_flush.flush()

    def close(self) -> None:
        """Ends it cleanly."""
        self._log_flush.flush()
        self.dispatch.catch_up()
        self._derived_flush.flush(whole_index=True)
        mark_closed(self.disk, self.root)
        self.parts.handles.close()

    def bodies(self, topic: str, queue_id: int = 0, tags: str = "*") -> list[bytes | None]:
        """The bodies of all messages of a queue, from its start on."""
        queue = self.queues.find(topic, queue_id) or self.queues.batches.find(topic, queue_id)
        if queue is None:
            return []
        offset, found = queue.min_offset, []
        while offset < queue.max_offset:
            answer = self.fetch.get(topic, queue_id, offset, 3, tags=tags)
            assert answer.next_offset > offset, answer
            found += [message.body for message in answer.messages]
            offset = answer.next_offset
        return found

    def entries(self, topic: str, queue_id: int = 0) -> list[tuple[int, int, int]]:
        """All entries of a plain or light queue."""
        queue = self.queues.find(topic, queue_id)
        return [] if queue is None else queue.read(queue.min_offset, queue.max_offset).tolist()


def _bare(root: str) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directories(join(root, "commitlog"))
    return disk


def light(*names: str, **more: str) -> dict[str, str]:
    """The properties of a message for light queues."""
    return {"INNER_MULTI_DISPATCH": ",".join(names), **more}


def write_some(store: KindsStore, turn: int = 0) -> None:
    """Puts of every kind; all of them are stored."""
    for number in range(6):
        results = [
            store.put("orders", b"o%d-%d" % (turn, number), tags="ab"[number % 2], keys=f"k{turn}-{number}"),
            store.put("orders", b"l%d-%d" % (turn, number), tags="c", properties=light("%LMQ%x", "%LMQ%y")),
            store.put("refunds", b"r%d-%d" % (turn, number) * 30, properties=light("%LMQ%y", UNIQ_KEY="U"), queue_id=1),
            store.put_batch("batches", [b"b%d-%d-%d" % (turn, number, each) for each in range(number + 1)]),
        ]
        assert {result.status for result in results} == {PutStatus.PUT_OK}


def derived(files: dict[str, bytes], root: str = ROOT) -> dict[str, bytes]:
    """The queue files of all kinds, by path."""
    return {path: data for path, data in files.items() if path.removeprefix(f"{root}/").startswith(DERIVED)}


def rebuilt(files: dict[str, bytes], kinds: QueueKinds = KINDS, **changes: Any) -> dict[str, bytes]:
    """`derived` as they come out when all queues are built from the log alone."""
    disk = MemoryDisk()
    for path, data in files.items():
        if "/commitlog/" in path or path.startswith(f"{ROOT}/config/"):
            disk.put_file(path, data)
    disk.put_file(join(ROOT, ABORT_FILE), b"")
    KindsStore(disk, kinds, **changes)
    return derived(disk.image())
