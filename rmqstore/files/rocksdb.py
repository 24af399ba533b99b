"""RocksDB databases of a broker, read by rocksdict (the extra "rocksdb") without a change to their directory."""

import errno
import os
import re
import stat
import struct
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

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
# The first byte of the highest number that is not negative, and its others.
_LAST_TAIL = b"\x7f\xff"


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


class KeyGroup(NamedTuple):
    """The first and the last of the keys that differ in their last bytes alone, and the value of the last."""

    first: bytes
    last: bytes
    last_value: bytes


class OpenFamily:
    """The column family `default` of the database at `path`, on this host, as it is when it is first asked.

    It stays open, and readable where a broker takes files away.  Pickled by its path; a forked process opens it again.
    Any thread.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._process = 0
        self._opened: Any = None

    def __reduce__(self) -> tuple[object, ...]:
        return OpenFamily, (self.path,)

    def entry_count(self) -> int:
        """How many entries there are, and more, or fewer, where entries were written twice or deleted.  Raises as
        `read_family`.
        """
        return int(self._family().property_int_value("rocksdb.estimate-num-keys") or 0)

    def groups(self, begin: bytes, tail_size: int) -> Iterator[KeyGroup]:
        """The keys that begin with `begin`, in their order, by what stands in front of their last `tail_size` bytes,
        which are a number that is not negative.  Raises as `read_family`, and Corrupt for a key that is none of these.
        """
        try:
            at = self._family().iter()
            at.seek(begin)
            while at.valid() and (first := at.key()).startswith(begin):
                yield self._group(at, first, tail_size)
                at.next()
            at.status()
        except (Corrupt, Rejected):
            raise
        except Exception as error:  # noqa: BLE001  rocksdict raises plain Exceptions
            raise _unreadable(self.path, error) from None

    def _group(self, at: Any, first: bytes, tail_size: int) -> KeyGroup:
        """The group of a key, at whose last key `at` then stands."""
        prefix = first[: max(len(first) - tail_size, 0)]
        at.seek_for_prev(prefix + _LAST_TAIL[:1] + _LAST_TAIL[1:] * (tail_size - 1))
        last = at.key() if at.valid() else b""
        if last < first or len(last) != len(first) or not last.startswith(prefix):
            raise Corrupt(self.path, 0, f"RocksDB has the key {first!r}, which is no queue entry's")
        return KeyGroup(first, last, at.value())

    def values(self, prefix: bytes, tail: struct.Struct, first: int, count: int) -> list[bytes]:
        """The values of the keys `prefix` with a number after it, [first, first + count), packed by `tail`; b"" of a
        key that is not there.

        Raises OSError where a file is damaged, Rejected without rocksdict.
        """
        first_key, last_key = (prefix + tail.pack(number) for number in (first, first + count - 1))
        try:
            family = self._family()
            found = list(islice(family.items(from_key=first_key), count))
            if len(found) == count and found[-1][0] == last_key:
                return list(map(itemgetter(1), found))
            # Some are not there, or a block is damaged: then `items` ends without a word.
            there = dict(_entries(family, first_key, last_key))
        except Rejected:
            raise
        except Exception as error:  # noqa: BLE001  rocksdict raises plain Exceptions
            raise OSError(errno.EIO, f"RocksDB cannot be read: {error}", self.path) from None
        return [there.get(prefix + tail.pack(number), b"") for number in range(first, first + count)]

    def _family(self) -> Any:
        if self._process != os.getpid():
            self._opened, self._process = _opened(self.path)[_FAMILY], os.getpid()
        return self._opened


def _read(path: str, look: Callable[[_Families], Found]) -> Found:
    """Has `look` read the column families by name, and answers what it finds.  Raises as `read_family`."""
    families = _opened(path)
    try:
        return look(families)
    except Exception as error:  # noqa: BLE001  rocksdict raises plain Exceptions
        raise _unreadable(path, error) from None
    finally:
        families[_FAMILY].close()


def _opened(path: str) -> _Families:
    """The column families by name, of which `default` is the database.  Raises as `read_family`.

    RocksDB writes where it reads: so it gets a directory of links, which it needs no more once all files are open.  The
    broker's OPTIONS name the directory of its own log, and are not loaded.
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
                return _families_at(rocksdict, links)
        except Exception as error:  # noqa: BLE001  rocksdict raises plain Exceptions
            failure = error
    raise _unreadable(path, failure)


def _unreadable(path: str, failure: Exception | None) -> Corrupt:
    return Corrupt(path, 0, f"RocksDB cannot be read: {failure}")


def _families_at(rocksdict: Any, path: str) -> _Families:
    names: Sequence[str] = rocksdict.Rdict.list_cf(path)
    options = {name: rocksdict.Options(raw_mode=True) for name in names}
    access = rocksdict.AccessType.read_only()
    database = rocksdict.Rdict(path, rocksdict.Options(raw_mode=True), column_families=options, access_type=access)
    return {name: database if name == _FAMILY else database.get_column_family(name) for name in names}


def _read_through(families: _Families) -> None:
    """Reads all that there is, and keeps nothing."""
    for family in families.values():
        deque(_entries(family), maxlen=0)


def _entries(family: Any, first: bytes = b"", last: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
    """The entries from a key on, up to `last`, or all.  Raises an Exception where a block is damaged: rocksdict's own
    `items` ends there without a word.
    """
    at = family.iter()
    at.seek(first)
    while at.valid():
        key = at.key()
        if last is not None and key > last:
            break
        yield key, at.value()
        at.next()
    at.status()
