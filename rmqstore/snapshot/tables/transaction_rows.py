"""Transactions as the half and op topics tell them, in vectors (both dialects of op messages: docs/formats.md)."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.core.arguments import I64_MAX
from rmqstore.formats import names, properties, sys_flag
from rmqstore.snapshot.plan.range_pruning import Interval, RowConditions
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.tables.rocksdb_state import open_transactions
from rmqstore.snapshot.tables.system_scan import Ints, int64s, messages_of_topics, property_of, whole_numbers

_OP_TAG = "d"
_STATES = np.array(["pending", "committed", "rolledback", "discarded"])
_PENDING, _COMMITTED, _ROLLED_BACK, _DISCARDED = range(4)
_HALF_COLUMNS = ("topic", "queueOffset", "physicalOffset", "bornTimestamp", "storeTimestamp", "properties", "msgId")
_COMMIT_COLUMNS = ("queueOffset", "sysFlag", "preparedTransactionOffset", "storeTimestamp")


def transaction_rows(store: StoreExtent, access: Access) -> dict[str, Any]:
    """The columns of the table `transactions`, one row a transaction, in the order of their half messages.

    A check copies a half message with one more TRANSACTION_CHECK_TIMES: the copies are one transaction.  Committed is
    one of which a committed message names a copy; with an op message and none, it was rolled back.  Discarded is one
    that was given up first.  Where RocksDB has the state of open ones, it tells how often they were checked, and
    that they were given up: by their absence.
    """
    half = messages_of_topics(store, names.HALF_TOPICS, _HALF_COLUMNS, access).sort_by("physicalOffset")
    found = {name: property_of(half, name) for name in (properties.REAL_TOPIC, properties.PRODUCER_GROUP)}
    times = int64s(whole_numbers(property_of(half, properties.CHECK_TIMES)), 0)
    group = found[properties.PRODUCER_GROUP]
    numbers, firsts = _transactions(half, group, times)
    count = len(firsts)
    op_us = np.minimum(_op_times(store, access, half), _rocksdb_op_times(store, access, half))
    commit_places, commit_us = _commits(store, access, half, found[properties.REAL_TOPIC])
    newest = np.full(count, -1, np.int64)
    np.maximum.at(newest, numbers, times)
    is_given_up = _ask_rocksdb(store, half, firsts, newest)
    decided = _least(op_us, numbers, count)
    committed_us, commit_offset = _least(commit_us, numbers, count), _least(commit_places, numbers, count)
    given_up_us = _given_up_times(store, access, half["msgId"].take(pa.array(firsts)))
    states = np.where(decided < I64_MAX, _ROLLED_BACK, np.where(is_given_up, _DISCARDED, _PENDING))
    states[(given_up_us < I64_MAX) & (given_up_us <= decided)] = _DISCARDED  # this engine writes an op message next
    states[committed_us < I64_MAX] = _COMMITTED
    decided = np.minimum(decided, committed_us)
    first_rows = half.take(pa.array(firsts))
    return {
        "topic": found[properties.REAL_TOPIC].take(pa.array(firsts)),
        "queueId": whole_numbers(property_of(first_rows, properties.REAL_QUEUE_ID)),
        "transactionId": first_rows["msgId"],
        "producerGroup": group.take(pa.array(firsts)),
        "state": pa.array(_STATES[states].tolist(), pa.string()),
        "halfOffset": first_rows["queueOffset"],
        "commitOffset": pa.array(commit_offset, mask=commit_offset == I64_MAX),
        "checkTimes": pa.array(np.clip(newest, 0, 2**31 - 1)),
        "preparedTimestamp": first_rows["storeTimestamp"],
        "decidedTimestamp": pa.array(decided, pa.timestamp("us", tz="UTC"), mask=decided == I64_MAX),
    }


def _ask_rocksdb(store: StoreExtent, half: pa.Table, firsts: Ints, checks: Ints) -> npt.NDArray[np.bool_]:
    """Which transactions RocksDB took in and no longer has: it gave up those that nobody decided.  `checks` gets
    how often the others were checked.
    """
    first = half.take(pa.array(firsts))
    places = int64s(first["physicalOffset"], -1)
    is_its = np.asarray(pc.equal(first["topic"], names.ROCKSDB_HALF_TOPIC), bool)
    if not is_its.any():
        return is_its
    known = open_transactions(store)
    is_its &= places <= known.reached
    for row in np.flatnonzero(is_its).tolist():
        checks[row] = known.checks.get(int(places[row]), checks[row])
    if store.lock_held:
        return np.zeros(len(is_its), bool)  # a broker that runs may have decided one since the log was looked at
    return is_its & ~np.isin(places, np.fromiter(known.checks, np.int64, len(known.checks)))


def _transactions(half: pa.Table, group: pa.ChunkedArray, times: Ints) -> tuple[Ints, Ints]:
    """The number of each half message's transaction, int64[n], and the row of each transaction's first half message.

    Copies share group, unique key and time of birth; one that was never checked begins a transaction.
    """
    born = pc.fill_null(half["bornTimestamp"].cast(pa.int64()).cast(pa.string()), "")
    identity = pc.binary_join_element_wise(pc.fill_null(group, ""), half["msgId"], born, "\x01")
    codes = np.asarray(identity.combine_chunks().dictionary_encode().indices, np.int64)
    order = np.argsort(codes, kind="stable")
    is_first = np.ones(len(order), bool)
    is_first[1:] = (codes[order][1:] != codes[order][:-1]) | (times[order][1:] == 0)
    firsts = np.sort(order[is_first])
    owners = order[is_first][np.cumsum(is_first) - 1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.searchsorted(firsts, owners)
    return numbers, firsts


def _op_times(store: StoreExtent, access: Access, half: pa.Table) -> Ints:
    """When an op message first named each half message, in us; the highest number where none does."""
    ops = messages_of_topics(store, [names.OP_HALF_TOPIC], ("tags", "body", "storeTimestamp"), access)
    ops = ops.filter(pc.fill_null(pc.equal(ops["tags"], _OP_TAG), False))
    pieces = pc.split_pattern(ops["body"].combine_chunks(), b",")
    owners = np.asarray(pc.list_parent_indices(pieces), np.int64)
    texts = pc.list_flatten(pieces)
    is_text = pc.match_substring_regex(texts, "^[0-9]{1,18}$")
    offsets = int64s(texts.filter(is_text).cast(pa.string()).cast(pa.int64()), -1)
    times = int64s(ops["storeTimestamp"], 0)[owners[np.asarray(is_text, bool)]]
    is_its = np.asarray(pc.equal(half["topic"], names.HALF_TOPIC), bool)
    return _at_keys(np.where(is_its, int64s(half["queueOffset"], -2), -2), offsets, times)


def _rocksdb_op_times(store: StoreExtent, access: Access, half: pa.Table) -> Ints:
    """As `_op_times`, of half messages whose state RocksDB has: an op message names one by its place in the log."""
    ops = messages_of_topics(store, [names.ROCKSDB_OP_HALF_TOPIC], ("tags", "properties", "storeTimestamp"), access)
    ops = ops.filter(pc.fill_null(pc.equal(ops["tags"], _OP_TAG), False))
    places = int64s(whole_numbers(property_of(ops, properties.TRANSACTION_OFFSET), I64_MAX), -1)
    is_its = np.asarray(pc.equal(half["topic"], names.ROCKSDB_HALF_TOPIC), bool)
    return _at_keys(np.where(is_its, int64s(half["physicalOffset"], -2), -2), places, int64s(ops["storeTimestamp"], 0))


def _commits(store: StoreExtent, access: Access, half: pa.Table, topics: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """Queue offset and store time in us of the message that commits each half message; the highest number where there
    is none.  Looks at the part of the log after the oldest half message, in the topics that they name.
    """
    places = int64s(half["physicalOffset"], -1)
    wanted = [topic for topic in pc.unique(topics).to_pylist() if topic and topic not in names.HALF_TOPICS]
    later = RowConditions(physical_offset=Interval(low=int(places.min(initial=I64_MAX))))
    found = messages_of_topics(store, wanted, _COMMIT_COLUMNS, access, later)
    kind = int64s(found["sysFlag"], 0) & sys_flag.TRANSACTION_MASK
    found = found.filter(pa.array(kind == sys_flag.COMMIT))
    prepared = int64s(found["preparedTransactionOffset"], -1)
    return (
        _at_keys(places, prepared, int64s(found["queueOffset"], 0)),
        _at_keys(places, prepared, int64s(found["storeTimestamp"], 0)),
    )


def _given_up_times(store: StoreExtent, access: Access, ids: pa.ChunkedArray) -> Ints:
    """When the transactions with these unique keys were given up first, in us; the highest number for others."""
    given_up = messages_of_topics(store, [names.TRANSACTION_CHECK_TOPIC], ("msgId", "storeTimestamp"), access)
    first = given_up.group_by("msgId").aggregate([("storeTimestamp", "min")])
    rows = pc.index_in(ids, pc.drop_null(first["msgId"].combine_chunks()))
    return int64s(first.filter(pc.is_valid(first["msgId"]))["storeTimestamp_min"].take(rows), I64_MAX)


def _at_keys(wanted: Ints, keys: Ints, values: Ints) -> Ints:
    """The least value that each wanted key has; the highest number for a key that has none."""
    result = np.full(len(wanted), I64_MAX, np.int64)
    if not len(keys):
        return result
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    rows = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[rows] == wanted, values[rows], result)


def _least(values: Ints, numbers: Ints, count: int) -> Ints:
    """The least of the values of each number below `count`."""
    least = np.full(count, I64_MAX, np.int64)
    np.minimum.at(least, numbers, values)
    return least
