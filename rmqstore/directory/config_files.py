"""The broker's files under config/: topics, the offsets of consumer groups.  A torn one gives way to its .bak; an entry
that is odd is passed over, and the log says so."""

import logging
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
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
# The second is right where both were written at the same time.
OFFSET_FILES = ("lmqConsumerOffset.json", "consumerOffset.json")
_SIZE_MAX = broker_json.TEXT_SIZE_MAX + 1
Shape = TypeVar("Shape")


class Table(NamedTuple):
    """A table that brokers of 5.x may keep in RocksDB instead: the JSON file, its member, and the databases in config/,
    each with its column family: of configManagerVersion=v2, in which the table has this number (Java: TableId), of 5.5,
    and of 5.3 (Java: RocksDBConfigManager).
    """

    file_name: str
    member: str
    number: int
    places: tuple[tuple[str, str], ...]


_NUMBERED = "rdb"  # the database of all tables by number
TOPICS = Table("topics.json", "topicConfigTable", 3,
               ((_NUMBERED, "default"), ("metadata", "topic"), ("topics", "default")))  # fmt: skip
OFFSETS = Table("consumerOffset.json", "offsetTable", 1,
                ((_NUMBERED, "default"), ("metadata", "consumerOffset"), ("consumerOffsets", "default")))  # fmt: skip
_ENTRY_OF = struct.Struct(">BHB")  # a table: 1, its number, 2 (data; 1 is its version)
_LENGTH, _QUEUE = struct.Struct(">H"), struct.Struct(">BI")
_PLACE = struct.Struct(">q")
_IS_JSON = b"\x01"


class Loaded(NamedTuple, Generic[Shape]):
    """A file of config/ in its shape; `is_backup`: its .bak had to stand in."""

    value: Shape
    is_backup: bool


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
    """Topic configurations by name."""
    found = _of_rocksdb(disk, root, TOPICS, broker_json.topic_configs)
    return load(disk, root, "topics.json", broker_json.topic_configs, {}) if found is None else found


def consumer_offsets(disk: ReadableDisk, root: str) -> dict[tuple[str, str], dict[int, int]]:
    """Next offset to consume by (group, topic) and queue id.

    A broker with enableLmq has all of them in lmqConsumerOffset.json instead; of a queue that both files know, the file
    written later is right.
    """
    all_offsets = _of_rocksdb(disk, root, OFFSETS, broker_json.consumer_offsets)
    if all_offsets is not None:
        return all_offsets
    written_ms = {entry.name: entry.modified_ms for entry in disk.entries(join(root, CONFIG_ROOM))}
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for name in sorted(OFFSET_FILES, key=lambda name: written_ms.get(name, 0)):
        loaded: dict[tuple[str, str], dict[int, int]] = load(disk, root, name, broker_json.consumer_offsets, {})
        for key, found in loaded.items():
            offsets.setdefault(key, {}).update(found)
    return offsets


def _of_rocksdb(
    disk: ReadableDisk, root: str, table: Table, shape: Callable[[Any], Shape]
) -> Shape | None:  # fmt: skip
    """A table that the broker keeps in RocksDB.

    None where the broker does not, or where it cannot be read: then the log says what to do.  A file beside the
    database is that of an earlier time: a broker that moves its tables leaves it there.
    """
    room = join(root, CONFIG_ROOM)
    written_ms = max((entry.modified_ms for entry in disk.entries(room) if entry.name == table.file_name), default=0)
    for directory, family in table.places:
        entries = disk.entries(join(room, directory))
        if not any(entry.name == "CURRENT" for entry in entries):
            continue
        from rmqstore.files.rocksdb import read_family  # noqa: PLC0415  few brokers keep their tables there

        try:
            document = _numbered_document if directory == _NUMBERED else _document
            found = broker_json.sifted(document(read_family(join(room, directory), family), table), shape)
        except (Corrupt, Rejected) as error:
            tell_once(f"{join(room, directory)}: what {table.file_name} has otherwise is in RocksDB; {error}")
            continue
        for reason in found.reasons:
            tell_once(f"{join(room, directory)}: {reason}")
        if max(entry.modified_ms for entry in entries) < written_ms:
            tell_once(f"{join(room, table.file_name)} is passed over, as {directory}/ in RocksDB has the table")
        return found.value
    return None


def databases(disk: ReadableDisk, root: str) -> list[str]:
    """The directories in config/ where a broker keeps tables in RocksDB."""
    room = join(root, CONFIG_ROOM)
    found = dict.fromkeys(directory for table in (TOPICS, OFFSETS) for directory, _ in table.places)
    return [
        join(room, directory)
        for directory in found
        if any(entry.name == "CURRENT" for entry in disk.entries(join(room, directory)))
    ]


def _document(entries: Mapping[bytes, bytes], table: Table) -> dict[str, Any]:
    """The entries of a database as the file would have them: key `TOPIC` or `TOPIC@GROUP`, value the JSON there."""
    found: dict[str, Any] = {}
    for key, value in entries.items():
        with suppress(Corrupt, UnicodeDecodeError):  # an entry that is torn is passed over
            entry = broker_json.parse(value)
            is_wrapped = table is OFFSETS and isinstance(entry, dict)
            found[key.decode()] = entry.get(table.member) if is_wrapped else entry
    return {table.member: found}


def _numbered_document(entries: Mapping[bytes, bytes], table: Table) -> dict[str, Any]:
    """As `_document`, of the database of all tables.  A key goes on with names, i2 length and bytes, 1 between them: of
    a topic, whose value is 1 and its JSON; of a group and a topic, with 1 and the i4 queue id, whose value is the i8
    offset (Java: ConfigHelper).
    """
    found: dict[str, Any] = {}
    prefix = _ENTRY_OF.pack(1, table.number, 2)
    for key, value in entries.items():
        if not key.startswith(prefix):
            continue
        with suppress(Corrupt, UnicodeDecodeError, struct.error):  # an entry that is torn is passed over
            name, at = _name_at(key, len(prefix))
            if table is not OFFSETS:
                if value.startswith(_IS_JSON):
                    found[name] = broker_json.parse(value[len(_IS_JSON) :])
                continue
            topic, at = _name_at(key, at + 1)
            _, queue_id = _QUEUE.unpack(key[at:])
            found.setdefault(f"{topic}@{name}", {})[str(queue_id)] = _PLACE.unpack(value)[0]
    return {table.member: found}


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
