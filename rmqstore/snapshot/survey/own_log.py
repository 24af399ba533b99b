"""A store that was looked at, and whose log is another's: refused before anything of it is read."""

from contextlib import suppress

from rmqstore.directory import own_log
from rmqstore.errors import DataLost
from rmqstore.snapshot.survey.extents import StoreExtent

_ADVICE = "name the directory that this store's own broker has as storePathCommitLog"


def require_own_log(store: StoreExtent) -> None:
    """Raises NotAStore for a store whose entries and records contradict each other throughout.  Of one that is only
    known in part the log's first record and its entry agree.
    """
    if not store.log_files or store.queue_layout != "file" or store.is_partial:
        return
    queues = {key: queue.files for key, queue in store.queues.items()}
    with suppress(DataLost), store.view("pread") as view:  # a file went meanwhile: its reader says so
        own_log.require_own_log(store.path, view, queues, _ADVICE, was_killed=store.abort_present)
