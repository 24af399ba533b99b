"""Keeping a file's pages in memory: warm-up and locking.  Each is a favour that the system may refuse.

What was refused is returned as a sentence for the log; a disk that fails is an OSError all the same.
"""

import ctypes
import mmap
import os

from rmqstore.files.filesystem import DiskFile

_PAGE_SIZE = 4096


def warm_up(file: DiskFile, size: int, step_pages: int = 256, sync_every_pages: int = 0) -> str | None:
    """Writes zeros over a new file, `step_pages` pages at a time, synced every `sync_every_pages` pages (0: never).

    After it every block is allocated, written and in the page cache (RocketMQ: DefaultMappedFile.warmMappedFile).
    A file that holds anything is left as it is and refused.  Raises OSError from the disk.
    """
    zeros = bytes(max(step_pages, 1) * _PAGE_SIZE)
    unsynced = 0
    for position in range(0, size, len(zeros)):
        step = min(len(zeros), size - position)
        if file.read(position, step) != zeros[:step]:
            return f"{file.path}: not warmed up, as it holds data or ends within {position + step} bytes"
        file.write(position, zeros[:step])
        unsynced += -(-step // _PAGE_SIZE)
        if 0 < sync_every_pages <= unsynced:
            file.sync()
            unsynced = 0
    if sync_every_pages > 0 and unsynced:
        file.sync()
    return None


def lock_memory(file: DiskFile) -> str | None:
    """Locks the file's pages in memory (mlock) until it is closed; the file itself keeps the mapping."""
    try:
        with file.view() as view:
            if not isinstance(view.obj, mmap.mmap):
                return f"{file.path}: no mlock, as it is not mapped"
            call = ctypes.CDLL(None, use_errno=True).mlock
            first = ctypes.c_char.from_buffer(view)
            try:
                failed = call(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(view.nbytes))
            finally:
                del first  # else the view could not be released
        if failed:
            number = ctypes.get_errno()
            return f"{file.path}: no mlock ({os.strerror(number)}); `ulimit -l` says how much may be locked"
    except (AttributeError, OSError, ValueError) as error:
        return f"{file.path}: no mlock ({error})"
    return None


def make_resident(file: DiskFile, size: int, *, warms: bool, locks: bool, sync_every_pages: int = 0) -> list[str]:
    """Warms up and locks a file as far as it is asked for; what the system refuses."""
    refusals = [warm_up(file, size, sync_every_pages=sync_every_pages)] if warms else []
    refusals += [lock_memory(file)] if locks else []
    return [refusal for refusal in refusals if refusal is not None]
