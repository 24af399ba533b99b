"""What readers find of a store in memory, queue by queue."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import pytest

from rmqstore import Snapshot, UnknownTopic, open_snapshot
from rmqstore.core.message import Message
from tests.crash.disks import MemoryDisk
from tests.deletions.histories import NOTE, ROOT, Queue, opened

MODES = ("auto", "queue", "commitlog")
NONE: Mapping[Queue, int] = {}


def forget(disk: MemoryDisk) -> None:
    """Removes the note of deletions."""
    if disk.exists(NOTE):
        disk.remove(NOTE)


def rows_in(
    store: MemoryDisk | Snapshot,
    topics: list[str] | None,
    mode: str,
    begins: Mapping[Queue, int] = NONE,
    **options: object,
) -> dict[Queue, list[bytes]]:
    """The bodies by queue, in the order of their offsets, which have no hole and begin at 0, or as `begins` says."""
    columns = ["topic", "queueId", "queueOffset", "body"]
    snapshot = open_snapshot(ROOT, disk=store) if isinstance(store, MemoryDisk) else store
    table = snapshot.scan(topics, columns=columns, scan_mode=mode, **options).read_all()  # type: ignore[arg-type]
    found: dict[Queue, list[bytes]] = {}
    for topic, queue_id, offset, body in sorted(zip(*(table[name].to_pylist() for name in columns), strict=True)):
        bodies = found.setdefault((topic, queue_id), [])
        assert offset == begins.get((topic, queue_id), 0) + len(bodies)
        bodies.append(body)
    return found


def check_readers(
    disk: MemoryDisk,
    wanted: dict[Queue, list[bytes]],
    gone: AbstractSet[str] = frozenset(),
    begins: Mapping[Queue, int] = NONE,
) -> None:
    """Every way to read finds these, in all topics and in each; a topic that is `gone` is not known."""
    snapshot = open_snapshot(ROOT, disk=disk)
    for mode in MODES:
        for policy in ("fail", "skip"):
            assert rows_in(snapshot, None, mode, begins, on_corrupt_record=policy) == wanted
            for topic in {key[0] for key in wanted}:
                one = {key: bodies for key, bodies in wanted.items() if key[0] == topic}
                assert rows_in(snapshot, [topic], mode, begins, on_corrupt_record=policy) == one
        for topic in gone:
            with pytest.raises(UnknownTopic):
                rows_in(snapshot, [topic], mode)


def check_opening(
    disk: MemoryDisk, found: dict[Queue, list[bytes]], *into: Queue, begins: Mapping[Queue, int] = NONE
) -> None:
    """Whoever opens the store for writing changes no row, and what is put then, to a queue of each topic or to those
    that are named, comes after the others.  That the note is lost once more changes nothing.
    """
    queues = into or tuple({key[0]: key for key in found}.values())
    with opened(disk) as store:
        for topic, queue_id in queues:
            assert store.put(Message(topic, b"last", queue_id=queue_id)).is_stored
    after = {key: [*bodies, b"last"] if key in queues else bodies for key, bodies in found.items()}
    for _ in range(2):
        assert [rows_in(disk, None, mode, begins) for mode in MODES] == [after] * len(MODES)
        forget(disk)
