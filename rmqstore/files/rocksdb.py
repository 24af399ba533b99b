"""RocksDB databases of a broker, read by rocksdict (the extra "rocksdb") without a change to their directory."""

import os
import re
import stat
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rmqstore.errors import Corrupt, Rejected
from rmqstore.files.disk import DirectoryEntry

_FAMILY = "default"
# What a database consists of.  All else stays out: rocksdict writes its own settings into a directory, through a link
# as well, and whoever opens a FIFO waits.
_PARTS = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.(sst|ldb|log|blob)", re.ASCII)
_WRITTEN = re.compile(r"MANIFEST-\d+|\d+\.(sst|ldb|log|blob)", re.ASCII)
MEND = "where its files are damaged, a backup brings them back, or RocksDB's own `ldb repair`"
# A broker that runs takes files away while they are linked.
_TRIES_MAX = 5


def read_family(path: str, family: str) -> dict[bytes, bytes]:
    """All of a column family of the database at `path`, on this host; empty where it has none of that name.

    Raises Rejected without rocksdict, Corrupt where the database cannot be read.
    """
    return _read(path, lambda families: dict(_entries(families[family])) if family in families else {})


def read_value(path: str, family: str, key: bytes) -> bytes | None:
    """The value of one key; None without.  Raises as `read_family`."""
    return _read(path, lambda families: families[family].get(key) if family in families else None)


def damage_of(path: str) -> str | None:
    """Why the database at `path`, on this host, cannot be read as a whole; None where it can.

    Raises Rejected without rocksdict.
    """
    try:
        _read(path, _read_through)
    except Corrupt as damage:
        return damage.reason
    return None


def written_ms(entries: Iterable[DirectoryEntry]) -> int:
    """When a database was written last, in ms since the epoch, by the entries of its directory; 0 where nobody knows.

    Entries stand in its tables and in its log, if that has any.  Whoever opens it to write makes a MANIFEST; reading as
    here changes none of them.
    """
    return max((entry.modified_ms for entry in entries if entry.size and _WRITTEN.fullmatch(entry.name)), default=0)


_Families = Mapping[str, Any]
Found = TypeVar("Found")


def _read(path: str, look: Callable[[_Families], Found]) -> Found:
    """Has `look` read the column families by name, and answers what it finds.  Raises as `read_family`.

    RocksDB writes where it reads: so it gets a directory of links.  The broker's OPTIONS name the directory of its own
    log, and are not loaded.
    """
    try:
        import rocksdict  # noqa: PLC0415  an extra: the package works without it
    except ImportError:
        raise Rejected("to have it read: pip install 'rmqstore[rocksdb]'") from None
    failure: Exception | None = None
    for _ in range(_TRIES_MAX):
        try:
            room = tempfile.TemporaryDirectory(prefix="rmqstore-rocksdb-")
        except OSError as error:
            raise Rejected(f"RocksDB cannot be read without a temporary directory: {error}") from None
        try:
            with room as links:
                for name in filter(_PARTS.fullmatch, os.listdir(path)):
                    file = os.path.abspath(os.path.join(path, name))
                    if stat.S_ISREG(os.stat(file).st_mode):
                        os.symlink(file, os.path.join(links, name))
                return _look(rocksdict, links, look)
        except Exception as error:  # noqa: BLE001  rocksdict raises plain Exceptions
            failure = error
    raise Corrupt(path, 0, f"RocksDB cannot be read: {failure}")


def _look(rocksdict: Any, path: str, look: Callable[[_Families], Found]) -> Found:
    names: Sequence[str] = rocksdict.Rdict.list_cf(path)
    options = {name: rocksdict.Options(raw_mode=True) for name in names}
    access = rocksdict.AccessType.read_only()
    database = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True), column_families=options, access_type=access)
    try:
        return look({name: database if name == _FAMILY else database.get_column_family(name) for name in names})
    finally:
        database.close()


def _read_through(families: _Families) -> None:
    """Reads all that there is, and keeps nothing."""
    for family in families.values():
        deque(_entries(family), maxlen=0)


def _entries(family: Any) -> Iterator[tuple[bytes, bytes]]:
    """All entries.  Raises an Exception where a block is damaged: rocksdict's own `items` ends there without a word."""
    at = family.iter()
    at.seek_to_first()
    while at.valid():
        yield at.key(), at.value()
        at.next()
    at.status()
