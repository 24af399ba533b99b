"""Findings of `verify`: a place and a reason each; equal findings are merged and counted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqstore.directory.log_place import log_place

__all__ = ["DAMAGE", "NOTE", "Finding", "NamedMessage", "Tally", "log_place"]

DAMAGE = "damage"
NOTE = "note"


class NamedMessage(NamedTuple):
    """A message as its record names itself; a damaged one may lie.  `keys` have spaces between; None: it has none."""

    topic: str
    queue_id: int
    queue_offset: int
    keys: str | None

    def __str__(self) -> str:
        keys = "" if self.keys is None else f", keys {self.keys}"
        return f"{self.topic}/{self.queue_id}, queue offset {self.queue_offset}{keys}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Byte `position` of the file (or directory) `path` is not as expected; `severity` is "damage" or "note".

    Damage has lost data, or makes RocketMQ answer wrongly.  A note is something that a healthy broker leaves: a
    tail not dispatched yet, files made in advance, old bytes after an end.  `message` is that of a damaged record whose
    frame is whole.
    """

    path: str
    position: int
    reason: str
    severity: str = DAMAGE
    message: NamedMessage | None = None


@dataclass(slots=True)
class Tally:
    """Findings that come in numbers: one for each path and reason, at the first place, with the count."""

    _found: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)

    def add(self, path: str, position: int, reason: str, severity: str = DAMAGE, count: int = 1) -> None:
        """Counts `count` more of the same; the lowest position of all is kept."""
        if count <= 0:
            return
        known = self._found.setdefault((path, reason, severity), [position, 0])
        known[0] = min(known[0], position)
        known[1] += count

    def findings(self) -> Iterator[Finding]:
        """Each kind once, in the order in which it was met first."""
        for (path, reason, severity), (position, count) in self._found.items():
            yield Finding(path, position, reason if count == 1 else f"{reason} ({count} times, first here)", severity)
