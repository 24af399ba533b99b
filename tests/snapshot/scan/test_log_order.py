"""Several queues in one pass over the log: every entry once, whatever the entries say."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.directory.undispatched import FOUND_ENTRY
from rmqstore.snapshot.scan.entry_runs import EntryRun
from rmqstore.snapshot.scan.entry_source import interleaved
from rmqstore.snapshot.split import Span

pytestmark = pytest.mark.stores

OFFSETS = st.lists(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), max_size=4), min_size=1, max_size=4)


class Blocks:
    """Queues by number, each in blocks of entries with these offsets in the log."""

    def __init__(self, queues: list[list[list[int]]]) -> None:
        self._queues = queues

    def runs(self, span: int, _block: int) -> Iterator[EntryRun]:
        for offsets in self._queues[span]:
            entries = np.zeros(len(offsets), FOUND_ENTRY)
            entries["physical_offset"] = offsets
            yield EntryRun(Span("t", span, "plain", 0, len(offsets)), entries, np.zeros(0, np.int64))


def merged(queues: list[list[list[int]]]) -> list[tuple[int, int]]:
    reader: Any = Blocks(queues)
    spans: Any = range(len(queues))
    found = []
    for run in interleaved(reader, spans):
        found += zip(run.span_numbers.tolist(), run.entries["physical_offset"].tolist(), strict=True)
    return found


@given(OFFSETS)
def test_every_entry_comes_once_and_in_its_queues_order_though_offsets_fall(queues: list[list[list[int]]]) -> None:
    """As where a topic was deleted and made again while it was read, or entries are damaged."""
    found = merged(queues)
    for number, blocks in enumerate(queues):
        assert [offset for span, offset in found if span == number] == [each for block in blocks for each in block]


@given(OFFSETS)
def test_sound_queues_come_in_the_order_of_the_log(queues: list[list[list[int]]]) -> None:
    rising = []
    for blocks in queues:
        offsets = iter(sorted(each for block in blocks for each in block))
        rising.append([[next(offsets) for _ in block] for block in blocks])
    found = [offset for _, offset in merged(rising)]
    assert found == sorted(found)
