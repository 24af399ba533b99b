"""Checking a whole store: records, queue entries and index items against each other, and the small files.

One pass over the log in order; queues and index files are read forward beside it, so that memory is bounded by blocks
and not by the store.
"""

from collections.abc import Callable, Iterator

import numpy as np

from rmqstore.directory.layouts import is_since_5_4
from rmqstore.directory.walk import Break, WalkLimits, walk
from rmqstore.formats import message, sys_flag
from rmqstore.formats.stored_message import StoredMessage
from rmqstore.records.dispatch_rules import is_dispatched
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.records.stretch import Stretch
from rmqstore.snapshot.arrow.bodies import unreadable_bodies
from rmqstore.snapshot.finding import DAMAGE, NOTE, Finding, NamedMessage, log_place
from rmqstore.snapshot.request import BODY_BYTES_MAX
from rmqstore.snapshot.survey.extents import Damage, StoreExtent
from rmqstore.snapshot.verify.files import (
    LogTimes,
    checkpoint_findings,
    config_findings,
    database_findings,
    file_findings,
)
from rmqstore.snapshot.verify.index import IndexCheck
from rmqstore.snapshot.verify.ledger import ledger_findings
from rmqstore.snapshot.verify.queues import QueueCheck
from rmqstore.snapshot.verify.stretch_facts import StretchFacts

_PORT, _PORT_MAX = np.dtype(">i4"), 65535


def verify(
    store: StoreExtent, progress: Callable[[int], None] | None = None, *, body_bytes_max: int = BODY_BYTES_MAX
) -> Iterator[Finding]:
    """Everything that is not as it should be, while it is found.  `progress` is told how many bytes are done.  A body
    that unpacks to more than `body_bytes_max` bytes counts as one that cannot be had.

    Raises DataLost if a file of the log is deleted meanwhile.
    """
    yield from ledger_findings(store)
    if store.is_bare_node:
        return
    yield from file_findings(store)
    index, queues = IndexCheck(store), QueueCheck(store)
    yield from index.file_findings()
    times = LogTimes()
    for item in _readings(store):
        if isinstance(item, Finding):
            yield item
            continue
        yield from _record_findings(store, item, body_bytes_max)
        times.add(_newest(item), _last_dispatched(item))
        queues.check(item)
        index.check(item)
        if progress:
            progress(item.high - store.log_start)
    if store.tail and store.tail.reason != message.NO_DATA:
        yield _end_finding(store, store.tail)
    yield from queues.findings()
    yield from index.findings()
    yield from checkpoint_findings(store, times, index.file_ends_ms)
    yield from config_findings(store)
    yield from database_findings(store)


def _end_finding(store: StoreExtent, tail: Damage) -> Finding:
    """The bytes after the last record, which are none: of one that was cut off as a rule."""
    is_none = not store.is_live and tail.reason.startswith(message.NO_MAGIC)
    if is_none and is_since_5_4(store.disk, store.path):
        reason = "bytes that are no record stand after the last one, as writeWithoutMmap of RocketMQ 5.4 leaves them"
        return Finding(tail.path, tail.position, reason, NOTE)
    reason = f"the log ends torn: {tail.reason}"
    return Finding(tail.path, tail.position, reason, NOTE if store.lock_held else DAMAGE)


def _readings(store: StoreExtent) -> Iterator[StretchFacts | Finding]:
    """The log from its first file to its end, every CRC checked."""
    start, end = store.log_start, store.log_end
    low, after_break = start, False
    limits = WalkLimits(start, end, crc_from=start, known_end=end)
    with store.view("auto") as view:
        for item in walk(view, limits) if start < end else ():
            if isinstance(item, Break):
                after_break = True
                if item.resume is not None:
                    path, position = log_place(store.log_files, item.offset)
                    yield Finding(
                        path, position, f"{item.reason}; the next sound record is at {item.resume} of the log"
                    )
                continue
            high = int(item.offsets[-1] + item.located.total_size[-1])
            yield StretchFacts(item, low, high, after_break)
            low, after_break = high, False


def _record_findings(store: StoreExtent, reading: StretchFacts, body_bytes_max: int) -> Iterator[Finding]:
    stretch = reading.stretch
    said_elsewhere = -1 if store.tail is None else store.tail.offset
    for row in np.flatnonzero((stretch.reasons != Reason.SOUND) & (stretch.offsets != said_elsewhere)).tolist():
        path, position = log_place(store.log_files, int(stretch.offsets[row]))
        yield Finding(path, position, TEXT[Reason(int(stretch.reasons[row]))], message=_named(stretch, row))
    for row, name, port in _impossible_ports(reading):
        path, position = log_place(store.log_files, int(stretch.offsets[row]))
        said = (
            f"{name} has port {port}: the record's head, which no checksum covers, was changed; clients cannot read it"
        )
        yield Finding(path, position, said, message=_named(stretch, row))
    for row, reason in unreadable_bodies(stretch, reading.rows.tolist(), body_bytes_max):
        path, position = log_place(store.log_files, int(stretch.offsets[row]))
        said = f"body: {reason}; its CRC is right, so that it came like that"
        yield Finding(path, position, said, message=_named(stretch, row))


def _impossible_ports(reading: StretchFacts) -> Iterator[tuple[int, str, int]]:
    """Rows of sound records with a host whose port is no port (Java: InetSocketAddress throws), its name, and it."""
    located = reading.located
    fields = {
        "bornHost": (located.starts + message.HEAD.size, sys_flag.BORN_HOST_V6),
        "storeHost": (located.store_host_at, sys_flag.STORE_HOST_V6),
    }
    for name, (places, v6) in fields.items():
        address_size = np.where(located.flags & v6, message.HOST_V6.size, message.HOST_V4.size) - _PORT.itemsize
        ports = located.page[(places + address_size)[:, None] + np.arange(_PORT.itemsize)].view(_PORT)[:, 0]
        for row in np.flatnonzero((ports < 0) | (ports > _PORT_MAX)).tolist():
            yield int(reading.rows[row]), name, int(ports[row])


def _named(stretch: Stretch, row: int) -> NamedMessage | None:
    """The message of a record as it names itself, None where no whole one stands."""
    located = stretch.located
    if not located.sound[row]:
        return None
    start, size = int(located.starts[row]), int(located.total_size[row])
    found = StoredMessage(located.page[start : start + size].tobytes(), 0, size, int(stretch.offsets[row]))
    return NamedMessage(found.topic, found.queue_id, found.queue_offset, found.keys)


def _newest(reading: StretchFacts) -> int:
    """The latest store time of the sound records of a stretch; 0 if there is none."""
    return int(reading.located.store_timestamp().max(initial=0))


def _last_dispatched(reading: StretchFacts) -> int | None:
    """Store time of the last sound record of a stretch that belongs to a queue; None if none does."""
    times = reading.located.store_timestamp()[is_dispatched(reading.located.flags)]
    return int(times[-1]) if len(times) else None
