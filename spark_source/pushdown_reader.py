"""A read that also plans by the filters of the query.

Chosen by the option `pushdown` only: on Spark 4.1 to 4.3 a filter that was pushed once stays with the loaded DataFrame,
and any later use of it lacks the rows that the filter left out.  Spark 5 keeps filters with the scan; there
`pushdown=auto` is safe, and DataSourceReader.pushLimit, which came with that change, tells the two apart.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqstore.core.arguments import EPOCH
from rmqstore.snapshot import open_selected
from rmqstore.snapshot.plan.range_pruning import Interval, RowConditions, prune_ranges
from spark_source.batch_reader import BatchReader
from spark_source.columns.schema import BatchShape
from spark_source.options.reads import BatchRead
from spark_source.partitions import StorePartition
from spark_source.worker_errors import errors_in_one_line

# --- Spark's filters as conditions that rule out whole ranges, tags and keys before anything is read.
#
# A filter that the ranges answer wholly is taken; every other one, even if it helped, goes back to Spark, which then
# decides row by row. A filter that is doubtful in any way is not used, and goes back.

_NAMED = ("topic", "brokerName")
_NUMBERED = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "physical_offset",
    "storeTimestamp": "store_time_ms",
}
# Never null, and answered by the choice of ranges alone.
_EXACT = ("topic", "brokerName", "queueId", "queueOffset")


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The conditions of filters.  `tags` and `keys` are those of which a row must have one; None where any will do."""

    conditions: RowConditions = field(default_factory=RowConditions)
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None


def push(filters: Iterable[Any]) -> tuple[PushedFilters, list[Any]]:
    """The conditions that the filters, all of which a row must pass, put on ranges, and the filters that Spark still
    has to apply: the same objects, as Spark goes by identity.
    """
    pushed = PushedFilters()
    left = []
    for one in filters:
        name = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else ""
        narrowed = _narrowed(pushed, name, one)
        pushed = narrowed or pushed
        if narrowed is None or not _is_answered(name, one):
            left.append(one)
    return pushed, left


def _is_answered(name: str, one: Any) -> bool:
    """Whether ranges that keep to a filter hold no row that fails it."""
    in_parts = isinstance(one, spark.In) and name == "queueOffset"  # its values become one interval
    return name in _EXACT and not in_parts


def _narrowed(pushed: PushedFilters, name: str, one: Any) -> PushedFilters | None:
    """`pushed` with one more filter; None for a filter that is not understood."""
    if isinstance(one, spark.IsNotNull):
        return pushed if name in _EXACT else None
    values = _values(one)
    if name in _NAMED:
        return _by_name(pushed, name, one, values)
    if name in _NUMBERED:
        return _by_number(pushed, name, one, values)
    texts = _texts(values)
    if texts is None:
        return None
    if name == "tags":
        return replace(pushed, tags=texts if pushed.tags is None else pushed.tags & texts)
    if name == "keys" and pushed.keys is None:
        # The column holds all keys of a message: a row that equals it has each of them.
        words = [text.split(" ") for text in texts]
        longest = frozenset(max(keys, key=len) for keys in words)
        return replace(pushed, keys=longest)
    return None


def _values(one: Any) -> list[Any] | None:
    """The values of which a column must have one; None for another kind of filter.  A null equals nothing."""
    if isinstance(one, spark.EqualTo):
        return [] if one.value is None else [one.value]
    if isinstance(one, spark.EqualNullSafe) and one.value is not None:
        return [one.value]
    if isinstance(one, spark.In):
        return [value for value in one.value if value is not None]
    return None


def _texts(values: list[Any] | None) -> frozenset[str] | None:
    """Values that are all texts with something in them; None otherwise."""
    if values is None or not all(isinstance(value, str) and value.strip() for value in values):
        return None
    return frozenset(values)


def _by_name(pushed: PushedFilters, name: str, one: Any, values: list[Any] | None) -> PushedFilters | None:
    known = pushed.conditions
    if isinstance(one, spark.StringStartsWith) and isinstance(one.value, str):
        return replace(pushed, conditions=replace(known, prefixes=(*known.prefixes, (name, one.value))))
    if values is None or not all(isinstance(value, str) for value in values):
        return None
    allowed = frozenset(values) & known.names.get(name, frozenset(values))
    return replace(pushed, conditions=replace(known, names=known.names | {name: allowed}))


def _by_number(pushed: PushedFilters, name: str, one: Any, values: list[Any] | None) -> PushedFilters | None:
    """A condition on a number or a time: an interval around all values, and for queue ids the values themselves."""
    known, attribute = pushed.conditions, _NUMBERED[name]
    interval: Interval = getattr(known, attribute)
    if values is not None:
        numbers = [_whole(value) for value in values]
        low = min((number[0] for number in numbers if number), default=0)
        high = max((number[1] for number in numbers if number), default=-1)
        if not all(numbers):
            return None
        narrowed = interval.within(low, high)
        if name == "queueId":
            ids = frozenset(values)
            known = replace(known, queue_ids=ids if known.queue_ids is None else known.queue_ids & ids)
    else:
        compared = _compared(interval, one)
        if compared is None:
            return None
        narrowed = compared
    changed: dict[str, Any] = {attribute: narrowed}
    return replace(pushed, conditions=replace(known, **changed))


def _compared(interval: Interval, one: Any) -> Interval | None:
    """The interval cut by a comparison; None for another kind of filter."""
    bounds = _whole(getattr(one, "value", None))
    if bounds is None:
        return None
    low, high = bounds
    is_number = not isinstance(one.value, datetime)
    if isinstance(one, spark.GreaterThan):
        return interval.within(low=low + is_number)
    if isinstance(one, spark.GreaterThanOrEqual):
        return interval.within(low=low)
    if isinstance(one, spark.LessThan):
        return interval.within(high=high - is_number)
    if isinstance(one, spark.LessThanOrEqual):
        return interval.within(high=high)
    return None


def _whole(value: Any) -> tuple[int, int] | None:
    """A number as it is, a time as the two ms around it; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value, value
    if isinstance(value, datetime) and value.tzinfo is not None:
        ms = (value - EPOCH) // timedelta(milliseconds=1)
        return ms, ms + 1
    return None


# ---


class PushdownReader(BatchReader):
    """A BatchReader that takes filters.  With spark.sql.python.filterPushdown.enabled off Spark refuses it in words."""

    def __init__(self, batch_read: BatchRead, shape: BatchShape) -> None:
        super().__init__(batch_read, shape)
        self._pushed = PushedFilters()
        self._is_empty = False

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 (Spark's name)
        """Takes what rules out ranges, tags or keys; returns the filters that Spark still has to apply.

        These are all of them where damaged records come as rows, as nothing that such a record says can be relied on.
        """
        self._pushed, left = push(filters)
        request = self._batch_read.request
        tags, keys = self._pushed.tags, self._pushed.keys
        if tags is not None:
            allowed = tags.intersection(request.tags) if request.tags else tags
            self._is_empty |= not allowed
            request = replace(request, tags=tuple(sorted(allowed)) or request.tags)
        if keys is not None and not request.keys:  # two lists of keys, one of each required, have no one list
            self._is_empty |= not keys
            request = replace(request, keys=tuple(sorted(keys)))
        self._batch_read = replace(self._batch_read, request=request)
        return filters if request.on_corrupt_record == "null" else left

    def pushLimit(self, limit: int) -> bool:  # noqa: N802 (Spark's name, from version 5 on)
        """Makes the batches no larger than what is asked for; Spark still counts the rows."""
        request = self._batch_read.request
        request = replace(request, batch_rows=max(1, min(request.batch_rows, limit)))
        self._batch_read = replace(self._batch_read, request=request)
        return False

    @errors_in_one_line()
    def partitions(self) -> list[InputPartition]:
        """As BatchReader.partitions, of what the filters leave."""
        asked = self._batch_read
        snapshot = open_selected(
            asked.stores, asked.selection, access=asked.request.access, include_uncommitted=asked.include_uncommitted
        )
        ranges = snapshot.select(**asked.selection)
        if self._is_empty:
            return []
        ranges = prune_ranges(snapshot.stores, ranges, self._pushed.conditions)
        return [StorePartition(split) for split in snapshot.plan(ranges, asked.request, asked.budget)]


def pushes_filters(pushdown: str) -> bool:
    """Whether the option's word asks for a PushdownReader under the Spark that runs here."""
    return pushdown == "true" or (pushdown == "auto" and hasattr(DataSourceReader, "pushLimit"))
