"""A reader on a machine so busy that the writer gets on between any two of its looks at the disk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rmqstore.files import reading
from rmqstore.files.reading import LocalDisk, OpenFile

_METHODS = ("__init__", "read", "map_bytes", "next_data", "size")
_OF_THE_DISK = ("entries",)  # its other questions are put to what stands above and below
_FUNCTIONS = ("list_names", "exists", "is_directory", "is_locked", "version_of")


@contextmanager
def starved(step: Callable[[], None], operations: list[str] | None = None) -> Iterator[list[str]]:
    """Calls `step` before every operation of a reader on files; those of the step itself are left alone.

    Yields the names of the operations so far, which are put into `operations` if that is given.
    """
    operations = [] if operations is None else operations
    is_stepping = False

    def stepped() -> None:
        nonlocal is_stepping
        if not is_stepping:
            is_stepping = True
            try:
                step()
            finally:
                is_stepping = False

    def between(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*args: Any, **named: Any) -> Any:
            if not is_stepping:
                operations.append(name)
            stepped()
            return original(*args, **named)

        return replaced

    with pytest.MonkeyPatch.context() as patch:
        for name in _METHODS:
            patch.setattr(OpenFile, name, between(name, getattr(OpenFile, name)))
        for name in _OF_THE_DISK:
            patch.setattr(LocalDisk, name, between(name, getattr(LocalDisk, name)))
        for name in _FUNCTIONS:
            patch.setattr(reading, name, between(name, getattr(reading, name)))
        yield operations
