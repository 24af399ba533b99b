"""From a directory to the parts of a store that can be written to: look, mark it as open, recover."""

from collections.abc import Sequence

from rmqstore.clock import Clock
from rmqstore.config import StoreConfig
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.formats import names
from rmqstore.log.record_batch import Dispatcher
from rmqstore.log.recovery import plan_recovery
from rmqstore.log.recovery_apply import StoreParts, apply, open_parts
from rmqstore.log.recovery_plan import RecoveryPlan


def recovered(
    fs: FileSystem, root: str, config: StoreConfig, clock: Clock, further: Sequence[Dispatcher] = ()
) -> tuple[StoreParts, RecoveryPlan, list[str]]:
    """The parts of the store at `root`, whose lock the caller holds; a new one where there is none; and warnings.

    Nothing is changed before the file `abort` is there, durably.  Raises as `plan_recovery` and `apply`.
    """
    plan = plan_recovery(fs, root, config)
    mark_open(fs, root)
    parts = open_parts(fs, plan, config, clock, further)
    warnings = apply(plan, parts)
    return parts, plan, [*plan.warnings, *warnings]


def mark_open(fs: FileSystem, root: str) -> None:
    """Puts the file `abort` there, durably: whoever opens the store next and still finds it must recover."""
    path = join(root, names.ABORT_FILE)
    if not fs.exists(path):
        fs.create(path, 0).close()
    fs.sync_directory(root)


def mark_closed(fs: FileSystem, root: str) -> None:
    """Takes `abort` away, durably: everything is on the disk."""
    fs.remove(join(root, names.ABORT_FILE))
    fs.sync_directory(root)
