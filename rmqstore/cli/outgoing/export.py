"""`rmqstore export`: messages as Parquet or lines of JSON below a directory, or into another store; run by run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rmqstore import Rejected, open_snapshot
from rmqstore.cli.outgoing.which_messages import Moment, meant_topics, meant_window, message_options
from rmqstore.cli.output import counted, given_paths, printable, store_arguments, whole_text
from rmqstore.config import MIB
from rmqstore.export import ExportDone, ExportWish, export_messages
from rmqstore.export.run import Tell
from rmqstore.export.wish import PARTITIONS, TARGET_BYTES, Compression, Format
from rmqstore.snapshot.request import OnCorruptRecord
from rmqstore.snapshot.store_paths import Paths

_NO_PARTITIONS = "none"
_EXAMPLE = """\b
Examples:
  rmqstore export /data/rocketmq/store --topic orders --to /data/orders
  rmqstore export /data/rmq --topic 'orders*' --since 7d --format json-lines --to /data/lines
  rmqstore export /data/rocketmq/store --topic orders --format store --to /data/smaller
"""


@click.command(epilog=_EXAMPLE, short_help="Write topics to Parquet, JSON lines or another store.")
@store_arguments
@message_options
@click.option(
    "--to", required=True, metavar="DIR", callback=whole_text, help="The directory, or the store, to write to."
)
@click.option(
    "--format", "form", type=click.Choice(get_args(Format)), default="parquet", show_default=True,
    help="The format; store: a store that rmqstore creates or adds to.",
)  # fmt: skip
@click.option(
    "--columns", callback=whole_text, metavar="NAMES", help="Columns, separated by commas; '*' for all."
)  # fmt: skip
@click.option(
    "--partition-by", default=",".join(PARTITIONS), show_default=True, callback=whole_text, metavar="NAMES",
    help="Directories topic=…/day=…: topic, day, topic,day or none.",
)  # fmt: skip
@click.option(
    "--day-of", type=click.Choice(("storeTimestamp", "bornTimestamp")), default="storeTimestamp", show_default=True,
    help="The column that gives the day, in UTC.",
)  # fmt: skip
@click.option(
    "--compression", type=click.Choice(get_args(Compression)), help="Default: zstd for Parquet, none for JSON lines."
)
@click.option(
    "--target-mib", type=click.IntRange(1, 65536), default=TARGET_BYTES // MIB, show_default=True, metavar="N",
    help="Size of a file, roughly, in MiB.",
)  # fmt: skip
@click.option(
    "--on-corrupt-record", type=click.Choice(get_args(OnCorruptRecord)), default="fail", show_default=True,
    help="Damaged messages: end the export, leave them out, or write rows with the column corruptReason.",
)  # fmt: skip
@click.option("--skip-lost", is_flag=True, help="Continue after messages that were deleted before they were read.")
def export(stores: tuple[str, ...], to: str, **given: Any) -> None:
    """Write messages to Parquet files, lines of JSON or another store; run again, add what came since.

    Each message is there once, whatever ends a run: the same command goes on. The rows are those of
    spark.read.format("rmqstore"), the layout that of the job topic_to_parquet: DIR/topic=…/day=…/part-….parquet. A
    directory belongs to one export; another one, or anything else in it, is refused.
    """
    wish = _wish(given)
    paths = given_paths(stores)
    if wish.pattern is not None:
        known = open_snapshot(paths)
        meant_topics(given["topics"], given["include_system_topics"]).require_known(
            sorted({topic for store in known.stores for topic, _ in store.queues}), ", ".join(stores)
        )
        del known
    _tell(_exported(paths, to, wish), printable(to), skips_damage=wish.on_corrupt_record == "skip")


def _tell(done: ExportDone, place: str, *, skips_damage: bool) -> None:
    """Says what a run did, and on standard error what is missing."""
    click.echo(f"{counted(done.added_count, 'message')} added to {place}, {done.total_count} in all")
    if done.gone_file_count:
        files = counted(done.gone_file_count, "file")
        are = "is" if done.gone_file_count == 1 else "are"
        gone = f"{files} of this export {are} gone from {place}: their messages are not exported again"
        click.echo(f"{gone}; to export all again, name another directory", err=True)
    if done.damaged_count:
        how = "damaged, and left out" if skips_damage else "damaged"
        click.echo(f"{counted(done.damaged_count, 'message')} {how}; `rmqstore verify` says where", err=True)
    if done.lost_count:
        click.echo(f"{counted(done.lost_count, 'message')} deleted before they were read", err=True)
    if done.left_out:
        messages = counted(sum(done.left_out.values()), "message")
        topics = f"{counted(len(done.left_out), 'topic')} left out"
        names = ", ".join(sorted(done.left_out))
        click.echo(f"{messages} of {topics}, to which no message can be put: {names}", err=True)


def _wish(given: dict[str, Any]) -> ExportWish:
    """The options' meaning.  Raises click.UsageError."""
    meant = meant_topics(given["topics"], given["include_system_topics"])
    since: Moment | None = given["since"]
    until: Moment | None = given["until"]
    names = tuple(name.strip() for name in given["partition_by"].split(","))
    window = meant_window(since, until, given["born"])
    try:
        return ExportWish(
            format=given["form"], topics=meant.topics, pattern=meant.pattern,
            include_system_topics=meant.include_system_topics, columns=given["columns"], tags=given["tags"],
            keys=given["key"], window=window,
            time_words=(None if since is None else since.said, None if until is None else until.said),
            partition_by=() if names == (_NO_PARTITIONS,) else names, day_of=given["day_of"],
            compression=given["compression"], target_bytes=given["target_mib"] * MIB,
            on_corrupt_record=given["on_corrupt_record"], skip_lost=given["skip_lost"],
        )  # fmt: skip
    except Rejected as mistake:
        raise click.UsageError(str(mistake)) from None


def _exported(paths: Paths, to: str, wish: ExportWish) -> ExportDone:
    with _bar() as tell:
        return export_messages(paths, to, wish, tell=tell)


@contextmanager
def _bar() -> Iterator[Tell]:
    """A bar of messages on standard error, where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("exporting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("exporting", total=None)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield tell
