"""What travels to an executor."""

import pickle

import pytest
from pyspark.sql.datasource import InputPartition

from rmqstore import open_snapshot
from rmqstore.snapshot.request import ScanRequest, SplitBudget
from spark_source.partitions import StorePartition, split_in


@pytest.mark.parametrize("made_up", [None, InputPartition(None)])
def test_a_partition_that_spark_made_up_holds_no_split(made_up):
    assert split_in(made_up) is None


def test_a_partition_carries_its_split_in_a_few_hundred_bytes(store, topic):
    snapshot = open_snapshot(store)
    splits = snapshot.plan(snapshot.select(topics=[topic]), ScanRequest(), SplitBudget(max_records=50, merge=False))
    assert len(splits) > 4
    for split in splits:
        pickled = pickle.dumps(StorePartition(split))
        assert len(pickled) < 1000
        assert split_in(pickle.loads(pickled)) == split
