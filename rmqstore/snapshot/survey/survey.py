"""Opening a store directory: one look at files, queues and the newest part of the log makes a StoreExtent."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rmqstore.directory.config_files import consumer_offsets, databases, tell_once, topics
from rmqstore.directory.deleted_queues import deleted_before, without_deleted
from rmqstore.directory.deleted_topics import deleted_topics
from rmqstore.directory.layouts import has_light_files, load_checkpoint, queue_database
from rmqstore.directory.ledger.nodes import is_node
from rmqstore.directory.listing import directories
from rmqstore.directory.log_files import LogView
from rmqstore.directory.queue_ends import batch_begin, batch_end, unwritten_before
from rmqstore.directory.queue_files import BATCH, QueueFiles, find_queues, is_valid_entry
from rmqstore.errors import Corrupt, DataLost, Rejected, StoreChanging, StoreError
from rmqstore.files.disk import ReadableDisk, join, tells_of_change
from rmqstore.formats import message
from rmqstore.formats.deleted_topics import Deleted, DeletedTopic, DeletedTopics
from rmqstore.formats.message_columns import Ints
from rmqstore.formats.names import CHECKPOINT_FILE, CONFIG_ROOM, NOWHERE, QUEUE_ROOMS, QueueKey, is_light_queue
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.survey import extents
from rmqstore.snapshot.survey.census import Census
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent, batch_topics
from rmqstore.snapshot.survey.footprint import Footprint
from rmqstore.snapshot.survey.found_log import refuse_unread_layouts
from rmqstore.snapshot.survey.ledger_extent import agreed_end, bare_log, ledger_extent, settled
from rmqstore.snapshot.survey.log_search import Found, search, settle_end
from rmqstore.snapshot.survey.queue_entries import QueueEntries, SmallQueues, first_kept
from rmqstore.snapshot.survey.truncated_tail import WriterTraces
from rmqstore.snapshot.survey.unnoted_deletions import noted_with, restarted_queues, topics_gone

# --- The bounds of every queue as RocketMQ answers them: its entries that count, joined with what only the log holds.

_TAIL_ENTRIES = 1024


def queue_extents(
    root: str, entries: QueueEntries, census: Census, log_end: int, view: LogView
) -> dict[QueueKey, QueueExtent]:
    """All queues by topic and queue id, those without files too.  Entries at the end that point past the log's end, or
    back, do not count, but those that the walk found records for (`census.held`) do.  Raises DataLost, StoreChanging.
    """
    held = census.held
    result = dict(_small_extents(entries.small, held, log_end, view.start))
    for key, queue in entries.queues.items():
        if key not in result:
            result[key] = _entry_extent(queue, (entries.ends[key], held.get(key, 0)), log_end, view)
    for key, gap in census.gaps.items():
        known = result.get(key)
        if known is None or known.max_offset == known.min_offset == known.entry_end == 0:
            files = entries.queues.get(key, QueueFiles(root, key[0], key[1], gap.kind, (), view.disk))
            known = QueueExtent(files, gap.low, gap.high, 0, 0, None)
        low = min(known.min_offset, gap.low) if known.max_offset > known.min_offset else gap.low
        result[key] = QueueExtent(
            known.files, low, max(known.max_offset, gap.high), known.entry_start, known.entry_end,
            (gap.low, gap.high), gap.byte_count, known.mean_size,
        )  # fmt: skip
    return dict(sorted(result.items()))


def _small_extents(
    small: SmallQueues, held: Mapping[QueueKey, int], log_end: int, log_start: int
) -> Iterator[tuple[QueueKey, QueueExtent]]:
    """The bounds of small queues, but for those that grew since they were read."""
    rows = np.arange(len(small.offsets))
    kept = small.offsets >= log_start
    is_whole = small.offsets + small.sizes <= log_end
    firsts = small.edges[:-1]
    ends = _highest(np.where(is_whole, rows + 1, 0), small.edges, firsts)
    starts = firsts + _sums(~kept, small.edges)
    sizes, counts = _sums(small.sizes, small.edges), np.maximum(np.diff(small.edges), 1)
    slots = [small.firsts + part - firsts for part in (starts, ends)]
    numbers = zip(*(each.tolist() for each in (*slots, small.ends, sizes / counts)), strict=True)
    for queue, (first_kept_slot, last_good, read_end, mean_size) in zip(small.queues, numbers, strict=True):
        key = queue.topic, queue.queue_id
        if held.get(key, 0) <= read_end:
            end = max(last_good, held.get(key, 0))
            start = min(first_kept_slot, end)
            yield key, QueueExtent(queue, start, end, start, end, None, 0, mean_size)


def _sums(values: np.ndarray, edges: Ints) -> Ints:
    """The sum of each part of `values` that `edges` cut."""
    sums = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    return np.asarray(sums[edges[1:]] - sums[edges[:-1]])


def _highest(values: Ints, edges: Ints, least: Ints) -> Ints:
    """The highest of each part of `values` that `edges` cut, not below `least`."""
    result = least.copy()
    filled = edges[1:] > edges[:-1]
    if filled.any():
        result[filled] = np.maximum(np.maximum.reduceat(values, edges[:-1][filled]), least[filled])
    return result


def _entry_extent(queue: QueueFiles, ends: tuple[int, int], log_end: int, view: LogView) -> QueueExtent:
    """Bounds by the entries alone: `ends` are the end of the entries, and the end of those that the walk found records
    for.
    """
    first = queue.first_slot()
    end, held = max(ends), ends[1]
    while end > first:
        low = max(end - _TAIL_ENTRIES, first)
        entries = queue.read(low, end)
        offsets = entries["physical_offset"].astype(np.int64)
        good = is_valid_entry(queue.kind, entries)
        if low < ends[0] <= end and not good[ends[0] - 1 - low]:
            raise StoreChanging(queue.directory, "its last entry went")
        good &= offsets + entries["size"] <= log_end
        rising = np.maximum.accumulate(np.where(good, offsets, -1))
        good[1:] &= offsets[1:] > rising[:-1]
        bad_tail = int(np.argmax(good[::-1])) if good.any() else len(good)
        end -= bad_tail
        if good.any():
            break
    end = max(end, held)
    start = first_kept(queue, first, end, view.start)
    bound = batch_end(queue, end, view) if queue.kind == BATCH else end
    if start >= end:
        return QueueExtent(queue, bound, bound, end, end, None)
    if queue.kind == BATCH:
        return QueueExtent(queue, min(batch_begin(queue, start, end, view), bound), bound, start, end, None)
    low = start
    if start > first and int(queue.read(start, start + 1)["physical_offset"][0]) > view.start:
        low = unwritten_before(queue, start)  # RocketMQ leaves no zeros there: entries that are gone
    return QueueExtent(queue, low, end, start, end, None)


# ---

# After a clean stop only the CRCs of the newest part are checked on reading; RocketMQ checks its three newest files.
_CHECKED_SIZE = 16 * 1024 * 1024
# Looks in a row at a store that changes; that it happens so often means that it is not about to end.
LOOKS_MAX = 24
# What so many of them find to be lost is lost.
LOSSES_MIN = 3


class LooksLeft:
    """The looks at stores that change which one question takes: `LOOKS_MAX` of each at most, whoever asks for the next.
    Fewer, where `LOSSES_MIN` of them end with the same loss.  Not for several threads at once.
    """

    __slots__ = ("_losses", "_taken")

    def __init__(self) -> None:
        self._taken, self._losses = Counter[str](), Counter[str]()

    def again(self, error: StoreError | FileNotFoundError, path: str = "") -> None:
        """Counts the next look at the store at `path`, or at all.  Raises the error that the last one ended with, where
        none is left.
        """
        self._taken[path] += 1
        self._losses[str(error)] += isinstance(error, DataLost)
        if self._taken[path] >= LOOKS_MAX or self._losses[str(error)] >= LOSSES_MIN:
            raise error from None


class SurveyScope(NamedTuple):
    """The part of a store that is asked for.  With `topics` only the queues of these, where that is less work and loses
    nothing (`is_partial` tells).  `uncommitted`: also what the group of a DLedger log may still revoke.  `by_database`:
    queues that stand in RocksDB are read from there, where that can be done and their entries are proven.
    """

    topics: Collection[str] = ()
    uncommitted: bool = False
    by_database: bool = False


WHOLE = SurveyScope()


def survey(
    disk: ReadableDisk,
    root: str,
    broker_name: str | None = None,
    access: Access = "auto",
    extra_logs: tuple[str, ...] = (),
    scope: SurveyScope = WHOLE,
    looks: LooksLeft | None = None,
) -> StoreExtent:
    """The store at `root` as it is now; `extra_logs` are commitlog directories elsewhere that belong to it.  All paths
    are absolute.

    A store that changes otherwise than by growing while it is looked at is looked at again, as often as there are
    `looks`.  Raises NotAStore, UnsupportedLayout; DataLost, StoreChanging if it goes on changing.
    """
    seen, looks = None, looks or LooksLeft()
    while True:
        before = Footprint.of(disk, root, extra_logs)
        try:
            found = _look(before, broker_name, access, scope)
            now = Footprint.of(disk, root, extra_logs)
            changed = before.changed(found, now)
        except (DataLost, FileNotFoundError, StoreChanging) as gone:
            looks.again(changing(root, gone), root)  # a file vanished meanwhile: its owner deletes old ones
            continue
        if not changed or (found == seen and now.batch_start >= found.log_end):
            return found
        seen = found
        looks.again(StoreChanging(root, changed), root)


def changing(root: str, error: DataLost | FileNotFoundError | StoreChanging) -> StoreError:
    """The error for a file that vanished or was cut while it was looked at: StoreChanging; a file that is there and
    cannot be read is told as it is.
    """
    if isinstance(error, StoreChanging) or (isinstance(error, DataLost) and not tells_of_change(error.reason)):
        return error
    path = error.path if isinstance(error, DataLost) else error.filename
    return StoreChanging(root, f"the file {path} went or was cut")


def _look(before: Footprint, broker_name: str | None, access: Access, scope: SurveyScope) -> StoreExtent:
    """A store that had this footprint a moment ago.  Raises as `survey` at anything that vanishes."""
    disk, (root, extra_logs, children, log_files) = before.disk, before.at_root
    if is_node(disk, root, children):
        return _bare_node(before, broker_name, access)
    refuse_unread_layouts(disk, before.at_root)
    database = queue_database(disk, root)
    rocksdb = database.is_alone if database is not None else _lacks_database(disk, root)
    has_hidden = database is not None and not rocksdb and _hides_light_queues(disk, root)
    is_still = not before.is_abort_there and not before.is_locked
    end = min(log_files[-1].end, before.batch_start) if log_files else 0
    checkpoint = load_checkpoint(disk, root)
    told = extents.ToldName(broker_name) if broker_name else extents.stored_broker_name(disk, root)
    whole = StoreExtent(
        disk=disk,
        path=root,
        broker_name=told.name,
        other_names=told.others,
        log_files=log_files,
        queues={},
        version_line=extents.version_line(disk, root, checkpoint),
        checkpoint=checkpoint,
        abort_present=before.is_abort_there,
        lock_held=before.is_locked,
        log_end=end,
        walk_from=end,
        crc_from=0,
        queue_layout="RocksDB" if rocksdb else "file",
        extra_logs=extra_logs,
        access=access,
        ledger=ledger_extent(disk, root, extra_logs, log_files),
        includes_uncommitted=scope.uncommitted,
        light_from=log_files[0].start if has_hidden and log_files else NOWHERE,
    )
    mapped = end if access == "mmap" or (is_still and access == "auto") else 0
    noted, by_part = deleted_topics(disk, root), whole
    if database is not None and rocksdb and scope.by_database:
        by_part = _look_by_database(whole, database.path, mapped, noted)
    elif scope.topics and not rocksdb and not has_hidden and not whole.was_killed and whole.ledger is None:
        by_part = _look_at_topics(whole, scope.topics, mapped)
    if by_part.queues:
        return by_part
    return _look_at(whole, () if rocksdb else find_queues(disk, root, children), mapped, noted, {})


def _look_at_topics(store: StoreExtent, names: Collection[str], mapped: int) -> StoreExtent:
    """The queues of some topics of the store; no queues where all have to be looked at."""
    from rmqstore.snapshot.survey.topic_search import queues_of_topics  # noqa: PLC0415  reads of a few topics alone

    own = queues_of_topics(store.disk, store.path, names)
    return store if own is None else _look_at(replace(store, is_partial=True), own, mapped, {}, {})


def _look_by_database(store: StoreExtent, path: str, mapped: int, noted: DeletedTopics) -> StoreExtent:
    """The store by the entries in the database at `path`; no queues where these do not tell, or cannot be read.

    RocksDB keeps what was put into it in that order, and dispatch goes along the log, with a record's own queue and
    its light queues at once.  A kill takes the newest entries, and a broker may go on without them: so the log's first
    record and those of its newest files have to have theirs, but for deleted topics'; of light queues nothing else
    would tell.
    """
    from rmqstore.directory.rocksdb_queues import QueueDatabaseDisk  # noqa: PLC0415  few brokers keep queues there

    database = QueueDatabaseDisk(store.path, path)
    if not any(config.has_batch_queues for config in topics(store.disk, store.path).values()):
        with suppress(
            Corrupt, Rejected, DataLost, FileNotFoundError
        ):  # what is lost of the log, the walk of all of it tells as well
            if queues := database.all_queues():
                return _look_at(replace(store, database=database), queues, mapped, noted, {})
    return store


def _bare_node(before: Footprint, broker_name: str | None, access: Access) -> StoreExtent:
    """A DLedger node's directory by itself as a store without queues, whose log ends where its group has agreed: it is
    another program's than a broker's, or was taken for a broker's root.
    """
    root = before.at_root.root
    ledger, files = bare_log(before.disk, root)
    return StoreExtent(
        disk=before.disk,
        path=root,
        broker_name=broker_name or ledger.node.self_id or "default",
        log_files=files,
        queues={},
        version_line="DLedger",
        checkpoint=None,
        abort_present=before.is_abort_there,
        lock_held=before.is_locked,
        log_end=ledger.committed_end,
        walk_from=ledger.committed_end,
        crc_from=ledger.committed_end,
        access=access,
        ledger=ledger,
    )


def _tell_lost(store: StoreExtent, newest_ms: int) -> None:
    """Warns once of a store that was not closed and whose checkpoint tells that a later message than the newest one was
    on the disk.  No damage: a copy of a running store is like that, and a clock that was set back makes one.  Nothing
    is told where messages at the end do not count: a sink's batch, or what a group has not agreed on.
    """
    ahead_ms = 0 if store.checkpoint is None else store.checkpoint.physic_timestamp_ms - newest_ms
    is_whole = store.ledger is None and bool(store.log_files) and store.log_end == store.log_files[-1].end
    if store.was_killed and is_whole and newest_ms and ahead_ms > 0:
        tell_once(
            f"{join(store.path, CHECKPOINT_FILE)}: a message was on the disk that is {ahead_ms} ms later than the "
            "newest one of the log: unless this is a copy of a running store, or its clock was set back, some are lost"
        )


def _lacks_database(disk: ReadableDisk, root: str) -> bool:
    """Whether the queues of a store were in RocksDB alone and are not here: the broker's tables are there, and no queue
    has a file.  RocketMQ then names no INNER_BASE in the log.
    """
    tables = () if disk.exists(join(root, CONFIG_ROOM, "topics.json")) else databases(disk, root)
    if not tables or any(
        any(directories(disk, topic)) for room in QUEUE_ROOMS for _, topic in directories(disk, join(root, room))
    ):
        return False
    tell_once(
        f"{root}: no consume queue is here, and {tables[0]} tells of a broker that keeps them in RocksDB: the "
        "commitlog tells of all messages"
    )
    return True


def _hides_light_queues(disk: ReadableDisk, root: str) -> bool:
    """Whether RocksDB alone has light queues, beside queues in files (combineCQUseRocksdbForLmq), as far as the tables
    in config/ tell of any: by lite topics, or by offsets that groups committed.  Their records tell of them.
    """
    if has_light_files(disk, root):
        return False
    has_lite = any(config.attributes.get("message.type") == "LITE" for config in topics(disk, root).values())
    return has_lite or any(is_light_queue(topic) for _, topic in consumer_offsets(disk, root))


def _leave_out_deleted(store: StoreExtent, census: Census, view: LogView) -> None:
    """Takes out the queues that RocksDB alone would have, and has no longer: the broker deleted them, or let light
    queues expire.  Their records tell of them for ever.  None where the database cannot be read, or is another log's,
    and none that it has not taken in; no plain queue of a topic that the broker's configuration has, or of a store that
    was killed (see `topics_gone`).
    """
    kept = None
    if store.queue_layout != "file" and not store.was_killed:
        kept = topics(store.disk, store.path)
    asked = [key for key in census.gaps if is_light_queue(key[0]) or (kept and key[0] not in kept)]
    is_alone = store.queue_layout != "file" or store.light_from != NOWHERE
    database = queue_database(store.disk, store.path) if asked and is_alone else None
    if database is None:
        return
    from rmqstore.directory.rocksdb_queues import offset_table  # noqa: PLC0415  few brokers keep queues there

    known = offset_table(database.path)
    plain = [(place, key) for key, place in known.places.items() if place < view.end and not is_light_queue(key[0])]
    if not plain or not _stands_at(view, *max(plain)):
        return
    for key in asked:
        if key not in known.places and census.gaps[key].last_offset < known.reached:
            del census.gaps[key]


def _reach(store: StoreExtent, queues: Sequence[QueueFiles], view: LogView) -> int | None:
    """Up to where in the log a database has entries: NOWHERE without one, None where they are not this log's."""
    if store.database is None:
        return NOWHERE
    from rmqstore.directory.rocksdb_queues import proven_reach  # noqa: PLC0415  few brokers keep queues there

    return proven_reach(queues, view)


def _lacks_entries(census: Census, reach: int) -> bool:
    """Whether a message in front of an offset of the log has no entry in its own queue."""
    return any(gap.first_offset < reach for key, gap in census.gaps.items() if not is_light_queue(key[0]))


def _search_start(store: StoreExtent, entries: QueueEntries, view: LogView) -> int:
    """Where in the log the search for what has no entry begins."""
    start = extents.recovery_start(view, store.checkpoint, store.abort_present)
    if store.is_partial:
        return start
    if entries.first_known(view.start) > view.start or view.light_from <= view.start:
        return view.start  # no queue file knows of the oldest messages, or of any light queue
    return start if store.database is None else min(start, view.light_from)


def _search(
    store: StoreExtent, view: LogView, entries: QueueEntries, words: WriterTraces, start: int
) -> Found | None:  # fmt: skip
    """The messages of the log without an entry; None of a part of the store, where all has to be looked at."""
    if store.is_partial:
        from rmqstore.snapshot.survey.topic_search import search_topics  # noqa: PLC0415  reads of a few topics alone

        return search_topics(store.path, view, entries, words)
    return settle_end(view, entries, search(view, start, entries), words)


def _stands_at(view: LogView, place: int, key: QueueKey) -> bool:
    """Whether a message of a queue stands at an offset of the log, as its database says."""
    if view.file_number(place) is None:
        return False
    page, position = view.window(place, message.BLANK.size)
    if len(page) - position < message.BLANK.size:
        return False
    record = view.whole_record(place, message.BLANK.struct.unpack_from(page, position)[0])
    return record is not None and (record.topic.decode("utf-8", "replace"), record.queue_id) == key


def _batch_topics(store: StoreExtent, listed: Sequence[QueueFiles]) -> frozenset[bytes]:
    """The topics that have batch queues, by the files of their queues or the broker's configuration."""
    configs = topics(store.disk, store.path)
    return batch_topics(listed) | {name.encode() for name, config in configs.items() if config.has_batch_queues}


def _topics_gone(store: StoreExtent, searched: Found) -> dict[Deleted, DeletedTopic]:
    """The topics of the records that were found which were deleted; no light queue where RocksDB alone has them."""
    files_tell = store.light_from == NOWHERE
    return topics_gone(store, searched.end.census, searched.known_end, with_light=files_tell)


def _look_at(
    store: StoreExtent, listed: Sequence[QueueFiles], mapped: int, noted: DeletedTopics, begun: Mapping[QueueKey, int]
) -> StoreExtent:  # fmt: skip
    """The store, whose log is looked at up to `log_end` and mapped below `mapped`, with these queues, all that it has;
    if it `is_partial` those that are wanted: then with no queues where these are not enough, and where its `database`
    is not proven.  `noted` are the topics that were deleted, `begun` queues that begin again at a place of the log.
    """
    root, is_clean = store.path, not store.is_live
    words = WriterTraces(is_clean, store.checkpoint, 0 if store.ledger is None else store.ledger.committed_end)
    own_bases = store.own_bases if store.ledger is None else _batch_topics(store, listed)
    with LogView(store.disk, store.log_files, mapped, store.log_end, own_bases=own_bases) as view:
        view.deleted_before = deleted = deleted_before(noted, listed, view)
        queues = {(queue.topic, queue.queue_id): without_deleted(queue, deleted, view) for queue in listed}
        deleted.update(begun.items())
        if (reach := _reach(store, listed, view)) is None:
            return store
        entries = QueueEntries.of(queues, view)
        view.light_from = min(store.light_from, entries.light_from(may_lag=not is_clean), reach)
        start = _search_start(store, entries, view)
        if (ledger := store.ledger) is not None:
            ledger = settled(store.disk, ledger, agreed_end(ledger, entries, view))
            view.end = view.end if store.includes_uncommitted else ledger.agreed_end
        searched = _search(store, view, entries, words, start)
        if searched is None:
            return store
        found = searched.end
        again = restarted_queues(found.census, entries, view)
        unnoted = {} if store.was_killed else again.topics | _topics_gone(store, searched)
        if not again.queues.keys() <= begun.keys() or noted_with(unnoted, noted) != noted:
            return _look_at(store, listed, mapped, noted_with(unnoted, noted), {**again.queues, **begun})
        if store.database is not None and _lacks_entries(found.census, reach):
            return store
        _leave_out_deleted(store, found.census, view)
        bounds = queue_extents(root, entries, found.census, found.log_end, view)
    _tell_lost(store, found.newest_ms)
    return replace(
        store,
        queues=bounds,
        log_end=found.log_end,
        walk_from=searched.walk_from,
        crc_from=start if store.abort_present else max(start, found.log_end - _CHECKED_SIZE),
        damage=found.damage,
        tail=found.tail,
        deleted_before=deleted,
        ledger=ledger,
        light_from=view.light_from,
    )
