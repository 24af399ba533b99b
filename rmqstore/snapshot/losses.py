"""Losses of a store, told by those who follow it with the next step that they know."""

from typing import ClassVar

from rmqstore.errors import DataLost, OtherLog
from rmqstore.snapshot.stream.batches import ADVICE


class LostBeforeRead(DataLost):
    """Messages that were gone before they came to where they were taken; a subclass has the next step."""

    next_step: ClassVar[str] = ""

    def _line(self) -> str:
        wanted = f"{self.queue}: offsets [{self.wanted[0]}, {self.wanted[1]}) wanted"
        held = f"[{self.available[0]}, {self.available[1]})" if self.available else "none of them"
        return f"{wanted}, the store holds {held} ({self.path}: {self.reason}); {self.next_step}"


class OtherLogThanRead(OtherLog):
    """A store, or a topic, that is another one than was read, or that lost messages which were; a subclass says what
    was done with them, and the next step."""

    done: ClassVar[str] = ""
    next_step: ClassVar[str] = ""

    def _line(self) -> str:
        return (
            f"{self.queue}: is another log than {self.done} up to offset {self.wanted[1]} ({self.path}: "
            f"{self.reason}); {self.next_step}"
        )


def told_as(lost: DataLost, gone: type[LostBeforeRead], other: type[OtherLogThanRead]) -> DataLost:
    """The same loss in the words of one of two classes."""
    error = other if isinstance(lost, OtherLog) else gone
    return error(lost.queue, lost.wanted, lost.available, lost.path, lost.reason.removesuffix(f"; {ADVICE}"))
