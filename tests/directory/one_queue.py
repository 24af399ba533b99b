"""A queue of one file, as a recovery plan sees it."""

from rmqstore.directory.queue_files import SIMPLE, OwnQueueFiles
from rmqstore.directory.queue_view import QueueView
from rmqstore.files.disk import StoredFile
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.crash.disks import MemoryDisk

SLOTS = 60  # more than are kept
FILE_SIZE = SLOTS * QUEUE_ENTRY.size


def view_of(disk: MemoryDisk, start: int) -> QueueView:
    files = (StoredFile("/q/file", start, FILE_SIZE),)
    view = QueueView(OwnQueueFiles("/", "T", 0, SIMPLE, files, disk))
    view.settle(FILE_SIZE)
    return view
