"""`rmqstore recover`: what opening a store for writing would do to it, and doing it."""

from typing import Any

import click

from rmqstore.cli.output import debug_option, print_json, printable, tell_open
from rmqstore.config import StoreConfig
from rmqstore.core.annotations import checked
from rmqstore.directory.store_root import found_store
from rmqstore.dledger.member import found_member
from rmqstore.engine.log.ledger_paths import with_found_member
from rmqstore.engine.log.opening import configured_kinds, with_delay_levels
from rmqstore.engine.log.recovery.plan import RecoveryPlan
from rmqstore.engine.log.recovery.planner import plan_recovery
from rmqstore.engine.store import open_store
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import LOCAL, StorePath

# --- An opening of a store for writing that only looks: its plan, or why it is refused, without a lock and a change.


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


# ---

_EXAMPLE = """\b
Example:
  rmqstore recover /data/rocketmq/store --dry-run
"""


@click.command(epilog=_EXAMPLE, short_help="Bring a store in order after a crash.")
@click.argument("store", metavar="STORE", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Only show the plan; nothing is written.")
@click.option(
    "--cut",
    is_flag=True,
    help="Cut the log at damage in its middle, as RocketMQ does. Messages after the damage are lost.",
)
@click.option(
    "--broker-conf",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The broker's configuration: log paths, delay levels, index or not.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
@debug_option
def recover(store: str, dry_run: bool, cut: bool, broker_conf: str | None, as_json: bool) -> None:
    """Bring a store in order after a crash, as a broker does at its start, and close it cleanly.

    Shows where the log ends and why, which queue entries and index files are written again, and what goes. Without
    --dry-run the store is locked first: its broker must be stopped. A log that is damaged in front of sound messages
    is refused unless --cut is given.
    """
    changes: dict[str, Any] = {"on_middle_damage": "cut" if cut else "refuse", "preallocate": False}
    config = StoreConfig.from_broker_conf(broker_conf, **changes) if broker_conf else StoreConfig(**changes)
    if dry_run:
        plan = recovery_plan(store, config)
    else:
        config = with_found_member(store, config)
        root = found_store(store, config.named_log_paths(), may_be_ledger=config.dledger is not None)
        with open_store(root, config, workers=False) as opened:
            plan = opened.recovery
            further = [warning for warning in opened.warnings if warning not in plan.warnings]
    if as_json:
        print_json(plan.as_dict() | {"isApplied": not dry_run})
        return
    if dry_run:
        tell_open(store)
    for line in plan.lines(store):
        click.echo(printable(line))
    if not dry_run:
        for warning in further:
            click.echo(f"warning: {printable(warning)}")
        click.echo("recovered, and closed cleanly")
    elif not plan.changes_nothing:
        click.echo("nothing was written; run without --dry-run to do this")
