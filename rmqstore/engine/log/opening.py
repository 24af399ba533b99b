"""From a directory to the parts of a store that can be written to: look, mark it as open, recover."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Protocol

from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.directory.config_files import masters_levels
from rmqstore.directory.queue_kinds import PLAIN_ONLY, QueueKinds
from rmqstore.engine.log.derived.checkpoint import CheckpointFile
from rmqstore.engine.log.derived.known_queues import NOTHING_KNOWN
from rmqstore.engine.log.recovery.apply import StoreParts, apply, open_parts
from rmqstore.engine.log.recovery.first_read import NOTHING_SEEN
from rmqstore.engine.log.recovery.plan import RecoveryPlan
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.engine.log.staging.committed_batches import settle_batches
from rmqstore.files.disk import ReadableDisk
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.formats import names
from rmqstore.records.dispatcher import Dispatcher

_UNSYNCED = "unsynced from "
_CHUNK_SIZE = 4 * 1024 * 1024
_NOTE_SIZE = 64  # so that a later note covers an earlier one, or the process id that RocketMQ leaves there


class Recovered(NamedTuple):
    """A store that can be written to: its parts, what its recovery found, and warnings."""

    parts: StoreParts
    plan: RecoveryPlan
    warnings: list[str]


class Aside(Protocol):
    """Somebody besides the store who has a say in its recovery, such as the member whose log it is."""

    def require(self, plan: RecoveryPlan) -> None:
        """Looks at the plan.  Raises what the opening is to raise."""

    def log_settled(self, parts: StoreParts, plan: RecoveryPlan) -> None:
        """Is told that the log is on the disk as planned; queues and all else that is derived are as they were."""


def recovered(
    fs: FileSystem,
    root: str,
    config: StoreConfig,
    clock: Clock,
    further: Sequence[Dispatcher] = (),
    kinds: QueueKinds = PLAIN_ONLY,
    aside: Aside | None = None,
) -> Recovered:
    """The parts of the store at `root`, whose lock the caller holds; a new one where there is none; and warnings.

    `aside` looks at the plan, and may refuse it.  Nothing is changed before all have agreed, and then not before the
    file `abort` is there, durably; but the checkpoint may say less.  Raises as `plan_recovery` and `apply`.
    """
    plan = plan_recovery(fs, root, config, kinds, keeps_records=not further)
    if aside is not None:
        aside.require(plan)
    begin(fs, plan)
    parts = open_parts(fs, plan, config, clock, further, kinds)
    try:
        _write_again(fs, plan, parts)
        while settle_batches(fs, plan, parts):  # the log was cut back: look again
            parts.handles.close()
            plan = plan_recovery(fs, root, config, kinds, keeps_records=not further)
            begin(fs, plan)
            parts = open_parts(fs, plan, config, clock, further, kinds)
        warnings = apply(plan, parts, None if aside is None else aside.log_settled)
        parts.checkpoint.make()
    except OSError:
        mark_unsynced(fs, root, plan.scan_start)
        raise
    return Recovered(parts, replace(plan, seen=NOTHING_SEEN, known=NOTHING_KNOWN), [*plan.warnings, *warnings])


def begin(fs: FileSystem, plan: RecoveryPlan) -> None:
    """Says durably that a recovery is under way: the next opening has to recover, and to read as far back."""
    if plan.lowered_ms is not None:
        checkpoint = CheckpointFile(fs, join(plan.root, names.CHECKPOINT_FILE))
        checkpoint.update(logics_timestamp_ms=plan.lowered_ms)
        checkpoint.flush()
    mark_open(fs, plan.root)


def mark_open(fs: FileSystem, root: str) -> None:
    """Puts the file `abort` there, durably: the next opening that still finds it must recover."""
    path = join(root, names.ABORT_FILE)
    if not fs.exists(path):
        fs.create(path, 0).close()
    fs.sync_directory(root)


def mark_unsynced(fs: FileSystem, root: str, offset: int) -> None:
    """Notes in the file `abort` that a sync failed: what stands in the log from `offset` on may be in memory only.

    Linux takes pages for clean whose write-back failed: the next sync succeeds, and they never reach the disk.  A power
    cut needs no such note, and RocketMQ asks for nothing but the file's presence.
    """
    known = _unsynced_from(fs, root)
    with suppress(OSError):
        path = join(root, names.ABORT_FILE)
        data = f"{_UNSYNCED}{offset if known is None else min(known, offset)}\n".encode()
        fs.open(path).write(0, data.ljust(_NOTE_SIZE))


def mark_closed(fs: FileSystem, root: str) -> None:
    """Takes `abort` away, durably: everything is on the disk.  Once more does nothing."""
    with suppress(FileNotFoundError):
        fs.remove(join(root, names.ABORT_FILE))
    fs.sync_directory(root)


def _unsynced_from(fs: FileSystem, root: str) -> int | None:
    """The offset that `mark_unsynced` noted; None for no note."""
    path = join(root, names.ABORT_FILE)
    if not fs.exists(path):
        return None
    found = re.match(rf"{_UNSYNCED}(\d{{1,19}})\s".encode(), fs.open(path).read(0, _NOTE_SIZE))
    return int(found[1]) if found is not None else None


def _write_again(fs: FileSystem, plan: RecoveryPlan, parts: StoreParts) -> None:
    """Writes bytes that may be in memory only a second time, unchanged, and syncs: they are on the disk then, or
    refused.

    Raises OSError.
    """
    noted = _unsynced_from(fs, plan.root)
    if noted is None:
        return
    position = max(noted, plan.log_start)
    parts.log.load(repair=False)
    low = position
    while position < plan.log_end:
        room = parts.log.file_size - position % parts.log.file_size
        data = parts.log.read(position, min(room, _CHUNK_SIZE, plan.log_end - position))
        if not data:
            break
        parts.log.write(position, data)
        position += len(data)
    parts.log.sync(low, position)
    fs.open(join(plan.root, names.ABORT_FILE)).write(0, b" " * _NOTE_SIZE)


def with_delay_levels(disk: ReadableDisk, root: str, config: StoreConfig) -> StoreConfig:
    """The configuration, with the master's delay levels in a replica, where it names none.  Raises Corrupt, OSError."""
    if config.delay_levels is not None or not (noted := masters_levels(disk, root)):
        return config
    return replace(config, delay_levels=noted[-1][1])


def configured_kinds(config: StoreConfig, is_batch_topic: Callable[[str], bool] = lambda _: False) -> QueueKinds:
    """The kinds that a configuration switches on, and the sizes that it gives their files."""
    return QueueKinds(
        multi_dispatch=config.multi_dispatch,
        light_queue_max=config.light_queue_max,
        extension=config.queue_extension,
        extension_file_size=config.extension_file_size,
        is_batch_topic=is_batch_topic,
        batch_file_size=config.batch_queue_file_size,
    )
