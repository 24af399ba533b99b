"""How far each group has consumed: config/consumerOffset.json, with that of light queues (lmqConsumerOffset.json)."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.clock import Clock
from rmqstore.core.annotations import checked
from rmqstore.core.arguments import I32_MAX, integer
from rmqstore.engine.broker.config_file import ConfigFile
from rmqstore.errors import Rejected, StoreError
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.formats import broker_json, names
from rmqstore.formats.broker_json import DataVersion
from rmqstore.formats.broker_json_text import consumer_offsets_text
from rmqstore.formats.names import CONFIG_ROOM, QueueKey

OffsetTable = dict[tuple[str, str], dict[int, int]]

_FILE = "consumerOffset.json"
_LIGHT_FILE = "lmqConsumerOffset.json"
# Java: flushConsumerOffsetInterval.
_PERSIST_INTERVAL_S = 5.0
_TABLES = ("offsetTable", "lmqOffsetTable")
_TOLD_MAX = 20


@dataclass(frozen=True)
class _Document:
    """The contents of one of the files; `others` also has the entries that were passed over."""

    table: Mapping[tuple[str, str], Mapping[int, int]]
    version: DataVersion | None
    others: Mapping[str, Any] = field(default_factory=dict)


class ConsumerOffsets:
    """The committed offsets, in memory until `persist`; any thread.

    A broker with `enableLmq` reads lmqConsumerOffset.json instead of consumerOffset.json: where it exists, or a group
    named %LMQ%… has committed something, it is written as well, with all offsets.  `last_failure` is why the last
    `step` could not write, None since one could.  `require_store` raises StoreClosed where commits come too late.
    """

    def __init__(
        self, fs: FileSystem, root: str, clock: Clock, require_store: Callable[[], None] = lambda: None
    ) -> None:
        self.last_failure: Exception | None = None
        self._require_store = require_store
        self.sync_log: Callable[[], None] | None = None  # makes the log durable as far as it goes; set when it is open
        self._fs = fs
        self._clock = clock
        self._directory = join(root, CONFIG_ROOM)
        self._lock = threading.Lock()  # guards the table and the count of its changes
        self._table: OffsetTable = {}
        self._change_count = 0
        self._removals: dict[str, tuple[int, threading.Lock]] = {}  # how often, and the lock of the last deletion
        self._persist_lock = threading.Lock()  # guards the files and what follows; taken before the other
        self._persisted_count = 0
        self._version: DataVersion | None = DataVersion(0, clock.now_ms())
        self._others: Mapping[str, Any] = {}
        self._has_light_file = False
        self._file = ConfigFile(fs, join(self._directory, _FILE), _parse, _text)
        self._light_file = ConfigFile(fs, join(self._directory, _LIGHT_FILE), _parse, _light_text)
        self._due_s = clock.monotonic_s() + _PERSIST_INTERVAL_S

    def load(self) -> list[str]:
        """Reads the files; returns warnings.  Where both know a queue, the file written later is right.

        Raises OSError as the disk fails to read what is there.
        """
        with self._persist_lock, self._lock:
            plain, warnings = self._file.load()
            light, more_warnings = self._light_file.load()
            self._has_light_file = light is not None
            found = [document for document in (light, plain) if document is not None]
            if len(found) == 2 and self._modified_ms(_LIGHT_FILE) > self._modified_ms(_FILE):
                found.reverse()
            if found:
                self._version = found[-1].version
                self._others = _merged_others(found)
            for document in found:
                for key, offsets in document.table.items():
                    self._table.setdefault(key, {}).update(offsets)
        return warnings + more_warnings

    def close(self) -> None:
        """Ends writing: a later `persist` of something new raises StoreClosed."""
        with self._persist_lock:
            self._file.close()
            self._light_file.close()

    @checked
    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next queue offset to consume; None if the group never committed one."""
        offsets = self._table.get((group, topic))
        return None if offsets is None else offsets.get(queue_id)

    @checked
    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets the next queue offset to consume, also back; durable with the next `persist`.

        Raises Rejected, StoreClosed.
        """
        self._require_store()
        queue_id, offset = integer("queue_id", queue_id, 0, I32_MAX), integer("offset", offset, 0)
        with self._lock:
            self._commit(group, topic, queue_id, offset)

    def _commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        offsets = self._table.get((group, topic))
        if offsets is None:
            if not names.is_topic_name(group) or not names.is_directory_name(topic) or "@" in topic:
                raise Rejected(
                    f"group={group!r}, topic={topic!r}: a group takes up to 255 letters, digits, %, |, _ and -; a "
                    "topic must be a valid directory name without @"
                )
            offsets = self._table[group, topic] = {}
        if offsets.get(queue_id) != offset:
            offsets[queue_id] = offset
            self._change_count += 1

    def all(self) -> OffsetTable:
        """Every committed offset by (group, topic) and queue id, as it is at this moment."""
        with self._lock:
            return {key: dict(offsets) for key, offsets in self._table.items()}

    @checked
    def removals(self, topic: str) -> int:
        """A number that changes when the topic is deleted; odd while it is being deleted."""
        count, under_way = self._removals.get(topic, (0, None))
        return 2 * count + (under_way is not None and under_way.locked())

    def begin_removal(self, topic: str, under_way: threading.Lock) -> None:
        """A topic is being deleted until the caller lets `under_way` go, which it has taken: a lock is given back
        whatever interrupts the deletion.  A caller that knows its queues knows nothing of later ones of that name.
        """
        with self._lock:
            count, _ = self._removals.get(topic, (0, None))
            self._removals[topic] = (count + 1, under_way)

    def commit_if(self, removals: int, group: str, topic: str, queue_id: int, offset: int) -> None:
        """As `commit`, unless the topic was deleted since `removals` was asked for, or is being deleted."""
        self._require_store()
        with self._lock:
            if removals % 2 == 0 and self.removals(topic) == removals:
                self._commit(group, topic, queue_id, offset)

    @checked
    def remove_topic(self, topic: str) -> None:
        """Forgets what was committed for a topic; durable with the next `persist`."""
        with self._lock:
            for key in [key for key in self._table if key[1] == topic]:
                del self._table[key]
                self._change_count += 1

    def follow(self, document: Any, clip: Callable[[OffsetTable], OffsetTable]) -> None:
        """Takes over the whole table of another broker, as its file has it, with the offsets as `clip` has them;
        durable when it returns.  Raises Corrupt for a table that no broker has, OSError.
        """
        found, _ = self._file.shaped(document)
        table = clip({key: dict(offsets) for key, offsets in found.table.items()})
        with self._persist_lock:
            with self._lock:
                if table == self._table and found.others == self._others:
                    return
            self._file.save(_Document(table, found.version, found.others))
            with self._lock:
                self._table, self._others, self._version = table, found.others, found.version

    def clip(self, ends: Mapping[QueueKey, int]) -> list[str]:
        """Sets offsets past the end of their queue back to it, and writes them at once; returns warnings.

        The log may have lost its end, or the table be another store's: the messages that come there would be passed
        over, as they are by a broker.  `ends` are those of all queues: any other has no message yet.
        """
        told: list[str] = []
        with self._lock:
            for (group, topic), offsets in self._table.items():
                for queue_id, offset in offsets.items():
                    end = ends.get((topic, queue_id), 0)
                    if offset > end and not names.is_light_queue(topic):
                        told.append(
                            f"{join(self._directory, _FILE)}: group {group} was at offset {offset} of "
                            f"{topic}/{queue_id}, which ends at {end}: the offset is set to that end"
                        )
                        offsets[queue_id] = end
                        self._change_count += 1
        if told:
            self._due_s = self._clock.monotonic_s()
            self.step()
        return (
            told
            if len(told) <= _TOLD_MAX
            else [*told[:_TOLD_MAX], f"{len(told) - _TOLD_MAX} more offsets are set back too"]
        )

    def persist(self) -> None:
        """Writes what was committed before the call, durably; nothing if nothing changed.

        The log comes first: else a crash could leave offsets beyond it, and the messages that come there later would be
        passed over.  Raises OSError, and what `sync_log` raises.
        """
        with self._persist_lock:
            with self._lock:
                change_count = self._change_count
                if change_count == self._persisted_count:
                    return
                table = {key: dict(offsets) for key, offsets in self._table.items()}
            if self.sync_log is not None:
                self.sync_log()
            version = self._version and self._version.next(self._clock.now_ms())
            document = _Document(table, version, self._others)
            has_light_file = self._has_light_file or any(map(_is_light, table))
            self._file.save(document)  # a crash after it leaves it the newer one, which then counts
            if has_light_file:
                self._light_file.save(document)
            self._has_light_file = has_light_file
            self._version = version
            self._persisted_count = change_count

    def step(self) -> float:
        """Persists every 5 seconds; returns the seconds that are left.  A disk that fails is told by `last_failure` and
        tried again.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self._due_s:
            self._due_s = now_s + _PERSIST_INTERVAL_S
            try:
                self.persist()
                self.last_failure = None
            except (OSError, StoreError) as failure:
                self.last_failure = failure
        return self._due_s - now_s

    def _modified_ms(self, name: str) -> int:
        entries = self._fs.entries(self._directory)
        return max((entry.modified_ms for entry in entries if entry.name == name), default=0)


def _is_light(key: tuple[str, str]) -> bool:
    """RocketMQ goes by the group's name, not the topic's."""
    return key[0].startswith(names.LMQ_PREFIX)


def _parse(document: Any) -> _Document:
    others = broker_json.others_of(document, ("dataVersion", *_TABLES))
    return _Document(broker_json.consumer_offsets(document), broker_json.data_version(document), others)


def _text(document: _Document) -> str:
    """consumerOffset.json, with all groups: to a broker without `enableLmq` they are alike."""
    others = {name: value for name, value in document.others.items() if name != "lmqOffsetTable"}
    return consumer_offsets_text(document.table, document.version, others)


def _light_text(document: _Document) -> str:
    """lmqConsumerOffset.json: light groups have queue 0 only."""
    light = {key: offsets[0] for key, offsets in document.table.items() if _is_light(key) and set(offsets) == {0}}
    table = {key: offsets for key, offsets in document.table.items() if key not in light}
    return consumer_offsets_text(table, document.version, document.others, light)


def _merged_others(documents: list[_Document]) -> dict[str, Any]:
    """The members of all; what is not known of the two tables is joined."""
    merged: dict[str, Any] = {}
    for document in documents:
        for name, value in document.others.items():
            merged[name] = merged.get(name, {}) | value if name in _TABLES else value
    return merged
