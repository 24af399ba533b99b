"""Whether a store stood still while it was looked at, but for growing: who owns it, which files it has."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmqstore.directory.listing import directories
from rmqstore.directory.queue_ends import is_backed
from rmqstore.directory.queue_files import is_valid_entry, open_queue
from rmqstore.files.disk import ReadableDisk, StoredFile, join, read_small
from rmqstore.formats import names
from rmqstore.formats.sink_files import INTENT_FILE, JSON_SIZE_MAX, SINK_DIRECTORY, BatchIntent
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent
from rmqstore.snapshot.survey.found_log import RootLook, look_at_root
from rmqstore.snapshot.survey.log_search import NO_FILE


@dataclass(frozen=True, slots=True)
class Footprint:
    """A store from outside: `owner` changes when one comes or goes, `at_root` is as listed, and from `batch_start` on
    the log may be cut off again."""

    disk: ReadableDisk
    owner: tuple[object, ...]
    at_root: RootLook
    batch_start: int

    @classmethod
    def of(cls, disk: ReadableDisk, root: str, extra_logs: tuple[str, ...]) -> "Footprint":
        """The store as it is now.  Raises NotAStore."""
        lock = join(root, names.LOCK_FILE)
        abort = disk.version_of(join(root, names.ABORT_FILE))
        owner = (abort, disk.version_of(lock), disk.is_locked(lock))
        at_root = look_at_root(disk, root, extra_logs)
        return cls(disk, owner, at_root, _batch_start(disk, at_root))

    @property
    def is_abort_there(self) -> bool:
        """Whether the last stop was not clean, or there was none yet."""
        return bool(self.owner[0])

    @property
    def is_locked(self) -> bool:
        """Whether somebody has the store open."""
        return bool(self.owner[2])

    def changed(self, found: StoreExtent, now: "Footprint") -> str | None:
        """The change of the store until `now`, other than growth, when `found` was found there between; None for none.

        The queues of a store that nobody has open are not looked at again: a writer opens it first.  Raises DataLost.
        """
        before = self.at_root.log_files
        if now.owner != self.owner:
            return "its owner came, went or began again"
        if not only_grew(before, now.at_root.log_files, is_copied_over=False):
            return "files of its log were deleted or replaced"
        if len(now.at_root.log_files) > len(before) and any(damage.reason == NO_FILE for damage in found.damage):
            return "the next file of its log was made"
        for queue in found.queues.values() if self.is_abort_there or self.is_locked else ():
            if queue.files.files and not stands_still(queue, found):
                return f"its queue {queue.files.topic}/{queue.files.queue_id} was deleted, cut or built again"
        return "a batch began" if now.batch_start < found.log_end else None


def _batch_start(disk: ReadableDisk, at_root: RootLook) -> int:
    """Where a batch begins that a sink is just adding, or could not end: all of it may be cut off again, so that nobody
    is to see it yet.  The highest number without one.
    """
    start = 2**63 - 1
    for _, writer in (
        directories(disk, join(at_root.root, SINK_DIRECTORY)) if SINK_DIRECTORY in at_root.children else ()
    ):
        data = read_small(disk, join(writer, INTENT_FILE), JSON_SIZE_MAX, past_directories=True)
        if data is not None:
            with suppress(ValueError):
                start = min(start, BatchIntent.from_json(data).start)
    return start


def only_grew(before: Sequence[StoredFile], now: Sequence[StoredFile], *, is_copied_over: bool) -> bool:
    """Whether the files of a log are those of before, and others at most after them.

    A survey puts together what it read of each file at other moments, so each must be the very file.  A stream asks
    with `is_copied_over`: between two of its looks a copy may have caught up, as rsync does it, which writes a file
    again under another identity; that it still holds what it held is seen in the bytes at the end of the log
    (`stream/ends.py`).  Sizes count in both cases: files are as long as they will be when they are made.
    """
    kept = now[: len(before)]
    if [(file.path, file.size) for file in before] != [(file.path, file.size) for file in kept]:
        return False
    return is_copied_over or [file.identity for file in before] == [file.identity for file in kept]


def stands_still(queue: QueueExtent, store: StoreExtent) -> bool:
    """Whether a queue of a store that was looked at did not change since, but for growing: its first and last file are
    the same, its last entry is there, and the next one is not of a record that counted as dispatched already.

    Raises DataLost if a file vanishes meanwhile.
    """
    files, end = queue.files, queue.entry_end
    if not files.files:
        return not open_queue(store.disk, files.root, files.topic, files.queue_id, files.kind).files
    for file in {files.files[0], files.files[-1]}:
        if files.disk.version_of(file.path)[:2] != (file.identity, file.size):
            return False
    if end <= queue.entry_start:
        return True
    last = files.read(end - 1, end + 1)
    valid = is_valid_entry(files.kind, last)
    if not valid[0]:
        return False
    if not valid[1] or int(last["physical_offset"][1]) >= store.walk_from:
        return True
    with store.view("pread") as view:  # after a cut that erased nothing anything may stand there
        return not is_backed(files, end, last[1], view)
