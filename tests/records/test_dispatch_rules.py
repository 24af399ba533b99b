"""What dispatch derives from records, many at once."""

import numpy as np

from rmqstore.records.dispatch_rules import is_dispatched


def test_only_plain_and_committed_messages_enter_a_queue() -> None:
    flags = {0x0: True, 0x4: False, 0x8: True, 0xC: False, 0x31: True, 0x35: False, -1: False}
    assert is_dispatched(np.array([*flags], np.int32)).tolist() == [*flags.values()]
