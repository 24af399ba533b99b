"""config/replica.json: whose replica a directory is; RocketMQ passes it over."""

import json
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from rmqstore.errors import Corrupt, Rejected
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.files.replace import replace_file
from rmqstore.formats import broker_json
from rmqstore.formats.delay_levels import DEFAULT_LEVELS, LEVELS_FIELD, NotedLevels, noted_levels
from rmqstore.formats.names import CONFIG_ROOM, REPLICA_FILE

_FIELDS = ("cluster", "brokerName", "logStart", "cutTo", LEVELS_FIELD)
_SIZE_MAX = 64 * 1024


class Origin(NamedTuple):
    """The master that a replica belongs to, and where its log began when it was made.

    `cut_to` is not None while everything from there on is being cut out of its log: whoever opens it next goes on.
    `delay_levels` are the master's, by which delivery times are told; none where the master did not say so yet.
    """

    cluster: str
    broker_name: str
    log_start: int
    cut_to: int | None = None
    delay_levels: NotedLevels = ()


def with_levels(origin: Origin, log_end: int, words: str | None) -> Origin:
    """The same replica, whose master has these delay levels for what comes after `log_end`; as it was where the master
    does not say, and where nothing changes.  What came before keeps the levels that it had: the usual ones where the
    master had not said.
    """
    if words is None or (origin.delay_levels and origin.delay_levels[-1][1] == words):
        return origin
    had = origin.delay_levels or ((0, DEFAULT_LEVELS),) * (words != DEFAULT_LEVELS)
    before = [each for each in had if each[0] < log_end]
    return origin._replace(delay_levels=(*before, (log_end if before else 0, words)))


def read_origin(fs: FileSystem, root: str) -> Origin | None:
    """Whose replica stands at `root`; None for what is none.  Raises Corrupt, OSError."""
    path = join(root, CONFIG_ROOM, REPLICA_FILE)
    if not fs.exists(path):
        return None
    document: Any = broker_json.parse(fs.open(path).read(0, _SIZE_MAX))
    values = [document.get(name) for name in _FIELDS] if isinstance(document, dict) else []
    match values:
        case [str(cluster), str(broker_name), int(log_start), int() | None as cut_to, levels]:
            with suppress(ValueError):
                return Origin(cluster, broker_name, log_start, cut_to, noted_levels([] if levels is None else levels))
    raise Corrupt(path, 0, "it does not name the master of this replica")


def write_origin(fs: FileSystem, root: str, origin: Origin) -> None:
    """Notes it, durably.  Raises OSError."""
    fs.make_directories(join(root, CONFIG_ROOM))
    document = {name: value for name, value in zip(_FIELDS, origin, strict=True) if value not in (None, ())}
    replace_file(fs, join(root, CONFIG_ROOM, REPLICA_FILE), json.dumps(document).encode(), backup=False)


class Named(Protocol):
    """A broker by its names."""

    @property
    def cluster(self) -> str:
        """Its cluster's name."""

    @property
    def broker_name(self) -> str:
        """Its own name."""


def require_same(known: Named, found: Named, root: str) -> None:
    """Raises Rejected unless the replica at `root`, which belongs to `known`, is this broker's."""
    if (known.cluster, known.broker_name) != (found.cluster, found.broker_name):
        raise Rejected(
            f"{root} is a replica of {known.broker_name!r} in {known.cluster!r}, and this master is "
            f"{found.broker_name!r} in {found.cluster!r}: give another directory"
        )
