"""Reading ahead: the same items in the same order, errors in their place, no thread left."""

import threading
from collections.abc import Iterator

import pytest

from rmqstore.engine.log.staging.staged_parts import read_ahead
from tests.patience import PATIENCE_S


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "read-ahead" in thread.name]


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_the_items_are_the_same(count: int) -> None:
    assert list(read_ahead(iter(range(count)))) == list(range(count))
    assert not _threads()


def test_the_next_item_is_made_while_one_is_used() -> None:
    made = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        made.set()
        yield 1

    ahead = read_ahead(items())
    assert next(ahead) == 0
    assert made.wait(PATIENCE_S)  # though nobody has asked for it yet
    assert list(ahead) == [1]


def test_none_is_an_item() -> None:
    assert list(read_ahead(iter([None, 0]))) == [None, 0]


def test_an_error_comes_where_its_item_would() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise OSError("gone")

    ahead = read_ahead(items())
    assert next(ahead) == 0
    with pytest.raises(OSError, match="gone"):
        next(ahead)
    assert not _threads()


def test_who_stops_leaves_no_thread() -> None:
    ahead = read_ahead(iter(range(9)))
    assert next(ahead) == 0
    ahead.close()  # type: ignore[attr-defined]
    assert not _threads()
