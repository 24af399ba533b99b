"""Rows into another store, in batches that are added exactly once: a sink's, with the offsets of the export beside.

A batch has a number.  The manifest names the offsets after it before it is added, and the store tells which batch was
the last: so a run that was cut short anywhere knows where it stands.
"""

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.config import StoreConfig
from rmqstore.errors import NotAStore, NotNow, Rejected, StoreInUse, WrongRows
from rmqstore.export.directory import STATE_ROOM
from rmqstore.export.manifest import Manifest, difference, read_manifest, write_manifest
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.files.store_lock import HeldLock
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import NOT_SENDABLE_TOPICS
from rmqstore.formats.properties import DELIVERED
from rmqstore.sink import (
    Batch,
    StagingTask,
    append_once,
    last_batch,
    make_store,
    require_free,
    settle_store,
    stage_part,
)
from rmqstore.snapshot.search.window import Window

# The columns of a message that a store takes; all else is made there.
SENT_COLUMNS = (
    "topic", "queueId", "tags", "keys", "body", "properties", "flag", "bornTimestamp", "bornHost", "reconsumeTimes",
)  # fmt: skip
# With these a message that it does not take is named.
READ_COLUMNS = (*SENT_COLUMNS, "queueOffset")
# Bytes of rows a batch: adding one opens and closes the store.
_BATCH_BYTES = 256 * 1024 * 1024
_ATTEMPTS = 2**31
_NAME_DIGITS = 12
# For rows without a queue, of which there are none here.
_QUEUE_COUNT = 1


class StoreTarget:
    """The batches of one run: rows are added, and counted from the next `commit` on; one thread."""

    def __init__(
        self, fs: FileSystem, root: str, told: Mapping[str, Any], read: tuple[Sequence[str], int]
    ) -> None:  # fmt: skip
        """Takes the store at `root`, absolute, for this export; it is made where there is none.  `read` are the stores
        that are read, and about how many bytes of rows make a batch.

        Raises Rejected, NotAStore, StoreInUse, UnsupportedLayout, NotNow where the same export is at work: then nothing
        is changed.  OSError.
        """
        stores, batch_bytes = read
        self._fs, self._root = fs, root
        self._told, self._batch_bytes = told, min(batch_bytes, _BATCH_BYTES)
        self._config = StoreConfig.embedded()
        _require_other_store(self._fs, root, stores)
        require_free(root, self._config)
        self._writer = writer_of(told)
        self._state = join(root, STATE_ROOM, self._writer)
        self._path = join(self._state, "manifest.json")
        self.manifest = self._found()
        self._fs.make_directories(self._state)
        self._lock = self._locked()
        self._task: StagingTask | None = None
        self._row_count = self._size = 0
        self.left_out = Counter[str]()  # messages by topic
        try:
            self.manifest = self._settled()
        except BaseException:
            self._lock.release()
            raise

    @property
    def is_full(self) -> bool:
        """Whether it is time to commit."""
        return self._size >= self._batch_bytes

    @property
    def gone_file_count(self) -> int:
        """A store is not told by its files."""
        return 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes rows of READ_COLUMNS, but for those of topics that no store takes: they would wait once more.  Raises
        Rejected for what no message can be, OSError.
        """
        rows = self._takeable(rows)
        if not rows.num_rows:
            return
        if self._task is None:
            batch, attempt = (self._writer, self.manifest.batch + 1), secrets.randbelow(_ATTEMPTS)
            self._task = stage_part(self._root, batch, (0, attempt), self._config, _QUEUE_COUNT, filesystem=self._fs)
        try:
            self._task.add(_as_sent(rows.select(SENT_COLUMNS)))
        except WrongRows as error:
            raise _named(error, rows) from None
        self._row_count += rows.num_rows
        self._size += rows.get_total_buffer_size()

    def begin(self, offsets: Mapping[str, Any], window: Window) -> None:
        """Makes the store, and notes where the export begins.  Raises StoreError, OSError."""
        make_store(self._root, self._config, filesystem=self._fs)
        self._write(replace(self.manifest, offsets=offsets, since_ms=window.since_ms, until_ms=window.until_ms))

    def commit(self, offsets: Mapping[str, Any]) -> None:
        """Adds what was taken to the store, with the offsets after it.  Raises StoreError, OSError; then the next run
        finds all of it or nothing.
        """
        if self._task is None:
            self._write(replace(self.manifest, offsets=offsets, pending_offsets=None, pending_count=0))
            return
        part = self._task.finish()
        self._write(replace(self.manifest, pending_offsets=offsets, pending_count=self._row_count))
        self._task = None  # from here on its part may be needed to tell what is in
        append_once(
            self._root, Batch(self._writer, self.manifest.batch + 1, (part,)), self._config, filesystem=self._fs
        )
        self.manifest = _added(self.manifest)
        self._row_count = self._size = 0

    def end(self) -> None:
        """Leaves the store; rows that were not committed are forgotten."""
        try:
            if self._task is not None:
                with suppress(OSError):
                    self._task.discard()
            elif self.manifest.pending_offsets is None:
                with suppress(OSError):
                    self._write(self.manifest)
        finally:
            self._lock.release()

    def _takeable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without those of topics that no store takes, which are counted."""
        topics = rows.column("topic")
        is_refused = pc.is_in(topics, pa.array(sorted(NOT_SENDABLE_TOPICS), topics.type))
        if not pc.any(is_refused).as_py():
            return rows
        self.left_out.update(topics.filter(is_refused).to_pylist())
        return rows.filter(pc.invert(is_refused))

    def _found(self) -> Manifest:
        found = read_manifest(self._fs, self._path)
        if found is None:
            return Manifest(told=self._told)
        if difference(found.told, self._told):
            other = difference(found.told, self._told)
            raise Rejected(f"{self._path}: belongs to another export ({other}); remove it")
        return found

    def _locked(self) -> HeldLock:
        try:
            return self._fs.lock(join(self._state, "lock"))
        except StoreInUse:
            raise NotNow(f"{self._root}: the same export writes there already; wait for its end") from None

    def _settled(self) -> Manifest:
        """Where the export stands, by the store's own word.  Raises Rejected where that and the manifest disagree."""
        settle_store(self._root, self._config, filesystem=self._fs)
        found, last = self._found(), last_batch(self._root, self._writer, filesystem=self._fs)
        held = -1 if last is None else last
        if found.pending_offsets is not None and held == found.batch + 1:
            found = _added(found)
        if held != found.batch:
            raise Rejected(
                f"{self._root}: has batch {held} of this export as its last, but {self._path} names {found.batch}: "
                "one of them is an older copy; restore both from the same time, or export into another store"
            )
        return replace(found, pending_offsets=None, pending_count=0)

    def _write(self, manifest: Manifest) -> None:
        write_manifest(self._fs, self._path, manifest)
        self.manifest = manifest


def writer_of(told: Mapping[str, Any]) -> str:
    """The sink's name of an export: that of its arguments."""
    text = json.dumps(told, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return f"export-{hashlib.sha256(text).hexdigest()[:_NAME_DIGITS]}"


def _added(manifest: Manifest) -> Manifest:
    """The manifest once its pending batch is in."""
    return replace(
        manifest, batch=manifest.batch + 1, offsets=manifest.pending_offsets, pending_offsets=None,
        message_count=manifest.message_count + manifest.pending_count, pending_count=0,
    )  # fmt: skip


def _require_other_store(fs: FileSystem, root: str, stores: Sequence[str]) -> None:
    real = fs.real_path(root)
    for store in map(fs.real_path, stores):
        if f"{real}/".startswith(f"{store}/") or f"{store}/".startswith(f"{real}/"):
            raise Rejected(
                f"{root}: is {store}, from which the export reads, or lies in it or around it: every message would "
                "be doubled; name another store"
            )
    parent = real.rpartition("/")[0]
    while parent:
        if fs.is_directory(join(parent, "commitlog")):
            raise NotAStore(root, f"lies in the store {parent}; name a directory outside of it")
        parent = parent.rpartition("/")[0]


def _named(error: WrongRows, rows: pa.RecordBatch) -> Rejected:
    """The error with the place of the first message that it is about."""
    reason, numbers = min(error.rows.items(), key=lambda found: found[1][0])
    topic, queue_id, offset = (rows.column(name)[numbers[0]].as_py() for name in ("topic", "queueId", "queueOffset"))
    count = len({number for others in error.rows.values() for number in others}) - 1
    more = f", and {count} more like it" if count else ""
    return Rejected(
        f"{topic}/{queue_id}, offset {offset}: cannot be put into a store ({reason}){more}; choose other topics, or "
        "export them as parquet or json-lines"
    )


def _as_sent(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without the properties that would have them wait once more, or be a transaction's: it was all done."""
    at = rows.schema.get_field_index("properties")
    return rows.set_column(at, "properties", _without(rows.column(at), DELIVERED))


def _without(column: pa.MapArray, names: Sequence[str]) -> pa.MapArray:
    """The maps without some names."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    keys, items = column.keys.slice(first, last - first), column.items.slice(first, last - first)
    is_gone = pc.is_in(keys, pa.array(names, pa.string()))
    if not pc.any(is_gone).as_py():
        return column
    stays = pc.invert(is_gone)
    before: Ints = np.concatenate(([0], np.cumsum(np.asarray(stays, bool))))
    offsets = before[column.offsets.to_numpy() - first].astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys.filter(stays), items.filter(stays))
