"""The broker's tables where RocketMQ 5 keeps them in RocksDB instead of JSON files; read by rocksdict (the extra
"rocksdb").

Java: RocksDBConfigManager.  A key is a topic, a group or TOPIC@GROUP, a value the JSON that the file's table would have
there.  The databases are those of 5.5 (config/metadata, a column family each) and of 5.3 (a directory each).
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rmqstore.errors import Corrupt, Rejected
from rmqstore.files.disk import ReadableDisk, join
from rmqstore.formats import broker_json
from rmqstore.formats.names import CONFIG_ROOM

_FAMILY = "default"
_CURRENT = "CURRENT"
# A broker that runs takes files away while they are linked.
_TRIES_MAX = 5


class Table(NamedTuple):
    """A table: the JSON file that has it otherwise, the member there, and (directory in config/, column family)."""

    file_name: str
    member: str
    places: tuple[tuple[str, str], ...]


TOPICS = Table("topics.json", "topicConfigTable", (("metadata", "topic"), ("topics", _FAMILY)))
OFFSETS = Table("consumerOffset.json", "offsetTable", (("metadata", "consumerOffset"), ("consumerOffsets", _FAMILY)))


def database_of(disk: ReadableDisk, root: str, table: Table) -> str | None:
    """The database that has a table; None where there is none, or the JSON file was written later."""
    room = join(root, CONFIG_ROOM)
    written = [entry.modified_ms for entry in disk.entries(room) if entry.name == table.file_name]
    for directory, _ in table.places:
        entries = disk.entries(join(room, directory))
        newest = max((entry.modified_ms for entry in entries if not entry.is_directory), default=0)
        if any(entry.name == _CURRENT for entry in entries) and (not written or newest >= written[0]):
            return join(room, directory)
    return None


def document(path: str, table: Table) -> dict[str, Any]:
    """The table of a database on this host as the JSON file would have it.

    Raises Rejected without rocksdict, Corrupt where the database cannot be read.
    """
    family = dict(table.places)[os.path.basename(path)]
    entries: dict[str, Any] = {}
    for key, value in _entries(path, family).items():
        with suppress(Corrupt, UnicodeDecodeError):  # an entry that is odd is passed over, as in a file
            entry = broker_json.parse(value)
            is_wrapped = table is OFFSETS and isinstance(entry, dict)
            entries[key.decode()] = entry.get(table.member) if is_wrapped else entry
    return {table.member: entries}


def _entries(path: str, family: str) -> Mapping[bytes, bytes]:
    """All of a column family."""
    try:
        import rocksdict  # noqa: PLC0415  an extra: the package works without it
    except ImportError:
        raise Rejected("to have it read: pip install 'rmqstore[rocksdb]'") from None
    failure: Exception | None = None
    for _ in range(_TRIES_MAX):
        # RocksDB writes where it reads: so it gets a directory of links.  The broker's OPTIONS name its log directory,
        # and are not loaded.
        with tempfile.TemporaryDirectory(prefix="rmqstore-rocksdb-") as links:
            try:
                for name in os.listdir(path):
                    if name != "LOCK" and not name.startswith(("LOG", "OPTIONS")):
                        os.symlink(os.path.abspath(os.path.join(path, name)), os.path.join(links, name))
                return _read(rocksdict, links, family)
            except Exception as error:  # noqa: BLE001  rocksdict raises plain Exceptions
                failure = error
    raise Corrupt(path, 0, f"RocksDB cannot be read: {failure}")


def _read(rocksdict: Any, path: str, family: str) -> dict[bytes, bytes]:
    families: Sequence[str] = rocksdict.Rdict.list_cf(path)
    if family not in families:
        return {}
    options = {name: rocksdict.Options(raw_mode=True) for name in families}
    access = rocksdict.AccessType.read_only()
    database = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True), column_families=options, access_type=access)
    try:
        found = database if family == _FAMILY else database.get_column_family(family)
        return dict(found.items())
    finally:
        database.close()
