"""The state of timers and transactions that RocketMQ 5.4 and later keep in RocksDB (timerRocksDBEnable,
transRocksDBEnable): two column families of rocksdbstore/, read by the extra "rocksdb".

Integers are big-endian.  Java: MessageRocksDBStorage, TimerRocksDBRecord and TransRocksDBRecord of 5.5.1.  After a kill
they are as RocksDB wrote them last, up to five minutes before.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from rmqstore.directory.config_files import tell_once
from rmqstore.directory.layouts import is_database
from rmqstore.errors import Corrupt, Rejected
from rmqstore.files.disk import join
from rmqstore.formats.names import ROCKSDB_ROOM
from rmqstore.snapshot.survey.extents import StoreExtent

_I64 = struct.Struct(">q")
_CHECKS = struct.Struct(">i")
_TIMER_SCANNED, _TIMER_DELIVERED = b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint"
_TRANS_REACHED = b"lastOffsetPy"


class WaitingTimers(NamedTuple):
    """`reached` is the first queue offset of the timer topic that RocksDB has not taken in.  Of those before it the
    timers in `keys`, (ms of delivery, unique key), wait, if their time is not before `delivered_ms`.
    """

    reached: int = 0
    delivered_ms: int = 0
    keys: frozenset[tuple[int, str]] = frozenset()


class OpenTransactions(NamedTuple):
    """`checks`: how often each open transaction was checked, by the offset of its half message in the log.  RocksDB
    took in the half messages up to offset `reached`; -1: none.
    """

    reached: int
    checks: Mapping[int, int]


def waiting_timers(store: StoreExtent) -> WaitingTimers:
    """The timers that RocksDB has; none where it is not used, or cannot be read, which the log says."""
    entries = dict(_entries(store, "timer", "how far timers were delivered"))
    reached, delivered_ms = (_number(entries.pop(key, b"")) for key in (_TIMER_SCANNED, _TIMER_DELIVERED))
    timers = ((_number(key), key[_I64.size :]) for key in entries)
    return WaitingTimers(reached, delivered_ms, frozenset((ms, key.decode("utf-8", "replace")) for ms, key in timers))


def open_transactions(store: StoreExtent) -> OpenTransactions:
    """The transactions that RocksDB has; none where it is not used, or cannot be read, which the log says."""
    entries = dict(_entries(store, "trans", "how often transactions were checked, and which were given up"))
    reached = _number(entries.pop(_TRANS_REACHED)) if _TRANS_REACHED in entries else -1
    whole = {key: value for key, value in entries.items() if min(len(key), len(value)) >= _I64.size}
    return OpenTransactions(reached, {_number(key): _CHECKS.unpack_from(value)[0] for key, value in whole.items()})


def _number(data: bytes) -> int:
    """The i8 at the beginning; 0 where there is none."""
    return int(_I64.unpack_from(data)[0]) if len(data) >= _I64.size else 0


def _entries(store: StoreExtent, family: str, what: str) -> Mapping[bytes, bytes]:
    path = join(store.path, ROCKSDB_ROOM)
    if not is_database(store.disk, path):
        return {}
    from rmqstore.files import rocksdb  # noqa: PLC0415  few brokers keep them there

    try:
        return rocksdb.read_family(path, family)
    except (Corrupt, Rejected) as error:
        why = error.reason if isinstance(error, Corrupt) else error
        tell_once(f"{path}: RocksDB may know {what}, and is not asked; {why}")
        return {}
