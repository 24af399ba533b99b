"""RocksDB databases of a broker, read by rocksdict (the extra "rocksdb") without a change to their directory."""

import os
import re
import stat
import tempfile
from collections.abc import Sequence
from typing import Any

from rmqstore.errors import Corrupt, Rejected

_FAMILY = "default"
# What a database consists of.  All else stays out: rocksdict writes its own settings into a directory, through a link
# as well, and whoever opens a FIFO waits.
_PARTS = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.(sst|ldb|log|blob)", re.ASCII)
# A broker that runs takes files away while they are linked.
_TRIES_MAX = 5


def read_family(path: str, family: str) -> dict[bytes, bytes]:
    """All of a column family of the database at `path`, on this host; empty where it has none of that name.

    RocksDB writes where it reads: so it gets a directory of links.  The broker's OPTIONS name the directory of its own
    log, and are not loaded.  Raises Rejected without rocksdict, Corrupt where the database cannot be read.
    """
    try:
        import rocksdict  # noqa: PLC0415  an extra: the package works without it
    except ImportError:
        raise Rejected("to have it read: pip install 'rmqstore[rocksdb]'") from None
    failure: Exception | None = None
    for _ in range(_TRIES_MAX):
        try:
            with tempfile.TemporaryDirectory(prefix="rmqstore-rocksdb-") as links:
                for name in filter(_PARTS.fullmatch, os.listdir(path)):
                    file = os.path.abspath(os.path.join(path, name))
                    if stat.S_ISREG(os.stat(file).st_mode):
                        os.symlink(file, os.path.join(links, name))
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
        return _whole(found)
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
