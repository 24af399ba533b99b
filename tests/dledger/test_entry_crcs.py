"""CRCs of bodies side by side."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.clock import ManualClock
from rmqstore.dledger.entry_store import EntryStore, EntryStoreConfig
from rmqstore.dledger.wrapping import EntryForm, body_crcs
from rmqstore.formats.dledger import ENTRY_HEAD, Entry, read_entry
from rmqstore.formats.record_crc import masked_crc32
from tests.crash.disks import MemoryDisk

pytestmark = pytest.mark.stores

SMALL = EntryStoreConfig(data_file_size=4096, index_file_size=640)


@given(st.lists(st.binary(max_size=1600), min_size=1, max_size=20), st.integers(0, 70), st.integers(0, 9))
def test_they_are_those_of_each_by_itself(bodies: list[bytes], gap: int, before: int) -> None:
    data = np.frombuffer(b"x" * before + b"".join(bytes(gap) + body for body in bodies) + b"after", np.uint8)
    starts = before + np.cumsum([0, *(gap + len(body) for body in bodies)])
    assert body_crcs(data, starts, gap).tolist() == [masked_crc32(body) for body in bodies]


def test_heads_that_are_made_again_elsewhere_have_the_same_crcs() -> None:
    """As where the log took no file the first time."""
    bodies = [b"one", b"", b"three" * 20]
    data = np.frombuffer(bytearray(b"".join(bytes(ENTRY_HEAD.size) + body for body in bodies)), np.uint8)
    starts = np.cumsum([0, *(ENTRY_HEAD.size + len(body) for body in bodies)])
    with EntryStore("/node/dledger-n0", SMALL, ManualClock(), MemoryDisk()) as store:
        form = EntryForm(store.index, 1)
        for begin in (0, 4096):
            form.fill_heads(begin + ENTRY_HEAD.size, data, starts)
            for number, body in enumerate(bodies):
                entry = read_entry(data.tobytes(), int(starts[number]))
                assert entry == Entry(number, 1, begin + int(starts[number]), body, body_crc=masked_crc32(body))
