"""`rmqstore clean`: delete the oldest log files of a store that nobody has open, and what leads to them only."""

import re
from dataclasses import replace

import click

from rmqstore.cli.output import counted, debug_option, one_line, print_json, printable, tell_open, wrapped
from rmqstore.config import StoreConfig, read_broker_conf
from rmqstore.directory.config_files import consumer_offsets
from rmqstore.directory.queue_files import SIMPLE, first_behind
from rmqstore.engine.log.ledger_paths import with_found_member
from rmqstore.engine.log.offline_clean import clean_offline, plan_offline
from rmqstore.engine.log.retention.plan import RetentionPolicy
from rmqstore.errors import StoreChanging, UnsupportedLayout
from rmqstore.formats.delay_levels import parse_levels
from rmqstore.snapshot.opening import look_at

# Groups that are named on the screen.
_UNREAD_SHOWN = 5


def _age_ms(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """The milliseconds of an age as `72h`."""
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}[smhd]", text) is None:
        raise click.BadParameter(f"{text!r} is not a number with s, m, h or d, such as 72h")
    return parse_levels(text)[0]


_EXAMPLE = """\b
Example:
  rmqstore clean /data/rocketmq/store --dry-run
"""


@click.command(epilog=_EXAMPLE, short_help="Delete log files that are old enough.")
@click.argument("store", metavar="STORE", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Only show the plan; nothing is deleted.")
@click.option(
    "--older-than",
    metavar="AGE",
    callback=_age_ms,
    help="Delete log files that were last changed longer ago than this, such as 72h, the default.",
)
@click.option("--force", is_flag=True, help="Delete log files of any age, all but the newest one.")
@click.option(
    "--broker-conf",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The broker's configuration: log paths, fileReservedTime.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
@debug_option
def clean(
    store: str, dry_run: bool, older_than: int | None, force: bool, broker_conf: str | None, as_json: bool
) -> None:
    """Delete the oldest log files of a store, and the queue and index files that led only to them.

    What a broker does by itself every night, at once and for all files that are old enough, however full the disk is.
    The newest log file always stays. Without --dry-run the store is locked, and recovered first if it was not closed
    cleanly: its broker must be stopped.
    """
    if force and older_than is not None:
        raise click.UsageError(
            "--force and --older-than: give only one of them; --force deletes log files of any age, all but the "
            "newest one, and --older-than AGE only log files that were last changed longer ago than AGE"
        )
    config, policy = _settings(broker_conf, older_than)
    if with_found_member(store, config).dledger is not None:
        raise UnsupportedLayout(store, "has a DLedger commitlog, which this command does not clean: call Store.clean")
    if dry_run:
        plan, was_closed = plan_offline(store, config, policy, force)
    else:
        plan, was_closed = clean_offline(store, config, policy, force), True
    unread = _unread(store, config, plan.min_offset) if dry_run and plan.log_files else {}
    if as_json:
        told = [{"group": group, "topic": topic, "messages": count} for (group, topic), count in unread.items()]
        print_json(plan.as_dict() | {"isApplied": not dry_run} | ({"unread": told} if dry_run else {}))
        return
    if dry_run:
        tell_open(store)
    for line in plan.lines():
        click.echo(printable(line))
    for (group, topic), count in sorted(unread.items(), key=lambda one: -one[1])[:_UNREAD_SHOWN]:
        click.echo(
            wrapped("unread      ", f"{group} has not read {counted(count, 'message')} of {topic} in these files")
        )
    if len(unread) > _UNREAD_SHOWN:
        click.echo(f"            and {counted(len(unread) - _UNREAD_SHOWN, 'more group')} (--json lists them)")
    if not was_closed:
        click.echo("the store was not closed cleanly: it is recovered first (rmqstore recover --dry-run)")
    if not plan.changes_nothing:
        click.echo("nothing was deleted; run without --dry-run to do this" if dry_run else "deleted")


def _unread(root: str, config: StoreConfig, log_start: int) -> dict[tuple[str, str], int]:
    """By group and topic, how many messages a group has still to read that stand in front of `log_start` of the log; of
    plain queues, by the offsets that groups committed.  A store that changes too much meanwhile tells none, aloud.
    """
    try:
        (store,) = look_at([(root, *config.named_log_paths())]).stores
    except StoreChanging as changing:
        click.echo(f"cannot tell which groups have not read these messages: {one_line(changing)}", err=True)
        return {}
    found: dict[tuple[str, str], int] = {}
    for key, offsets in consumer_offsets(store.disk, store.path).items():
        for queue_id, offset in offsets.items():
            queue = store.queues.get((key[1], queue_id))
            if queue is None or queue.files.kind != SIMPLE or offset >= queue.entry_end:
                continue
            kept = first_behind(queue.files, queue.entry_start, queue.entry_end, log_start)
            count = kept - max(offset, queue.entry_start)
            if count > 0:
                found[key] = found.get(key, 0) + count
    return found


def _settings(broker_conf: str | None, older_than: int | None) -> tuple[StoreConfig, RetentionPolicy]:
    """The store's configuration and the policy.  Raises Rejected."""
    config, policy = StoreConfig(preallocate=False), RetentionPolicy()
    if broker_conf is not None:
        text = read_broker_conf(broker_conf)
        config = StoreConfig.from_broker_conf(broker_conf, lambda _: text, preallocate=False)
        policy = RetentionPolicy.of(config, text)
    return config, policy if older_than is None else replace(policy, reserved_ms=older_than)
