"""RocksDB databases of a broker, read by rocksdict (the extra "rocksdb") without a change to their directory."""

import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rmqstore.errors import Corrupt, Rejected
from rmqstore.files.disk import DirectoryEntry

_FAMILY = "default"
# What a database consists of.  All else stays out: rocksdict writes its own settings into a directory, through a link
# as well, and whoever opens a FIFO waits.
_PARTS = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.(sst|ldb|log|blob)", re.ASCII)
_WRITTEN = re.compile(r"MANIFEST-\d+|\d+\.(sst|ldb|log|blob)", re.ASCII)
MEND = (
    "its rows are missing here; where its files are damaged, a backup brings them back, or RocksDB's own `ldb repair`"
)
# A broker that runs takes files away while they are linked.
_TRIES_MAX = 5


def read_family(path: str, family: str) -> dict[bytes, bytes]:
    """All of a column family of the database at `path`, on this host; empty where it has none of that name.

    Raises Rejected without rocksdict, Corrupt where the database cannot be read.
    """
    return _read(path, {family}).get(family, {})


def damage_of(path: str) -> str | None:
    """Why the database at `path`, on this host, cannot be read as a whole; None where it can.

    Raises Rejected without rocksdict.
    """
    try:
        _read(path, None)
    except Corrupt as damage:
        return damage.reason
    return None


def written_ms(entries: Iterable[DirectoryEntry]) -> int:
    """When a database was written last, in ms since the epoch, by the entries of its directory; 0 where nobody knows.

    Entries stand in its tables and in its log, if that has any.  Whoever opens it to write makes a MANIFEST; reading as
    here changes none of them.
    """
    return max((entry.modified_ms for entry in entries if entry.size and _WRITTEN.fullmatch(entry.name)), default=0)


def _read(path: str, wanted: Collection[str] | None) -> dict[str, dict[bytes, bytes]]:
    """The wanted column families, all with None, of those that there are.  Raises as `read_family`.

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
                return _read_links(rocksdict, links, wanted)
        except Exception as error:  # noqa: BLE001  rocksdict raises plain Exceptions
            failure = error
    raise Corrupt(path, 0, f"RocksDB cannot be read: {failure}")


def _read_links(rocksdict: Any, path: str, wanted: Collection[str] | None) -> dict[str, dict[bytes, bytes]]:
    families: Sequence[str] = rocksdict.Rdict.list_cf(path)
    chosen = [family for family in families if wanted is None or family in wanted]
    if not chosen:
        return {}
    options = {name: rocksdict.Options(raw_mode=True) for name in families}
    access = rocksdict.AccessType.read_only()
    database = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True), column_families=options, access_type=access)
    try:
        return {
            family: _whole(database if family == _FAMILY else database.get_column_family(family)) for family in chosen
        }
    finally:
        database.close()


def _whole(family: Any) -> dict[bytes, bytes]:
    """All entries.  Raises an Exception where a block is damaged: rocksdict's own `items` ends there without a word."""
    found, at = {}, family.iter()
    at.seek_to_first()
    while at.valid():
        found[at.key()] = at.value()
        at.next()
    at.status()
    return found
