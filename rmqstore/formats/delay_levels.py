"""The delay levels: what messageDelayLevel says in words, and what a message's DELAY property asks for."""

import re

# A broker's table unless its configuration says otherwise; level 1 first.
DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(rb"[+-]?[0-9]{1,10}")  # Java: Integer.parseInt


def parse_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level.  Raises ValueError, which names the piece that is none."""
    for piece in text.split():
        if not re.fullmatch(r"[0-9]+[smhd]", piece):
            raise ValueError(f"{piece!r} is no number with s, m, h or d")
    return tuple(int(piece[:-1]) * _UNIT_MS[piece[-1]] for piece in text.split())


DEFAULT_DELAY_MS = parse_levels(DEFAULT_LEVELS)


def level_of(text: bytes) -> int:
    """The level that a DELAY property names; 0, which is none, for what is no number."""
    return int(text) if _LEVEL.fullmatch(text) else 0
