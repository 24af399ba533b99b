"""The entries of several queues in the order of the commitlog, so that one pass over the log serves them all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore.directory.undispatched import FOUND_ENTRY
from rmqstore.formats.message_columns import take_rows
from rmqstore.snapshot.scan.entry_runs import EntryReader, EntryRun
from rmqstore.snapshot.split import Span

# Entries held in memory for all queues together.
_BUFFER_ENTRIES = 128 * 1024
_BLOCK_MIN = 256
# numpy copies opaque bytes faster than structures.
_OPAQUE = f"V{FOUND_ENTRY.itemsize}"


@dataclass(frozen=True, slots=True)
class MergedRun:
    """Entries (FOUND_ENTRY.dtype) in log order; `span_numbers` int64[n] says which span each is of; `holes` are runs
    with queue offsets that nobody knows of."""

    entries: npt.NDArray[np.void]
    span_numbers: npt.NDArray[np.int64]
    holes: list[EntryRun]


class _Source:
    """One queue's entries, a block at a time."""

    def __init__(self, number: int, runs: Iterator[EntryRun]) -> None:
        self.number = number
        self._runs = runs
        self.entries: npt.NDArray[np.void] | None = None
        # What they are ordered by: their offsets in the log, none before one that came earlier in the queue, as damage,
        # or a topic that was deleted while it was read, may have it.
        self.places = np.zeros(0, np.int64)
        self.holes: list[EntryRun] = []
        self.fill()

    def fill(self) -> None:
        """Takes the next block that holds an entry; `entries` is None when there is none."""
        self.entries = None
        for run in self._runs:
            if len(run.holes):
                self.holes.append(run)
            if len(run.entries):
                self.entries = run.entries
                self.places = np.maximum.accumulate(run.entries["physical_offset"].astype(np.int64))
                return

    def last_offset(self) -> int:
        return int(self.places[-1])

    def take_until(self, offset: int) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]:
        """The entries up to an offset of the log, which leave the block, and their places."""
        assert self.entries is not None
        count = int(np.searchsorted(self.places, offset, side="right"))
        taken = self.entries[:count], self.places[:count]
        self.entries, self.places = self.entries[count:], self.places[count:]
        if not len(self.entries):
            self.fill()
        return taken


def interleaved(reader: EntryReader, spans: Sequence[Span]) -> Iterator[MergedRun]:
    """All entries of the spans by physical offset; each queue's stay in the order of the queue, as offsets rise along
    it.

    Every round goes as far as the block of some queue reaches, so each queue has its next entry at hand.
    """
    block = max(_BUFFER_ENTRIES // len(spans), _BLOCK_MIN)
    sources = [_Source(number, reader.runs(span, block)) for number, span in enumerate(spans)]
    while True:
        active = [source for source in sources if source.entries is not None]
        holes = [run for source in sources for run in source.holes]
        for source in sources:
            source.holes = []
        if not active:
            if holes:
                yield MergedRun(np.zeros(0, FOUND_ENTRY), np.zeros(0, np.int64), holes)
            return
        horizon = min(source.last_offset() for source in active)
        parts = [(source.number, *source.take_until(horizon)) for source in active]
        numbers = np.repeat([number for number, _, _ in parts], [len(part) for _, part, _ in parts])
        order = np.argsort(np.concatenate([places for _, _, places in parts]), kind="stable")
        entries = np.concatenate([part.view(_OPAQUE) for _, part, _ in parts]).view(FOUND_ENTRY)
        yield MergedRun(take_rows(entries, order), numbers[order].astype(np.int64), holes)
