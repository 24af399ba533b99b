"""Small stores on a disk in memory, recovered there, and what is compared afterwards."""

from dataclasses import dataclass

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.engine.log.opening import begin, mark_closed
from rmqstore.engine.log.recovery.apply import StoreParts, apply, open_parts
from rmqstore.engine.log.recovery.plan import RecoveryPlan
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.formats.checkpoint import Checkpoint, encode_checkpoint
from rmqstore.formats.names import format_start
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.crash.disks import MemoryDisk
from tests.snapshot.small_store import QUEUE_FILE_ENTRIES, SmallStore

ROOT = "/store"
QUEUE_FILE_SIZE = QUEUE_FILE_ENTRIES * QUEUE_ENTRY.size
SIZES = {"queue_file_size": QUEUE_FILE_SIZE, "index_slot_count": 16, "index_item_count": 40}


@dataclass(frozen=True)
class Recovered:
    """What a recovery came to."""

    plan: RecoveryPlan
    parts: StoreParts

    def entries(self, topic: str, queue_id: int) -> list[tuple[int, int]]:
        """Queue offset and place in the log of every entry that can be read."""
        queue = self.parts.queues.find(topic, queue_id)
        if queue is None:
            return []
        found = queue.read(queue.min_offset, queue.max_offset)["physical_offset"].tolist()
        return list(enumerate(found, queue.min_offset))

    def found(self, topic: str, key: str) -> list[int]:
        """Places in the log that the index knows for a key, ascending."""
        assert self.parts.index is not None
        return sorted(self.parts.index.query(topic, key, 0, 2**62))


def lay(store: SmallStore, *, abort: bool = False, checkpoint: Checkpoint | None = None) -> MemoryDisk:
    """The log and the queues of `store`, durable on a new disk."""
    disk = MemoryDisk()
    lay_log(disk, store)
    for (topic, queue_id), entries in store.entries.items():
        lay_queue(disk, topic, queue_id, b"".join(entries))
    if abort:
        disk.put_file(join(ROOT, "abort"), b"")
    if checkpoint is not None:
        disk.put_file(join(ROOT, "checkpoint"), encode_checkpoint(checkpoint))
    return disk


def lay_log(disk: MemoryDisk, store: SmallStore) -> None:
    """The log files of `store`, in place of those that are there."""
    for start, data in store.data.items():
        disk.put_file(join(ROOT, "commitlog", format_start(start)), bytes(data))


def lay_queue(disk: MemoryDisk, topic: str, queue_id: int, entries: bytes, start: int = 0) -> None:
    """Files of a queue with these entries, the first file at `start`."""
    for position in range(0, len(entries), QUEUE_FILE_SIZE):
        path = join(ROOT, "consumequeue", topic, str(queue_id), format_start(start + position))
        disk.put_file(path, entries[position : position + QUEUE_FILE_SIZE].ljust(QUEUE_FILE_SIZE, b"\0"))


def plan(disk: FileSystem, **changes: object) -> RecoveryPlan:
    """The plan for the store on `disk`."""
    return plan_recovery(disk, ROOT, StoreConfig(**(SIZES | changes)))


def recover(disk: FileSystem, *, keeps_records: bool = True, **changes: object) -> Recovered:
    """Recovers the store on `disk`, as opening it does; it stays open."""
    config = StoreConfig(**(SIZES | changes))
    made = plan_recovery(disk, ROOT, config, keeps_records=keeps_records)
    begin(disk, made)
    parts = open_parts(disk, made, config, ManualClock())
    apply(made, parts)
    return Recovered(made, parts)


def settled(store: SmallStore) -> MemoryDisk:
    """A clean store: queues, index and checkpoint of `store`'s log, nothing missing."""
    disk = lay(store, abort=True)
    recover(disk)
    mark_closed(disk, ROOT)
    return disk.crash("kept")


def image(disk: MemoryDisk) -> dict[str, bytes]:
    """Every file by its path, but index files by their number: their names are times."""
    files = disk.image()
    indexes = [path for path in sorted(files) if "/index/" in path]
    numbered = {f"index {number}": files.pop(path) for number, path in enumerate(indexes)}
    for path in (join(ROOT, "abort"), join(ROOT, "lock")):
        files.pop(path, None)
    return files | numbered


def derived(disk: MemoryDisk) -> dict[str, bytes]:
    """The part of `image` that is made from the log: queues and index."""
    return {path: data for path, data in image(disk).items() if "consumequeue" in path or path.startswith("index")}


def rebuilt(disk: MemoryDisk) -> dict[str, bytes]:
    """`derived` of the same log when queues and index are built from nothing, each record read when it is wanted."""
    bare = MemoryDisk()
    for path, data in disk.image().items():
        if "/commitlog/" in path:
            bare.put_file(path, data)
    bare.put_file(join(ROOT, "abort"), b"")
    recover(bare, keeps_records=False)
    return derived(bare)


def keyed_store(count: int = 60, **sizes: int) -> SmallStore:
    """Messages with two keys each, in two queues."""
    store = SmallStore(**sizes)
    for number in range(count):
        names = {"TAGS": "A", "KEYS": f"key{number} all", "UNIQ_KEY": f"U{number}"}
        store.add("T", number % 2, body=b"body %d" % number, properties=names)
    return store


def all_there(found: Recovered, store: SmallStore, count: int | None = None) -> None:
    """Every message is in its queue, and found by its key."""
    offsets = store.offsets[:count]
    for queue_id in (0, 1):
        assert found.entries("T", queue_id) == list(enumerate(offsets[queue_id::2]))
    for number, offset in enumerate(offsets):
        assert found.found("T", f"U{number}") == [offset]


def killed(disk: MemoryDisk) -> MemoryDisk:
    disk.put_file(join(ROOT, "abort"), b"")
    return disk
