"""The delay levels: what messageDelayLevel says in words, and what a message's DELAY property asks for.

Java: Integer.parseInt of DELAY where a message is put and where its record is dispatched, then Math.min with the
highest level.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple, overload

import numpy as np

from rmqstore.core.arguments import I64_MAX, shown
from rmqstore.formats.java_text import parse_int, parse_ints
from rmqstore.formats.message_columns import Bytes, Ints, Places

# A broker's table unless its configuration says otherwise; level 1 first.
DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_PIECE_SIZE_MAX = 50
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level.  Raises ValueError, which names the piece that is none."""
    for piece in text.split():
        if not re.fullmatch(r"[0-9]+[smhd]", piece):
            raise ValueError(f"{piece!r} is not a number with s, m, h or d")
        if len(piece) > _PIECE_SIZE_MAX or int(piece[:-1]) * _UNIT_MS[piece[-1]] > I64_MAX:
            raise ValueError(f"{shown(piece)} is too long: 64 bits do not hold its milliseconds")
    return tuple(int(piece[:-1]) * _UNIT_MS[piece[-1]] for piece in text.split())


DEFAULT_DELAY_MS = parse_levels(DEFAULT_LEVELS)


class LevelsSince(NamedTuple):
    """The delay levels of the records from an offset of the log on: milliseconds of each, level 1 first."""

    offset: int
    delay_ms: tuple[int, ...]


# Those of one table after the other, by their offsets; the first are for what stands before that offset, too.
LevelTables = Sequence[LevelsSince]
DEFAULT_TABLES: LevelTables = (LevelsSince(0, DEFAULT_DELAY_MS),)
# What a replica's note has: an offset of the log, and the master's words for its levels from there on.
NotedLevels = tuple[tuple[int, str], ...]
# A broker's setting, and what stands in that note.
LEVELS_SETTING, LEVELS_FIELD = "messageDelayLevel", "delayLevels"


def noted_levels(value: object) -> NotedLevels:
    """The value `delayLevels` of a replica's note.  Raises ValueError for what is none."""
    noted: list[tuple[int, str]] = []
    for each in value if isinstance(value, list) else [value]:
        match each:
            case [int(offset), str(words)] if offset >= (noted[-1][0] if noted else 0):
                parse_levels(words)
                noted.append((offset, words))
            case _:
                raise ValueError(f"{shown(each)} is not an offset of the log with delay levels")
    return tuple(noted)


def tables_of(noted: NotedLevels) -> LevelTables:
    """The milliseconds of what a replica notes."""
    return tuple(LevelsSince(offset, parse_levels(words)) for offset, words in noted)


def asked_level(text: str | None) -> int | None:
    """The level that a value of DELAY asks for, 0 or less being none; None where it is no number.

    An absent value asks for 0, and so does an empty one, which vanishes on reading.
    """
    return parse_int(text) if text else 0


def asked_levels(data: Bytes, starts: Places, sizes: Places) -> Ints:
    """`asked_level` of n values in UTF-8, value i at data[starts[i]:starts[i] + sizes[i]], size -1 where absent;
    int64[n], 0 for what is no number.
    """
    levels, _ = parse_ints(data, starts, sizes)
    return levels


@overload
def clamped(level: int, level_count: int) -> int: ...
@overload
def clamped(level: Ints, level_count: int) -> Ints: ...
def clamped(level: int | Ints, level_count: int) -> int | Ints:
    """The level that a broker with so many uses for one that is asked for, or for each of int64[n]: a level above the
    highest is the highest, and no level without any.
    """
    return np.minimum(level, level_count) if isinstance(level, np.ndarray) else min(level, level_count)


def waits_ms(levels: Ints, delay_ms: Sequence[int]) -> Ints:
    """How long messages wait that ask for `levels`, int64[n]; 0 where that is no level.

    `delay_ms` are the milliseconds of the levels there are, level 1 first.
    """
    table = np.array((0, *delay_ms), np.int64)
    waits: Ints = table[np.maximum(clamped(levels, len(delay_ms)), 0)]
    return waits


def waits_at(levels: Ints, offsets: Ints, tables: LevelTables) -> Ints:
    """How long messages wait that ask for `levels` and stand at `offsets` of the log, int64[n] each; -1 where there is
    no such level.
    """
    waits = np.full(len(levels), -1, np.int64)
    for number, table in enumerate(tables):
        rows = np.flatnonzero(offsets >= table.offset) if number else np.arange(len(levels))
        asked = levels[rows]
        waits[rows] = np.where(clamped(asked, len(table.delay_ms)) > 0, waits_ms(asked, table.delay_ms), -1)
    return waits
