"""The broker's files under config/: topics, the offsets of consumer groups.  A torn one gives way to its .bak; an entry
that is odd is passed over, and the log says so.

Brokers of 5.x may keep a table in RocksDB instead, and whoever had the store before may have used another place.  The
time at which each was written tells which is right.  The counter of dataVersion does not: it counts every commit in
RocksDB's v2, one of 500 elsewhere (consumerOffsetUpdateVersionStep), and each program counts by itself.
"""

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from rmqstore.errors import Corrupt, NotAStore, Rejected, TooLarge
from rmqstore.files.disk import ReadableDisk, join, read_small
from rmqstore.formats import broker_json
from rmqstore.formats.delay_levels import (
    DEFAULT_TABLES,
    LEVELS_FIELD,
    LevelsSince,
    LevelTables,
    NotedLevels,
    noted_levels,
    parse_levels,
    tables_of,
)
from rmqstore.formats.names import CONFIG_ROOM, REPLICA_FILE

log = logging.getLogger("rmqstore.config")
_SIZE_MAX = broker_json.TEXT_SIZE_MAX + 1
Shape = TypeVar("Shape")


class Table(NamedTuple):
    """A table and where it may stand in config/: the JSON files and their member; the databases, each with its column
    family: of 5.3 (Java: RocksDBConfigManager), of 5.4, and of configManagerVersion=v2, in which the table has this
    number (Java: TableId).  Where two were written at the same time, the one named later is right.
    """

    file_names: tuple[str, ...]
    member: str
    number: int
    places: tuple[tuple[str, str], ...]


_NUMBERED = "rdb"  # the database of all tables by number
TOPICS = Table(("topics.json",), "topicConfigTable", 3,
               (("topics", "default"), ("metadata", "topic"), (_NUMBERED, "default")))  # fmt: skip
OFFSETS = Table(("lmqConsumerOffset.json", "consumerOffset.json"), "offsetTable", 1,
                (("consumerOffsets", "default"), ("metadata", "consumerOffset"), (_NUMBERED, "default")))  # fmt: skip
_ENTRY_OF = struct.Struct(">BHB")  # a table: 1, its number, 2 (data; 1 is its version)
_LENGTH, _QUEUE = struct.Struct(">H"), struct.Struct(">BI")
_PLACE = struct.Struct(">q")
_IS_JSON = b"\x01"


class Loaded(NamedTuple, Generic[Shape]):
    """A file of config/ in its shape; `is_backup`: its .bak had to stand in."""

    value: Shape
    is_backup: bool


class _Source(NamedTuple, Generic[Shape]):
    """The rows of a table in one place, a file or a database, and when it was written last."""

    path: str
    is_database: bool
    written_ms: int
    rows: Shape


def load_newest(
    disk: ReadableDisk, root: str, name: str, shape: Callable[[Any], Shape], *, past_directories: bool = False
) -> Loaded[Shape] | None:
    """config/<name> in the given shape; its .bak where it is missing, empty or torn; None where neither can be read.

    `past_directories`: a directory of that name counts as missing, for callers that will not put a file in its place.
    Raises TooLarge, as what may be sound is neither passed over nor replaced; OSError, NotAStore as the disk does.
    """
    for candidate in (name, f"{name}.bak"):
        path = join(root, CONFIG_ROOM, candidate)
        data = read_small(disk, path, _SIZE_MAX, past_directories=past_directories)
        if not data or not data.strip():
            continue
        try:
            found = broker_json.sifted(broker_json.parse(data), shape)
        except TooLarge as large:
            raise TooLarge(path, 0, large.reason) from None
        except Corrupt as damage:
            tell_once(f"{path} cannot be read: {damage.reason}")
            continue
        for reason in found.reasons:
            tell_once(f"{path}: {reason}")
        return Loaded(found.value, candidate != name)
    return None


@lru_cache(maxsize=256)
def tell_once(warning: str) -> None:
    """Says it once in a process: tables are read again and again."""
    log.warning("%s", warning)


def load(disk: ReadableDisk, root: str, name: str, shape: Callable[[Any], Shape], empty: Shape) -> Shape:
    """As `load_newest`, the value alone, for readers; `empty` where nothing can be read."""
    found = load_newest(disk, root, name, shape, past_directories=True)
    return empty if found is None else found.value


def topics(disk: ReadableDisk, root: str) -> dict[str, broker_json.TopicConfig]:
    """Topic configurations by name: the database that was written last, and over it the file if that is later still.

    An older file beside a database adds nothing: a broker that moves its tables leaves it there.
    """
    found: dict[str, broker_json.TopicConfig] = {}
    for source in _sources(disk, root, TOPICS, broker_json.topic_configs):
        if source.is_database and source.rows:
            found.clear()
        found.update(source.rows)
    return found


def consumer_offsets(disk: ReadableDisk, root: str) -> dict[tuple[str, str], dict[int, int]]:
    """Next offset to consume by (group, topic) and queue id, from all places together; of a queue that more than one
    knows, the place that was written last is right.

    A broker with enableLmq has all of them in lmqConsumerOffset.json.
    """
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for source in _sources(disk, root, OFFSETS, broker_json.consumer_offsets):
        for key, found in source.rows.items():
            offsets.setdefault(key, {}).update(found)
    return offsets


def _sources(
    disk: ReadableDisk, root: str, table: Table, shape: Callable[[Any], dict[Any, Any]]
) -> list[_Source[dict[Any, Any]]]:
    """The rows of a table by place, those of the place that was written last at the end."""
    room = join(root, CONFIG_ROOM)
    written_ms = {entry.name: entry.modified_ms for entry in disk.entries(room)}
    sources = []
    for name in table.file_names:
        loaded = load_newest(disk, root, name, shape, past_directories=True)
        if loaded is not None:
            file = f"{name}.bak" if loaded.is_backup else name
            sources.append(_Source(join(room, file), False, written_ms.get(file, 0), loaded.value))
    for directory, family in table.places:
        if found := _of_rocksdb(disk, join(room, directory), family, table, shape):
            sources.append(found)
    sources.sort(key=lambda source: source.written_ms)
    _tell_of_later_file(sources)
    return sources


def _tell_of_later_file(sources: Sequence[_Source[dict[Any, Any]]]) -> None:
    """Says which file goes before a database that knows something else of the same keys."""
    for at, file in enumerate(sources):
        for database in sources[:at]:
            shared = file.rows.keys() & database.rows.keys() if database.is_database and not file.is_database else ()
            if any(file.rows[key] != database.rows[key] for key in shared):
                tell_once(
                    f"{file.path} goes before {database.path} in RocksDB where they differ, as it is the later one"
                )


def _of_rocksdb(
    disk: ReadableDisk, path: str, family: str, table: Table, shape: Callable[[Any], dict[Any, Any]]
) -> _Source[dict[Any, Any]] | None:
    """The rows of a table in a database.

    None where there is no database, or where it cannot be read: then the log says what to do.
    """
    entries = disk.entries(path)
    if not any(entry.name == "CURRENT" for entry in entries):
        return None
    from rmqstore.files import rocksdb  # noqa: PLC0415  few brokers keep their tables there

    add = _add_numbered if path.endswith(_NUMBERED) else _add_entry
    try:
        document, reasons = _document(rocksdb.read_family(path, family), table, add)
        found = broker_json.sifted(document, shape)
    except (Corrupt, Rejected) as error:
        why = f"{error.reason}; its rows are missing here; {rocksdb.MEND}" if isinstance(error, Corrupt) else error
        tell_once(f"{path}: what {table.file_names[-1]} has otherwise is in RocksDB; {why}")
        return None
    for reason in (*reasons, *found.reasons):
        tell_once(f"{path}: {reason}")
    return _Source(path, True, rocksdb.written_ms(entries), found.value)


def databases(disk: ReadableDisk, root: str) -> list[str]:
    """The directories in config/ where a broker keeps tables in RocksDB."""
    room = join(root, CONFIG_ROOM)
    found = dict.fromkeys(directory for table in (TOPICS, OFFSETS) for directory, _ in table.places)
    return [join(room, each) for each in found if disk.exists(join(room, each, "CURRENT"))]


_Add = Callable[[dict[str, Any], bytes, bytes, Table], None]


def _document(entries: Mapping[bytes, bytes], table: Table, add: _Add) -> tuple[dict[str, Any], list[str]]:
    """The entries of a database as the file would have them, and why some are passed over."""
    found: dict[str, Any] = {}
    reasons: list[str] = []
    for key, value in entries.items():
        try:
            add(found, key, value, table)
        except Corrupt as torn:
            reasons.append(f"{key!r} is ignored: {torn.reason}")
        except (UnicodeDecodeError, struct.error) as torn:
            reasons.append(f"{key!r} is ignored: {torn}")
    return {table.member: found}, broker_json.told(reasons)


def _add_entry(found: dict[str, Any], key: bytes, value: bytes, table: Table) -> None:
    """Adds an entry of a table's own database: key `TOPIC` or `TOPIC@GROUP`, value the JSON that the file has there."""
    entry = broker_json.parse(value)
    is_wrapped = table is OFFSETS and isinstance(entry, dict)
    found[key.decode()] = entry.get(table.member) if is_wrapped else entry


def _add_numbered(found: dict[str, Any], key: bytes, value: bytes, table: Table) -> None:
    """Adds an entry of the database of all tables, if it is of this one.  A key goes on with names, i2 length and
    bytes, 1 between them: of a topic, whose value is 1 and its JSON; of a group and a topic, with 1 and the i4 queue
    id, whose value is the i8 offset (Java: ConfigHelper).
    """
    prefix = _ENTRY_OF.pack(1, table.number, 2)
    if not key.startswith(prefix):
        return
    name, at = _name_at(key, len(prefix))
    if table is OFFSETS:
        topic, at = _name_at(key, at + 1)
        _, queue_id = _QUEUE.unpack(key[at:])
        found.setdefault(f"{topic}@{name}", {})[str(queue_id)] = _PLACE.unpack(value)[0]
    elif value.startswith(_IS_JSON):
        found[name] = broker_json.parse(value[len(_IS_JSON) :])
    else:
        raise Corrupt("", 0, "its value is not JSON")


def _name_at(key: bytes, at: int) -> tuple[str, int]:
    """The name in a key of numbered tables, and where it ends."""
    end = at + _LENGTH.size + _LENGTH.unpack_from(key, at)[0]
    if end > len(key):
        raise struct.error("the name goes on past the end of the key")
    return key[at + _LENGTH.size : end].decode(), end


def masters_levels(disk: ReadableDisk, root: str) -> NotedLevels:
    """The delay levels of the master, in a replica; none in another store, and where the replica does not know them.

    Raises Corrupt for a note that cannot be read: by other levels its messages would go out too early or too late.
    """
    path = join(root, CONFIG_ROOM, REPLICA_FILE)
    data = read_small(disk, path, _SIZE_MAX)
    try:
        note = {} if data is None else broker_json.parse(data)
        return noted_levels(note.get(LEVELS_FIELD, []))
    except Corrupt as damage:
        raise Corrupt(path, 0, damage.reason) from None
    except (AttributeError, ValueError) as wrong:
        raise Corrupt(path, 0, f"it does not say by which delay levels this replica goes: {wrong}") from None


def lacks_levels(disk: ReadableDisk, root: str, levels: str | None) -> bool:
    """Whether a store is a replica that does not know its master's delay levels, and its configuration, which says
    `levels`, names none either.  Raises as `masters_levels`.
    """
    is_replica = levels is None and disk.exists(join(root, CONFIG_ROOM, REPLICA_FILE))
    return is_replica and not masters_levels(disk, root)


def level_tables(disk: ReadableDisk, root: str, levels: str | None) -> LevelTables:
    """The delay levels by which a store's delivery times are told, `levels` its configuration's: of a replica that
    names no others, those of its master.  Raises as `masters_levels`; ValueError for `levels` that are none.
    """
    noted = masters_levels(disk, root)
    if noted and levels in (None, noted[-1][1]):
        return tables_of(noted)
    return DEFAULT_TABLES if levels is None else (LevelsSince(0, parse_levels(levels)),)


def readers_levels(disk: ReadableDisk, root: str) -> LevelTables:
    """The delay levels as far as a store tells them: those of a replica's master, else RocketMQ's own, as a broker's
    are in its configuration.
    """
    try:
        return level_tables(disk, root, None)
    except (Corrupt, NotAStore) as damage:
        tell_once(str(damage))
        return DEFAULT_TABLES
