"""Queues that end before where a stream stands: the store was cut, made again, or is a copy that lags.

Kafka's source goes on at the new end then, and reads once more what a lagging copy catches up with.  Here the store
times tell: what was stored after the queue was found shorter cannot have been read before, and what was stored until
then may have been.

A query may be started again at any time, so all that is known of these queues stands in the offset: a note that comes
with the offset which first saw the queue shorter, rows or none, and goes with the one that next brings rows of it.
While it stands nothing of the queue was read that was stored after its time; so it is as true of a copy that has caught
up meanwhile, or of a store that was made yet again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from logging import Logger
from typing import Any

from rmqstore.snapshot.lookup.by_time import offset_at
from rmqstore.snapshot.request import Place
from rmqstore.snapshot.stream.batches import Queues
from rmqstore.snapshot.stream.offsets import BEHIND, SINCE, Offsets, note_in
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent


@dataclass(frozen=True, slots=True)
class TurnedBack:
    """A stream's knowledge of such queues: messages stored at or after `since_ms` are new, but for those before the
    queue offset `behind`, where there is one.  Nothing in it is changed.
    """

    since_ms: Mapping[Place, int] = field(default_factory=dict)
    behind: Offsets = field(default_factory=dict)

    @classmethod
    def noted(cls, shaped: Mapping[str, Any]) -> "TurnedBack":
        """The part of offset JSON that is about them.  Raises Rejected for another shape."""
        return cls(note_in(shaped, SINCE), note_in(shaped, BEHIND))

    @property
    def notes(self) -> dict[str, Mapping[Place, int]]:
        """The knowledge as notes of offset JSON."""
        return {SINCE: self.since_ms, BEHIND: self.behind}

    def among(self, places: Collection[Place]) -> "TurnedBack":
        """The part of it that is about these queues."""
        return TurnedBack(
            {place: ms for place, ms in self.since_ms.items() if place in places},
            {place: offset for place, offset in self.behind.items() if place in places},
        )

    def seen(self, queues: Queues, brokers: Collection[str], before: Offsets, looked_ms: int) -> "TurnedBack":
        """The knowledge, with what the queues of these brokers show now, those that are gone included.

        `before` is where the stream stands, `looked_ms` the time before it looked: what is stored meanwhile is new.
        A store that is not read this time is not one that was cut.
        """
        since_ms, behind = dict(self.since_ms), dict(self.behind)
        for place, offset in before.items():
            if place[0] not in brokers:
                continue
            end = _end(queues, place)
            if place not in since_ms:
                if end < offset:
                    since_ms[place] = looked_ms
            elif looked_ms < since_ms[place]:
                # The clock was set back: what is there has these times as well, and may have been read.
                since_ms[place], behind[place] = looked_ms, end
            elif end < behind.get(place, 0):
                del behind[place]  # made yet again: the offset is one of a store that is gone
        return TurnedBack(since_ms, behind)

    def begins(self, queues: Queues, before: Offsets, searches: "Searches") -> Offsets:
        """Where to read on in the queues that hold new messages before the place where the stream stands.

        Raises DataLost if a file vanishes meanwhile.
        """
        found: Offsets = {}
        for place, since_ms in self.since_ms.items():
            if place not in queues:
                continue
            low = max(searches.first_since(since_ms, place, *queues[place]), self.behind.get(place, 0))
            if low < min(before[place], queues[place][1].max_offset):
                found[place] = low
        return found

    def tell(self, log: Logger, known: "TurnedBack", queues: Queues, before: Offsets, begun: Offsets) -> None:
        """Logs what was not `known` before, and where reading of the queues goes on."""
        for place in self.since_ms.keys() - known.since_ms.keys():
            log.warning(
                "%s ends at offset %d, before %d where the stream stands: the store was cut or made again; the stream "
                "goes on with what is stored there from now on, or from %d where that comes; a read from the "
                "beginning (a new checkpointLocation) has all",
                _name(place), _end(queues, place), before[place], before[place],
            )  # fmt: skip
        for place in self.behind.keys() - known.behind.keys():
            log.warning("the clock was set back: %s goes on from offset %d", _name(place), self.behind[place])
        for place in self.since_ms.keys() & begun.keys():
            log.warning("%s goes on at offset %d", _name(place), begun[place])


class Searches:
    """Looks for new messages in queues, and not again while nothing was added to them: a queue may be quiet for
    long."""

    def __init__(self) -> None:
        self._found: dict[Place, tuple[QueueExtent, int, int]] = {}

    def first_since(self, since_ms: int, place: Place, store: StoreExtent, queue: QueueExtent) -> int:
        """The first queue offset that was stored at or after a time, the queue's end if there is none.

        Raises DataLost as `offset_at`.
        """
        found = self._found.get(place)
        if found is None or found[0] is not queue or found[1] != since_ms:
            found = self._found[place] = queue, since_ms, offset_at(store, queue, since_ms, "lower")
        return found[2]


def _end(queues: Queues, place: Place) -> int:
    return queues[place][1].max_offset if place in queues else 0


def _name(place: Place) -> str:
    return f"{place[1]}/{place[2]} of {place[0]}"
