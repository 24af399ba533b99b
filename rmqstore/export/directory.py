"""The directory of an export: whose it is, its manifest and its lock, and files that get their names when they are
whole.

    DIR/.rmqstore-export/manifest.json        how far the export is (`manifest`)
    DIR/.rmqstore-export/unfinished-<n>.tmp   files that are being written, or wait for the manifest
    DIR/topic=orders/day=2026-11-25/part-<n>.parquet

Readers of such directories pass over names that begin with a dot.  A file that has its name is part of the export for
good; it gets it after the manifest that counts it.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rmqstore.directory.store_root import lies_about_a_store
from rmqstore.errors import NotNow, Rejected, StoreInUse
from rmqstore.export.manifest import Manifest, difference, read_manifest, write_manifest
from rmqstore.files.filesystem import FileSystem, directory_of, join

STATE_ROOM = ".rmqstore-export"
_MANIFEST, _LOCK = "manifest.json", "lock"
_UNFINISHED, _TEMPORARY = "unfinished-", ".tmp"
_EVERYWHERE = "lost+found"


class ExportDirectory:
    """A directory that an export has for itself until `release`."""

    def __init__(self, fs: FileSystem, root: str, told: Mapping[str, Any], stores: Sequence[str]) -> None:
        """Takes the directory at `root`, absolute, which is made; ends what was cut short the last time.

        Raises Rejected where something else stands there, or the export of other arguments, and NotNow where it is at
        work: then nothing is changed.  OSError.
        """
        self.fs, self.root = fs, root
        self._state = join(root, STATE_ROOM)
        self._in_doubt: Mapping[str, str] = {}  # files of a step that was begun: the manifest may count them already
        self.manifest = _claimed(fs, root, told, stores)
        fs.make_directories(self._state)
        try:
            self._lock = fs.lock(join(self._state, _LOCK))
        except StoreInUse:
            raise NotNow(f"{root}: another export writes there; wait for its end, or name another directory") from None
        try:
            self.manifest = _claimed(fs, root, told, stores)  # as it is now that nobody else writes it
            self._give_names(self.manifest.pending)
            self._remove_leftovers()
        except BaseException:
            self._lock.release()
            raise

    def unfinished_path(self, number: int) -> str:
        """Where a file is written."""
        return join(self._state, _unfinished(number))

    def commit(self, files: Mapping[int, str], manifest: Manifest) -> None:
        """Makes files, by number, which are durable, part of the export under their paths from the root, together with
        the manifest.  Raises OSError; then the next run finds all of them or none.
        """
        pending = {_unfinished(number): path for number, path in files.items()}
        self.fs.sync_directory(self._state)
        manifest = replace(manifest, pending=pending)
        self._in_doubt = pending
        write_manifest(self.fs, join(self._state, _MANIFEST), manifest)
        self.manifest = manifest
        self._give_names(pending)

    def gone_count(self, name: re.Pattern[str], depth: int) -> int:
        """How many of the files that the manifest counts, called by their numbers, are in no directory down to that
        depth; 0 where a directory cannot be listed, so that nobody can tell."""
        try:
            found = [int(match[1]) for file in self._file_names(self.root, depth) if (match := name.match(file))]
        except OSError:
            return 0
        return self.manifest.next_file - len({number for number in found if number < self.manifest.next_file})

    def _file_names(self, directory: str, depth: int) -> Iterator[str]:
        for entry in self.fs.entries(directory):
            if not entry.is_directory:
                yield entry.name
            elif depth and not entry.name.startswith("."):
                yield from self._file_names(join(directory, entry.name), depth - 1)

    def release(self) -> None:
        """Leaves the directory; what is unfinished in it is removed, as far as that is possible."""
        try:
            with suppress(OSError):
                self._remove_leftovers({**self.manifest.pending, **self._in_doubt})
        finally:
            self._lock.release()

    def _give_names(self, pending: Mapping[str, str]) -> None:
        """A name that is gone was given: the state's directory was synced before the manifest that tells it.

        Raises OSError for the first file that can have none, once all the others have theirs.
        """
        changed, failure = set[str](), None
        for name, path in pending.items():
            source, target = join(self._state, name), join(self.root, path)
            if not self.fs.exists(source):
                continue
            directory = directory_of(target)
            try:
                if directory not in changed:
                    self.fs.make_directories(directory)
                self.fs.rename(source, target)
                changed.add(directory)
            except OSError as error:
                failure = failure or error
        for directory in sorted(changed):
            self.fs.sync_directory(directory)
        if failure is not None:
            raise failure

    def _remove_leftovers(self, kept: Collection[str] = ()) -> None:
        for entry in self.fs.entries(self._state):
            is_ours = entry.name.startswith(_UNFINISHED) or entry.name.endswith(_TEMPORARY)
            if is_ours and not entry.is_directory and entry.name not in kept:
                self.fs.remove(join(self._state, entry.name))


def require_apart(fs: FileSystem, place: str, stores: Sequence[str]) -> None:
    """Raises Rejected where a place that is to be written is a store, in one, or has one of `stores` in it."""
    if lies_about_a_store(fs, place, stores):
        raise Rejected(f"{place}: is a store, lies in one or holds one; name another directory")


def _unfinished(number: int) -> str:
    return f"{_UNFINISHED}{number:012}{_TEMPORARY}"


def _claimed(fs: FileSystem, root: str, told: Mapping[str, Any], stores: Sequence[str]) -> Manifest:
    """The manifest of the export in a directory, or that of a new one.  Raises Rejected, OSError."""
    require_apart(fs, root, stores)
    if not fs.exists(root):
        return Manifest(told=told)
    if not fs.is_directory(root):
        raise Rejected(f"{root}: is not a directory; name one that is new or empty")
    found = read_manifest(fs, join(root, STATE_ROOM, _MANIFEST))
    if found is None:
        others = [entry.name for entry in fs.entries(root) if entry.name not in (STATE_ROOM, _EVERYWHERE)]
        strays = [
            entry.name
            for entry in fs.entries(join(root, STATE_ROOM))
            if entry.name != _LOCK and not entry.name.endswith(_TEMPORARY)
        ]
        if others or strays:
            raise Rejected(
                f"{root}: holds {(others or strays)[0]!r}, which is not part of an export; name a new or an empty "
                "directory"
            )
        return Manifest(told=told)
    other = difference(found.told, told)
    if other:
        raise Rejected(
            f"{root}: holds another export, with other arguments ({other}); repeat the arguments of that export, or "
            "name another directory"
        )
    return found
