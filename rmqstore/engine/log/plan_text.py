"""How plans are shown: facts in lines for people, fields in camel case for JSON."""

from collections.abc import Iterator
from typing import Any

# Of files and queues so many are shown to people one by one.
SHOWN_MAX = 12
_LINE_SIZE = 80


def folded(head: str, text: str) -> Iterator[str]:
    """`head`, then the text beside it in lines of at most 80 columns; longer words stay whole."""
    line = f"{head:<10} "
    indent = len(line)
    for word in text.split(" "):
        if len(line) > indent and len(line) + len(word) > _LINE_SIZE:
            yield line.rstrip()
            line = " " * indent
        line += f"{word} "
    yield line.rstrip()


def camel_case(name: str) -> str:
    """`log_start` as `logStart`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def plain(value: Any) -> Any:
    """The answer of `dataclasses.asdict` as values for JSON: keys in camel case, tuples as lists."""
    if isinstance(value, dict):
        return {camel_case(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
