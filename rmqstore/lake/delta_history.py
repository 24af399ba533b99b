"""Which commit with offsets a Delta table stands upon: the newest one, but for what was rolled back."""

import datetime
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from deltalake import DeltaTable

_GONE = "the log of the commits since the last sync was cleaned"


class NewestCommit(NamedTuple):
    """The number of the app transaction, None without one; why it may be another by rights, or ""."""

    number: int | None
    doubt: str = ""


def newest_commit(table: DeltaTable, app_id: str, at_version: Callable[[int], DeltaTable]) -> NewestCommit:
    """The newest commit of `app_id` whose rows the table has.

    RESTORE takes rows back and leaves app transactions as they are, so what was restored since is looked at as it was
    then.  The upper half of a number is the version of its commit.
    """
    at, version = table, table.version()
    while True:
        number = at.transaction_version(app_id)
        if number is None or number >> 32 >= version:
            return NewestCommit(number)
        commits = dict(_commits(table, number >> 32))
        between = range((number >> 32) + 1, version + 1)
        if any(one not in commits for one in between):
            return NewestCommit(number, _GONE)
        restored = [one for one in between if commits[one].get("operation") == "RESTORE"]
        if not restored:
            return NewestCommit(number)
        try:
            target = _restored_version(commits[restored[-1]], at_version)
            if target is None or target >= restored[-1]:
                return NewestCommit(number, "it was restored to a time")
            at, version = at_version(target), target
        except Exception:  # noqa: BLE001 - of any kind of storage: a version is not to be had
            return NewestCommit(number, "it was restored to a version whose log is gone")


def _commits(table: DeltaTable, after: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The commits of a table by their version.

    Should somebody commit just now, deltalake numbers them from the end, so that these are too low: then this look
    leads to no commit, which would have to make the version that is there.
    """
    for commit in table.history(table.version() - after):
        yield int(commit["version"]), commit


def _restored_version(commit: Mapping[str, Any], at_version: Callable[[int], DeltaTable]) -> int | None:
    """The version that RESTORE went back to; of a time only where deltalake said it, in ms.

    The ms are cut off from the moment that was meant, so it may be the version after the one that they lead to: the
    files tell.
    """
    asked = commit.get("operationParameters") or {}
    version, moment = asked.get("version"), asked.get("datetime")
    if version is not None and str(version).isdecimal():
        return int(version)
    if moment is None or not str(moment).isdecimal():
        return None
    restored = at_version(int(commit["version"]))
    before = at_version(restored.version() - 1)
    before.load_as_version(datetime.datetime.fromtimestamp(int(moment) / 1000, datetime.UTC))
    for one in (before.version(), before.version() + 1):
        if one < restored.version() and set(at_version(one).file_uris()) == set(restored.file_uris()):
            return one
    return None
