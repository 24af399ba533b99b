"""Having the next thing read while the present one is worked on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; each is made, in a thread of its own, while the one before is used.

    Worth it for megabytes an item, as reading, copying and checksums let other threads run.  What making one raises is
    raised in its place.  The thread is gone when the iterator is exhausted or closed.
    """
    nothing = object()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="rmqstore-read-ahead") as reader:
        coming = reader.submit(next, items, nothing)
        while (item := coming.result()) is not nothing:
            coming = reader.submit(next, items, nothing)
            yield item  # type: ignore[misc]  # `nothing` is no item
