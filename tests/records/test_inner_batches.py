"""Which queue a record belongs to: its topic says so, and not what the record says of itself."""

import pytest

from rmqstore.engine.store import open_store
from rmqstore.formats import sys_flag
from tests.log.recovering import ROOT, lay
from tests.snapshot.small_store import SmallStore

BOTH = sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP


@pytest.mark.parametrize("flags", [sys_flag.INNER_BATCH, BOTH], ids=["0x80", "0xC0"])
def test_a_record_of_a_plain_topic_is_in_its_queue_whatever_it_says_of_batches(flags: int) -> None:
    """RocketMQ 4.9 stores such messages; left out of their queue they would stop whatever comes behind them."""
    store = SmallStore()
    places = [store.add("T", body=b"%d" % number, sys_flag=(0, flags)[number % 2], dispatched=False)
              for number in range(4)]  # fmt: skip
    opened = open_store(ROOT, filesystem=lay(store, abort=True), workers=False)
    found = opened.get("T", 0, 0).messages
    assert [(each.queue_offset, each.physical_offset) for each in found] == list(enumerate(places))
    assert opened.health().is_writable
