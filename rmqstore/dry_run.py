"""An opening of a store for writing that only looks: its plan, or why it is refused, without a lock and a change."""

from rmqstore.annotations import checked
from rmqstore.config import StoreConfig
from rmqstore.directory.store_root import found_store
from rmqstore.dledger.member import found_member
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import LOCAL, StorePath
from rmqstore.log.ledger_paths import with_found_member
from rmqstore.log.opening import configured_kinds, with_delay_levels
from rmqstore.log.recovery.plan import RecoveryPlan
from rmqstore.log.recovery.planner import plan_recovery


def dry_plan(root: str, config: StoreConfig) -> RecoveryPlan:
    """The plan of a recovery of a store of this machine that somebody else may be using.

    Raises what `open_store` raises about what stands there, except for its lock, and OSError.
    """
    config = with_delay_levels(LOCAL, root, config)
    kinds = configured_kinds(config)
    if config.dledger is None:
        return plan_recovery(LOCAL, root, config, kinds)  # whose disk cannot write
    member = found_member(RealFileSystem(), root, config)
    plan = plan_recovery(LOCAL, root, member.config, kinds)
    member.require(plan)
    return plan


@checked
def recovery_plan(path: StorePath, config: StoreConfig | None = None) -> RecoveryPlan:
    """The plan of `open_store` for a store, as `rmqstore recover --dry-run` shows it; nothing is changed.

    Of `config` count the paths, the delay levels and `on_middle_damage`.  Raises what `open_store` raises about what
    stands there, but takes no lock: the plan of a store that is being written is out of date at once.
    """
    config = with_found_member(path, config or StoreConfig())
    return dry_plan(found_store(path, config.named_log_paths(), may_be_ledger=config.dledger is not None), config)
