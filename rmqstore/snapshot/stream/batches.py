"""The ranges of one batch of a stream: from where every queue stands to where it may be read now."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from logging import Logger
from typing import NamedTuple

from rmqstore.errors import DataLost, OtherLog, Rejected
from rmqstore.snapshot.request import Place, QueueRange
from rmqstore.snapshot.stream.lag import LostRange, about_bytes, lost_ranges, message_sizes
from rmqstore.snapshot.stream.limits import TriggerLimits, Waiting, shared_bytes, shared_rows
from rmqstore.snapshot.stream.offsets import Offsets
from rmqstore.snapshot.survey.extents import QueueExtent, StoreExtent

Queues = Mapping[Place, tuple[StoreExtent, QueueExtent]]

_GONE = "the queue is gone: its topic was deleted, or its store made again or taken away"
_BEGUN_AGAIN = "the queue began again at 0: its topic was deleted and made again"
ADVICE = "it goes on after it with fail_on_data_loss=False, or begins again without `after`"


class Refusals(NamedTuple):
    """Losses that end a stream: messages that are gone before they were read (`deleted`), and logs that are not those
    that were read (`other_logs`)."""

    deleted: bool
    other_logs: bool

    def meant(self, lost: Sequence[LostRange]) -> list[LostRange]:
        """Those of the ranges after which it does not go on."""
        return [one for one in lost if (self.other_logs if one.is_other_log else self.deleted)]


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The part of `queues` that is there to read: from `lows` to `ends`; the other ends are those of `before`.

    `begun` says where the queues begin whose start `before` does not tell.
    """

    queues: Queues
    before: Offsets
    lows: Offsets
    ends: Offsets

    @property
    def is_any(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.lows)

    @property
    def begun(self) -> Offsets:
        """Where queues begin that are new to the stream, or in which it goes on after the place where they ended.

        A queue that is new in a topic which the stream reads begins at 0: messages gone before its first one are lost.
        """
        before, topics = self.before, _topics_of(self.before)
        return {
            place: 0 if place not in before and place[:2] in topics else low
            for place, low in self.lows.items()
            if place not in before or low < before[place]
        }

    @classmethod
    def of(
        cls, queues: Queues, before: Offsets, target: Offsets | None, *, refuses: Refusals,
        turned: Offsets | None = None,
    ) -> "NextBatch":  # fmt: skip
        """All that there is from `before` on, or from `turned` for queues that were made again, up to `target` where
        the ends are frozen: queues that it does not name came later.

        Raises DataLost for a queue that no longer holds what is to be read, and OtherLog for one that ends before, as
        it `refuses` them.
        """
        if refuses.other_logs:
            _refuse_shorter(queues, before)
        for place, offset in before.items():
            if refuses.deleted and place not in queues:
                raise _gone(place, offset, offset + 1)
        topics = _topics_of(before)
        lows: Offsets = {}
        ends = dict(before)
        for place, (store, queue) in queues.items():
            high = queue.max_offset if target is None else min(target.get(place, 0), queue.max_offset)
            low = (turned or {}).get(place, before.get(place, queue.min_offset))
            if refuses.deleted:
                # A queue that came while the stream ran is read from its beginning, if that is still there.
                first = 0 if place not in before and place[:2] in topics and high > low else low
                _refuse_lost(place, queue, lost_ranges(store, queue, first, max(high, low)))
            low = max(low, queue.min_offset)
            if high > low:
                lows[place], ends[place] = low, high
        return cls(queues, before, lows, ends)

    def limited(self, limits: TriggerLimits, turn: int, *, is_due: bool) -> "NextBatch":
        """As much of it as the limits allow; nothing if it is less than their least, unless it is due.

        `turn` counts the batches: what is left over after sharing goes to each queue in turn.  Raises DataLost if a
        file vanishes meanwhile.
        """
        places = sorted(self.lows)
        counts = [self.ends[place] - self.lows[place] for place in places]
        if not is_due and sum(counts) < (limits.rows_min or 0):
            counts = [0] * len(counts)
        if limits.rows_max is not None:
            counts = shared_rows(counts, limits.rows_max, turn)
        if limits.bytes_max is not None:
            waiting = [self._waiting(place, count) for place, count in zip(places, counts, strict=True)]
            counts = shared_bytes(waiting, limits.bytes_max, turn)
        taken = {place: count for place, count in zip(places, counts, strict=True) if count}
        ends = self.before | (self._unseen() if taken else {})
        ends |= {place: self.lows[place] + count for place, count in taken.items()}
        return replace(self, lows={place: self.lows[place] for place in taken}, ends=ends)

    def _unseen(self) -> Offsets:
        """Where the queues of topics begin that are new to the stream, also queues that wait for a later batch: else
        they would count as new in a topic that the stream reads.
        """
        topics = _topics_of(self.before)
        return {place: low for place, low in self.lows.items() if place[:2] not in topics}

    def _waiting(self, place: Place, count: int) -> Waiting:
        store, queue = self.queues[place]
        low = self.lows[place]
        size = about_bytes(queue, low, low + count)
        return Waiting(count, size, lambda wanted: message_sizes(store, queue, low, low + wanted))


def refuse_other_brokers(stores: Sequence[StoreExtent], known: Offsets) -> None:
    """Raises Rejected where the stores are of none of the brokers that the stream knows queues of.

    Most likely the store is the same, and lost its name.  A stream that went on would miss every queue, or read all
    messages again; `fail_on_data_loss` is about neither.
    """
    before, now = {place[0] for place in known}, {store.broker_name: store.path for store in stores}
    if not before or before & now.keys():
        return
    advice = "or begin again without `after`"
    if len(before) == len(now) == 1:
        named = json.dumps({next(iter(before)): next(iter(now.values()))})
        advice = f"if it is the same store, name it, as {named}, {advice}"
    raise Rejected(
        f"the offsets to go on from are of {', '.join(sorted(before))}, and what is read now is of "
        f"{', '.join(sorted(now))}: no queue would be known, and every message read again; {advice}"
    )


def ranges_to_read(
    queues: Queues, begun: Offsets, ends: Offsets, *, refuses: Refusals
) -> tuple[list[QueueRange], list[tuple[Place, LostRange]]]:
    """The ranges of a planned batch that the store still holds, and those that are lost.

    A queue without a beginning begins where it does now.  Raises DataLost, and OtherLog, for what it `refuses`.
    """
    if refuses.deleted:
        _refuse_turned_back(queues, begun, ends)
    ranges, skipped = [], []
    for place, end in sorted(ends.items()):
        if place not in queues:
            low = begun.get(place, 0)
            if low < end and refuses.deleted:
                raise _gone(place, low, end)
            skipped += [(place, LostRange(low, end, "", _GONE))] if low < end else []
            continue
        store, queue = queues[place]
        low = begun.get(place, queue.min_offset)
        lost = lost_ranges(store, queue, low, end)
        _refuse_lost(place, queue, refuses.meant(lost))
        skipped += [(place, one) for one in lost]
        low, high = max(low, queue.min_offset), min(end, queue.max_offset)
        if low < high:
            ranges.append(QueueRange(*place, low, high))
    return ranges, skipped


def _refuse_shorter(queues: Queues, before: Offsets) -> None:
    """Raises OtherLog for a queue that ends before where the stream stands."""
    for place, offset in before.items():
        if place in queues:
            store, queue = queues[place]
            _refuse_lost(place, queue, lost_ranges(store, queue, queue.max_offset, offset))


def _refuse_turned_back(queues: Queues, begun: Offsets, ends: Offsets) -> None:
    """Raises DataLost for a queue that ends before where its batch begins: Spark before 4.2 has an end planned without
    saying where the stream stands."""
    for place, low in sorted(begun.items()):
        if low <= ends.get(place, -1):
            continue
        if place not in queues:
            raise _gone(place, low, low + 1)
        store, queue = queues[place]
        _refuse_lost(place, queue, lost_ranges(store, queue, queue.max_offset, low))


class Skipped:
    """Counts messages that a stream went on without, each once however often its batch is planned."""

    def __init__(self) -> None:
        self.total = 0
        self._reached: Offsets = {}
        self._turned_at: Offsets = {}

    def note(
        self, lost: Sequence[tuple[Place, LostRange]], log: Logger, *, standing: Offsets, begun: Offsets
    ) -> None:  # fmt: skip
        """Counts what is new of the lost ranges of a batch, and logs a line for each; `standing`: where the stream
        stands before the batch, `begun`: where its queues begin."""
        self._forget_turned(standing, begun)
        for place, found in lost:
            low = max(found.low, self._reached.get(place, 0))
            if low < found.high:
                self.total += found.high - low
                self._reached[place] = found.high
                broker, topic, queue_id = place
                log.warning(
                    "%s/%d of %s: offsets [%d, %d) are skipped (%s)",
                    topic, queue_id, broker, low, found.high, found.reason,
                )  # fmt: skip

    def _forget_turned(self, standing: Offsets, begun: Offsets) -> None:
        """Forgets up to where queues were counted that begin before where the stream stands: their offsets are of
        other messages now.  A batch that is planned once more stands where it stood, and keeps what it counted."""
        turned = {place: stood for place, stood in standing.items() if begun.get(place, stood) < stood}
        for place, stood in turned.items():
            if self._turned_at.get(place) != stood:
                self._reached.pop(place, None)
        self._turned_at = turned


def _topics_of(offsets: Offsets) -> set[tuple[str, str]]:
    return {place[:2] for place in offsets}


def _refuse_lost(place: Place, queue: QueueExtent, lost: Sequence[LostRange]) -> None:
    if lost:
        first = lost[0]
        error = OtherLog if first.is_other_log else DataLost
        held = (queue.min_offset, queue.max_offset)
        raise error(_name(place), (first.low, first.high), held, first.path, f"{first.reason}; {ADVICE}")


def refuse_restarted(queues: Queues, begun: Offsets) -> None:
    """Raises OtherLog for the first of the queues that began again at 0, with where the stream stood in it."""
    for place, offset in sorted(begun.items()):
        held = (queues[place][1].min_offset, queues[place][1].max_offset) if place in queues else None
        raise OtherLog(_name(place), (0, offset), held, f"broker {place[0]}", f"{_BEGUN_AGAIN}; {ADVICE}")


def _gone(place: Place, low: int, high: int) -> DataLost:
    return DataLost(_name(place), (low, high), None, f"broker {place[0]}", f"{_GONE}; {ADVICE}")


def _name(place: Place) -> str:
    return f"{place[1]}/{place[2]}"
