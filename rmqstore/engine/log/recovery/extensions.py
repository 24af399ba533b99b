"""Extension files in a recovery: units that no entry of their queue points at any more are removed."""

from collections.abc import Sequence

from rmqstore.directory.listing import directories, file_with, numbered_files
from rmqstore.directory.queue_view import QueueView
from rmqstore.directory.store_view import StoreView
from rmqstore.engine.log.derived.queue_extension import last_address
from rmqstore.engine.log.recovery.plan import PlannedExtension, PlannedFile, PlannedQueue
from rmqstore.files.disk import StoredFile, read_part
from rmqstore.files.filesystem import join
from rmqstore.files.zeros import is_zero
from rmqstore.formats import names
from rmqstore.formats.names import EXTENSION_ROOM
from rmqstore.formats.queue_extension import EXTENSION_HEAD, UNIT_SIZE_MAX, address_to_offset, read_unit

_FAR_COUNT = 4096


def planned_extensions(store: StoreView, queues: Sequence[PlannedQueue]) -> tuple[PlannedExtension, ...]:
    """Every queue directory below consumequeue_ext/, given what stays of the queues' entries."""
    kept = {(queue.topic, queue.queue_id): queue.keep for queue in queues}
    planned = []
    for topic, topic_path in directories(store.disk, join(store.root, EXTENSION_ROOM)):
        for name, path in directories(store.disk, topic_path):
            queue_id = names.parse_queue_id(name)
            if queue_id is not None:
                queue = store.queues.get((topic, queue_id))
                planned.append(_planned(store, path, queue, kept.get((topic, queue_id))))
    return tuple(planned)


def _planned(store: StoreView, path: str, queue: QueueView | None, keep: int | None) -> PlannedExtension:
    files, _ = numbered_files(store.disk, path)
    size = store.kinds.extension_file_size
    sound = 0
    while sound < len(files) and files[sound].size == size and files[sound].start == files[0].start + sound * size:
        sound += 1
    removed = tuple(PlannedFile(file.path, f"{file.size} bytes instead of {size}, or after such a file or a gap")
                    for file in files[sound:])  # fmt: skip
    files = files[:sound]
    address = None if queue is None or keep is None else _last_address(queue, keep)
    end = None if address is None else _end_behind(store, files, address_to_offset(address))
    after = [file for file in files if end is None or file.start >= end]
    must_cut = bool(after) or (end is not None and _has_rest(store, files, end))
    return PlannedExtension(path, end, must_cut, removed)


def _last_address(queue: QueueView, keep: int) -> int | None:
    """The last extension address among the entries below a slot."""
    high = keep
    while high > queue.first:
        low = max(high - _FAR_COUNT, queue.first)
        address = last_address(queue.read(low, high)["tags_code"])
        if address is not None:
            return address
        high = low
    return None


def _end_behind(store: StoreView, files: Sequence[StoredFile], offset: int) -> int:
    """As queue_extension.end_behind."""
    file, size = file_with(files, offset), store.kinds.extension_file_size
    if file is not None:
        unit = read_unit(read_part(store.disk, file.path, offset - file.start, UNIT_SIZE_MAX), 0)
        if unit is not None:
            return offset + unit.size
    return offset - offset % size + size


def _has_rest(store: StoreView, files: Sequence[StoredFile], end: int) -> bool:
    """Whether something stands after the last unit; after a clean exit only what a reader would take for a unit."""
    file = file_with(files, end)
    if file is None:
        return False
    source = store.disk.open(file.path)
    try:
        if store.abort_present:
            return not is_zero(source, end - file.start, file.size)
        return any(source.read(end - file.start, EXTENSION_HEAD.size))
    finally:
        source.close()
