"""The write pool hands out no buffer that somebody uses, and never more than it has."""

import pytest

from rmqstore.engine.log.put.commitlog import TransientPool


def test_no_more_buffers_are_in_use_than_there_are() -> None:
    pool = TransientPool(2, 100)
    first = pool.unused([])
    second = pool.unused([first])
    assert (len(first), len(second), first is second) == (100, 100, False)
    assert pool.unused([first, second]) is None
    assert pool.unused([second]) is first


def test_a_buffer_is_known_by_itself_not_by_its_content() -> None:
    pool = TransientPool(1, 10)
    buffer = pool.unused([bytearray(10)])
    assert pool.unused([bytearray(buffer)]) is buffer


def test_a_pool_may_be_empty_but_not_of_nothing() -> None:
    assert TransientPool(0, 10).unused([]) is None
    for count, size in ((-1, 10), (1, 0)):
        with pytest.raises(ValueError, match="a pool of"):
            TransientPool(count, size)
