"""A read that also plans by the filters of the query.

Chosen by the option `pushdown` only: on Spark 4.1 to 4.3 a filter that was pushed once stays with the loaded DataFrame,
and any later use of it lacks the rows that the filter left out.  Spark 5 keeps filters with the scan; there
`pushdown=auto` is safe, and DataSourceReader.pushLimit, which came with that change, tells the two apart.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqstore.snapshot import open_selected
from rmqstore.snapshot.plan.range_pruning import prune_ranges
from spark_source.batch_reader import BatchReader
from spark_source.columns.schema import BatchShape
from spark_source.filters import PushedFilters, push
from spark_source.options.reads import BatchRead
from spark_source.partitions import StorePartition
from spark_source.worker_errors import errors_in_one_line


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
