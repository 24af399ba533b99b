"""The ends of all queues, looked at again and again while somebody writes: what a stream asks every few milliseconds.

The first look is a survey.  Later ones only read on from where the last one ended, and are a survey again when the
store changed in another way than by growing: files deleted, topics come or gone, the log cut, the owner started or
stopped.

What is not whole at the end of the log of a live store is "not yet": it is neither reported nor skipped, and is looked
at again.  Damage with dispatched messages after it is damage, as for a batch read; so is all damage of a store that was
killed and rests.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from rmqstore.clock import SYSTEM_CLOCK
from rmqstore.directory.listing import file_with
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_files import SIMPLE, open_queue
from rmqstore.directory.walk import Break, WalkLimits, marking_torn_end, walk
from rmqstore.errors import DataLost, NotAStore, StoreChanging
from rmqstore.files.disk import ReadableDisk, StoredFile, directory_of, join, read_part
from rmqstore.files.reading import LOCAL, canonical_path
from rmqstore.formats import message
from rmqstore.formats.names import (
    ABORT_FILE,
    BATCH_ROOM,
    LOCK_FILE,
    LOG_ROOM,
    NOWHERE,
    PLAIN_ROOM,
    QueueKey,
    is_light_queue,
)
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.opening import open_stores
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.request import Access, Place
from rmqstore.snapshot.store_paths import Paths
from rmqstore.snapshot.stores_in import StoresIn, is_begun, list_stores, none_left, refuse_one_log_twice
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent
from rmqstore.snapshot.survey.footprint import only_grew
from rmqstore.snapshot.survey.found_log import find_log_files
from rmqstore.snapshot.survey.missing_log import require_agreed, require_log
from rmqstore.snapshot.survey.survey import LooksLeft, survey

if TYPE_CHECKING:
    from rmqstore.records.queue_runs import QueueRun


# --- A live store read on from where it was looked at last, without a survey.

# A store that grew by more is surveyed: queue entries tell faster than records what there is.
_GROWTH_BYTES_MAX = 16 * 1024 * 1024


def read_on(growth: "Growth", files: tuple[StoredFile, ...], *, is_partial: bool = False) -> StoreExtent | None:
    """The store with what is whole at or after the place where the growth begins.

    Where only a survey can tell what there is: None, or, if it may be `is_partial`, what was found before.  Raises
    DataLost.
    """
    store, start = growth.store, growth.start
    end = files[-1].end if files else 0
    with LogView(store.disk, files, 0, end, store.deleted_before, own_bases=store.own_bases) as view:
        if store.queue_layout != "file":  # in files their entries tell of growth
            view.light_from = store.light_from
        for item in marking_torn_end(walk(view, WalkLimits(start, view.end, crc_from=start))):
            if isinstance(item, Break):
                is_end = item.resume is None
            elif growth.take(item):
                continue
            else:
                is_end = False
            if not is_end and not is_partial:
                return None
            break
    return growth.result(files)


class Growth:
    """Queues of `store` that grow by the records of stretches of the log from `start` on, where a record begins and
    before which each is counted, as long as each record follows the one before it."""

    def __init__(self, store: StoreExtent, start: int, *, is_partial: bool = False) -> None:
        self.store, self.start = store, start
        self._is_partial = is_partial
        self._queues: dict[QueueKey, QueueExtent] = {}
        self._end = start
        self._is_torn = False
        self.restarts: set[QueueKey] = set()  # queues that had messages: their topic was deleted and made again

    def take(self, stretch: Stretch) -> bool:
        """Counts the sound records up to the first that is not; False, and none counted, if that is not enough to know
        what there is.
        """
        if self._is_torn:
            return False  # something follows what is not whole
        reasons = stretch.reasons
        bad = np.flatnonzero(reasons != Reason.SOUND)
        if len(bad):
            self._is_torn = True
            if (reasons[bad[0] :] == Reason.SOUND).any() and not self._is_partial:
                return False
            good = np.arange(len(reasons)) < bad[0]
            stretch = stretch.take(good)
        if not len(stretch.offsets):
            return True
        end = int(stretch.offsets[-1] + stretch.located.total_size[-1])
        from rmqstore.directory.undispatched import all_runs  # noqa: PLC0415  where a log grew

        grown = [self._grown(run, stretch) for run in all_runs(stretch)]
        known = [queue for queue in grown if queue is not None]
        if end - self.start > _GROWTH_BYTES_MAX or len(known) < len(grown):
            return False
        self._queues |= {queue.key: queue for queue in known}
        self._end = end
        return True

    def _grown(self, run: "QueueRun", stretch: Stretch) -> QueueExtent | None:
        """The queue of a run with its records; None if they do not follow what is known of it."""
        queue = self._queues.get(run.key) or self.store.queues.get(run.key)
        has_entries_alone = is_light_queue(run.key[0]) and stretch.light_from == NOWHERE
        if queue is None or run.are_inner.any() or queue.files.kind != SIMPLE or has_entries_alone:
            return None
        fresh = run.queue_offsets >= queue.max_offset
        uncounted = stretch.offsets[run.rows] >= self.store.log_end
        if (uncounted & ~fresh).any():
            if (run.queue_offsets[uncounted] == 0).any():
                self.restarts.add(run.key)
            return None
        offsets = run.queue_offsets[fresh]
        end = queue.max_offset + len(offsets)
        if not np.array_equal(offsets, np.arange(queue.max_offset, end)):
            return None
        if not len(offsets):
            return queue
        low, high = queue.gap or (queue.max_offset, queue.max_offset)
        size = queue.gap_bytes + int(stretch.located.total_size[run.rows[fresh]].sum())
        return replace(queue, max_offset=end, gap=(low, max(high, end)), gap_bytes=size)

    def result(self, files: tuple[StoredFile, ...]) -> StoreExtent:
        """The grown store, the same object if it did not grow."""
        end = max(self._end, self.store.log_end)
        if end == self.store.log_end and not self._queues and len(files) == len(self.store.log_files):
            return self.store
        queues = {**self.store.queues, **self._queues}
        return replace(self.store, log_files=files, log_end=end, queues=queues, tail=None)


# ---

# --- Stores that appear in a directory of stores while a stream follows it.


class Arrivals:
    """Looks for stores that are not followed yet.

    What else appears there is `passed_over`, the reason by path: a running stream does not end because somebody began
    to copy something.  A store that appears is logged.
    """

    def __init__(self, paths: StoresIn, access: Access, disk: ReadableDisk) -> None:
        self.directory = canonical_path(paths.directory)
        self.passed_over: dict[str, str] = {}
        self._access, self._disk = access, disk
        self._compared: frozenset[str] = frozenset()

    def besides(self, known: Collection[str]) -> list[StoreExtent]:
        """The stores that are there, without those of the brokers that are `known`, and without one that changes too
        much to be looked at: that is seen by a later look.  Raises Rejected for a store that came under a wrong name.
        """
        listed = list_stores(self._disk, self.directory, known)
        found, passed_over = [], {}
        for path, error in listed.strays.items():
            if not isinstance(error, NotAStore):
                raise error
            passed_over[path] = error.reason
        for name, path in listed.stores:
            try:
                store = survey(self._disk, path, name, self._access)
                require_log(store)
                require_agreed(store)
                found.append(store)
            except (DataLost, FileNotFoundError, StoreChanging):
                continue
            except NotAStore as error:
                passed_over[path] = error.reason
        self.passed_over = passed_over
        return found

    def require_own_logs(self, stores: Sequence[StoreExtent]) -> None:
        """Raises Rejected for two stores with the same log, as soon as they have any of it."""
        begun = frozenset(store.broker_name for store in stores if store.log_end > store.log_start)
        if begun != self._compared:
            refuse_one_log_twice(stores)
            self._compared = begun


# ---

# Surveys of a live store in a row that end, and see something unsound which is gone at the next.
_SETTLING_LOOKS = 3
# How far the undispatched part may reach back before a survey looks what has been dispatched meanwhile.
_UNDISPATCHED_BYTES_MAX = 64 * 1024 * 1024
# After so many seconds without growth a survey looks whether something follows what is taken for the end.
_SURVEY_AGE_S = 30.0
# A log that nobody holds the lock of, and nobody wrote to for so many seconds, is as it stays: a broker flushes more
# often.  It may run on a host whose locks are not seen here; or the store is a copy that still comes.
_REST_S = 30.0
# Bytes before the end of the log that tell whether it is still the log that was looked at.
_TRACE_SIZE = 4096
# The errors of a file that is deleted while it is looked for.
_VANISHED = (DataLost, FileNotFoundError)


def without_missing_files(snapshot: SnapshotReader, access: Access) -> SnapshotReader:
    """The snapshot for a plan that goes on after commitlog files that are missing between others."""
    stores = [
        replace(store, damage=tuple(one for one in store.damage if file_with(store.log_files, one.offset)))
        for store in snapshot.stores
    ]
    return SnapshotReader(tuple(stores), access)


class StreamEnds:
    """Snapshots of the same stores, one after the other; not for several threads at once.  Holds no files open."""

    def __init__(self, paths: Paths, access: Access = "auto", disk: ReadableDisk = LOCAL) -> None:
        self._paths = paths
        self._disk = disk
        self.access = access
        self._arrivals = Arrivals(paths, access, disk) if isinstance(paths, StoresIn) else None
        self._watches: list[_Watch] = []
        self._seen: SnapshotReader | None = None

    def look(self, looks: LooksLeft | None = None) -> SnapshotReader:
        """The stores as they are now; the same object as before when nothing is new.  `looks` as of `survey`.

        Raises NotAStore, UnsupportedLayout, Rejected, DataLost, StoreChanging as `open_snapshot` does.
        """
        if self._seen is None:
            first = open_stores(self._paths, access=self.access, disk=self._disk)
            self._watches = [_Watch(store, self.access) for store in first.stores]
        looks = looks or LooksLeft()
        if self._arrivals is None:
            stores = tuple(watch.look(looks) for watch in self._watches)
        else:
            stores = self._all_in_directory(looks)
        if self._seen is None or [*map(id, stores)] != [*map(id, self._seen.stores)]:
            self._seen = SnapshotReader(stores, self.access)
        return self._seen

    def _all_in_directory(self, looks: LooksLeft) -> tuple[StoreExtent, ...]:
        """The stores of a directory in which stores come and go, by name."""
        assert self._arrivals is not None
        fresh = self._arrivals.besides([watch.broker_name for watch in self._watches])
        self._watches += [_Watch(store, self.access) for store in fresh]
        self._watches.sort(key=attrgetter("broker_name"))
        stores: dict[str, StoreExtent] = {}
        for watch in self._watches:
            try:
                stores[watch.broker_name] = watch.look(looks)
            except NotAStore:
                if is_begun(self._disk, watch.path):
                    raise
        self._watches = [watch for watch in self._watches if watch.broker_name in stores]
        if not stores:
            raise none_left(self._arrivals.directory)
        found = tuple(stores.values())
        self._arrivals.require_own_logs(found)
        return found

    def forget(self) -> None:
        """Makes the next look one that builds on nothing: for a caller that doubts what the last one said."""
        for watch in self._watches:
            watch.forget()

    @property
    def restarts(self) -> dict[Place, int]:
        """How often queues (broker, topic, queue id) that had messages were seen to begin again at 0 since the first
        look: their topic was deleted and made again."""
        return {(watch.broker_name, *key): count for watch in self._watches for key, count in watch.restarts.items()}

    @property
    def unsettled(self) -> dict[str, int]:
        """By broker, where in its log something stands that is not whole yet and has more after it."""
        return {watch.broker_name: watch.torn_at for watch in self._watches if watch.torn_at is not None}

    @property
    def passed_over(self) -> Mapping[str, str]:
        """By path, why what appeared among the stores of a directory is not read."""
        return {} if self._arrivals is None else self._arrivals.passed_over


@dataclass(frozen=True, slots=True)
class _State:
    """The looks of a store from outside, as far as a change of it asks for a survey."""

    log_files: tuple[StoredFile, ...]
    topics: tuple[tuple[str, ...], ...]
    is_abort_there: bool
    is_locked: bool

    def is_grown_from(self, other: "_State") -> bool:
        """Whether nothing but log files at the end is new."""
        owner = (self.topics, self.is_abort_there, self.is_locked)
        return owner == (other.topics, other.is_abort_there, other.is_locked) and only_grew(
            other.log_files, self.log_files, is_copied_over=True
        )


class _Watch:
    """One store: the last look at it, and where the next one reads on."""

    def __init__(self, store: StoreExtent, access: Access) -> None:
        self._access = access
        self._store = store
        self._state: _State | None = None  # None: nothing is known yet that a later look could build on
        self._trace = b""
        self._read_from = store.log_end
        self._known_s = 0.0  # when the end of the log was last found otherwise than by zeros after it
        self._suspected: frozenset[int] = frozenset()  # the damaged places of the last survey
        self._written_ms, self._unwritten_since_s = -1, 0.0  # when the log was last written to, and since when it rests
        self._is_doubted = False  # whether a second survey has to tell if what is unsound in a store at rest is damage
        self.torn_at: int | None = None
        self.restarts = Counter[QueueKey]()
        self.broker_name, self.path = store.broker_name, store.path

    def look(self, looks: LooksLeft) -> StoreExtent:
        """The store as it is now, the same object when nothing is new."""
        if self._grow(_state_of(self._store)):
            return self._store
        remaining = _SETTLING_LOOKS
        while remaining:
            state = _state_of(self._store)  # before the survey: what changes meanwhile is seen by the next look
            try:
                found = self._survey(looks)
                require_log(found)
                self._settle(found, state)
            except (*_VANISHED, StoreChanging) as gone:
                looks.again(gone, self.path)
                continue
            remaining -= 1
            # What a survey of a busy store took for damage is gone when the log is read on from the last sound place.
            if not (self._is_doubted and remaining) and self._grow(_state_of(self._store)):
                break
        return self._store

    def forget(self) -> None:
        """Makes the next look a survey."""
        self._state = None

    def _survey(self, looks: LooksLeft) -> StoreExtent:
        store = self._store
        return survey(store.disk, store.path, store.broker_name, self._access, store.extra_logs, looks=looks)

    def _settle(self, found: StoreExtent, state: _State) -> None:
        """Takes over a survey, without what is not settled yet."""
        before, is_same_log = self._store, self._state is not None and _trace(self._store) == self._trace
        is_at_rest = self._is_at_rest(found)
        self.torn_at = _unsettled(found, self._suspected, is_at_rest=is_at_rest)
        self._is_doubted = is_at_rest and self.torn_at is not None
        self._suspected = frozenset(damage.offset for damage in found.damage)
        self._read_from = found.log_end
        if self.torn_at is not None:
            found = _settled_part(found, self.torn_at)
            self._read_from = found.walk_from
            with suppress(*_VANISHED):
                growth = Growth(found, found.walk_from, is_partial=True)
                found = read_on(growth, found.log_files, is_partial=True) or found
            found = _not_below(found, before) if is_same_log else found
        self._state = state
        self._known_s = monotonic()
        self._store = found
        self._trace = _trace(found)

    def _is_at_rest(self, store: StoreExtent) -> bool:
        """Whether a store that was killed is not written to any more, nor copied: by the times of what stands in it and
        in its log's directories, or, where the clocks of disk and host are apart, as long as it was watched.

        A copy has the old files' times of writing.  It has not their times of change, nor has a file under another name
        until it is whole.
        """
        if not store.was_killed:
            return False
        rooms = {store.path, join(store.path, LOG_ROOM), *(directory_of(file.path) for file in store.log_files)}
        entries = [entry for room in rooms for entry in store.disk.entries(room)]
        written_ms = max((max(entry.modified_ms, entry.changed_ms) for entry in entries), default=0)
        if written_ms != self._written_ms:
            self._written_ms, self._unwritten_since_s = written_ms, monotonic()
        rested_s = max(monotonic() - self._unwritten_since_s, (SYSTEM_CLOCK.now_ms() - written_ms) / 1000)
        return rested_s >= _REST_S

    def _grow(self, state: _State) -> bool:
        """Reads on from the last look; False if that does not tell everything and a survey has to."""
        store = self._store
        if self._state is None or not state.is_grown_from(self._state) or _trace(store) != self._trace:
            return False
        if store.ledger is not None:
            return False  # how far the group has agreed is told by the queues
        if store.log_end - store.walk_from > _UNDISPATCHED_BYTES_MAX and store.queue_layout == "file":
            return False
        is_idle = self._read_from == store.log_end and _is_blank_at(store, state.log_files)
        if is_idle and monotonic() - self._known_s > _SURVEY_AGE_S:
            return False
        if not is_idle:
            growth = Growth(store, self._read_from)
            try:
                grown = read_on(growth, state.log_files)
            except _VANISHED:
                return False
            if grown is None:
                self.restarts.update(growth.restarts)
                return False
            self._store, self._trace, self.torn_at = grown, _trace(grown), None
            self._read_from = grown.log_end
            self._known_s = monotonic()
        self._state = state
        return not _light_queues_grew(self._store)


def _state_of(store: StoreExtent) -> _State:
    disk, root = store.disk, store.path
    return _State(
        find_log_files(disk, root, store.extra_logs),
        tuple(tuple(disk.names(join(root, room))) for room in (PLAIN_ROOM, BATCH_ROOM)),
        disk.exists(join(root, ABORT_FILE)),
        disk.is_locked(join(root, LOCK_FILE)),
    )


def _trace(store: StoreExtent) -> bytes:
    """The last bytes of the log as looked at; empty where they cannot be read."""
    file = file_with(store.log_files, store.log_end - 1)
    if file is None:
        return b""
    first = max(store.log_end - _TRACE_SIZE, file.start)
    try:
        return read_part(store.disk, file.path, first - file.start, store.log_end - first)
    except OSError:
        return b""


def _is_blank_at(store: StoreExtent, files: tuple[StoredFile, ...]) -> bool:
    """Whether zeros stand where the next record would, in the newest file that there is room in."""
    file = file_with(files, store.log_end)
    if file is None:
        return not files or store.log_end >= files[-1].end
    try:
        head = read_part(store.disk, file.path, store.log_end - file.start, message.BLANK.size)
    except OSError:
        return False
    return len(head) == message.BLANK.size and not any(head)


def _light_queues_grew(store: StoreExtent) -> bool:
    """Whether light queues (LMQ) have new entries: no record of the log belongs to one of them alone."""
    return any(
        open_queue(store.disk, store.path, *key, queue.files.kind).unbroken_end() != queue.entry_end
        for key, queue in store.queues.items()
        if is_light_queue(key[0])
    )


def _known_end(store: StoreExtent) -> int:
    """The end in the log of the last record that a queue entry points at; 0 if there is none."""
    known = 0
    for queue in store.queues.values():
        if queue.entry_start < queue.entry_end:
            last = queue.files.read(queue.entry_end - 1, queue.entry_end)[0]
            known = max(known, int(last["physical_offset"]) + int(last["size"]))
    return known


def _unsettled(store: StoreExtent, seen_before: frozenset[int], *, is_at_rest: bool) -> int | None:
    """The first damaged place of a live store that may be whole in a moment; None if there is none.

    A reader that is overtaken by the writer, or by the dispatcher between one queue and the next, sees such places too:
    damage is what was there in the survey before as well, and has dispatched messages after it, or is of a store at
    rest.
    """
    if not store.is_live or not store.damage:
        return None
    known = NOWHERE if is_at_rest else _known_end(store)
    return min(
        (one.offset for one in store.damage if one.offset >= known or one.offset not in seen_before), default=None
    )


def _settled_part(store: StoreExtent, torn_at: int) -> StoreExtent:
    """The store up to what is dispatched; later looks read on from the first place that may not be."""
    queues = {}
    for key, queue in store.queues.items():
        high = queue.entry_end if queue.files.kind == SIMPLE else queue.gap[0] if queue.gap else queue.max_offset
        if queue.entry_end > queue.entry_start:
            end = min(high, queue.max_offset)
            queues[key] = replace(queue, max_offset=end, min_offset=min(queue.min_offset, end))
        elif queue.files.files:
            queues[key] = replace(queue, min_offset=high, max_offset=high, gap=None)
    damage = tuple(one for one in store.damage if one.offset < torn_at)
    end = max(torn_at, _known_end(store))
    return replace(store, queues=queues, damage=damage, tail=None, log_end=end, walk_from=min(store.walk_from, torn_at))


def _not_below(store: StoreExtent, before: StoreExtent) -> StoreExtent:
    """The store with the queue ends that an earlier look saw in the same log."""
    queues = dict(store.queues)
    for key, old in before.queues.items():
        queue = queues.get(key)
        if queue is not None and queue.max_offset < old.max_offset:
            queues[key] = replace(queue, max_offset=old.max_offset, gap=old.gap, gap_bytes=old.gap_bytes)
    end = min(store.walk_from, before.walk_from)
    return replace(store, queues=queues, walk_from=end, log_end=max(store.log_end, before.log_end))
