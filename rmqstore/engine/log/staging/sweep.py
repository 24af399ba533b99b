"""Removing what sinks left and nobody needs any more: parts of attempts that failed, records of jobs that ended."""

from contextlib import suppress

from rmqstore.engine.log.staging.committed_batches import committed_batch, has_intent, writer_directory, writers
from rmqstore.errors import Corrupt
from rmqstore.files.filesystem import FileSystem, directory_of, join
from rmqstore.formats.sink_files import COMMITTED_FILE, INTENT_FILE, SINK_DIRECTORY, parse_batch_name

ABANDONED_MS = 7 * 86_400_000
"""So long nobody touched it: the task that staged it does not come back."""


def sweep(fs: FileSystem, root: str, writer_id: str, batch_id: int, now_ms: int) -> None:
    """Removes what the writer staged up to this batch, which is settled, and what others left 7 days ago.

    A writer that will not come again leaves nothing at all.  Raises OSError; what is left then, the next one removes.
    """
    for other in writers(fs, root):
        directory = writer_directory(root, other)
        if has_intent(fs, root, other):
            continue
        if other == writer_id:
            for number, path in _staged(fs, directory):
                if number <= batch_id:
                    remove_tree(fs, path)
            if not _is_lasting(fs, root, other):
                _remove_writer(fs, directory)
        elif newest_ms(fs, directory) < now_ms - ABANDONED_MS:
            for _, path in _staged(fs, directory):
                remove_tree(fs, path)
            if not _is_lasting(fs, root, other):
                _remove_writer(fs, directory)


def _staged(fs: FileSystem, directory: str) -> list[tuple[int, str]]:
    numbers = [(parse_batch_name(entry.name), entry.name) for entry in fs.entries(directory) if entry.is_directory]
    return [(number, join(directory, name)) for number, name in numbers if number is not None]


def _is_lasting(fs: FileSystem, root: str, writer_id: str) -> bool:
    """Whether a record is kept for good; one that cannot be read is."""
    try:
        committed = committed_batch(fs, root, writer_id)
    except Corrupt:
        return True
    return committed is not None and committed.is_lasting


def _remove_writer(fs: FileSystem, directory: str) -> None:
    """Removes a writer's directory, unless something of it is open: an intent, or a batch that is being staged."""
    held = {entry.name for entry in fs.entries(directory)}
    if held - {COMMITTED_FILE, f"{COMMITTED_FILE}.tmp", f"{INTENT_FILE}.tmp"}:
        return
    remove_tree(fs, directory)
    parent = directory_of(directory)
    if parent.endswith(SINK_DIRECTORY) and not fs.entries(parent):
        with suppress(OSError):  # another writer begins
            fs.remove_directory(parent)


def newest_ms(fs: FileSystem, directory: str) -> int:
    """When anything in a directory, or in one below it, was changed last; 0 for an empty one."""
    times = [0]
    for entry in fs.entries(directory):
        times.append(entry.modified_ms)
        if entry.is_directory:
            times.append(newest_ms(fs, join(directory, entry.name)))
    return max(times)


def remove_tree(fs: FileSystem, directory: str) -> None:
    """Removes a directory with all that is in it, and of links only these; what is gone already is passed over.

    Raises OSError.
    """
    for name in fs.links(directory):
        fs.remove(join(directory, name))
    for entry in fs.entries(directory):
        path = join(directory, entry.name)
        if entry.is_directory:
            remove_tree(fs, path)
        else:
            with suppress(FileNotFoundError):
                fs.remove(path)
    with suppress(FileNotFoundError):
        fs.remove_directory(directory)
