"""Looks at one or several store directories."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, get_args

from rmqstore.core import arguments
from rmqstore.directory import own_log
from rmqstore.errors import DataLost
from rmqstore.files.disk import ReadableDisk
from rmqstore.files.reading import LOCAL
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.store_paths import Paths, refuse_doubles, store_directories, told_apart
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.survey.missing_log import require_agreed, require_log, require_messages
from rmqstore.snapshot.survey.survey import WHOLE, SurveyScope, survey

# --- A store that was looked at, and whose log is another's: refused before anything of it is read.

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


# ---


def open_stores(
    paths: Paths, *, access: Access = "auto", disk: ReadableDisk = LOCAL, include_uncommitted: bool = False
) -> SnapshotReader:
    """One look at one store directory, several, {brokerName: path} or StoresIn(directory); see `open_snapshot`."""
    return _required(look_at(paths, access, SurveyScope((), include_uncommitted, by_database=True), disk))


def open_selected(
    paths: Paths, selection: Mapping[str, Any], *, access: Access = "auto", disk: ReadableDisk = LOCAL,
    include_uncommitted: bool = False,
) -> SnapshotReader:  # fmt: skip
    """`open_stores` for a single choice: of a store with very many topics it may hold the queues of those that
    `selection`, arguments of `Snapshot.select`, names by `topics` or `assign`, and no others.  Raises as
    `open_snapshot`.
    """
    named = selection.get("topics") if selection.get("topics") is not None else selection.get("assign")
    topics = [] if named is None or isinstance(named, str) else [name for name in named if isinstance(name, str)]
    return _required(look_at(paths, access, SurveyScope(topics, include_uncommitted, by_database=True), disk))


def _required(snapshot: SnapshotReader) -> SnapshotReader:
    """The snapshot, if its stores have their own log.  Raises NotAStore, Corrupt."""
    for store in snapshot.stores:
        require_messages(store)
        require_log(store)
        require_own_log(store)
        require_agreed(store)
    return snapshot


def look_at(
    paths: Paths, access: Access = "auto", scope: SurveyScope = WHOLE, disk: ReadableDisk = LOCAL
) -> SnapshotReader:
    """`open_snapshot` of what `verify` is asked about: a store that has messages and no commitlog as well."""
    arguments.word("access", access, get_args(Access))
    arguments.flag("include_uncommitted", scope.uncommitted)
    found = store_directories(disk, paths)
    stores = told_apart([survey(disk, one.root, one.broker_name, access, one.logs, scope) for one in found])
    refuse_doubles(paths, stores)
    return SnapshotReader(tuple(stores), access)
