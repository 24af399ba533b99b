"""The write pool lends each buffer to one user, and never more than it has."""

import pytest

from rmqstore.files.transient_pool import TransientPool


def test_no_more_buffers_are_lent_than_there_are() -> None:
    pool = TransientPool(2, 100)
    first, second = pool.borrow(), pool.borrow()
    assert (len(first), len(second), first is second, pool.free) == (100, 100, False, 0)
    assert pool.borrow() is None
    pool.give_back(first)
    assert pool.free == 1
    assert pool.borrow() is first


def test_only_a_lent_buffer_is_taken_back() -> None:
    pool = TransientPool(1, 10)
    buffer = pool.borrow()
    for wrong in (bytearray(10), bytearray(buffer)):
        with pytest.raises(ValueError, match="not borrowed"):
            pool.give_back(wrong)
    pool.give_back(buffer)
    with pytest.raises(ValueError, match="not borrowed"):
        pool.give_back(buffer)
    assert pool.free == 1


def test_a_pool_may_be_empty_but_not_of_nothing() -> None:
    assert TransientPool(0, 10).borrow() is None
    for count, size in ((-1, 10), (1, 0)):
        with pytest.raises(ValueError, match="a pool of"):
            TransientPool(count, size)
