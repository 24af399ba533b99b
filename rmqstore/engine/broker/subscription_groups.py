"""The consumer groups of a store, config/subscriptionGroup.json: how often and where they retry."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rmqstore.clock import Clock
from rmqstore.core.annotations import checked
from rmqstore.engine.broker.config_file import ConfigFile
from rmqstore.errors import Rejected
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.formats import broker_json, names
from rmqstore.formats.broker_json import DataVersion, SubscriptionGroup
from rmqstore.formats.broker_json_text import storable_fields, subscription_groups_text
from rmqstore.formats.names import CONFIG_ROOM

_I32 = range(-(2**31), 2**31)


@dataclass(frozen=True)
class _Document:
    """The contents of subscriptionGroup.json."""

    groups: Mapping[str, SubscriptionGroup]
    version: DataVersion
    others: Mapping[str, Any] = field(default_factory=dict)


class SubscriptionGroups:
    """The table of consumer groups; any thread."""

    def __init__(self, fs: FileSystem, root: str, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._present = _Document({}, DataVersion(0, clock.now_ms()))
        self._file = ConfigFile(fs, join(root, CONFIG_ROOM, "subscriptionGroup.json"), _parse, _text)

    def load(self) -> list[str]:
        """Reads the file; returns warnings.  Raises OSError where the disk fails to read it."""
        with self._lock:
            found, warnings = self._file.load()
            self._present = found or self._present
        return warnings

    def close(self) -> None:
        """Ends writing: later changes raise StoreClosed."""
        with self._lock:
            self._file.close()

    @checked
    def find(self, group: str) -> SubscriptionGroup:
        """A group's settings; those of a new group, which is not saved, for one that is not in the table."""
        return self._present.groups.get(group) or SubscriptionGroup(group)

    def all(self) -> Mapping[str, SubscriptionGroup]:
        """Every group in the table, as it is at this moment."""
        return dict(self._present.groups)

    @checked
    def put(self, group: SubscriptionGroup) -> None:
        """Adds or changes a group; durable when it returns.  Members of the file that `SubscriptionGroup` does not know
        are kept, unless it brings its own.  Raises Rejected, OSError with nothing changed.
        """
        group = storable_fields(group)
        _check(group)
        with self._lock:
            before = self._present
            known = before.groups.get(group.group)
            if known is not None and not group.unknown_fields:
                group = replace(group, unknown_fields=known.unknown_fields)
            version = before.version.next(self._clock.now_ms())
            after = _Document({**before.groups, group.group: group}, version, before.others)
            self._file.save(after)
            self._present = after

    def follow(self, document: Any) -> None:
        """Takes over the whole table of another broker, as its file has it; durable when it returns.  Raises Corrupt
        for a table that no broker has, OSError with nothing changed.
        """
        found, _ = self._file.shaped(document)
        with self._lock:
            if found != self._present:
                self._file.save(found)
                self._present = found


def _parse(document: Any) -> _Document:
    others = broker_json.others_of(document, ("dataVersion", "subscriptionGroupTable"))
    version = broker_json.data_version(document) or DataVersion()
    return _Document(broker_json.subscription_groups(document), version, others)


def _text(document: _Document) -> str:
    return subscription_groups_text(document.groups, document.version, document.others)


def _check(group: SubscriptionGroup) -> None:
    """Raises Rejected for a group whose settings or whose retry topic no broker could hold."""
    if not (group.group and names.is_topic_name(names.RETRY_PREFIX + group.group)):
        raise Rejected(f"group={group.group!r}: letters, digits, %, |, _ and -, at most 248")
    if group.retry_queue_nums not in _I32 or group.retry_queue_nums < 0:
        raise Rejected(f"retry_queue_nums={group.retry_queue_nums}: 0 to {_I32[-1]}")
    if group.retry_max_times not in _I32:
        raise Rejected(f"retry_max_times={group.retry_max_times}: an integer of 32 bits")
