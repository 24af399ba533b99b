"""Records held against small queues in memory, all at once: as one queue after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.directory.log_space import LogSpace
from rmqstore.directory.store_view import StoreView
from rmqstore.engine.log.recovery.queue_tracks import QueueScan
from rmqstore.formats.checkpoint import Checkpoint
from rmqstore.formats.queue_entry import QUEUE_ENTRY
from tests.crash.disks import MemoryDisk
from tests.directory.one_queue import FILE_SIZE, view_of

pytestmark = pytest.mark.stores

I64 = st.integers(-(2**63), 2**63 - 1)


@given(
    queues=st.lists(
        st.tuples(
            st.sampled_from([0, FILE_SIZE]),
            st.lists(st.integers(1, 30), max_size=8),
            st.lists(st.tuples(st.one_of(st.integers(-2, 70), I64), st.integers(1, 30)), min_size=1, max_size=8),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_queue_holds_its_records_if_each_has_its_entry(
    queues: list[tuple[int, list[int], list[tuple[int, int]], bool]],
) -> None:
    views, says, offsets, firsts, wanted = {}, [], [], [], []
    for number, (start, places, records, agrees) in enumerate(queues):
        disk = MemoryDisk()
        content = b"".join(QUEUE_ENTRY.struct.pack(place, place + 7, 0) for place in places)
        disk.put_file("/q/file", content.ljust(FILE_SIZE, b"\0"))
        if places:
            views["T", number] = view_of(disk, start)
        first = start // QUEUE_ENTRY.size
        said = [(first + slot, place) for slot, place in enumerate(places)] if agrees and places else records
        firsts.append(len(says))
        says += [says_offset for says_offset, _ in said]
        offsets += [place for _, place in said]
        wanted.append(all(0 <= slot - first < len(places) and places[slot - first] == place for slot, place in said))
    store = StoreView(
        disk, "/", LogSpace(disk, [], 0), (), views, FILE_SIZE, (), Checkpoint(), False, False, None
    )  # fmt: skip
    scan = QueueScan(store, 0, compare=True, begins_with_log=True)
    keys = [("T", number) for number in range(len(queues))]
    places = np.array(offsets, np.int64)
    found = scan._held_in_memory(keys, np.array(firsts), np.array(says, np.int64), places, places + 7)
    assert found == wanted
