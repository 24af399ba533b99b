"""Damage to one file of a store, chosen by hypothesis, and a copy of the store that has it."""

import os
import random
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("RMQSTORE_MUTATION_EXAMPLES", "15"))
THOROUGH = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize="RMQSTORE_MUTATION_EXAMPLES" not in os.environ,  # the same damage on every `make test`
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
LENGTHS = (1, 2, 4, 8, 20, 46, 100, 1000)
SECONDS_MAX = 600


@dataclass(frozen=True, slots=True)
class Damage:
    """`kind`: flip one bit, cut the file, zero or overwrite `length` bytes, empty or remove the file.

    `place` (0 … 1) says where, as a share of the bytes before the file's zero tail: most of a pre-allocated file is
    nothing.
    """

    kind: str
    file: str
    place: float
    length: int
    seed: int

    def apply(self, data: bytes) -> tuple[bytes | None, range]:
        """The file's new content (None: removed) and the range of bytes that differ, cut or removed ones included."""
        position = min(int(self.place * (len(data.rstrip(b"\0")) + 1)), max(len(data) - 1, 0))
        if self.kind in ("remove", "empty") or not data:
            return (None if self.kind == "remove" else b""), range(len(data))
        if self.kind == "cut":
            return data[:position], range(position, len(data))
        old = data[position : position + self.length]
        if self.kind == "flip":
            new = bytes([old[0] ^ 1 << self.seed % 8]) + old[1:]
            return data[:position] + new + data[position + len(old) :], range(position, position + 1)
        new = bytes(len(old)) if self.kind == "zero" else random.Random(self.seed).randbytes(len(old))
        return data[:position] + new + data[position + len(old) :], range(position, position + len(old))


def damages(files: Sequence[str]) -> st.SearchStrategy[Damage]:
    """Damage to one of `files` (paths relative to the store), bit flips oftener than the rest."""
    return st.builds(
        Damage,
        kind=st.sampled_from(("flip", "flip", "flip", "zero", "zero", "noise", "noise", "cut", "empty", "remove")),
        file=st.sampled_from(list(files)),
        place=st.floats(0, 1, exclude_max=True),
        length=st.sampled_from(LENGTHS),
        seed=st.integers(0, 2**16),
    )


@contextmanager
def damaged_copy(
    store: Path, scratch: Path, wounds: Sequence[Damage], *, is_written: bool = False
) -> Iterator[tuple[Path, dict[str, range]]]:
    """A copy of `store` with the damage, and the changed bytes by file; removed afterwards.  Sound files are
    linked, but for a copy that `is_written`."""
    copy = scratch / "damaged"
    shutil.copytree(store, copy, copy_function=shutil.copy2 if is_written else os.link)
    changed: dict[str, range] = {}
    try:
        for wound in wounds:
            path = copy / wound.file
            if not path.exists():
                continue
            content, changed[wound.file] = wound.apply(path.read_bytes())
            path.unlink()
            if content is not None:
                path.write_bytes(content)
        yield copy, changed
    finally:
        shutil.rmtree(copy)


@contextmanager
def no_hang() -> Iterator[None]:
    """Fails with TimeoutError after ten minutes: a hang, not a busy machine."""

    def ring(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still reading after {SECONDS_MAX} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
