"""Snapshots of stores that somebody else may be writing, and what comes after them."""

import threading
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from rmqstore.core import arguments
from rmqstore.core.annotations import checked
from rmqstore.core.safe_text import arrow_html
from rmqstore.errors import Rejected, StoreError
from rmqstore.files.disk import ReadableDisk
from rmqstore.files.reading import LOCAL
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.snapshot.columns import resolve_columns
from rmqstore.snapshot.opening import open_stores
from rmqstore.snapshot.plan.selection import Wanted, WantedTime, topic_names
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.request import (
    BATCH_BYTES,
    BATCH_ROWS,
    BODY_BYTES_MAX,
    Access,
    AnyOf,
    OnCorruptRecord,
    ScanRequest,
    VerifyCrc,
    wanted_keys,
    wanted_tags,
)
from rmqstore.snapshot.store_paths import Paths
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.snapshot.stream.following import Beginning, Following, Patience
from rmqstore.snapshot.stream.subscription import StreamSelection
from rmqstore.snapshot.survey.extents import StoreExtent

# --- Later looks at the stores of a snapshot.


class LaterLooks:
    """The same stores, looked at again and again; any thread.  `uncommitted` as in `open_snapshot`."""

    def __init__(self, paths: Paths, access: Access, disk: ReadableDisk, *, uncommitted: bool) -> None:
        self._paths, self._access, self._disk, self._uncommitted = paths, access, disk, uncommitted
        self._ends = StreamEnds(paths, access, disk)
        self._looking = threading.Lock()

    def look(self) -> tuple[StoreExtent, ...]:
        """The stores as they are now; each the same object as before where nothing in it is new.  Raises as
        `open_snapshot`."""
        if self._uncommitted:  # streams never go there
            return open_stores(self._paths, access=self._access, disk=self._disk, include_uncommitted=True).stores
        with self._looking:
            return self._ends.look().stores


# ---


def open_snapshot(
    paths: Paths, *, access: Access = "auto", disk: ReadableDisk = LOCAL, include_uncommitted: bool = False
) -> "Snapshot":  # fmt: skip
    """Looks at one store directory, several, {brokerName: path} or StoresIn(directory), and freezes what is there.

    Where a commitlog lies elsewhere (storePathCommitLog), its directories follow the store's: [[STORE, LOG]] or
    {"broker-a": [STORE, LOG]}; in a plain list a path after the first that holds commitlog files itself belongs to the
    store before it.  Never writes, locks or creates anything; all is read from `disk`.  `access`: "auto" maps files
    that nobody can truncate and reads the others, "mmap" maps all, "pread" maps none.  `include_uncommitted`: of a
    DLedger log also what its group may still revoke.  Raises NotAStore, also for a store with messages and without a
    commitlog, or with another store's, UnsupportedLayout; Rejected for two stores of one broker name.
    """
    look = open_stores(paths, access=access, disk=disk, include_uncommitted=include_uncommitted)
    return Snapshot(look.stores, access, paths)


class Snapshot(SnapshotReader):
    """Messages, queues and offsets as they were when the snapshot was opened; `refresh` or `follow` for later ones.

    Holds no files open between calls, but those of RocksDB where that has the queues.  Any thread.
    """

    def __init__(self, stores: tuple[StoreExtent, ...], access: Access, paths: Paths) -> None:
        """`paths` as they were given to `open_snapshot`."""
        super().__init__(stores, access)
        self._paths = paths
        self._later: LaterLooks | None = None

    def _repr_html_(self) -> str | None:
        """The largest topics, as a notebook shows them; None where files went since: it shows the line alone."""
        try:
            return arrow_html(repr(self), self.overview())
        except (StoreError, OSError):
            return None

    @property
    def _disk(self) -> ReadableDisk:
        return self.stores[0].disk

    def refresh(self) -> "Snapshot":
        """The stores as they are now: this snapshot itself if nothing is new since the last refresh.

        Of a store that only grew just the new part is read.  Raises as `open_snapshot`.
        """
        later = self._later
        if later is None:
            uncommitted = any(store.includes_uncommitted for store in self.stores)
            later = self._later = LaterLooks(self._paths, self._access, self._disk, uncommitted=uncommitted)
        stores = later.look()
        if [*map(id, stores)] == [*map(id, self.stores)]:
            return self
        fresh = Snapshot(stores, self._access, self._paths)
        fresh._later = later
        return fresh

    @checked
    def query(
        self, topic: str = "", key: str | None = None, *, begin_ms: int = 0, end_ms: int = 2**63 - 1,
        count_max: int = 32, broker: str | None = None,
    ) -> list[StoredMessage]:  # fmt: skip
        """Messages of a topic by key (KEYS or UNIQ_KEY) or offset message id, in RocketMQ's order: ascending;
        unreadable ones are left out.  The newest `count_max`, and never more than 64: a scan with keys= has all.  The
        message of an id comes first where both are too many.

        `query(key)`, or `query(key=key)`, without a topic asks all topics of a store, RocketMQ's own too.

        Raises Rejected for an empty key, for several stores where `broker` names none of them, and for more than
        QUERY_BYTES_MAX of bodies; NotNow where the index changes meanwhile, DataLost where the disk fails.
        """
        window: Any = {"begin_ms": begin_ms, "end_ms": end_ms, "broker": broker}
        if not (key or (topic if key is None else "")):
            raise Rejected("no key: nobody indexes an empty one")
        if key is not None and topic:
            return super().query(topic, key, count_max=count_max, **window)
        from rmqstore.snapshot.lookup.by_key import COUNT_MAX  # noqa: PLC0415  where keys are asked for

        topics = sorted({name for name, _ in self._store(broker).queues})
        found = [one for name in topics for one in self.query(name, key or topic, count_max=count_max, **window)]
        found.sort(key=attrgetter("physical_offset"))
        return found[max(len(found) - min(count_max, COUNT_MAX), 0) :]

    @checked
    def follow(
        self,
        topics: Sequence[str] | None = None,
        *,
        columns: Sequence[str] | str | None = None,
        pattern: str | None = None,
        assign: Mapping[str, Any] | None = None,
        start: Wanted = "latest",
        start_time: WantedTime | None = None,
        after: Mapping[str, Any] | None = None,
        wait_s: float | None = None,
        poll_s: float = 0.1,
        include_system_topics: bool = False,
        tags: AnyOf = (),
        keys: AnyOf = (),
        on_corrupt_record: OnCorruptRecord = "fail",
        fail_on_data_loss: bool = True,
        verify_crc: VerifyCrc = "auto",
        decompress: bool = True,
        body_bytes_max: int = BODY_BYTES_MAX,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> Following:
        """Messages as they come, batch by batch, each with the offsets to go on from: an iterator, also for `async
        for`.

        Begins `after` the offsets that an earlier batch came with: queues that these do not name are new and read from
        their beginning.  Else at `start` and `start_time` as in `select`; "latest": what comes from now on.  Looks
        every `poll_s` seconds; ends once nothing came for `wait_s` (None: never; 0: with what is there now).  The rest
        as in `scan`.  Raises at once as `select`, and later as Following.
        """
        request = ScanRequest(
            columns=resolve_columns(columns), tags=wanted_tags(tags), keys=wanted_keys(keys),
            on_corrupt_record=on_corrupt_record, fail_on_data_loss=fail_on_data_loss, verify_crc=verify_crc,
            decompress=decompress, body_bytes_max=body_bytes_max, batch_rows=batch_rows, batch_bytes=batch_bytes,
            access=self._access,
        )  # fmt: skip
        arguments.require_ms([start_time])
        chosen = None if topics is None else topic_names(topics)
        selection = StreamSelection(chosen, pattern, assign, include_system_topics)
        beginning = Beginning(start=start, start_time=start_time, after=after)
        patience = Patience(wait_s=wait_s, poll_s=poll_s)
        return Following(self._paths, selection, beginning, request, patience, self._disk)
