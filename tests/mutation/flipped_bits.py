"""Single bits of a store of ten messages turned over, one at a time: what a scan with default options makes of each.

`python -m tests.mutation.flipped_bits` (`make flips`) does it with every bit, without and with the CRC property, and
prints the figures that docs/engine.md has.
"""

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import rmqstore
from rmqstore import Message, StoreConfig
from rmqstore.clock import ManualClock
from rmqstore.errors import StoreError

DETECTED, HARMLESS, WRONG, MISSING = "detected", "harmless", "wrong", "missing"
EVERYTHING = {"pattern": ".*", "include_system_topics": True, "columns": "*"}
# Of what no file says by a bit that is set, so many bits apart are enough: all are zeros.
_ZEROS_STEP = 997
_ZEROS_MARGIN = 4

Rows = dict[tuple[str, int, int], dict[str, object]]


@dataclass
class Figures:
    """How many flips came to what, by directory or file and by columns that differ unsaid."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    columns: Counter[str] = field(default_factory=Counter)

    def count(self, outcome: str, room: str | None = None) -> int:
        """Flips with an outcome, in all files or in those of one room."""
        return sum(n for (place, what), n in self.outcomes.items() if what == outcome and room in (None, place))

    def line(self, name: str, room: str | None = None) -> str:
        """The figures in a line."""
        counts = {what: self.count(what, room) for what in (DETECTED, HARMLESS, WRONG, MISSING)}
        total = max(sum(counts.values()), 1)
        shares = ", ".join(f"{what} {n} ({100 * n / total:.1f} %)" for what, n in counts.items())
        return f"{name}: {total} flips, {shares}"


def build(root: Path, *, crc: bool) -> None:
    """Ten messages in two topics, the store closed in good order."""
    rng, clock = random.Random(1), ManualClock(1_763_700_000_000)
    config = StoreConfig(
        flush="SYNC", log_file_size=8192, queue_file_size=400, index_slot_count=7, index_item_count=30,
        append_property_crc=crc, default_queue_nums=2,
    )  # fmt: skip
    with rmqstore.open_store(str(root), config, clock=clock, workers=False) as store:
        for number in range(10):
            clock.advance(rng.randrange(1, 2000))
            properties = {"UNIQ_KEY": f"U{number:08d}", "colour": "green"}
            body = rng.randbytes(rng.choice((0, 5, 40, 120)))
            topic, tags = rng.choice(("orders", "paid")), rng.choice(("a", "b", None))
            keys = [f"k{number}", "all"]
            store.put(Message(topic, body, tags=tags, keys=keys, queue_id=number % 2, properties=properties))


def scanned(root: Path) -> Rows:
    """All rows by topic, queue and queue offset; times as numbers, since a damaged one may be in no calendar."""
    table = rmqstore.open_snapshot(root).scan(**EVERYTHING).read_all()  # type: ignore[arg-type]
    for name in ("bornTimestamp", "storeTimestamp"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.int64()))
    return {(row["topic"], row["queueId"], row["queueOffset"]): row for row in table.to_pylist()}


def bits_of(data: bytes, every: int) -> Iterator[int]:
    """The bits of a file to turn over: every so many of what is written, and some of the zeros behind."""
    used = min(len(data), len(data.rstrip(b"\0")) + _ZEROS_MARGIN) * 8
    yield from range(0, used, every)
    yield from range(used, len(data) * 8, _ZEROS_STEP * every)


def flipped(root: Path, every: int) -> Figures:
    """Turns every so many bits of all files of the store at `root` over, each back before the next."""
    sound, figures = scanned(root), Figures()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        room = path.relative_to(root).parts[0]
        data = path.read_bytes()
        with path.open("r+b", buffering=0) as file:
            for bit in bits_of(data, every):
                file.seek(bit // 8)
                file.write(bytes([data[bit // 8] ^ 1 << bit % 8]))
                figures.outcomes[room, _outcome(root, sound, figures)] += 1
                file.seek(bit // 8)
                file.write(data[bit // 8 : bit // 8 + 1])
    return figures


def _outcome(root: Path, sound: Rows, figures: Figures) -> str:
    try:
        rows = scanned(root)
    except StoreError:
        return DETECTED
    differing = {
        name for place, row in rows.items() for name in row if place not in sound or row[name] != sound[place][name]
    }
    figures.columns.update(differing)
    if differing:
        return WRONG
    return MISSING if sound.keys() - rows.keys() else HARMLESS


def measured(crc: bool, every: int = 1) -> Figures:
    """The figures of a store of its own."""
    with tempfile.TemporaryDirectory() as directory:
        build(Path(directory), crc=crc)
        return flipped(Path(directory), every)


def main() -> None:
    """Prints the figures of every bit."""
    with ProcessPoolExecutor(2) as pool:
        for crc, figures in zip((False, True), pool.map(measured, (False, True)), strict=True):
            lines = [f"{'with' if crc else 'without'} the CRC property", figures.line("  every file")]
            lines.append(figures.line("  commitlog", "commitlog"))
            lines.append("  wrong in " + ", ".join(f"{name} {count}" for name, count in figures.columns.most_common()))
            sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
