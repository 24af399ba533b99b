"""One JSON file under config/ with its .bak: read whichever of the two is sound, replaced as a whole and durably."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from rmqstore.clock import Clock
from rmqstore.errors import Corrupt, StoreClosed, TooLarge
from rmqstore.files.filesystem import FileSystem, directory_of, join
from rmqstore.files.replace import keep_copy, replace_file
from rmqstore.formats import broker_json
from rmqstore.formats.broker_json import DataVersion
from rmqstore.formats.broker_json_text import delay_offsets_text
from rmqstore.formats.names import CONFIG_ROOM

_OLD = ".bak"


class _HasOthers(Protocol):
    """A dataclass of what a file says; `others`: what has no field of its own, by the members of the file."""

    @property
    def others(self) -> Mapping[str, Any]: ...


Content = TypeVar("Content", bound=_HasOthers)


class ConfigFile(Generic[Content]):
    """The file at `path`; not for several threads at once.

    `parse` makes its content of the plain JSON value and raises Corrupt; `text` is the way back.  `writes_over_odd`:
    the store will have entries of its own in the place of odd ones.
    """

    def __init__(
        self, fs: FileSystem, path: str, parse: Callable[[Any], Content], text: Callable[[Content], str],
        *, writes_over_odd: bool = False,
    ) -> None:  # fmt: skip
        self._writes_over_odd = writes_over_odd
        self.path = path
        self._fs = fs
        self._parse = parse
        self._text = text
        self._keeps_old = True  # whether a save may put the present file in place of the .bak
        self._is_known = False  # whether that was looked at
        self._unreadable: list[str] = []  # what holds something that a save would write over and nobody could read
        self._has_directory = False
        self._is_closed = False

    def close(self) -> None:
        """Has every later save raise StoreClosed: the directory may be somebody else's from now on."""
        self._is_closed = True

    def load(self) -> tuple[Content | None, list[str]]:
        """The content, None where neither the file nor its .bak can be used, and warnings.

        A file that is missing, empty or torn gives way to its .bak, as in RocketMQ.  An entry that is odd is passed
        over, told and written back as it is.  Before a file is written over that could not be read whole, a copy of it
        is kept as NAME.unreadable.  Raises TooLarge, so that a file that may be sound is not written over,
        and OSError where the disk fails to read it.
        """
        self._is_known = True
        self._unreadable = []
        content, told = self._read(self.path)
        if content is not None:
            self._keeps_old = True
            return content, told
        old, old_told = self._read(self.path + _OLD)
        # The .bak may be the only sound copy until the next save is done: it does not give way to a torn file.
        self._keeps_old = old is None and self.path not in self._unreadable
        if old is not None:
            why = "".join(told) or f"{self.path} is missing"
            return old, [f"{why}: {self.path}{_OLD} is used, which may be older", *old_told]
        reasons = [*told, *old_told]
        return None, [f"{' and '.join(reasons)}: an empty table is used"] if reasons else []

    def shaped(self, document: Any) -> tuple[Content, Sequence[str]]:
        """The content that a document says, and why entries of it were passed over, which stay among its `others`.
        Raises Corrupt."""
        found = broker_json.sifted(document, self._parse)
        content = found.value
        if not found.odd:
            return content, found.reasons
        return replace(content, others={**content.others, **found.odd}), found.reasons  # type: ignore[type-var]

    def save(self, content: Content) -> None:
        """Makes `content` the file's content, durably, and its old content the .bak's.

        After a crash at any moment one of the two is sound, if one was.  Raises OSError; the old content is still there
        then, or the new; and StoreClosed.
        """
        if self._is_closed:
            raise StoreClosed(f"{self.path} cannot be changed any more: its store is closed")
        if not self._is_known:
            self.load()
        data = self._text(content).encode(errors="replace")
        while self._unreadable:
            keep_copy(self._fs, self._unreadable[0])
            del self._unreadable[0]
        if not self._has_directory:
            self._fs.make_directories(directory_of(self.path))
            self._has_directory = True
        replace_file(self._fs, self.path, data, backup=self._keeps_old)
        self._keeps_old = True

    def _read(self, path: str) -> tuple[Content | None, list[str]]:
        """The content of one file, and what is to be told; nothing of a file that does not exist."""
        try:
            file = self._fs.open(path)
        except FileNotFoundError:
            return None, []
        data = file.read(0, broker_json.TEXT_SIZE_MAX + 1)
        if not data.strip():
            return None, [f"{path} is empty"]
        try:
            content, reasons = self.shaped(broker_json.parse(data))
        except TooLarge as large:
            raise TooLarge(path, 0, large.reason) from None
        except Corrupt as damage:
            self._unreadable.append(path)
            return None, [f"{path} cannot be read ({damage.reason})"]
        told = [f"{path}: {reason}" for reason in reasons]
        if told and self._writes_over_odd:
            self._unreadable.append(path)
        if not broker_json.is_utf8(data):
            self._unreadable.append(path)
            told.append(f"{path} holds bytes that are not UTF-8, which read as \ufffd, as in RocketMQ")
        return content, told


@dataclass(frozen=True)
class _DelayDocument:
    """The contents of delayOffset.json."""

    offsets: Mapping[int, int]
    version: DataVersion | None
    others: Mapping[str, Any] = field(default_factory=dict)


class DelayOffsetsFile:
    """config/delayOffset.json: next queue offset to deliver by delay level.  Not for several threads at once."""

    def __init__(self, fs: FileSystem, root: str, clock: Clock) -> None:
        self._clock = clock
        self._present = _DelayDocument({}, DataVersion(0, clock.now_ms()))
        self.path = join(root, CONFIG_ROOM, "delayOffset.json")
        self._file = ConfigFile(
            fs,
            self.path,
            _parse_delay,
            lambda present: delay_offsets_text(present.offsets, present.version, present.others),
            writes_over_odd=True,
        )

    def load(self) -> tuple[dict[int, int], list[str]]:
        """The offsets by level, and warnings."""
        found, warnings = self._file.load()
        self._present = found or self._present
        if warnings:
            warnings = [*warnings, "delayed messages of levels that are missing there are delivered again"]
        return dict(self._present.offsets), warnings

    def close(self) -> None:
        """As ConfigFile.close."""
        self._file.close()

    def follow(self, document: Any) -> None:
        """Takes over the whole table of another broker, as its file has it; durable when it returns.  Raises Corrupt
        for a table that no broker has, OSError.
        """
        found, _ = self._file.shaped(document)
        if found != self._present:
            self._file.save(found)
            self._present = found

    def save(self, offsets: Mapping[int, int]) -> None:
        """Writes the offsets, durably, if they are not what the file holds.  Raises OSError."""
        before = self._present
        if offsets == before.offsets:
            return
        version = before.version and before.version.next(self._clock.now_ms())
        after = _DelayDocument(dict(offsets), version, before.others)
        self._file.save(after)
        self._present = after


def _parse_delay(document: Any) -> _DelayDocument:
    return _DelayDocument(
        broker_json.delay_offsets(document),
        broker_json.data_version(document),
        broker_json.others_of(document, ("dataVersion", "offsetTable")),
    )
