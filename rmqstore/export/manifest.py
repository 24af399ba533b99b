"""How far an export is: a small JSON file that is replaced as a whole, after what it tells of is durable."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rmqstore.errors import Rejected
from rmqstore.files.filesystem import FileSystem
from rmqstore.files.replace import replace_file
from rmqstore.snapshot.search.window import WINDOW_COLUMNS, Window

_LAYOUT = 1
# Offsets of 100,000 queues take 3 MiB.
_SIZE_MAX = 256 * 1024 * 1024
_TARGET = re.compile(r"(?!.*(?:^|/)\.{1,2}(?:/|$))[^/\0][^\0]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`told` is what the export is known by, `offsets` where it stands.

    Files: `next_file` is the first number that no file has had; `pending` are those of the last step with the names
    that they get, and have got unless it was cut short.  Store: `batch` is the number of the last batch that is in, -1
    for none, `pending_offsets` are those after the batch that follows it, if that is being added.
    `since_ms` and `until_ms` are the window's, as they were meant when the export began.
    """

    told: Mapping[str, Any]
    offsets: Mapping[str, Any] | None = None
    next_file: int = 0
    pending: Mapping[str, str] = field(default_factory=dict)
    batch: int = -1
    pending_offsets: Mapping[str, Any] | None = None
    message_count: int = 0
    pending_count: int = 0
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def window(self) -> Window:
        """The window of time of the export when it began."""
        column = self.told.get("times")
        return Window(self.since_ms, self.until_ms, column if column in WINDOW_COLUMNS else WINDOW_COLUMNS[0])


def read_manifest(fs: FileSystem, path: str) -> Manifest | None:
    """The manifest at a path; None where there is none.  Raises Rejected for what cannot be one, OSError."""
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    data = file.read(0, min(file.size(), _SIZE_MAX))
    file.close()
    try:
        return _parsed(data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Rejected(
            f"{path}: is not the manifest of an export; remove its directory if the export is not needed, or name "
            "another"
        ) from None


def write_manifest(fs: FileSystem, path: str, manifest: Manifest) -> None:
    """Replaces the manifest, durably.  Raises OSError; then the old one is still there."""
    text = json.dumps({"rmqstore export": _LAYOUT} | asdict(manifest), ensure_ascii=False, separators=(",", ":"))
    replace_file(fs, path, text.encode("utf-8", "surrogateescape"))


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In which way two exports are not the same one, in words; "" where they are."""
    for name in now:
        if before.get(name) != now[name]:
            return f"its {name}: {_shown(before.get(name))} before, {_shown(now[name])} now"
    return ""


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "none"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _parsed(data: bytes) -> Manifest:
    """Raises ValueError, TypeError."""
    given = json.loads(data.decode("utf-8", "surrogateescape"))
    if given.pop("rmqstore export") != _LAYOUT:
        raise ValueError("another version")
    found = Manifest(**given)
    counts = (found.next_file, found.batch + 1, found.message_count, found.pending_count)
    maps = (found.told, found.pending, found.offsets or {}, found.pending_offsets or {})
    if not all(type(count) is int and 0 <= count < 2**63 for count in counts):
        raise ValueError("an invalid count")
    if not all(isinstance(one, Mapping) for one in maps):
        raise ValueError("a field of the wrong type")
    for name, target in found.pending.items():
        if "/" in name or _TARGET.fullmatch(target) is None:
            raise ValueError("a file outside of the directory")
    return replace(found, since_ms=found.window.since_ms)  # the window judges its times
