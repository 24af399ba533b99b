"""One run of an export: what came since the last one, each message once, whatever ended that."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from rmqstore.errors import DataLost
from rmqstore.export.directory import ExportDirectory
from rmqstore.export.into_directory import DirectoryTarget
from rmqstore.export.into_store import READ_COLUMNS, StoreTarget
from rmqstore.export.manifest import Manifest
from rmqstore.export.wish import ExportWish
from rmqstore.files.filesystem import FileSystem, RealFileSystem
from rmqstore.files.reading import LOCAL, StorePath, canonical_path
from rmqstore.formats.message_columns import Mask
from rmqstore.snapshot.losses import LostBeforeRead, OtherLogThanRead, told_as
from rmqstore.snapshot.search.window import Window
from rmqstore.snapshot.store_paths import Paths, StoreDirectories, store_directories
from rmqstore.snapshot.stores_in import StoresIn
from rmqstore.snapshot.stream.following import Beginning, Following, Patience
from rmqstore.snapshot.stream.subscription import StreamSelection


class LostToExport(LostBeforeRead):
    """Messages that were gone before they were exported."""

    next_step = "the export goes on after it with skip_lost (--skip-lost), or starts again in another directory"


class OtherLogThanExported(OtherLogThanRead):
    """A store, or a topic, that is another one than was exported, or that lost messages which were."""

    done = "was exported"
    next_step = "name another directory, or restore the store that was exported"


class ExportDone(NamedTuple):
    """The outcome of one run: messages that it added, those of all runs, those that were deleted before they were read,
    damaged ones, which it added or skipped as it was told to, files of earlier runs that somebody took away or renamed,
    and messages that it left out, by topics of which no store takes any.
    """

    added_count: int
    total_count: int
    lost_count: int
    damaged_count: int
    gone_file_count: int = 0
    left_out: Mapping[str, int] = MappingProxyType({})


class _Target(Protocol):
    """Where rows go."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def is_full(self) -> bool: ...

    @property
    def gone_file_count(self) -> int: ...

    @property
    def left_out(self) -> Mapping[str, int]: ...

    def begin(self, offsets: Mapping[str, Any], window: Window) -> None: ...

    def add(self, rows: pa.RecordBatch) -> None: ...

    def commit(self, offsets: Mapping[str, Any]) -> None: ...

    def end(self) -> None: ...


Tell = Callable[[int, int], None]


def export_messages(
    stores: Paths,
    to: StorePath,
    wish: ExportWish | None = None,
    *,
    tell: Tell | None = None,
    filesystem: FileSystem | None = None,
) -> ExportDone:
    """Exports what `stores`, as `open_snapshot` takes them, have of the messages that are wished for and the export at
    `to` has not yet: to files below that directory, or into the store there.

    Ended anywhere, by an error or a kill, it goes on when it is called again with the same arguments.  `tell` hears now
    and then how many messages were looked at, and about how many wait.  Raises Rejected (with nothing changed) where
    `to` holds something else or the export of other arguments; NotNow where the same export is at work; DataLost where
    messages are gone before they were read, unless it skips what is lost, and OtherLog in any case where a topic or
    store was made again, or ends before what was exported; else as `Snapshot.follow`; OSError.
    """
    wish, found = wish or ExportWish(), store_directories(LOCAL, stores)
    place, told = canonical_path(to), wish.told(_names_of(stores, found))
    paths = [path for store in found for path in (store.root, *store.logs)]
    target: _Target
    if wish.format == "store":
        target = StoreTarget(filesystem or RealFileSystem(), place, told, (paths, wish.target_bytes * 2))
        columns: Sequence[str] = READ_COLUMNS
    else:
        target = DirectoryTarget(
            ExportDirectory(filesystem or RealFileSystem(is_shared=True), place, told, paths), wish
        )
        columns = wish.read_columns
    try:
        return _Run(stores, wish, columns, target, tell or _untold).done()
    except DataLost as lost:
        raise told_as(lost, LostToExport, OtherLogThanExported) from None
    finally:
        target.end()


def _untold(_done: int, _waiting: int) -> None:
    """Nobody wants to know."""


class _Run:
    """The way of the messages from the stores to the target."""

    def __init__(
        self, stores: Paths, wish: ExportWish, columns: Sequence[str], target: _Target, tell: Tell
    ) -> None:  # fmt: skip
        self._target, self._tell = target, tell
        manifest = target.manifest
        self._window = wish.window if manifest.offsets is None else manifest.window
        needed: list[str] = [] if self._window.is_open else [self._window.column]
        self._reads_damage, self._skips_damage = wish.reads_damage, wish.on_corrupt_record == "skip"
        needed += ["corruptReason"] if self._reads_damage else []
        self._columns = columns
        request = wish.request(tuple(dict.fromkeys((*columns, *needed))))
        selection = StreamSelection(wish.topics, wish.pattern, None, wish.include_system_topics)
        beginning = Beginning(
            start="earliest", start_time=self._window.first_look_ms, after=manifest.offsets, requires_same_logs=True
        )
        self._following = Following(
            stores, selection, beginning, request, Patience(wait_s=0, until_ms=self._window.last_look_ms), LOCAL
        )
        if manifest.offsets is None:  # from now on the place is this export's, and its window that of its first run
            target.begin(self._following.offsets, self._window)

    def done(self) -> ExportDone:
        """Everything that there is now.  Raises as `export_messages`."""
        following, target = self._following, self._target
        before, damaged, looked = target.manifest.message_count, 0, 0
        self._tell(0, following.waiting_count)
        for batch in following:
            rows = self._wished(batch.rows)
            if rows.num_rows:
                is_damaged = self._damaged(rows)
                damaged += int(is_damaged.sum())
                if self._skips_damage and is_damaged.any():
                    rows = rows.filter(pa.array(~is_damaged))
                target.add(rows.select(self._columns))
            looked += batch.rows.num_rows
            self._tell(looked, looked + following.waiting_count)
            if target.is_full:
                target.commit(batch.offsets)
        if following.offsets != target.manifest.offsets:
            target.commit(following.offsets)
        total = target.manifest.message_count
        return ExportDone(
            total - before, total, following.skipped_count, damaged, target.gone_file_count, dict(target.left_out)
        )

    def _damaged(self, rows: pa.RecordBatch) -> Mask:
        if not self._reads_damage:
            return np.zeros(rows.num_rows, bool)
        return ~np.asarray(rows.column("corruptReason").is_null().to_numpy(zero_copy_only=False), bool)

    def _wished(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those in the window; damaged ones may have no time, and are in it."""
        if self._window.is_open or not rows.num_rows:
            return rows
        inside = self._window.holds(rows) | self._damaged(rows)
        return rows if inside.all() else rows.filter(pa.array(inside))


def _names_of(stores: Paths, found: Sequence[StoreDirectories]) -> Any:
    """The stores as an export is known by them: their real paths, by broker name where one is given; of a directory of
    stores, in which they come and go, that directory.
    """
    if isinstance(stores, StoresIn):
        return {"in": LOCAL.real_path(canonical_path(stores.directory))}
    named = [
        [store.broker_name or "", *(LOCAL.real_path(path) for path in (store.root, *store.logs))] for store in found
    ]
    return sorted(named)
