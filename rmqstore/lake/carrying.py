"""Offsets of a table that holds more than one run reads: other topics, and stores of other brokers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rmqstore.errors import Rejected
from rmqstore.snapshot.request import Place
from rmqstore.snapshot.stream.offsets import BEHIND, MARKS, SINCE, Offsets, note_in, offset_json, offsets_in
from rmqstore.snapshot.stream.subscription import StreamSelection

_NOTES = (MARKS, SINCE, BEHIND)


@dataclass(frozen=True)
class Scope:
    """The part of a table that a run reads: the queues of a selection in the stores of some brokers."""

    selection: StreamSelection
    brokers: frozenset[str]

    def own(self, noted: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a table's offsets that the run goes on from."""
        return _where(noted, self._covers)

    def carried(self, noted: Mapping[str, Any] | None, reached: Mapping[str, Any]) -> dict[str, Any]:
        """The offsets of the table after the run reached `reached`: all else stays as it was."""
        if noted is None:
            return offset_json(offsets_in(reached), {name: note_in(reached, name) for name in _NOTES})
        kept = _where(noted, lambda place: not self._covers(place))
        notes = {name: note_in(kept, name) | note_in(reached, name) for name in _NOTES}
        return offset_json(offsets_in(kept) | offsets_in(reached), notes)

    def knows(self, noted: Mapping[str, Any]) -> bool:
        """Whether the offsets are of any of the brokers, or of none at all."""
        known = brokers_of(noted)
        return not known or bool(known & self.brokers)

    def _covers(self, place: Place) -> bool:
        return place[0] in self.brokers and self.selection.covers(place)


def brokers_of(noted: Mapping[str, Any]) -> set[str]:
    """The brokers that offsets are of."""
    return {place[0] for place in offsets_in(noted)}


def require_offsets(table: str, noted: Mapping[str, Any]) -> None:
    """Raises Rejected for what is no offset JSON."""
    try:
        offsets_in(noted)
        for name in _NOTES:
            note_in(noted, name)
    except Rejected:
        raise Rejected(f"{table}: its offsets are none of a sync; name a table of its own, which is made") from None


def _where(noted: Mapping[str, Any], holds: Callable[[Place], bool]) -> dict[str, Any]:
    def part(offsets: Offsets) -> Offsets:
        return {place: offset for place, offset in offsets.items() if holds(place)}

    return offset_json(part(offsets_in(noted)), {name: part(note_in(noted, name)) for name in _NOTES})
