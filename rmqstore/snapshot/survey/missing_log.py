"""Stores whose commitlog lies elsewhere (storePathCommitLog) or is gone, or is DLedger's and nothing tells how far it
counts: they read as empty and are not.

RocketMQ keeps its newest commitlog file whatever expires, so a store without any has never had a message, or its files
are not where they were looked for.  Which of the two, its queues and its index tell.
"""

from rmqstore.directory.ledger.nodes import CHECKPOINT_FILE, holds_entries
from rmqstore.directory.queue_files import QueueFiles, holds_message
from rmqstore.errors import Corrupt, NotAStore, UnsupportedLayout
from rmqstore.files.disk import join
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.survey.found_log import NODE_ADVICE, find_log_files

_NOTHING_AGREED = "neither it nor a queue tells how far the group has agreed, so no entry would be read"
_AGREED_ADVICE = (
    "restore them, open the store for writing once, or read all entries by includeUncommitted (include_uncommitted)"
)


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


def nothing_agreed(store: StoreExtent) -> str | None:
    """Why nothing of a log counts that has entries and a member that is not running; None elsewhere.

    A member that is running may have none yet that its group agreed on.
    """
    ledger = store.ledger
    if ledger is None or store.lock_held or store.is_bare_node or store.includes_uncommitted:
        return None
    if ledger.agreed_end > ledger.divided_at:
        return None
    data = [file for file in store.log_files if file.is_wrapped]
    if not any(holds_entries(store.disk, file) for file in data[:1]):
        return None
    return _NOTHING_AGREED


def require_agreed(store: StoreExtent) -> None:
    """Raises Corrupt where nothing of the log of a member that is not running counts."""
    reason = nothing_agreed(store)
    if reason is not None and store.ledger is not None:
        raise Corrupt(join(store.ledger.node.directory, CHECKPOINT_FILE), 0, f"{reason}; {_AGREED_ADVICE}")


def _witness(store: StoreExtent) -> str | None:
    """The evidence that there were messages; None if there is none."""
    for key, queue in store.queues.items():
        if _has_entries(queue.files):
            return f"the queue {key[0]}/{key[1]} has entries"
    from rmqstore.directory.index_files import index_files  # noqa: PLC0415  where the log is gone

    if any(file.header.index_count > 1 for file in index_files(store.disk, store.path, store.maps_index)):
        return "the index has items"
    known = store.checkpoint
    if store.queue_layout != "file" and known is not None and known.physic_timestamp_ms > 0:
        return "the checkpoint knows of messages"
    return None


def _has_entries(queue: QueueFiles) -> bool:
    end = queue.written_end()
    return end > queue.first_slot() and bool(holds_message(queue.kind, queue.read(end - 1, end))[0])
