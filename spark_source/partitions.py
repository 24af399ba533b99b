"""The unit of work that travels from Spark's planner to an executor: one split, a few hundred bytes pickled."""

from pyspark.sql.datasource import InputPartition

from rmqstore.snapshot import Split


class StorePartition(InputPartition):
    """One task's share of the rows."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


def split_in(partition: InputPartition | None) -> Split | None:
    """The split of a partition; None where Spark made the partition up because nothing was planned.

    For an empty plan Spark 4.2 and later read InputPartition(None), 4.0 and 4.1 None.
    """
    return partition.value if isinstance(partition, StorePartition) else None
