"""The index files of a store, as they are written and asked: from a key to places in the log.

Java: IndexService.  Files are named by the local time of their making and stand in the order of the log, whatever their
names say; the last one takes items until it is full.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from rmqstore.clock import Clock, local_time
from rmqstore.engine.log.derived.expired import expired_files
from rmqstore.files.filesystem import DiskFile, FileSystem, join
from rmqstore.formats import index, names
from rmqstore.formats.index import IndexHeader, read_header
from rmqstore.formats.index_table import find_offsets, preset_header, put_items
from rmqstore.formats.java_hash import index_hash
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import INDEX_ROOM
from rmqstore.records.vectors import Records

# What one question answers at most: maxMsgsNumBatch of the broker configuration.
COUNT_MAX = 64
# Java tries three times to make a file before it gives the index up; a full disk must not be asked for ever.
_CREATE_TRIES = 3
# Full files that stay mapped between questions.
_MAPPED_MAX = 16
_NOTHING = -1


@dataclass(slots=True, eq=False)
class OpenIndexFile:
    """One index file of an open store; `header` is that of a full file, for good, None while it takes items."""

    name: str
    slot_count: int
    item_count: int
    header: IndexHeader | None = None
    is_dirty: bool = False


class IndexLog:
    """The files in index/ of the store at `root`; new ones have `slot_count` slots and room for `item_count` - 1 items.
    `with_tags`: tags are indexed as well.

    One thread dispatches; everything else may be called from any thread.
    """

    def __init__(
        self, fs: FileSystem, root: str, slot_count: int, item_count: int, clock: Clock, with_tags: bool = False
    ) -> None:  # fmt: skip
        if slot_count < 1 or item_count < 2:
            raise ValueError(f"an index file of {slot_count} slots and {item_count} items takes nothing")
        self.files: tuple[OpenIndexFile, ...] = ()  # in the order of the log; replaced as a whole
        self.full_ms = 0  # end time of the newest file that filled up here and is durable; 0 before the first
        self.end_offset = _NOTHING  # the newest record that is indexed wholly; -1 without
        self._partial = (_NOTHING, 0)  # a record of which so many items are in, when the next file could not be made
        self.with_tags = with_tags
        self._fs = fs
        self._directory = join(root, INDEX_ROOM)
        self._slot_count, self._item_count = slot_count, item_count
        self._clock = clock
        self._lock = threading.Lock()  # guards `files`, `_mapped` and `_failure`
        self._mapped: OrderedDict[OpenIndexFile, tuple[DiskFile, memoryview]] = OrderedDict()
        self._newest_name = 0
        self._failure: OSError | None = None

    def load(self) -> list[str]:
        """Finds the files; returns warnings.  Foreign names and files of which no sizes are known are left alone; one
        without a header is what a crash leaves of making it, and removed.
        """
        warnings, found = [], []
        for entry in self._fs.entries(self._directory):
            path = join(self._directory, entry.name)
            if entry.is_directory or names.parse_index_name(entry.name) is None:
                warnings.append(f"{path}: no index file, left as it is")
                continue
            self._newest_name = max(self._newest_name, int(entry.name))
            source = self._fs.open(path)
            header = read_header(source.read(0, index.HEADER.size))
            if header is None:
                self._fs.remove(path)
                self._fs.sync_directory(self._directory)
                warnings.append(f"{path}: empty, removed")
                continue
            sizes = self._sizes(source, entry.size)
            if sizes is None:
                warnings.append(f"{path}: {entry.size} bytes are no index file of this store's sizes, left as it is")
                continue
            file = OpenIndexFile(entry.name, *sizes)
            if header.index_count >= file.item_count or sizes != (self._slot_count, self._item_count):
                file.header = header
            found.append((file, header))
        found.sort(key=lambda each: index.log_order(each[1], int(each[0].name)))
        for file, header in found[:-1]:
            file.header = header
        self.files = tuple(file for file, _ in found)
        self.end_offset = max((end_of(header) for _, header in found), default=_NOTHING)
        self._partial = (_NOTHING, 0)
        return warnings

    def dispatch(self, batch: Records) -> None:
        """Puts the keys of every record that is not indexed yet.

        A file is made when the first record after the last full one comes, keys or not (Java: buildIndex).  Raises
        OSError when no file can be made, after a few tries and leaving nothing; the same batch can be
        dispatched again.
        """
        fresh = batch.offsets > self.end_offset
        if not fresh[-1]:
            return
        rows, hashes = batch.index_items(self.with_tags)
        if not fresh[0]:
            kept = fresh[rows]
            rows, hashes = rows[kept], hashes[kept]
        self.put(batch.offsets[rows], hashes, batch.store_ms[rows], int(batch.offsets[-1]))

    def put(self, offsets: Ints, hashes: Ints, store_ms: Ints, newest: int) -> None:
        """Puts items (int64[n]: place in the log, key hash, store time) of records that are not indexed yet; `newest`
        is the last record's place, whether it has keys or not.  Raises as `dispatch`.
        """
        place, taken = self._partial
        first = taken if taken and len(offsets) and offsets[0] == place else 0
        self._put(offsets, hashes, store_ms, first)
        if len(offsets):
            self.end_offset = int(offsets[-1])
        if not len(offsets) or offsets[-1] < newest:
            self._current()
        self.end_offset = newest

    def query(self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int = COUNT_MAX) -> list[int]:
        """Places in the log of records with the hash of `key` put in [begin_ms, end_ms], newest first.

        At most `count_max`.  As RocketMQ's queryOffset: times are whole seconds, rounded down, and other keys
        of the same hash are among the answers, so the caller looks at the records.  Unlike there a record that two
        files know is answered once, and a file that is older by its place and newer by its times is asked, too.
        """
        key_hash = index_hash(f"{topic}#{key}")
        found: list[int] = []
        after = _NOTHING  # where the file after it begins
        for file in reversed(self.files):
            if len(found) >= count_max:
                break
            header = self._header(file)
            if header.matches(begin_ms, end_ms) and (mapped := self._mapping(file)) is not None:
                times, shared = (begin_ms, end_ms), after if after == header.end_offset else _NOTHING
                more = find_offsets(mapped[1], file.slot_count, file.item_count, key_hash, times, count_max)
                found += index.unanswered(more, found, shared)
            after = header.begin_offset
        return found[:count_max]

    def flush(self) -> None:
        """Makes durable all that was dispatched until now.  Raises OSError, and ever after: a sync is not retried."""
        self._sync([file for file in self.files if file.is_dirty])

    def flush_full(self) -> None:
        """`flush` for the files that are full: what the checkpoint's index time stands for.  Raises OSError."""
        self._sync([file for file in self.files if file.is_dirty and file.header is not None])

    def expired(self, min_physical: int) -> list[str]:
        """Names of the oldest files that lead only to records before `min_physical` of the log; never the last one."""
        expired = expired_files(self.files[:-1], lambda file: end_of(self._header(file)), min_physical)
        return [file.name for file in expired]

    def delete(self, doomed: Collection[str]) -> None:
        """Removes files by name, oldest first and each one durably before the next; not the last one while a batch is
        dispatched.  Raises OSError; what could not be removed stays.

        A search that is under way in one goes on.
        """
        for file in self.files:
            if file.name in doomed:
                self._delete(file)

    def _delete(self, file: OpenIndexFile) -> None:
        """Takes a file out of the list, then off the disk: a reader that finds none can tell why.  A failure puts it
        back.
        """
        with self._lock:
            was_last = self.files[-1:] == (file,)
            before = self.files[: self.files.index(file)]
            self.files = tuple(each for each in self.files if each is not file)
            self._mapped.pop(file, None)
        try:
            with suppress(FileNotFoundError):
                self._fs.remove(join(self._directory, file.name))
        except OSError:
            with self._lock:
                at = sum(each in before for each in self.files)
                self.files = (*self.files[:at], file, *self.files[at:])
            raise
        self._fs.sync_directory(self._directory)
        if was_last:
            self.end_offset = max((end_of(self._header(each)) for each in self.files), default=_NOTHING)

    def close(self) -> None:
        """Lets go of all mappings; the next question maps again."""
        with self._lock:
            self._mapped.clear()

    def _put(self, offsets: Ints, hashes: Ints, store_ms: Ints, first: int) -> None:
        """Puts items from number `first` on, into as many files as it takes."""
        done = first
        while done < len(offsets):
            file = self._current()
            sizes = (file.slot_count, file.item_count)
            mapped = self._mapping(file)
            assert mapped is not None  # files that take items are not deleted
            view = mapped[1]
            taken = put_items(view, *sizes, hashes[done:], offsets[done:], store_ms[done:])
            done += taken
            header = read_header(view)
            assert header is not None
            if header.index_count >= file.item_count:
                file.header = header
            file.is_dirty = True  # last, so that the flush of a full file knows that it is full
            if done < len(offsets):
                self._remember(offsets, done)
        self._partial = (_NOTHING, 0)

    def _remember(self, offsets: Ints, done: int) -> None:
        """Notes how far a batch got, should the next file not come about."""
        place = int(offsets[done])
        count = done - int(np.searchsorted(offsets, place))
        self._partial = (place, count)
        if done > count:
            self.end_offset = int(offsets[done - count - 1])

    def _current(self) -> OpenIndexFile:
        """The file that takes the next item, made if need be."""
        files = self.files
        if files and files[-1].header is None:
            return files[-1]
        previous = files[-1].header if files else None
        source = self._created()
        try:
            view = source.view()
            if previous is not None:
                preset_header(view, previous.end_timestamp_ms, previous.end_offset)
            self._fs.sync_directory(self._directory)
        except BaseException:
            with suppress(OSError):
                self._fs.remove(source.path)
            raise
        file = OpenIndexFile(f"{self._newest_name:017d}", self._slot_count, self._item_count, is_dirty=True)
        with self._lock:
            self._mapped[file] = (source, view)
            self.files = (*self.files, file)
        return file

    def _created(self) -> DiskFile:
        """A new file.  Raises OSError after a few tries; no file is left then."""
        for tries_left in reversed(range(_CREATE_TRIES)):
            path = join(self._directory, self._next_name())
            try:
                self._fs.make_directories(self._directory)
                return self._fs.create(path, index.file_size(self._slot_count, self._item_count))
            except OSError:
                if not tries_left:
                    raise
        raise AssertionError("the last try raises")

    def _next_name(self) -> str:
        """The local time, yyyyMMddHHmmssSSS; more than every name before, whatever the clock does."""
        now_ms = self._clock.now_ms()
        stamp = int(f"{local_time(now_ms):%Y%m%d%H%M%S}{now_ms % 1000:03d}")
        self._newest_name = max(stamp, self._newest_name + 1)
        return f"{self._newest_name:017d}"

    def _header(self, file: OpenIndexFile) -> IndexHeader:
        """The header as it is now; that of an empty file where the file was deleted."""
        if file.header is not None:
            return file.header
        mapped = self._mapping(file)
        return (None if mapped is None else read_header(mapped[1])) or IndexHeader(0, 0, 0, 0, 0, 1)

    def _mapping(self, file: OpenIndexFile) -> tuple[DiskFile, memoryview] | None:
        """The file and the whole of it, mapped; None if it was deleted.

        Full files are unmapped again when many others were asked since.
        """
        with self._lock:
            mapped = self._mapped.get(file)
            if mapped is None:
                try:
                    source = self._fs.open(join(self._directory, file.name))
                except FileNotFoundError:
                    if file in self.files:
                        raise
                    return None
                mapped = self._mapped[file] = (source, source.view())
            self._mapped.move_to_end(file)
            if len(self._mapped) > _MAPPED_MAX:
                idle = (old for old in self._mapped if old.header is not None and not old.is_dirty and old is not file)
                if (oldest := next(idle, None)) is not None:
                    del self._mapped[oldest]
            return mapped

    def _sync(self, files: list[OpenIndexFile]) -> None:
        """Syncs files, full ones first, and says until when the full ones are durable."""
        with self._lock:
            if self._failure is not None:
                raise OSError(self._failure.errno, self._failure.strerror, self._failure.filename)
        try:
            for file in files:
                header, file.is_dirty = file.header, False
                if (mapped := self._mapping(file)) is not None:
                    mapped[0].sync()
                if header is not None:
                    self.full_ms = max(self.full_ms, header.end_timestamp_ms)
        except OSError as failure:
            self._failure = failure
            raise

    def _sizes(self, source: DiskFile, size: int) -> tuple[int, int] | None:
        """Slots and items of a file: this store's, or what its content tells where its length is another."""
        if size == index.file_size(self._slot_count, self._item_count):
            return self._slot_count, self._item_count
        return index.infer_sizes(source.view()) if size > index.HEADER.size else None


def end_of(header: IndexHeader) -> int:
    """How far a file says the log is indexed; -1 where it says nothing."""
    return header.end_offset if header.index_count > 1 or header.end_offset > 0 else _NOTHING
