"""Stores whose commitlog lies elsewhere (storePathCommitLog) or is gone: they read as empty and are not.

RocketMQ keeps its newest commitlog file whatever expires, so a store without any has never had a message, or its files
are not where they were looked for.  Which of the two, its queues and its index tell.
"""

from rmqstore.directory.index_files import index_files
from rmqstore.directory.queue_files import QueueFiles, holds_message
from rmqstore.errors import NotAStore, UnsupportedLayout
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.survey.found_log import NODE_ADVICE, find_log_files


def require_messages(store: StoreExtent) -> None:
    """Raises UnsupportedLayout for a DLedger node's directory by itself: the broker's tells of its messages."""
    if store.is_bare_node:
        raise UnsupportedLayout(store.path, NODE_ADVICE)


def require_log(store: StoreExtent) -> None:
    """Raises NotAStore for a store that has no commitlog file and yet had messages.

    Queue entries and index items stand for messages; where the queues are RocksDB's, which are not read, a time in the
    checkpoint does.  Directories of queues, files without entries and configuration do not: a broker makes them before
    its first message, and deletes the queues itself where it finds that its log was deleted.
    """
    witness = None if store.log_files else _witness(store)
    if witness is None or find_log_files(store.disk, store.path, store.extra_logs):  # the first message came meanwhile
        return
    raise NotAStore(
        store.path,
        f"{witness}, but there is no commitlog file; if it lies elsewhere (storePathCommitLog), name its directory "
        "too: the option storePathCommitLog, open_snapshot([STORE, LOG]) or `rmqstore inspect STORE LOG`; "
        "if it is gone, so are the messages",
    )


def _witness(store: StoreExtent) -> str | None:
    """The evidence that there were messages; None if there is none."""
    for key, queue in store.queues.items():
        if _has_entries(queue.files):
            return f"the queue {key[0]}/{key[1]} has entries"
    if any(file.header.index_count > 1 for file in index_files(store.disk, store.path, store.maps_index)):
        return "the index has items"
    known = store.checkpoint
    if store.queue_layout != "file" and known is not None and known.physic_timestamp_ms > 0:
        return "the checkpoint knows of messages"
    return None


def _has_entries(queue: QueueFiles) -> bool:
    end = queue.written_end()
    return end > queue.first_slot() and bool(holds_message(queue.kind, queue.read(end - 1, end))[0])
