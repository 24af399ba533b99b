"""A bench says what it measured, and nothing else: what Spark, the JVM and their workers print goes to a file."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def only_ours(log: Path) -> Iterator[TextIO]:
    """Has every process that is started meanwhile write both its outputs to `log`, and this one where it did before.
    Gives the file for people: standard error."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    before = {number: os.dup(number) for number in (1, 2)}
    streams, showwarning = (sys.stdout, sys.stderr), warnings.showwarning
    shown = [os.fdopen(os.dup(before[number]), "w", buffering=1, encoding="utf-8") for number in (1, 2)]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    try:
        for number in before:
            os.dup2(file, number)
        sys.stdout, sys.stderr = shown
        warnings.showwarning = _into_log
        yield shown[1]
    finally:
        for one in shown:
            one.flush()
        sys.stdout, sys.stderr = streams
        warnings.showwarning = showwarning
        for number, kept in before.items():
            os.dup2(kept, number)
            os.close(kept)
        os.close(file)
        for one in shown:
            one.close()


def _into_log(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: TextIO | None = None, line: str | None = None,
) -> None:  # fmt: skip
    """As `warnings.showwarning`, which would write to standard error."""
    os.write(2, warnings.formatwarning(message, category, filename, lineno, line).encode())
